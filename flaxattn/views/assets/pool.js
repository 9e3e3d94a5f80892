// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// One head as a small picture: where weights are more than pixels, each pixel is the largest of its
// weights, so that no strong one is lost.

import { largestOf, outweighs, readRow } from "./rows.js";

/**
 * @typedef {Object} Picture
 * @property {Float32Array} values `[row, column]`, weights or their share of the row's largest
 * @property {number} rows
 * @property {number} columns
 *
 * @param {import("./lines.js").Layer} layer
 * @param {number} head index
 * @param {import("./lines.js").Selection} selection
 * @param {number} limit of rows and of columns
 * @returns {Picture}
 */
export function poolHead(layer, head, selection, limit) {
  const { queries, keys, hidden, opacity } = selection;
  const rows = Math.min(queries.length, limit);
  const columns = Math.min(keys.length, limit);
  const values = new Float32Array(rows * columns);
  const places = Uint32Array.from(keys, (_, j) => Math.floor((j * columns) / keys.length));
  const chosen = Uint32Array.from(keys);
  // Plain loops over typed arrays: of a long text, these are tens of millions of weights.
  for (let i = 0; i < queries.length; i += 1) {
    const from = (head * layer.rows + queries[i]) * layer.columns;
    const whole = layer.weights.subarray(from, from + layer.columns);
    const row = hidden ? readRow(layer, head, queries[i], hidden) : whole;
    const unit = opacity === "row" ? largestOf(row) || 1 : 1;
    const start = Math.floor((i * rows) / queries.length) * columns;
    for (let j = 0; j < chosen.length; j += 1) {
      const at = start + places[j];
      const value = row[chosen[j]] / unit;
      if (outweighs(value, values[at])) values[at] = value;
    }
  }
  return { values, rows, columns };
}

/**
 * The strongest weight of those that one pixel stands for.
 * @param {import("./lines.js").Layer} layer
 * @param {number} head index
 * @param {import("./lines.js").Selection} selection
 * @param {number} across place between 0 and 1
 * @param {number} down place between 0 and 1
 * @param {number} limit as `poolHead` was given
 * @returns {{query: number, key: number, weight: number}|null}
 */
export function strongestAt(layer, head, selection, across, down, limit) {
  const part = (positions, place) => {
    const count = Math.min(positions.length, limit);
    const at = Math.min(count - 1, Math.floor(place * count));
    return positions.filter((_, i) => Math.floor((i * count) / positions.length) === at);
  };
  let best = null;
  for (const query of part(selection.queries, down)) {
    const row = readRow(layer, head, query, selection.hidden);
    for (const key of part(selection.keys, across)) {
      if (!best || outweighs(row[key], best.weight)) best = { query, key, weight: row[key] };
    }
  }
  return best;
}
