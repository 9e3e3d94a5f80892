// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// A column of tokens as running text: a paragraph for each passage, a span for each token or for those
// that share a character. Spans have no edges and no direction of their own, so that letters join and
// lines run as they would without them.

import { element } from "./elements.js";
import { readAs } from "./source.js";

/** The sign for a line feed, which the payload has in its place. */
const LINE_FEED = "\u240a";

/**
 * @typedef {Object} TextSpan of running text
 * @property {HTMLElement} node
 * @property {number[]} tokens positions
 *
 * @typedef {Object} Block
 * @property {HTMLElement} root
 * @property {TextSpan[]} spans in the order of the tokens
 */

/** @returns {string} text with its lines as they were */
function withLines(text) {
  return text.replaceAll(LINE_FEED, "\n");
}

/** @returns {HTMLElement} characters that the model read */
function runNode(column, run) {
  const node = element("span", { class: "run", role: "option", "data-index": run.tokens[0], text: withLines(column.textOf(run)) });
  const note = column.differenceOf(run.tokens[0]);
  if (note && note.unknown) node.classList.add("unknown");
  return node;
}

/** @returns {HTMLElement} a token that stands for no characters */
function addedNode(column, token) {
  return element("bdi", { class: "run added", role: "option", "data-index": token, text: column.read[token] });
}

/** @returns {Node[]} characters between tokens; those after the last one were not read */
function plainNodes(text, unread) {
  if (!text) return [];
  if (!unread || !text.trim()) return [document.createTextNode(withLines(text))];
  return [element("span", { class: "unread", title: "The model did not read this.", text: withLines(text) })];
}

/**
 * @param {import("./source.js").Column} column
 * @param {string} title
 * @param {Set<number>} left positions that are left out, where they stand for no characters
 * @returns {Block}
 */
export function textBlock(column, title, left) {
  const { passages } = column.source;
  const of = column.runOfToken();
  const paragraphs = passages.map(() => element("p", { class: "passage", role: "group", dir: "auto" }));
  const reached = passages.map(() => 0);
  const spans = [];
  const firstRun = column.runs()[0];
  let passage = firstRun ? firstRun.passage : 0;
  let later = !column.parts || column.boundary === null; // whether the second part needs no mark any more
  const place = (node, tokens) => {
    if (!later && tokens[tokens.length - 1] >= column.boundary) {
      later = true;
      paragraphs[passage].append(element("bdi", { class: "begins", text: column.parts[1].toLowerCase() }));
    }
    paragraphs[passage].append(node);
    spans.push({ node, tokens });
  };
  column.read.forEach((_, token) => {
    const run = of[token];
    if (!run) {
      if (!left.has(token)) place(addedNode(column, token), [token]);
    } else if (run.tokens[0] === token) {
      passage = run.passage;
      paragraphs[passage].append(...plainNodes(passages[passage].slice(reached[passage], run.start), false));
      place(runNode(column, run), run.tokens);
      reached[passage] = run.stop;
    }
  });
  passages.forEach((text, i) => paragraphs[i].append(...plainNodes(text.slice(reached[i]), true)));
  const heading = element("h2", { text: title });
  return { root: element("div", { class: "text-block", role: "listbox", "aria-label": title || "Text" }, heading, ...paragraphs), spans };
}

/** @returns {string} what the model read in place of the characters of a span; empty if the same */
export function spanNote(column, tokens) {
  if (tokens.length === 1) return readAs(column.differenceOf(tokens[0]));
  return `read by the model as ${tokens.length} tokens: ${tokens.map((token) => column.read[token]).join(" ")}`;
}
