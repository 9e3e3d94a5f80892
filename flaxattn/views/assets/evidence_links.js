// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Links of a report's page: from claims to the texts that show them, and from heads to their pages.

import { fragment } from "./address.js";
import { element, tokenText } from "./elements.js";
import { hasPairs, OFF } from "./gold.js";
import { measureLabel } from "./panel.js";

/** So many characters of a text stand in a link, as far as there is room. */
const LINK_LENGTH = 120;

/** @returns {string} a number of a head, short */
export function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size !== 0 && size < 0.01 ? value.toPrecision(1) : value.toFixed(size < 100 ? 2 : 0);
}

/** @returns {string} a text as a person would write it, about: tokens of a word are joined */
function wholeText(input) {
  const [text] = Object.values(input.texts);
  if (text.passages) return text.passages.join(" ");
  const special = new Set(text.special);
  return text.tokens
    .filter((_, i) => !special.has(i))
    .map((token) => (token.startsWith("##") && token.length > 2 ? token.slice(2) : ` ${token}`))
    .join("")
    .trim();
}

/** @returns {HTMLElement} a link that follows an address, and goes there without loading the page anew */
function link(settings, title, follow, content) {
  const click = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    follow();
  };
  return element("a", { href: `#${fragment(settings)}`, title, click }, ...content);
}

export class EvidenceLinks {
  /**
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {import("./shell.js").Shell} actions
   */
  constructor(payload, state, actions) {
    this.payload = payload;
    this.state = state;
    this.actions = actions;
  }

  /** @returns {boolean} whether the page has a page for each head of the side that shows */
  get hasProfiles() {
    const { heads } = this.payload.report;
    return Boolean(heads) && heads.side === this.state.side.name;
  }

  /** @returns {string} the claim whose gold pairs a text has, if it has any */
  goldOf(claim, sequence) {
    return hasPairs(this.payload.inputs[sequence], claim.side, claim.name) ? claim.name : OFF;
  }

  /** Show a claim in a text, with a query pinned if one is named by its position. */
  look(claim, sequence, query = null) {
    const { state } = this;
    const side = state.sidesOf(sequence, state.hasWords(sequence) ? state.unit : "tokens")[claim.side];
    const layer = side.layers.indexOf(claim.layer);
    const heads = [side.heads.indexOf(claim.head)];
    const pinned = query === null ? null : side.placeOf("left", query);
    this.actions.go({ sequence, level: "head", layer, heads, gold: this.goldOf(claim, sequence), query: pinned, key: null });
    const row = pinned === null ? null : this.actions.stage.querySelector(`section:not([hidden]) .left [data-index="${pinned}"]`);
    if (row) row.scrollIntoView({ block: "center" });
  }

  /** @returns {HTMLElement} a link to a text that shows a claim */
  toText(claim, sequence, query, title, ...content) {
    const place = { level: "head", sequence, side: claim.side, layer: claim.layer, heads: claim.head };
    const settings = { ...place, measure: claim.name, gold: this.goldOf(claim, sequence), query };
    return link(settings, title, () => this.look(claim, sequence, query), content);
  }

  /** Show the page of a head, by its indices. */
  openProfile(layer, head) {
    this.actions.go({ level: "profile", layer, heads: [head] });
  }

  /** @returns {HTMLElement} a link to the page of a head, by its indices */
  toProfile(layer, head, ...content) {
    const { name, layers, heads } = this.state.side;
    const number = `${layers[layer]}.${heads[head]}`;
    const shown = content.length ? content : [number];
    return link({ side: name, head: number }, `Head ${number}: its page`, () => this.openProfile(layer, head), shown);
  }

  /** @returns {HTMLElement} links to the texts that show a claim best, with their scores */
  texts(claim) {
    if (!claim.shown.length) return element("span", { class: "hint", text: "none in this page" });
    const links = claim.shown.map(([sequence, number, score]) => {
      const text = wholeText(this.payload.inputs[sequence]);
      const short = text.length > LINK_LENGTH ? `${text.slice(0, LINK_LENGTH)}…` : text;
      const value = element("span", { class: "value", text: formatNumber(score) });
      return element("li", {}, this.toText(claim, sequence, null, `Text ${number}: ${text}`, value, tokenText(short)));
    });
    return element("ol", {}, ...links);
  }

  /** @returns {HTMLElement} the number of a claim, with a link to the text that shows it best */
  value(claim) {
    const text = formatNumber(claim.value);
    if (!claim.shown.length) return element("span", { text });
    const title = `${measureLabel(claim.name)}, ${claim.layer}.${claim.head}: see the text that shows it best`;
    return this.toText(claim, claim.shown[0][0], null, title, text);
  }
}
