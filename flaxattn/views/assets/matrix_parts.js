// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where the continuation of a prompt begins in a matrix: dashed rules over its cells.

/** Lengths of a dash and of the gap after it, in CSS pixels. */
const DASH = [6, 4];
const RULE = 1.5;

/** @returns {{rows: string, columns: string}} what begins among rows and columns, empty for nothing to mark */
function beginnings({ left, right }) {
  const named = ({ parts, boundary }) => (parts && boundary !== null ? parts[1].toLowerCase() : "");
  return { rows: named(left), columns: named(right) };
}

/** @returns {string} what the rules say, for the legend; empty without any */
export function partsText(side) {
  const { rows, columns } = beginnings(side);
  return rows || columns ? `; dashed: the ${rows || columns} begins` : "";
}

/**
 * Rule off the second part of the text, as far as it is in sight.
 * @param {import("./pens.js").Pen} pen
 * @param {any} matrix a `Matrix` that has been drawn
 * @param {string} colour
 * @returns {{row: number|null, column: number|null}} distances of the rules from the edges of the cells
 */
export function ruleParts(pen, { state, selection, place, window }, colour) {
  const { left, right } = state.side;
  const { rows, columns } = beginnings(state.side);
  const at = (named, positions, { boundary }, first) => {
    const index = named ? positions.indexOf(boundary) : -1;
    return index > 0 ? (index - first) * window.size : -1;
  };
  const down = at(rows, selection.queries, left, window.row);
  const across = at(columns, selection.keys, right, window.column);
  const step = DASH[0] + DASH[1];
  const seen = { row: down > 0 && down < place.height, column: across > 0 && across < place.width };
  for (let x = 0; seen.row && x < place.width; x += step) {
    pen.fill(place.left + x, place.top + down - RULE / 2, Math.min(DASH[0], place.width - x), RULE, colour);
  }
  for (let y = 0; seen.column && y < place.height; y += step) {
    pen.fill(place.left + across - RULE / 2, place.top + y, RULE, Math.min(DASH[0], place.height - y), colour);
  }
  return { row: seen.row ? down : null, column: seen.column ? across : null };
}
