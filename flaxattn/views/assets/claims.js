// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The claims level: a cell for every head, coloured by a number over the corpus, and below the cells
// what is claimed of heads, each claim with links to the texts that show it best.

import { claimMark, markShape, markSign } from "./claim_marks.js";
import { inkOn } from "./colours.js";
import { element, fillWith, svgElement } from "./elements.js";
import { EvidenceLinks, formatNumber } from "./evidence_links.js";
import { explain } from "./glossary.js";
import { HeadGrid } from "./grid.js";
import { measureLabel } from "./panel.js";
import { evenColour, legend, scaleColours } from "./scale.js";

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
    this.links = new EvidenceLinks(payload, state, actions);
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
      element("span", {}, ...explain(this.report.measured), ": ", ...explain(measureLabel(this.state.measure))),
      legend(this.colours, /** @type {any} */ (marks)),
    );
  }

  /** @returns {{mark: number[], count: number}[]} how many claims of each family are made of a head */
  countFamilies(cell) {
    const counts = new Map();
    for (const { name } of this.claimsOf(cell)) {
      const [family] = this.report.marks[name];
      counts.set(family, (counts.get(family) || 0) + 1);
    }
    return [...counts].sort((a, b) => a[0] - b[0]).map(([family, count]) => ({ mark: [family, 2], count }));
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
    const { families } = this.report;
    const signs = this.countFamilies(cell).map(({ mark, count }) =>
      element("span", { class: "claim-mark" }, markSign(families, mark), element("span", { class: "code", text: `${families[mark[0]][0]}×${count}` })),
    );
    button.replaceChildren(element("span", { class: "cell-value", text: formatNumber(value) }), element("span", { class: "marks", "aria-hidden": "true" }, ...signs));
    button.classList.toggle("claimed", claims.some(({ name }) => name === this.state.measure));
    fillWith(button, colour);
    button.style.setProperty("color", colour ? inkOn(colour) : "");
    const said = claims.map(({ name }) => measureLabel(name)).join(", ");
    button.setAttribute("aria-label", [this.nameOf(cell), formatNumber(value), said].filter(Boolean).join(", "));
  }

  nameOf({ layer, head }) {
    return `Layer ${this.side.layers[layer]}, head ${this.side.heads[head]}`;
  }

  /** What is claimed of how many heads, family by family; a click shows it. */
  showNames() {
    const { families, marks } = this.report;
    const here = this.report.claims.filter(({ side }) => side === this.side.name);
    const row = (name) => {
      const count = here.filter((claim) => claim.name === name).length;
      const choose = () => this.actions.update({ measure: name });
      const current = String(name === this.state.measure);
      const button = element("button", { type: "button", class: "claim-name", "aria-pressed": current, "data-claim": name, text: measureLabel(name), click: choose });
      return element("li", { class: "fact" }, claimMark(this.report, name), button, element("span", { class: "value", text: count }));
    };
    const groups = families.flatMap(([, title], family) => {
      const own = this.names.filter((name) => marks[name][0] === family);
      if (!own.length) return [];
      return [element("h3", { class: "family" }, markSign(families, [family, 2]), title), element("ol", { class: "facts" }, ...own.map(row))];
    });
    this.panel.replaceChildren(
      element("h2", { text: "Claims about heads" }),
      ...groups,
      element("p", { class: "hint", text: `In a cell, a shape and letter stand for a family of claims, the number for how many of them the head has. The heads of the claim that is shown have a frame. Point at a head to list its claims. ${this.links.hasProfiles ? "Click it for its page, a text below to see its attention" : "Click it, or a text below, to see its attention"}; Back returns.` }),
      element("p", { class: "hint lacking", text: this.report.lacking }),
    );
  }

  /** List the claims of one head. */
  showHead(cell) {
    const rows = this.claimsOf(cell).map(({ name, value, detail }) =>
      element(
        "li",
        { class: "fact" },
        claimMark(this.report, name),
        element("span", { class: "role", text: [measureLabel(name), detail].filter(Boolean).join(": ") }),
        element("span", { class: "value", text: formatNumber(value) }),
      ),
    );
    const value = `${measureLabel(this.state.measure)}: ${formatNumber(this.valueOf(cell))}`;
    this.panel.replaceChildren(
      element("h2", { text: this.nameOf(cell) }),
      element("p", { class: "hint", text: value }),
      element("ol", { class: "facts" }, ...rows),
      element("p", { class: "hint", text: rows.length ? "" : "There are no claims about it." }),
    );
  }

  /** The claims of the chosen kind, with their texts. */
  showTable() {
    const claims = this.report.claims.filter(({ side, name }) => side === this.side.name && name === this.state.measure);
    const title = `${claims.length} ${claims.length === 1 ? "head" : "heads"}: ${measureLabel(this.state.measure)}`;
    const heads = ["Head", this.report.measured, "Details", "Texts that show it best"];
    const head = element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", text }))));
    const rows = claims.map((claim) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, claimMark(this.report, claim.name), " ", this.headOf(claim)),
        element("td", {}, this.links.value(claim)),
        element("td", { text: claim.detail }),
        element("td", {}, this.links.texts(claim)),
      ),
    );
    const table = element("table", {}, element("caption", { text: title }), head, element("tbody", {}, ...rows));
    this.table.replaceChildren(claims.length ? table : element("p", { class: "hint", text: "There are no such claims." }));
  }

  /** @returns {Node|string} the number of the head that a claim is about, with a link to its page */
  headOf({ layer, head }) {
    if (!this.links.hasProfiles) return `${layer}.${head}`;
    return this.links.toProfile(this.side.layers.indexOf(layer), this.side.heads.indexOf(head));
  }

  /** Show the page of a head, or the text that shows best what is claimed of it. */
  open(cell) {
    if (this.links.hasProfiles) return this.links.openProfile(cell.layer, cell.head);
    if (!this.state.levels.includes("head")) return;
    const claims = this.claimsOf(cell).filter(({ shown }) => shown.length);
    const claim = claims.find(({ name }) => name === this.state.measure) || claims[0];
    if (claim) this.links.look(claim, claim.shown[0][0]);
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
    for (const cell of this.grid.cells) {
      const { button } = cell;
      const place = button.getBoundingClientRect();
      const [x, y] = [place.left - box.left, place.top - box.top + 40];
      const { backgroundColor, color } = getComputedStyle(button);
      root.append(svgElement("rect", { x, y, width: place.width, height: place.height, rx: 4, fill: backgroundColor }));
      for (const part of button.querySelectorAll(".cell-value, .code")) {
        const spot = part.getBoundingClientRect();
        const middle = { x: spot.left - box.left + spot.width / 2, y: spot.top - box.top + 40 + spot.height / 2 + 4, "text-anchor": "middle", fill: color };
        root.append(svgElement("text", middle, part.textContent));
      }
      [...button.querySelectorAll(".mark")].forEach((sign, i) => {
        const spot = sign.getBoundingClientRect();
        const shape = markShape(this.report.families, this.countFamilies(cell)[i].mark, fill);
        shape.setAttribute("transform", `translate(${spot.left - box.left + 1} ${spot.top - box.top + 41})`);
        root.append(shape);
      });
    }
    for (const label of this.grid.root.querySelectorAll(".grid-label")) {
      const place = label.getBoundingClientRect();
      const middle = { x: place.left - box.left + place.width / 2, y: place.top - box.top + 40 + place.height / 2 + 4, "text-anchor": "middle", fill: ink };
      root.append(svgElement("text", middle, label.textContent));
    }
    return { name: "attention-claims", svg: new XMLSerializer().serializeToString(root) };
  }
}
