// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The state as JSON, to copy and to paste: Python takes it, and so does another page.

import { element } from "./elements.js";

export class StateDialog {
  /** @param {(json: Object<string, any>) => void} take */
  constructor(take) {
    this.take = take;
    this.text = element("textarea", { name: "state", rows: 8, spellcheck: "false", "aria-label": "State as JSON" });
    this.wrong = element("p", { class: "hint", role: "alert" });
    const button = (text, name, click) => element("button", { type: "button", class: `sign ${name}`, text, click });
    this.root = element(
      "dialog",
      { class: "help", "aria-label": "State" },
      element("h2", { text: "The state of this page" }),
      element("p", { text: "Python opens the same page from it: fa.head_view(trace, state=…). Another state can be pasted here." }),
      this.text,
      this.wrong,
      element(
        "div",
        { class: "buttons" },
        button("Copy", "take", () => this.copy()),
        button("Use", "use", () => this.use()),
        button("Close", "close", () => this.root.close()),
      ),
    );
  }

  show(json) {
    this.text.value = JSON.stringify(json);
    this.wrong.textContent = "";
    this.root.showModal();
    this.text.select();
  }

  copy() {
    this.text.select();
    document.execCommand("copy");
  }

  use() {
    try {
      const json = JSON.parse(this.text.value);
      if (typeof json !== "object" || json === null) throw new Error("it is not an object");
      this.take(json);
      this.root.close();
    } catch (error) {
      this.wrong.textContent = `This is not a state: ${error.message}`;
    }
  }
}
