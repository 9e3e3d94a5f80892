// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What the head view shows, apart from how: the settings, what they mean for the weights, and how
// they stand in the page's address. It touches no document.

/** Which sides of a sentence pair are drawn, as BertViz names them; values are for the address. */
const ATTENTION = [
  ["all", "All"],
  ["aa", "Sentence A → Sentence A"],
  ["bb", "Sentence B → Sentence B"],
  ["ab", "Sentence A → Sentence B"],
  ["ba", "Sentence B → Sentence A"],
];
const OPACITY = [
  ["absolute", "weight"],
  ["row", "÷ row maximum"],
  ["heads", "÷ heads on"],
];
const THEMES = ["auto", "light", "dark"];

/** @returns {number[]} numbers from small to large */
function inOrder(numbers) {
  return numbers.sort((a, b) => a - b);
}

class HeadState {
  /** @param {Object} payload as `head.py` makes it */
  constructor(payload) {
    this.payload = payload;
    this.sides = readSides(payload);
    this.reset({});
  }

  /** Go back to what the page starts with, except for the settings of an address. */
  reset(fragment) {
    Object.assign(this, this.start(), this.settingsFrom(fragment));
  }

  /** The settings that Python asked for. */
  start() {
    const { start } = this.payload;
    const side = this.sides[start.side || "alone"];
    return {
      side,
      layer: side.layers.indexOf(start.layer),
      heads: inOrder(start.heads.map((number) => side.heads.indexOf(number))),
      attention: "all",
      opacity: "absolute",
      mass: 1,
      hideSpecial: false,
      hideFirst: false,
      theme: start.theme,
      pin: null,
      hover: null,
    };
  }

  /**
   * What another side shows first: the same layer, or the nearest below; the same heads, or all if
   * all were on or none is there.
   * @param {{side: Side, layer: number, heads: number[]}} from
   * @param {Side} side
   */
  carry(from, side) {
    if (from.side === side) return { side, layer: from.layer, heads: from.heads };
    const wanted = from.side.layers[from.layer];
    const below = side.layers.filter((number) => number <= wanted);
    const layer = below.length ? side.layers.indexOf(Math.max(...below)) : 0;
    const every = side.heads.map((_, head) => head);
    const same = from.heads.map((head) => side.heads.indexOf(from.side.heads[head]));
    const heads = inOrder(same.filter((head) => head >= 0));
    const all = from.heads.length === from.side.heads.length || !heads.length;
    return { side, layer, heads: all ? every : heads, attention: "all", pin: null, hover: null };
  }

  /** Show another side. */
  turn(name) {
    Object.assign(this, this.carry(this, this.sides[name]));
    if (!this.hasSpecial()) this.hideSpecial = false;
  }

  /** Settings that an address holds; whatever does not fit this page is passed over. */
  settingsFrom(fragment) {
    const named = Object.keys(this.sides).includes(fragment.side);
    const found = named ? this.carry(this.start(), this.sides[fragment.side]) : {};
    const side = found.side || this.start().side;
    const layer = side.layers.indexOf(Number(fragment.layer));
    if ("layer" in fragment && layer >= 0) found.layer = layer;
    const numbers = (fragment.heads || "").split("-").filter(Boolean);
    const chosen = numbers.map((number) => side.heads.indexOf(Number(number)));
    if (chosen.length && !chosen.includes(-1)) found.heads = inOrder([...new Set(chosen)]);
    const known = (options, value) => options.some(([name]) => name === value);
    if (known(this.pairs(side), fragment.attention)) found.attention = fragment.attention;
    if (known(OPACITY, fragment.opacity)) found.opacity = fragment.opacity;
    if (fragment.mass >= 5 && fragment.mass < 100) found.mass = Math.round(fragment.mass) / 100;
    if (fragment.special === "hidden" && this.hasSpecial(side)) found.hideSpecial = true;
    if (fragment.first === "hidden") found.hideFirst = true;
    if (THEMES.includes(fragment.theme)) found.theme = fragment.theme;
    const [column, index] = (fragment.pin || "").split("-");
    const columns = ["left", "right"].includes(column) && /^\d+$/.test(index);
    if (columns && Number(index) < side[column].tokens.length) {
      found.pin = { side: column, index: Number(index) };
    }
    return found;
  }

  /** Settings as an address holds them, null where they are what the page starts with. */
  settings() {
    const asked = this.start();
    const start = { ...asked, ...this.carry(asked, this.side) };
    const unless = (same, value) => (same ? null : value);
    const numbers = (heads) => heads.map((head) => this.side.heads[head]).join("-");
    return {
      side: unless(this.side === asked.side, this.side.name),
      layer: unless(this.layer === start.layer, this.side.layers[this.layer]),
      heads: unless(numbers(this.heads) === numbers(start.heads), numbers(this.heads)),
      attention: unless(this.attention === "all", this.attention),
      opacity: unless(this.opacity === "absolute", this.opacity),
      mass: unless(this.mass === 1, Math.round(100 * this.mass)),
      special: unless(!this.hideSpecial, "hidden"),
      first: unless(!this.hideFirst, "hidden"),
      theme: unless(this.theme === start.theme, this.theme),
      pin: unless(!this.pin, this.pin && `${this.pin.side}-${this.pin.index}`),
    };
  }

  /** The choices there are for this text: sentence pairs have five. */
  pairs(side = this.side) {
    return side.paired ? ATTENTION : ATTENTION.slice(0, 1);
  }

  /** @returns {boolean} whether there is anything that could be hidden */
  hasSpecial(side = this.side) {
    return side.left.special.size + side.right.special.size > 0;
  }

  /** @returns {Layer} the present layer */
  layerWeights() {
    return this.side.layerAt(this.layer);
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

  /** @returns {Selection} */
  selection(focus) {
    const [left, right] = this.attention === "all" ? ["all", "all"] : this.attention;
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

  /** @returns {{side: string, index: number}|null} the token whose lines alone are drawn */
  focus() {
    return this.pin || this.hover;
  }

  layerNumber() {
    return this.side.layers[this.layer];
  }

  headNumber(head) {
    return this.side.heads[head];
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

  stepLayer(step) {
    this.layer = Math.max(0, Math.min(this.side.layers.length - 1, this.layer + step));
  }

  /** Hold a token; the one that is held already is let go. */
  hold(side, index) {
    const same = this.pin && this.pin.side === side && this.pin.index === index;
    this.pin = same ? null : { side, index };
  }

  /** @returns {boolean} whether pointing there changes anything */
  point(side, index) {
    const before = this.hover;
    this.hover = index === null ? null : { side, index };
    return JSON.stringify(before) !== JSON.stringify(this.hover);
  }

  letGo() {
    this.pin = null;
    this.hover = null;
  }
}
