// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The head level: lines between two columns of tokens, one method per part of it. `drawn()` hands out
// what is on the canvas, for tests and scripts.

import { tokenRow } from "./controls.js";
import { element, swatch, tokenText } from "./elements.js";
import { paintPictureLines, pictureScale, svgDocument } from "./export.js";
import { explain } from "./glossary.js";
import { goldOf, partnersText } from "./gold.js";
import { legendGroup, showLegend } from "./gold_lines.js";
import { goldColours } from "./gold_paint.js";
import { HeadPage } from "./head_page.js";
import { HeadRows, sightOf } from "./head_rows.js";
import { Matrix } from "./matrix.js";
import { backdropOf, layOut, lineAt, paintLines, selectLines } from "./lines.js";
import { formatCount, formatShare, formatWeight } from "./numbers.js";
import { headsPanel, MORE, pairPanel, readingOf, tokenPanel } from "./panel.js";
import { pinnedTable } from "./pinned_table.js";
import { meanOn } from "./rows.js";

export class HeadLevel {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {any} actions the shell, or what stands for it where the level is one of three pictures
   */
  constructor(root, payload, state, actions) {
    this.root = root;
    this.payload = payload;
    this.state = state;
    this.actions = actions;
    this.page = new HeadPage(root, payload, state, actions);
    this.rows = new HeadRows(this.page, state);
    /** @type {boolean|null} whether the lines were painted as a backdrop; null before they are painted */
    this.painted = null;
    this.scroll = () => this.followScroll();
    window.addEventListener("scroll", this.scroll, { passive: true });
    this.page.stage.addEventListener("mousemove", (event) => this.pointAtLine(event));
    this.page.stage.addEventListener("mouseleave", () => actions.hideTip());
  }

  destroy() {
    if (this.matrix) this.matrix.destroy();
    if (this.together) this.together.destroy();
    window.removeEventListener("scroll", this.scroll);
    cancelAnimationFrame(this.waiting);
    this.page = null;
  }

  draw() {
    if (this.inThree()) return this.together.draw();
    this.page.fit(this.state.side);
    this.page.reading.replaceChildren(...explain(readingOf(this.state.layerNumber(), this.heads.map((head) => this.actions.facts(head)))));
    this.showBadges();
    this.showDrawing();
    this.gold = goldOf(this.state, this.heads);
    if (this.asMatrix) {
      this.matrix.draw(this.gold);
    } else {
      this.showTokens();
      this.showAllLines();
    }
    this.showGold();
    return this.focus();
  }

  /** @returns {boolean} whether two traces and their difference show beside each other, made when first asked for */
  inThree() {
    const three = this.state.together;
    if (three && !this.together) this.together = new this.actions.kinds.head.together(this);
    if (this.together) this.together.show(three);
    return three;
  }

  /** @returns {number[]} numbers of the heads that are drawn */
  get headNumbers() {
    return this.heads.map((head) => this.state.headNumber(head));
  }

  /** The gold pairs of a claim, and what they are. */
  showGold() {
    const colours = goldColours((name) => this.actions.style(name));
    const { goldLines, gold } = this.page;
    if (!this.asMatrix) goldLines.draw(this.gold, this.geometry, this.rowHeight, colours);
    showLegend(gold, this.state, this.gold, this.headNumbers, colours, this.asMatrix ? null : goldLines.curves);
  }

  get asMatrix() {
    return this.state.drawing === "matrix";
  }

  /** Lines, or one head as a matrix. */
  showDrawing() {
    this.page.lines.hidden = this.asMatrix;
    this.page.matrix.hidden = !this.asMatrix;
    if (this.asMatrix && !this.matrix) this.matrix = new Matrix(this.page.matrix, this.state, this.actions);
  }

  /** @returns {number[]} the heads that are drawn */
  get heads() {
    return this.asMatrix ? [this.state.oneHead()] : this.state.heads;
  }

  /** What is seen, as a file. */
  picture() {
    if (this.state.together) return this.together.picture();
    const { side } = this.state;
    const layer = this.state.layerNumber();
    const chosen = this.headNumbers.join(" ");
    const left = this.state.leftOut();
    const what = this.state.kind ? this.state.meaning() : this.state.shownName();
    const parts = [this.payload.model, side.titles[0], `layer ${layer}`, `heads ${chosen}`, what];
    if (left) parts.push(`${this.state.shares ? "renormalised " : ""}without ${left}`);
    const caption = this.actions.caption || parts.filter(Boolean).join(", ");
    const name = `${side.alone ? "attention" : `attention-${side.name}`}-layer-${layer}`;
    const colours = goldColours((name) => this.actions.style(name));
    const legend = this.gold && legendGroup(this.gold, this.headNumbers, colours, this.actions.style("--ink"), this.asMatrix);
    if (this.asMatrix) return { name: `${name}-head-${chosen}`, svg: this.matrix.svg(caption, legend) };
    const shown = this.shown(caption, legend);
    return {
      name,
      get svg() {
        return svgDocument(shown);
      },
      /** The same without lines, which are many, and how these are painted. */
      get frame() {
        return svgDocument(shown, true);
      },
      scale: pictureScale(shown),
      paint: (context, scale) => paintPictureLines(context, shown, scale),
    };
  }

  /** @returns {import("./export.js").HeadPicture} what a file of the lines holds */
  shown(caption, legend) {
    const { state, actions } = this;
    const head = (index) => /** @type {[string, string]} */ ([String(state.headNumber(index)), actions.colourOf(index)]);
    /** @type {[string, string][]} */
    const signs = [["below 0", actions.signs.less], ["above 0", actions.signs.more]];
    return {
      caption,
      columns: { left: this.shownColumn("left"), right: this.shownColumn("right") },
      gold: this.page.goldLines.group(),
      legend,
      lines: this.drawing.lines,
      geometry: this.geometry,
      painted: this.drawing === this.everything ? this.page.canvas : null,
      rowHeight: this.rowHeight,
      heads: state.heads,
      numberOf: (index) => state.headNumber(index),
      named: state.signed ? signs : state.heads.map(head),
      colourOf: (line) => actions.colourOfLine(line),
      style: (name) => actions.style(name),
    };
  }

  /** @returns {import("./export.js").ShownColumn} */
  shownColumn(name) {
    const { state } = this;
    const { tokens, special, boundary, parts } = state.side[name];
    const focus = state.focus();
    return {
      title: state.side.titles[name === "left" ? 1 : 2],
      tokens,
      places: this.geometry[name],
      special,
      out: name === "right" && state.hideFirst ? state.side.firsts : new Set(),
      held: name === "left" ? state.query : state.key,
      boundary,
      begins: parts ? parts[1].toLowerCase() : "",
      others: focus && focus.side !== name ? this.found : new Map(),
    };
  }

  showBadges() {
    const { state } = this;
    this.page.badge.hidden = !state.leftOut();
    this.page.badge.textContent = state.shares ? "renormalised" : "left out";
    const others = state.shares ? "the others of each row are scaled up to a sum of one" : "the others stay as they are";
    this.page.badge.title = `Weights on ${state.leftOut()} are left out; ${others}. What a head does is measured on all weights.`;
    this.page.kind.hidden = !state.kind;
    this.page.kind.textContent = state.kind ? state.meaning() : "";
    this.page.kind.title = state.kind ? state.kind.about : "";
    this.page.lacking.textContent = state.side.lacks(state.layer);
    this.page.lacking.hidden = !this.page.lacking.textContent;
  }

  showTokens() {
    const { queries, keys } = this.state.selection(null);
    const longest = Math.max(queries.length, keys.length);
    this.rowHeight = longest > 96 ? 18 : longest > 40 ? 21 : 26;
    this.page.lines.style.setProperty("--row", `${this.rowHeight}px`);
    for (const [side, positions] of Object.entries({ left: queries, right: keys })) {
      const { tokens, special, boundary, parts } = this.state.side[side];
      const same = positions.join() === [...this.page.rows[side].keys()].join();
      if (same && this.page.labels[side] === tokens) continue;
      this.page.labels[side] = tokens;
      this.page.rows[side] = new Map();
      for (const i of positions) this.page.rows[side].set(i, tokenRow(tokens[i], i, special.has(i), this.state.side[side].noteOf(i)));
      this.page.columns[side].replaceChildren(...this.page.rows[side].values());
      if (positions.includes(0) && this.page.rows[side].has(boundary)) {
        const first = this.page.rows[side].get(boundary);
        first.classList.add("boundary");
        if (parts) first.dataset.begins = parts[1].toLowerCase();
      }
    }
    for (const [index, row] of this.page.rows.right) {
      row.classList.toggle("out", this.state.hideFirst && this.state.side.firsts.has(index));
    }
    const { state } = this;
    if (!this.page.rows.left.has(state.query)) state.query = null;
    if (!this.page.rows.right.has(state.key)) state.key = null;
  }

  showAllLines() {
    const selection = this.state.selection(null);
    this.geometry = layOut(selection, this.page.stage.clientWidth, this.rowHeight);
    this.everything = selectLines(this.state.layerWeights(), { ...selection, limit: this.geometry.limit });
    this.page.stage.style.setProperty("height", `${this.geometry.height}px`);
    this.painted = null;
  }

  /** Paint all lines: in their colours, or as a grey backdrop of the lines of a token in focus. */
  paintAllLines(asBackdrop) {
    if (this.painted === asBackdrop) return;
    this.painted = asBackdrop;
    const grey = this.actions.style("--backdrop");
    const lines = asBackdrop ? backdropOf(this.everything.lines) : this.everything.lines;
    paintLines(this.page.canvas, lines, this.geometry, asBackdrop ? () => grey : (line) => this.actions.colourOfLine(line));
  }

  focus() {
    if (this.state.together) return this.together.focus();
    const focus = this.state.focus();
    if (this.asMatrix) return this.focusMatrix(focus);
    this.drawing = this.everything;
    if (focus) this.drawing = selectLines(this.state.layerWeights(), this.state.selection(focus), this.everything.scan);
    this.page.lines.classList.toggle("focused", Boolean(focus));
    this.paintAllLines(Boolean(focus));
    this.page.goldLines.focus(this.state);
    this.found = this.others(focus);
    this.showSight(focus);
    this.showPanel(focus);
    return this.showStatus();
  }

  /** The lines and the rows of the token in focus, as far as they are in sight. */
  showSight(focus) {
    const colourOf = (line) => this.actions.colourOfLine(line);
    const sight = sightOf(this.page.stage, this.geometry.height);
    if (focus) {
      paintLines(this.page.overlay, this.drawing.lines, this.geometry, colourOf, sight, undefined, this.actions.style("--paper"));
    }
    this.rows.show(focus, this.found, sight, this.rowHeight, colourOf);
  }

  /** Draw what comes into sight, once before the next frame. */
  followScroll() {
    if (this.waiting || this.asMatrix || !this.page.stage.clientWidth || !this.geometry || !this.state.focus()) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (!this.asMatrix && !this.root.hidden) this.showSight(this.state.focus());
    });
  }

  /** The crosshair of the matrix, and beside it what the lines of that token would say. */
  focusMatrix(focus) {
    this.matrix.focus();
    const selection = { ...this.state.selection(focus), heads: this.heads };
    this.drawing = focus ? selectLines(this.state.layerWeights(), selection) : null;
    this.found = this.others(focus);
    this.showPanel(focus);
    this.page.count.textContent = this.matrix.status();
    this.showBroken(this.matrix.gaps);
    this.root.dataset.lines = "0";
  }

  /** Tokens that the lines of the token in focus lead to, with their weights by head. */
  others(focus) {
    const found = new Map();
    if (!focus) return found;
    for (const line of this.drawing.lines) {
      const index = focus.side === "left" ? line.key : line.query;
      if (!found.has(index)) found.set(index, { weights: new Map(), mean: 0 });
      const other = found.get(index);
      other.weights.set(line.head, line.weight);
      other.mean += line.weight / this.heads.length;
    }
    for (const { query, key } of this.drawing.gaps) {
      const index = focus.side === "left" ? key : query;
      found.set(index, { weights: new Map(), ...found.get(index), mean: NaN });
    }
    return found;
  }

  showPanel(focus) {
    if (this.actions.showsNumbers) return;
    const { heads } = this;
    const { left, right } = this.state.side;
    if (!focus) {
      this.page.panel.replaceChildren(...headsPanel(this.state.layerNumber(), heads.map((head) => this.actions.facts(head))));
      this.actions.speak("");
      this.page.pinned.replaceChildren();
      return;
    }
    const others = this.found;
    const pair = this.state.pair();
    if (pair) {
      const found = others.get(focus.side === "left" ? pair.key : pair.query);
      const isGap = (head) => this.drawing.gaps.some((gap) => gap.head === head && gap.query === pair.query && gap.key === pair.key);
      const weightOf = (head) => (found && found.weights.has(head) ? found.weights.get(head) : isGap(head) ? NaN : null);
      const facts = heads.map((head) => {
        const weight = weightOf(head);
        return { head: this.actions.facts(head), weight, colour: this.actions.colourOfLine({ head, weight }) };
      });
      this.page.panel.replaceChildren(...pairPanel(left.tokens[pair.query], right.tokens[pair.key], facts));
      return;
    }
    const [own, other] = focus.side === "left" ? [left, right] : [right, left];
    const listed = [...others].map(([index, { weights, mean }]) => ({
      token: other.nameOf(index),
      mean,
      weights: heads.map((head) => weights.get(head)),
      parts: [...weights].sort((a, b) => a[0] - b[0]).map(([head, w]) => [Math.abs(w) / heads.length, this.actions.colourOfLine({ head, weight: w })]),
    }));
    const rank = ({ mean }) => (Number.isNaN(mean) ? 2 : Math.abs(mean)); // above every weight
    listed.sort((a, b) => rank(b) - rank(a));
    const onFirst = focus.side === "left" && !this.state.signed && !this.state.kind ? meanOn(this.state.layerWeights(), heads, focus.index, this.state.side.firsts) : null;
    this.page.panel.replaceChildren(...tokenPanel(own.nameOf(focus.index), focus.side, listed, heads.length, onFirst, this.state.meaning()));
    const partners = partnersText(this.gold, focus, this.state.side);
    if (partners) this.page.panel.append(element("p", { class: "hint gold-partners", text: partners }));
    const notes = MORE.note(this.page.panel, this.state, focus.side, focus.index, this.actions);
    const best = listed.slice(0, 3).map(({ token, mean }) => `${token} ${formatWeight(mean)}`);
    const pinned = this.state.isPinned();
    if (pinned) this.page.panel.firstChild.after(element("p", { class: "hint", text: "Pinned. Esc shows all lines again." }));
    const said = [`${this.page.panel.firstChild.textContent}: ${best.join(", ")}`, partners, notes].filter(Boolean).join(". ");
    this.actions.speak(pinned ? said : "");
    const title = `${this.page.panel.firstChild.textContent}, layer ${this.state.layerNumber()}, ${this.state.meaning()}`;
    this.page.pinned.replaceChildren(...(pinned ? [pinnedTable(title, this.headNumbers, listed)] : []));
  }

  showStatus() {
    const { lines, found, share, broken } = this.drawing;
    const count = formatCount(lines.length);
    const what = lines.length < found ? `The strongest ${count} of ${formatCount(found)} lines` : `${count} ${lines.length === 1 ? "line" : "lines"}`;
    const whose = this.state.focus() ? "of this token" : "";
    const mass = this.massName();
    this.page.count.textContent = `${what} ${whose} · shown ${formatShare(share)} of ${mass}`.replace("  ", " ");
    this.root.dataset.lines = String(lines.length);
    this.showBroken(broken);
  }

  /** @returns {string} what the lines carry a share of */
  massName() {
    const { kind } = this.state;
    const rest = this.state.leftOut() ? " that is left" : "";
    if (kind) return `the sum of ${kind.signed ? "sizes of " : ""}${kind.label}${rest}`;
    return this.state.differs ? "the difference" : `${rest ? "the " : ""}attention mass${rest}`;
  }

  /** Say that some weights are not numbers: a matrix hatches them, lines have no place for them. */
  showBroken(count) {
    this.page.broken.hidden = !count;
    this.page.broken.textContent = `${formatCount(count)} weights are NaN`;
  }

  pointAtLine(event) {
    const line = lineAt(this.drawing.lines, this.geometry, event.offsetX, event.offsetY);
    if (!line) return this.actions.hideTip();
    const { number } = this.actions.facts(line.head);
    const colour = this.actions.colourOfLine(line);
    const { left, right } = this.state.side;
    const [query, key] = [left.tokens[line.query], right.tokens[line.key]];
    const pair = element("strong", {}, tokenText(query), " → ", tokenText(key));
    const { tellWeights } = this.actions;
    const shown = tellWeights ? tellWeights(line.head, line.query, line.key) : formatWeight(line.weight);
    const head = element("span", { class: "value", text: `head ${number}: ${shown}` });
    return this.actions.showTip([pair, element("span", {}, swatch(colour), head)], event);
  }

  /** What is on the canvas, by the numbers of the model. */
  drawn() {
    if (this.state.together) return this.together.drawn();
    const { lines, found, share } = this.drawing;
    const layer = this.state.layerNumber();
    const numbered = lines.map((line) => ({ ...line, layer, head: this.state.headNumber(line.head) }));
    return { lines: numbered, found, share, gold: this.page.goldLines.drawn() };
  }
}
