// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Running text as an SVG file: every span of a line where the browser has put it.

import { graphemes } from "./source.js";
import { SvgPen, svgPicture } from "./pens.js";

const ARABIC = /\p{Script=Arabic}/u;
/** Room on each side of the text. */
const TEXT_MARGIN = 24;
const SCALE_WIDTH = 220;
/** Makes a letter take the form that it has beside another. */
const JOINER = "\u200d";

/** @returns {{text: string, box: DOMRect}[]} the parts of a text node, line by line */
function linesOf(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
  if (boxes.length === 1) return [{ text: node.data, box: boxes[0] }];
  const found = [];
  let at = 0;
  for (const letter of graphemes(node.data)) {
    range.setStart(node, at);
    range.setEnd(node, (at += letter.length));
    const box = range.getBoundingClientRect();
    const last = found[found.length - 1];
    if (!box.width) continue;
    if (last && Math.abs(last.box.top - box.top) < 2) {
      const left = Math.min(last.box.left, box.left);
      last.text += letter;
      last.box = new DOMRect(left, last.box.top, Math.max(last.box.right, box.right) - left, last.box.height);
    } else {
      found.push({ text: letter, box });
    }
  }
  return found;
}

/** @returns {string} text in the form that its letters have between their neighbours */
function joinedForm(text, before, after) {
  const joins = (one, other) => ARABIC.test(one || "") && ARABIC.test(other || "");
  const start = joins(before.at(-1), text[0]) ? JOINER : "";
  return start + text + (joins(text.at(-1), after[0]) ? JOINER : "");
}

/** @returns {Text[]} the texts below an element, in order */
function textNodes(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(/** @type {Text} */ (walker.currentNode));
  return nodes.filter((node) => node.data.trim());
}

/** Draw the bar of colours with its numbers, as it stands above the text. */
function drawScale(pen, y, { shades, marks, unit }, ink) {
  const width = SCALE_WIDTH / shades.length;
  shades.forEach((shade, i) => pen.fill(TEXT_MARGIN + i * width, y, width + 0.5, 9, shade));
  for (const [place, text] of marks) pen.write(text, TEXT_MARGIN + place * SCALE_WIDTH, y + 18, { colour: ink, anchor: "middle" });
  pen.write(unit, TEXT_MARGIN + SCALE_WIDTH + 14, y + 5, { colour: ink });
}

/**
 * @param {HTMLElement} root that holds the text
 * @param {string} caption
 * @param {{ink: string, paper: string}} colours
 * @param {{shades: string[], marks: [number, string][], unit: string}} scale
 * @returns {string} an SVG document
 */
export function textPicture(root, caption, colours, scale) {
  const whole = root.getBoundingClientRect();
  const pen = new SvgPen();
  const at = (box) => [box.left - whole.left + TEXT_MARGIN, box.top - whole.top];
  for (const run of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(".run"))) {
    const { backgroundColor } = run.style;
    if (backgroundColor) for (const box of run.getClientRects()) pen.fill(...at(box), box.width, box.height, backgroundColor);
    if (run.matches(".chosen")) for (const box of run.getClientRects()) pen.fill(at(box)[0], at(box)[1] + box.height - 2, box.width, 2, colours.ink);
  }
  const all = root.textContent;
  let place = 0;
  for (const node of textNodes(root)) {
    const { color, fontSize } = getComputedStyle(node.parentElement);
    place = all.indexOf(node.data, place);
    const [before, after] = [all.slice(Math.max(0, place - 1), place), all.slice(place + node.data.length)];
    const lines = linesOf(node);
    lines.forEach(({ text, box }, i) => {
      const [x, y] = at(box);
      const shown = joinedForm(text.trimEnd(), i ? "" : before, i < lines.length - 1 ? "" : after);
      pen.write(shown, x + box.width / 2, y + box.height / 2, { colour: color, size: parseFloat(fontSize), anchor: "middle" });
    });
    place += node.data.length;
  }
  drawScale(pen, whole.height + TEXT_MARGIN / 2, scale, colours.ink);
  return svgPicture(caption, whole.width + 2 * TEXT_MARGIN, whole.height + 2 * TEXT_MARGIN, colours, pen.group);
}
