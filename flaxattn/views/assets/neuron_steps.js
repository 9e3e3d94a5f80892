// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The walk from vectors to the output of a head in words: a step for each operation, with the numbers
// of one query and one key. Numbers are those of the scene; what a trace does not hold is only named.

import { element, tokenText } from "./elements.js";
import { formatFactor } from "./neuron_layout.js";
import { formatExactly, sumProducts } from "./neuron_paint.js";
import { bySize } from "./neuron_terms.js";
import { formatWeight } from "./numbers.js";

/** So many dimensions are named in a sentence. */
export const NAMED_DIMENSIONS = 3;

/**
 * @typedef {Object} Step of the walk
 * @property {string} name as the setting has it
 * @property {string} title
 * @property {(Node|string)[][]} lines sentences, then numbers
 * @property {[string, "query"|"key"|"all"][]} marks columns that it speaks about, and rows of them
 *
 * @typedef {Object} Story what a walk is about
 * @property {import("./neuron_paint.js").Scene} scene
 * @property {number} key
 * @property {Node} queryName
 * @property {Node} keyName
 * @property {number[]} best dimensions that add most to the product, the largest first
 */

/** @returns {Node} a number that can be found by its name */
function number(name, value) {
  return element("b", { class: "value", "data-number": name, text: formatExactly(value) });
}

/** @returns {string} names of things as people list them */
export function listed(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : String(names[0]);
}

/** @returns {(Node|string)[]} the numbers of a vector in some dimensions */
function components(letter, vector, dimensions) {
  return dimensions.flatMap((d, i) => [i ? ", " : "", `${letter}[${d}] = `, number(`${letter}${d}`, vector[d])]);
}

/** @returns {Node} a token between quotation marks */
function nameOf(token) {
  return element("span", { class: "neuron-named" }, "“", tokenText(token), "”");
}

/** @returns {(Node|string)[]} a number after a sign of plus or times, in brackets if below 0 */
function then(sign, name, value) {
  const made = number(name, value);
  return value < 0 ? [` ${sign} (`, made, ")"] : [` ${sign} `, made];
}

/** @returns {Step} */
function inputStep({ scene, key, queryName, keyName }) {
  return {
    name: "input",
    title: "Input X",
    lines: [
      ["Each token enters the layer as a vector x; all of them are X. The query is ", queryName, ` at position ${scene.terms.query}, the key is `, keyName, ` at position ${key}.`],
      ["The trace does not hold X, nor the matrices W_Q, W_K and W_V: the numbers begin with what these make of it."],
    ],
    marks: [["token", "query"], ["token", "key"]],
  };
}

/** @returns {Step} the step of a query or a key, of a model with rotary positions both before and after */
function projectionStep(story, name) {
  const { scene, best } = story;
  const { head, terms } = scene;
  const query = name === "query";
  const [letter, matrix] = query ? ["q", "W_Q"] : ["k", "W_K"];
  const [place, token] = query ? [terms.query, story.queryName] : [story.key, story.keyName];
  const vector = query ? terms.q : head.vector("key", story.key);
  const lines = [[`${matrix} turns the x of `, token, ` into ${letter}, ${head.about.depth} numbers. Those in the dimensions that decide this score:`]];
  const before = query ? head.queryBefore : head.keyBefore;
  if (before) {
    const own = before.subarray(place * head.about.depth, (place + 1) * head.about.depth);
    lines.push(["before rotation ", ...components(`${letter}′`, own, best)]);
    lines.push([`rotated by position ${place}: `, ...components(letter, vector, best)]);
  } else lines.push(components(letter, vector, best));
  const row = /** @type {"query"|"key"} */ (name);
  /** @type {[string, "query"|"key"][]} */
  const marks = [["token", row], ...(before ? /** @type {[string, "query"|"key"][]} */ ([["before", row]]) : []), ["key", row]];
  return { name, title: `${query ? "Query" : "Key"} ${letter} = x ${matrix}`, lines, marks };
}

/** @returns {Step} */
function productStep({ scene, key, best, queryName, keyName }) {
  const { head, terms } = scene;
  const k = head.vector("key", key);
  const others = head.about.depth - best.length;
  const parts = best.map((d) => terms.products[key * head.about.depth + d]);
  const sums = parts.flatMap((part, i) => (i ? then("+", `product${best[i]}`, part) : [number(`product${best[i]}`, part)]));
  const rest = others ? [...then("+", "others", terms.dots[key] - sumProducts(terms, best, key)), ` (the other ${others})`] : [];
  return {
    name: "product",
    title: "Product q·k",
    lines: [
      ["q of ", queryName, " and k of ", keyName, " are multiplied in each dimension, and the products are added: large where both point the same way."],
      best.flatMap((d, i) => [i ? ", " : "", `[${d}] `, number(`q${d}`, terms.q[d]), ...then("×", `k${d}`, k[d]), " = ", number(`product${d}`, parts[i])]),
      ["q·k = ", ...sums, ...rest, " = ", number("dot", terms.dots[key])],
    ],
    marks: [["key", "query"], ["key", "key"], ["product", "key"], ["rest", "key"], ["dot", "key"]],
  };
}

/** @returns {Step} */
function scaleStep({ scene, key }) {
  const { about } = scene.head;
  const usual = Math.abs(about.scale * Math.sqrt(about.depth) - 1) < 1e-3;
  const why = usual ? `, 1/√${about.depth}, so that scores do not grow with the number of dimensions` : "";
  const dot = scene.terms.dots[key];
  return {
    name: "scale",
    title: "Scale",
    lines: [
      [`The product is multiplied with the factor of the model${why}.`],
      [number("dot", dot), " × ", element("b", { class: "value", "data-number": "factor", text: formatFactor(about.scale) }), " = ", number("scaled", about.scale * dot)],
    ],
    marks: [["dot", "key"], ["score", "key"]],
  };
}

/** @returns {Step} */
function biasStep({ scene, key }) {
  const { head, terms } = scene;
  const scaled = head.about.scale * terms.dots[key];
  return {
    name: "bias",
    title: "Bias",
    lines: [
      ["The model adds a bias for this pair of positions; minus infinity hides the key (masked)."],
      [number("scaled", scaled), ...then("+", "bias", head.biasAt(terms.query, key)), " = ", number("score", terms.scaled[key])],
    ],
    marks: [["bias", "key"], ["score", "key"]],
  };
}

/** @returns {Step} */
function softmaxStep({ scene, key, queryName, keyName }) {
  const { terms } = scene;
  const seen = [...terms.scaled.keys()].filter((k) => terms.scaled[k] !== -Infinity);
  const hidden = terms.scaled.length - seen.length;
  const mask = hidden ? ` The other ${hidden} are masked: the query does not see them, and their weight is 0.` : "";
  const lines = [["Softmax turns the scores into weights that sum to one, over the ", number("seen", seen.length), " keys that ", queryName, ` sees.${mask}`]];
  const marks = /** @type {[string, "all"][]} */ ([["score", "all"], ["weight", "all"]]);
  const step = { name: "softmax", title: "Softmax", lines, marks };
  if (terms.scaled[key] === -Infinity) {
    lines.push([keyName, " is masked: its weight is ", number("weight", 0), "."]);
    return step;
  }
  const peak = Math.max(...seen.map((k) => terms.scaled[k]));
  const total = seen.reduce((sum, k) => sum + Math.exp(terms.scaled[k] - peak), 0);
  const part = Math.exp(terms.scaled[key] - peak);
  const stored = terms.weights[key];
  lines.push(
    ["The largest score is ", number("peak", peak), "; exp(", number("score", terms.scaled[key]), ...then("−", "peak", peak), ") = ", number("part", part)],
    ["This over its sum for all keys: ", number("part", part), " / ", number("total", total), " = ", number("weight", part / total)],
  );
  if (formatWeight(stored) !== formatWeight(part / total)) lines.push(["The model’s own weight, as the page holds it, is ", number("stored", stored), "; what follows uses that."]);
  return step;
}

/** @returns {number} the dimension in which a key adds most to the output */
function loudest({ head }, key) {
  return bySize(head.vector("value", key))[0];
}

/** @returns {Step} */
function valueStep({ scene, key, keyName }) {
  const v = scene.head.vector("value", key);
  const some = bySize(v).slice(0, NAMED_DIMENSIONS);
  const weight = scene.terms.weights[key];
  const d = some[0];
  return {
    name: "value",
    title: "Value v = x W_V",
    lines: [
      ["W_V turns the x of ", keyName, ` into v, ${v.length} numbers, of length `, number("norm", scene.head.norm(key)), ". The largest: ", ...components("v", v, some), "."],
      ["The weight says how much of v is passed on: in dimension ", `${d}, `, number("weight", weight), ...then("×", `v${d}`, v[d]), " = ", number("passed", weight * v[d])],
    ],
    marks: [["token", "key"], ["weight", "key"], ["value", "key"]],
  };
}

/** @returns {Step} */
function sumStep({ scene, key, keyName }) {
  const { head, terms } = scene;
  const d = loudest(scene, key);
  const passed = terms.weights[key] * head.vector("value", key)[d];
  const others = head.columns - 1;
  const rest = others ? [...then("+", "others", terms.output[d] - passed), ` (the other ${others} keys)`] : [];
  return {
    name: "sum",
    title: "Weighted sum of values",
    lines: [
      ["The values of all keys, each times its weight, are added, dimension by dimension. In dimension ", `${d}, where `, keyName, " has its largest number:"],
      [number("passed", passed), ...rest, " = ", number(`output${d}`, terms.output[d])],
    ],
    marks: [["weight", "all"], ["value", "all"], ["value", "query"]],
  };
}

/** @returns {Step} */
function outputStep({ scene, queryName }) {
  const { about } = scene.head;
  const { output } = scene.terms;
  const lines = [["W_O then mixes the outputs of all heads into what the layer adds for ", queryName, "; the trace does not hold it."]];
  if (output) {
    const some = bySize(output).slice(0, NAMED_DIMENSIONS);
    lines.unshift([`The head hands on these ${about.width} sums, a vector of length `, number("length", Math.hypot(...output)), ". Its largest numbers: ", ...components("output", output, some), "."]);
  } else lines.unshift(["The head hands on the values of all keys, each times its weight. The trace does not hold values: Capture(value=True) records them."]);
  return { name: "output", title: "Output", lines, marks: output ? [["value", "query"]] : [["weight", "all"]] };
}

/**
 * The steps that the data allow, in their order.
 * @param {import("./neuron_paint.js").Scene} scene
 * @param {number} key
 * @param {string} query token
 * @param {string[]} tokens of keys
 * @returns {(() => Step)[]} each makes its step, with nodes of its own
 */
export function walkSteps(scene, key, query, tokens) {
  const { bias, value } = scene.head.about;
  const best = bySize(scene.head.contributions(scene.terms, key)).slice(0, NAMED_DIMENSIONS);
  const moment = () => ({ scene, key, best, queryName: nameOf(query), keyName: nameOf(tokens[key]) });
  const steps = [
    inputStep,
    (story) => projectionStep(story, "query"),
    (story) => projectionStep(story, "key"),
    productStep,
    scaleStep,
    ...(bias ? [biasStep] : []),
    softmaxStep,
    ...(value ? [valueStep, sumStep] : []),
    outputStep,
  ];
  return steps.map((step) => () => step(moment()));
}
