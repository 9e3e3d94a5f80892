// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What every view needs: building elements, reading the payload, the page's theme and address.
// It draws nothing. Text reaches the document through `textContent` and attributes only, never as
// markup.
"use strict";

/** Views by name; `startViews` runs them once their scripts have been read. */
const VIEWS = {};

/** How many head colours `view.css` defines; more heads begin again at the first. */
const COLOURS = 16;

/**
 * Make an element.
 * @param {string} tag
 * @param {Object<string, string|number|boolean|Function>} [options] `text` is the text content, a
 *   function is a listener for that event, true and false set or leave out an attribute.
 * @param {...Node} children
 * @returns {HTMLElement}
 */
function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") made.textContent = value;
    else if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** @returns {Uint8Array} the bytes behind base64 text */
function decodeBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** @returns {number} the value of an IEEE half given its sixteen bits */
function halfToNumber(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
  return bits & 0x8000 ? -size : size;
}

/**
 * Decode one layer as `payload.py` encodes it.
 * @param {string} text base64
 * @param {"float16"|"uint8"} precision
 * @param {number} rows heads × queries
 * @param {number} keys
 * @returns {Float32Array} rows × keys weights
 */
function decodeWeights(text, precision, rows, keys) {
  const bytes = decodeBase64(text);
  const weights = new Float32Array(rows * keys);
  if (precision === "float16") {
    const halves = new Uint16Array(bytes.buffer);
    return weights.map((_, i) => halfToNumber(halves[i]));
  }
  const peaks = new Uint16Array(bytes.buffer, 0, rows);
  for (let row = 0; row < rows; row += 1) {
    const step = halfToNumber(peaks[row]) / 255;
    for (let i = row * keys; i < (row + 1) * keys; i += 1) weights[i] = bytes[2 * rows + i] * step;
  }
  return weights;
}

/** @returns {string} a weight with three decimals; never a rounded-down zero */
function formatWeight(weight) {
  return weight > 0 && weight < 0.0005 ? "<0.001" : weight.toFixed(3);
}

/** @returns {string} a share between 0 and 1 as a percentage, `100 %` only for all of it */
function formatShare(share) {
  const percent = 100 * share;
  if (percent >= 99.95 || percent === 0) return `${percent.toFixed(0)} %`;
  return `${Math.min(percent, 99.9).toFixed(percent < 10 || percent > 99 ? 1 : 0)} %`;
}

/** @returns {Object<string, string>} what the address holds after `#` */
function readFragment() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Put the settings that are not null into the address. Frames without an address go without. */
function writeFragment(settings) {
  const kept = Object.entries(settings).filter(([, value]) => value !== null);
  const text = kept.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  if (text === location.hash.slice(1)) return;
  try {
    history.replaceState(null, "", `#${text}`);
  } catch (error) {
    console.info("The address of this frame cannot be changed.", error.name);
  }
}

/**
 * Show the page light or dark.
 * @param {HTMLElement} root
 * @param {"auto"|"light"|"dark"} choice
 */
function applyTheme(root, choice) {
  const dark = choice === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : choice === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  root.dataset.theme = choice;
}

/** @returns {string[]} the head colours of the present theme */
function headColours() {
  const style = getComputedStyle(document.documentElement);
  return Array.from({ length: COLOURS }, (_, i) => style.getPropertyValue(`--head-${i}`).trim());
}

/** @returns {string} black or white, whichever reads better on a `#rrggbb` colour */
function inkOn(colour) {
  const part = (at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2;
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.3 ? "#000000" : "#ffffff";
}

/** @returns {string} a `#rrggbb` colour with an opacity between 0 and 1 */
function fade(colour, opacity) {
  const part = (at) => parseInt(colour.slice(at, at + 2), 16);
  return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${opacity.toFixed(4)})`;
}

/** Offer text as a file. */
function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Put a message where the view would have been. */
function showFailure(root, error) {
  const message = `The view could not be drawn (${error.message}). The data in this file is intact; please report this together with the name and version of your browser.`;
  root.replaceChildren(element("p", { class: "failure", role: "alert", text: message }));
  console.error(error);
}

/** Start the view of every root in the document, each with the payload that follows it. */
function startViews() {
  for (const root of document.querySelectorAll("main.flaxattn")) {
    try {
      const payload = JSON.parse(root.nextElementSibling.textContent);
        root.flaxattn = VIEWS[root.dataset.view](root, payload);
    } catch (error) {
      showFailure(root, error);
    }
  }
}

document.addEventListener("DOMContentLoaded", startViews);
