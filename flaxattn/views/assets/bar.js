// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// What stands above every level: its tabs, the choice of a text, and the controls of the settings
// that levels share. Each level says which of these it has; what they show comes from the state.

import { inkOn } from "./colours.js";
import { checkBox, dropDown, field, headSquare, percentSlider, signButton } from "./controls.js";
import { element, tokenText } from "./elements.js";
import { explain } from "./glossary.js";
import { OFF } from "./gold.js";
import { formatShare } from "./numbers.js";
import { headTip, measureLabel } from "./panel.js";
import { ATTENTION, RAW } from "./settings.js";

const OPACITY = [
  ["absolute", "weight"],
  ["row", "÷ row maximum"],
  ["heads", "÷ heads on"],
];
const DRAWING = [
  ["lines", "Lines"],
  ["matrix", "Matrix"],
];
const DIRECTION = [
  ["from", "from the token"],
  ["to", "to the token"],
  ["surprise", "by surprise instead"],
];
const ORDER = [
  ["grid", "by layer"],
  ["value", "by number"],
  ["cluster", "by likeness"],
];
/** So many texts are listed; the others are found by searching. */
const LISTED_TEXTS = 200;
const TEXT_START = 70;

/** @returns {string} the beginning of a text, for a list */
function textLabel(input, at) {
  const [text] = Object.values(input.texts);
  const special = new Set(text.special);
  const words = text.passages ? text.passages.join(" ") : text.tokens.filter((_, i) => !special.has(i)).join(" ");
  return `${at + 1}: ${words.length > TEXT_START ? `${words.slice(0, TEXT_START)}…` : words}`;
}

export class Bar {
  /** @param {import("./shell.js").Shell} actions @param {Object<string, import("./main.js").Kind>} kinds */
  constructor(actions, kinds) {
    this.actions = actions;
    this.state = actions.state;
    this.kinds = kinds;
    this.squares = [];
    this.labels = this.state.payload.inputs.map(textLabel);
    this.tabs = {};
    this.root = element("div", { class: "top" }, this.buildTitle(), this.buildControls(), this.buildHeads());
  }

  buildTitle() {
    const { actions } = this;
    for (const name of this.state.levels) {
      const { label } = this.kinds[name];
      const click = () => actions.go({ level: name });
      this.tabs[name] = element("button", { type: "button", role: "tab", class: "tab", "data-level": name, text: label, click });
    }
    const tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Levels" }, ...Object.values(this.tabs));
    tabs.hidden = this.state.levels.length === 1;
    this.pictureButtons = [
      signButton("SVG", "Save this picture as an SVG file", () => actions.save("svg"), "svg"),
      signButton("PNG", "Save this picture as a PNG file", () => actions.save("png"), "png"),
    ];
    this.themeButton = signButton("◐", "Theme", () => actions.nextTheme(), "theme");
    return element(
      "header",
      { class: "title" },
      element("h1", { text: "Attention" }),
      element("bdi", { class: "model", text: this.state.payload.model }),
      tabs,
      element("span", { class: "spring" }),
      ...this.pictureButtons,
      signButton("{ }", "The state of this page, to copy", () => actions.showState(), "copy"),
      this.themeButton,
      signButton("?", "Help", () => actions.help.showModal(), "ask"),
    );
  }

  buildControls() {
    const { actions } = this;
    const set = (name) => (value) => actions.update({ [name]: value });
    const box = (name, on, off) => checkBox(name, (checked) => actions.update({ [name]: checked ? on : off }));
    const label = (text, control) => element("label", { class: "field" }, control, element("span", { text }));
    this.sideList = dropDown("side", [], (side) => actions.go({ side }));
    this.layerList = dropDown("layer", [], (at) => actions.go({ layer: Number(at) }));
    this.attentionList = dropDown("attention", ATTENTION, set("attention"));
    this.opacityList = dropDown("opacity", OPACITY, set("opacity"));
    this.drawingList = dropDown("drawing", DRAWING, set("drawing"));
    this.measureList = dropDown("measure", [], set("measure"));
    this.orderList = dropDown("order", ORDER, set("order"));
    this.mass = percentSlider("mass", (percent) => actions.update({ mass: percent / 100 }));
    this.weightsList = dropDown("weights", [], set("weights"));
    this.goldList = dropDown("gold", [[OFF, "off"], ...this.state.goldNames.map((name) => [name, name])], set("gold"));
    this.specialBox = box("special", "hidden", "shown");
    this.firstBox = box("first", "hidden", "shown");
    this.unitBox = box("unit", "words", "tokens");
    this.labelsBox = box("labels", "tokens", "source");
    const directions = this.state.payload.inputs.some(({ predictions }) => predictions) ? DIRECTION : DIRECTION.slice(0, 2);
    this.directionList = dropDown("direction", directions, (direction) => actions.step(() => this.state.turn(direction)));
    this.compareSwitch = this.buildCompare();
    const step = (by) => () => actions.step(() => this.state.stepLayer(by));
    this.fields = {
      text: this.buildTexts(),
      side: field("Side", this.sideList),
      layer: element(
        "div",
        { class: "stepper" },
        field("Layer", this.layerList),
        signButton("‹", "Previous layer", step(-1)),
        signButton("›", "Next layer", step(1)),
      ),
      measure: field("Number", this.measureList),
      order: field("Order", this.orderList),
      compare: this.compareSwitch,
      weights: field("Weights", this.weightsList),
      drawing: field("Drawn as", this.drawingList),
      direction: field("Shaded by attention", this.directionList),
      gold: field("Gold pairs", this.goldList),
      attention: field("Attention", this.attentionList),
      opacity: field("Opacity", this.opacityList),
      mass: field("Mass", this.mass.input, this.mass.output),
      special: label("Hide special tokens", this.specialBox),
      first: label("Hide first token", this.firstBox),
      unit: label("Words", this.unitBox),
      labels: label("Model tokens", this.labelsBox),
    };
    return element("div", { class: "controls" }, ...Object.values(this.fields));
  }

  /** Which of two traces shows, or their difference. */
  buildCompare() {
    const { names } = this.state.payload;
    const [first, second] = names || ["", ""];
    const labels = { a: first, b: second, difference: `${second} − ${first}`, together: "Side by side" };
    const choose = (compare) => () => this.actions.update({ compare });
    const buttons = Object.entries(labels).map(([value, text]) =>
      element("button", { type: "button", class: "tab", role: "radio", "data-compare": value, click: choose(value) }, tokenText(text)),
    );
    return element("div", { class: "tabs switch", role: "radiogroup", "aria-label": "Trace" }, ...buttons);
  }

  buildTexts() {
    this.search = element("input", {
      type: "search",
      name: "search",
      placeholder: "Search",
      "aria-label": "Search the texts",
      input: () => this.listTexts(),
      keydown: (event) => event.key === "Enter" && this.textList.options.length && this.turnText(this.textList.options[0].value),
    });
    this.textList = dropDown("sequence", [], (at) => this.turnText(at));
    return field("Text", this.search, this.textList);
  }

  turnText(at) {
    this.actions.go({ sequence: Number(at) });
  }

  /** List the texts that hold what is searched for, and the one that is shown. */
  listTexts() {
    const wanted = this.search.value.toLowerCase();
    const holds = ({ texts }) =>
      Object.values(texts).some(({ tokens, passages = [] }) => [tokens.join(""), tokens.join(" "), ...passages].some((text) => text.toLowerCase().includes(wanted)));
    const { inputs } = this.state.payload;
    const found = [...inputs.keys()].filter((at) => holds(inputs[at]));
    const listed = found.slice(0, LISTED_TEXTS);
    const options = listed.map((at) => element("option", { value: at, text: this.labels[at] }));
    if (!listed.includes(this.state.sequence)) {
      options.push(element("option", { value: this.state.sequence, text: this.labels[this.state.sequence] }));
    }
    this.textList.replaceChildren(...options);
    this.textList.value = String(this.state.sequence);
    this.search.title = `${found.length} of ${inputs.length} texts`;
  }

  buildHeads() {
    this.headGroup = element("div", { class: "heads", role: "group", "aria-label": "Heads" });
    return this.headGroup;
  }

  buildSquare(number, head) {
    const { actions, state } = this;
    return headSquare(number, {
      toggle: () => actions.step(() => (this.oneHead ? this.turnTo(head) : state.toggleHead(head))),
      solo: () => this.oneHead || actions.step(() => state.soloHead(head)),
      point: (event) => actions.showTip(headTip(state.layerNumber(), this.actions.facts(head)), event.target),
      leave: () => actions.hideTip(),
    });
  }

  /** @returns {boolean} whether there is room for one head only */
  get oneHead() {
    const { level, drawing } = this.state;
    return Boolean(this.kinds[level].oneHead) || (level === "head" && drawing === "matrix");
  }

  /** Show a head by itself. */
  turnTo(head) {
    this.state.heads = [head];
  }

  /** Put up what differs from text to text and from side to side. */
  fit() {
    const { state } = this;
    if (this.side === state.side) return;
    this.side = state.side;
    const sides = Object.values(state.sides);
    const choices = sides.map((side) => element("option", { value: side.name, text: side.titles[0] }));
    this.sideList.replaceChildren(...choices);
    const layers = state.side.layers.map((number, i) => element("option", { value: i, text: number }));
    this.layerList.replaceChildren(...layers);
    const kinds = state.kinds().map((name) => element("option", { value: name, text: name === RAW ? "raw attention" : state.side.about.other[name].label }));
    this.weightsList.replaceChildren(...kinds);
    this.attentionList.replaceChildren(...this.pairOptions());
    const measures = state.measures().map((name) => element("option", { value: name, text: measureLabel(name) }));
    this.measureList.replaceChildren(...measures);
    this.squares = state.side.heads.map((number, head) => this.buildSquare(number, head));
    this.headGroup.replaceChildren(element("span", { class: "label" }, ...explain("Heads")), ...this.squares);
    this.listTexts();
  }

  /** @returns {HTMLElement[]} choices between the two parts of a text, by what these are */
  pairOptions() {
    const { parts } = this.state.side.left;
    const named = (value) => [...value].map((part) => parts[part === "a" ? 0 : 1]).join(" → ");
    return ATTENTION.map(([value, text]) => element("option", { value, text: parts && value !== "all" ? named(value) : text }));
  }

  show() {
    const { state } = this;
    this.fit();
    this.showFields();
    for (const [name, tab] of Object.entries(this.tabs)) tab.setAttribute("aria-selected", String(name === state.level));
    this.sideList.value = state.side.name;
    this.layerList.value = String(state.layer);
    this.attentionList.value = state.attention;
    this.opacityList.value = state.opacity;
    this.measureList.value = state.measure;
    this.orderList.value = state.order;
    this.drawingList.value = state.drawing;
    this.weightsList.value = state.weights;
    this.goldList.value = state.gold;
    this.fields.weights.title = state.kind ? state.kind.about : "";
    const chosen = state.level !== "head" && state.compare === "together" ? "difference" : state.compare;
    for (const button of this.compareSwitch.children) {
      button.setAttribute("aria-checked", String(button.dataset.compare === chosen));
      button.hidden = button.dataset.compare === "together" && state.level !== "head";
    }
    this.mass.input.value = String(Math.round(100 * state.mass));
    this.mass.output.textContent = formatShare(state.mass);
    this.specialBox.checked = state.hideSpecial;
    this.firstBox.checked = state.hideFirst;
    this.unitBox.checked = state.words;
    this.labelsBox.checked = state.labels === "tokens";
    this.directionList.value = state.direction;
    this.themeButton.setAttribute("aria-label", `Theme: ${state.theme}`);
    this.themeButton.title = `Theme: ${state.theme}`;
    this.showHeads();
  }

  /** Only the fields that the level has and that leave a choice. */
  showFields() {
    const { state } = this;
    const { fields, heads, noPicture } = this.kinds[state.level];
    for (const button of this.pictureButtons) button.hidden = Boolean(noPicture);
    const choice = {
      text: state.payload.inputs.length > 1,
      side: Object.keys(state.sides).length > 1,
      compare: Boolean(state.payload.names),
      weights: state.kinds().length > 1,
      gold: state.goldNames.length > 0,
      attention: state.side.paired,
      special: state.hasSpecial(),
      unit: state.hasWords(),
      labels: state.hasSource(),
    };
    for (const [name, control] of Object.entries(this.fields)) {
      control.hidden = !fields.includes(name) || choice[name] === false;
    }
    this.headGroup.hidden = !heads;
  }

  showHeads() {
    const one = this.oneHead;
    this.squares.forEach((square, head) => {
      const { number, colour, measure } = this.actions.facts(head);
      const on = one ? head === this.state.oneHead() : this.state.heads.includes(head);
      square.setAttribute("aria-pressed", String(on));
      square.setAttribute("aria-label", `Head ${number}, ${measure.does}`);
      square.style.setProperty("--colour", colour);
      square.style.setProperty("color", on ? inkOn(colour) : "");
    });
  }
}
