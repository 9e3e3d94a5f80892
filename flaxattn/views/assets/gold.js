// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Gold pairs: the pairs of tokens that a claim is about, and which of them the heads that are on hit.
// Python judges them (`measures/gold_pairs.py`), of two traces each by its own weights; nothing is
// drawn here.

import { readBlock } from "./decoding.js";

/** In place of the name of a claim: no gold pairs are drawn. */
export const OFF = "none";
/** What a head does with a pair, by the numbers of the payload. */
export const OUTCOMES = ["miss", "hit", "unjudged"];
/** What the second of two traces makes of a pair, beside the first. */
const CHANGES = { "miss hit": "won", "hit miss": "lost", "hit hit": "kept", "miss miss": "neither" };
const OUTCOME_NAMES = { hit: "hit", miss: "missed", unjudged: "not judged", neither: "missed by both" };

/**
 * @typedef {[number, number]} Run first and last of adjacent positions, in tokens or in words
 *
 * @typedef {Object} GoldPair
 * @property {Run} query
 * @property {Run[]} keys any of which is right
 * @property {string} outcome hit, miss or unjudged: the best of the heads that are on; of a difference won, lost, kept or neither
 *
 * @typedef {Object} Gold
 * @property {string} name of the claim
 * @property {string} about what the pairs are, in words; empty if nobody says
 * @property {string} rule when a pair is hit
 * @property {GoldPair[]} pairs all of this text, also those of hidden tokens
 * @property {string[]} names of the two traces, of a difference
 * @property {Object<string, number>} counts of pairs by outcome, in the order in which they are listed
 */

/** @returns {string[]} names of all gold pairs that a page has */
export function goldNames(payload) {
  const sides = payload.inputs.flatMap((input) => input.sides);
  return [...new Set(sides.flatMap((side) => (side.pairs || []).map(({ name }) => name)))];
}

/** @returns {boolean} whether a text has gold pairs of that name on a side, by its name */
export function hasPairs(input, side, name) {
  const about = input.sides.find((one) => one.name === side);
  return Boolean(about && about.pairs && about.pairs.some((one) => one.name === name));
}

/** @returns {number[]} outcomes for every layer, head and pair, two bits each */
function readHits(payload, block) {
  return Array.from(readBlock(payload, block)).flatMap((byte) => [byte & 3, (byte >> 2) & 3, (byte >> 4) & 3, byte >> 6]);
}

/**
 * The gold pairs of the present text, side and heads; null where none are asked for or there.
 * @param {import("./state.js").State} state
 * @param {number[]} heads indices of those that are drawn
 * @returns {Gold|null}
 */
export function goldOf(state, heads) {
  const { side, payload, gold } = state;
  const found = gold === OFF ? undefined : (side.about.pairs || []).find(({ name }) => name === gold);
  if (!found) return null;
  const at = (head) => (state.layer * side.heads.length + head) * found.pairs.length;
  const judge = (trace) => {
    const hits = readHits(payload, side.partOf(trace).pairs.find(({ name }) => name === gold).hits);
    return (pair) => {
      const outcomes = heads.map((head) => OUTCOMES[hits[at(head) + pair]]);
      return ["hit", "miss"].find((outcome) => outcomes.includes(outcome)) || "unjudged";
    };
  };
  const judges = (state.differs ? ["a", "b"] : [payload.names ? state.shown : "a"]).map(judge);
  const best = (pair) => {
    const outcomes = judges.map((outcomeOf) => outcomeOf(pair));
    return outcomes.length === 1 ? outcomes[0] : CHANGES[outcomes.join(" ")] || "unjudged";
  };
  const pairs = found.pairs.map(([first, last, ...rest], i) => ({
    query: placed(side, "left", [first, last]),
    keys: runs(rest).map((run) => placed(side, "right", run)),
    outcome: best(i),
  }));
  const possible = state.differs ? ["won", "lost", "kept", "neither", "unjudged"] : ["hit", "miss", "unjudged"];
  const counts = Object.fromEntries(possible.map((outcome) => [outcome, pairs.filter((pair) => pair.outcome === outcome).length]));
  return { name: found.name, about: found.about, rule: found.rule, pairs, names: state.differs ? payload.names : [], counts };
}

/** @returns {Run[]} first and last positions, two by two */
function runs(numbers) {
  return Array.from({ length: numbers.length / 2 }, (_, i) => [numbers[2 * i], numbers[2 * i + 1]]);
}

/** @returns {Run} the same run in what a side shows, words or tokens */
function placed(side, column, [first, last]) {
  return [side.placeOf(column, first), side.placeOf(column, last)];
}

/** @returns {boolean} whether a position is in a run */
export function inRun([first, last], position) {
  return first <= position && position <= last;
}

/** @returns {boolean} whether a pair is of the token in focus */
export function isOf(pair, focus) {
  return focus.side === "left" ? inRun(pair.query, focus.index) : pair.keys.some((run) => inRun(run, focus.index));
}

/** @returns {boolean} whether a pair is of the token that is pinned or pointed at on either side */
export function touches(pair, { query, key, hover }) {
  const tokens = [query === null ? null : { side: "left", index: query }, key === null ? null : { side: "right", index: key }, hover];
  return tokens.some((token) => token !== null && isOf(pair, token));
}

/** @returns {string[]} the outcomes to list: all that can occur, and pairs that are not judged if there are any */
export function listedOutcomes({ counts }) {
  return Object.keys(counts).filter((outcome) => counts[outcome] || outcome !== "unjudged");
}

/** @returns {string} outcomes with their counts: 3 hit, 2 missed */
export function countsText(gold) {
  const { counts } = gold;
  return listedOutcomes(gold).map((outcome) => `${counts[outcome]} ${outcomeName(outcome)}`).join(", ");
}

/** @returns {string} how an outcome reads */
export function outcomeName(outcome) {
  return OUTCOME_NAMES[outcome] || outcome;
}

/** @returns {string} whose outcome is shown, and when a pair is hit */
export function ruleText(gold, heads) {
  const [first, second] = gold.names;
  const whom = `won: hit by ${second} alone; lost: by ${first} alone; kept: by both`;
  if (first !== undefined) return `${whom}. Each is judged by its own weights: a pair is hit where ${gold.rule}.`;
  const whose = heads.length > 1 ? "One at least of the heads that are on hits a pair" : `Head ${heads[0]} hits a pair`;
  return `${whose} where ${gold.rule}.`;
}

/** @returns {string} the gold partners of a token in focus with their outcomes; empty if it has none */
export function partnersText(gold, focus, side) {
  const pairs = gold ? gold.pairs.filter((pair) => isOf(pair, focus)) : [];
  const text = (tokens, [first, last]) => tokens.slice(first, last + 1).join(" ");
  const other = (pair) => (focus.side === "left" ? pair.keys.map((run) => text(side.right.tokens, run)).join(" or ") : text(side.left.tokens, pair.query));
  const outcomes = pairs.map((pair) => `${other(pair)} (${outcomeName(pair.outcome)})`);
  return outcomes.length ? `Gold ${focus.side === "left" ? "key" : "query"}: ${outcomes.join(", ")}` : "";
}
