// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What the terms of a page mean: one table, from which terms are explained where they stand, and
// listed in the help.

import { element } from "./elements.js";

/** Terms, and other ways they read after a bar; and what they mean. */
const TERMS = [
  ["attention weight|weight", "How much of what a token reads comes from another token, from 0 to 1. The weights of one token sum to 1."],
  ["layer", "One of the steps a model applies one after the other. Each reads what the one before wrote."],
  ["head", "One of the parts of a layer that attend side by side, each with weights of its own."],
  ["token", "A piece of text that the model reads as one: a word, a part of a word, or a sign."],
  ["special token", "A token that the model adds to the text, such as [CLS] or [SEP]."],
  ["delimiter", "A token that ends or separates texts, such as [SEP]."],
  ["[UNK]|UNK", "The token in the place of text that the model has no token for."],
  ["sink", "A token that gets much attention although it says little, often the first one or [SEP]. Heads that find nothing leave their attention there."],
  ["query", "The token that attends, on the left; also its vector, which is compared with every key."],
  ["key", "A token attended to, on the right; also its vector, which queries are compared with."],
  ["value", "The vector that a key hands over. The output of a head is the mean of values by weight."],
  ["score", "The product of a query and a key over the root of their size, before the softmax. On pages of roles: the lift of a head, a mean over texts."],
  ["softmax", "Turns scores into weights: each above 0, with a sum of 1."],
  ["mass", "The share of each token's attention that is drawn, from its largest weights on."],
  ["opacity", "What the strength of a line stands for: the weight, or the weight over the largest of its row or over the number of heads."],
  ["renormalised", "Scaled up to a sum of 1 again, after keys were left out."],
  ["entropy", "How widely attention is spread, in nats: 0 is all on one token; ln n, n tokens alike."],
  ["nats", "The unit of entropy and divergence with natural logarithms; 1 nat is 1.44 bits."],
  ["divergence", "How far two patterns of attention are apart (Jensen–Shannon): 0 is alike, 0.693 nothing in common."],
  ["cosine", "How alike the directions of two vectors are: 1 the same, 0 nothing in common."],
  ["distance", "How many tokens a head looks away, a mean by weight."],
  ["log-sum-exp", "The logarithm by which the softmax divides: large where scores are."],
  ["previous token", "The role of a head with most of its attention on the token before."],
  ["next token", "The role of a head with most of its attention on the token after."],
  ["own token", "The role of a head with most of its attention on the token itself."],
  ["one token", "The role of a head of cross-attention with most of its attention on one source token at a time."],
  ["first token", "The token at the beginning, where many heads leave attention that they do not need."],
  ["induction", "Attention to the token after an earlier occurrence of the present one: how models continue what they saw before."],
  ["duplicate token", "The role of a head that looks at earlier occurrences of the same token."],
  ["broad", "The attention of the head is spread nearly evenly."],
  ["mixed", "The head has no single pattern in this text."],
  ["role", "What a head does beyond chance, tested over many texts."],
  ["governor", "The word that another depends on in a sentence, such as the verb of a subject."],
  ["dependent", "A word that depends on another in a sentence, such as the subject of a verb."],
  ["gold pairs", "Pairs of tokens known to belong together, from annotation, against which a head is checked."],
  ["lift", "Attention to a set of tokens over what even attention would give: 1 is chance."],
  ["AUC", "The chance that a true pair gets a higher score than a false one: 0.5 is guessing, 1 perfect."],
  ["interval", "The range that holds the true number in 95 of 100 such samples."],
  ["ablation", "Switching a head off, to see what its loss costs."],
  ["importance", "How much the loss would change with the head, by its gradient."],
];
const escaped = (text) => text.replace(/[[\]]/g, "\\$&");
/** Every way in which a term reads, the longest first, and its place in the table. */
const WAYS_TO_SAY = TERMS.flatMap(([names], at) => names.split("|").map((name) => /** @type {[string, number]} */ ([name, at]))).sort((a, b) => b[0].length - a[0].length);
const ANY_TERM = new RegExp(`(?<![\\w-])((?:${WAYS_TO_SAY.map(([name]) => escaped(name)).join("|")})s?)(?![\\w-])`, "gi");

/** @returns {number} the place of a term in the table */
function placeOf(found) {
  const wanted = found.toLowerCase();
  return WAYS_TO_SAY.find(([name]) => wanted.startsWith(name.toLowerCase()))[1];
}

/** @returns {(Node|string)[]} a text of the page, never one that was read, whose terms can be explained */
export function explain(text) {
  const explained = new Set();
  return text.split(ANY_TERM).map((part, i) => {
    const at = i % 2 ? placeOf(part) : -1; // every other part is a term
    if (at < 0 || explained.has(at)) return part;
    explained.add(at);
    return element("dfn", { class: "term", role: "button", tabindex: 0, "aria-expanded": "false", "data-term": at, text: part });
  });
}

/** @returns {HTMLElement} all terms, folded up */
export function glossaryList() {
  const rows = TERMS.flatMap(([names, meaning]) => [element("dt", { text: names.split("|")[0] }), element("dd", { text: meaning })]);
  return element("details", { class: "glossary" }, element("summary", { text: "Terms" }), element("dl", {}, ...rows));
}

/** Shows what a term means, beside it, at a click or Enter. */
export class Glossary {
  /** @param {HTMLElement} root of the page @param {(text: string) => void} speak */
  constructor(root, speak) {
    this.speak = speak;
    /** @type {HTMLElement|null} the term that is explained */
    this.term = null;
    this.note = element("div", { class: "gloss", role: "note", hidden: true });
    root.append(this.note);
    root.addEventListener("click", (event) => this.hear(event));
    root.addEventListener("keydown", (event) => ["Enter", " ", "Escape"].includes(event.key) && this.hear(event));
    addEventListener("scroll", () => this.close(), { passive: true });
  }

  hear(event) {
    const term = event.target.closest(".term");
    const open = this.term;
    if (!term && !open) return;
    this.close();
    if (!term && event.type === "click") return;
    if (event.key === "Escape" ? !open : !term) return;
    event.preventDefault(); // a label would hand the click to its control
    event.stopPropagation();
    if (event.key !== "Escape" && term !== open) this.open(term);
  }

  close() {
    if (this.term) this.term.setAttribute("aria-expanded", "false");
    this.term = null;
    this.note.hidden = true;
  }

  open(term) {
    const [names, meaning] = TERMS[Number(term.dataset.term)];
    this.term = term;
    term.setAttribute("aria-expanded", "true");
    this.note.replaceChildren(element("b", { text: `${names.split("|")[0]}: ` }), meaning);
    this.note.hidden = false;
    const [box, { offsetWidth, offsetHeight }] = [term.getBoundingClientRect(), this.note];
    const top = box.bottom + 6 + offsetHeight > innerHeight ? box.top - 6 - offsetHeight : box.bottom + 6;
    this.note.style.setProperty("left", `${Math.max(8, Math.min(box.left, innerWidth - offsetWidth - 8))}px`);
    this.note.style.setProperty("top", `${Math.max(8, top)}px`);
    this.speak(`${this.note.textContent}`);
  }
}
