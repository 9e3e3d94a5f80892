// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The neuron level on paper: the whole table as pictures of so many rows, as wide as the paper,
// instead of the part of it that a window shows.

import { element, svgElement } from "./elements.js";
import { layOutNeurons, ROW, STRIPS, TOP } from "./neuron_layout.js";
import { paintPicture } from "./neuron_paint.js";
import { SvgPen } from "./pens.js";

const ROWS_OF_A_PICTURE = 32;
/** Width of the table before it is made as wide as the paper. */
const PAPER_WIDTH = 1100;
/** More keys than this are not printed, which is said. */
const PRINTED_KEYS = 384;

/**
 * @param {import("./neuron_paint.js").Scene} shown
 * @param {any} placed what its layout was made of
 * @param {any} named as `paintPicture` takes it
 * @param {string} paper colour
 * @returns {Node[]} the table
 */
export function printedTable(shown, placed, named, paper) {
  const layout = layOutNeurons({ ...placed, width: PAPER_WIDTH, needed: Object.keys(STRIPS) });
  const scene = { ...shown, layout };
  const count = Math.min(scene.keys.length, PRINTED_KEYS);
  const pictures = [];
  for (let first = 0; first < count; first += ROWS_OF_A_PICTURE) {
    const last = Math.min(count, first + ROWS_OF_A_PICTURE);
    const pen = new SvgPen();
    const [width, height] = [scene.layout.width, TOP + (last - first) * ROW];
    pen.fill(0, 0, width, height, paper);
    paintPicture(pen, scene, first, last, named);
    const picture = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Keys ${first + 1} to ${last}` });
    picture.append(pen.group);
    pictures.push(picture);
  }
  const left = scene.keys.length - count;
  return left > 0 ? [...pictures, element("p", { text: `${left} more keys are not printed.` })] : pictures;
}
