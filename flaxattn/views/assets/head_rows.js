// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The tokens of the head level while one of them is in focus: stripes and numbers on the rows that
// are in sight. Which numbers, is handed in.

import { stripeColour } from "./colours.js";
import { formatWeight } from "./numbers.js";
import { largestOf } from "./rows.js";

/** A stripe fainter than this is not seen. */
const FAINTEST = 1 / 255;
/** So far beyond the window, in CSS pixels, rows and lines are drawn as well. */
const BEYOND = 150;
/** So high a canvas of lines is at most on paper, which is about twenty sheets. */
const PRINTED = 16000;

/**
 * What a row shows of the token in focus.
 * @typedef {Object} Other
 * @property {Map<number, number>} weights by head
 * @property {number} mean over the heads that are on
 *
 * @typedef {Object} Sight a part of the picture
 * @property {number} top in CSS pixels from its upper edge
 * @property {number} height
 */

/** @returns {Sight} the part of an element that is in the window or close to it */
export function sightOf(part, height) {
  if (part.closest(".printing")) return { top: 0, height: Math.min(height, PRINTED) };
  const { top } = part.getBoundingClientRect();
  const first = Math.max(0, Math.min(height, -top - BEYOND));
  const last = Math.max(first, Math.min(height, innerHeight - top + BEYOND));
  return { top: Math.floor(first), height: Math.ceil(last - Math.floor(first)) };
}

export class HeadRows {
  /** @param {import("./head_page.js").HeadPage} page @param {import("./state.js").State} state */
  constructor(page, state) {
    this.page = page;
    this.state = state;
    /** What stands on rows; those without anything are not in it. */
    this.marks = new WeakMap();
  }

  /**
   * Of a long text only a few rows are in sight; only those that change are written.
   * @param {{side: "left"|"right", index: number}|null} focus
   * @param {Map<number, Other>} others of the other side, by position
   * @param {Sight} sight
   * @param {number} rowHeight
   * @param {(line: {head: number, weight: number}) => string} colourOf
   */
  show(focus, others, sight, rowHeight, colourOf) {
    for (const side of /** @type {("left"|"right")[]} */ (["left", "right"])) {
      const pinned = side === "left" ? this.state.query : this.state.key;
      let top = 0;
      for (const [index, row] of this.page.rows[side]) {
        const near = top + rowHeight > sight.top && top < sight.top + sight.height;
        top += rowHeight;
        const chosen = Boolean(focus) && focus.side === side && focus.index === index;
        const held = pinned === index;
        if (!near && !chosen && !held && !this.marks.has(row)) continue;
        const found = near && focus && focus.side !== side ? others.get(index) : undefined;
        this.write(row, { chosen, held, found }, colourOf);
      }
      this.page.columns[side].querySelectorAll("[tabindex]").forEach((row) => row.removeAttribute("tabindex"));
      const entry = pinned === null ? this.page.columns[side].firstChild : this.page.rows[side].get(pinned);
      if (entry) entry.tabIndex = 0;
    }
  }

  write(row, { chosen, held, found }, colourOf) {
    const text = found ? formatWeight(found.mean) : "";
    const stripes = found && largestOf([...found.weights.values()]) >= FAINTEST ? this.stripes(found.weights, colourOf) : "";
    const shown = chosen || held || text ? `${chosen} ${held} ${text} ${stripes}` : "";
    if ((this.marks.get(row) || "") === shown) return;
    if (shown) this.marks.set(row, shown);
    else this.marks.delete(row);
    row.classList.toggle("chosen", chosen);
    row.classList.toggle("held", held);
    row.setAttribute("aria-selected", String(held));
    row.style.setProperty("background-image", stripes);
    row.style.setProperty("--stripes", stripes);
    row.lastChild.textContent = text;
  }

  /** @returns {string} one stripe per head that is on */
  stripes(weights, colourOf) {
    const { heads } = this.state;
    const stops = heads.map((head, i) => {
      const weight = weights.get(head) || 0;
      const colour = stripeColour(colourOf({ head, weight }), weight);
      return `${colour} ${(100 * i) / heads.length}% ${(100 * (i + 1)) / heads.length}%`;
    });
    return `linear-gradient(90deg, ${stops.join(", ")})`;
  }
}
