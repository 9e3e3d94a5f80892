// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The list of queries of the neuron level, of which one is shown.

import { element, tokenText } from "./elements.js";

export class QueryPicker {
  constructor() {
    this.root = element("ol", { class: "neuron-queries left", role: "listbox", "aria-label": "Queries" });
    /** @type {string[]|null} */
    this.named = null;
  }

  /** @param {import("./source.js").Column} column */
  name({ tokens, special }) {
    if (this.named === tokens) return;
    this.named = tokens;
    const made = tokens.map((token, index) =>
      element("li", { class: special.has(index) ? "token special" : "token", "data-index": index, role: "option" }, tokenText(token)),
    );
    this.root.replaceChildren(...made);
  }

  /** Mark the query that is shown, and bring it into sight. */
  mark(shown, held) {
    for (const token of /** @type {Iterable<HTMLElement>} */ (this.root.children)) {
      const chosen = Number(token.dataset.index) === shown;
      token.classList.toggle("chosen", chosen);
      token.classList.toggle("held", chosen && held);
      token.setAttribute("aria-selected", String(chosen && held));
      token.tabIndex = chosen ? 0 : -1;
      if (chosen) this.reveal(token);
    }
  }

  /** Scroll the list, and nothing around it. */
  reveal(token) {
    const { root } = this;
    const [box, own] = [root.getBoundingClientRect(), token.getBoundingClientRect()];
    if (own.top < box.top) root.scrollTop -= box.top - own.top;
    else if (own.bottom > box.bottom) root.scrollTop += own.bottom - box.bottom;
  }
}
