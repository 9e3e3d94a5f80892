// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The head view: listens, changes the state, and shows it, one method per part of the page.
// `root.flaxattn.drawn()` hands out what is on the canvas, for tests and scripts.

class HeadView {
  /**
   * @param {HTMLElement} root
   * @param {Object} payload as `head.py` makes it
   */
  constructor(root, payload) {
    this.root = root;
    this.payload = payload;
    this.state = new HeadState(payload);
    this.state.reset(readFragment());
    this.page = new HeadPage(root, payload, this.state, this);
    this.setTheme(this.state.theme);
    this.listen();
  }

  listen() {
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.page.stage.addEventListener("mousemove", (event) => this.pointAtLine(event));
    this.page.stage.addEventListener("mouseleave", () => this.page.hideTip());
    window.addEventListener("hashchange", () => {
      this.state.reset(readFragment());
      this.setTheme(this.state.theme);
    });
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", () => this.setTheme(this.state.theme));
    const resized = () => this.page.stage.clientWidth !== this.geometry.width && this.show();
    new ResizeObserver(resized).observe(this.page.stage);
  }

  // Changes

  /** Change settings and show them. */
  update(settings) {
    this.step(() => Object.assign(this.state, settings));
  }

  /** Change the state and show it. */
  step(change) {
    change();
    this.show();
    writeFragment(this.state.settings());
  }

  /** Hold a token or let it go: what is drawn for all tokens stays as it is. */
  refocus(change) {
    change();
    this.showFocus();
    writeFragment(this.state.settings());
  }

  point(side, index) {
    if (this.state.point(side, index)) this.showFocus();
  }

  nextTheme() {
    this.setTheme(THEMES[(THEMES.indexOf(this.state.theme) + 1) % THEMES.length]);
  }

  setTheme(theme) {
    applyTheme(this.root, theme);
    this.page.themeButton.setAttribute("aria-label", `Theme: ${theme}`);
    this.page.themeButton.title = `Theme: ${theme}`;
    this.colours = headColours();
    this.update({ theme });
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.page.help.open) return;
    if (event.key !== "Escape" && event.target.closest && event.target.closest("select, input")) return;
    const ways = {
      ArrowLeft: () => this.step(() => this.state.stepLayer(-1)),
      ArrowRight: () => this.step(() => this.state.stepLayer(1)),
      ArrowUp: () => this.stepToken(-1),
      ArrowDown: () => this.stepToken(1),
      Escape: () => this.refocus(() => this.state.letGo()),
      "?": () => this.page.help.showModal(),
    };
    if (!(event.key in ways)) return;
    event.preventDefault();
    ways[event.key]();
  }

  /** Hold the token above or below the one that is held; the first one if none is. */
  stepToken(by) {
    const { pin } = this.state;
    const side = pin ? pin.side : "left";
    const places = [...this.page.rows[side].keys()];
    const index = places[pin ? places.indexOf(pin.index) + by : 0];
    if (index === undefined) return;
    this.refocus(() => this.state.hold(side, index));
    this.page.rows[side].get(index).scrollIntoView({ block: "nearest" });
  }

  save() {
    const style = getComputedStyle(document.documentElement);
    const { side } = this.state;
    const layer = this.state.layerNumber();
    const chosen = this.state.heads.map((head) => side.heads[head]).join(" ");
    const left = this.state.leftOut();
    const parts = [this.payload.model, SIDES[side.name][0], `layer ${layer}`, `heads ${chosen}`];
    if (left) parts.push(`renormalised without ${left}`);
    const text = svgDocument({
      caption: parts.filter(Boolean).join(", "),
      left: side.left.tokens,
      right: side.right.tokens,
      lines: this.drawing.lines,
      geometry: this.geometry,
      colourOf: (head) => this.colourOf(head),
      ink: style.getPropertyValue("--ink").trim(),
      paper: style.getPropertyValue("--paper").trim(),
    });
    const prefix = side.name === "alone" ? "attention" : `attention-${side.name}`;
    download(`${prefix}-layer-${layer}.svg`, "image/svg+xml", text);
  }

  // Showing

  show() {
    this.page.hideTip();
    this.showControls();
    this.showHeads();
    this.showTokens();
    this.showAllLines();
    this.showFocus();
  }

  showControls() {
    const { state } = this;
    this.page.fit(state.side);
    this.page.sideList.value = state.side.name;
    this.page.layerList.value = String(state.layer);
    this.page.attentionList.value = state.attention;
    this.page.opacityList.value = state.opacity;
    this.page.mass.input.value = String(Math.round(100 * state.mass));
    this.page.mass.output.textContent = formatShare(state.mass);
    this.page.specialBox.checked = state.hideSpecial;
    this.page.firstBox.checked = state.hideFirst;
    this.page.badge.hidden = !state.leftOut();
    this.page.badge.title = `Weights on ${state.leftOut()} are left out; the others of each row are scaled up to a sum of one. What a head does is told by all weights.`;
    this.page.lacking.textContent = state.side.lacks(state.layer);
    this.page.lacking.hidden = !this.page.lacking.textContent;
  }

  showHeads() {
    this.page.squares.forEach((square, head) => {
      const { number, colour, measure } = this.facts(head);
      const on = this.state.heads.includes(head);
      square.setAttribute("aria-pressed", String(on));
      square.setAttribute("aria-label", `Head ${number}, ${measure.does}`);
      square.style.setProperty("--colour", colour);
      square.style.setProperty("color", on ? inkOn(colour) : "");
    });
  }

  showTokens() {
    const { queries, keys } = this.state.selection(null);
    const longest = Math.max(queries.length, keys.length);
    this.rowHeight = longest > 96 ? 18 : longest > 40 ? 21 : 26;
    this.root.style.setProperty("--row", `${this.rowHeight}px`);
    for (const [side, positions] of [["left", queries], ["right", keys]]) {
      const { tokens, special, boundary } = this.state.side[side];
      const same = positions.join() === [...this.page.rows[side].keys()].join();
      if (same) continue;
      const made = positions.map((i) => [i, tokenRow(tokens[i], i, special.has(i))]);
      this.page.rows[side] = new Map(made);
      this.page.columns[side].replaceChildren(...this.page.rows[side].values());
      if (positions.includes(0) && this.page.rows[side].has(boundary)) {
        this.page.rows[side].get(boundary).classList.add("boundary");
      }
    }
    for (const [index, row] of this.page.rows.right) {
      row.classList.toggle("out", this.state.hideFirst && this.state.side.firsts.has(index));
    }
    const { pin } = this.state;
    if (pin && !this.page.rows[pin.side].has(pin.index)) this.state.pin = null;
  }

  showAllLines() {
    const selection = this.state.selection(null);
    this.geometry = layOut(selection, this.page.stage.clientWidth, this.rowHeight);
    this.everything = selectLines(this.state.layerWeights(), selection);
    this.page.stage.style.setProperty("height", `${this.geometry.height}px`);
    paintLines(this.page.canvas, this.everything.lines, this.geometry, (head) => this.colourOf(head));
  }

  showFocus() {
    const focus = this.state.focus();
    this.drawing = this.everything;
    if (focus) {
      this.drawing = selectLines(this.state.layerWeights(), this.state.selection(focus));
      paintLines(this.page.overlay, this.drawing.lines, this.geometry, (head) => this.colourOf(head));
    }
    this.root.classList.toggle("focused", Boolean(focus));
    this.showRows(focus);
    this.showPanel(focus);
    this.showStatus();
  }

  /** The token in focus, and on the other side one stripe per head and the mean weight. */
  showRows(focus) {
    const others = this.others(focus);
    for (const side of ["left", "right"]) {
      for (const [index, row] of this.page.rows[side]) {
        const chosen = Boolean(focus) && focus.side === side && focus.index === index;
        const held = chosen && this.state.pin !== null;
        const found = focus && focus.side !== side ? others.get(index) : undefined;
        row.classList.toggle("chosen", chosen);
        row.classList.toggle("held", held);
        row.setAttribute("aria-selected", String(held));
        row.style.setProperty("background-image", found ? this.stripes(found.weights) : "");
        row.lastChild.textContent = found ? formatWeight(found.mean) : "";
      }
      this.page.columns[side].querySelectorAll("[tabindex]").forEach((row) => row.removeAttribute("tabindex"));
      const { pin } = this.state;
      const entry = pin && pin.side === side ? this.page.rows[side].get(pin.index) : this.page.columns[side].firstChild;
      if (entry) entry.tabIndex = 0;
    }
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
      other.mean += line.weight / this.state.heads.length;
    }
    return found;
  }

  stripes(weights) {
    const { heads } = this.state;
    const stops = heads.map((head, i) => {
      const colour = fade(this.colourOf(head), weights.get(head) || 0);
      return `${colour} ${(100 * i) / heads.length}% ${(100 * (i + 1)) / heads.length}%`;
    });
    return `linear-gradient(90deg, ${stops.join(", ")})`;
  }

  showPanel(focus) {
    const { hover, pin, heads } = this.state;
    const { left, right } = this.state.side;
    if (!focus) {
      this.page.panel.replaceChildren(...headsPanel(this.state.layerNumber(), heads.map((head) => this.facts(head))));
      this.page.spoken.textContent = "";
      return;
    }
    const others = this.others(focus);
    if (pin && hover && hover.side !== pin.side) {
      const [query, key] = pin.side === "left" ? [pin.index, hover.index] : [hover.index, pin.index];
      const weights = others.has(hover.index) ? others.get(hover.index).weights : new Map();
      const facts = heads.map((head) => ({ head: this.facts(head), weight: weights.has(head) ? weights.get(head) : null }));
      this.page.panel.replaceChildren(...pairPanel(left.tokens[query], right.tokens[key], facts));
      return;
    }
    const [own, other] = focus.side === "left" ? [left.tokens, right.tokens] : [right.tokens, left.tokens];
    const listed = [...others].map(([index, { weights, mean }]) => ({
      token: other[index],
      mean,
      parts: [...weights].sort((a, b) => a[0] - b[0]).map(([head, w]) => [w / heads.length, this.colourOf(head)]),
    }));
    listed.sort((a, b) => b.mean - a.mean);
    const onFirst = focus.side === "left" ? meanOn(this.state.layerWeights(), heads, focus.index, this.state.side.firsts) : null;
    this.page.panel.replaceChildren(...tokenPanel(own[focus.index], focus.side, listed, heads.length, onFirst));
    const best = listed.slice(0, 3).map(({ token, mean }) => `${token} ${formatWeight(mean)}`);
    this.page.spoken.textContent = pin ? `${this.page.panel.firstChild.textContent}: ${best.join(", ")}` : "";
  }

  showStatus() {
    const { lines, found, share } = this.drawing;
    const count = lines.length.toLocaleString("en");
    const what = lines.length < found ? `The strongest ${count} of ${found.toLocaleString("en")} lines` : `${count} lines`;
    const whose = this.state.focus() ? "of this token" : "";
    const mass = this.state.leftOut() ? "the attention mass that is left" : "attention mass";
    this.page.count.textContent = `${what} ${whose} · shown ${formatShare(share)} of ${mass}`.replace("  ", " ");
    this.root.dataset.lines = String(lines.length);
    this.root.dataset.layer = String(this.state.layerNumber());
    this.root.dataset.side = this.state.side.name;
  }

  pointAtLine(event) {
    const line = lineAt(this.drawing.lines, this.geometry, event.offsetX, event.offsetY);
    if (!line) return this.page.hideTip();
    const { number, colour } = this.facts(line.head);
    const { left, right } = this.state.side;
    const [query, key] = [left.tokens[line.query], right.tokens[line.key]];
    const pair = element("strong", {}, tokenText(query), " → ", tokenText(key));
    const head = element("span", { class: "value", text: `head ${number}: ${formatWeight(line.weight)}` });
    return this.page.showTip([pair, element("span", {}, swatch(colour), head)], event);
  }

  /** @returns {Node[]} */
  headTip(head) {
    return headTip(this.state.layerNumber(), this.facts(head));
  }

  /** @returns {HeadFacts} */
  facts(head) {
    return {
      number: this.state.headNumber(head),
      colour: this.colourOf(head),
      measure: this.state.side.measure(this.state.layer, head),
    };
  }

  colourOf(head) {
    return this.colours[this.state.headNumber(head) % COLOURS];
  }

  /** What is on the canvas, by the numbers of the model. */
  drawn() {
    const { lines, found, share } = this.drawing;
    const layer = this.state.layerNumber();
    const numbered = lines.map((line) => ({ ...line, layer, head: this.state.headNumber(line.head) }));
    return { lines: numbered, found, share };
  }
}

VIEWS.head = (root, payload) => new HeadView(root, payload);
