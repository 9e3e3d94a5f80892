// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The page of one head in a report: where it looks, what is claimed of it with the best and the worst
// examples, the heads most like it, and what it is worth. All numbers were chosen in Python.

import { claimMark } from "./claim_marks.js";
import { element, tokenText } from "./elements.js";
import { EvidenceLinks, formatNumber } from "./evidence_links.js";
import { outcomeName } from "./gold.js";
import { graphemes } from "./source.js";
import { markedText, rangeText } from "./marked_text.js";
import { formatShare, formatWeight } from "./numbers.js";
import { effectText, measureLabel } from "./panel.js";

/** From this share on a head looks at one place. */
const MOST = 0.5;
/** So many characters of a token stand in a link. */
const LABEL_LENGTH = 30;

/** @returns {string} the beginning of what tokens read as, whole characters */
function beginning(text) {
  const letters = graphemes(text);
  return letters.length > LABEL_LENGTH ? `${letters.slice(0, LABEL_LENGTH).join("")}…` : text;
}

/** @returns {string} a percentage that no line breaks */
function shareText(share) {
  return formatShare(share).replace(" ", "\u00a0");
}

/** @returns {string} a number of things */
function counted(count, name) {
  return `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
}

/** @returns {HTMLElement} a part of the page with its heading */
function part(name, title, ...content) {
  return element("section", { class: `profile-part ${name}`, "aria-label": title }, element("h3", { text: title }), ...content);
}

export class HeadProfile {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {import("./shell.js").Shell} actions
   */
  constructor(root, payload, state, actions) {
    this.root = root;
    this.payload = payload;
    this.report = payload.report;
    this.state = state;
    this.actions = actions;
    this.links = new EvidenceLinks(payload, state, actions);
  }

  destroy() {
    this.root.replaceChildren();
  }

  draw() {
    const { state } = this;
    this.side = state.side;
    const [layer, head] = [state.layer, state.oneHead()];
    const [a, b] = [this.side.layers[layer], this.side.heads[head]];
    this.claims = this.report.claims.filter((claim) => claim.side === this.side.name && claim.layer === a && claim.head === b);
    const text = this.reading(`Head ${a}.${b}`, layer, head);
    const examples = this.claims.map((claim) => this.examples(claim)).filter(Boolean);
    this.root.replaceChildren(
      element("h2", { class: "profile-title", text: `Layer ${a}, head ${b}` }),
      element("p", { class: "reading", text }),
      this.broken(layer, head),
      element("div", { class: "profile" }, element("div", { class: "profile-main" }, this.roles(), ...examples), element("aside", { class: "panel", "aria-label": "Numbers" }, ...this.facts(layer, head))),
    );
  }

  /** @returns {string} where a head looks, as a sentence */
  reading(name, layer, head) {
    const found = this.report.heads.readings[layer][head];
    const mean = `on average over ${counted(this.report.heads.texts, "text")}`;
    if (!found) return `${name}: no share of its attention was measured.`;
    const [place, share] = found;
    if (share >= MOST) return `${name} looks at ${place}, ${shareText(share)} of its attention ${mean}.`;
    return `${name} looks at no one place: the largest share, ${shareText(share)}, is on ${place}, ${mean}.`;
  }

  broken(layer, head) {
    const count = this.report.heads.broken[layer][head];
    if (!count) return "";
    return element("p", { class: "hint", text: `In ${counted(count, "text")} its attention is NaN or infinite; they do not count.` });
  }

  /** What is claimed of the head, each with its interval. */
  roles() {
    const rows = this.claims.map((claim) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, claimMark(this.report, claim.name), " ", measureLabel(claim.name)),
        element("td", { class: "value" }, this.links.value(claim)),
        element("td", { class: "value interval", text: claim.interval ? claim.interval.map(formatNumber).join(" to ") : "–" }),
        element("td", { text: claim.detail }),
      ),
    );
    const heads = ["Claim", this.report.measured, "Interval", "Details"];
    const top = element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", text }))));
    const title = "Claims about this head";
    if (!rows.length) return part("roles", title, element("p", { class: "hint", text: "There are no claims about it." }), this.toHead());
    const table = element("table", { "aria-label": title }, top, element("tbody", {}, ...rows));
    const hint = `Interval: ${this.report.heads.level}. “–” where it is not known.`;
    return part("roles", title, element("div", { class: "claims" }, table), element("p", { class: "hint", text: hint }));
  }

  /** @returns {Node|string} a button that shows the attention of a head without claims */
  toHead() {
    if (!this.state.levels.includes("head")) return "";
    return element("button", { type: "button", class: "sign", text: "See its attention", click: () => this.actions.go({ level: "head" }) });
  }

  /** The best and the worst examples of a claim, or the texts that show it best. */
  examples(claim) {
    const title = `Examples: ${measureLabel(claim.name)}`;
    if (!claim.examples) {
      const hint = "This claim is about no pairs of tokens in the texts of this page. Texts with the highest number:";
      return part("examples", title, element("p", { class: "hint", text: hint }), element("div", { class: "claims" }, this.links.texts(claim)));
    }
    const { best, worst, candidates, texts } = claim.examples;
    const [sequence] = best[0];
    const { about, rule } = this.pairsOf(claim, sequence);
    const pairs = counted(candidates, "pair");
    const hints = [
      `Pairs: ${about || measureLabel(claim.name)}. They come from ${counted(texts, "text")} of this page, ${pairs} in all.`,
      "A number is the share of the query’s attention on its gold keys. Best are the largest, worst the smallest of the others; of equal ones the first stands first.",
      `Most texts of this page show a claim well and some show it least, so they are not a random sample. Hit: ${rule}.`,
    ];
    const legend = element("p", { class: "hint legend-pair" }, element("mark", { class: "query", text: "query" }), ", ", element("mark", { class: "key", text: "gold key" }), ". A click on a pair shows it in its text.");
    const lists = [this.list(claim, "best", best), this.list(claim, "worst", worst)];
    return part("examples", title, element("p", { class: "hint", text: hints.join(" ") }), legend, element("div", { class: "ends" }, ...lists));
  }

  pairsOf(claim, sequence) {
    const side = this.payload.inputs[sequence].sides.find(({ name }) => name === claim.side);
    return side.pairs.find(({ name }) => name === claim.name);
  }

  list(claim, end, examples) {
    const heading = element("h4", { text: examples.length ? `${examples.length} ${end}` : `No ${end}: all pairs are above` });
    const items = examples.map((example) => this.example(claim, example));
    return element("div", { class: `end ${end}` }, heading, element("ol", { "aria-label": `${end} examples` }, ...items));
  }

  example(claim, [sequence, place, weight, outcome]) {
    const [first, last, ...rest] = this.pairsOf(claim, sequence).pairs[place];
    const keys = Array.from({ length: rest.length / 2 }, (_, i) => /** @type {[number, number]} */ ([rest[2 * i], rest[2 * i + 1]]));
    const side = this.state.sidesOf(sequence, "tokens")[claim.side];
    const query = beginning(rangeText(side.left, [first, last]));
    const key = beginning(keys.map((range) => rangeText(side.right, range)).join(" or "));
    const title = `${query} → ${key}: see it in its text`;
    const link = this.links.toText(claim, sequence, first, title, tokenText(query), " → ", tokenText(key));
    const head = element("div", { class: "pair" }, element("span", { class: "value", text: formatWeight(weight) }), link, element("span", { class: `outcome ${outcome}`, text: outcomeName(outcome) }));
    return element("li", {}, head, ...markedText(side, [first, last], keys));
  }

  /** Heads most like it, what it is worth, and all its numbers. */
  facts(layer, head) {
    return [...this.nearest(layer, head), ...this.effects(layer, head), ...this.numbers(layer, head)];
  }

  nearest(layer, head) {
    const { nearest, near_texts: texts } = this.report.heads;
    const count = this.side.heads.length;
    const rows = nearest[layer * count + head].map(([at, distance]) =>
      element("li", { class: "fact" }, element("span", { class: "role" }, this.links.toProfile(Math.floor(at / count), at % count)), element("span", { class: "value", text: formatWeight(distance) })),
    );
    const hint = `Jensen–Shannon distance over ${counted(texts, "text")}: the root of the mean divergence in bits; 0 for the same attention, 1 for no key in common.`;
    const shown = rows.length ? hint : "No distance to another head is known.";
    return [element("h2", { text: "Most similar heads" }), element("ol", { class: "facts nearest" }, ...rows), element("p", { class: "hint", text: shown })];
  }

  effects(layer, head) {
    const { effects, effects_about: about, command } = this.report.heads;
    const title = element("h2", { text: "From other reports" });
    const rows = Object.entries(effects).map(([name, tables]) => {
      const [value, low, high] = tables.map((table) => (table[layer][head] === null ? "–" : effectText(table[layer][head])));
      const text = low === "–" ? value : `${value} (${low} to ${high})`;
      return element("li", { class: "fact" }, element("span", { class: "role", text: name }), element("span", { class: "value", text }));
    });
    if (rows.length) return [title, element("ol", { class: "facts effects" }, ...rows), element("p", { class: "hint", text: `In brackets: 95 % interval. ${about}` })];
    const hint = element("p", { class: "hint" }, "Not measured. Run ", element("code", { text: command }), ", then this report again with ", element("code", { text: "--facts report-ablate" }), ".");
    return [title, hint];
  }

  numbers(layer, head) {
    const values = Object.entries(this.report.values[this.side.name]);
    const rows = values.map(([name, table]) => element("li", { class: "fact" }, element("span", { class: "role", text: measureLabel(name) }), element("span", { class: "value", text: formatNumber(table[layer][head]) })));
    return [element("h2", { text: `All numbers: ${this.report.measured}` }), element("ol", { class: "facts all-numbers" }, ...rows)];
  }
}
