// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The controls of the page. Each shows a value that it is given and reports a new one; none keeps
// state of its own.

import { element, tokenText } from "./elements.js";
import { explain } from "./glossary.js";
import { readAs } from "./source.js";

/** @returns {HTMLElement} a control with its label before it */
export function field(label, ...controls) {
  return element("label", { class: "field" }, element("span", {}, ...explain(label)), ...controls);
}

/**
 * A drop-down list.
 * @param {string} name
 * @param {string[][]} options values and what they read
 * @param {(value: string) => void} report
 * @returns {HTMLSelectElement}
 */
export function dropDown(name, options, report) {
  const made = element("select", { name, change: (event) => report(event.target.value) });
  made.append(...options.map(([value, text]) => element("option", { value, text })));
  return made;
}

/** @returns {HTMLButtonElement} a small button with a sign on it */
export function signButton(sign, label, report, name = "") {
  return element("button", {
    type: "button",
    class: `sign ${name}`,
    "aria-label": label,
    title: label,
    text: sign,
    click: report,
  });
}

/**
 * The square of a head. A double-click reports after the two clicks it is made of.
 * @param {number} number
 * @param {{toggle: Function, solo: Function, point: Function, leave: Function}} report
 */
export function headSquare(number, report) {
  return element("button", {
    type: "button",
    class: "head",
    text: number,
    click: report.toggle,
    dblclick: report.solo,
    keydown: (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      report.solo();
    },
    mouseenter: report.point,
    focus: report.point,
    mouseleave: report.leave,
    blur: report.leave,
  });
}

/**
 * A slider in whole percent.
 * @param {string} name
 * @param {(percent: number) => void} report
 * @returns {{input: HTMLInputElement, output: HTMLElement}}
 */
export function percentSlider(name, report) {
  const input = element("input", {
    type: "range",
    name,
    min: 5,
    max: 100,
    step: 1,
    input: (event) => report(Number(event.target.value)),
  });
  return { input, output: element("output", { class: "percent" }) };
}

/** @returns {HTMLInputElement} */
export function checkBox(name, report) {
  const change = (event) => report(event.target.checked);
  return element("input", { type: "checkbox", name, change });
}

/**
 * A column of tokens; its name is given with its tokens.
 * @param {"left"|"right"} side
 * @param {{point: (index: number|null) => void, hold: (index: number) => void}} report
 */
export function tokenColumn(side, report) {
  const indexOf = (event) => {
    const token = event.target.closest("[data-index]");
    return token ? Number(token.dataset.index) : null;
  };
  const hold = (event) => {
    if (indexOf(event) !== null) report.hold(indexOf(event));
  };
  return element("ol", {
    class: `tokens ${side}`,
    role: "listbox",
    mouseover: (event) => report.point(indexOf(event)),
    mouseleave: () => report.point(null),
    click: hold,
    keydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      hold(event);
    },
  });
}

/**
 * One token of a column, with room for a number.
 * @param {string} token as it is shown
 * @param {number} index
 * @param {boolean} special
 * @param {{token: string, unknown: boolean, joined: boolean, part: string}|null} note of what the model read
 * @returns {HTMLElement}
 */
export function tokenRow(token, index, special, note) {
  const row = element(
    "li",
    { role: "option", "data-index": index, class: special ? "token special" : "token", title: note ? `${token}: ${readAs(note)}` : token },
    tokenText(token),
    element("span", { class: "value" }),
  );
  if (note) {
    row.classList.toggle("unknown", note.unknown);
    row.classList.toggle("joined", note.joined);
    row.classList.toggle("respelled", !note.unknown && note.token.replace(/^##/, "").trim() !== token.trim());
    if (note.part) row.firstChild.dataset.part = note.part;
  }
  return row;
}
