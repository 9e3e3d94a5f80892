// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The text level: running text, shaded by the attention of one token or by that on it. `drawn()` hands
// out what is shaded, for tests and scripts.

import { blendColours, inkOn } from "./colours.js";
import { element, fillWith, tokenText } from "./elements.js";
import { formatWeight } from "./numbers.js";
import { headsPanel, MORE, pairPanel, tokenPanel } from "./panel.js";
import { meanOn } from "./rows.js";
import { legend, scaleColours, weightStep } from "./scale.js";
import { spanNote, textBlock } from "./text_blocks.js";
import { textPicture } from "./text_picture.js";
import { formatNats, shadesOf, surpriseScale, surpriseShade, togetherOf, weightAt } from "./text_weights.js";

/** How many tokens are listed with a part of their bar for each head. */
const DETAILED = 10;

export class TextLevel {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {import("./shell.js").Shell} actions
   */
  constructor(root, payload, state, actions) {
    this.root = root;
    this.payload = payload;
    this.state = state;
    this.actions = actions;
    this.what = element("span");
    this.scale = element("span", { class: "text-scale" });
    this.badge = element("span", { class: "badge", hidden: true });
    this.status = element("p", { class: "status", role: "status" }, this.what, this.scale, this.badge);
    this.panel = element("aside", { class: "panel", "aria-label": "Weights" });
    this.texts = element("div", {
      class: "running",
      mouseover: (event) => this.pointAt(event),
      mouseleave: () => this.leave(),
      click: (event) => this.hold(event.target),
    });
    /** @type {{left: import("./text_blocks.js").Block, right: import("./text_blocks.js").Block}} */
    this.blocks = null;
    /** @type {import("./sides.js").Side} whose texts are put up */
    this.side = null;
    this.shown = "";
    root.replaceChildren(this.status, element("div", { class: "body" }, this.texts, this.panel));
  }

  destroy() {
    this.actions.hideTip();
  }

  // Which token is looked at, and from which side

  /** The side of the token whose attention is shown: it attends, or it is attended to. */
  get own() {
    return this.state.direction === "to" ? "right" : "left";
  }

  get other() {
    return this.state.direction === "to" ? "left" : "right";
  }

  /** @returns {boolean} whether the same text attends and is attended to */
  get alike() {
    const { left, right } = this.state.side.about;
    return left.join() === right.join();
  }

  /** The side that is shaded. */
  get shaded() {
    if (this.surprise) return "left";
    return this.index === null ? "right" : this.other;
  }

  /** Whether what is shaded can be below 0. */
  get signed() {
    return this.state.signed && !this.surprise;
  }

  get pinned() {
    return this.own === "left" ? this.state.query : this.state.key;
  }

  /** @returns {number|null} the token that is pinned, else the one that is pointed at */
  get index() {
    if (this.pinned !== null) return this.pinned;
    const { hover } = this.state;
    return hover && hover.side === this.own ? hover.index : null;
  }

  /** @returns {number[]} tokens that can be pinned */
  get choices() {
    return this.own === "left" ? this.selection.queries : this.selection.keys;
  }

  // Showing

  draw() {
    const { state } = this;
    this.selection = state.selection(null);
    this.received = null;
    this.surprise = state.direction === "surprise" ? MORE.surprise(state) : null;
    this.fit();
    const one = state.heads.length === 1 && !state.signed && !this.surprise;
    this.colours = one ? this.coloursOf(state.heads[0]) : scaleColours(this.signed);
    this.badge.hidden = !state.leftOut() || Boolean(this.surprise);
    this.badge.textContent = state.shares ? "renormalised" : "left out";
    this.badge.title = `Weights on ${state.leftOut()} are left out.`;
    this.showLegend();
    this.focus();
  }

  /** @returns {string[]} from nothing to the colour of a head */
  coloursOf(head) {
    const [paper, colour] = [this.actions.style("--paper"), this.actions.colourOf(head)];
    return Array.from({ length: 256 }, (_, i) => blendColours(paper, colour, i / 255));
  }

  /** Put up the texts of a side. */
  fit() {
    const { side, hideSpecial } = this.state;
    const shown = `${hideSpecial}`;
    if (this.side === side && this.shown === shown) return;
    Object.assign(this, { side, shown });
    const make = (name, title) => textBlock(side[name], title, hideSpecial ? side[name].special : new Set());
    const left = make("left", this.alike ? "" : side.titles[1]);
    this.blocks = { left, right: this.alike ? left : make("right", side.titles[2]) };
    this.texts.replaceChildren(...new Set([this.blocks.left.root, this.blocks.right.root]));
    for (const name of this.alike ? ["left"] : ["left", "right"]) {
      this.blocks[name].root.dataset.side = name;
      for (const span of this.blocks[name].spans) Object.assign(span.node, { span, column: side[name] });
    }
  }

  /** @returns {{shades: string[], marks: [number, string][], unit: string}} colours, places of numbers among them, and what these are */
  scaleOf() {
    const { state } = this;
    if (this.surprise) return surpriseScale(this.colours);
    const place = (weight) => (state.signed ? (1 + Math.sign(weight) * Math.sqrt(Math.abs(weight))) / 2 : Math.sqrt(weight));
    const weights = state.signed ? [-1, -0.25, 0, 0.25, 1] : [0, 0.1, 0.25, 0.5, 1];
    const marks = weights.map((weight) => [place(weight), String(weight).replace("-", "−")]);
    const unit = state.opacity === "row" ? "share of the row’s largest weight" : state.kind ? state.meaning() : "weight";
    return { shades: this.colours, marks: /** @type {any} */ (marks), unit };
  }

  showLegend() {
    const { shades, marks, unit } = this.scaleOf();
    this.scale.replaceChildren(element("span", { text: unit }), legend(shades, marks));
  }

  /** What a token, pinned or pointed at, changes. */
  focus() {
    const { state, index } = this;
    const layer = state.layerWeights();
    if (index === null && !this.received) this.received = shadesOf(layer, this.selection, "", 0);
    this.found = index === null ? this.received : shadesOf(layer, this.selection, this.own, index);
    const { shaded } = this;
    if (!this.alike) this.blocks[shaded === "left" ? "right" : "left"].spans.forEach((span) => this.paint(span, undefined));
    for (const span of this.blocks[shaded].spans) this.paint(span, this.shadeOf(span.tokens));
    this.mark(index);
    this.showWhat(index);
    this.showPanel(index);
  }

  /** @returns {number|undefined} what a span of text is shaded by, between -1 and 1 */
  shadeOf(tokens) {
    if (this.surprise) return surpriseShade(togetherOf(this.surprise, tokens, false));
    return togetherOf(this.found.shades, tokens, this.shaded === "left");
  }

  /** Shade a span; undefined leaves it as it is without attention. */
  paint(span, shade) {
    const none = shade === undefined;
    const broken = Number.isNaN(shade);
    const colour = none || broken ? "" : this.colours[weightStep(shade, this.signed)];
    if (span.colour === colour && span.broken === broken) return;
    Object.assign(span, { colour, broken });
    fillWith(span.node, colour);
    span.node.style.setProperty("color", colour ? inkOn(colour) : "");
    span.node.classList.toggle("broken", broken);
  }

  /** Frame the token whose attention is shown; the keyboard begins there. */
  mark(index) {
    const { spans } = this.blocks[this.own];
    const focused = spans.find(({ node }) => node === document.activeElement);
    for (const node of this.texts.querySelectorAll(".chosen, .held, [tabindex]")) {
      node.classList.remove("chosen", "held");
      if (!focused || node !== focused.node) node.removeAttribute("tabindex"); // without it, focus would be lost
      node.removeAttribute("aria-selected");
    }
    const chosen = index === null ? undefined : spans.find(({ tokens }) => tokens.includes(index));
    if (chosen) {
      chosen.node.classList.add("chosen");
      chosen.node.classList.toggle("held", this.pinned !== null);
      chosen.node.setAttribute("aria-selected", String(this.pinned !== null));
    }
    const entry = (this.pinned !== null && chosen) || focused || spans.find(({ tokens }) => this.choices.includes(tokens[0]));
    if (entry) entry.node.tabIndex = 0;
  }

  showWhat(index) {
    const { state } = this;
    if (this.surprise) {
      this.what.textContent = "Surprise: −ln of the probability that the model gave to each token, from those before it.";
      return;
    }
    const heads = state.heads.length > 1 ? `, mean of ${state.heads.length} heads` : `, head ${state.headNumber(state.heads[0])}`;
    if (index === null) {
      this.what.replaceChildren(`Attention that each token receives${heads}, mean over all tokens. Point at a word for its own.`);
      return;
    }
    const column = state.side[this.own];
    this.what.replaceChildren(`Attention ${state.direction} `, tokenText(column.labelOf(index)), heads);
  }

  showPanel(index) {
    const { state, actions } = this;
    const heads = state.heads.map((head) => actions.facts(head));
    if (index === null) {
      this.panel.replaceChildren(...headsPanel(state.layerNumber(), heads));
      actions.speak("");
      return;
    }
    const pair = state.pair();
    if (pair && this.selection.queries.includes(pair.query) && this.selection.keys.includes(pair.key)) this.showPair(pair);
    else this.showToken(index);
  }

  /** The weight of each head between two tokens. */
  showPair({ query, key }) {
    const { state, actions } = this;
    const facts = state.heads.map((head) => {
      const weight = weightAt(state.layerWeights(), this.selection, head, query, key);
      return { head: actions.facts(head), weight, colour: actions.colourOfLine({ head, weight }) };
    });
    const { left, right } = state.side;
    this.panel.replaceChildren(...pairPanel(left.labelOf(query), right.labelOf(key), facts));
  }

  /** @returns {number|undefined} what a span has of one head's attention from or to a token */
  weightOfHead(head, index, tokens) {
    const one = (place) => (this.own === "left" ? [index, place] : [place, index]);
    const layer = this.state.layerWeights();
    const values = new Map(tokens.filter((place) => this.found.weights.has(place)).map((place) => [place, weightAt(layer, this.selection, head, ...one(place))]));
    return togetherOf(values, tokens, this.own === "right");
  }

  /** The spans of text with the largest weights. */
  showToken(index) {
    const { state, actions } = this;
    const layer = state.layerWeights();
    const [own, other] = [state.side[this.own], state.side[this.other]];
    const attends = this.own === "right";
    const rank = ({ mean }) => (Number.isNaN(mean) ? 2 : Math.abs(mean)); // above every weight
    const means = this.blocks[this.other].spans.map(({ tokens }) => ({ tokens, mean: togetherOf(this.found.weights, tokens, attends) }));
    const ranked = means.filter(({ mean }) => mean !== undefined && mean !== 0).sort((a, b) => rank(b) - rank(a));
    const part = (tokens) => (head) => {
      const weight = this.weightOfHead(head, index, tokens);
      return [Math.abs(weight) / state.heads.length || 0, actions.colourOfLine({ head, weight })];
    };
    const listed = ranked.map(({ tokens, mean }, i) => ({
      token: other.labelOf(tokens[0]),
      mean,
      parts: i < DETAILED ? state.heads.map(part(tokens)) : [],
    }));
    const onFirst = this.own === "left" && !state.signed && !state.kind ? meanOn(layer, state.heads, index, state.side.firsts) : null;
    this.panel.replaceChildren(...tokenPanel(own.labelOf(index), this.own, listed, state.heads.length, onFirst, state.meaning()));
    const notes = MORE.note(this.panel, state, this.own, index, actions);
    const best = listed.slice(0, 3).map(({ token, mean }) => `${token} ${formatWeight(mean)}`);
    const said = `${this.panel.firstChild.textContent}: ${best.join(", ")}`;
    actions.speak(this.pinned === null ? "" : [said, notes].filter(Boolean).join(". "));
  }

  // Pointing and keys

  /** @returns {any} the span of running text that an element is in, with `span` and `column` */
  runOf(target) {
    return target.closest(".run");
  }

  pointAt(event) {
    const run = this.runOf(event.target);
    if (!run) return this.leave();
    const [index] = run.span.tokens;
    const inOwn = this.alike ? this.pinned === null : this.blocks[this.own].root.contains(run);
    this.actions.point(inOwn ? this.own : this.other, index);
    return this.actions.showTip(this.tip(run), run);
  }

  leave() {
    this.actions.hideTip();
    this.actions.point(this.own, null);
  }

  /** @returns {Node[]} a span of text, the tokens behind it, and its weight */
  tip({ span, column, textContent }) {
    const { tokens } = span;
    const { shaded } = this;
    const here = this.alike || column === this.state.side[shaded];
    const weight = here ? togetherOf(this.surprise || this.found.weights, tokens, shaded === "left" && !this.surprise) : undefined;
    const note = spanNote(column, tokens);
    return [
      element("strong", {}, tokenText(textContent)),
      ...(note ? [element("span", { class: "read", text: note })] : []),
      ...(weight === undefined ? [] : [element("span", { class: "value", text: this.surprise ? formatNats(weight) : formatWeight(weight) })]),
    ];
  }

  /** Pin the token that is clicked: the one that is looked from, or in another text the one it looks at. */
  hold(target) {
    const run = this.runOf(target);
    if (!run) return;
    const side = this.blocks[this.own].root.contains(run) ? this.own : this.other;
    const positions = side === "left" ? this.selection.queries : this.selection.keys;
    if (positions.includes(run.span.tokens[0])) this.actions.hold(side, run.span.tokens[0]);
  }

  /** @returns {boolean} whether the level does something at that key */
  key(event) {
    const inside = this.runOf(event.target);
    if (inside && ["Enter", " "].includes(event.key)) {
      this.hold(inside);
      return true;
    }
    const rightToLeft = inside && getComputedStyle(inside).direction === "rtl";
    const across = rightToLeft ? { ArrowLeft: 1, ArrowRight: -1 } : { ArrowLeft: -1, ArrowRight: 1 };
    const by = { ArrowUp: -1, ArrowDown: 1, ...(inside ? across : {}) }[event.key];
    if (!by) return false;
    this.step(by, inside);
    return true;
  }

  /** Pin the token before or after the one that is pinned, else that with the focus; else the first one. */
  step(by, inside) {
    const { choices, state, pinned } = this;
    const own = inside && this.blocks[this.own].root.contains(inside);
    const from = pinned === null && own ? inside.span.tokens[0] : pinned;
    const index = choices[from === null ? 0 : choices.indexOf(from) + by];
    if (index === undefined) return;
    this.actions.refocus(() => Object.assign(state, this.own === "left" ? { query: index } : { key: index }));
    const chosen = /** @type {HTMLElement} */ (this.texts.querySelector(".chosen"));
    if (!chosen) return;
    chosen.scrollIntoView({ block: "nearest" });
    if (inside) chosen.focus();
  }

  // Handing out

  /** What is seen, as a file. */
  picture() {
    const { state, payload, index } = this;
    const { side } = state;
    const chosen = state.heads.map((head) => side.heads[head]).join(" ");
    const what = this.surprise ? "surprise" : index === null ? "attention received" : `attention ${state.direction} ${side[this.own].labelOf(index)}`;
    const caption = [payload.model, side.titles[0], `layer ${state.layerNumber()}`, `heads ${chosen}`, state.shownName(), what].filter(Boolean).join(", ");
    const name = `${side.alone ? "text" : `text-${side.name}`}-layer-${state.layerNumber()}`;
    const colours = { ink: this.actions.style("--ink"), paper: this.actions.style("--paper") };
    return { name, svg: textPicture(this.texts, caption, colours, this.scaleOf()) };
  }

  /** What is shaded, by position: means over the heads that are on. */
  drawn() {
    return { side: this.shaded, index: this.index, weights: Object.fromEntries(this.surprise || this.found.weights), layer: this.state.layerNumber() };
  }
}
