// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The head level: lines between two columns of tokens, one method per part of it. `drawn()` hands out
// what is on the canvas, for tests and scripts.

import { tokenRow } from "./controls.js";
import { element, swatch, tokenText } from "./elements.js";
import { svgDocument } from "./export.js";
import { HeadPage } from "./head_page.js";
import { HeadRows, sightOf } from "./head_rows.js";
import { pairArcs } from "./gold_pairs.js";
import { Matrix } from "./matrix.js";
import { layOut, lineAt, meanOn, paintLines, selectLines } from "./lines.js";
import { formatShare, formatWeight } from "./numbers.js";
import { headsPanel, pairPanel, readingOf, tokenPanel } from "./panel.js";

export class HeadLevel {
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
    this.page = new HeadPage(root, payload, state, actions);
    this.rows = new HeadRows(this.page, state);
    this.scroll = () => this.followScroll();
    window.addEventListener("scroll", this.scroll, { passive: true });
    this.page.stage.addEventListener("mousemove", (event) => this.pointAtLine(event));
    this.page.stage.addEventListener("mouseleave", () => actions.hideTip());
  }

  destroy() {
    if (this.matrix) this.matrix.destroy();
    window.removeEventListener("scroll", this.scroll);
    cancelAnimationFrame(this.waiting);
    this.page = null;
  }

  draw() {
    this.page.fit(this.state.side);
    this.page.reading.textContent = readingOf(this.state.layerNumber(), this.heads.map((head) => this.actions.facts(head)));
    this.page.gold.judge(this.state, this.heads);
    this.showBadges();
    this.showDrawing();
    if (this.asMatrix) {
      this.matrix.draw();
    } else {
      this.showTokens();
      this.showAllLines();
    }
    this.focus();
  }

  get asMatrix() {
    return this.state.drawing === "matrix";
  }

  /** Lines, or one head as a matrix. */
  showDrawing() {
    this.page.lines.hidden = this.asMatrix;
    this.page.matrix.hidden = !this.asMatrix;
    if (this.asMatrix && !this.matrix) this.matrix = new Matrix(this.page.matrix, this.state, this.actions, this.page.gold);
  }

  /** @returns {number[]} the heads that are drawn */
  get heads() {
    return this.asMatrix ? [this.state.oneHead()] : this.state.heads;
  }

  /** What is seen, as a file. */
  picture() {
    const { side } = this.state;
    const layer = this.state.layerNumber();
    const chosen = this.heads.map((head) => side.heads[head]).join(" ");
    const left = this.state.leftOut();
    const what = this.state.kind ? this.state.meaning() : this.state.shownName();
    const parts = [this.payload.model, side.titles[0], `layer ${layer}`, `heads ${chosen}`, what];
    if (left) parts.push(`${this.state.shares ? "renormalised " : ""}without ${left}`);
    const caption = parts.filter(Boolean).join(", ");
    const name = `${side.alone ? "attention" : `attention-${side.name}`}-layer-${layer}`;
    if (this.asMatrix) return { name: `${name}-head-${chosen}`, svg: this.matrix.svg(caption) };
    const svg = svgDocument({
      caption,
      left: side.left.tokens,
      right: side.right.tokens,
      arcs: pairArcs(this.page.gold.judged, this.geometry, this.state.focus(), this.goldColours()),
      legend: this.page.gold.legend.textContent,
      lines: this.drawing.lines,
      geometry: this.geometry,
      colourOf: (line) => this.actions.colourOfLine(line),
      ink: this.actions.style("--ink"),
      paper: this.actions.style("--paper"),
    });
    return { name, svg };
  }

  /** @returns {{hit: string, miss: string}} colours of gold arcs */
  goldColours() {
    return { hit: this.actions.style("--gold"), miss: this.actions.style("--missed") };
  }

  showBadges() {
    const { state } = this;
    this.page.badge.hidden = !state.leftOut();
    this.page.badge.textContent = state.shares ? "renormalised" : "left out";
    const others = state.shares ? "the others of each row are scaled up to a sum of one" : "the others stay as they are";
    this.page.badge.title = `Weights on ${state.leftOut()} are left out; ${others}. What a head does is told by all weights.`;
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
      if (same) continue;
      this.page.rows[side] = new Map();
      for (const i of positions) this.page.rows[side].set(i, tokenRow(tokens[i], i, special.has(i)));
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
    paintLines(this.page.canvas, this.everything.lines, this.geometry, (line) => this.actions.colourOfLine(line));
  }

  focus() {
    const focus = this.state.focus();
    if (this.asMatrix) return this.focusMatrix(focus);
    this.page.gold.draw(this.geometry, focus, this.goldColours());
    this.drawing = this.everything;
    if (focus) this.drawing = selectLines(this.state.layerWeights(), this.state.selection(focus));
    this.page.lines.classList.toggle("focused", Boolean(focus));
    this.found = this.others(focus);
    this.showSight(focus);
    this.showPanel(focus);
    return this.showStatus();
  }

  /** The lines and the rows of the token in focus, as far as they are in sight. */
  showSight(focus) {
    const colourOf = (line) => this.actions.colourOfLine(line);
    const sight = sightOf(this.page.stage, this.geometry.height);
    if (focus) paintLines(this.page.overlay, this.drawing.lines, this.geometry, colourOf, sight);
    this.rows.show(focus, this.found, sight, this.rowHeight, colourOf);
  }

  /** Draw what comes into sight, once before the next frame. */
  followScroll() {
    if (this.waiting || this.asMatrix || this.root.hidden || !this.geometry || !this.state.focus()) return;
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
    const { heads } = this;
    const { left, right } = this.state.side;
    if (!focus) {
      this.page.panel.replaceChildren(...headsPanel(this.state.layerNumber(), heads.map((head) => this.actions.facts(head))));
      this.actions.speak("");
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
    const [own, other] = focus.side === "left" ? [left.tokens, right.tokens] : [right.tokens, left.tokens];
    const listed = [...others].map(([index, { weights, mean }]) => ({
      token: other[index],
      mean,
      parts: [...weights].sort((a, b) => a[0] - b[0]).map(([head, w]) => [Math.abs(w) / heads.length, this.actions.colourOfLine({ head, weight: w })]),
    }));
    const rank = ({ mean }) => (Number.isNaN(mean) ? 2 : Math.abs(mean)); // above every weight
    listed.sort((a, b) => rank(b) - rank(a));
    const onFirst = focus.side === "left" && !this.state.signed && !this.state.kind ? meanOn(this.state.layerWeights(), heads, focus.index, this.state.side.firsts) : null;
    this.page.panel.replaceChildren(...tokenPanel(own[focus.index], focus.side, listed, heads.length, onFirst, this.state.meaning()));
    const best = listed.slice(0, 3).map(({ token, mean }) => `${token} ${formatWeight(mean)}`);
    const pinned = this.state.query !== null || this.state.key !== null;
    this.actions.speak(pinned ? `${this.page.panel.firstChild.textContent}: ${best.join(", ")}` : "");
  }

  showStatus() {
    const { lines, found, share, broken } = this.drawing;
    const count = lines.length.toLocaleString("en");
    const what = lines.length < found ? `The strongest ${count} of ${found.toLocaleString("en")} lines` : `${count} ${lines.length === 1 ? "line" : "lines"}`;
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
    this.page.broken.textContent = `${count.toLocaleString("en")} weights are NaN`;
  }

  pointAtLine(event) {
    const line = lineAt(this.drawing.lines, this.geometry, event.offsetX, event.offsetY);
    if (!line) return this.actions.hideTip();
    const { number } = this.actions.facts(line.head);
    const colour = this.actions.colourOfLine(line);
    const { left, right } = this.state.side;
    const [query, key] = [left.tokens[line.query], right.tokens[line.key]];
    const pair = element("strong", {}, tokenText(query), " → ", tokenText(key));
    const head = element("span", { class: "value", text: `head ${number}: ${formatWeight(line.weight)}` });
    return this.actions.showTip([pair, element("span", {}, swatch(colour), head)], event);
  }

  /** What is on the canvas, by the numbers of the model. */
  drawn() {
    const { lines, found, share } = this.drawing;
    const layer = this.state.layerNumber();
    const numbered = lines.map((line) => ({ ...line, layer, head: this.state.headNumber(line.head) }));
    return { lines: numbered, found, share };
  }
}
