// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What is seen of a matrix as an SVG file: rectangles of few cells, an image of many.

import { svgElement } from "./elements.js";
import { colourOfWeight, inSight, paintCells, shadeIndex, writeEdges } from "./matrix_paint.js";
import { sizeCanvas, SvgPen, svgPicture } from "./pens.js";

/** The colour of a cell that is no number. */
const NO_NUMBER = "#808080";
/** Up to so many cells a picture holds rectangles. */
const RECTANGLES = 10000;

/**
 * @param {any} matrix a `Matrix` that has been drawn
 * @param {string} caption
 * @param {number} margin room on the right
 * @param {{ink: string, paper: string, gold: string, missed: string}} colours
 * @returns {string} an SVG document
 */
export function matrixPicture(matrix, caption, margin, colours) {
  const { place, window, grid } = matrix;
  const pen = new SvgPen();
  const rows = inSight(window.row, window.size, place.height, grid.rows);
  const columns = inSight(window.column, window.size, place.width, grid.columns);
  const few = (rows.last - rows.first) * (columns.last - columns.first) <= RECTANGLES;
  if (few) fillCells(pen, matrix, rows, columns);
  else pen.group.append(cellsAsImage(matrix));
  for (const { x, y, width, height, hit } of matrix.goldFrames()) {
    const stroke = hit ? colours.gold : colours.missed;
    const frame = { x, y, width, height, fill: "none", stroke, "stroke-width": 2.5, "stroke-dasharray": hit ? "none" : "4 3" };
    if (x >= place.left && y >= place.top && x < place.left + place.width && y < place.top + place.height) pen.group.append(svgElement("rect", frame));
  }
  writeEdges(pen, window, place, matrix.named(), colours.ink);
  return svgPicture(caption, place.left + place.width + margin, place.top + place.height + 12, colours, pen.group);
}

/** One rectangle per visible cell that is not empty, on one for all. */
function fillCells(pen, { place, window, pyramid, shades }, rows, columns) {
  const shown = pyramid.level(0);
  pen.fill(place.left, place.top, place.width, place.height, shades[shadeIndex(shades.length, 0)]);
  for (let row = rows.first; row < rows.last; row += 1) {
    for (let column = columns.first; column < columns.last; column += 1) {
      const weight = shown.values[row * shown.columns + column];
      if (weight === 0) continue;
      const x = place.left + (column - window.column) * window.size;
      const y = place.top + (row - window.row) * window.size;
      pen.fill(x, y, window.size, window.size, colourOfWeight(shades, weight) || NO_NUMBER);
    }
  }
}

/** @returns {SVGElement} the visible cells, a pixel each or more */
function cellsAsImage({ place, window, pyramid, pixels, buffer }) {
  const canvas = document.createElement("canvas");
  const context = sizeCanvas(canvas, place.width, place.height);
  paintCells(context, pyramid, window, { ...place, left: 0, top: 0 }, pixels, buffer);
  const size = { x: place.left, y: place.top, width: place.width, height: place.height };
  return svgElement("image", { ...size, href: canvas.toDataURL("image/png") });
}
