// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// One page with several levels over one state: it opens them, hears the keyboard, keeps the address,
// and is the only one that changes the state. What a level draws is its own business.

import { readFragment, writeFragment } from "./address.js";
import { Bar } from "./bar.js";
import { applyTheme, COLOURS, headColours, styleValue } from "./colours.js";
import { CorpusBar, readCorpus } from "./corpus_bar.js";
import { element } from "./elements.js";
import { savePng, saveSvg } from "./files.js";
import { Glossary } from "./glossary.js";
import { helpDialog } from "./help.js";
import { Printing } from "./printing.js";
import { SETTINGS } from "./settings.js";
import { State } from "./state.js";
import { StateDialog } from "./state_dialog.js";
import { Tour } from "./tour.js";

export class Shell {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {Object<string, import("./main.js").Kind>} kinds levels by name
   */
  constructor(root, payload, kinds) {
    this.root = root;
    this.payload = payload;
    this.kinds = kinds;
    this.state = new State(payload);
    this.state.reset(readFragment());
    /** @type {Object<string, any>} levels that are open, by name */
    this.levels = {};
    this.width = 0;
    /** Whether an image is being made. */
    this.busy = false;
    this.build();
    this.applyTheme();
    this.show();
    this.listen();
    new Printing(this);
    this.glossary = new Glossary(this.root, (text) => this.speak(text));
    this.tour = new Tour(this);
  }

  /** The level that shows. */
  get level() {
    return this.levels[this.state.level];
  }

  build() {
    const corpus = readCorpus();
    this.corpus = corpus && new CorpusBar(corpus);
    this.help = helpDialog(Object.keys(this.state.sides).length > 1, Boolean(this.payload.names), this.state.kinds().length > 1, Boolean(corpus));
    this.stateDialog = new StateDialog((json) => this.step(() => this.state.take(json), true));
    this.tip = element("div", { class: "tip", role: "tooltip", hidden: true });
    this.spoken = element("p", { class: "spoken", "aria-live": "polite" });
    this.saving = element("p", { class: "saving", role: "status", hidden: true });
    this.bar = new Bar(this, this.kinds);
    this.stage = element("div", { class: "levels" });
    this.root.replaceChildren(
      ...(this.corpus ? [this.corpus.root] : []),
      this.bar.root,
      this.stage,
      this.buildFooter(),
      this.tip,
      this.spoken,
      this.saving,
      this.help,
      this.stateDialog.root,
    );
  }

  buildFooter() {
    const { precision, error, note, blocks } = this.payload;
    if (note || !Object.keys(blocks).length) return element("footer", { text: note || "Numbers are means over the tokens of this text." });
    const bound = precision === "float16" ? error.toPrecision(2) : `${(100 * error).toPrecision(2)} % of the largest in its row`;
    const twice = this.payload.names ? " A difference is rounded by at most twice that." : "";
    const other = this.payload.inputs.some(({ sides }) => sides.some((side) => side.other)) ? " Of other weights than attention, that is a share of what 1 stands for." : "";
    const text = `Each weight on this page is rounded by at most ${bound}.${twice}${other}`;
    return element("footer", { text });
  }

  listen() {
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("hashchange", () => {
      this.state.reset(readFragment());
      this.applyTheme();
      this.show();
    });
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", () => this.setTheme(this.state.theme));
    new ResizeObserver(() => this.root.clientWidth !== this.width && this.show()).observe(this.root);
  }

  // Changes

  /** Change settings and show them. */
  update(settings) {
    this.step(() => this.state.set(settings));
  }

  /** Change settings in a way that going back undoes. */
  go(settings) {
    this.step(() => this.state.set(settings), true);
  }

  /** Change the state and show it. */
  step(change, visit = false) {
    change();
    this.show();
    writeFragment(this.state.settings(), visit);
  }

  /** Pin a token or let it go: what does not depend on that stays as it is. */
  refocus(change) {
    change();
    this.showFocus();
    writeFragment(this.state.settings(), false);
  }

  hold(side, index) {
    this.refocus(() => this.state.hold(side, index));
  }

  point(side, index) {
    if (this.state.point(side, index)) this.showFocus();
  }

  nextTheme() {
    const themes = SETTINGS.theme;
    this.setTheme(themes[(themes.indexOf(this.state.theme) + 1) % themes.length]);
  }

  setTheme(theme) {
    applyTheme(this.root, theme);
    this.readColours();
    this.update({ theme });
  }

  applyTheme() {
    applyTheme(this.root, this.state.theme);
    this.readColours();
  }

  readColours() {
    this.colours = headColours();
    this.signs = { less: styleValue("--negative"), more: styleValue("--positive") };
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.root.querySelector("dialog[open]")) return;
    if (event.key !== "Escape" && event.target.closest && event.target.closest("select, input, textarea")) return;
    const used = this.level.key && this.level.key(event);
    if (!used && !this.useKey(event.key)) return;
    event.preventDefault();
  }

  /** @returns {boolean} whether the page does something at that key */
  useKey(key) {
    const { state } = this;
    const ways = {
      ArrowLeft: () => this.step(() => state.stepLayer(-1)),
      ArrowRight: () => this.step(() => state.stepLayer(1)),
      ArrowUp: () => this.stepToken(-1),
      ArrowDown: () => this.stepToken(1),
      "[": () => this.step(() => state.stepHead(-1)),
      "]": () => this.step(() => state.stepHead(1)),
      g: () => this.step(() => state.toggleGold()),
      ".": () => this.nextTheme(),
      Escape: () => this.refocus(() => state.letGo()),
      "?": () => this.help.showModal(),
    };
    const tab = state.levels[Number(key) - 1];
    if (tab) this.go({ level: tab });
    else if (Object.keys(ways).includes(key)) ways[key]();
    else return Boolean(this.corpus && this.corpus.key(key));
    return true;
  }

  /** Pin the token above or below the one that is pinned; the first one if none is. */
  stepToken(by) {
    const { state } = this;
    const side = state.query === null && state.key !== null ? "right" : "left";
    const { queries, keys } = state.selection(null);
    const places = side === "left" ? queries : keys;
    const pinned = side === "left" ? state.query : state.key;
    const index = places[pinned === null ? 0 : places.indexOf(pinned) + by];
    if (index === undefined) return;
    this.refocus(() => Object.assign(state, { hover: null }, side === "left" ? { query: index } : { key: index }));
    const row = this.stage.querySelector(`section:not([hidden]) .${side} [data-index="${index}"]`);
    if (row) row.scrollIntoView({ block: "nearest" });
  }

  // Showing

  show() {
    const { state } = this;
    this.hideTip();
    if (this.sequence !== state.sequence) this.close();
    this.bar.show();
    if (!this.levels[state.level]) this.open(state.level);
    for (const section of this.stage.children) section.toggleAttribute("hidden", section.id !== `level-${state.level}`);
    this.root.dataset.level = state.level;
    this.root.dataset.layer = String(state.layerNumber());
    this.root.dataset.side = state.side.name;
    if (this.corpus) this.corpus.keep(state);
    this.level.draw();
    this.width = this.root.clientWidth; // last, so that one layout serves the level and this
  }

  showFocus() {
    if (this.level.focus) this.level.focus();
    else this.level.draw();
  }

  open(name) {
    const section = element("section", { id: `level-${name}`, class: "level", role: "tabpanel", "aria-label": this.kinds[name].label });
    this.stage.append(section);
    this.levels[name] = new this.kinds[name].make(section, this.payload, this.state, this);
  }

  /** Close all levels: another text is shown. */
  close() {
    Object.values(this.levels).forEach((level) => level.destroy());
    this.levels = {};
    this.stage.replaceChildren();
    this.sequence = this.state.sequence;
  }

  showState() {
    this.stateDialog.show(this.state.json());
  }

  /** Save what is seen. */
  save(kind) {
    const picture = this.level.picture();
    if (!picture) return;
    if (kind === "svg") saveSvg(picture, this.state.json());
    else if (!this.busy) this.saveImage(picture);
  }

  /** Save an image; a large one takes a moment, which is said. */
  async saveImage(picture) {
    this.busy = true;
    this.saving.textContent = "Making the PNG file …";
    this.saving.hidden = false;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    try {
      await savePng(picture, this.state.json());
      this.saving.hidden = true;
    } catch (error) {
      this.saving.textContent = error.message;
    }
    this.busy = false;
  }

  speak(text) {
    this.spoken.textContent = text;
  }

  /** @param {(Node|string)[]} content @param {any} where an event of the mouse, or an element */
  showTip(content, where) {
    const box = where.getBoundingClientRect ? where.getBoundingClientRect() : null;
    this.tip.replaceChildren(...content);
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    const left = Math.min(box ? box.left : where.clientX + 14, innerWidth - offsetWidth - 8);
    const below = box ? box.bottom + 6 : where.clientY + 14;
    const top = below + offsetHeight > innerHeight ? below - offsetHeight - 44 : below;
    this.tip.style.setProperty("left", `${Math.max(8, left)}px`);
    this.tip.style.setProperty("top", `${Math.max(8, top)}px`);
  }

  hideTip() {
    this.tip.hidden = true;
  }

  /** @returns {string} the colour of a head, by its index: the same for its number on every side */
  colourOf(head) {
    return this.colours[this.state.headNumber(head) % COLOURS];
  }

  /** @returns {string} the colour of a line: of its head, or of a difference by its sign */
  colourOfLine({ head, weight }) {
    if (!this.state.signed) return this.colourOf(head);
    return weight < 0 ? this.signs.less : this.signs.more;
  }

  /** @returns {import("./panel.js").HeadFacts} the facts shown about a head of the current layer */
  facts(head) {
    const measure = this.state.side.measure(this.state.layer, head);
    return { number: this.state.headNumber(head), colour: this.colourOf(head), measure };
  }

  /** @returns {string} the value of a variable of the style sheet */
  style(name) {
    return styleValue(name);
  }
}
