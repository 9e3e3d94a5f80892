// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Building elements of HTML and SVG. Text reaches the document through `textContent` and attributes
// only, never as markup.

/**
 * Make an element.
 * @param {string} tag
 * @param {Object<string, any>} [options] `text` is the text content, a function is a listener for
 *   that event, true and false set or leave out an attribute.
 * @param {...(Node|string)} children
 * @returns {any} an HTMLElement; of which kind, the tag says
 */
export function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") made.textContent = value;
    else if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Where drawings for files are made: a document that shows nothing and loads nothing. */
const DRAWINGS = new DOMParser().parseFromString("<svg></svg>", "text/html");
/** The SVG namespace, asked of the browser, so that no address stands in this file. */
const SVG = DRAWINGS.querySelector("svg").namespaceURI;

/**
 * @param {string} tag
 * @param {Object<string, string|number>} attributes
 * @param {string|null} [text]
 * @returns {SVGElement}
 */
export function svgElement(tag, attributes, text = null) {
  const made = /** @type {SVGElement} */ (DRAWINGS.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== null) made.textContent = text;
  return made;
}

/** @returns {HTMLElement} a token as written, unable to change the direction of its surroundings */
export function tokenText(token) {
  return element("bdi", { class: "token-text", dir: "auto", text: token });
}

/** Fill an element with a colour. Print styles draw borders of `--fill`: browsers print without backgrounds. */
export function fillWith(made, colour) {
  made.style.setProperty("--fill", colour);
  made.style.setProperty("background-color", colour);
}

/** @returns {HTMLElement} a small square in a head's colour */
export function swatch(colour) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  fillWith(made, colour);
  return made;
}
