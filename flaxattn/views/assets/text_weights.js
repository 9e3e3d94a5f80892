// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Weights of one token as a mean over heads, for shading a text. No document is touched.

import { largestOf, readRow } from "./rows.js";

/**
 * @typedef {Object} Shades by position of the other side; of positions that are left out nothing
 * @property {Map<number, number>} weights means over heads
 * @property {Map<number, number>} shades what is drawn: the weights, or means of shares of the row's largest
 */

/** @returns {number} one weight, as it is shown */
export function weightAt(layer, selection, head, query, key) {
  if (selection.hidden) return readRow(layer, head, query, selection.hidden)[key];
  return layer.weights[(head * layer.rows + query) * layer.columns + key];
}

/** @returns {{row: Float32Array, unit: number}} a row as it is shown, and what it is divided by for its shades */
function shownRow(layer, selection, head, query) {
  const start = (head * layer.rows + query) * layer.columns;
  const whole = layer.weights.subarray(start, start + layer.columns);
  const row = selection.hidden ? readRow(layer, head, query, selection.hidden) : whole;
  return { row, unit: selection.opacity === "row" ? largestOf(row) || 1 : 1 };
}

/**
 * @param {import("./lines.js").Layer} layer
 * @param {import("./lines.js").Selection} selection
 * @param {"left"|"right"|""} side of the token: its attention to others, or that of others to it; or
 *   without a token the attention that each key receives, a mean over queries
 * @param {number} index of the token
 * @returns {Shades}
 */
export function shadesOf(layer, selection, side, index) {
  const { heads, queries, keys } = selection;
  const rows = side === "left" ? [index] : queries;
  const others = side === "right" ? queries : keys;
  const [weights, shades] = [new Float64Array(others.length), new Float64Array(others.length)];
  const count = heads.length * (side ? 1 : queries.length);
  for (const head of heads) {
    rows.forEach((query, at) => {
      const { row, unit } = shownRow(layer, selection, head, query);
      const add = (place, weight) => {
        weights[place] += weight / count;
        shades[place] += weight / unit / count;
      };
      if (side === "right") add(at, row[index]);
      else for (let place = 0; place < keys.length; place += 1) add(place, row[keys[place]]);
    });
  }
  const byPosition = (values) => new Map(others.map((other, place) => [other, values[place]]));
  return { weights: byPosition(weights), shades: byPosition(shades) };
}

/**
 * What several tokens of one character have together: attention to them adds up, of attention from them
 * the mean is taken, as of the tokens of a word.
 * @param {Map<number, number>} values
 * @param {number[]} tokens
 * @param {boolean} attends whether the tokens are queries
 * @returns {number|undefined} undefined where all are left out
 */
export function togetherOf(values, tokens, attends) {
  const known = tokens.filter((token) => values.has(token)).map((token) => values.get(token));
  if (!known.length) return undefined;
  const sum = known.reduce((total, value) => total + value, 0);
  return attends ? sum / known.length : sum;
}

/** So many nats have the last colour, as more have; in between colours are even. */
const MOST_NATS = 10;

/** @returns {number|undefined} what is drawn of a surprise in nats; colours are by the root of a shade */
export function surpriseShade(nats) {
  return nats === undefined ? undefined : Math.min(1, nats / MOST_NATS) ** 2;
}

/** @returns {{shades: string[], marks: [number, string][], unit: string}} */
export function surpriseScale(shades) {
  const marks = [0, 2, 4, 6, 8].map((nats) => /** @type {[number, string]} */ ([nats / MOST_NATS, String(nats)]));
  return { shades, marks: [...marks, [1, `${MOST_NATS}+`]], unit: "nats" };
}

/** @returns {string} a surprise; probabilities below what a page can hold are 0 there */
export function formatNats(nats) {
  return nats > 99 ? "over 99 nats" : `${nats.toFixed(2)} nats`;
}
