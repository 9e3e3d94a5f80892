// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The elements of the neuron level: titles, the row of the query, rows of keys, the legend and the
// tooltip. They show a scene that is handed in and keep nothing.

import { element, swatch, tokenText } from "./elements.js";
import { formatFactor, ROW, STRIPS, TITLES, TOP } from "./neuron_layout.js";
import { barWidth, captionOf, formatExactly, formatNumber, numbersOf, stripOfKey, stripOfQuery } from "./neuron_paint.js";
import { listed, NAMED_DIMENSIONS } from "./neuron_steps.js";
import { bySize } from "./neuron_terms.js";
import { formatShare, formatWeight } from "./numbers.js";

/**
 * What stands above the table.
 * @param {number} top how many dimensions are few
 * @param {(settings: Object<string, string>) => void} update
 * @param {() => void} walk starts or ends the walk
 */
export function buildTools(top, update, walk) {
  const kinds = {
    dimensions: [`Top ${top} dimensions`, ["all", "top"]],
    numbers: ["Numbers", ["off", "on"]],
    sorting: ["Strongest keys first", ["position", "weight"]],
  };
  /** @type {Object<string, HTMLInputElement>} */
  const boxes = {};
  const labels = Object.entries(kinds).map(([name, [text, values]]) => {
    const change = () => update({ [name]: values[boxes[name].checked ? 1 : 0] });
    boxes[name] = element("input", { type: "checkbox", name, change, "aria-label": text });
    return element("label", { class: "field" }, boxes[name], element("span", { text: String(text) }));
  });
  const folded = element("span", { class: "neuron-folded" });
  const start = element("button", { type: "button", class: "neuron-start", click: walk });
  return { root: element("div", { class: "neuron-tools" }, start, ...labels, folded), boxes, folded, start };
}

/** Put an element into a column. */
function placeIn(made, { x, width }, top) {
  made.style.setProperty("left", `${x}px`);
  made.style.setProperty("width", `${width}px`);
  made.style.setProperty("top", `${top}px`);
  return made;
}

/** @returns {Node} a button that opens a strip or folds it up */
export function foldButton(name, open, fold) {
  const title = STRIPS[name];
  const attributes = { "aria-expanded": String(open), title: open ? `Fold up ${title}` : `Show ${title}`, "aria-label": title };
  return element("button", { type: "button", class: `neuron-fold ${name}`, click: () => fold(name, !open), ...attributes }, `${open ? "▾" : "▸"} ${title}`);
}

/** @returns {Node[]} the title of a column; of a strip, a button that folds it up, and a caption */
function columnTitle(column, held, fold) {
  const { name, title } = column;
  const head = element("span", { class: `neuron-title ${name}`, role: "columnheader" });
  if (!STRIPS[name]) {
    head.textContent = title;
    return [placeIn(head, column, 0)];
  }
  head.append(foldButton(name, true, fold));
  return [placeIn(head, column, 0), placeIn(element("small", { class: "neuron-caption", text: captionOf(column, held) }), column, TITLES)];
}

/**
 * @param {import("./neuron_paint.js").Scene} scene
 * @param {string} query token
 * @param {number|null} held key
 * @param {(name: string, open: boolean) => void} fold
 * @returns {Node[]} titles, and the row of the query
 */
export function headerNodes({ layout, terms }, query, held, fold) {
  const titles = layout.columns.flatMap((column) => columnTitle(column, held, fold));
  const name = element("span", { class: "neuron-query" }, element("small", { text: "query" }), tokenText(query));
  const sum = element("span", { class: "neuron-total", text: `Σ ${formatWeight(terms.weights.reduce((a, b) => a + b, 0))}` });
  const weight = layout.columns.find((column) => column.name === "weight");
  return [...titles, placeIn(name, layout.columns[0], TITLES), placeIn(sum, weight, TITLES)];
}

/**
 * The texts of a key.
 * @param {import("./neuron_paint.js").Scene} scene
 * @param {number} key
 * @param {number} at its place in the order shown
 * @param {import("./source.js").Column} right
 * @param {number|null} held key
 * @returns {HTMLElement}
 */
export function keyRow(scene, key, at, right, held) {
  const { layout, terms } = scene;
  const numbers = numbersOf(scene, key);
  const masked = terms.scaled[key] === -Infinity;
  const kinds = { special: right.special.has(key), held: key === held, masked };
  const classes = ["neuron-row", "token", ...Object.keys(kinds).filter((kind) => kinds[kind])].join(" ");
  const made = element("div", { class: classes, role: "row", tabindex: "-1", "data-index": key, "aria-rowindex": at + 2 });
  made.style.setProperty("top", `${TOP + at * ROW}px`);
  const token = element("span", { class: "neuron-key", role: "rowheader" }, tokenText(right.tokens[key]));
  made.append(placeIn(token, layout.columns[0], 0));
  for (const column of layout.columns.filter(({ name }) => numbers[name] !== undefined)) {
    const cell = element("span", { class: `neuron-cell ${column.name}`, role: "cell", text: numbers[column.name] });
    if (column.name === "weight") cell.prepend(weightBar(terms.weights[key], column));
    made.append(placeIn(cell, column, 0));
  }
  return made;
}

/** @returns {HTMLElement} */
function weightBar(weight, column) {
  const bar = element("span", { class: "neuron-bar", "aria-hidden": "true" });
  bar.style.setProperty("width", `${barWidth(weight, column)}px`);
  return bar;
}

/** @returns {string} which keys a query does not see */
function maskText(about, window) {
  const after = about.mask === "causal" ? " Keys after the query are masked." : "";
  if (!window) return after;
  const behind = about.mask === "causal" ? "" : `, and more than ${window[1]} after it,`;
  return `${after} Keys more than ${window[0]} positions before the query${behind} are masked.`;
}

/** @returns {(Node|string)[]} how weights come about, and how well the page's numbers give them */
export function formulaNodes(about, window) {
  const factor = formatFactor(about.scale);
  const inner = about.bias ? `${factor} × q·k + bias` : `${factor} × q·k`;
  const mask = maskText(about, window);
  const error = about.error < 1e-6 ? "0.000001" : String(Number(about.error.toPrecision(1)));
  const accuracy = ` Recomputed from the numbers on this page, the weights of this side agree with the model’s within ${error}.`;
  return [element("b", { text: `weight = softmax( ${inner} )` }), `.${mask}${accuracy}`];
}

/**
 * Which pair of rotated dimensions decides.
 * @param {import("./neuron_paint.js").Scene} scene
 * @param {number|null} held key
 * @param {string[]} tokens of keys
 * @returns {(Node|string)[]} nothing where no dimensions are rotated, or the key is masked
 */
export function decidedNodes({ head, terms, lifts }, held, tokens) {
  const { pairs } = head.about;
  if (!pairs || (held !== null && terms.scaled[held] === -Infinity)) return [];
  const [best] = bySize(lifts);
  const name = element("b", { text: `Pair ${best} (dimensions ${best} and ${best + pairs})` });
  const size = formatNumber(lifts[best]);
  if (held === null) return [name, ` tells keys apart most: ${size} between the scores of what is attended to and of all keys.`];
  return [name, " decides the score of ", tokenText(tokens[held]), `: it adds ${size} of ${formatNumber(terms.scaled[held])}.`];
}

/**
 * The few dimensions that decide: of a key, what they add to its score; of none, to how far the
 * scores of attended keys lie above the mean of all.
 * @param {import("./neuron_paint.js").Scene} scene
 * @param {number|null} held key
 * @param {string[]} tokens of keys
 * @returns {(Node|string)[]} nothing of a masked key
 */
export function decidingNodes({ head, terms, contributions }, held, tokens) {
  if (held !== null && terms.scaled[held] === -Infinity) return [];
  const { bias, depth } = head.about;
  const numbers = held === null ? contributions : terms.products.subarray(held * depth, (held + 1) * depth);
  const best = bySize(numbers).slice(0, NAMED_DIMENSIONS);
  const [part, whole] = [best, [...numbers.keys()]].map((some) => some.reduce((sum, d) => sum + numbers[d], 0));
  const name = element("b", { text: `${best.length > 1 ? "Dimensions" : "Dimension"} ${listed(best)}` });
  const product = held === null ? "" : "q·k = ";
  const lift = ["what lifts the scores of attended keys above the mean of all keys"];
  const share = part / whole;
  if (share >= 0 && share <= 1) {
    const what = held === null ? lift : [bias ? "q·k with " : "the score of ", tokenText(tokens[held])];
    return [name, ` ${best.length > 1 ? "make" : "makes"} up ${formatShare(share)} of `, ...what, `: ${formatNumber(part)} of ${product}${formatNumber(whole)}.`];
  }
  const what = held === null ? lift : ["q·k with ", tokenText(tokens[held])];
  return [name, ` ${best.length > 1 ? "add" : "adds"} ${formatNumber(part)} to `, ...what, `; with the other ${depth - best.length} it is ${formatNumber(whole)}.`];
}

/** @returns {Node[]} what the colours mean */
export function legendNodes({ sizes, colours, head }) {
  const names = [["query", "q"], ["key", "k"], ["product", "q × k"], ["pairs", "pairs"], ["value", "v"]].filter(([name]) => sizes[name]);
  const shades = [-1, -0.5, 0, 0.5, 1].map((part) => swatch(colours.of(part, 1)));
  const ends = names.map(([name, title]) => `${title} ±${formatNumber(sizes[name])}`).join(", ");
  const halves = head.about.precision === "float16" ? " Numbers are stored as float16: about three digits." : "";
  return [
    element("span", { text: "negative" }),
    ...shades,
    element("span", { text: "positive" }),
    element("span", { class: "neuron-ends", text: `full colour at ${ends}.${halves}` }),
  ];
}

/**
 * What a cell stands for.
 * @param {import("./neuron_paint.js").Scene} scene
 * @param {{column: any, dimension: number, key: number|null}} cell
 * @param {string[]} tokens of keys
 * @param {number|null} held key
 * @returns {Node[]}
 */
export function cellTip(scene, { column, dimension, key }, tokens, held) {
  const { pairs } = scene.head.about;
  const pair = `pair ${dimension}: dimensions ${dimension} and ${dimension + pairs}`;
  const title = element("strong", { text: column.name === "pairs" ? pair : `dimension ${dimension}` });
  const number = (value) => element("b", { class: "value", text: formatExactly(value) });
  if (key === null) {
    const value = stripOfQuery(scene, column.name)(dimension);
    return [title, element("span", {}, `${captionOf({ name: column.name, width: Infinity }, held)}: `, number(value))];
  }
  const value = stripOfKey(scene, column.name, key)(dimension);
  if (column.name !== "product") {
    return [title, element("span", {}, `${STRIPS[column.name]} of `, tokenText(tokens[key]), ": ", number(value))];
  }
  const [q, k] = [scene.terms.q[dimension], scene.head.vector("key", key)[dimension]];
  return [title, element("span", {}, tokenText(tokens[key]), `: ${formatExactly(q)} × ${formatExactly(k)} = `, number(value))];
}
