// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Two traces and their difference beside each other: three pictures of the head level over one state.
// What is pointed at in one is marked in all of them, and one panel gives the three numbers.

import { element, svgElement, swatch, tokenText } from "./elements.js";
import { partnersText } from "./gold.js";
import { formatWeight } from "./numbers.js";
import { FONT, svgCaption } from "./pens.js";
import { readRow } from "./rows.js";
import { claimText } from "./sides.js";

/** The three pictures, from left to right. */
const TRACES = ["a", "b", "difference"];
/** So many tokens are listed. */
const MOST_LISTED = 10;
/** So many in the table for screen readers. */
const MOST_READ = 100;
/** From one picture to the next in a file. */
const BETWEEN = 12;

/** @returns {string} a weight with its sign, as a change */
function formatChange(change) {
  return change > 0 ? `+${formatWeight(change)}` : formatWeight(change);
}


export class Together {
  /** @param {any} level a head level, whose class makes the three pictures */
  constructor(level) {
    const { state, actions, page } = level;
    this.level = level;
    /** @type {import("./state.js").State} */
    this.state = state;
    this.actions = actions;
    /** Whether a matrix is moving the others. */
    this.linking = false;
    this.hidden = [page.gold, page.count.parentElement, page.lines.closest(".body"), page.pinned];
    this.panel = element("aside", { class: "panel three-numbers", "aria-label": "Weights in both, and their difference" });
    /** @type {any[]} a head level, its root and its heading for each trace */
    this.parts = TRACES.map((trace) => this.buildPart(trace));
    /** All tokens of the pinned one, for screen readers. */
    this.full = element("div", { class: "spoken" });
    this.root = element("div", { class: "together" }, element("div", { class: "three" }, ...this.parts.map(({ box }) => box)), this.panel, this.full);
    level.root.append(this.root);
    /** @type {{query: number, key: number}|null} the cell of a matrix that is pointed at, by positions */
    this.cell = null;
  }

  buildPart(trace) {
    const state = this.state.as(trace);
    const name = element("h2", { class: "which" }, tokenText(state.shownName()));
    const scale = element("p", { class: "scale-note" });
    const root = element("div", { class: "part" });
    const box = element("div", { class: "one-of-three", role: "group", "aria-label": state.shownName(), "data-trace": trace }, name, scale, root);
    const own = {
      state,
      showsNumbers: true,
      caption: "",
      tellWeights: (head, query, key) => this.tellWeights(head, query, key),
      linkCell: (matrix) => this.linkCell(matrix),
      linkWindow: (matrix) => this.linkWindow(matrix),
    };
    const actions = new Proxy(this.actions, { get: (target, key, receiver) => (Object.hasOwn(own, key) ? own[key] : Reflect.get(target, key, receiver)) });
    return { trace, box, scale, own, level: new this.level.constructor(root, this.level.payload, state, actions) };
  }

  destroy() {
    this.parts.forEach(({ level }) => level.destroy());
  }

  /** Show the three pictures, or the one that the level draws by itself. */
  show(three) {
    this.root.hidden = !three;
    for (const part of this.hidden) part.toggleAttribute("hidden", three);
  }

  draw() {
    const { page, heads } = this.level;
    const [first, second] = this.state.payload.names;
    const number = this.state.layerNumber();
    page.reading.replaceChildren(`Layer ${number}, ${heads.length === 1 ? "head" : "heads"} ${this.level.headNumbers.join(" ")}: `, tokenText(first), ", ", tokenText(second), " and their difference");
    this.cell = null;
    for (const { trace, level, scale, own } of this.parts) {
      scale.replaceChildren(...this.scaleParts(trace));
      own.caption = `${level.state.shownName()}; ${scale.textContent}`;
      level.draw();
    }
    this.showEmpty();
    this.showPanel();
  }

  /** @returns {(Node|string)[]} what colours and opacities of a picture stand for */
  scaleParts(trace) {
    const [first, second] = this.state.payload.names;
    const shade = this.state.drawing === "matrix" ? "colour" : "opacity";
    const size = { absolute: "", row: ", as share of the row’s largest", heads: ", divided by the number of heads on" }[this.state.opacity];
    if (trace !== "difference") return [`${shade}: weight from 0 to 1${size && this.state.opacity === "row" ? `${size} in both` : size}; one scale for `, tokenText(first), " and ", tokenText(second)];
    const { less, more } = this.actions.signs;
    const sign = (colour, text) => element("span", { class: "sign-note" }, swatch(colour), text, tokenText(second), " ");
    return [sign(less, "less in "), sign(more, "more in "), `${shade}: size of the difference from 0 to 1${size}; a scale of its own`];
  }

  /** Say where there is no difference at all. */
  showEmpty() {
    const { level, scale } = this.parts[2];
    const { weights } = level.state.layerWeights();
    const size = weights.length / this.state.side.heads.length;
    const same = this.level.heads.every((head) => weights.subarray(head * size, (head + 1) * size).every((weight) => weight === 0));
    this.root.dataset.same = String(same);
    if (same) scale.append(element("strong", { class: "no-difference", text: ". No difference: the weights are the same." }));
  }

  focus() {
    for (const { level } of this.parts) level.focus();
    this.showPanel();
  }

  // Numbers

  /** @returns {[number, number, number]} weights in both traces, and the second less the first */
  weightsOf(head, query, key) {
    const hidden = this.state.hiddenKeys();
    const [one, other] = this.layers().map((layer) => readRow(layer, head, query, hidden)[key]);
    return [one, other, other - one];
  }

  layers() {
    return ["a", "b"].map((trace) => this.state.side.layerOf(this.state.layer, trace));
  }

  /** @returns {string} the three numbers of a pair, in words */
  tellWeights(head, query, key) {
    const { names } = this.state.payload;
    const [one, other, change] = this.weightsOf(head, query, key);
    return `${names[0]} ${formatWeight(one)}, ${names[1]} ${formatWeight(other)}, difference ${formatChange(change)}`;
  }

  /** One panel for what is pinned or pointed at: a pair, a token, or nothing. */
  showPanel() {
    const focus = this.state.focus();
    const pair = this.cell || this.state.pair();
    const parts = pair ? this.pairParts(pair) : focus ? this.tokenParts(focus) : this.headParts();
    this.panel.replaceChildren(...parts);
    this.panel.dataset.focused = String(Boolean(focus || pair));
    const pinned = this.state.isPinned();
    this.full.replaceChildren(...(pinned && !pair ? [this.fullTable(focus)] : []));
    if (pinned && !this.cell) this.actions.speak([...this.panel.querySelectorAll("h2, tbody tr:nth-child(-n + 3)")].map((part) => part.textContent).join(". "));
    else if (!this.cell) this.actions.speak("");
  }

  /** @returns {Node[]} */
  pairParts({ query, key }) {
    const { left, right } = this.state.side;
    const rows = this.level.heads.map((head) => [this.headName(head), this.weightsOf(head, query, key)]);
    const title = element("h2", {}, tokenText(left.tokens[query]), " → ", tokenText(right.tokens[key]));
    return [title, this.table("head", rows), this.hint("Weights of each head that is on.")];
  }

  /** @returns {HTMLElement} */
  fullTable(focus) {
    const { own, rows } = this.tokenRows(focus);
    const { names } = this.state.payload;
    const table = this.table("token", rows.slice(0, MOST_READ));
    const relation = focus.side === "left" ? "attends to" : "is attended to by";
    const rest = rows.length > MOST_READ ? `; the strongest ${MOST_READ} of ${rows.length} tokens` : "";
    table.prepend(element("caption", { text: `${own} ${relation}, layer ${this.state.layerNumber()}: ${names[0]}, ${names[1]}, difference${rest}` }));
    return table;
  }

  /** @returns {{own: string, rows: [Node, number[]][]}} a token, and numbers of the others, the largest weights first */
  tokenRows({ side, index }) {
    const { left, right } = this.state.side;
    const [own, other] = side === "left" ? [left, right] : [right, left];
    const { queries, keys } = this.state.selection(null);
    const places = side === "left" ? keys : queries;
    const means = this.parts.slice(0, 2).map(({ level }) => (place) => (level.found.has(place) ? level.found.get(place).mean : 0));
    const three = (place) => {
      const [one, other] = means.map((meanOf) => meanOf(place));
      return [one, other, other - one];
    };
    const listed = places.map((place) => ({ place, three: this.state.mass < 1 ? this.meansOf(side, index, place) : three(place) }));
    const size = ({ three }) => Math.max(...three.slice(0, 2).map((weight) => (Number.isNaN(weight) ? 2 : weight)));
    listed.sort((a, b) => size(b) - size(a));
    return { own: own.nameOf(index), rows: listed.map(({ place, three }) => [tokenText(other.nameOf(place)), three]) };
  }

  /** @returns {Node[]} */
  tokenParts(focus) {
    const { side } = focus;
    const { heads } = this.level;
    const { own, rows } = this.tokenRows(focus);
    const title = element("h2", {}, tokenText(own), side === "left" ? " attends to" : " is attended to by");
    const partners = partnersText(this.parts[2].level.gold, focus, this.state.side);
    const rest = rows.length > MOST_LISTED ? ` The ${MOST_LISTED} of ${rows.length} with the largest weights.` : "";
    return [title, this.table("token", rows.slice(0, MOST_LISTED)), this.hint(`${heads.length > 1 ? `Mean of ${heads.length} heads` : "Weights"}.${rest}`), ...(partners ? [element("p", { class: "hint gold-partners", text: partners })] : [])];
  }

  /** @returns {[number, number, number]} means over the heads that are on, whatever share of the mass is drawn */
  meansOf(side, index, place) {
    const { heads } = this.level;
    const every = heads.map((head) => (side === "left" ? this.weightsOf(head, index, place) : this.weightsOf(head, place, index)));
    const mean = (at) => every.reduce((sum, weights) => sum + weights[at], 0) / heads.length;
    return [mean(0), mean(1), mean(1) - mean(0)];
  }

  /** @returns {Node[]} what heads do in both, and what is claimed of that */
  headParts() {
    const { side, layer, payload } = this.state;
    const claims = (payload.changes && payload.changes.heads[side.name]) || {};
    const items = this.level.heads.map((head) => {
      const { does, divergence } = side.measure(layer, head);
      const claim = claimText(claims[`${side.layers[layer]}.${side.heads[head]}`]);
      const apart = divergence === undefined ? "" : `divergence ${divergence.toFixed(3)} nats here`;
      return element("li", { class: "fact head-claim" }, this.headName(head), element("span", { class: "role", text: does }), element("span", { class: "hint", text: [apart, claim].filter(Boolean).join("; ") }));
    });
    const rule = payload.changes ? payload.changes.rule : "";
    return [element("h2", { text: `Layer ${this.state.layerNumber()}: what its heads do` }), element("ol", { class: "facts" }, ...items), this.hint("Point at a token, a line or a cell for the weights in both. Click a token to hold it."), this.hint(rule)];
  }

  headName(head) {
    return element("span", {}, swatch(this.actions.colourOf(head)), ` ${this.state.headNumber(head)}`);
  }

  hint(text) {
    return element("p", { class: "hint", text });
  }

  /** @returns {HTMLElement} rows of three numbers */
  table(what, rows) {
    const [first, second] = this.state.payload.names;
    const titles = [first, second, "difference"].map((name) => element("th", { scope: "col", title: name }, tokenText(name)));
    const body = rows.map(([name, [one, other, change]]) => {
      const colour = change < 0 ? "less" : "more";
      const cells = [formatWeight(one), formatWeight(other), formatChange(change)].map((text, i) => element("td", { class: i === 2 && change ? `value ${colour}` : "value", text }));
      return element("tr", {}, element("th", { scope: "row" }, name), ...cells);
    });
    return element("table", { class: "three-table" }, element("thead", {}, element("tr", {}, element("th", { scope: "col", text: what }), ...titles)), element("tbody", {}, ...body));
  }

  // Links between matrices

  /** Mark the cell that is pointed at in one matrix in the others, too. */
  linkCell(matrix) {
    const { cell, selection } = matrix;
    this.cell = cell && { query: selection.queries[cell.query], key: selection.keys[cell.key] };
    for (const { level } of this.parts) {
      if (!level.matrix || level.matrix === matrix) continue;
      level.matrix.cell = cell;
      level.matrix.focus();
    }
    this.showPanel();
  }

  /** Show the same part of all three. */
  linkWindow(matrix) {
    if (this.linking) return;
    this.linking = true;
    for (const { level } of this.parts) {
      if (!level.matrix || level.matrix === matrix) continue;
      level.matrix.window = { ...matrix.window };
      level.matrix.arrange();
      level.matrix.paintSoon();
    }
    this.linking = false;
  }

  // Handing out

  /** The three pictures as one file. */
  picture() {
    const { state } = this;
    const [first, second] = state.payload.names;
    const { side } = state;
    const caption = [state.payload.model, side.titles[0], `layer ${state.layerNumber()}`, `heads ${this.level.headNumbers.join(" ")}`, `${first}, ${second} and their difference`].filter(Boolean).join(", ");
    const pictures = this.parts.map(({ level }) => level.picture());
    const style = { ink: this.actions.style("--ink"), paper: this.actions.style("--paper") };
    const whole = (part) => joinPictures(pictures.map((picture) => part(picture)), caption, style);
    const { svg, places } = whole((picture) => picture.svg);
    const paints = pictures.some(({ paint }) => paint);
    return {
      name: `compared-${pictures[0].name}`,
      svg,
      ...(paints ? { frame: whole((picture) => picture.frame).svg, scale: Math.min(...pictures.map(({ scale }) => scale)) } : {}),
      ...(paints ? { paint: (context, scale) => pictures.forEach(({ paint }, i) => paintAt(context, places[i], () => paint(context, scale))) } : {}),
    };
  }

  /** What each picture shows, by its trace, for tests and scripts. */
  drawn() {
    return Object.fromEntries(this.parts.map(({ trace, level }) => [trace, level.asMatrix ? level.matrix.drawn() : level.drawn()]));
  }
}

/** Paint at a place. */
function paintAt(context, { x, y }, paint) {
  context.save();
  context.translate(x, y);
  paint();
  context.restore();
}

/**
 * SVG documents as one, beside each other. They are joined as texts: a parser would take styles in
 * them for those of the page, which its policy forbids.
 * @param {string[]} documents
 * @param {string} caption
 * @param {{ink: string, paper: string}} colours
 * @returns {{svg: string, places: {x: number, y: number}[]}}
 */
function joinPictures(documents, caption, { ink, paper }) {
  const sizes = documents.map((text) => ["width", "height"].map((name) => Number(new RegExp(`^<svg [^>]*?\\b${name}="([\\d.]+)"`).exec(text)[1])));
  const width = sizes.reduce((sum, [own]) => sum + own, 0) + BETWEEN * (documents.length - 1);
  const { text, more } = svgCaption(caption, width, ink);
  const y = 36 + more;
  const height = y + Math.max(...sizes.map(([, own]) => own));
  const root = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, "font-size": 14 });
  root.append(svgElement("title", {}, caption), svgElement("rect", { width, height, fill: paper }), text);
  const places = sizes.map((_, i) => ({ x: sizes.slice(0, i).reduce((sum, [own]) => sum + own + BETWEEN, 0), y }));
  const parts = documents.map((part, i) => part.replace(/^<svg /, () => `<svg x="${places[i].x}" y="${y}" data-trace="${TRACES[i]}" `));
  return { svg: new XMLSerializer().serializeToString(root).replace(/<\/svg>$/, () => `${parts.join("")}</svg>`), places };
}
