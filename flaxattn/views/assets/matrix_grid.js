// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The cells of a matrix: weights of one head for the chosen queries and keys, and the same ever
// coarser, so that a cell smaller than a pixel still shows the largest weight in it.

import { keepMass, largestOf, outweighs, readRow } from "./rows.js";

/**
 * @typedef {Object} Grid
 * @property {Float32Array} values `[rows, columns]`
 * @property {number} rows
 * @property {number} columns
 */

/**
 * Weights of one head, as the filters leave them.
 * @param {import("./lines.js").Layer} layer
 * @param {number} head index
 * @param {import("./lines.js").Selection} selection
 * @returns {Grid}
 */
export function readGrid(layer, head, { queries, keys, hidden, mass }) {
  const [rows, columns] = [queries.length, keys.length];
  const values = new Float32Array(rows * columns);
  queries.forEach((query, at) => {
    const row = readRow(layer, head, query, hidden);
    if (mass < 1) keepMass(row, layer.parts(query), mass);
    for (let i = 0; i < columns; i += 1) values[at * columns + i] = row[keys[i]];
  });
  return { values, rows, columns };
}

/** @returns {Grid} every row divided by its largest value, here or in a grid of the same size */
export function byRow({ values, rows, columns }, other = null) {
  const scaled = values.slice();
  for (let row = 0; row < rows; row += 1) {
    const part = scaled.subarray(row * columns, (row + 1) * columns);
    const peak = Math.max(largestOf(part), other ? largestOf(other.values.subarray(row * columns, (row + 1) * columns)) : 0);
    if (peak > 0) for (let i = 0; i < columns; i += 1) part[i] /= peak;
  }
  return { values: scaled, rows, columns };
}

/** @returns {Grid} half as many rows and columns, each cell the largest of four, NaN before all */
export function halveGrid({ values, rows, columns }) {
  const [fewer, narrower] = [Math.ceil(rows / 2), Math.ceil(columns / 2)];
  const pooled = new Float32Array(fewer * narrower);
  for (let row = 0; row < rows; row += 1) {
    const [from, to] = [row * columns, (row >> 1) * narrower];
    for (let i = 0; i < columns; i += 1) {
      const at = to + (i >> 1);
      if (outweighs(values[from + i], pooled[at])) pooled[at] = values[from + i];
    }
  }
  return { values: pooled, rows: fewer, columns: narrower };
}

/** A grid in all its sizes, each made when it is first asked for. */
export class Pyramid {
  /** @param {Grid} grid */
  constructor(grid) {
    this.levels = [grid];
  }

  /** @returns {Grid} the grid, halved so many times */
  level(times) {
    while (this.levels.length <= times) this.levels.push(halveGrid(this.levels[this.levels.length - 1]));
    return this.levels[times];
  }

  /** @returns {number} how often to halve it until a cell of so many pixels is at least one wide */
  times(size) {
    let times = 0;
    while (size * 2 ** times < 0.999) times += 1;
    return times;
  }
}
