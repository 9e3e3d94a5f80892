// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Gold pairs as marks: dashed curves beside the lines of attention, outlines around the cells of a
// matrix. Hits and misses differ in colour, in dashes and in the shape at their ends.

import { svgElement } from "./elements.js";
import { touches } from "./gold.js";

/** More curves than this are a tangle; the page says so, and a token in focus still has all of its own. */
export const CURVES = 1200;
/** Room for the legend in a file, in pixels. */
export const LEGEND_HEIGHT = 44;
/** How far curves and their marks keep from the columns of tokens. */
const GOLD_EDGE = 6;
const MARK_SIZE = 4.5;
const GOLD_WIDTH = 2;
const CASING_WIDTH = 4.5;
/** How strong pairs are drawn while another token is in focus. */
const FAINT_PAIR = 0.15;
/** Dashes of curves, and of outlines: those of hits are whole. Of a difference, what was won or lost is whole. */
const DASHES = { hit: "9 4", miss: "2 4", unjudged: "1 7", won: "", lost: "", kept: "9 4", neither: "2 4" };
const OUTLINES = { hit: "", miss: "3 3", unjudged: "1 4", won: "", lost: "", kept: "3 3", neither: "3 3" };
/** An outline is at least so large, in CSS pixels, however small the cell is. */
const SMALLEST_OUTLINE = 6;

/**
 * @typedef {Object} GoldColours
 * @property {string} hit
 * @property {string} miss
 * @property {string} unjudged
 * @property {string} won
 * @property {string} kept
 * @property {string} lost
 * @property {string} neither
 * @property {string} paper
 */

/** @returns {GoldColours} those of the present theme */
export function goldColours(style) {
  const [hit, miss] = [style("--gold-hit"), style("--gold-miss")];
  return { hit, miss, unjudged: style("--soft"), won: hit, kept: hit, lost: miss, neither: miss, paper: style("--paper") };
}

/** @returns {{middle: number, top: number, bottom: number}|null} where a run stands; null if it is hidden */
function extentOf([first, last], places, rowHeight) {
  const shown = [];
  for (let at = first; at <= last; at += 1) if (places.has(at)) shown.push(places.get(at));
  if (!shown.length) return null;
  const [top, bottom] = [shown[0], shown[shown.length - 1]];
  return { middle: (top + bottom) / 2, top: top - 0.3 * rowHeight, bottom: bottom + 0.3 * rowHeight };
}

/**
 * Where the curves of gold pairs run: one for each run of keys that is not hidden.
 * @param {import("./gold.js").Gold} gold
 * @param {import("./lines.js").Geometry} geometry
 * @param {number} rowHeight
 */
export function goldCurves(gold, geometry, rowHeight) {
  const found = [];
  for (const pair of gold.pairs) {
    const from = extentOf(pair.query, geometry.left, rowHeight);
    for (const run of pair.keys) {
      const to = extentOf(run, geometry.right, rowHeight);
      if (from && to) found.push({ pair, run, from, to });
    }
  }
  const crowded = overlap(found.map(({ run }) => run));
  return found.map((curve) => ({ ...curve, crowded }));
}

/** @returns {boolean} whether different runs have positions in common; brackets at them would run together */
function overlap(runs) {
  const distinct = [...new Map(runs.map((run) => [run.join(), run])).values()].sort((a, b) => a[0] - b[0]);
  return distinct.some((run, i) => i > 0 && run[0] <= distinct[i - 1][1]);
}

/** @returns {SVGElement} the shape at the end of a curve: a disc, a cross or a ring */
function endMark(outcome, x, y, colours) {
  const colour = colours[outcome];
  if (["hit", "won", "kept"].includes(outcome)) return svgElement("circle", { cx: x, cy: y, r: MARK_SIZE, fill: colour, stroke: colours.paper, "stroke-width": 1 });
  if (outcome === "unjudged") return svgElement("circle", { cx: x, cy: y, r: MARK_SIZE - 1, fill: colours.paper, stroke: colour, "stroke-width": 1.5 });
  const [left, right, top, bottom] = [x - MARK_SIZE, x + MARK_SIZE, y - MARK_SIZE, y + MARK_SIZE];
  const d = `M${left} ${top}L${right} ${bottom}M${left} ${bottom}L${right} ${top}`;
  const mark = svgElement("g", { fill: "none" });
  mark.append(svgElement("path", { d, stroke: colours.paper, "stroke-width": 4 }), svgElement("path", { d, stroke: colour, "stroke-width": 2 }));
  return mark;
}

/** @returns {SVGElement} one curve with the marks at its ends, and brackets where these are several tokens */
function curveShape({ pair, run, from, to, crowded }, width, colours) {
  const colour = colours[pair.outcome];
  const [start, end] = [GOLD_EDGE, width - GOLD_EDGE];
  const d = `M${start} ${from.middle.toFixed(2)}C${width / 2} ${from.middle.toFixed(2)} ${width / 2} ${to.middle.toFixed(2)} ${end} ${to.middle.toFixed(2)}`;
  const shape = svgElement("g", { class: `gold-pair ${pair.outcome}`, fill: "none" });
  shape.dataset.query = pair.query.join("-");
  shape.dataset.key = run.join("-");
  const line = { d, stroke: colour, "stroke-width": GOLD_WIDTH, "stroke-dasharray": DASHES[pair.outcome], class: "gold-line" };
  shape.append(svgElement("path", { d, stroke: colours.paper, "stroke-width": CASING_WIDTH, "stroke-opacity": 0.8 }), svgElement("path", line));
  for (const [x, extent, several] of /** @type {[number, any, boolean][]} */ ([[1.5, from, pair.query[1] > pair.query[0]], [width - 1.5, to, !crowded && run[1] > run[0]]])) {
    if (several) shape.append(svgElement("path", { d: `M${x} ${extent.top.toFixed(2)}V${extent.bottom.toFixed(2)}`, stroke: colour, "stroke-width": 2.5 }));
  }
  shape.append(endMark(pair.outcome, start, from.middle, colours), endMark(pair.outcome, end, to.middle, colours));
  return shape;
}

/**
 * Curves of gold pairs as shapes; misses are drawn over hits.
 * @param {ReturnType<typeof goldCurves>} curves
 * @param {number} width of the room between the columns
 * @param {GoldColours} colours
 */
export function goldShapes(curves, width, colours) {
  const order = ["unjudged", "kept", "neither", "hit", "won", "miss", "lost"];
  const sorted = [...curves].sort((a, b) => order.indexOf(a.pair.outcome) - order.indexOf(b.pair.outcome));
  return sorted.map((curve) => ({ pair: curve.pair, shape: curveShape(curve, width, colours) }));
}

/** Make pairs faint that are not of a token in focus. */
export function emphasise(shapes, state) {
  const focused = isFocused(state);
  for (const { pair, shape } of shapes) {
    const opacity = !focused || touches(pair, state) ? "1" : String(FAINT_PAIR);
    if (shape.getAttribute("opacity") !== opacity) shape.setAttribute("opacity", opacity);
  }
}

/** @returns {boolean} whether a token is pinned or pointed at */
export function isFocused({ query, key, hover }) {
  return query !== null || key !== null || hover !== null;
}

/**
 * A short curve of an outcome, or an outlined cell, for a legend.
 * @param {string} outcome
 * @param {GoldColours} colours
 * @param {boolean} cell
 * @returns {SVGElement} 46 pixels wide, or 16, and 14 high
 */
export function goldSample(outcome, colours, cell) {
  const width = sampleWidth(cell);
  const root = svgElement("svg", { width, height: 14, viewBox: `0 0 ${width} 14`, "aria-hidden": "true", fill: "none" });
  root.append(...sampleParts(outcome, colours, cell));
  return root;
}

/** @returns {number} how wide a sample is */
export function sampleWidth(cell) {
  return cell ? 16 : 46;
}

/** @returns {SVGElement[]} the parts of a sample */
export function sampleParts(outcome, colours, cell) {
  const stroke = { stroke: colours[outcome], "stroke-width": GOLD_WIDTH, fill: "none" };
  const dashes = cell ? OUTLINES[outcome] : DASHES[outcome];
  const line = dashes ? { ...stroke, "stroke-dasharray": dashes } : stroke;
  if (cell) return [svgElement("rect", { ...line, x: 2, y: 1, width: 12, height: 12 })];
  return [svgElement("path", { ...line, d: "M6 7H40" }), endMark(outcome, 6, 7, colours), endMark(outcome, 40, 7, colours)];
}

/**
 * Outline the cells of gold pairs that are in sight.
 * @param {import("./pens.js").Pen} pen
 * @param {import("./gold.js").Gold} gold
 * @param {import("./matrix_paint.js").Window} window
 * @param {import("./matrix_paint.js").Place} place
 * @param {{rows: Map<number, number>, columns: Map<number, number>}} axes row of each query, column of each key
 * @param {GoldColours} colours
 * @param {import("./state.js").State} state
 * @returns {{query: number[], key: number[], outcome: string, x: number, y: number, width: number, height: number}[]}
 */
export function outlineGold(pen, gold, window, place, axes, colours, state) {
  const drawn = [];
  const focused = isFocused(state);
  for (const { pair, run } of gold.pairs.flatMap((pair) => pair.keys.map((run) => ({ pair, run })))) {
    const down = spanOf(pair.query, axes.rows, window.row, window.size, place.top, place.height);
    const across = spanOf(run, axes.columns, window.column, window.size, place.left, place.width);
    if (!down || !across) continue;
    const box = { x: across.from, y: down.from, width: across.length, height: down.length };
    const opacity = !focused || touches(pair, state) ? 1 : 2 * FAINT_PAIR;
    const { outcome } = pair;
    pen.outline(box, { colour: colours.paper, width: 3.5, opacity: 0.8 * opacity });
    pen.outline(box, { colour: colours[outcome], width: GOLD_WIDTH, dashes: OUTLINES[outcome], opacity });
    drawn.push({ query: pair.query, key: run, outcome, ...box });
  }
  return drawn;
}

/** @returns {{from: number, length: number}|null} a run along one axis, as far as it is in sight */
function spanOf([first, last], cells, start, size, edge, length) {
  const shown = [];
  for (let at = first; at <= last; at += 1) if (cells.has(at)) shown.push(cells.get(at));
  if (!shown.length) return null;
  const [low, high] = [(shown[0] - start) * size, (shown[shown.length - 1] + 1 - start) * size];
  if (high <= 0 || low >= length) return null;
  const lack = Math.max(0, SMALLEST_OUTLINE - (high - low)) / 2;
  // Lines of two pixels are sharp about a whole number.
  const [from, to] = [Math.max(0, low - lack), Math.min(length, high + lack)].map((at) => Math.round(edge + at));
  return { from, length: to - from };
}
