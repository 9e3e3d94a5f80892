// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The elements of the head level: made once, reporting what is done to them. What they show is set by
// `head.js`.

import { tokenColumn } from "./controls.js";
import { element } from "./elements.js";
import { GoldLines } from "./gold_lines.js";

export class HeadPage {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {import("./shell.js").Shell} actions
   */
  constructor(root, payload, state, actions) {
    this.state = state;
    this.actions = actions;
    this.panel = element("aside", { class: "panel", "aria-label": "Weights" });
    this.matrix = element("div", { class: "matrix-stage", hidden: true });
    this.lines = this.buildLines();
    const pictures = element("div", { class: "pictures" }, this.lines, this.matrix);
    this.reading = element("p", { class: "reading" });
    this.gold = element("p", { class: "gold-legend", hidden: true });
    this.pinned = element("div", { class: "spoken" });
    root.replaceChildren(this.reading, this.gold, this.buildStatus(), element("div", { class: "body" }, pictures, this.panel), this.pinned);
  }

  /** Put up what differs from side to side: headings, and room for its tokens. */
  fit(side) {
    if (this.side === side) return;
    this.side = side;
    ["left", "right"].forEach((column, i) => {
      const heading = side.titles[i + 1];
      this.headings[column].textContent = heading;
      this.columns[column].setAttribute("aria-label", heading);
      this.columns[column].replaceChildren();
      this.rows[column] = new Map();
    });
  }

  buildStatus() {
    this.count = element("span");
    this.badge = element("span", { class: "badge", text: "renormalised", hidden: true });
    this.kind = element("span", { class: "badge kind", hidden: true });
    this.lacking = element("span", { class: "badge", hidden: true });
    this.broken = element("span", { class: "badge broken", hidden: true });
    const cut = element("span", { class: "badge", hidden: true });
    const { truncated } = this.state.payload.inputs[this.state.sequence];
    if (truncated) {
      cut.hidden = false;
      cut.textContent = `${truncated} tokens were cut off to fit the model`;
    }
    return element("p", { class: "status", role: "status" }, this.count, this.badge, this.kind, this.lacking, this.broken, cut);
  }

  buildLines() {
    this.columns = {};
    this.headings = {};
    for (const side of /** @type {("left"|"right")[]} */ (["left", "right"])) {
      this.headings[side] = element("h2", { class: side });
      this.columns[side] = tokenColumn(side, {
        point: (index) => this.actions.point(side, index),
        hold: (index) => this.actions.hold(side, index),
      });
    }
    /** The labels that the rows of each side were made with. */
    this.labels = {};
    /** @type {{left: Map<number, any>, right: Map<number, any>}} */
    this.rows = { left: new Map(), right: new Map() };
    this.canvas = element("canvas", { class: "all", "aria-hidden": "true" });
    this.overlay = element("canvas", { class: "some", "aria-hidden": "true" });
    this.stage = element("div", { class: "lines" }, this.canvas, this.overlay);
    this.goldLines = new GoldLines(this.stage);
    return element(
      "div",
      { class: "stage" },
      this.headings.left,
      element("span", { class: "arrow", "aria-hidden": "true", text: "→" }),
      this.headings.right,
      this.columns.left,
      this.stage,
      this.columns.right,
    );
  }
}
