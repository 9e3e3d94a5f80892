// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The settings of a page: which there are, what each can be, and how they read in an address and in
// JSON. What they mean for weights is in `state.js`.

/** Which sides of a sentence pair are drawn, as BertViz names them; values are for the address. */
export const ATTENTION = [
  ["all", "All"],
  ["aa", "Sentence A → Sentence A"],
  ["bb", "Sentence B → Sentence B"],
  ["ab", "Sentence A → Sentence B"],
  ["ba", "Sentence B → Sentence A"],
];
/** Settings that are one of a few words. The first is what a page starts with. */
export const SETTINGS = {
  attention: ATTENTION.map(([value]) => value),
  opacity: ["absolute", "row", "heads"],
  special: ["shown", "hidden"],
  first: ["shown", "hidden"],
  unit: ["tokens", "words"],
  labels: ["source", "tokens"],
  direction: ["from", "to", "surprise"],
  drawing: ["lines", "matrix"],
  order: ["grid", "value", "cluster"],
  dimensions: ["top", "all"],
  numbers: ["off", "on"],
  sorting: ["weight", "position"],
  walk: ["off", "input", "query", "key", "product", "scale", "bias", "softmax", "value", "sum", "output"],
  compare: ["a", "b", "difference", "together"],
  theme: ["auto", "light", "dark"],
};
/** The weights that a trace has of itself, and a page shows at first. */
export const RAW = "attention";
/** Settings that do not depend on the side. */
export const FREE = Object.keys(SETTINGS).filter((name) => !["attention", "unit"].includes(name));

/** @returns {number[]} numbers from small to large, each once */
export function inOrder(numbers) {
  return [...new Set(numbers)].sort((a, b) => a - b);
}

/** @returns {Object<string, string>} a state as an address would tell it */
export function asTexts(state) {
  const known = Object.entries(state).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(known.map(([name, value]) => [name, Array.isArray(value) ? value.join("-") : String(value)]));
}

/** @returns {Object<string, string>} settings with those that the short name of a head, as 1.0, stands for */
export function withHead(record) {
  const found = /^(\d+)\.(\d+)$/.exec(record.head || "");
  return found ? { level: "profile", ...record, layer: found[1], heads: found[2] } : record;
}

/** What the address tells, in this order. */
export const IN_ADDRESS = ["level", "sequence", "side", "layer", "heads", ...Object.keys(SETTINGS), "mass", "measure", "weights", "gold", "query", "key"];
/** All that makes a state. */
const MADE_OF = ["level", "sequence", "sides", "side", "layer", "heads", "query", "key", "hover", "mass", "measure", "weights", "gold", ...Object.keys(SETTINGS)];

/** @returns {Object<string, any>} the settings of a state, apart from it */
export function snapshot(state) {
  return Object.fromEntries(MADE_OF.map((name) => [name, state[name]]));
}

/** @returns {Object<string, any>} settings by the numbers of the model, as JSON holds them */
export function describe(settings) {
  const words = Object.keys(SETTINGS).map((name) => [name, settings[name]]);
  return {
    level: settings.level,
    sequence: settings.sequence,
    side: settings.side.name,
    layer: settings.side.layers[settings.layer],
    heads: settings.heads.map((head) => settings.side.heads[head]),
    query: settings.query,
    key: settings.key,
    mass: Math.round(100 * settings.mass),
    measure: settings.measure,
    weights: settings.weights,
    gold: settings.gold,
    ...Object.fromEntries(words),
  };
}

/** @returns {number|null} a whole number from 0 up to a limit, or null */
export function indexBelow(text, limit) {
  return /^\d+$/.test(text) && Number(text) < limit ? Number(text) : null;
}
