// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Rows of weights: how one is read, what it sums to, and the fewest keys that hold a share of it.

/** @returns {number} sum of the sizes in a row; what is not a number has none */
export function massOf(row) {
  let sum = 0;
  for (let i = 0; i < row.length; i += 1) sum += Math.abs(row[i]) || 0;
  return sum;
}

/** @returns {boolean} whether a weight shows in place of another; NaN shows before all */
export function outweighs(weight, other) {
  return Math.abs(weight) > Math.abs(other) || (Number.isNaN(weight) && !Number.isNaN(other));
}

/** @returns {number} largest size in a row; 0 if none is a number */
export function largestOf(row) {
  let most = 0;
  for (let i = 0; i < row.length; i += 1) if (Math.abs(row[i]) > most) most = Math.abs(row[i]);
  return most;
}

/** @returns {number} sum of an array */
export function total(values) {
  let sum = 0;
  for (let i = 0; i < values.length; i += 1) sum += values[i];
  return sum;
}

/** @returns {Float32Array} weights of one row without the hidden keys; shares are renormalised */
export function readRow(layer, head, query, hidden) {
  if (hidden && layer.pair) {
    const [first, second] = layer.pair.map((one) => readRow(one, head, query, hidden));
    return second.map((weight, i) => weight - first[i]);
  }
  const start = (head * layer.rows + query) * layer.columns;
  const row = layer.weights.slice(start, start + layer.columns);
  if (!hidden) return row;
  for (const key of hidden) row[key] = 0;
  if (!layer.shares) return row;
  for (const [from, to] of layer.parts(query)) {
    const part = row.subarray(from, to);
    const rest = total(part);
    if (rest > 0) part.set(part.map((weight) => weight / rest));
  }
  return row;
}

/** @returns {number} mean weight, over heads, that a query gives to some keys */
export function meanOn(layer, heads, query, keys) {
  const shares = heads.map((head) => {
    const start = (head * layer.rows + query) * layer.columns;
    return total([...keys].map((key) => layer.weights[start + key]));
  });
  return total(shares) / heads.length;
}

/** Put to zero, in each part of a row, all but the fewest weights that hold `mass` of it. */
export function keepMass(row, parts, mass) {
  for (const [from, to] of parts) {
    const part = row.subarray(from, to);
    const floor = smallestKept(part, mass);
    part.set(part.map((weight) => (Math.abs(weight) < floor ? 0 : weight)));
  }
}

/**
 * Select without sorting: long rows are partitioned around a pivot as in quickselect.
 * @returns {number} smallest weight among the fewest keys that hold `mass` of the row
 */
function smallestKept(row, mass) {
  const sizes = row.map((weight) => Math.abs(weight) || 0);
  let wanted = mass * massOf(row) - 1e-6;
  let [start, stop] = [0, sizes.length];
  while (start < stop) {
    const pivot = sizes[(start + stop) >> 1];
    let [larger, smaller, sum] = [start, stop, 0];
    for (let i = start; i < smaller; ) {
      const size = sizes[i];
      if (size > pivot) {
        sum += size;
        sizes[i] = sizes[larger];
        sizes[larger] = size;
        larger += 1;
        i += 1;
      } else if (size < pivot) {
        smaller -= 1;
        sizes[i] = sizes[smaller];
        sizes[smaller] = size;
      } else i += 1;
    }
    const upToPivot = sum + pivot * (smaller - larger);
    if (larger > start && sum >= wanted) stop = larger;
    else if (upToPivot >= wanted) return pivot;
    else {
      wanted -= upToPivot;
      start = smaller;
    }
  }
  return 0;
}
