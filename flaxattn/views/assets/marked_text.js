// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// A pair of tokens marked in the text around them, in its original spelling. Marks have no edges and no
// direction of their own, so that letters join and lines run as they would without them.

import { element } from "./elements.js";

/** So many characters around a mark are shown. */
const AROUND = 60;

/**
 * @typedef {[number, number]} Range first and last of adjacent positions
 *
 * @typedef {Object} Mark
 * @property {string} kind query, key, or both
 * @property {number} passage
 * @property {number} start
 * @property {number} stop
 * @property {string} added a token that stands for no characters; empty of others
 * @property {number} order its place among all runs and such tokens
 */

/** @returns {string} whether a position is of the query, of a key, or of both; empty of neither */
function kindOf(position, queries, keys) {
  const within = ([first, last]) => first <= position && position <= last;
  return [queries.some(within) ? "query" : "", keys.some(within) ? "key" : ""].filter(Boolean).join(" ");
}

/**
 * What is to be marked in a column; adjacent runs of one kind are one mark.
 * @param {import("./source.js").Column} column
 * @param {Range[]} queries
 * @param {Range[]} keys
 * @returns {Mark[]}
 */
function marksOf(column, queries, keys) {
  const of = column.runOfToken();
  const [first] = column.runs();
  const marks = [];
  let [passage, reached, order] = [first ? first.passage : 0, 0, 0];
  column.read.forEach((token, i) => {
    const run = of[i];
    if (run && run.tokens[0] !== i) return;
    order += 1;
    if (run) [passage, reached] = [run.passage, run.stop];
    const kinds = new Set((run ? run.tokens : [i]).flatMap((at) => kindOf(at, queries, keys).split(" ")).filter(Boolean));
    if (!kinds.size) return;
    const kind = ["query", "key"].filter((name) => kinds.has(name)).join(" ");
    const last = marks[marks.length - 1];
    if (run && last && !last.added && last.kind === kind && last.order === order - 1 && last.passage === passage) {
      Object.assign(last, { stop: run.stop, order });
    } else {
      const [start, stop] = run ? [run.start, run.stop] : [reached, reached];
      marks.push({ kind, passage, start, stop, added: run ? "" : token, order });
    }
  });
  return marks;
}

/** @returns {Range[]} the parts of a passage that are shown: the surroundings of its marks, in whole runs */
function partsOf(column, passage, marks) {
  const text = column.source.passages[passage];
  const runs = column.runs().filter((run) => run.passage === passage);
  const parts = [];
  for (const { start, stop } of marks) {
    const from = start <= AROUND ? 0 : Math.min(start, ...runs.filter((run) => run.start >= start - AROUND).map((run) => run.start));
    const to = text.length - stop <= AROUND ? text.length : Math.max(stop, ...runs.filter((run) => run.stop <= stop + AROUND).map((run) => run.stop));
    const last = parts[parts.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else parts.push([from, to]);
  }
  return parts;
}

/** @returns {HTMLElement} a passage with its marks, and dots where it is cut */
function passageNode(column, passage, marks) {
  const text = column.source.passages[passage];
  const nodes = [];
  for (const [from, to] of partsOf(column, passage, marks)) {
    if (from > 0) nodes.push("… ");
    let reached = from;
    for (const { kind, start, stop, added } of marks.filter((mark) => mark.start >= from && mark.stop <= to)) {
      nodes.push(text.slice(reached, start));
      if (added) nodes.push(start > from ? " " : "", element("mark", { class: kind }, element("bdi", { text: added })), " ");
      else nodes.push(element("mark", { class: kind, text: text.slice(start, stop) }));
      reached = stop;
    }
    nodes.push(text.slice(reached, to));
    if (to < text.length) nodes.push(" …");
  }
  return element("p", { class: "passage", dir: "auto" }, ...nodes.filter((node) => node !== ""));
}

/** @returns {HTMLElement[]} the passages of a column that have marks */
function passageNodes(column, queries, keys) {
  const marks = marksOf(column, queries, keys);
  const passages = [...new Set(marks.map(({ passage }) => passage))];
  return passages.map((passage) => passageNode(column, passage, marks.filter((mark) => mark.passage === passage)));
}

/**
 * @param {import("./sides.js").Side} side in tokens
 * @param {Range} query
 * @param {Range[]} keys
 * @returns {HTMLElement[]} passages in which the query and its keys are marked
 */
export function markedText(side, query, keys) {
  const { left, right } = side.about;
  if (left.join("\n") === right.join("\n")) return passageNodes(side.left, [query], keys);
  return [...passageNodes(side.left, [query], []), ...passageNodes(side.right, [], keys)];
}

/** @returns {string} how adjacent tokens read in the text; those that the model adds as themselves */
export function rangeText(column, [first, last]) {
  const runs = column.runOfToken();
  const [from, to] = [runs[first], runs[last]];
  if (from && to && from.passage === to.passage) return column.source.passages[from.passage].slice(from.start, to.stop);
  return column.read.slice(first, last + 1).map((_, i) => column.labelOf(first + i)).join(" ");
}
