// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The page on paper: drawn anew in the width of a sheet, in light colours and as a whole, with its
// settings in words where the controls stand. Backgrounds are borders then (`print.css`), which
// browsers print in any case.

import { applyTheme } from "./colours.js";
import { element } from "./elements.js";

/** @returns {string} a control of the bar in words: what it is called, and what is chosen */
function controlText(control) {
  const label = [...control.querySelectorAll("span")].map((part) => part.textContent).join(" ");
  const [list, box, percent] = ["select", "input[type=checkbox]", "output"].map((kind) => control.querySelector(kind));
  if (box) return box.checked ? label : "";
  if (percent) return `${label} ${percent.textContent}`;
  if (list) return `${label} ${list.selectedOptions.length ? list.selectedOptions[0].textContent : ""}`;
  const chosen = control.querySelector("[aria-checked=true]");
  return chosen ? chosen.textContent : "";
}

export class Printing {
  /** @param {import("./shell.js").Shell} shell */
  constructor(shell) {
    this.shell = shell;
    this.settings = element("p", { class: "printed" });
    shell.bar.root.append(this.settings);
    addEventListener("beforeprint", () => this.begin());
    addEventListener("afterprint", () => this.end());
  }

  begin() {
    const { root, bar, state, kinds } = this.shell;
    const shown = Object.values(bar.fields).filter((control) => !control.hidden);
    const heads = bar.squares.filter((square) => square.getAttribute("aria-pressed") === "true").map((square) => square.textContent);
    const parts = [kinds[state.level].label, ...shown.map(controlText), bar.headGroup.hidden ? "" : `Heads ${heads.join(", ")}`];
    this.settings.textContent = parts.filter(Boolean).join(" · ");
    root.classList.add("printing");
    applyTheme(root, "light");
    this.draw();
    if (this.shell.level.paintAll) this.shell.level.paintAll();
  }

  end() {
    this.shell.root.classList.remove("printing");
    applyTheme(this.shell.root, this.shell.state.theme);
    this.draw();
  }

  draw() {
    this.shell.readColours();
    this.shell.show();
  }
}
