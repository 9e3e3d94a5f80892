// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// One head as a matrix on a canvas, queries down and keys across: zoom, an overview, a crosshair.
// `matrix_grid.js` says what a cell is worth, `matrix_paint.js` how it looks, `matrix_input.js` what
// a pointer does.

import { element, fillWith, tokenText } from "./elements.js";
import { goldColours, outlineGold } from "./gold_paint.js";
import { byRow, Pyramid, readGrid } from "./matrix_grid.js";
import { MatrixInput } from "./matrix_input.js";
import { asPixels, colourOfWeight, divergingShades, hatch, NUMBER_EDGES, paintCells, READABLE, shadesBetween, tokenEdges, writeEdges } from "./matrix_paint.js";
import { formatCount, formatWeight } from "./numbers.js";
import { partsText, ruleParts } from "./matrix_parts.js";
import { matrixPicture } from "./matrix_picture.js";
import { CanvasPen, sizeCanvas } from "./pens.js";

const LARGEST_CELL = 28;
const TALLEST_MATRIX = 680;
const OVERVIEW = 132;
/** Room on the right, for the last token above. */
const MARGIN = 36;
const CLOSEST = 40;

/** @returns {number} a size of cells, at most so large, that makes all painted cells equal */
function evenSize(size) {
  const painted = 2 ** Math.max(0, Math.ceil(-Math.log2(size)));
  return Math.floor(size * painted) / painted;
}

export class Matrix {
  /**
   * @param {HTMLElement} root an empty element, whose width is what there is
   * @param {import("./state.js").State} state
   * @param {any} actions the shell
   */
  constructor(root, state, actions) {
    this.root = root;
    this.state = state;
    this.actions = actions;
    this.cells = element("canvas", { class: "cells" });
    this.cross = element("canvas", { class: "cross" });
    this.buffer = document.createElement("canvas");
    const keys = "Arrow keys move, Enter holds the query, plus and minus zoom, 0 shows all.";
    const stage = { class: "matrix-board", tabindex: "0", role: "application", "aria-label": `Matrix of attention weights. ${keys}` };
    this.stage = element("div", stage, this.cells, this.cross);
    this.overview = element("canvas", { class: "matrix-overview", "aria-hidden": "true" });
    this.legend = element("div", { class: "matrix-legend" });
    this.pooling = element("span", { class: "matrix-pooling" });
    const button = (name, text, act) => element("button", { type: "button", class: "sign", "aria-label": name, title: name, text, click: act });
    this.tools = element(
      "div",
      { class: "matrix-tools" },
      button("Zoom out", "−", () => this.zoom(0.5)),
      button("Zoom in", "+", () => this.zoom(2)),
      button("Show all", "Show all", () => this.showAll()),
      this.legend,
    );
    this.side = element("div", { class: "matrix-side" }, this.overview);
    root.replaceChildren(this.tools, element("div", { class: "matrix-body" }, this.stage, this.side));
    /** @type {import("./matrix_paint.js").Window} */
    this.window = null;
    /** @type {{query: number, key: number}|null} row and column under the pointer */
    this.cell = null;
    // What has been read: whose weights, and which of them.
    /** @type {import("./lines.js").Layer} */
    this.layer = null;
    this.head = 0;
    /** @type {import("./lines.js").Selection} */
    this.selection = null;
    this.reading = "";
    new MatrixInput(this);
  }

  // Showing

  /** @param {import("./gold.js").Gold|null} [gold] pairs to be outlined */
  draw(gold = null) {
    const { state } = this;
    this.gold = gold;
    const selection = state.selection(null);
    const layer = state.layerWeights();
    const head = state.oneHead();
    const hidden = selection.hidden ? [...selection.hidden].join() : "";
    const reading = [head, selection.queries.join(), selection.keys.join(), hidden, selection.mass, selection.opacity, state.labels].join(" ");
    if (layer !== this.layer || reading !== this.reading) this.read(layer, head, selection, reading);
    const style = (name) => this.actions.style(name);
    const signed = () => divergingShades(style("--negative"), style("--paper"), style("--positive"));
    this.shades = state.signed ? signed() : shadesBetween(style("--scale-low"), style("--scale-high"));
    this.pixels = asPixels(this.shades);
    this.arrange();
    this.paint();
    this.showLegend();
  }

  /** Take in the weights of a head; the window stays where the matrix has the same size. */
  read(layer, head, selection, reading) {
    const { queries, keys, opacity } = selection;
    const same = this.grid && this.grid.rows === queries.length && this.grid.columns === keys.length;
    this.layer = layer;
    this.head = head;
    this.selection = selection;
    this.reading = reading;
    this.grid = readGrid(layer, head, selection);
    this.gaps = this.grid.values.reduce((count, weight) => count + Number(Number.isNaN(weight)), 0);
    const named = this.named();
    this.edges = tokenEdges(queries.map((query) => named.left[query]), keys.map((key) => named.right[key]));
    this.pyramid = new Pyramid(opacity === "row" ? byRow(this.grid, layer.beside && readGrid(layer.beside, head, selection)) : this.grid);
    this.cell = null;
    if (!same) this.window = null;
  }

  /** Where everything is, in the width there is. */
  arrange() {
    const { rows, columns } = this.grid;
    const width = Math.max(200, this.root.clientWidth);
    const fit = (edges) => Math.min(LARGEST_CELL, (width - edges.left - MARGIN) / columns, TALLEST_MATRIX / rows);
    const beside = fit(this.edges); // with tokens on the edges
    this.fitting = beside >= READABLE ? beside : Math.min(fit(NUMBER_EDGES), READABLE - 0.01);
    this.fitting = evenSize(this.fitting);
    if (!this.window || this.window.size < this.fitting) this.window = { row: 0, column: 0, size: this.fitting };
    const whole = this.window.size <= this.fitting;
    const edges = this.window.size >= READABLE ? this.edges : NUMBER_EDGES;
    const room = width - edges.left - MARGIN - (whole ? 0 : OVERVIEW + 16);
    const sides = [Math.min(room, columns * this.window.size), Math.min(TALLEST_MATRIX, rows * this.window.size)];
    this.place = { ...edges, width: sides[0], height: sides[1] };
    this.side.hidden = whole;
    this.within();
  }

  /** Keep the window on the matrix. */
  within() {
    const { window, place, grid } = this;
    const clamp = (value, length, count) => Math.max(0, Math.min(value, count - length / window.size));
    window.row = clamp(window.row, place.height, grid.rows);
    window.column = clamp(window.column, place.width, grid.columns);
  }

  paint() {
    const { place } = this;
    const [width, height] = [place.left + place.width + MARGIN, place.top + place.height + 1];
    this.stage.style.setProperty("width", `${width}px`);
    this.stage.style.setProperty("height", `${height}px`);
    const context = sizeCanvas(this.cells, width, height);
    if (this.gaps) hatch(context, place, { paper: this.actions.style("--raised"), ink: this.actions.style("--soft") });
    paintCells(context, this.pyramid, this.window, place, this.pixels, this.buffer);
    writeEdges(new CanvasPen(context), this.window, place, this.named(), this.actions.style("--ink"));
    this.ruled = ruleParts(new CanvasPen(context), this, this.actions.style("--ink"));
    context.strokeStyle = this.actions.style("--rule");
    context.strokeRect(place.left - 0.5, place.top - 0.5, place.width + 1, place.height + 1);
    const pooled = this.pooled();
    this.pooling.textContent = pooled > 1 ? `a pixel is the largest of ${pooled} × ${pooled}; ` : "";
    this.paintOverview();
    this.focus();
  }

  /** Outline the cells of gold pairs. */
  outline(pen) {
    if (!this.gold) return [];
    const places = (positions) => new Map(positions.map((position, i) => [position, i]));
    const axes = { rows: places(this.selection.queries), columns: places(this.selection.keys) };
    return outlineGold(pen, this.gold, this.window, this.place, axes, goldColours(this.actions.style), this.state);
  }

  /** Paint once before the next frame, however often this is called. */
  paintSoon() {
    if (this.actions.linkWindow) this.actions.linkWindow(this);
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  paintOverview() {
    if (this.side.hidden) return;
    const { rows, columns } = this.grid;
    const size = OVERVIEW / Math.max(rows, columns);
    const context = sizeCanvas(this.overview, columns * size, rows * size);
    const whole = { left: 0, top: 0, width: columns * size, height: rows * size };
    paintCells(context, this.pyramid, { row: 0, column: 0, size }, whole, this.pixels, this.buffer);
    context.strokeStyle = this.actions.style("--rule");
    context.strokeRect(0.5, 0.5, whole.width - 1, whole.height - 1);
    const seen = [this.place.width / this.window.size, this.place.height / this.window.size].map((n) => Math.max(4, n * size));
    context.strokeStyle = this.actions.style("--accent");
    context.lineWidth = 2;
    context.strokeRect(this.window.column * size, this.window.row * size, seen[0], seen[1]);
  }

  /** The crosshair: what is pointed at, and what is held. */
  focus() {
    const { place, state } = this;
    const context = sizeCanvas(this.cross, place.left + place.width + MARGIN, place.top + place.height + 1);
    this.outlined = this.outline(new CanvasPen(context));
    const { queries, keys } = this.selection;
    const row = (index) => (index === null ? -1 : queries.indexOf(index));
    const column = (index) => (index === null ? -1 : keys.indexOf(index));
    this.band(context, row(state.query), -1, this.actions.style("--ink"));
    this.band(context, -1, column(state.key), this.actions.style("--ink"));
    if (this.cell) this.band(context, this.cell.query, this.cell.key, this.actions.style("--accent"));
    else if (state.hover) {
      const [q, k] = state.hover.side === "left" ? [row(state.hover.index), -1] : [-1, column(state.hover.index)];
      this.band(context, q, k, this.actions.style("--accent"));
    }
  }

  /** Frame a row, a column, or both; -1 for none. */
  band(context, row, column, colour) {
    const { place, window } = this;
    const size = Math.max(1.5, window.size);
    const x = place.left + (column - window.column) * window.size;
    const y = place.top + (row - window.row) * window.size;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.save();
    context.beginPath();
    context.rect(place.left - 1, place.top - 1, place.width + 2, place.height + 2);
    context.clip();
    if (row >= 0) context.strokeRect(place.left, y, place.width, size);
    if (column >= 0) context.strokeRect(x, place.top, size, place.height);
    context.restore();
  }

  showLegend() {
    const { unit, named } = this.marks();
    const marks = named.map(([text, colour]) => {
      const box = element("span", { class: "matrix-shade", "aria-hidden": "true" });
      fillWith(box, colour);
      return element("span", { class: "matrix-mark" }, box, text);
    });
    this.legend.replaceChildren(this.pooling, element("span", { text: unit }), ...marks);
  }

  /** @returns {{unit: string, named: [string, string][]}} what the legend says: weights and their colours */
  marks() {
    const whole = this.state.kind ? this.state.meaning() : "weight";
    const share = `share of the row’s largest ${this.layer.beside ? "weight in both" : "weight"}`;
    const unit = (this.selection.opacity === "row" ? share : whole) + partsText(this.state.side);
    const weights = this.state.signed ? [-1, -0.25, -0.01, 0, 0.01, 0.25, 1] : [0, 0.01, 0.1, 0.25, 0.5, 1];
    return { unit, named: weights.map((weight) => [String(weight).replace("-", "−"), colourOfWeight(this.shades, weight)]) };
  }

  // Pointing

  /** @returns {{x: number, y: number}} of an event, on the canvas */
  placeOf(event) {
    const box = this.cells.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** @returns {{query: number, key: number}|null} row and column at a place of the canvas */
  cellAt({ x, y }) {
    const { place, window, grid } = this;
    const [across, down] = [x - place.left, y - place.top];
    if (across < 0 || down < 0 || across >= place.width || down >= place.height) return null;
    const cell = { query: Math.floor(window.row + down / window.size), key: Math.floor(window.column + across / window.size) };
    return cell.query < grid.rows && cell.key < grid.columns ? cell : null;
  }

  /** Move the crosshair; an event or an element says where the tooltip goes. */
  pointAt(cell, where) {
    const before = this.cell;
    this.cell = cell;
    if (this.actions.linkCell) this.actions.linkCell(this);
    if (!cell) this.actions.hideTip();
    else this.actions.showTip(this.tip(cell), where);
    if (before === cell || (before && cell && before.query === cell.query && before.key === cell.key)) return;
    if ((before && before.query) !== (cell && cell.query)) {
      this.actions.point("left", cell ? this.selection.queries[cell.query] : null);
    }
    this.focus();
  }

  /** @returns {Node[]} the pair of a cell and its weight */
  tip(cell) {
    const { left, right } = this.state.side;
    const [query, key] = [this.selection.queries[cell.query], this.selection.keys[cell.key]];
    const pair = element("strong", {}, tokenText(left.tokens[query]), " → ", tokenText(right.tokens[key]));
    const { tellWeights } = this.actions;
    const weight = tellWeights ? tellWeights(this.head, query, key) : formatWeight(this.weightAt(cell));
    const where = `positions ${query} → ${key}, head ${this.state.headNumber(this.head)}: `;
    return [pair, element("span", {}, where, element("b", { class: "value", text: weight }))];
  }

  /** @returns {number} */
  weightAt({ query, key }) {
    return this.grid.values[query * this.grid.columns + key];
  }

  // Zoom

  /** Zoom by a factor about a place of the canvas, or about the middle. */
  zoom(factor, at = null) {
    const { window, place } = this;
    const { x, y } = at || { x: place.left + place.width / 2, y: place.top + place.height / 2 };
    const size = Math.min(CLOSEST, Math.max(this.fitting, window.size * factor));
    const row = window.row + (y - place.top) / window.size;
    const column = window.column + (x - place.left) / window.size;
    this.window = { size, row: 0, column: 0 };
    this.arrange();
    this.window.row = row - (y - place.top) / size;
    this.window.column = column - (x - place.left) / size;
    this.within();
    this.paintSoon();
  }

  showAll() {
    this.window = null;
    this.arrange();
    this.paintSoon();
  }

  // Handing out

  /** What the edges are named after. */
  named() {
    const { left, right } = this.state.side;
    const { queries, keys } = this.selection;
    return { queries, keys, left: left.tokens, right: right.tokens };
  }

  /** What is on the canvas, by the numbers of the model. */
  drawn() {
    const { selection, window, place, grid, shades } = this;
    const numbers = { head: this.state.headNumber(this.head), layer: this.state.layerNumber() };
    const cell = this.cell && { query: selection.queries[this.cell.query], key: selection.keys[this.cell.key], weight: this.weightAt(this.cell) };
    const size = { rows: grid.rows, columns: grid.columns, pooled: this.pooled() };
    return { ...numbers, queries: selection.queries, keys: selection.keys, window, place, cell, shades, gold: this.outlined, ruled: this.ruled, ...size };
  }

  /** @returns {string} how much is shown */
  status() {
    const { rows, columns } = this.grid;
    const size = `${formatCount(rows)} × ${formatCount(columns)}`;
    const { mass } = this.selection;
    const left = mass < 1 ? `, only the strongest that hold ${Math.round(100 * mass)} % of each row` : "";
    return `Head ${this.state.headNumber(this.head)}: ${size} weights${left}`;
  }

  /** @returns {number} weights on either side of a cell that is painted */
  pooled() {
    return 2 ** this.pyramid.times(this.window.size * (globalThis.devicePixelRatio || 1));
  }

  /**
   * @param {string} caption
   * @param {SVGElement|null} [legend] of gold pairs
   * @returns {string} what is seen, as an SVG document
   */
  svg(caption, legend = null) {
    const colours = { ink: this.actions.style("--ink"), paper: this.actions.style("--paper") };
    return matrixPicture(this, caption, MARGIN, colours, legend);
  }

  destroy() {
    cancelAnimationFrame(this.waiting);
    this.actions.hideTip();
  }
}
