// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The weights of a pinned token as a table for screen readers, which cannot see lines or bars.

import { element } from "./elements.js";
import { formatCount, formatWeight } from "./numbers.js";

const ROWS = 100;

/**
 * @param {string} title what the weights are, without their number
 * @param {number[]} heads numbers of the heads that are on
 * @param {{token: string, mean: number, weights: (number|undefined)[]}[]} others strongest first;
 *   undefined where no line is drawn
 * @returns {HTMLElement}
 */
export function pinnedTable(title, heads, others) {
  const cells = (tag, attributes, texts) => texts.map((text) => element(tag, { ...attributes, text }));
  const several = heads.length > 1;
  const names = ["token", ...(several ? ["mean"] : []), ...heads.map((head) => `head ${head}`)];
  const rows = others.slice(0, ROWS).map(({ token, mean, weights }) => {
    const shown = weights.map((weight) => (weight === undefined ? "not drawn" : formatWeight(weight)));
    const name = element("th", { scope: "row", text: token });
    return element("tr", {}, name, ...cells("td", {}, several ? [formatWeight(mean), ...shown] : shown));
  });
  const count = others.length > ROWS ? `; the strongest ${ROWS} of ${formatCount(others.length)} tokens` : "";
  return element(
    "table",
    {},
    element("caption", { text: title + count }),
    element("thead", {}, element("tr", {}, ...cells("th", { scope: "col" }, names))),
    element("tbody", {}, ...rows),
  );
}
