// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where the columns of the neuron level stand, how wide they are, and which dimensions a strip of
// cells shows. Nothing is drawn, no number computed.

export const ROW = 24;
/** Titles of columns, and below them the row of the query. */
export const TITLES = 28;
export const QUERY_ROW = 54;
export const TOP = TITLES + QUERY_ROW;
/** Widths of columns; of a strip, what it takes at least to be open without being asked for. */
const WIDE = { token: 124, weight: 100, rest: 68, number: 56, score: 64, norm: 46, factor: 50, gap: 12, strip: 64 };
const SMALL = { token: 64, weight: 64, rest: 38, number: 40, score: 44, norm: 40, factor: 0, gap: 6, strip: 54 };
/** Below this width columns are small. */
const SMALL_BELOW = 520;
const NARROWEST = 90;
const WIDEST_CELL = 48;
/** A cell with a number in it. */
export const NUMBERED_CELL = 33;
/** Beside the longest bar of a weight stands its number. */
export const BESIDE_BAR = 44;

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
 * @property {boolean} [numbered] whether cells hold their numbers
 *
 * @typedef {Object} Layout
 * @property {Column[]} columns
 * @property {string[]} folded names of strips that there are and that take no column
 * @property {boolean} small whether columns are those of a narrow window
 * @property {number} width of all columns
 */

/** @returns {string} a factor as people write it */
export function formatFactor(factor) {
  return String(Number(factor.toPrecision(4)));
}

/** Strips in the order in which they get a column where there is little room. */
const FIRST_OPEN = ["product", "key", "value", "pairs", "before"];

/** Names, titles and widths of the columns; of strips 0, as they share what is left. */
function listColumns({ about, rest }, sizes) {
  const factor = about.bias ? `× ${formatFactor(about.scale)} + bias` : `× ${formatFactor(about.scale)}`;
  const small = sizes === SMALL;
  const strip = (name) => ({ name, title: STRIPS[name], width: 0 });
  const columns = [
    { name: "token", title: "", width: sizes.token },
    { name: "weight", title: "softmax", width: sizes.weight },
    strip("before"),
    strip("key"),
    strip("product"),
    { name: "rest", title: small ? `+ ${rest}` : `+ ${rest} more`, width: sizes.rest },
    strip("pairs"),
    { name: "dot", title: "q·k", width: sizes.number },
    { name: "bias", title: "bias", width: sizes.number },
    { name: "score", title: small ? "score" : factor, width: sizes.score + (about.bias ? sizes.factor : 0) },
    strip("value"),
    { name: "norm", title: "‖v‖", width: sizes.norm },
  ];
  const rotated = Boolean(about.rotation);
  const known = { before: rotated, pairs: rotated, rest: rest > 0, bias: Boolean(about.bias), value: Boolean(about.value), norm: Boolean(about.value) };
  return columns.filter(({ name }) => known[name] !== false);
}

/** @returns {Set<string>} strips that get a column: those asked for, and others while there is room */
function openStrips(columns, { width, folds, needed }, strip, sizes) {
  const strips = FIRST_OPEN.filter((name) => columns.some((column) => column.name === name));
  // On a narrow window a step of the walk takes the place of the products.
  const products = !(needed.length && sizes === SMALL) && folds.get(FIRST_OPEN[0]) !== false;
  const usual = (name) => folds.get(name) || (name === FIRST_OPEN[0] && products);
  const asked = strips.filter((name) => needed.includes(name) || usual(name));
  const open = new Set(asked);
  const numbers = columns.reduce((sum, column) => sum + (column.width ? column.width + sizes.gap : 0), 0);
  let room = width - numbers + sizes.gap - asked.length * (strip + sizes.gap);
  for (const name of strips.filter((one) => !open.has(one) && folds.get(one) !== false)) {
    room -= strip + sizes.gap;
    if (room >= 0) open.add(name);
  }
  return open;
}

/**
 * @param {Object} options
 * @param {any} options.about the side's part of the payload
 * @param {number} options.width what there is
 * @param {Map<string, boolean>} options.folds whether strips were opened or folded up, by name
 * @param {string[]} options.needed names of strips that are open in any case
 * @param {number[]} options.dimensions of queries and keys, in the order shown
 * @param {number} options.rest how many dimensions are not shown
 * @param {number[]} options.pairs of rotated dimensions, in the order shown
 * @param {number[]} options.values dimensions of values, in the order shown
 * @param {boolean} options.numbers whether cells hold numbers
 * @returns {Layout}
 */
export function layOutNeurons(options) {
  const { width, dimensions, rest, pairs, values, numbers } = options;
  const small = width < SMALL_BELOW;
  const sizes = small ? SMALL : WIDE;
  const known = listColumns(options, sizes);
  // On a narrow window the length of values goes where they go.
  const fits = small ? known.filter(({ name }) => name !== "norm") : known;
  const few = numbers && rest > 0;
  const open = openStrips(fits, options, few ? NUMBERED_CELL * dimensions.length : sizes.strip, sizes);
  const columns = (open.has("value") ? known : fits).filter(({ name }) => !STRIPS[name] || open.has(name));
  const shown = columns.filter(({ name }) => name !== "rest" || open.has("product"));
  const taken = shown.reduce((sum, column) => sum + column.width + sizes.gap, -sizes.gap);
  const least = numbers || dimensions.length > NARROWEST / 2 ? NARROWEST : sizes.strip;
  const share = Math.max(least, (width - taken) / Math.max(1, open.size));
  let x = 0;
  const placed = shown.map((column) => {
    /** @type {Column} */
    const made = { ...column, x };
    if (!column.width) {
      made.dimensions = { value: values, pairs }[column.name] || dimensions;
      const count = Math.max(1, made.dimensions.length);
      made.numbered = numbers;
      made.cell = Math.min(WIDEST_CELL, Math.max(numbers ? NUMBERED_CELL : 0, share / count));
      made.width = Math.max(made.cell * count, small ? 0 : sizes.strip);
    }
    x += made.width + sizes.gap;
    return made;
  });
  const folded = Object.keys(STRIPS).filter((name) => known.some((column) => column.name === name) && !open.has(name));
  return { columns: placed, folded, small, width: x - sizes.gap };
}
