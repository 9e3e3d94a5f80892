// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where the columns of the neuron level stand, how wide they are, and which dimensions a strip of
// cells shows. Nothing is drawn, no number computed.

export const ROW = 24;
/** Titles of columns, and below them the row of the query. */
export const TITLES = 28;
export const QUERY_ROW = 54;
export const TOP = TITLES + QUERY_ROW;
const TOKEN = 124;
const NUMBER = 60;
const WEIGHT = 112;
const NORM = 48;
const CLOSED = 34;
const GAP = 12;
const NARROWEST = 90;
const WIDEST_CELL = 20;
/** A cell with a number in it. */
export const NUMBERED_CELL = 38;

/** Strips of cells, and how their columns are called. */
export const STRIPS = { before: "Key k before rotation", key: "Key k", product: "q × k", pairs: "Score by pair", value: "Value v" };

/**
 * @typedef {Object} Column
 * @property {string} name
 * @property {string} title
 * @property {number} x
 * @property {number} width
 * @property {number[]} [dimensions] of a strip, in the order shown; none while it is closed
 * @property {number} [cell] width of a cell
 *
 * @typedef {Object} Layout
 * @property {Column[]} columns
 * @property {number} width of all columns
 */

/** @returns {string} a factor as people write it */
export function formatFactor(factor) {
  return String(Number(factor.toPrecision(4)));
}

/** Names, titles and widths of the columns; strips share what is left of the width. */
function listColumns(about, closed) {
  const score = about.bias ? `× ${formatFactor(about.scale)} + bias` : `× ${formatFactor(about.scale)}`;
  const strip = (name) => ({ name, title: STRIPS[name], width: closed.has(name) ? CLOSED : 0 });
  const columns = [
    { name: "token", title: "", width: TOKEN },
    strip("before"),
    strip("key"),
    strip("product"),
    strip("pairs"),
    { name: "dot", title: "q·k", width: NUMBER },
    { name: "bias", title: "bias", width: NUMBER },
    { name: "score", title: score, width: about.bias ? NUMBER + 50 : NUMBER + 4 },
    { name: "weight", title: "softmax", width: WEIGHT },
    strip("value"),
    { name: "norm", title: "‖v‖", width: NORM },
  ];
  const rotated = Boolean(about.rotation);
  const known = { before: rotated, pairs: rotated, bias: Boolean(about.bias), value: Boolean(about.value), norm: Boolean(about.value) };
  return columns.filter(({ name }) => known[name] !== false);
}

/**
 * @param {Object} options
 * @param {any} options.about the side's part of the payload
 * @param {number} options.width what there is
 * @param {Set<string>} options.closed strips that are folded up
 * @param {number[]} options.dimensions of queries and keys, in the order shown
 * @param {number[]} options.pairs of rotated dimensions, in the order shown
 * @param {number[]} options.values dimensions of values, in the order shown
 * @param {boolean} options.numbers whether cells hold numbers
 * @returns {Layout}
 */
export function layOutNeurons({ about, width, closed, dimensions, pairs, values, numbers }) {
  const columns = listColumns(about, closed);
  const open = columns.filter((column) => !column.width);
  const taken = columns.reduce((sum, column) => sum + column.width + GAP, 0);
  const share = Math.max(NARROWEST, (width - taken) / Math.max(1, open.length));
  let x = 0;
  const placed = columns.map((column) => {
    /** @type {Column} */
    const made = { ...column, x };
    if (!column.width) {
      made.dimensions = { value: values, pairs }[column.name] || dimensions;
      const count = Math.max(1, made.dimensions.length);
      made.cell = numbers ? Math.max(NUMBERED_CELL, share / count) : Math.min(WIDEST_CELL, share / count);
      made.width = made.cell * count;
    }
    x += made.width + GAP;
    return made;
  });
  return { columns: placed, width: x - GAP };
}
