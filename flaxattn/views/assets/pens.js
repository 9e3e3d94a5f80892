// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Two pens that draw the same rectangles and texts: on a canvas for the page, into an SVG group for
// a file. They know nothing of attention.

import { svgElement } from "./elements.js";

/**
 * @typedef {Object} Writing
 * @property {string} colour
 * @property {number} [size] of the letters, in CSS pixels
 * @property {"start"|"middle"|"end"} [anchor] which part of the text stands at x
 * @property {number} [turn] degrees clockwise, about the anchor
 *
 * @typedef {Object} Outline
 * @property {string} colour
 * @property {number} width of the line
 * @property {string} [dashes] lengths of dashes and gaps; a whole line if empty
 * @property {number} [opacity]
 *
 * @typedef {{x: number, y: number, width: number, height: number}} Box
 *
 * @typedef {Object} Pen
 * @property {(x: number, y: number, width: number, height: number, colour: string) => void} fill
 * @property {(text: string, x: number, y: number, writing: Writing) => void} write y is the middle
 * @property {(box: Box, outline: Outline) => void} outline
 */

export const FONT = "system-ui, sans-serif";
/** From the middle of a line of letters to its base, by their size. */
const BASE = 0.35;

/** Draws on a canvas. */
export class CanvasPen {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
  }

  fill(x, y, width, height, colour) {
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
  }

  outline({ x, y, width, height }, { colour, width: line, dashes = "", opacity = 1 }) {
    const { context } = this;
    context.save();
    context.globalAlpha = opacity;
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.setLineDash(dashes.split(" ").filter(Boolean).map(Number));
    context.strokeRect(x, y, width, height);
    context.restore();
  }

  write(text, x, y, { colour, size = 11, anchor = "start", turn = 0 }) {
    const { context } = this;
    context.fillStyle = colour;
    context.font = `${size}px ${FONT}`;
    context.textAlign = anchor === "middle" ? "center" : anchor === "end" ? "right" : "left";
    context.textBaseline = "middle";
    if (!turn) return context.fillText(text, x, y);
    context.save();
    context.translate(x, y);
    context.rotate((turn * Math.PI) / 180);
    context.fillText(text, 0, 0);
    return context.restore();
  }
}

/** Draws into a group of an SVG document. */
export class SvgPen {
  constructor() {
    this.group = svgElement("g", { "font-family": FONT });
  }

  fill(x, y, width, height, colour) {
    const place = { x: rounded(x), y: rounded(y), width: rounded(width), height: rounded(height) };
    this.group.append(svgElement("rect", { ...place, fill: colour }));
  }

  outline({ x, y, width, height }, { colour, width: line, dashes = "", opacity = 1 }) {
    const place = { x: rounded(x), y: rounded(y), width: rounded(width), height: rounded(height) };
    const stroke = { fill: "none", stroke: colour, "stroke-width": line, "stroke-opacity": opacity };
    this.group.append(svgElement("rect", { ...place, ...stroke, ...(dashes ? { "stroke-dasharray": dashes } : {}) }));
  }

  write(text, x, y, { colour, size = 11, anchor = "start", turn = 0 }) {
    const place = { x: rounded(x), y: rounded(y + (turn ? 0 : BASE * size)), "text-anchor": anchor };
    const made = svgElement("text", { ...place, fill: colour, "font-size": size }, text);
    if (turn) made.setAttribute("transform", `rotate(${turn} ${place.x} ${place.y})`);
    made.style.setProperty("unicode-bidi", "isolate");
    made.style.setProperty("white-space", "pre");
    this.group.append(made);
  }
}

/** @returns {string} a length with two decimals */
function rounded(length) {
  return length.toFixed(2);
}

/**
 * Size a canvas to a place, and make its unit a CSS pixel.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width in CSS pixels
 * @param {number} height in CSS pixels
 * @returns {CanvasRenderingContext2D} with nothing on it
 */
export function sizeCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** @returns {string[]} a text in lines that are no wider than there is room, broken at blanks */
function wrapText(text, width, size) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `${size}px ${FONT}`;
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = [lines[lines.length - 1], word].filter(Boolean).join(" ");
    if (lines[lines.length - 1] && context.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

/**
 * What stands above a picture, in as many lines as it takes.
 * @param {string} caption
 * @param {number} width of the picture
 * @param {string} ink
 * @param {number} [size] of the letters
 * @returns {{text: SVGElement, more: number}} and the room that lines after the first take
 */
export function svgCaption(caption, width, ink, size = 14) {
  const lines = wrapText(caption, width - 16, size);
  const place = { class: "caption", x: width / 2, y: 22, "text-anchor": "middle", fill: ink, "font-size": size };
  const text = svgElement("text", place, lines.length > 1 ? null : caption);
  if (lines.length > 1) lines.forEach((line, i) => text.append(svgElement("tspan", { x: width / 2, dy: i && size + 4 }, line)));
  return { text, more: (lines.length - 1) * (size + 4) };
}

/**
 * A picture as a file.
 * @param {string} caption
 * @param {number} width
 * @param {number} height
 * @param {{ink: string, paper: string}} colours
 * @param {...SVGElement} parts below the caption
 * @returns {string} an SVG document
 */
export function svgPicture(caption, width, height, { ink, paper }, ...parts) {
  const { text, more } = svgCaption(caption, width, ink);
  const top = 40 + more;
  const size = { width, height: height + top, viewBox: `0 0 ${width} ${height + top}` };
  const root = svgElement("svg", { ...size, "font-family": FONT, "font-size": 14 });
  const body = svgElement("g", { transform: `translate(0 ${top})` });
  body.append(...parts);
  root.append(
    svgElement("title", {}, caption),
    svgElement("rect", { width, height: height + top, fill: paper }),
    text,
    body,
  );
  return new XMLSerializer().serializeToString(root);
}
