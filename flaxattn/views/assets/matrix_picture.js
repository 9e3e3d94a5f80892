// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What is seen of a matrix as an SVG file: rectangles of few cells, an image of many.

import { svgElement } from "./elements.js";
import { LEGEND_HEIGHT } from "./gold_paint.js";
import { colourOfWeight, inSight, paintCells, shadeIndex, writeEdges } from "./matrix_paint.js";
import { ruleParts } from "./matrix_parts.js";
import { sizeCanvas, SvgPen, svgPicture } from "./pens.js";

/** The colour of a cell that is not a number. */
const NO_NUMBER = "#808080";
/** From one weight of the legend to the next, and the least width that holds it. */
const STEP = 50;
const LEAST = 380;
/** Up to so many cells a picture holds rectangles. */
const RECTANGLES = 10000;

/**
 * @param {any} matrix a `Matrix` that has been drawn
 * @param {string} caption
 * @param {number} margin room on the right
 * @param {{ink: string, paper: string}} colours
 * @param {SVGElement|null} legend of gold pairs, below the cells
 * @returns {string} an SVG document
 */
export function matrixPicture(matrix, caption, margin, colours, legend) {
  const { place, window, grid } = matrix;
  const pen = new SvgPen();
  const rows = inSight(window.row, window.size, place.height, grid.rows);
  const columns = inSight(window.column, window.size, place.width, grid.columns);
  const few = (rows.last - rows.first) * (columns.last - columns.first) <= RECTANGLES;
  if (few) fillCells(pen, matrix, rows, columns);
  else pen.group.append(cellsAsImage(matrix));
  matrix.outline(pen);
  writeEdges(pen, window, place, matrix.named(), colours.ink);
  ruleParts(pen, matrix, colours.ink);
  frameHeld(pen, matrix, colours.ink);
  const width = Math.max(LEAST, place.left + place.width + margin);
  const below = place.top + place.height + 22;
  writeLegend(pen, matrix, below, colours.ink);
  if (!legend) return svgPicture(caption, width, below + 36, colours, pen.group);
  legend.setAttribute("transform", `translate(0 ${below + 36})`);
  return svgPicture(caption, width, below + 36 + LEGEND_HEIGHT, colours, pen.group, legend);
}

/** Frames about the row and the column that are held, as far as they are in sight. */
function frameHeld(pen, { state, selection, place, window }, ink) {
  const frame = (x, y, width, height) => {
    const [left, top] = [Math.max(x, place.left), Math.max(y, place.top)];
    const [right, bottom] = [Math.min(x + width, place.left + place.width), Math.min(y + height, place.top + place.height)];
    if (right <= left || bottom <= top) return;
    const size = { x: left, y: top, width: right - left, height: bottom - top };
    pen.group.append(svgElement("rect", { class: "held", ...size, fill: "none", stroke: ink, "stroke-width": 1.5 }));
  };
  const [row, column] = [selection.queries.indexOf(state.query), selection.keys.indexOf(state.key)];
  if (row >= 0) frame(place.left, place.top + (row - window.row) * window.size, place.width, window.size);
  if (column >= 0) frame(place.left + (column - window.column) * window.size, place.top, window.size, place.height);
}

/** Colours by their weights, and what rows and columns are. */
function writeLegend(pen, matrix, y, ink) {
  const { unit, named } = matrix.marks();
  const [, from, to] = matrix.state.side.titles;
  pen.write(`rows: ${from}; columns: ${to}; ${unit}`, 12, y, { colour: ink });
  named.forEach(([text, colour], i) => {
    pen.fill(12 + i * STEP, y + 13, 10, 10, colour);
    pen.write(text, 26 + i * STEP, y + 18, { colour: ink });
  });
}

/** One rectangle per visible cell that is not empty, on one for all. */
function fillCells(pen, { place, window, pyramid, shades, selection }, rows, columns) {
  const shown = pyramid.level(0);
  pen.fill(place.left, place.top, place.width, place.height, shades[shadeIndex(shades.length, 0)]);
  for (let row = rows.first; row < rows.last; row += 1) {
    for (let column = columns.first; column < columns.last; column += 1) {
      const weight = shown.values[row * shown.columns + column];
      if (weight === 0) continue;
      const x = place.left + (column - window.column) * window.size;
      const y = place.top + (row - window.row) * window.size;
      pen.fill(x, y, window.size, window.size, colourOfWeight(shades, weight) || NO_NUMBER);
      const attributes = { "data-query": selection.queries[row], "data-key": selection.keys[column], "data-weight": weight.toPrecision(6) };
      for (const [name, value] of Object.entries(attributes)) pen.group.lastElementChild.setAttribute(name, String(value));
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
