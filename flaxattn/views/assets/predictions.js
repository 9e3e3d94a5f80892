// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Which token a language model expected after another, and what each head adds to the logit of the
// one that came: read from the payload, and written below what the panel says of a token.

import { element, fillWith, swatch, tokenText } from "./elements.js";
import { formatShare } from "./numbers.js";

/** So many heads of a layer are listed, those that add or take most. */
const LISTED_HEADS = 12;
/** So many heads of all layers are named. */
const NAMED_HEADS = 3;

/**
 * @typedef {Object} Prediction
 * @property {boolean} here whether it is of the token itself, not of the one after it
 * @property {string} target the token that came; the likeliest where the text ends
 * @property {boolean} ends whether the text ends there
 * @property {number} probability of the target
 * @property {number} rank of the target, from 1
 * @property {{token: string, probability: number}[]} alternatives the likeliest tokens
 * @property {number} position among the tokens of the text
 */

/** @returns {{name: string, position: number}} the text that a token of a column is of, and where it stands there */
function placeInText(state, column, index) {
  const { side } = state;
  const [from, to] = side.tokensOf(column, index);
  const input = state.payload.inputs[state.sequence];
  let start = 0;
  for (const name of side.about[column]) {
    const { length } = input.texts[name].tokens;
    const here = (input.predictions.texts[name] || "") === "here";
    const position = (here ? from : to - 1) - start;
    if (position < length) return { name, position };
    start += length;
  }
  return { name: "", position: 0 };
}

/** @returns {ArrayBuffer} one row of a block, of so many numbers of four bytes */
function rowOf(payload, block, position, count) {
  const start = payload.blocks[block][0] + 4 * position * count;
  return payload.bytes.slice(start, start + 4 * count).buffer;
}

/**
 * @param {import("./state.js").State} state
 * @param {"left"|"right"} column
 * @param {number} index of a token of it
 * @returns {Prediction|null} null where nothing is known
 */
export function predictionAt(state, column, index) {
  const { payload } = state;
  const known = payload.inputs[state.sequence].predictions;
  if (!known) return null;
  const { name, position } = placeInText(state, column, index);
  if (!known.texts[name]) return null;
  const { count, tokens } = known;
  const names = new Int32Array(rowOf(payload, known.names, position, count + 2));
  const scores = new Float32Array(rowOf(payload, known.scores, position, count + 1));
  return {
    here: known.texts[name] === "here",
    target: tokens[names[count]],
    ends: known.ends.includes(position),
    probability: scores[count],
    rank: names[count + 1],
    alternatives: Array.from({ length: count }, (_, i) => ({ token: tokens[names[i]], probability: scores[i] })),
    position,
  };
}

/**
 * How unlikely the model held each token: -ln of its probability, of a word the sum over its tokens.
 * @param {import("./state.js").State} state
 * @returns {Map<number, number>|null} by position on the left; null where nothing is known
 */
export function surprisesOf(state) {
  const { payload, side } = state;
  const { texts, predictions: known } = payload.inputs[state.sequence];
  if (!known) return null;
  const nats = (position) => -Math.log(new Float32Array(rowOf(payload, known.scores, position, known.count + 1))[known.count]);
  const tokens = side.about.left.flatMap((name) => {
    const before = known.texts[name] === "after" ? 1 : 0; // a token is expected at the one before it
    return texts[name].tokens.map((_, i) => (known.texts[name] && i >= before ? nats(i - before) : NaN));
  });
  const found = new Map();
  side.left.tokens.forEach((_, index) => {
    const sum = tokens.slice(...side.tokensOf("left", index)).reduce((total, one) => total + one, 0);
    if (!Number.isNaN(sum)) found.set(index, sum);
  });
  return found.size ? found : null;
}

/** @returns {string} a probability, which no line break parts; never a rounded-down zero */
function chance(probability) {
  const text = probability > 0 && probability < 0.0005 ? "<0.1 %" : formatShare(probability);
  return text.replace(" ", "\u00a0");
}

/** @returns {string} a number of logits with its sign */
export function formatLogit(value) {
  const size = Math.abs(value).toFixed(2);
  if (Number(size) === 0) return size;
  return `${value < 0 ? "−" : "+"}${size}`;
}

/** @returns {(Node|string)[]} what was expected, and what came */
function expected({ here, target, ends, probability, rank, alternatives }) {
  const listed = alternatives.flatMap(({ token, probability: p }, i) => [i ? " · " : "", tokenText(token), ` ${chance(p)}`]);
  const start = here ? "In this place: " : "After this token: ";
  if (ends) return [start, ...listed, ". The text ends here."];
  return [start, ...listed, here ? "; the text has " : "; the text continues with ", tokenText(target), ` ${chance(probability)} (rank\u00a0${rank}).`];
}

/** @returns {HTMLElement} a bar from the middle of its track, to the left below 0 */
function signedBar(value, longest, colour) {
  const part = element("span");
  const width = longest ? (50 * Math.abs(value)) / longest : 0;
  part.style.setProperty("width", `${width}%`);
  part.style.setProperty("margin-left", `${value < 0 ? 50 - width : 50}%`);
  fillWith(part, colour);
  return element("span", { class: "bar signed", "aria-hidden": "true" }, part);
}

/** @returns {{layer: number, head: number, index: number, value: number}[]} heads of all layers, those first that matter most */
function ranked(state, { position }) {
  const { side, payload } = state;
  const { heads } = payload.inputs[state.sequence].predictions;
  const all = side.layers.flatMap((layer, at) => {
    const values = new Float32Array(rowOf(payload, heads[at], position, side.heads.length));
    return side.heads.map((head, i) => ({ layer, head, index: i, value: values[i] }));
  });
  return all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

/**
 * What heads add to the logit of the token that came.
 * @param {import("./state.js").State} state
 * @param {import("./shell.js").Shell} actions
 * @param {Prediction} prediction
 * @returns {Node[]}
 */
function contributions(state, actions, prediction) {
  const known = state.payload.inputs[state.sequence].predictions;
  if (!known.heads || state.side.name !== "decoder") return [];
  const parts = [...new Float32Array(rowOf(state.payload, known.parts, prediction.position, 4))];
  const every = ranked(state, prediction);
  const own = every.filter(({ layer }) => layer === state.layerNumber());
  const shown = own.slice(0, LISTED_HEADS).sort((a, b) => a.index - b.index);
  const longest = Math.abs(own[0].value);
  const rows = shown.map(({ head, index, value }) =>
    element(
      "li",
      { class: "fact" },
      swatch(actions.colourOf(index)),
      element("span", { class: "number", text: head }),
      signedBar(value, longest, value < 0 ? actions.signs.less : actions.signs.more),
      element("span", { class: "value", text: formatLogit(value) }),
    ),
  );
  const rest = own.length > shown.length ? `${own.length - shown.length} more add or take less. ` : "";
  const most = every.slice(0, NAMED_HEADS).map(({ layer, head, value }) => `${layer}.${head} ${formatLogit(value)}`);
  const total = parts.reduce((sum, part) => sum + part, 0);
  const [heads, fed, embedding, bias] = parts.map(formatLogit);
  return [
    element("h3", {}, `Heads of layer ${state.layerNumber()} add to the logit of `, tokenText(prediction.target)),
    element("ol", { class: "facts logits", "aria-label": "Contributions of heads to the logit" }, ...rows),
    element("p", { class: "hint", text: `${rest}The longest bar is ${longest.toFixed(2)}. Largest over all layers: ${most.join(", ")}.` }),
    element("p", { class: "hint", text: `The logit is ${formatLogit(total)}: all heads ${heads}, feed-forward layers ${fed}, embeddings ${embedding}, biases ${bias}; each directly, not by way of later layers.` }),
  ];
}

/**
 * Add to a panel what a model predicted at a token.
 * @param {HTMLElement} panel
 * @param {import("./state.js").State} state
 * @param {"left"|"right"} column
 * @param {number} index of a token of it
 * @param {import("./shell.js").Shell} actions
 * @returns {string} the same to be spoken; empty where nothing is known
 */
export function showPrediction(panel, state, column, index, actions) {
  const prediction = predictionAt(state, column, index);
  if (!prediction) return "";
  const line = element("p", { class: "predicted" }, ...expected(prediction));
  panel.append(line, ...contributions(state, actions, prediction));
  return line.textContent;
}
