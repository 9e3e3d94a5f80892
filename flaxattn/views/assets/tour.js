// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// A tour of the page in six steps: each shows something worth seeing, outlines a part of the page and
// says in two sentences what it is. It begins by itself on the page of `flaxattn demo` only.

import { keepInAddress, readFragment } from "./address.js";
import { element } from "./elements.js";
import { OFF } from "./gold.js";
import { formatShare } from "./numbers.js";
import { measureLabel } from "./panel.js";
import { ATTENTION, RAW, SETTINGS } from "./settings.js";

/** Patterns that follow from position, and positions that absorb attention which is not needed. */
const TOUR_PLACES = ["previous", "next", "own", "induction", "duplicate", "strongest"];
const TOUR_SINKS = ["delimiter", "first"];
/** Between the card and what it is about, in CSS pixels; and the width of a phone. */
const TOUR_GAP = 12;
const PHONE_WIDTH = 560;

/** @returns {{layer: number, head: number, value: number, name: string}} the head with the most of one of some measures */
function mostOf(side, names) {
  let best = { layer: 0, head: 0, value: 0, name: "" };
  side.layers.forEach((_, layer) =>
    side.heads.forEach((__, head) => {
      for (const name of names) {
        const value = side.has(layer, head) ? side.measure(layer, head)[name] : 0;
        if (value > best.value) best = { layer, head, value, name };
      }
    }),
  );
  return best;
}

/**
 * @typedef {Object} Step
 * @property {string} title
 * @property {string} text
 * @property {Object<string, any>} settings of the page during the step
 * @property {string} target selector of the element described
 */

/** @returns {Step[]} the steps that a page has levels for */
function stepsOf(state) {
  const { side, levels } = state;
  const [looks, sink] = [mostOf(side, ["previous"]), mostOf(side, TOUR_SINKS)];
  const first = looks.value > 0.3 ? looks : mostOf(side, TOUR_PLACES);
  const nameOf = ({ layer, head }) => `layer ${side.layers[layer]}, head ${side.heads[head]}`;
  const said = ({ value, name }) => (name ? `${measureLabel(name)} ${formatShare(value)}` : "no number known");
  const none = { query: null, key: null, gold: OFF, drawing: "lines", special: "shown", first: "shown" };
  const show = (found, more) => ({ ...none, level: "head", layer: found.layer, heads: [found.head], ...more });
  const ordinary = [...side.left.tokens.keys()].filter((at) => !side.left.special.has(at) && at > 0);
  const query = ordinary.length ? ordinary[Math.floor(ordinary.length / 2)] : 0;
  const every = levels.includes("atlas") ? "atlas" : levels.includes("claims") ? "claims" : "model";
  const [gold] = state.goldNames;
  const last = gold
    ? { title: "Gold pairs", text: "Dashed green curves are known pairs of words that the head hits, dotted pink ones those that it misses. SVG and PNG save the picture, and the address holds its settings.", settings: show(first, { gold }), target: "#level-head .gold-legend" }
    : { title: "Take it with you", text: "SVG and PNG save the picture as it stands, and the button with braces gives its settings to Python. The address holds them too: a link shows the same picture.", settings: show(first, { query }), target: ".title .svg" };
  /** @type {Step[]} */
  const steps = [
    { title: "One head", text: `A head decides for each token which others it reads; this sentence says what the present one does. Here it is ${nameOf(first)} (${said(first)}).`, settings: show(first), target: "#level-head .reading" },
    { title: "One token", text: "Click a token to pin it: only its lines stay, and the numbers on the other side are its attention weights. The weights of one token sum to 1.", settings: show(first, { query }), target: "#level-head .left .token.held" },
    { title: "A place to rest", text: `Heads that find nothing to read leave their attention on a delimiter such as [SEP], or on the first token. Here ${nameOf(sink)} does so most (${said(sink)}), which does not make that token important.`, settings: show(sink), target: "#level-head .lines" },
    { title: "The same as a matrix", text: "Each row is a token that attends, each column one that is attended to; the stronger the colour, the larger the weight. A head that looks at neighbours draws a line along the diagonal.", settings: show(first, { drawing: "matrix" }), target: "#level-head .matrix-board" },
    { title: "All heads", text: "Each cell is a head, in rows by layer, coloured by a number of it. Click one to see its lines.", settings: { ...none, level: every }, target: `#level-${every} .grid` },
    last,
  ];
  return steps.filter(({ settings }) => levels.includes(settings.level));
}

export class Tour {
  /** @param {import("./shell.js").Shell} shell */
  constructor(shell) {
    this.shell = shell;
    /** @type {Step[]} */
    this.steps = [];
    this.at = 0;
    const button = (text, click) => element("button", { type: "button", class: "sign", text, click });
    this.back = button("Back", () => this.show(this.at - 1));
    this.next = button("Next", () => this.show(this.at + 1));
    this.name = element("h2", { id: "tour-name" });
    this.text = element("p", { id: "tour-text" });
    this.count = element("span", { class: "hint" });
    const buttons = element("div", { class: "buttons" }, this.back, this.next, button("Close", () => this.close()), this.count);
    this.card = element("section", { class: "tour", role: "dialog", "aria-labelledby": "tour-name", "aria-describedby": "tour-text", hidden: true }, this.name, this.text, buttons);
    document.addEventListener("keydown", (event) => this.onKey(event), true);
    shell.root.append(this.card);
    const begin = element("button", { type: "button", class: "sign tour-begin", text: "Tour", click: () => this.begin() });
    shell.help.querySelector(".dialog-top").lastChild.before(begin);
    for (const name of ["resize", "scroll"]) addEventListener(name, () => this.place(), { passive: true });
    if (readFragment().tour) keepInAddress({ tour: "off" });
    if (document.querySelector("script.flaxattn-tour") && !location.hash) this.begin();
  }

  begin() {
    const { help, state } = this.shell;
    this.before = help.open ? this.shell.bar.root.querySelector(".ask") : null;
    help.close();
    Object.assign(state, { compare: SETTINGS.compare[0], weights: RAW, attention: ATTENTION[0][0] });
    this.steps = stepsOf(state);
    this.show(0);
  }

  show(at) {
    if (at < 0) return;
    if (at >= this.steps.length) {
      this.close();
      return;
    }
    this.at = at;
    const { title, text, settings } = this.steps[at];
    this.shell.update(settings);
    this.name.textContent = title;
    this.text.textContent = text;
    this.count.textContent = `${at + 1} of ${this.steps.length}`;
    this.back.disabled = at === 0;
    this.next.textContent = at + 1 < this.steps.length ? "Next" : "Done";
    this.card.hidden = false;
    this.outline();
    this.next.focus({ preventScroll: true });
  }

  /** Outline what the step is about, and bring it into sight. */
  outline() {
    this.shell.root.querySelectorAll(".toured").forEach((part) => part.classList.remove("toured"));
    this.target = /** @type {HTMLElement} */ (this.shell.root.querySelector(this.steps[this.at].target));
    if (!this.target) return;
    this.target.classList.add("toured");
    const { top, bottom, height } = this.target.getBoundingClientRect();
    const tall = height > innerHeight / 2;
    if (top < 0 || bottom > innerHeight - this.card.offsetHeight) this.target.scrollIntoView({ block: tall ? "start" : "center" });
    this.place();
  }

  /** Put the card below what it is about, or above; in a corner where there is no room, at the foot on phones. */
  place() {
    if (this.card.hidden || !this.target) return;
    const [box, { offsetWidth: width, offsetHeight: height }] = [this.target.getBoundingClientRect(), this.card];
    const across = document.documentElement.clientWidth;
    const phone = across <= PHONE_WIDTH;
    const below = box.bottom + TOUR_GAP;
    const above = box.top - TOUR_GAP - height;
    const corner = innerHeight - height - TOUR_GAP;
    const top = phone ? corner : below + height < innerHeight ? below : above > 0 ? above : corner;
    const left = phone ? (across - width) / 2 : top === corner ? across - width - 2 * TOUR_GAP : box.left;
    this.card.style.setProperty("top", `${Math.max(0, top)}px`);
    this.card.style.setProperty("left", `${Math.max(0, Math.min(left, across - width - (phone ? 0 : TOUR_GAP)))}px`);
  }

  /** Escape closes the card; arrows turn it while the focus is in it, and elsewhere do what they always do. */
  onKey(event) {
    if (this.card.hidden || document.querySelector("dialog[open]")) return;
    const inside = this.card.contains(event.target);
    const turns = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key !== "Escape" && !(inside && turns)) return;
    event.preventDefault();
    event.stopPropagation();
    if (turns) this.show(this.at + turns);
    else this.close();
  }

  /** The page stays as it is shown; its address says that the tour need not begin again. */
  close() {
    this.card.hidden = true;
    if (this.target) this.target.classList.remove("toured");
    keepInAddress({ tour: "off" });
    this.shell.update({});
    const { before } = this;
    if (before) before.focus();
  }
}
