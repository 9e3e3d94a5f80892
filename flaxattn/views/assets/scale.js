// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Numbers as colours of one hue, and the legend that tells which is which.

import { blendColours, colourParts, styleValue } from "./colours.js";
import { element, svgElement } from "./elements.js";

/** How many colours there are between nothing and all. */
const STEPS_OF_COLOUR = 256;

/** @returns {string[]} the colours of the present theme, from the least to the most */
export function scaleColours(signed = false) {
  if (signed) return divergingColours();
  const [low, high] = [styleValue("--scale-low"), styleValue("--scale-high")];
  return Array.from({ length: STEPS_OF_COLOUR }, (_, i) => blendColours(low, high, i / (STEPS_OF_COLOUR - 1)));
}

/** @returns {string[]} from the most below 0, over nothing in the middle, to the most above it */
function divergingColours() {
  const [low, middle, high] = ["--negative", "--paper", "--positive"].map(styleValue);
  const side = (to) => Array.from({ length: STEPS_OF_COLOUR }, (_, i) => blendColours(middle, to, i / (STEPS_OF_COLOUR - 1)));
  return [...side(low).reverse(), ...side(high).slice(1)];
}

/**
 * Which colour a weight has: by its square root, so that faint weights differ visibly from none.
 * @param {number} weight between 0 and 1, of a difference between -1 and 1
 * @param {boolean} [signed] whether 0 is in the middle of the colours
 * @returns {number} index
 */
export function weightStep(weight, signed = false) {
  const size = Math.round((STEPS_OF_COLOUR - 1) * Math.sqrt(Math.min(1, Math.abs(weight))));
  return signed ? STEPS_OF_COLOUR - 1 + Math.sign(weight) * size : size;
}

/** @returns {string} the colour of a number on a scale that is even */
export function evenColour(colours, share) {
  return colours[Math.round((colours.length - 1) * Math.max(0, Math.min(1, share)))];
}

/**
 * Paint weights, one pixel each. Where all are hidden, one empty pixel is left.
 * @param {HTMLCanvasElement} canvas
 * @param {{values: Float32Array, rows: number, columns: number}} picture
 * A weight that is not a number stays empty, so that what is behind the canvas shows there.
 * @param {string[]} colours
 * @param {boolean} [signed] whether 0 is in the middle of the colours
 * @returns {boolean} whether each weight is a number
 */
export function paintWeights(canvas, { values, rows, columns }, colours, signed = false) {
  const parts = Uint8ClampedArray.from(colours.flatMap(colourParts));
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  if (!values.length) return true;
  let whole = true;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(columns, rows);
  for (let i = 0; i < values.length; i += 1) {
    if (Number.isNaN(values[i])) {
      whole = false;
      continue;
    }
    const at = 3 * weightStep(values[i], signed);
    for (let part = 0; part < 3; part += 1) image.data[4 * i + part] = parts[at + part];
    image.data[4 * i + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  return whole;
}

/**
 * A bar of colours with numbers below it.
 * @param {string[]} colours
 * @param {[number, string][]} marks places between 0 and 1, and what stands there
 * @returns {HTMLElement}
 */
export function legend(colours, marks) {
  const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => evenColour(colours, share)).join(", ");
  const bar = element("span", { class: "legend-bar" });
  bar.style.setProperty("--ramp", `linear-gradient(90deg, ${stops})`);
  const labels = marks.map(([place, text]) => {
    const made = element("span", { class: "legend-mark", text });
    made.style.setProperty("left", `${100 * place}%`);
    return made;
  });
  return element("span", { class: "legend" }, bar, ...labels);
}

/** Size of a legend in a file, in CSS pixels, and how many cells its bar has. */
const LEGEND = { width: 180, height: 9, cells: 60 };

/**
 * The same for a file.
 * @param {string} unit what the numbers are
 * @param {string[]} colours
 * @param {[number, string][]} marks
 * @param {string} ink
 * @returns {SVGElement}
 */
export function svgLegend(unit, colours, marks, ink) {
  const { width, height, cells } = LEGEND;
  const group = svgElement("g", { class: "legend", "font-size": 10, fill: ink });
  for (let i = 0; i < cells; i += 1) {
    const place = { x: (i * width) / cells, y: 0, width: width / cells + 0.2, height };
    group.append(svgElement("rect", { ...place, fill: evenColour(colours, i / (cells - 1)) }));
  }
  for (const [share, text] of marks) group.append(svgElement("text", { class: "mark", x: share * width, y: height + 11, "text-anchor": "middle" }, text));
  group.append(svgElement("text", { class: "unit", x: width + 16, y: height }, unit));
  return group;
}
