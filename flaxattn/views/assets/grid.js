// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Buttons for the heads of a side, in rows by layer or one after the other: one stop of the Tab key,
// arrow keys among them, pointing and opening. What a button shows is filled in by a level.

import { element } from "./elements.js";

/** Arrow keys by how they move. */
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @typedef {Object} Cell
 * @property {number} layer index
 * @property {number} head index
 * @property {any} button
 */

export class HeadGrid {
  /**
   * @param {string} label
   * @param {{open: (cell: Cell) => void, point: (cell: Cell, event: any) => void, leave: () => void}} report
   */
  constructor(label, report) {
    this.report = report;
    /** @type {Cell[]} */
    this.cells = [];
    this.root = element("div", { class: "grid", role: "group", "aria-label": label });
    this.root.addEventListener("click", (event) => this.tell(event, report.open));
    this.root.addEventListener("mousemove", (event) => this.tell(event, report.point));
    this.root.addEventListener("focusin", (event) => this.tell(event, report.point));
    this.root.addEventListener("mouseleave", () => report.leave());
  }

  /** Tell which cell something happened to. */
  tell(event, listener) {
    const button = event.target.closest("button.cell");
    const cell = this.cells.find((other) => other.button === button);
    if (cell) listener(cell, event);
  }

  /** @returns {Cell} */
  make(layer, head) {
    const button = element("button", { type: "button", class: "cell", tabindex: -1, "data-layer": layer, "data-head": head });
    const cell = { layer, head, button };
    this.cells.push(cell);
    return cell;
  }

  /** Layers below each other, heads side by side, both with their numbers; gaps where there is none. */
  layOutByLayer(side) {
    this.cells = [];
    const label = (text, name) => element("span", { class: `grid-label ${name}`, text });
    const parts = [label("", "corner"), ...side.heads.map((number) => label(number, "column"))];
    side.layers.forEach((number, layer) => {
      parts.push(label(number, "row"));
      side.heads.forEach((_, head) => {
        parts.push(side.has(layer, head) ? this.make(layer, head).button : element("span", {}));
      });
    });
    this.root.className = "grid by-layer";
    this.root.style.setProperty("--columns", String(side.heads.length));
    this.root.replaceChildren(...parts);
    this.rove(this.cells[0]);
  }

  /**
   * One after the other, in groups.
   * @param {{title: string, heads: [number, number][]}[]} groups
   */
  layOutInGroups(groups) {
    this.cells = [];
    const made = groups.map(({ title, heads }) =>
      element(
        "div",
        { class: "group", role: "group", "aria-label": title || "Heads" },
        element("h3", { text: title }),
        element("div", { class: "flow" }, ...heads.map(([layer, head]) => this.make(layer, head).button)),
      ),
    );
    this.root.className = "grid in-groups";
    this.root.replaceChildren(...made);
    this.rove(this.cells[0]);
  }

  /** Give the one stop of the Tab key to a cell. */
  rove(cell) {
    if (!cell) return;
    this.cells.forEach(({ button }) => button.setAttribute("tabindex", "-1"));
    cell.button.setAttribute("tabindex", "0");
  }

  /** @returns {boolean} whether the key moved among the cells */
  key(event) {
    if (!Object.keys(MOVES).includes(event.key) || event.shiftKey || !this.cells.length) return false;
    const at = this.cells.findIndex(({ button }) => button === document.activeElement);
    const [right, down] = MOVES[event.key];
    const next = at < 0 ? this.cells.find(({ button }) => button.tabIndex === 0) : this.neighbour(at, right, down);
    if (next) {
      this.rove(next);
      next.button.focus();
      next.button.scrollIntoView({ block: "nearest" });
    }
    return true;
  }

  /** @returns {Cell|undefined} the cell to the side of one, or the nearest in the row above or below */
  neighbour(at, right, down) {
    if (right) return this.cells[at + right];
    const here = this.cells[at].button.getBoundingClientRect();
    const places = this.cells.map((cell) => ({ cell, box: cell.button.getBoundingClientRect() }));
    const beyond = places.filter(({ box }) => down * (box.top - here.top) > 1);
    const distance = ({ box }) => 1000 * Math.abs(box.top - here.top) + Math.abs(box.left - here.left);
    beyond.sort((a, b) => distance(a) - distance(b));
    return beyond.length ? beyond[0].cell : undefined;
  }

  /** Mark the layer that the other levels show, and its heads where these are chosen. */
  mark(state) {
    const chosen = state.heads.length < state.side.heads.length;
    for (const { layer, head, button } of this.cells) {
      const shown = chosen && layer === state.layer && state.heads.includes(head);
      button.setAttribute("aria-current", String(shown));
    }
    this.root.querySelectorAll(".grid-label.row").forEach((label, layer) => label.classList.toggle("shown", layer === state.layer));
  }
}
