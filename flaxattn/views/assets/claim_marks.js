// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Marks of claims: a shape and a hue for each family, a shade and a code, such as S7, for each claim.
// Which claim has which is assigned in `payloads/report_payload.py`; colours stand in `claims.css`.

import { styleValue } from "./colours.js";
import { element, svgElement } from "./elements.js";

/** Outlines of the shapes that matplotlib has by these letters, in a square of 12. */
const SHAPES = {
  s: "M1.5 1.5h9v9h-9z",
  o: "M6 .8a5.2 5.2 0 1 1 0 10.4a5.2 5.2 0 1 1 0-10.4z",
  "^": "M6 .8 11.4 11H.6z",
  D: "M6 .3 11.7 6 6 11.7.3 6z",
  h: "M6 .4 11 3.2v5.6L6 11.6 1 8.8V3.2z",
  v: "M6 11.2.6 1h10.8z",
  P: "M4 .8h4V4h3.2v4H8v3.2H4V8H.8V4H4z",
  X: "M3 .6 6 3.4 9 .6 11.4 3 8.6 6l2.8 3L9 11.4 6 8.6l-3 2.8L.6 9l2.8-3L.6 3z",
};
/** How many shades a family has. */
const SHADES_OF_FAMILY = 3;

/** @returns {string} the code of a claim, such as S7 */
function codeOf(families, [family, number]) {
  return `${families[family][0]}${number}`;
}

/** @returns {string} the colour of a mark in the present theme */
export function markColour([family, number]) {
  return styleValue(`--claim-${family}-${(number - 1) % SHADES_OF_FAMILY}`);
}

/** @returns {SVGElement} the shape of a mark, in a square of 12 */
export function markShape(families, mark, edge) {
  return svgElement("path", { d: SHAPES[families[mark[0]][2]], fill: markColour(mark), stroke: edge, "paint-order": "stroke", "stroke-width": 1.5 });
}

/** @returns {HTMLElement} a shape, as long as it says something with what stands beside it */
export function markSign(families, mark) {
  const sign = svgElement("svg", { class: "mark", viewBox: "-1 -1 14 14", width: 14, height: 14, "aria-hidden": "true" });
  sign.append(markShape(families, mark, styleValue("--paper")));
  return element("span", { class: "sign-of-claim" }, sign);
}

/** @returns {HTMLElement} the mark of a claim with its code */
export function claimMark({ families, marks }, name) {
  return element("span", { class: "claim-mark" }, markSign(families, marks[name]), element("span", { class: "code", text: codeOf(families, marks[name]) }));
}
