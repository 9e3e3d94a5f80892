// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Gold pairs over the lines of the head level, the legend that says what they are, and both in a file.

import { element, svgElement, tokenText } from "./elements.js";
import { countsText, OFF, outcomeName, ruleText, listedOutcomes, touches } from "./gold.js";
import { CURVES, emphasise, goldCurves, goldSample, goldShapes, isFocused, sampleParts, sampleWidth } from "./gold_paint.js";
import { formatCount } from "./numbers.js";

export class GoldLines {
  /** @param {HTMLElement} stage what lies between the columns of tokens */
  constructor(stage) {
    this.root = svgElement("svg", { class: "gold-lines", "aria-hidden": "true" });
    stage.append(this.root);
    this.width = 0;
    /** @type {import("./gold_paint.js").GoldColours} */
    this.colours = null;
    this.clear();
  }

  clear() {
    /** @type {ReturnType<typeof goldCurves>} */
    this.curves = [];
    /** @type {ReturnType<typeof goldShapes>} */
    this.shapes = [];
    /** Pairs of a token in focus that are drawn only then. @type {ReturnType<typeof goldShapes>} */
    this.further = [];
    this.root.replaceChildren();
  }

  /** Draw the pairs, the first of them if there are very many. */
  draw(gold, geometry, rowHeight, colours) {
    this.clear();
    if (!gold) return;
    Object.assign(this, { width: geometry.width, colours });
    this.root.setAttribute("width", String(geometry.width));
    this.root.setAttribute("height", String(geometry.height));
    this.curves = goldCurves(gold, geometry, rowHeight);
    this.shapes = goldShapes(this.curves.slice(0, CURVES), this.width, colours);
    this.root.append(...this.shapes.map(({ shape }) => shape));
  }

  /** Set off the pairs of the tokens in focus. */
  focus(state) {
    this.further.forEach(({ shape }) => shape.remove());
    const rest = isFocused(state) ? this.curves.slice(CURVES).filter(({ pair }) => touches(pair, state)) : [];
    this.further = goldShapes(rest, this.width, this.colours);
    this.root.append(...this.further.map(({ shape }) => shape));
    emphasise(this.shapes, state);
  }

  /** @returns {SVGElement} the same curves for a file */
  group() {
    const group = svgElement("g", { class: "gold" });
    group.append(...[...this.root.children].map((shape) => shape.cloneNode(true)));
    return group;
  }

  /** What is drawn, by positions, for tests and scripts. */
  drawn() {
    return this.curves.map(({ pair, run, from, to }) => ({ query: pair.query, key: run, outcome: pair.outcome, from: from.middle, to: to.middle }));
  }
}

/** @returns {string} what keeps pairs from being drawn; empty if nothing does */
function lackingText(gold, curves) {
  if (curves === null) return "";
  const without = gold.pairs.filter((pair) => !curves.some((curve) => curve.pair === pair)).length;
  const hidden = without ? ` ${without} of them ${without === 1 ? "is" : "are"} on tokens that are not shown.` : "";
  const many = curves.length > CURVES ? ` The first ${formatCount(CURVES)} curves are drawn; point at a token for its own.` : "";
  return hidden + many;
}

/**
 * What the gold pairs are, and how many of them are hit.
 * @param {HTMLElement} root
 * @param {import("./state.js").State} state
 * @param {import("./gold.js").Gold|null} gold
 * @param {number[]} heads numbers of those that are drawn
 * @param {any} colours
 * @param {ReturnType<typeof goldCurves>|null} curves null of a matrix
 */
export function showLegend(root, state, gold, heads, colours, curves) {
  root.hidden = state.gold === OFF;
  if (root.hidden) return;
  if (!gold) {
    root.replaceChildren("No gold pairs of ", tokenText(state.gold), " on this side of this text.");
    return;
  }
  const keys = listedOutcomes(gold).map((outcome) =>
    element("span", { class: "gold-key", "data-outcome": outcome }, goldSample(outcome, colours, curves === null), `${gold.counts[outcome]} ${outcomeName(outcome)}`),
  );
  const about = gold.about ? `: ${gold.about}` : "";
  const rule = `${about}. ${ruleText(gold, heads)}${lackingText(gold, curves)}`;
  root.replaceChildren(...keys, element("span", {}, element("b", {}, "Gold pairs, ", tokenText(gold.name)), rule));
}

/** @returns {SVGElement} the legend of a file, from the left edge; of curves, or of outlined cells */
export function legendGroup(gold, heads, colours, ink, cell) {
  const group = svgElement("g", { class: "gold-legend", "font-size": 12 });
  let x = 12;
  for (const outcome of listedOutcomes(gold)) {
    const sample = svgElement("g", { transform: `translate(${x} 0)` });
    sample.append(...sampleParts(outcome, colours, cell));
    const after = sampleWidth(cell) + 6;
    const text = `${gold.counts[outcome]} ${outcomeName(outcome)}`;
    group.append(sample, svgElement("text", { x: x + after, y: 11, fill: ink }, text));
    x += after + 7 * text.length + 16;
  }
  const about = gold.about ? `: ${gold.about}` : "";
  group.append(svgElement("text", { x: 12, y: 30, fill: ink }, `Gold pairs, ${gold.name}${about}`));
  group.append(svgElement("desc", {}, `${countsText(gold)}. ${ruleText(gold, heads)}`));
  return group;
}
