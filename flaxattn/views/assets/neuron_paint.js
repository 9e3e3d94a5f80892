// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// How the numbers of the neuron level look: strips of cells in colours that part at zero, and for a
// file the texts that the page writes as elements.

import { blendColours, inkOn } from "./colours.js";
import { BESIDE_BAR, ROW, TITLES, TOP } from "./neuron_layout.js";
import { formatWeight } from "./numbers.js";

const STRIP = 16;
/** The query's own cells stand below a line that says what they are. */
const CAPTION = 22;
/** A cell so wide has the number of its dimension below it. */
const NAMED_CELL = 13;
const HUE_STEPS = 96;
/** What the row of the query shows in each strip. */
const CAPTIONS = {
  before: "q before rotation",
  key: "q of the query",
  product: "lift over the mean key",
  pairs: "lift over the mean key",
  value: "output: Σ weight × v",
};

/** The same where a strip is narrow; the longer text is then that of the tooltip. */
const SHORT_CAPTIONS = { before: "q before", key: "q", product: "adds", pairs: "adds", value: "output" };
const NARROW_STRIP = 130;

/** @returns {string} what the row of the query shows in a strip */
export function captionOf({ name, width }, held) {
  if (width < NARROW_STRIP) return SHORT_CAPTIONS[name];
  return (name === "product" || name === "pairs") && held !== null ? "scaled, of the key held" : CAPTIONS[name];
}

/** @returns {string} a number of a column, with two decimals where it is small and a true minus sign */
export function formatNumber(value) {
  if (value === -Infinity) return "masked";
  const size = Math.abs(value);
  const text = size.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : 2);
  return value < 0 && Number(text) > 0 ? `−${text}` : text;
}

/** @returns {string} a number with four digits */
export function formatExactly(value) {
  if (value === -Infinity) return "masked";
  return String(Number(value.toPrecision(4))).replace(/-/g, "−");
}

/** Colours around zero: one hue below, one above, the paper at zero. */
export class Diverging {
  constructor(paper, negative, positive) {
    const side = (end) => Array.from({ length: HUE_STEPS + 1 }, (_, i) => blendColours(paper, end, i / HUE_STEPS));
    this.sides = { below: side(negative), above: side(positive) };
  }

  /** @returns {string} the colour of a number, full at a size */
  of(value, size) {
    const step = Math.min(HUE_STEPS, Math.round((HUE_STEPS * Math.abs(value)) / size));
    return (value < 0 ? this.sides.below : this.sides.above)[step];
  }
}

/**
 * What is painted.
 * @typedef {Object} Scene
 * @property {import("./neuron_layout.js").Layout} layout
 * @property {import("./neuron_terms.js").HeadTerms} head
 * @property {import("./neuron_terms.js").QueryTerms} terms
 * @property {Float32Array} contributions of each dimension
 * @property {Float32Array} shares of each pair of rotated dimensions in each scaled score
 * @property {Float32Array} lifts contributions of each pair
 * @property {number|null} held key
 * @property {number[]} keys in the order shown
 * @property {number[]} dimensions of queries and keys that are shown
 * @property {Object<string, number>} sizes at which colours are full
 * @property {Diverging} colours
 */

/** @returns {(d: number) => number} the numbers of a strip in the row of a key */
export function stripOfKey({ head, terms, shares }, name, key) {
  const { depth, width, pairs } = head.about;
  if (name === "before") return (d) => head.keyBefore[key * depth + d];
  if (name === "pairs") return (pair) => shares[key * pairs + pair];
  if (name === "product") return (d) => terms.products[key * depth + d];
  if (name === "value") return (d) => head.value[key * width + d];
  return (d) => head.key[key * depth + d];
}

/** @returns {(d: number) => number} the numbers of a strip in the row of the query */
export function stripOfQuery({ head, terms, contributions, lifts }, name) {
  if (name === "before") return (d) => head.queryBefore[terms.query * head.about.depth + d];
  const numbers = { key: terms.q, product: contributions, pairs: lifts, value: terms.output }[name];
  return (d) => numbers[d];
}

/** Paint one strip of cells. */
function paintStrip(pen, column, y, read, size, colours) {
  const gap = column.cell >= 5 ? 1 : 0;
  column.dimensions.forEach((d, i) => {
    const value = read(d);
    const colour = colours.of(value, size);
    const x = column.x + i * column.cell;
    pen.fill(x, y, column.cell - gap, STRIP, colour);
    if (column.numbered) {
      pen.write(formatNumber(value), x + (column.cell - gap) / 2, y + STRIP / 2, { colour: inkOn(colour), size: 10, anchor: "middle" });
    }
  });
}

/** @returns {number} top of the cells in a row that begins at y */
export function stripTop(y) {
  return y + (ROW - STRIP) / 2;
}

/** Paint the strips of the query, and below them the numbers of dimensions where there is room. */
export function paintQuery(pen, scene, y, ink) {
  const { layout, sizes, colours } = scene;
  for (const column of layout.columns.filter(({ dimensions }) => dimensions)) {
    const size = { before: sizes.query, key: sizes.query, product: sizes.contributions, pairs: sizes.lifts, value: sizes.output }[column.name];
    paintStrip(pen, column, y + CAPTION, stripOfQuery(scene, column.name), size, colours);
    if (column.cell < NAMED_CELL) continue;
    column.dimensions.forEach((d, i) => {
      const middle = column.x + (i + 0.5) * column.cell;
      pen.write(String(d), middle, y + CAPTION + STRIP + 7, { colour: ink, size: 9, anchor: "middle" });
    });
  }
}

/** Paint the strips of some keys, by their place in the order shown. */
export function paintKeys(pen, scene, first, last, y) {
  const { layout, sizes, colours, keys } = scene;
  for (const column of layout.columns.filter(({ dimensions }) => dimensions)) {
    for (let at = first; at < last; at += 1) {
      const top = stripTop(y + (at - first) * ROW);
      paintStrip(pen, column, top, stripOfKey(scene, column.name, keys[at]), sizes[column.name], colours);
    }
  }
}

/** @returns {number} the sum of what some dimensions add to q·k of a key */
export function sumProducts({ products, q }, dimensions, key) {
  return dimensions.reduce((sum, d) => sum + products[key * q.length + d], 0);
}

/** @returns {Object<string, string>} what stands in the columns of numbers, for a key */
export function numbersOf({ head, terms, dimensions }, key) {
  const bias = head.biasAt(terms.query, key);
  return {
    rest: formatNumber(terms.dots[key] - sumProducts(terms, dimensions, key)),
    dot: formatNumber(terms.dots[key]),
    bias: bias === null ? "" : formatNumber(bias),
    score: formatNumber(terms.scaled[key]),
    weight: terms.scaled[key] === -Infinity ? "0" : formatWeight(terms.weights[key]),
    norm: head.value ? formatNumber(head.norm(key)) : "",
  };
}

/** @returns {number} length of the bar of a weight; the number stands beside it */
export function barWidth(weight, column) {
  return Math.min(1, weight) * (column.width - BESIDE_BAR);
}

/**
 * All that is seen, for a file.
 * @param {import("./pens.js").SvgPen} pen
 * @param {Scene} scene
 * @param {number} first of the keys
 * @param {number} last
 * @param {{left: string[], right: string[], ink: string, soft: string, accent: string}} named
 */
export function paintPicture(pen, scene, first, last, { left, right, ink, soft, accent }) {
  const { layout, keys, terms, held } = scene;
  const find = (name) => layout.columns.find((column) => column.name === name);
  for (const column of layout.columns) {
    const numbers = !column.name.match(/token|before|key|product|pairs|value/);
    const x = numbers ? column.x + column.width : column.x;
    pen.write(column.title, x, TITLES / 2, { colour: soft, size: 12, anchor: numbers ? "end" : "start" });
    if (column.dimensions) pen.write(captionOf(column, held), column.x, TITLES + CAPTION / 2, { colour: soft, size: 10 });
  }
  pen.write("query", 0, TITLES + CAPTION / 2, { colour: soft, size: 10 });
  pen.write(left[terms.query], 0, TITLES + CAPTION + STRIP / 2, { colour: ink, size: 13 });
  paintQuery(pen, scene, TITLES, soft);
  paintKeys(pen, scene, first, last, TOP);
  for (let at = first; at < last; at += 1) {
    const middle = TOP + (at - first + 0.5) * ROW;
    const numbers = numbersOf(scene, keys[at]);
    pen.write(right[keys[at]], 0, middle, { colour: ink, size: 13 });
    const weight = find("weight");
    pen.fill(weight.x, middle - 4, barWidth(terms.weights[keys[at]], weight), 8, accent);
    for (const name of ["rest", "dot", "bias", "score", "weight", "norm"]) {
      const column = find(name);
      if (column) pen.write(numbers[name], column.x + column.width, middle, { colour: ink, size: 12, anchor: "end" });
    }
  }
}
