// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The claims level: a cell for every head, coloured by a number over the corpus, and below the cells
// what is claimed of heads, each claim with links to the texts that show it best.

import { COLOURS, inkOn } from "./colours.js";
import { element, swatch, svgElement, tokenText } from "./elements.js";
import { NO_PAIRS } from "./gold_pairs.js";
import { HeadGrid } from "./grid.js";
import { measureLabel } from "./panel.js";
import { evenColour, legend, scaleColours } from "./scale.js";

/** So many characters of a text stand in a link, as far as there is room. */
const LINK_LENGTH = 120;

/** @returns {string} a number of a head, short */
function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size !== 0 && size < 0.01 ? value.toPrecision(1) : value.toFixed(size < 100 ? 2 : 0);
}

/** @returns {string} a text as a person would write it, about: pieces of a word are joined */
function wholeText(input) {
  const [text] = Object.values(input.texts);
  const special = new Set(text.special);
  return text.tokens
    .filter((_, i) => !special.has(i))
    .map((token) => (token.startsWith("##") && token.length > 2 ? token.slice(2) : ` ${token}`))
    .join("")
    .trim();
}

export class ClaimsLevel {
  /**
   * @param {HTMLElement} root
   * @param {import("./types.js").Payload} payload
   * @param {import("./state.js").State} state
   * @param {import("./shell.js").Shell} actions
   */
  constructor(root, payload, state, actions) {
    this.payload = payload;
    this.report = payload.report;
    this.state = state;
    this.actions = actions;
    this.names = [...new Set(this.report.claims.map(({ name }) => name))];
    this.grid = new HeadGrid("All heads", {
      open: (cell) => this.open(cell),
      point: (cell) => this.showHead(cell),
      leave: () => this.showNames(),
    });
    this.status = element("p", { class: "status", role: "status" });
    this.panel = element("aside", { class: "panel", "aria-label": "Claims" });
    this.table = element("div", { class: "claims" });
    const axes = element("p", { class: "axes", text: "layers ↓ heads →" });
    const about = element("p", { class: "about", text: `${this.report.title}. ${this.report.about}` });
    const body = element("div", { class: "body" }, element("div", {}, axes, this.grid.root, this.table), this.panel);
    root.replaceChildren(about, this.status, body);
  }

  destroy() {
    this.side = null;
  }

  draw() {
    if (this.side !== this.state.side) {
      this.side = this.state.side;
      this.grid.layOutByLayer(this.side);
    }
    this.values = (this.report.values[this.side.name] || {})[this.state.measure] || [];
    const known = this.values.flat().filter((value) => value !== null);
    const most = Math.max(...known.map(Math.abs), 0) || 1;
    this.signed = known.some((value) => value < 0);
    this.range = this.signed ? [-most, most] : [0, most];
    this.colours = scaleColours(this.signed);
    this.showStatus();
    this.grid.cells.forEach((cell) => this.fill(cell));
    this.grid.mark(this.state);
    this.showNames();
    this.showTable();
  }

  showStatus() {
    const [low, high] = this.range;
    const marks = [0, 0.5, 1].map((share) => [share, formatNumber(low + share * (high - low))]);
    this.status.replaceChildren(
      element("span", { text: `${this.report.measured}: ${measureLabel(this.state.measure)}` }),
      legend(this.colours, /** @type {any} */ (marks)),
    );
  }

  /** @returns {string} the colour of what is claimed */
  colourOf(name) {
    return this.actions.colours[this.names.indexOf(name) % COLOURS];
  }

  /** @returns {import("./types.js").Claim[]} what is claimed of a head, by indices */
  claimsOf({ layer, head }) {
    const [a, b] = [this.side.layers[layer], this.side.heads[head]];
    return this.report.claims.filter((claim) => claim.side === this.side.name && claim.layer === a && claim.head === b);
  }

  valueOf({ layer, head }) {
    return (this.values[layer] || [])[head];
  }

  fill(cell) {
    const { button } = cell;
    const value = this.valueOf(cell);
    const [low, high] = this.range;
    const colour = typeof value === "number" ? evenColour(this.colours, (value - low) / (high - low)) : "";
    const claims = this.claimsOf(cell);
    const dots = element("span", { class: "dots", "aria-hidden": "true" }, ...claims.map(({ name }) => swatch(this.colourOf(name))));
    button.replaceChildren(element("span", { class: "cell-value", text: formatNumber(value) }), dots);
    button.style.setProperty("background-color", colour);
    button.style.setProperty("color", colour ? inkOn(colour) : "");
    const said = claims.map(({ name }) => measureLabel(name)).join(", ");
    button.setAttribute("aria-label", [this.nameOf(cell), formatNumber(value), said].filter(Boolean).join(", "));
  }

  nameOf({ layer, head }) {
    return `Layer ${this.side.layers[layer]}, head ${this.side.heads[head]}`;
  }

  /** What is claimed of how many heads; a click shows it. */
  showNames() {
    const here = this.report.claims.filter(({ side }) => side === this.side.name);
    const rows = this.names.map((name) => {
      const count = here.filter((claim) => claim.name === name).length;
      const choose = () => this.actions.update({ measure: name });
      const current = String(name === this.state.measure);
      const button = element("button", { type: "button", class: "claim-name", "aria-pressed": current, "data-claim": name, text: measureLabel(name), click: choose });
      return element("li", { class: "fact" }, swatch(this.colourOf(name)), button, element("span", { class: "value", text: count }));
    });
    this.panel.replaceChildren(
      element("h2", { text: "Heads by what is claimed of them" }),
      element("ol", { class: "facts" }, ...rows),
      element("p", { class: "hint", text: "Point at a head for all that is claimed of it. Click it, or a text below, to see its attention; Back returns." }),
      element("p", { class: "hint lacking", text: this.report.lacking }),
    );
  }

  /** All that is claimed of one head. */
  showHead(cell) {
    const rows = this.claimsOf(cell).map(({ name, value, told }) =>
      element(
        "li",
        { class: "fact" },
        swatch(this.colourOf(name)),
        element("span", { class: "role", text: [measureLabel(name), told].filter(Boolean).join(": ") }),
        element("span", { class: "value", text: formatNumber(value) }),
      ),
    );
    const value = `${measureLabel(this.state.measure)}: ${formatNumber(this.valueOf(cell))}`;
    this.panel.replaceChildren(
      element("h2", { text: this.nameOf(cell) }),
      element("p", { class: "hint", text: value }),
      element("ol", { class: "facts" }, ...rows),
      element("p", { class: "hint", text: rows.length ? "" : "Nothing is claimed of it." }),
    );
  }

  /** The claims of the chosen kind, with their texts. */
  showTable() {
    const claims = this.report.claims.filter(({ side, name }) => side === this.side.name && name === this.state.measure);
    const title = `${claims.length} ${claims.length === 1 ? "head" : "heads"}: ${measureLabel(this.state.measure)}`;
    const heads = ["Head", this.report.measured, "Known besides", "Texts that show it best"];
    const head = element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", text }))));
    const rows = claims.map((claim) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, swatch(this.colourOf(claim.name)), `${claim.layer}.${claim.head}`),
        element("td", { text: formatNumber(claim.value) }),
        element("td", { text: claim.told }),
        element("td", {}, this.texts(claim)),
      ),
    );
    const table = element("table", {}, element("caption", { text: title }), head, element("tbody", {}, ...rows));
    this.table.replaceChildren(claims.length ? table : element("p", { class: "hint", text: "This is claimed of no head." }));
  }

  /** @returns {HTMLElement} links to the texts of a claim */
  texts(claim) {
    if (!claim.shown.length) return element("span", { class: "hint", text: "none in this page" });
    const links = claim.shown.map(([sequence, number, score]) => {
      const text = wholeText(this.payload.inputs[sequence]);
      const short = text.length > LINK_LENGTH ? `${text.slice(0, LINK_LENGTH)}…` : text;
      const look = (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        this.look(claim, sequence);
      };
      const value = element("span", { class: "value", text: formatNumber(score) });
      const link = element("a", { href: this.address(claim, sequence), title: `Text ${number}: ${text}`, click: look }, value, tokenText(short));
      return element("li", {}, link);
    });
    return element("ol", {}, ...links);
  }

  /** @returns {string} the address at which the page shows a claim */
  address(claim, sequence) {
    const settings = { level: "head", sequence, side: claim.side, layer: claim.layer, heads: claim.head, measure: claim.name, ...this.pairsOf(claim, sequence) };
    return `#${Object.entries(settings).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`;
  }

  /** @returns {{gold: string}} the gold pairs of a claim; none where the text has none of it */
  pairsOf(claim, sequence) {
    const side = this.payload.inputs[sequence].sides.find(({ name }) => name === claim.side);
    return { gold: side && Object.keys(side.pairs || {}).includes(claim.name) ? claim.name : NO_PAIRS };
  }

  look(claim, sequence) {
    const layer = this.side.layers.indexOf(claim.layer);
    const head = this.side.heads.indexOf(claim.head);
    this.actions.go({ sequence, level: "head", layer, heads: [head], query: null, key: null, ...this.pairsOf(claim, sequence) });
  }

  /** Show a head, in the text that shows best what is claimed of it. */
  open(cell) {
    if (!this.state.levels.includes("head")) return;
    const claims = this.claimsOf(cell).filter(({ shown }) => shown.length);
    const claim = claims.find(({ name }) => name === this.state.measure) || claims[0];
    if (claim) this.look(claim, claim.shown[0][0]);
    else this.actions.go({ level: "head", layer: cell.layer, heads: [cell.head] });
  }

  key(event) {
    return this.grid.key(event);
  }

  /** What each cell shows, by the numbers of the model. */
  drawn() {
    return this.grid.cells.map((cell) => ({
      layer: this.side.layers[cell.layer],
      head: this.side.heads[cell.head],
      text: cell.button.querySelector(".cell-value").textContent,
      colour: cell.button.style.getPropertyValue("background-color"),
      claims: this.claimsOf(cell).map(({ name }) => name),
    }));
  }

  /** The cells, as they stand. */
  picture() {
    const box = this.grid.root.getBoundingClientRect();
    const [width, height] = [Math.ceil(box.width), Math.ceil(box.height) + 48];
    const [ink, fill] = [this.actions.style("--ink"), this.actions.style("--paper")];
    const root = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 12 });
    const caption = [this.payload.model, this.report.measured, measureLabel(this.state.measure)].join(", ");
    root.append(svgElement("title", {}, caption), svgElement("rect", { width, height, fill }));
    root.append(svgElement("text", { x: width / 2, y: 20, "text-anchor": "middle", fill: ink }, caption));
    for (const { button } of this.grid.cells) {
      const place = button.getBoundingClientRect();
      const [x, y] = [place.left - box.left, place.top - box.top + 40];
      const { backgroundColor, color } = getComputedStyle(button);
      root.append(svgElement("rect", { x, y, width: place.width, height: place.height, rx: 4, fill: backgroundColor }));
      const middle = { x: x + place.width / 2, y: y + place.height / 2 + 4, "text-anchor": "middle", fill: color };
      root.append(svgElement("text", middle, button.querySelector(".cell-value").textContent));
    }
    for (const label of this.grid.root.querySelectorAll(".grid-label")) {
      const place = label.getBoundingClientRect();
      const middle = { x: place.left - box.left + place.width / 2, y: place.top - box.top + 40 + place.height / 2 + 4, "text-anchor": "middle", fill: ink };
      root.append(svgElement("text", middle, label.textContent));
    }
    return { name: "attention-claims", svg: new XMLSerializer().serializeToString(root) };
  }
}
