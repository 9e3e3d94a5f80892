// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What the atlas and the model level have in common: a grid of heads with a line above it and a panel
// beside it, and how they become one picture. What a cell shows is the business of each.

import { element, svgElement } from "./elements.js";
import { HeadGrid } from "./grid.js";
import { svgCaption } from "./pens.js";
import { svgLegend } from "./scale.js";

/** Room for the scale and the names of the axes, and the least width that holds them. */
const ABOVE_GRID = 52;
const LEAST_WIDTH = 420;

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
    /** @type {{unit: string, colours: string[], marks: [number, string][]}|null} what the colours mean */
    this.scale = null;
    this.status = element("p", { class: "status", role: "status" });
    this.panel = element("aside", { class: "panel", "aria-label": "Head" });
    this.axes = element("p", { class: "axes", text: "layers ↓ heads →" });
    root.replaceChildren(this.status, element("div", { class: "body" }, element("div", {}, this.axes, this.grid.root), this.panel));
  }

  /** Whether a cell leads to the texts of a store, sorted by its head. */
  get sorts() {
    return Boolean(this.actions.corpus && this.actions.corpus.corpus.sort);
  }

  /** A cell is pointed at. */
  point(cell, event) {}

  leave() {}

  open({ layer, head }) {
    if (this.state.levels.includes("head")) this.actions.go({ level: "head", layer, heads: [head] });
    else if (this.sorts) this.actions.corpus.openSorted(this.side.name, this.side.layers[layer], this.side.heads[head], this.state.measure);
  }

  key(event) {
    return this.grid.key(event);
  }

  /**
   * The beginning of a picture: a caption, the scale and the names of the axes over an empty page.
   * @param {number} inner width of what is drawn
   * @param {number} inside height of what is drawn
   * @param {string} what is drawn
   * @returns {{root: SVGElement, body: SVGElement}} and where it is to be drawn
   */
  paper(inner, inside, what) {
    const caption = [this.payload.model, this.side.titles[0], what, this.state.shownName()].filter(Boolean).join(", ");
    const width = Math.max(LEAST_WIDTH, inner);
    const ink = this.actions.style("--ink");
    const { text, more } = svgCaption(caption, width, ink);
    const height = inside + ABOVE_GRID + more;
    const root = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 12 });
    const scale = svgElement("g", { transform: `translate(24 ${38 + more})` });
    if (this.scale) scale.append(svgLegend(this.scale.unit, this.scale.colours, this.scale.marks, ink));
    const body = svgElement("g", { transform: `translate(0 ${ABOVE_GRID + more})` });
    body.append(svgElement("text", { class: "axes", x: 12, y: 30, "font-size": 11, fill: this.actions.style("--soft") }, this.axes.textContent));
    root.append(svgElement("title", {}, caption), svgElement("rect", { width, height, fill: this.actions.style("--paper") }), text, scale, body);
    return { root, body };
  }

  /** A finished picture as a file. */
  file(name, root) {
    return { name: this.side.alone ? name : `${name}-${this.side.name}`, svg: new XMLSerializer().serializeToString(root) };
  }
}
