// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// How a matrix looks: the colour of a weight, cells into a canvas, tokens along two edges. What is
// visible of the matrix, and where, is handed in.

import { blendColours, colourParts } from "./colours.js";
import { FONT } from "./pens.js";

/** Steps of the colour scale; each is well below what an eye tells apart. */
const SHADES = 1024;
/** Tokens are written beside cells that are so many pixels high, or wide. */
export const READABLE = 11;
const LETTERS = 11;
const LONGEST = 16;
/** Degrees by which the tokens above the matrix are turned. */
const TILT = -60;
/** Where cells are too small for tokens, so many pixels lie between two numbers of positions. */
const NUMBERED = 56;
/** Room for these numbers. */
export const NUMBER_EDGES = { left: 44, top: 24 };

/**
 * What is visible of a matrix.
 * @typedef {Object} Window
 * @property {number} row at the top edge; may lie within a cell
 * @property {number} column at the left edge
 * @property {number} size of a cell, in CSS pixels
 *
 * Where the cells are, in CSS pixels of the canvas; the edges with tokens are above and on the left.
 * @typedef {Object} Place
 * @property {number} left
 * @property {number} top
 * @property {number} width
 * @property {number} height
 */

/** @returns {number} how strong a colour a weight gets, between 0 and 1: faint ones can be seen */
export function shadeOf(weight) {
  return Math.sqrt(Math.min(1, Math.max(0, weight)));
}

/** @returns {string[]} colours from a weight of 0 to a weight of 1, in even steps of the shade */
export function shadesBetween(low, high) {
  return Array.from({ length: SHADES }, (_, i) => blendColours(low, high, i / (SHADES - 1)));
}

/** @returns {string[]} colours from -1 over 0, in the middle, to 1 */
export function divergingShades(low, middle, high) {
  return [...shadesBetween(middle, low).reverse(), ...shadesBetween(middle, high).slice(1)];
}

/** @returns {number} which of so many shades a weight has; if there are more than one side, 0 is in the middle */
export function shadeIndex(count, weight) {
  const step = Math.round(shadeOf(Math.abs(weight)) * (SHADES - 1));
  return count > SHADES ? SHADES - 1 + Math.sign(weight) * step : step;
}

/** @returns {string} the colour of a weight */
export function colourOfWeight(shades, weight) {
  return shades[shadeIndex(shades.length, weight)];
}

/** @returns {Uint32Array} colours as the pixels of an image hold them */
export function asPixels(shades) {
  const bytes = new Uint8ClampedArray(4 * shades.length);
  shades.forEach((shade, i) => bytes.set([...colourParts(shade), 255], 4 * i));
  return new Uint32Array(bytes.buffer);
}

/** Hatch a place: what is painted over it leaves open the cells that are not numbers. */
export function hatch(context, place, { paper, ink }) {
  const tile = document.createElement("canvas");
  Object.assign(tile, { width: 6, height: 6 });
  const pen = tile.getContext("2d");
  pen.fillStyle = paper;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = ink;
  for (const shift of [-6, 0, 6]) {
    pen.moveTo(shift, 6);
    pen.lineTo(shift + 6, 0);
  }
  pen.stroke();
  context.fillStyle = context.createPattern(tile, "repeat");
  context.fillRect(place.left, place.top, place.width, place.height);
}

/** @returns {{first: number, last: number}} cells, half-open, that are in sight along one axis */
export function inSight(start, size, length, count) {
  return { first: Math.max(0, Math.floor(start)), last: Math.min(count, Math.ceil(start + length / size)) };
}

/**
 * Paint the visible cells, pooled until each is a pixel at least. What is not a number stays empty.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./matrix_grid.js").Pyramid} pyramid
 * @param {Window} window
 * @param {Place} place
 * @param {Uint32Array} pixels colours of the scale
 * @param {HTMLCanvasElement} buffer for one pixel per cell
 */
export function paintCells(context, pyramid, window, place, pixels, buffer) {
  const ratio = context.getTransform().a;
  const times = pyramid.times(window.size * ratio);
  const grid = pyramid.level(times);
  const [step, size] = [2 ** times, window.size * 2 ** times];
  const rows = inSight(window.row / step, size, place.height, grid.rows);
  const columns = inSight(window.column / step, size, place.width, grid.columns);
  const [width, height] = [columns.last - columns.first, rows.last - rows.first];
  if (width < 1 || height < 1) return;
  if (buffer.width < width) buffer.width = width;
  if (buffer.height < height) buffer.height = height;
  const image = new ImageData(width, height);
  const cells = new Uint32Array(image.data.buffer);
  for (let row = 0; row < height; row += 1) {
    const start = (rows.first + row) * grid.columns + columns.first;
    for (let i = 0; i < width; i += 1) {
      cells[row * width + i] = pixels[shadeIndex(pixels.length, grid.values[start + i])]; // NaN: nothing
    }
  }
  buffer.getContext("2d").putImageData(image, 0, 0);
  context.save();
  context.beginPath();
  context.rect(place.left, place.top, place.width, place.height);
  context.clip();
  context.imageSmoothingEnabled = false;
  const x = place.left + (columns.first - window.column / step) * size;
  const y = place.top + (rows.first - window.row / step) * size;
  context.drawImage(buffer, 0, 0, width, height, x, y, width * size, height * size);
  context.restore();
}

/** @returns {string} a token that fits beside a matrix */
export function shorten(token) {
  const letters = [...token];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : token;
}

/** @returns {number} positions from one number to the next: 1, 2 or 5 times a power of ten */
export function numberStep(size) {
  const least = NUMBERED / size;
  const power = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least));
}

/**
 * Room that tokens take along the edges.
 * @param {string[]} left
 * @param {string[]} right
 * @returns {{left: number, top: number}}
 */
export function tokenEdges(left, right) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `${LETTERS}px ${FONT}`;
  const longest = (tokens) => tokens.reduce((most, token) => Math.max(most, context.measureText(shorten(token)).width), 20);
  return { left: longest(left) + 14, top: longest(right) * Math.sin((-TILT * Math.PI) / 180) + 16 };
}

/**
 * Write tokens, or numbers of positions, along the left and the upper edge.
 * @param {import("./pens.js").Pen} pen
 * @param {Window} window
 * @param {Place} place
 * @param {{queries: number[], keys: number[], left: string[], right: string[]}} named
 * @param {string} ink
 */
export function writeEdges(pen, window, place, { queries, keys, left, right }, ink) {
  const readable = window.size >= READABLE;
  const step = readable ? 1 : numberStep(window.size);
  const writing = { colour: ink, size: LETTERS };
  const rows = inSight(window.row, window.size, place.height, queries.length);
  for (let row = rows.first; row < rows.last; row += 1) {
    const y = place.top + (row + 0.5 - window.row) * window.size;
    if (row % step || y < place.top || y > place.top + place.height) continue;
    const text = readable ? shorten(left[queries[row]]) : String(queries[row]);
    pen.write(text, place.left - 6, y, { ...writing, anchor: "end" });
  }
  const columns = inSight(window.column, window.size, place.width, keys.length);
  for (let column = columns.first; column < columns.last; column += 1) {
    const x = place.left + (column + 0.5 - window.column) * window.size;
    if (column % step || x < place.left || x > place.left + place.width) continue;
    if (readable) pen.write(shorten(right[keys[column]]), x, place.top - 5, { ...writing, turn: TILT });
    else pen.write(String(keys[column]), x, place.top - 9, { ...writing, anchor: "middle" });
  }
}
