// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The atlas level: a cell for every head, coloured by a number that is measured of it; by layer,
// sorted by that number, or with like heads side by side.

import { inkOn } from "./colours.js";
import { readBlock } from "./decoding.js";
import { element, fillWith, svgElement } from "./elements.js";
import { explain } from "./glossary.js";
import { GridLevel } from "./grid_level.js";
import { EFFECTS, formatMeasure, headTip, isShare, measureLabel } from "./panel.js";
import { APART } from "./sides.js";
import { evenColour, legend, scaleColours } from "./scale.js";

/** How many of the heads most like one are named. */
const NEAREST = 4;
/** A cell so wide, in CSS pixels, has room for what its head does. */
const ROOM_FOR_ROLE = 96;

export class AtlasLevel extends GridLevel {
  destroy() {
    this.side = null;
  }

  draw() {
    const { state } = this;
    const sorted = [state.order, state.shown, state.weights, state.order === "value" ? state.measure : ""].join();
    if (this.side !== state.side || this.sorted !== sorted) this.fit();
    this.sorted = sorted;
    this.range = this.findRange();
    this.colours = scaleColours(this.signed);
    this.showStatus();
    this.grid.cells.forEach((cell) => this.fill(cell));
    this.grid.mark(state);
    this.showPanel(null);
  }

  /** Put the heads in their order. */
  fit() {
    const { side, order } = this.state;
    this.side = side;
    this.order = order;
    this.distances = null;
    const { likeness } = side;
    this.axes.textContent = { grid: "layers ↓ heads →", value: "from the largest to the smallest", cluster: "like heads side by side" }[order];
    if (order === "grid" || (order === "cluster" && !likeness)) return this.grid.layOutByLayer(side);
    const count = side.heads.length;
    const place = (at) => /** @type {[number, number]} */ ([Math.floor(at / count), at % count]);
    const every = side.layers.flatMap((_, layer) => side.heads.map((__, head) => layer * count + head));
    if (order === "value") {
      const value = (at) => this.valueOf(...place(at)) ?? -Infinity;
      const sorted = every.filter((at) => side.has(...place(at))).sort((a, b) => value(b) - value(a) || a - b);
      return this.grid.layOutInGroups([{ title: "", heads: sorted.map(place) }]);
    }
    const groups = [...new Set(likeness.order.map((at) => likeness.groups[at]))];
    const members = (group) => likeness.order.filter((at) => likeness.groups[at] === group);
    return this.grid.layOutInGroups(groups.map((group) => ({ title: this.groupTitle(group, members(group), place), heads: members(group).map(place) })));
  }

  /** @returns {string} the number of a group, and what most of its heads do */
  groupTitle(group, members, place) {
    const roles = members.map((at) => this.side.measure(...place(at)).does);
    const count = (role) => roles.filter((other) => other === role).length;
    const common = roles.reduce((best, role) => (count(role) > count(best) ? role : best), roles[0]);
    if (members.length === 1) return `Group ${group + 1}: ${[common, "1 head"].find(Boolean)}`;
    const share = common && count(common) > roles.length / 2 ? `, mostly ${common}` : "";
    return `Group ${group + 1}: ${members.length} heads${share}`;
  }

  /** @returns {number|undefined} the chosen number of a head; undefined if it has none */
  valueOf(layer, head) {
    return this.side.measure(layer, head)[this.state.measure];
  }

  /** @returns {[number, number]} the ends of the scale: the smallest, or 0 for shares, and the largest */
  findRange() {
    const values = this.grid.cells.map(({ layer, head }) => this.valueOf(layer, head)).filter((value) => value !== undefined);
    const below = EFFECTS.includes(this.state.measure) && values.some((value) => value < 0);
    this.signed = below || (this.state.differs && !APART.includes(this.state.measure));
    if (!values.length) return [0, 1];
    const most = Math.max(...values.map(Math.abs)) || 1;
    if (this.signed) return [-most, most];
    const fromNothing = isShare(this.state.measure) || EFFECTS.includes(this.state.measure);
    const [low, high] = [fromNothing ? 0 : Math.min(...values), Math.max(...values)];
    return [low, high > low ? high : low + 1];
  }

  showStatus() {
    const [low, high] = this.range;
    const marks = [0, 0.5, 1].map((share) => [share, formatMeasure(this.state.measure, { [this.state.measure]: low + share * (high - low), changed: this.signed })]);
    const none = this.state.measures().length ? "" : "This side has no numbers of its own: choose another.";
    const measuredBy = (this.payload.measured_by || {})[this.state.measure] || "";
    const of = this.state.kind && !measuredBy ? `${measureLabel(this.state.measure)}, of ${this.state.kind.label} as shares of each row` : "";
    this.scale = none ? null : { unit: of || measureLabel(this.state.measure), colours: this.colours, marks: /** @type {any} */ (marks) };
    this.status.replaceChildren(
      element("span", {}, ...explain(none || of || measureLabel(this.state.measure))),
      none ? "" : legend(this.colours, /** @type {any} */ (marks)),
      element("span", { class: "measured-by", text: measuredBy }),
    );
  }

  fill({ layer, head, button }) {
    const value = this.valueOf(layer, head);
    const [low, high] = this.range;
    const colour = value === undefined ? "" : evenColour(this.colours, (value - low) / (high - low));
    const text = formatMeasure(this.state.measure, this.side.measure(layer, head));
    const number = `${this.side.layers[layer]}.${this.side.heads[head]}`;
    const { does } = this.side.measure(layer, head);
    const parts = [element("span", { class: "cell-value", text })];
    if (this.order !== "grid") parts.unshift(element("span", { class: "cell-name", text: number }));
    if (does && button.clientWidth >= ROOM_FOR_ROLE) parts.push(element("span", { class: "cell-role", text: does }));
    button.replaceChildren(...parts);
    fillWith(button, colour);
    button.style.setProperty("color", colour ? inkOn(colour) : "");
    const [name, what] = [`Layer ${this.side.layers[layer]}, head ${this.side.heads[head]}`, measureLabel(this.state.measure)];
    button.setAttribute("aria-label", [name, `${what} ${text}`, does].filter(Boolean).join(", "));
  }

  /** The numbers of one head, and the heads most like it; without one, what to do. */
  showPanel(cell) {
    if (!cell) {
      const lines = this.state.levels.includes("head") ? " Click it to see its lines." : "";
      const text = this.sorts ? " Click it to list the texts, sorted by the number shown." : lines;
      this.panel.replaceChildren(
        element("h2", { text: "What heads do here" }),
        element("ol", { class: "facts" }, ...this.roles()),
        element("p", { class: "hint", text: `Point at a head for all its numbers.${text}` }),
        ...(this.payload.changes && this.state.differs ? [element("p", { class: "hint rule", text: this.payload.changes.rule })] : []),
      );
      return;
    }
    const facts = { number: this.side.heads[cell.head], colour: "", measure: this.side.measure(cell.layer, cell.head) };
    const near = this.nearest(cell).map(({ name, distance }) =>
      element("li", { class: "fact" }, element("span", { class: "number", text: name }), element("span", { class: "value", text: distance.toFixed(2) })),
    );
    this.panel.replaceChildren(...headTip(this.side.layers[cell.layer], facts));
    if (near.length) this.panel.append(element("h3", { text: "Most similar heads, by distance" }), element("ol", { class: "facts" }, ...near));
  }

  /** @returns {HTMLElement[]} how many heads do what, the most frequent first */
  roles() {
    const counts = new Map();
    for (const { layer, head } of this.grid.cells) {
      const { does } = this.side.measure(layer, head);
      if (does) counts.set(does, (counts.get(does) || 0) + 1);
    }
    const sorted = [...counts].sort((a, b) => b[1] - a[1]);
    return sorted.map(([does, count]) =>
      element("li", { class: "fact" }, element("span", { class: "role", text: does }), element("span", { class: "value", text: count })),
    );
  }

  /** @returns {{name: string, distance: number}[]} the heads that attend most alike */
  nearest({ layer, head }) {
    const { likeness } = this.side;
    if (!likeness) return [];
    this.distances = this.distances || readBlock(this.payload, likeness.distances);
    const [count, size] = [this.side.heads.length, likeness.order.length];
    const at = layer * count + head;
    const pair = (i, j) => this.distances[size * i - (i * (i + 1)) / 2 + j - i - 1] / 255;
    const others = [...Array(size).keys()].filter((other) => other !== at);
    const named = others.map((other) => ({
      name: `${this.side.layers[Math.floor(other / count)]}.${this.side.heads[other % count]}`,
      distance: pair(Math.min(at, other), Math.max(at, other)),
    }));
    return named.sort((a, b) => a.distance - b.distance).slice(0, NEAREST);
  }

  point(cell) {
    this.showPanel(cell);
  }

  /** What each cell shows, by the numbers of the model. */
  drawn() {
    return this.grid.cells.map(({ layer, head, button }) => ({
      layer: this.side.layers[layer],
      head: this.side.heads[head],
      text: button.querySelector(".cell-value").textContent,
      colour: button.style.getPropertyValue("background-color"),
    }));
  }

  /** The cells in their present places. */
  picture() {
    const box = this.grid.root.getBoundingClientRect();
    const [width, height] = [Math.ceil(box.width), Math.ceil(box.height) + 48];
    const { root, body } = this.paper(width, height, measureLabel(this.state.measure));
    for (const part of this.grid.root.querySelectorAll("button.cell, .grid-label, h3")) {
      const place = part.getBoundingClientRect();
      const [x, y] = [place.left - box.left, place.top - box.top + 40];
      const { color } = getComputedStyle(part);
      const fill = /** @type {HTMLElement} */ (part).style.getPropertyValue("background-color");
      if (fill) body.append(svgElement("rect", { x, y, width: place.width, height: place.height, rx: 4, fill }));
      const shown = part.matches("button") ? [...part.children].map((child) => child.textContent).join(" ") : part.textContent;
      const middle = { x: x + place.width / 2, y: y + place.height / 2 + 4, "text-anchor": "middle", fill: color };
      if (shown) body.append(svgElement("text", part.matches("h3") ? { x, y: y + 14, fill: color } : middle, shown));
    }
    return this.file("attention-atlas", root);
  }
}
