// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The page's theme and its colours, which stand in `view.css`.

/** How many head colours `view.css` defines; more heads begin again at the first. */
export const COLOURS = 16;

/**
 * Show the page light or dark.
 * @param {HTMLElement} root
 * @param {string} choice auto, light or dark
 */
export function applyTheme(root, choice) {
  const dark = choice === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : choice === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  root.dataset.theme = choice;
}

/** @returns {string} the value of a variable of the style sheet in the present theme */
export function styleValue(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** @returns {string[]} the head colours of the present theme */
export function headColours() {
  return Array.from({ length: COLOURS }, (_, i) => styleValue(`--head-${i}`));
}

/** @returns {[number, number, number]} red, green and blue of `#rrggbb` */
export function colourParts(colour) {
  const part = (at) => parseInt(colour.slice(at, at + 2), 16);
  return [part(1), part(3), part(5)];
}

/** @returns {string} black or white, whichever reads better on a `#rrggbb` colour */
export function inkOn(colour) {
  const [red, green, blue] = colourParts(colour).map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

/** @returns {string} the colour of a head behind a token, by the weight: text on it keeps a contrast of 4.5 : 1 */
export function stripeColour(colour, weight) {
  return fade(colour, 0.4 * Math.min(1, Math.abs(weight)));
}

/** @returns {string} a `#rrggbb` colour with an opacity between 0 and 1 */
function fade(colour, opacity) {
  return `rgba(${colourParts(colour).join(", ")}, ${opacity.toFixed(4)})`;
}

/** @returns {string} `#rrggbb`, a share of the way from one colour to another */
export function blendColours(from, to, share) {
  const ends = [colourParts(from), colourParts(to)];
  const parts = ends[0].map((part, i) => Math.round(part + (ends[1][i] - part) * share));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
