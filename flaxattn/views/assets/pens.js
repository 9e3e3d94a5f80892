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
 * @typedef {Object} Pen
 * @property {(x: number, y: number, width: number, height: number, colour: string) => void} fill
 * @property {(text: string, x: number, y: number, writing: Writing) => void} write y is the middle
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
  const top = 40;
  const size = { width, height: height + top, viewBox: `0 0 ${width} ${height + top}` };
  const root = svgElement("svg", { ...size, "font-family": FONT, "font-size": 14 });
  const body = svgElement("g", { transform: `translate(0 ${top})` });
  body.append(...parts);
  root.append(
    svgElement("title", {}, caption),
    svgElement("rect", { width, height: height + top, fill: paper }),
    svgElement("text", { x: width / 2, y: 22, "text-anchor": "middle", fill: ink }, caption),
    body,
  );
  return new XMLSerializer().serializeToString(root);
}
