// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Gold pairs beside attention: arcs from a query to the key that a claim says it looks at, solid where
// the heads that are on give that key the most, dashed where they do not.

import { element, svgElement } from "./elements.js";

export const NO_PAIRS = "none";

/**
 * @typedef {Object} Judged
 * @property {number} query
 * @property {number} first key of the range that counts as right
 * @property {number} last key of it
 * @property {boolean} hit whether the largest weight of the query, a mean over heads, lies in the range
 */

/** @returns {number} the key with the largest mean weight over heads; of equal ones the first */
function strongestKey({ weights, rows, columns }, heads, query) {
  let [best, most] = [-1, -Infinity];
  for (let key = 0; key < columns; key += 1) {
    const sum = heads.reduce((total, head) => total + weights[(head * rows + query) * columns + key], 0);
    if (sum > most) [best, most] = [key, sum];
  }
  return best;
}

/** @returns {Judged[]} the pairs of a claim that the heads meet and miss */
export function judgePairs(layer, heads, pairs) {
  return pairs.map(([query, first, last]) => {
    const key = strongestKey(layer, heads, query);
    return { query, first, last, hit: first <= key && key <= last };
  });
}

/** @returns {string} what the arcs are, and how many the heads meet */
export function pairsLegend(name, judged) {
  const hits = judged.filter(({ hit }) => hit).length;
  return `Gold arcs, ${name}: the largest weight is on the right token for ${hits} of ${judged.length}. Solid: met; dashed: missed.`;
}

/**
 * @param {Judged[]} judged
 * @param {import("./lines.js").Geometry} geometry
 * @param {{side: "left"|"right", index: number}|null} focus
 * @param {{hit: string, miss: string}} colours
 * @returns {SVGElement[]} an arc for each pair whose tokens are both shown
 */
export function pairArcs(judged, { width, left, right }, focus, colours) {
  const shown = judged.filter(({ query, first }) => left.has(query) && right.has(first));
  return shown.map(({ query, first, last, hit }) => {
    const [from, to] = [left.get(query), right.get(first)];
    const touched = !focus || (focus.side === "left" ? focus.index === query : focus.index >= first && focus.index <= last);
    return svgElement("path", {
      d: `M0 ${from}C${width / 2} ${from} ${width / 2} ${to} ${width} ${to}`,
      fill: "none",
      stroke: hit ? colours.hit : colours.miss,
      "stroke-width": hit ? 9 : 4,
      "stroke-opacity": touched ? 0.6 : 0.2,
      "stroke-dasharray": hit ? "none" : "7 5",
      "data-query": query,
      "data-key": first,
      "data-hit": String(hit),
    });
  });
}

/**
 * Frames around the keys that count as right, in the rows and columns of a matrix.
 * @param {Judged[]} judged
 * @param {{queries: number[], keys: number[]}} selection
 * @returns {{row: number, column: number, columns: number, hit: boolean}[]}
 */
export function pairFrames(judged, { queries, keys }) {
  const frames = judged.map(({ query, first, last, hit }) => {
    const right = keys.map((key, column) => (first <= key && key <= last ? column : -1)).filter((column) => column >= 0);
    return { row: queries.indexOf(query), column: right[0], columns: right.length, hit };
  });
  return frames.filter(({ row, columns }) => row >= 0 && columns > 0);
}

/** The arcs under the lines of the head level, and their legend. */
export class GoldPairs {
  constructor() {
    this.svg = svgElement("svg", { class: "gold-arcs", "aria-hidden": "true" });
    this.legend = element("p", { class: "gold-legend", hidden: true });
    /** @type {Judged[]} */
    this.judged = [];
  }

  /** @param {import("./state.js").State} state @param {number[]} heads */
  judge(state, heads) {
    const pairs = state.side.pairs[state.gold] || [];
    this.judged = judgePairs(state.layerWeights(), heads, pairs);
    this.legend.hidden = !pairs.length;
    this.legend.textContent = pairs.length ? pairsLegend(state.gold, this.judged) : "";
  }

  draw(geometry, focus, colours) {
    this.svg.setAttribute("width", String(geometry.width));
    this.svg.setAttribute("height", String(geometry.height));
    this.svg.replaceChildren(...pairArcs(this.judged, geometry, focus, colours));
  }
}
