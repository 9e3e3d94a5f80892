// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The neuron level: how one query of one head came to its weights, a row per key. It listens, and
// shows what `neuron_terms.js` computes, `neuron_layout.js` places and `neuron_paint.js` paints.

import { element } from "./elements.js";
import { buildTools, cellTip, decidedNodes, decidingNodes, foldButton, formulaNodes, headerNodes, keyRow, legendNodes } from "./neuron_elements.js";
import { layOutNeurons, QUERY_ROW, ROW, TITLES, TOP } from "./neuron_layout.js";
import { Diverging, formatNumber, numbersOf, paintKeys, paintPicture, paintQuery } from "./neuron_paint.js";
import { printedTable } from "./neuron_print.js";
import { QueryPicker } from "./neuron_queries.js";
import { bySize, HeadTerms, sumPairs, usualSize } from "./neuron_terms.js";
import { NeuronWalk } from "./neuron_walk.js";
import { CanvasPen, sizeCanvas, SvgPen, svgPicture } from "./pens.js";

/** So many dimensions are shown where only those that add most are. */
const TOP_DIMENSIONS = 8;
const SPOKEN_DIMENSIONS = 3;
const TALLEST_TABLE = 620;
/** A picture holds every key of a text so long, and of longer ones those in sight. */
const PICTURED = 96;
const MARGIN_OF_PICTURE = 16;

export class NeuronLevel {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {any} actions the shell
   */
  constructor(root, payload, state, actions) {
    this.root = root;
    this.payload = payload;
    this.state = state;
    this.actions = actions;
    /** Strips that were opened (true) or folded up, by name; others are open where there is room. */
    this.folds = new Map();
    this.note = element("p", { class: "neuron-note", role: "note" });
    this.picker = new QueryPicker();
    this.queries = this.picker.root;
    this.walk = new NeuronWalk((step) => this.walkTo(step));
    this.printed = element("div", { class: "neuron-printed" });
    this.print = () => this.preparePrint();
    this.deciding = element("p", { class: "neuron-formula deciding" });
    this.formula = element("p", { class: "neuron-formula" });
    this.decided = element("p", { class: "neuron-formula decided" });
    this.titles = element("div", { class: "neuron-titles", role: "row" });
    this.strips = element("canvas", { class: "neuron-strips", "aria-hidden": "true" });
    this.header = element("div", { class: "neuron-header" }, this.strips, this.titles, this.walk.marks.query);
    this.canvas = element("canvas", { class: "neuron-canvas", "aria-hidden": "true" });
    this.list = element("div", { class: "neuron-rows right", role: "rowgroup" });
    this.space = element("div", { class: "neuron-space" }, this.header, this.canvas, this.list, this.walk.marks.keys);
    this.scroller = element("div", { class: "neuron-scroller", role: "table", tabindex: "-1" }, this.space);
    this.legend = element("div", { class: "neuron-legend" });
    const walk = () => this.walkTo(this.state.walk === "off" ? "input" : "off");
    this.tools = buildTools(TOP_DIMENSIONS, (settings) => this.actions.update(settings), walk);
    const parts = [this.tools.root, this.formula, this.walk.root, this.deciding, this.decided, this.scroller, this.printed, this.legend];
    this.body = element("div", { class: "neuron-body" }, ...parts);
    root.replaceChildren(this.queries, this.note, this.body);
    this.listen();
  }

  listen() {
    window.addEventListener("beforeprint", this.print);
    this.scroller.addEventListener("scroll", () => this.paintSoon());
    this.scroller.addEventListener("pointermove", (event) => this.pointAt(event));
    this.scroller.addEventListener("pointerleave", () => this.actions.hideTip());
    for (const [list, side] of [[this.queries, "left"], [this.list, "right"]]) {
      const index = (event) => event.target.closest("[data-index]") && Number(event.target.closest("[data-index]").dataset.index);
      list.addEventListener("click", (event) => Number.isInteger(index(event)) && this.hold(side, index(event)));
      list.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") event.preventDefault();
        if ((event.key === "Enter" || event.key === " ") && Number.isInteger(index(event))) this.hold(side, index(event));
      });
    }
    this.queries.addEventListener("mouseover", (event) => {
      const token = event.target.closest("[data-index]");
      this.actions.point("left", token ? this.placeInState("left", Number(token.dataset.index)) : null);
    });
    this.queries.addEventListener("mouseleave", () => this.actions.point("left", null));
  }

  // Between words, which other levels may show, and tokens, which have vectors

  /** @returns {number|null} the token that a position of the state begins with */
  tokenAt(side, index) {
    const { groups } = /** @type {any} */ (this.state.side);
    return index === null || !groups ? index : groups[side][index][0];
  }

  /** @returns {number} the position of the state that holds a token */
  placeInState(side, token) {
    const { groups } = /** @type {any} */ (this.state.side);
    return groups ? groups[side].findIndex(([from, to]) => from <= token && token < to) : token;
  }

  hold(side, token) {
    this.actions.hold(side, this.placeInState(side, token));
  }

  /** @returns {number} the query that is held or pointed at; else one that has something to see */
  shownQuery() {
    const { state, side } = this;
    if (state.query !== null) return this.tokenAt("left", state.query);
    if (state.hover && state.hover.side === "left") return this.tokenAt("left", state.hover.index);
    const places = [...side.left.tokens.keys()];
    if (side.about.neuron.mask === "causal") return places[places.length - 1];
    const found = places.find((place) => !side.left.special.has(place));
    return found === undefined ? 0 : found;
  }

  // Showing

  draw() {
    const { state } = this;
    this.side = state.side.inTokens;
    const about = this.side.about.neuron;
    const lacking = this.lacking(about);
    this.note.textContent = lacking;
    this.note.hidden = !lacking;
    this.body.hidden = Boolean(lacking);
    this.queries.hidden = Boolean(lacking);
    if (lacking) return;
    for (const [name, box] of Object.entries(this.tools.boxes)) box.checked = ["top", "on", "weight"].includes(state[name]);
    this.picker.name(this.side.left);
    this.readHead(about);
    this.formula.replaceChildren(...formulaNodes(about, this.head.window));
    this.focus();
  }

  /** @returns {string} why there is nothing to show; empty if there is */
  lacking(about) {
    if (this.side.name === "all") return "Neurons are those of one attention: choose the side Encoder, Decoder or Cross.";
    if (!about) return "The queries and keys of this side were not captured: Capture(weights=True, query=True, key=True, value=True).";
    return about.problem;
  }

  /** Take in the vectors of the head, once. */
  readHead(about) {
    const { state, side } = this;
    const reading = `${state.layer} ${state.oneHead()}`;
    if (this.head && this.reading === reading && this.head.about === about) return;
    this.head = new HeadTerms(this.payload, side, state.layer, state.oneHead());
    this.reading = reading;
  }

  /** What a query, pinned or pointed at, changes. */
  focus() {
    if (this.body.hidden) return;
    this.terms = this.head.at(this.shownQuery());
    const { state, head, terms } = this;
    const walking = state.walk !== "off";
    const pinned = this.tokenAt("right", state.key);
    const held = pinned === null && walking ? bySize(terms.weights)[0] : pinned;
    const contributions = head.contributions(terms, held);
    const { depth, pairs, scale } = head.about;
    const lifts = sumPairs(contributions, depth, pairs, 1);
    const shares = sumPairs(terms.products, depth, pairs, scale);
    const every = (numbers) => [...numbers.keys()];
    const chosen = (numbers) => (state.dimensions === "top" ? bySize(numbers).slice(0, TOP_DIMENSIONS) : every(numbers));
    const keys = every(terms.dots);
    if (state.sorting === "weight") keys.sort((a, b) => terms.weights[b] - terms.weights[a] || a - b);
    const dimensions = chosen(contributions);
    this.placed = {
      about: head.about,
      width: this.root.clientWidth - 16,
      folds: this.folds,
      needed: this.walk.needed(state.walk, head.about),
      dimensions,
      rest: depth - dimensions.length,
      pairs: chosen(lifts),
      values: terms.output ? chosen(terms.output) : [],
      numbers: state.numbers === "on",
    };
    const layout = layOutNeurons(this.placed);
    /** @type {Object<string, number>} */
    const sizes = { ...head.sizes, product: usualSize(terms.products), contributions: usualSize(contributions) };
    if (terms.output) sizes.output = usualSize(terms.output);
    if (pairs) [sizes.pairs, sizes.lifts] = [usualSize(shares), usualSize(lifts)];
    const colours = new Diverging(...["--paper", "--negative", "--positive"].map((name) => this.actions.style(name)));
    this.scene = { held, layout, head, terms, contributions, shares, lifts, keys, dimensions, sizes, colours };
    this.held = held;
    const query = this.side.left.tokens[terms.query];
    const keyTokens = this.side.right.tokens;
    this.deciding.replaceChildren(...decidingNodes(this.scene, held, keyTokens));
    this.tools.folded.replaceChildren(...layout.folded.map((name) => foldButton(name, false, (one, open) => this.fold(one, open))));
    this.tools.start.textContent = walking ? "End the walk" : "Walk through the numbers";
    this.scroller.classList.toggle("small", layout.small);
    this.decided.replaceChildren(...decidedNodes(this.scene, held, keyTokens));
    this.decided.hidden = !pairs;
    this.titles.replaceChildren(...headerNodes(this.scene, query, held, (name, open) => this.fold(name, open)));
    this.legend.replaceChildren(...legendNodes(this.scene));
    this.picker.mark(terms.query, state.query !== null);
    this.range = "";
    this.paint();
    this.showRows(held);
    if (walking) this.walk.show(state.walk, this.scene, held, query, keyTokens);
    else this.walk.hide();
    this.say();
  }

  /** Rows of another query or order begin at the top, or with the key that is held. */
  showRows(held) {
    const { state, scene } = this;
    const order = `${this.reading} ${scene.terms.query} ${state.sorting}`;
    if (this.order === order && state.walk === "off") return;
    if (this.order !== order) this.scroller.scrollTop = 0;
    this.order = order;
    if (held !== null) this.reveal(scene.keys.indexOf(held));
  }

  fold(name, open) {
    this.folds.set(name, open);
    this.focus();
    this.body.querySelector(`.neuron-fold.${name}`).focus();
  }

  /** Go to a step of the walk; at its start its query and key are pinned. */
  walkTo(step) {
    const { state, terms } = this;
    const key = state.key === null ? this.placeInState("right", bySize(terms.weights)[0]) : state.key;
    const pins = { query: this.placeInState("left", terms.query), key };
    const starts = state.walk === "off";
    this.actions.update(step === "off" ? { walk: step } : { walk: step, ...pins });
    if (step === "off") this.tools.start.focus();
    else if (starts) this.walk.begin(this.scene.layout.small);
  }

  /** Put everything on the paper, also what the window does not show. */
  preparePrint() {
    this.printed.replaceChildren();
    if (this.body.hidden || this.root.hidden) return;
    const { state, scene, held } = this;
    const [queries, keys] = [this.side.left.tokens, this.side.right.tokens];
    if (state.walk !== "off") this.printed.append(NeuronWalk.printed(scene, held, queries[scene.terms.query], keys));
    this.printed.append(...printedTable(scene, this.placed, this.named(), this.actions.style("--paper")));
  }

  /** Texts and colours of a picture. */
  named() {
    const [ink, soft, accent] = ["--ink", "--soft", "--accent"].map((name) => this.actions.style(name));
    return { left: this.side.left.tokens, right: this.side.right.tokens, ink, soft, accent };
  }

  /** Paint once before the next frame, however often this is called. */
  paintSoon() {
    if (this.waiting || this.body.hidden) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  /** The rows in sight: cells on the canvas, the rest as elements. */
  paint() {
    const { scene, scroller, space } = this;
    const { layout, keys } = scene;
    const height = Math.min(TALLEST_TABLE, TOP + keys.length * ROW + 2);
    scroller.style.setProperty("height", `${height + (layout.width > this.root.clientWidth ? 16 : 0)}px`);
    space.style.setProperty("width", `${layout.width}px`);
    space.style.setProperty("height", `${TOP + keys.length * ROW}px`);
    scroller.setAttribute("aria-rowcount", String(keys.length + 1));
    const { scrollLeft: left, scrollTop: top } = scroller;
    const width = Math.min(scroller.clientWidth, layout.width);
    const first = Math.floor(top / ROW);
    const last = Math.min(keys.length, Math.ceil((top + height - TOP) / ROW));
    this.seen = { first, last, left, top };
    space.style.setProperty("--scrolled", `${left}px`);
    const strips = sizeCanvas(this.strips, width, TOP);
    strips.translate(-left, 0);
    paintQuery(new CanvasPen(strips), scene, TITLES, this.actions.style("--soft"));
    const context = sizeCanvas(this.canvas, width, height - TOP - 2);
    context.translate(-left, 0);
    paintKeys(new CanvasPen(context), scene, first, last, first * ROW - top);
    if (this.range === `${first} ${last}`) return;
    this.range = `${first} ${last}`;
    const rows = keys.slice(first, last).map((key, i) => keyRow(scene, key, first + i, this.side.right, this.held));
    this.list.replaceChildren(...rows);
    const entry = rows.find((row) => Number(row.dataset.index) === this.held) || rows[0];
    if (entry) entry.tabIndex = 0;
  }

  /** Tell a screen reader what is held. */
  say() {
    const { state, scene, held } = this;
    if (state.query === null && held === null) return;
    const { terms, contributions } = scene;
    const { left, right } = this.side;
    const best = bySize(contributions).slice(0, SPOKEN_DIMENSIONS).map((d) => `dimension ${d} ${formatNumber(contributions[d])}`);
    const strongest = bySize(terms.weights)[0];
    const key = held === null ? strongest : held;
    const numbers = numbersOf(scene, key);
    const decided = this.decided.textContent && `. ${this.decided.textContent}`;
    this.actions.speak(
      `${left.tokens[terms.query]} → ${right.tokens[key]}: q·k ${numbers.dot}, score ${numbers.score}, weight ${numbers.weight}; ${best.join(", ")}${decided}`,
    );
  }

  // Pointing

  /** @returns {{column: Object, dimension: number, key: number|null}|null} the cell under the pointer */
  cellAt(event) {
    const box = this.scroller.getBoundingClientRect();
    const x = event.clientX - box.left + this.scroller.scrollLeft;
    const y = event.clientY - box.top;
    const column = this.scene.layout.columns.find((one) => one.dimensions && x >= one.x && x < one.x + one.width);
    if (!column || y < TITLES) return null;
    const dimension = column.dimensions[Math.floor((x - column.x) / column.cell)];
    if (y < TOP) return { column, dimension, key: null };
    const key = this.scene.keys[Math.floor((y - TOP + this.scroller.scrollTop) / ROW)];
    return key === undefined ? null : { column, dimension, key };
  }

  pointAt(event) {
    const cell = this.cellAt(event);
    if (!cell) return this.actions.hideTip();
    return this.actions.showTip(cellTip(this.scene, cell, this.side.right.tokens, this.held), event);
  }

  // Keyboard

  /** @returns {boolean} whether the key was used: among rows, arrows move from row to row */
  key(event) {
    if (this.body.hidden) return false;
    if (this.walk.root.contains(document.activeElement)) return this.walkKey(event.key);
    if (!this.list.contains(document.activeElement)) return false;
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by) return false;
    const { keys } = this.scene;
    const from = this.held === null ? Number(/** @type {HTMLElement} */ (document.activeElement).dataset.index) : this.held;
    const key = keys[keys.indexOf(from) + by];
    if (key === undefined) return true;
    if (this.held !== key) this.hold("right", key);
    this.reveal(keys.indexOf(key));
    const row = /** @type {HTMLElement} */ (this.list.querySelector(`[data-index="${key}"]`));
    if (row) row.focus({ preventScroll: true });
    return true;
  }

  /** @returns {boolean} whether the key was used: in the walk, arrows go from step to step */
  walkKey(name) {
    if (name === "ArrowRight" && this.walk.at + 1 < this.walk.names.length) this.walk.step(1);
    else if (name === "ArrowLeft") this.walk.step(-1);
    else if (name === "Escape") this.walkTo("off");
    else if (name !== "ArrowRight") return false;
    return true;
  }

  /** Scroll a row into sight. */
  reveal(at) {
    const { scroller } = this;
    const room = scroller.clientHeight - TOP;
    scroller.scrollTop = Math.min(at * ROW, Math.max(scroller.scrollTop, (at + 1) * ROW - room));
    this.paint();
  }

  // Handing out

  /** What is on the canvas, by the numbers of the model. */
  drawn() {
    const { scene, seen, state } = this;
    const { layout, keys, terms, sizes } = scene;
    return {
      layer: state.layerNumber(),
      head: state.headNumber(state.oneHead()),
      query: terms.query,
      keys: keys.slice(seen.first, seen.last),
      columns: layout.columns,
      sizes,
      seen,
      rows: { first: TOP, height: ROW, query: TITLES + QUERY_ROW / 2 + 7 },
    };
  }

  /** @returns {{name: string, svg: string}|null} what is seen, as a file */
  picture() {
    if (this.body.hidden) return null;
    const { scene, seen, state } = this;
    const whole = scene.keys.length <= PICTURED;
    const [first, last] = whole ? [0, scene.keys.length] : [seen.first, seen.last];
    const pen = new SvgPen();
    const [ink, paper] = ["--ink", "--paper"].map((name) => this.actions.style(name));
    paintPicture(pen, scene, first, last, this.named());
    const [layer, head] = [state.layerNumber(), state.headNumber(state.oneHead())];
    pen.group.setAttribute("transform", `translate(${MARGIN_OF_PICTURE} 0)`);
    const caption = [this.payload.model, this.side.titles[0], `layer ${layer}`, `head ${head}`].filter(Boolean).join(", ");
    const height = TOP + (last - first) * ROW + 12;
    const prefix = this.side.alone ? "neurons" : `neurons-${this.side.name}`;
    return { name: `${prefix}-layer-${layer}-head-${head}`, svg: svgPicture(caption, scene.layout.width + 2 * MARGIN_OF_PICTURE, height, { ink, paper }, pen.group) };
  }

  destroy() {
    cancelAnimationFrame(this.waiting);
    window.removeEventListener("beforeprint", this.print);
  }
}
