// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The panel beside the lines: what each head does, where a token looks, how each head weighs a
// pair. It shows numbers that are handed in and keeps no state.

import { element, fillWith, swatch, tokenText } from "./elements.js";
import { explain } from "./glossary.js";
import { formatShare, formatWeight } from "./numbers.js";
import { APART } from "./sides.js";

/** How the measures of a head read, in the order shown. */
const MEASURES = [
  ["next", "next token", "share"],
  ["previous", "previous token", "share"],
  ["own", "own token", "share"],
  ["strongest", "one token", "share"],
  ["delimiter", "delimiters", "share"],
  ["first", "first token", "share"],
  ["induction", "induction", "share"],
  ["duplicate", "duplicate token", "share"],
  ["same_segment", "own sentence", "share"],
  ["entropy", "entropy, nats"],
  ["distance", "distance, tokens"],
  ["max", "largest weight", "share"],
  ["sum_sq", "sum of squares"],
  ["lse", "log-sum-exp"],
  ["ablation", "effect of ablation"],
  ["importance", "importance"],
  ["divergence", "divergence, nats"],
  ["cosine", "cosine"],
];
const LISTED = 10;

/**
 * What pages with more data tell of tokens.
 * @typedef {Object} MoreOfTokens
 * @property {(panel: HTMLElement, state: import("./state.js").State, column: "left"|"right", index: number, actions: import("./shell.js").Shell) => string} note
 *   adds to the panel of a token; what is spoken of that
 * @property {(state: import("./state.js").State) => Map<number, number>|null} surprise of each token on the left, in nats
 */

/** @type {MoreOfTokens} of a language model, what `main_predictions.js` puts here */
export const MORE = { note: () => "", surprise: () => null };

/** @returns {boolean} whether a measure is a share of something, so that 0 means none of it */
export function isShare(name) {
  return MEASURES.some(([other, , kind]) => other === name && kind === "share");
}

/** @returns {string} how a measure reads */
export function measureLabel(name) {
  const known = MEASURES.find(([other]) => other === name);
  return known ? known[1] : name;
}

/** Numbers of heads that differ in size from model to model, and can be below 0. */
export const EFFECTS = ["ablation", "importance"];

/** @returns {string} a measure of a head, with its sign where it is a change */
export function formatMeasure(name, measure) {
  const value = measure[name];
  if (value === undefined) return "–";
  if (EFFECTS.includes(name)) return effectText(value);
  if (!measure.changed || APART.includes(name)) return value.toFixed(name === "divergence" ? 3 : 2);
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

/** @returns {string} two digits of a number, whatever its size */
export function effectText(value) {
  const size = Math.abs(value);
  const digits = size > 0 && size < 10 ? Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(size)))) : 0;
  return `${value < 0 ? "−" : ""}${size.toFixed(digits)}`;
}

/** @returns {HTMLElement} a bar whose parts are `[share, colour]` of its width */
export function bar(parts) {
  const made = element("span", { class: "bar", "aria-hidden": "true" });
  for (const [share, colour] of parts) {
    const part = element("span");
    part.style.setProperty("width", `${100 * share}%`);
    fillWith(part, colour);
    made.append(part);
  }
  return made;
}

/**
 * @typedef {Object} HeadFacts
 * @property {number} number
 * @property {string} colour
 * @property {Object<string, any>} measure `does` and the numbers known of the head
 */

/** @returns {Node[]} the tooltip of a head: its role and all measures in this text */
export function headTip(layer, head) {
  const rows = MEASURES.filter(([name]) => name in head.measure).flatMap(([name, label]) => [
    element("dt", { text: label }),
    element("dd", { text: formatMeasure(name, head.measure) }),
  ]);
  const title = element("strong", { text: [`Layer ${layer}, head ${head.number}`, head.measure.does].filter(Boolean).join(": ") });
  const { claim } = head.measure;
  return [title, element("dl", {}, ...rows), ...(claim ? [element("p", { class: "hint claimed", text: claim })] : [])];
}

/** @returns {Node[]} the heads that are on, with what they do in this text */
export function headsPanel(layer, heads) {
  const items = heads.map((head) =>
    element(
      "li",
      { class: "fact" },
      swatch(head.colour),
      element("span", { class: "number", text: head.number }),
      element("span", { class: "role" }, ...explain(head.measure.does)),
      element("span", { class: "value", text: headlineOf(head.measure) }),
      element("span", { class: "value first", text: firstShareOf(head.measure) }),
    ),
  );
  return [
    element("h2", { text: `Layer ${layer}: what its heads do here` }),
    element("p", { class: "hint over", text: heads.some((head) => "first" in head.measure) ? "on the first token" : "" }),
    element("ol", { class: "facts" }, ...items),
    element("p", { class: "hint", text: "Point at a token or a line for its weights. Click a token to pin it, and again to unpin it." }),
  ];
}

/** What a head that does something looks at. */
const LOOKS = {
  "next token": "looks at the next token",
  "previous token": "looks at the previous token",
  "own token": "looks at its own token",
  "one token": "looks at one token at a time",
  "first token": "leaves its attention on the first token",
  delimiters: "leaves its attention on delimiters",
  induction: "looks at the token after an earlier occurrence of its own (induction)",
  "duplicate token": "looks at earlier occurrences of its own token",
  broad: "attends broadly",
  mixed: "has no single pattern in this text",
};

/** @returns {string} what heads of a layer do in this text, as a sentence */
export function readingOf(layer, heads) {
  if (heads.length > 1) return `${heads.length} heads of layer ${layer}; double-click a number above to see one head.`;
  const [{ number, measure }] = heads;
  const name = `Layer ${layer}, head ${number}`;
  const headline = headlineOf(measure);
  if (!LOOKS[measure.does]) return [name, measure.does, headline].filter(Boolean).join(": ");
  const spread = ["broad", "mixed"].includes(measure.does);
  const size = spread ? `entropy ${headline}` : `${headline} of its attention`;
  return `${name} ${LOOKS[measure.does]}${headline && `: ${size}`}.`;
}

/** @returns {string} the number that a role rests on */
export function headlineOf(measure) {
  if (measure.changed && "divergence" in measure) return `${formatMeasure("divergence", measure)} nats`;
  const found = MEASURES.find(([, label]) => label === measure.does);
  if (found) return formatShare(measure[found[0]]);
  return "entropy" in measure ? `${measure.entropy.toFixed(1)} nats` : "";
}

/** @returns {string} the share of attention that a head leaves on the first token */
function firstShareOf(measure) {
  return "first" in measure ? formatShare(measure.first) : "";
}

/**
 * Where one token looks, or who looks at it.
 * @param {string} token
 * @param {"left"|"right"} side
 * @param {{token: string, mean: number, parts: any[][]}[]} others strongest first
 * @param {number} heads how many heads the means are over
 * @param {number|null} onFirst mean weight on the first token, hidden or not; null if unknown
 * @param {string} unit what a weight is
 * @returns {Node[]}
 */
export function tokenPanel(token, side, others, heads, onFirst, unit) {
  const longest = others.length ? Math.abs(others[0].mean) || 1 : 1;
  const items = others.slice(0, LISTED).map((other) =>
    element(
      "li",
      { class: "fact" },
      element("span", { class: "other" }, tokenText(other.token)),
      bar(other.parts.map(([share, colour]) => [share / longest, colour])),
      element("span", { class: "value", text: formatWeight(other.mean) }),
    ),
  );
  const relation = side === "left" ? " attends to" : " is attended to by";
  const rest = others.length > LISTED ? `and ${others.length - LISTED} more; ` : "";
  const description = heads > 1 ? `mean of ${heads} heads; ${unit}` : unit;
  return [
    element("h2", {}, tokenText(token), relation),
    element("ol", { class: "facts" }, ...items),
    element("p", { class: "hint" }, ...explain(others.length ? rest + description : "Nothing is shown for it.")),
    element("p", { class: "hint", text: others.length ? `The longest bar is ${formatWeight(longest)}.` : "" }),
    element("p", { class: "hint", text: onFirst === null ? "" : `${formatShare(onFirst)} of its attention is on the first token.` }),
  ];
}

/**
 * The weight each head gives to one pair.
 * @param {string} query
 * @param {string} key
 * @param {{head: HeadFacts, weight: number|null, colour: string}[]} weights null where no line is drawn
 * @returns {Node[]}
 */
export function pairPanel(query, key, weights) {
  const items = weights.map(({ head, weight, colour }) =>
    element(
      "li",
      { class: "fact" },
      swatch(head.colour),
      element("span", { class: "number", text: head.number }),
      bar([[Math.abs(weight || 0), colour]]),
      element("span", { class: "value", text: weight === null ? "–" : formatWeight(weight) }),
    ),
  );
  return [
    element("h2", {}, tokenText(query), " → ", tokenText(key)),
    element("ol", { class: "facts" }, ...items),
    element("p", { class: "hint", text: "Weight in each head that is on; a full bar is a weight of 1." }),
  ];
}
