// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The panel of the walk through the numbers of the neuron level: one step at a time, and frames
// around what it speaks about. `neuron_steps.js` says what the steps are.

import { element } from "./elements.js";
import { QUERY_ROW, ROW, TITLES, TOP } from "./neuron_layout.js";
import { walkSteps } from "./neuron_steps.js";
import { SETTINGS } from "./settings.js";

/** A frame is so far from the column in it. */
const BESIDE = 5;
/** Strips that a step speaks about, which are open for it. */
const NEEDED = {
  query: ["key"],
  key: ["key"],
  product: ["product"],
  value: ["value"],
  sum: ["value"],
  output: ["value"],
};

export class NeuronWalk {
  /**
   * @param {(step: string) => void} go shows a step, by its name
   */
  constructor(go) {
    this.go = go;
    this.title = element("h3", { class: "neuron-walk-title" });
    this.text = element("div", { class: "neuron-walk-text" });
    const button = (name, text, click) => element("button", { type: "button", class: name, click }, text);
    this.back = button("neuron-walk-back", "Back", () => this.step(-1));
    this.next = button("neuron-walk-next", "Next", () => this.step(1));
    const close = button("neuron-walk-close", "End the walk", () => this.go("off"));
    const live = element("div", { class: "neuron-walk-live", "aria-live": "polite" }, this.title, this.text);
    this.root = element(
      "section",
      { class: "neuron-walk", "aria-label": "Walk through the numbers", hidden: true },
      live,
      element("div", { class: "neuron-walk-buttons" }, this.back, this.next, close),
    );
    /** Frames in the row of the query, and in rows of keys. */
    this.marks = { query: frames(), keys: frames() };
    /** @type {string[]} */
    this.names = [];
    this.at = 0;
  }

  /** @returns {string[]} strips that are open at a step */
  needed(step, about) {
    const known = { value: Boolean(about.value), before: Boolean(about.rotation) };
    const before = step === "query" || step === "key" ? ["before"] : [];
    return [...(NEEDED[step] || []), ...before].filter((name) => known[name] !== false);
  }

  step(by) {
    const name = this.names[this.at + by];
    if (name) this.go(name);
    else if (by > 0) this.go("off");
  }

  /** Take the focus; in a narrow window, all that is above goes out of sight. */
  begin(small) {
    this.next.focus({ preventScroll: true });
    this.root.scrollIntoView({ block: small ? "start" : "nearest" });
  }

  hide() {
    this.root.hidden = true;
    this.marks.query.replaceChildren();
    this.marks.keys.replaceChildren();
  }

  /**
   * @param {string} name of the step; one that the data do not allow stands for the one before it
   * @param {import("./neuron_paint.js").Scene} scene
   * @param {number} key
   * @param {string} query token
   * @param {string[]} tokens of keys
   */
  show(name, scene, key, query, tokens) {
    const steps = walkSteps(scene, key, query, tokens).map((make) => make());
    this.names = steps.map((step) => step.name);
    const place = SETTINGS.walk.indexOf(name);
    this.at = this.names.filter((one) => SETTINGS.walk.indexOf(one) <= place).length - 1;
    const step = steps[this.at];
    this.title.textContent = `Step ${this.at + 1} of ${steps.length}: ${step.title}`;
    this.text.replaceChildren(...paragraphs(step));
    this.back.disabled = this.at === 0;
    this.next.textContent = this.at === steps.length - 1 ? "Done" : "Next";
    if (document.activeElement === document.body && !this.root.hidden) this.next.focus();
    this.root.hidden = false;
    this.frame(step, scene, key);
  }

  /** Frame the columns that a step speaks about. */
  frame({ marks }, { layout, keys }, key) {
    this.marks.query.replaceChildren();
    this.marks.keys.replaceChildren();
    for (const [name, rows] of marks) {
      const column = layout.columns.find((one) => one.name === name);
      if (!column) continue;
      const [top, height] = rows === "query" ? [TITLES, QUERY_ROW] : rows === "all" ? [0, keys.length * ROW] : [keys.indexOf(key) * ROW, ROW];
      const made = element("span", { class: `neuron-mark ${name}`, "data-rows": rows });
      // Around the column, but never beyond the table, which would then scroll.
      const width = Math.min(column.width + 2 * BESIDE, layout.width - column.x + BESIDE);
      const place = { left: column.x - BESIDE, top: (rows === "query" ? top : TOP + top) - 1, width, height: height + 2 };
      for (const [side, length] of Object.entries(place)) made.style.setProperty(side, `${length}px`);
      this.marks[rows === "query" ? "query" : "keys"].append(made);
    }
  }

  /** @returns {Node} all steps below each other, to be printed */
  static printed(scene, key, query, tokens) {
    const steps = walkSteps(scene, key, query, tokens).map((make) => make());
    const items = steps.map((step) => element("li", {}, element("b", { text: step.title }), ...paragraphs(step)));
    return element("ol", { class: "neuron-walk-printed" }, ...items);
  }
}

/** @returns {HTMLElement} a place for frames */
function frames() {
  return element("div", { class: "neuron-marks", "aria-hidden": "true" });
}

/** @returns {HTMLElement[]} */
function paragraphs({ lines }) {
  return lines.map((line) => element("p", {}, ...line));
}
