// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What the atlas and the model level have in common: a grid of heads with a line above it and a panel
// beside it, and how they become one picture. What a cell shows is the business of each.

import { element, svgElement } from "./elements.js";
import { HeadGrid } from "./grid.js";

export class GridLevel {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {import("./shell.js").Shell} actions
   */
  constructor(root, payload, state, actions) {
    this.root = root;
    this.payload = payload;
    this.state = state;
    this.actions = actions;
    /** @type {import("./sides.js").Side} whose heads are put up */
    this.side = null;
    this.grid = new HeadGrid("All heads", {
      open: (cell) => this.open(cell),
      point: (cell, event) => this.point(cell, event),
      leave: () => this.leave(),
    });
    this.status = element("p", { class: "status", role: "status" });
    this.panel = element("aside", { class: "panel", "aria-label": "Head" });
    this.axes = element("p", { class: "axes", text: "layers ↓ heads →" });
    root.replaceChildren(this.status, element("div", { class: "body" }, element("div", {}, this.axes, this.grid.root), this.panel));
  }

  /** A cell is pointed at. */
  point(cell, event) {}

  leave() {}

  open({ layer, head }) {
    if (this.state.levels.includes("head")) this.actions.go({ level: "head", layer, heads: [head] });
  }

  key(event) {
    return this.grid.key(event);
  }

  /**
   * The beginning of a picture: a caption over an empty page.
   * @param {number} width
   * @param {number} height
   * @param {string} what is drawn
   * @returns {SVGElement}
   */
  paper(width, height, what) {
    const caption = [this.payload.model, this.side.titles[0], what, this.state.shownName()].filter(Boolean).join(", ");
    const root = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 12 });
    root.append(
      svgElement("title", {}, caption),
      svgElement("rect", { width, height, fill: this.actions.style("--paper") }),
      svgElement("text", { x: width / 2, y: 20, "text-anchor": "middle", fill: this.actions.style("--ink") }, caption),
    );
    return root;
  }

  /** A finished picture as a file. */
  file(name, root) {
    return { name: this.side.alone ? name : `${name}-${this.side.name}`, svg: new XMLSerializer().serializeToString(root) };
  }
}
