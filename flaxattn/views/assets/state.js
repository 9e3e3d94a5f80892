// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What the page shows, apart from how: the settings that all levels share, what they mean for the
// weights. Their names and values are in `settings.js`. It touches no document.

import { goldNames, OFF } from "./gold.js";
import { asTexts, ATTENTION, describe, FREE, IN_ADDRESS, indexBelow, inOrder, RAW, SETTINGS, snapshot, withHead } from "./settings.js";
import { readSides } from "./sides.js";
import { inWords, knowsWords } from "./words.js";

export class State {
  /** @param {import("./types.js").Payload} payload */
  constructor(payload) {
    this.payload = payload;
    this.levels = payload.levels;
    this.cache = new Map();
    /** Names of the gold pairs that the page has. */
    this.goldNames = goldNames(payload);
    this.lastGold = "";
    // The settings, all of them set by `reset`.
    this.level = "";
    this.sequence = 0;
    /** @type {Object<string, import("./sides.js").Side>} */
    this.sides = {};
    /** @type {import("./sides.js").Side} */
    this.side = null;
    this.layer = 0;
    /** @type {number[]} */
    this.heads = [];
    /** @type {number|null} */
    this.query = null;
    /** @type {number|null} */
    this.key = null;
    /** @type {{side: "left"|"right", index: number}|null} */
    this.hover = null;
    this.mass = 1;
    this.measure = "";
    this.weights = RAW;
    this.gold = OFF;
    this.attention = "all";
    this.opacity = "absolute";
    this.special = "shown";
    this.first = "shown";
    this.unit = "tokens";
    this.labels = "source";
    this.direction = "from";
    this.drawing = "lines";
    this.order = "grid";
    this.dimensions = "top";
    this.numbers = "off";
    this.sorting = "weight";
    this.walk = "off";
    this.compare = "a";
    /** Whether it is that of one of three pictures. */
    this.inThree = false;
    this.theme = "auto";
    this.reset({});
  }

  /**
   * Go back to what the page starts with, except for the settings of an address. The token that the
   * page opens with belongs to its opening head, so an address of a head or a text does without it.
   */
  reset(address) {
    const fragment = withHead(address);
    const start = this.start();
    const elsewhere = ["sequence", "side", "layer", "heads"].some((name) => name in fragment);
    this.assign(this.settingsFrom(fragment, elsewhere ? { ...start, query: null, key: null } : start));
  }

  /** Take the settings of a state that was copied; what it does not tell stays as it is. */
  take(json) {
    this.assign(this.settingsFrom(asTexts(json), snapshot(this)));
  }

  /** The settings that Python asked for. */
  start() {
    const sides = this.sidesOf(0, SETTINGS.unit[0]);
    const side = Object.values(sides)[0];
    const usual = Object.fromEntries(Object.entries(SETTINGS).map(([name, values]) => [name, values[0]]));
    const heads = side.heads.map((_, head) => head);
    const blank = { sequence: 0, sides, side, layer: 0, heads, query: null, key: null, hover: null };
    const first = { ...usual, ...blank, level: this.levels[0], mass: 1, measure: "entropy", weights: RAW, gold: OFF };
    return this.settingsFrom(asTexts(this.payload.start), first);
  }

  /** The sides of a text, in tokens or in words, always the same objects. */
  sidesOf(sequence, unit) {
    const name = `${sequence} ${unit}`;
    if (!this.cache.has(name)) {
      const input = this.payload.inputs[sequence];
      const shows = () => this.shown;
      const make = () => readSides(this.payload, input, shows, () => this.labels === "source");
      this.cache.set(name, unit === "words" ? inWords(this.sidesOf(sequence, "tokens"), input) : make());
    }
    return this.cache.get(name);
  }

  /** Change settings; weights of other texts than the present one are forgotten. */
  assign(settings) {
    const left = this.sequence !== settings.sequence;
    Object.assign(this, settings);
    if (!left) return;
    for (const [name, sides] of this.cache) {
      if (!name.startsWith(`${this.sequence} `)) Object.values(sides).forEach((side) => side.decoded.clear());
    }
  }

  /** @returns {boolean} whether the text that was read is known, and reads otherwise than its tokens */
  hasSource() {
    const differs = ({ left, right }) => [left, right].some((column) => column.hasSource && column.sourceLabels().join("\n") !== column.read.join("\n"));
    return Object.values(this.sides).some(differs);
  }

  /** @returns {boolean} whether words can be shown in place of tokens */
  hasWords(sequence = this.sequence) {
    return knowsWords(this.sidesOf(sequence, "tokens"));
  }

  /**
   * What another side shows first: the same layer, or the nearest below; the same heads, or all if
   * all were on or none is there.
   * @param {Object} from settings
   * @param {import("./sides.js").Side} side
   */
  carry(from, side) {
    if (from.side === side) return {};
    const wanted = from.side.layers[from.layer];
    const below = side.layers.filter((number) => number <= wanted);
    const layer = below.length ? side.layers.indexOf(Math.max(...below)) : 0;
    const every = side.heads.map((_, head) => head);
    const same = from.heads.map((head) => side.heads.indexOf(from.side.heads[head]));
    const heads = inOrder(same.filter((head) => head >= 0));
    const all = from.heads.length === from.side.heads.length || !heads.length;
    const attention = side.paired && side.name === from.side.name ? from.attention : ATTENTION[0][0];
    const special = this.hasSpecial(side) ? from.special : SETTINGS.special[0];
    const weights = this.kinds(side).includes(from.weights) ? from.weights : RAW;
    return { side, layer, heads: all ? every : heads, attention, special, weights, query: null, key: null, hover: null };
  }

  /**
   * Settings as an address tells them, on top of others; whatever does not fit is passed over.
   * @param {Object<string, string>} record
   * @param {Object} base settings
   */
  settingsFrom(record, base) {
    const found = { ...base };
    const sequence = indexBelow(record.sequence, this.payload.inputs.length);
    if (sequence !== null) found.sequence = sequence;
    if (SETTINGS.unit.includes(record.unit) && this.hasWords(found.sequence)) found.unit = record.unit;
    found.sides = this.sidesOf(found.sequence, found.unit);
    const name = Object.keys(found.sides).includes(record.side) ? record.side : base.side.name;
    Object.assign(found, this.carry(found, found.sides[name]));
    this.fillFree(record, found);
    this.fillSide(record, found);
    return found;
  }

  /** Read settings that mean the same on every side. */
  fillFree(record, found) {
    for (const setting of FREE) {
      if (setting === "compare" && !this.payload.names) continue; // of one trace there is no other
      if (record[setting] === "surprise" && !this.payload.inputs[found.sequence].predictions) continue;
      if (SETTINGS[setting].includes(record[setting])) found[setting] = record[setting];
    }
    if (this.levels.includes(record.level)) found.level = record.level;
    if (!this.hasSpecial(found.side)) found.special = SETTINGS.special[0];
    const percent = Number(record.mass);
    if (percent >= 5 && percent <= 100) found.mass = Math.round(percent) / 100;
    if (record.gold === OFF || this.goldNames.includes(record.gold)) found.gold = record.gold;
    const known = this.measures(found.side);
    if (known.includes(record.measure)) found.measure = record.measure;
    if (!known.includes(found.measure)) found.measure = known.includes("entropy") ? "entropy" : known[0] || "";
  }

  /** Read settings that mean something on one side only. */
  fillSide(record, found) {
    const { side } = found;
    const layer = record.layer ? side.layers.indexOf(Number(record.layer)) : -1;
    if (layer >= 0) found.layer = layer;
    const numbers = (record.heads || "").split("-").filter(Boolean);
    const chosen = numbers.map((number) => side.heads.indexOf(Number(number)));
    if (chosen.length && !chosen.includes(-1)) found.heads = inOrder(chosen);
    if (this.kinds(side).includes(record.weights)) found.weights = record.weights;
    if (this.pairs(side).some(([value]) => value === record.attention)) found.attention = record.attention;
    const query = indexBelow(record.query, side.left.tokens.length);
    const key = indexBelow(record.key, side.right.tokens.length);
    if (query !== null || record.query === "none") found.query = query;
    if (key !== null || record.key === "none") found.key = key;
  }

  /** Turn from attention of the pinned token to attention on it, or back, the token being pinned still. */
  turn(direction) {
    const turned = direction === "to" || this.direction === "to";
    this.direction = direction;
    if (!turned) return;
    const { left, right } = this.side.about;
    const alike = left.join() === right.join();
    const index = direction === "to" ? this.query : this.key;
    Object.assign(this, { query: null, key: null, hover: null });
    if (alike && index !== null) Object.assign(this, direction === "to" ? { key: index } : { query: index });
  }

  /** Change settings; a text, a unit or a side (by its name) bring others with them. */
  set(settings) {
    const { sequence, unit, side, ...rest } = settings;
    const turn = asTexts({ sequence, unit, side });
    if (Object.keys(turn).length) this.assign(this.settingsFrom(turn, snapshot(this)));
    Object.assign(this, rest);
  }

  /** @returns {Object<string, any>} every setting, by the numbers of the model */
  json() {
    return describe(this);
  }

  /** Settings as an address holds them, null where they are what the page starts with. */
  settings() {
    const first = this.start();
    const usual = this.settingsFrom(asTexts({ sequence: this.sequence, unit: this.unit, side: this.side.name }), first);
    const origin = { sequence: first.sequence, unit: first.unit, side: first.side.name };
    const start = asTexts({ ...describe(usual), ...origin });
    const present = { ...start, query: "none", key: "none", ...asTexts(describe(this)) };
    const same = (name) => present[name] === (start[name] || "none");
    const kept = Object.fromEntries(IN_ADDRESS.map((name) => [name, same(name) ? null : present[name]]));
    if (this.level !== "profile") return kept;
    return { ...kept, level: null, layer: null, heads: null, head: `${this.layerNumber()}.${this.headNumber(this.oneHead())}` };
  }

  /** The choices there are for this text: sentence pairs have five. */
  pairs(side = this.side) {
    return side.paired ? ATTENTION : ATTENTION.slice(0, 1);
  }

  /** @returns {string[]} names of the weights that a side has: attention, and what was given beside it */
  kinds(side = this.side) {
    return [RAW, ...Object.keys(side.about.other || {})];
  }

  /** What is known of the weights that are shown; null of attention itself. */
  get kind() {
    return this.weights === RAW ? null : this.side.about.other[this.weights];
  }

  /** @returns {string} what is shown, and what a weight of 1 stands for in the present layer */
  meaning() {
    const { kind } = this;
    if (!kind) return "attention weight";
    return kind.shares ? kind.label : `${kind.label}, 1 = ${kind.peaks[this.layer]}, the layer’s largest`;
  }

  /** @returns {string[]} names of the numbers that are known of the heads of a side */
  measures(side = this.side) {
    if (this.payload.report) return Object.keys(this.payload.report.values[side.name] || {});
    const known = new Set();
    for (const measure of (side.about.measures || []).flat()) {
      Object.keys(measure).forEach((name) => known.add(name));
    }
    known.delete("does");
    return [...known];
  }

  /** @returns {boolean} whether there is anything that could be hidden */
  hasSpecial(side = this.side) {
    return side.left.special.size + side.right.special.size > 0;
  }

  get hideSpecial() {
    return this.special === "hidden";
  }

  get hideFirst() {
    return this.first === "hidden";
  }

  /** @returns {string} what is shown in place of the attention of one trace, in words; empty if nothing */
  shownName() {
    const { names } = this.payload;
    if (this.kind) return this.kind.label;
    if (!names) return "";
    return { a: names[0], b: names[1], difference: `${names[1]} − ${names[0]}` }[this.shown];
  }

  /** Whether the head level shows both traces and their difference, beside each other. */
  get together() {
    return this.compare === "together" && this.level === "head" && !this.kind;
  }

  /** @returns {string} what is shown: a trace, the difference, or a kind of weights; one of three, the difference */
  get shown() {
    if (this.weights !== RAW) return this.weights;
    return this.compare === "together" ? "difference" : this.compare;
  }

  /** @returns {State} the same state, of which one trace or the difference is shown; what is set in it is set here */
  as(trace) {
    const own = { compare: trace, inThree: true };
    return new Proxy(this, { get: (target, name, receiver) => (Object.hasOwn(own, name) ? own[name] : Reflect.get(target, name, receiver)) });
  }

  /** Whether what is shown is one trace less the other. */
  get differs() {
    return this.shown === "difference";
  }

  /** Whether what is shown can be below 0. */
  get signed() {
    return this.kind ? this.kind.signed : this.differs;
  }

  /** Whether rows sum to one, so that what is left of them can be scaled up to that again. */
  get shares() {
    return !this.kind || this.kind.shares;
  }

  get words() {
    return this.unit === "words";
  }

  /** @returns {import("./lines.js").Layer} the present layer; of one of three pictures, with the scale of both traces */
  layerWeights() {
    if (this.inThree && !this.differs) return this.side.layerBeside(this.layer, this.shown);
    return this.side.layerOf(this.layer, this.shown);
  }

  /** @returns {number[]} positions of a column's sentence "a" or "b", or all, less the hidden ones */
  positions(column, sentence) {
    const { tokens, special, boundary } = this.side[column];
    const from = sentence === "b" ? boundary : 0;
    const to = sentence === "a" ? boundary : tokens.length;
    const all = Array.from({ length: to - from }, (_, i) => from + i);
    return this.hideSpecial ? all.filter((position) => !special.has(position)) : all;
  }

  /** @returns {Set<number>|null} keys that are left out of every row */
  hiddenKeys() {
    const special = this.hideSpecial ? [...this.side.right.special] : [];
    const first = this.hideFirst ? [...this.side.firsts] : [];
    return special.length + first.length ? new Set([...special, ...first]) : null;
  }

  /** @returns {string} what is left out, in words; empty if nothing */
  leftOut() {
    const first = this.side.firsts.size > 1 ? "the first tokens" : "the first token";
    const parts = [this.hideSpecial ? "special tokens" : "", this.hideFirst ? first : ""];
    return parts.filter(Boolean).join(" and ");
  }

  /** @returns {import("./lines.js").Selection} */
  selection(focus) {
    const [left, right] = this.attention === "all" ? ["all", "all"] : [...this.attention];
    return {
      heads: this.heads,
      queries: this.positions("left", left),
      keys: this.positions("right", right),
      hidden: this.hiddenKeys(),
      mass: this.mass,
      opacity: this.opacity,
      focus,
    };
  }

  /** @returns {{side: "left"|"right", index: number}|null} the one token that is pinned */
  pin() {
    if (this.query !== null) return { side: "left", index: this.query };
    return this.key === null ? null : { side: "right", index: this.key };
  }

  /**
   * The token whose lines alone are drawn: the pinned one, or on its side the one pointed at.
   * @returns {{side: "left"|"right", index: number}|null}
   */
  focus() {
    const pin = this.pin();
    const both = this.query !== null && this.key !== null;
    return this.hover && !both && (!pin || pin.side === this.hover.side) ? this.hover : pin;
  }

  /** @returns {boolean} whether the token whose lines are drawn is pinned */
  isPinned() {
    const [pin, focus] = [this.pin(), this.focus()];
    return pin !== null && pin.side === focus.side && pin.index === focus.index;
  }

  /** @returns {{query: number, key: number}|null} the two tokens whose weight is shown */
  pair() {
    const over = (side) => (this.hover && this.hover.side === side ? this.hover.index : null);
    if (this.query !== null && over("right") !== null) return { query: this.query, key: over("right") };
    if (this.query === null && this.key !== null && over("left") !== null) return { query: over("left"), key: this.key };
    return this.query !== null && this.key !== null ? { query: this.query, key: this.key } : null;
  }

  layerNumber() {
    return this.side.layers[this.layer];
  }

  headNumber(head) {
    return this.side.heads[head];
  }

  /** @returns {number} the head that is shown where there is room for one */
  oneHead() {
    return this.heads[0];
  }

  /** Switch a head on or off; the last one stays on. */
  toggleHead(head) {
    if (!this.heads.includes(head)) this.heads = inOrder([...this.heads, head]);
    else if (this.heads.length > 1) this.heads = this.heads.filter((other) => other !== head);
  }

  /** Only this head; all of them if it is the only one already. */
  soloHead(head) {
    const alone = this.heads.length === 1 && this.heads[0] === head;
    this.heads = alone ? this.side.heads.map((_, i) => i) : [head];
  }

  /** The head before or after the one that is shown, alone. */
  stepHead(step) {
    const alone = this.heads.length === 1;
    this.heads = [Math.max(0, Math.min(this.side.heads.length - 1, this.oneHead() + (alone ? step : 0)))];
  }

  stepLayer(step) {
    this.layer = Math.max(0, Math.min(this.side.layers.length - 1, this.layer + step));
  }

  /** Pin a token; the one that is pinned already is let go. */
  hold(side, index) {
    if (side === "left") this.query = this.query === index ? null : index;
    else this.key = this.key === index ? null : index;
  }

  /** @returns {boolean} whether pointing there changes anything */
  point(side, index) {
    const before = this.hover;
    this.hover = index === null ? null : { side, index };
    return JSON.stringify(before) !== JSON.stringify(this.hover);
  }

  /** Gold pairs off, or on again: those of before, else the first that the page has. */
  toggleGold() {
    const last = this.lastGold || this.goldNames[0] || OFF;
    if (this.gold !== OFF) this.lastGold = this.gold;
    this.gold = this.gold === OFF ? last : OFF;
  }

  letGo() {
    Object.assign(this, { query: null, key: null, hover: null });
  }
}
