// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The line above a page that a server hands out: which text of the store it is, the texts before and
// after it, the list and the atlas. Pages in files have none.

import { fragment } from "./address.js";
import { element } from "./elements.js";
import { asTexts, IN_ADDRESS } from "./settings.js";

/** Settings that mean something in one text only. */
const OF_A_TEXT = ["sequence", "query", "key"];
/** Keys, the address each leads to, how the link reads, and what it does. */
const WAYS = [
  ["p", "back", "‹ Back", "Text before this one"],
  ["n", "next", "Next ›", "Text after this one"],
  ["l", "list", "List of texts", "The list that this text is in"],
  ["", "atlas", "Atlas of all texts", "Numbers of heads over all texts"],
];

/** @returns {import("./types.js").Corpus|null} what the server says of its store; null in a file */
export function readCorpus() {
  const data = document.querySelector("script.flaxattn-corpus");
  return data ? JSON.parse(data.textContent) : null;
}

export class CorpusBar {
  /** @param {import("./types.js").Corpus} corpus */
  constructor(corpus) {
    this.corpus = corpus;
    this.links = {};
    const parts = [element("strong", { text: corpus.name })];
    if (corpus.id) parts.push(element("bdi", { class: "id", text: corpus.id }));
    if (corpus.place) parts.push(element("span", { class: "place", text: corpus.place }));
    parts.push(element("span", { class: "spring" }));
    for (const [key, name, text, title] of WAYS) {
      const href = corpus[name];
      if (href === undefined) continue;
      const shown = { class: `sign ${name}`, title: key ? `${title} (key ${key})` : title, text };
      this.links[name] = element("a", href === null ? { ...shown, role: "link", "aria-disabled": "true" } : { ...shown, href });
      parts.push(this.links[name]);
    }
    this.root = element("nav", { class: "corpus", "aria-label": "Texts of the store" }, ...parts);
  }

  /** Let the texts beside this one open with the settings of this page. */
  keep(state) {
    const settings = asTexts(state.json());
    const kept = IN_ADDRESS.filter((name) => !OF_A_TEXT.includes(name)).map((name) => [name, settings[name] ?? null]);
    for (const name of ["back", "next"]) {
      if (this.corpus[name]) this.links[name].setAttribute("href", `${this.corpus[name]}#${fragment(Object.fromEntries(kept))}`);
    }
  }

  /** @returns {boolean} whether the key leads to another page */
  key(key) {
    const way = WAYS.find(([other, name]) => other === key && this.corpus[name]);
    if (!way) return false;
    this.links[way[1]].click();
    return true;
  }

  /** Open the list of texts sorted by a number of a head, the largest first. */
  openSorted(side, layer, head, statistic) {
    const asked = { by: statistic, side, layer, head, order: "desc" };
    location.assign(`${this.corpus.sort}?${fragment(asked)}`);
  }
}
