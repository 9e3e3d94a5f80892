// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Files that the reader saves from the page. A picture holds the state it was made of, so that it
// can be made again.

import { element } from "./elements.js";
import { withText } from "./png_text.js";

/** An image has twice the pixels of the page, up to this many. */
const PIXELS = 6e6;
/** What the state is called in a file. */
export const STATE = "flaxattn state";

/**
 * What a level hands out to be saved.
 * @typedef {Object} Picture
 * @property {string} name of the file, without its ending
 * @property {string} svg a document
 * @property {string} [frame] the document without what `paint` adds
 * @property {number} [scale] pixels of an image for each of the page, at most; else 2
 * @property {(context: CanvasRenderingContext2D, scale: number) => void} [paint] in CSS pixels
 */

/** Offer content as a file. */
export function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** @returns {string} JSON in ASCII, without what would be markup */
function plainJson(value) {
  return JSON.stringify(value).replace(/[<>&\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/**
 * Offer a picture as an SVG document.
 * @param {Picture} picture
 * @param {Object<string, any>} state
 */
export function saveSvg(picture, state) {
  const ending = `<metadata>${plainJson(state)}</metadata></svg>`;
  download(`${picture.name}.svg`, "image/svg+xml", picture.svg.replace(/<\/svg>$/, () => ending));
}

/**
 * Offer a picture as an image.
 * @param {Picture} picture
 * @param {Object<string, any>} state
 * @returns {Promise<void>} once it is offered
 */
export async function savePng(picture, state) {
  const image = await loadSvg(picture.frame || picture.svg);
  const scale = Math.min(picture.scale || 2, Math.sqrt(PIXELS / (image.width * image.height)));
  const canvas = element("canvas", { width: Math.round(scale * image.width), height: Math.round(scale * image.height) });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  context.scale(scale, scale);
  if (picture.paint) picture.paint(context, scale);
  const blob = await new Promise((done) => canvas.toBlob(done));
  const bytes = new Uint8Array(await new Response(blob).arrayBuffer());
  download(`${picture.name}.png`, "image/png", new Blob([withText(bytes, STATE, plainJson(state))], { type: "image/png" }));
}

/** @returns {Promise<HTMLImageElement>} an SVG document as an image */
function loadSvg(svg) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  const image = new Image();
  return new Promise((done, fail) => {
    image.addEventListener("load", () => done(image));
    image.addEventListener("error", () => fail(new Error("The picture could not be drawn.")));
    image.src = address;
  }).finally(() => URL.revokeObjectURL(address));
}
