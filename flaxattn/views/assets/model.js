// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The model level: every head of every layer as a small picture of its weights, queries downwards and
// keys to the right. Pictures are painted when they come into sight, a few at a time.

import { element, svgElement, tokenText } from "./elements.js";
import { GridLevel } from "./grid_level.js";
import { formatWeight } from "./numbers.js";
import { headTip } from "./panel.js";
import { poolHead, strongestAt } from "./pool.js";
import { legend, paintWeights, scaleColours } from "./scale.js";

/** Pixels of a picture at most, each way: of a head among others, and beside them. */
const SMALL_SIDE = 128;
const LARGE_SIDE = 236;
/** So long pictures are painted before the reader is heard again, in milliseconds. */
const TURN = 12;

export class ModelLevel extends GridLevel {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {import("./shell.js").Shell} actions
   */
  constructor(root, payload, state, actions) {
    super(root, payload, state, actions);
    this.seen = new IntersectionObserver((entries) => this.notice(entries), { rootMargin: "200px" });
    /** @type {Set<import("./grid.js").Cell>} cells in sight that are to be painted */
    this.waiting = new Set();
    this.shown = "";
  }

  destroy() {
    this.seen.disconnect();
    this.waiting.clear();
  }

  draw() {
    const { state } = this;
    if (this.side !== state.side) this.fit();
    const selection = state.selection(null);
    const shown = JSON.stringify([state.attention, state.opacity, state.special, state.first, state.shown, state.weights, document.documentElement.dataset.theme]);
    if (this.shown !== shown) {
      this.shown = shown;
      this.colours = scaleColours(state.signed);
      this.seen.disconnect();
      this.grid.cells.forEach((cell) => this.watch(cell));
    }
    const tall = selection.queries.length / Math.max(1, selection.keys.length);
    this.grid.root.style.setProperty("--tall", String(Math.max(0.4, Math.min(2.5, tall))));
    this.root.classList.toggle("signed", state.signed); // heads that are alike are as white as the page
    this.grid.mark(state);
    this.showStatus();
    this.showPanel(null);
  }

  /** Put up the heads of another side. */
  fit() {
    this.side = this.state.side;
    this.shown = "";
    this.grid.layOutByLayer(this.side);
    for (const { button } of this.grid.cells) button.append(element("canvas", { "aria-hidden": "true" }));
  }

  /** Say what a head does, and paint it when it comes into sight. */
  watch({ layer, head, button }) {
    const { does } = this.side.measure(layer, head);
    button.setAttribute("aria-label", `Layer ${this.side.layers[layer]}, head ${this.side.heads[head]}, ${does}`);
    this.seen.observe(button);
  }

  showStatus() {
    const { state } = this;
    const own = state.kind && !state.kind.shares ? `${state.kind.label}, 1 is the largest of each layer` : state.kind && state.kind.label;
    const unit = state.opacity === "row" ? "share of the row's largest weight" : own || "weight";
    const place = (weight) => (state.signed ? (1 + Math.sign(weight) * Math.sqrt(Math.abs(weight))) / 2 : Math.sqrt(weight));
    const weights = state.signed ? [-1, -0.25, 0, 0.25, 1] : [0, 0.1, 0.25, 0.5, 1];
    const marks = weights.map((weight) => [place(weight), String(weight).replace("-", "−")]);
    const badge = element("span", { class: "badge", text: state.shares ? "renormalised" : "left out", hidden: !state.leftOut() });
    badge.title = `Weights on ${state.leftOut()} are left out.`;
    this.scale = { unit, colours: this.colours, marks: /** @type {any} */ (marks) };
    this.status.replaceChildren(element("span", { text: unit }), legend(this.colours, /** @type {any} */ (marks)), badge);
  }

  // Painting

  notice(entries) {
    for (const entry of entries) {
      const cell = this.grid.cells.find(({ button }) => button === entry.target);
      if (!cell) continue;
      if (entry.isIntersecting) this.waiting.add(cell);
      else this.waiting.delete(cell);
    }
    this.paintSome();
  }

  /** Paint for a short time, and go on after what the reader does. */
  paintSome() {
    const end = performance.now() + TURN;
    const selection = this.state.selection(null);
    for (const cell of this.waiting) {
      this.waiting.delete(cell);
      this.seen.unobserve(cell.button);
      this.paint(cell, selection);
      if (performance.now() > end) break;
    }
    this.root.dataset.waiting = String(this.waiting.size);
    if (this.waiting.size) requestAnimationFrame(() => this.paintSome());
  }

  /** Paint what is out of sight too, at once. */
  paintAll() {
    const selection = this.state.selection(null);
    this.grid.cells.forEach((cell) => cell.button.dataset.painted === this.shown || this.paint(cell, selection));
  }

  paint({ layer, head, button }, selection) {
    const picture = poolHead(this.side.layerAt(layer), head, selection, SMALL_SIDE);
    const whole = paintWeights(button.querySelector("canvas"), picture, this.colours, this.state.signed);
    button.classList.toggle("broken", !whole);
    button.dataset.painted = this.shown;
  }

  // Reading

  point(cell, event) {
    if (this.pointed !== cell) this.showPanel(cell);
    const box = cell.button.getBoundingClientRect();
    const [across, down] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    if (!(across >= 0 && across < 1 && down >= 0 && down < 1)) return this.actions.hideTip();
    const found = strongestAt(this.side.layerAt(cell.layer), cell.head, this.state.selection(null), across, down, SMALL_SIDE);
    if (!found) return this.actions.hideTip();
    const pair = [tokenText(this.side.left.tokens[found.query]), " → ", tokenText(this.side.right.tokens[found.key])];
    const weight = element("span", { class: "value", text: formatWeight(found.weight) });
    return this.actions.showTip([element("strong", {}, ...pair), weight], event);
  }

  leave() {
    this.actions.hideTip();
  }

  /** One head large, with its numbers; without one, what to do. */
  showPanel(cell) {
    this.pointed = cell;
    if (!cell) {
      const text = "Point at a head to see it large, with its numbers. Click it to see its lines.";
      this.panel.replaceChildren(element("h2", { text: "All heads" }), element("p", { class: "hint", text }));
      return;
    }
    const canvas = element("canvas", { class: "large", "aria-hidden": "true" });
    const picture = poolHead(this.side.layerAt(cell.layer), cell.head, this.state.selection(null), LARGE_SIDE);
    canvas.classList.toggle("broken", !paintWeights(canvas, picture, this.colours, this.state.signed));
    const measure = this.side.measure(cell.layer, cell.head);
    const facts = { number: this.side.heads[cell.head], colour: "", measure };
    this.panel.replaceChildren(canvas, ...headTip(this.side.layers[cell.layer], facts));
  }

  // What is shown, for files and tests

  /** @returns {import("./pool.js").Picture} what the picture of a head shows */
  drawn(layer, head) {
    return poolHead(this.side.layerAt(layer), head, this.state.selection(null), SMALL_SIDE);
  }

  /** All heads in one picture; those out of sight are painted for it. */
  picture() {
    const { side } = this.state;
    const selection = this.state.selection(null);
    const [size, gap, edge] = [72, 6, 40];
    const tall = Math.round(size * Number(this.grid.root.style.getPropertyValue("--tall")));
    const [width, height] = [edge + side.heads.length * (size + gap) + gap, edge + 24 + side.layers.length * (tall + gap) + gap];
    const ink = this.actions.style("--ink");
    const { root, body } = this.paper(width, height, "all heads");
    const text = (x, y, words) => svgElement("text", { x, y, "text-anchor": "middle", fill: ink }, words);
    side.heads.forEach((number, head) => body.append(text(edge + head * (size + gap) + size / 2, edge + 12, String(number))));
    side.layers.forEach((number, layer) => body.append(text(edge / 2, edge + 24 + layer * (tall + gap) + tall / 2, String(number))));
    for (const { layer, head } of this.grid.cells) {
      const canvas = element("canvas");
      paintWeights(canvas, poolHead(side.layerAt(layer), head, selection, SMALL_SIDE), this.colours, this.state.signed);
      const place = { x: edge + head * (size + gap), y: edge + 24 + layer * (tall + gap), width: size, height: tall };
      const image = svgElement("image", { ...place, href: canvas.toDataURL(), preserveAspectRatio: "none" });
      image.style.setProperty("image-rendering", "pixelated");
      body.append(image);
    }
    return this.file("attention-model", root);
  }
}
