// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The panel beside the lines: what each head does, where a token looks, how each head weighs a
// pair. It shows numbers that are handed in and keeps no state.

/** How the measures of a head read, in the order shown; the last two are no shares. */
const MEASURES = [
  ["next", "next token"],
  ["previous", "previous token"],
  ["own", "own token"],
  ["strongest", "one token"],
  ["delimiter", "delimiters"],
  ["first", "first token"],
  ["same_segment", "own sentence"],
  ["entropy", "entropy, nats"],
  ["distance", "distance, tokens"],
];
const LISTED = 10;

/** @returns {HTMLElement} a token as written, unable to change the direction of its surroundings */
function tokenText(token) {
  return element("bdi", { class: "piece", dir: "auto", text: token });
}

/** @returns {HTMLElement} a small square in a head's colour */
function swatch(colour) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.setProperty("background-color", colour);
  return made;
}

/** @returns {HTMLElement} a bar whose parts are `[share, colour]` of its width */
function bar(parts) {
  const made = element("span", { class: "bar", "aria-hidden": "true" });
  for (const [share, colour] of parts) {
    const part = element("span");
    part.style.setProperty("width", `${100 * share}%`);
    part.style.setProperty("background-color", colour);
    made.append(part);
  }
  return made;
}

/**
 * @typedef {Object} HeadFacts
 * @property {number} number
 * @property {string} colour
 * @property {Object<string, number|string>} measure `does` and the numbers known of the head
 */

/** @returns {Node[]} the tooltip of a head: its role and all measures in this text */
function headTip(layer, head) {
  const rows = MEASURES.filter(([name]) => name in head.measure).flatMap(([name, label]) => [
    element("dt", { text: label }),
    element("dd", { text: head.measure[name].toFixed(2) }),
  ]);
  const title = element("strong", { text: `Layer ${layer}, head ${head.number}: ${head.measure.does}` });
  return [title, element("dl", {}, ...rows)];
}

/** @returns {Node[]} the heads that are on, with what they do in this text */
function headsPanel(layer, heads) {
  const items = heads.map((head) =>
    element(
      "li",
      { class: "fact" },
      swatch(head.colour),
      element("span", { class: "number", text: head.number }),
      element("span", { class: "role", text: head.measure.does }),
      element("span", { class: "value", text: headlineOf(head.measure) }),
      element("span", { class: "value first", text: firstShareOf(head.measure) }),
    ),
  );
  return [
    element("h2", { text: `Layer ${layer}: what its heads do here` }),
    element("p", { class: "hint over", text: heads.some((head) => "first" in head.measure) ? "on the first token" : "" }),
    element("ol", { class: "facts" }, ...items),
    element("p", { class: "hint", text: "Point at a token or a line for its weights. Click a token to hold it." }),
  ];
}

/** @returns {string} the number that a role rests on */
function headlineOf(measure) {
  const found = MEASURES.find(([, label]) => label === measure.does);
  if (found) return formatShare(measure[found[0]]);
  return "entropy" in measure ? `${measure.entropy.toFixed(1)} nats` : "";
}

/** @returns {string} the share of attention that a head leaves on the first token */
function firstShareOf(measure) {
  return "first" in measure ? formatShare(measure.first) : "";
}

/**
 * Where one token looks, or who looks at it.
 * @param {string} token
 * @param {"left"|"right"} side
 * @param {{token: string, mean: number, parts: [number, string][]}[]} others strongest first
 * @param {number} heads how many heads the means are over
 * @param {number|null} onFirst mean weight on the first token, hidden or not; null if unknown
 * @returns {Node[]}
 */
function tokenPanel(token, side, others, heads, onFirst) {
  const longest = others.length ? others[0].mean : 1;
  const items = others.slice(0, LISTED).map((other) =>
    element(
      "li",
      { class: "fact" },
      element("span", { class: "other" }, tokenText(other.token)),
      bar(other.parts.map(([share, colour]) => [share / longest, colour])),
      element("span", { class: "value", text: formatWeight(other.mean) }),
    ),
  );
  const relation = side === "left" ? " attends to" : " is attended by";
  const rest = others.length > LISTED ? `and ${others.length - LISTED} more; ` : "";
  const unit = heads > 1 ? `mean of ${heads} heads` : "attention weight";
  return [
    element("h2", {}, tokenText(token), relation),
    element("ol", { class: "facts" }, ...items),
    element("p", { class: "hint", text: others.length ? rest + unit : "Nothing is shown for it." }),
    element("p", { class: "hint", text: onFirst === null ? "" : `${formatShare(onFirst)} of its attention is on the first token.` }),
  ];
}

/**
 * The weight each head gives to one pair.
 * @param {string} query
 * @param {string} key
 * @param {{head: HeadFacts, weight: number|null}[]} weights null where no line is drawn
 * @returns {Node[]}
 */
function pairPanel(query, key, weights) {
  const items = weights.map(({ head, weight }) =>
    element(
      "li",
      { class: "fact" },
      swatch(head.colour),
      element("span", { class: "number", text: head.number }),
      bar([[weight || 0, head.colour]]),
      element("span", { class: "value", text: weight === null ? "–" : formatWeight(weight) }),
    ),
  );
  return [
    element("h2", {}, tokenText(query), " → ", tokenText(key)),
    element("ol", { class: "facts" }, ...items),
    element("p", { class: "hint", text: "weight in each head that is on" }),
  ];
}

/**
 * The list of everything that can be done.
 * @param {boolean} several whether the page has more than one side
 * @returns {HTMLDialogElement}
 */
function helpDialog(several) {
  const ways = [
    ["point at a token", "only its lines stay; numbers beside the other tokens"],
    ["point at a line", "its head and weight"],
    ["click a token", "hold it; then point at another one for each head's weight"],
    ["click a head", "switch it on or off; one always stays on"],
    ["double-click a head", "only this head; once more: all heads"],
    ["← →", "previous, next layer"],
    ["↑ ↓", "previous, next token"],
    ["Shift + Enter on a head", "only this head; once more: all heads"],
    ["Esc", "let go of the token"],
    ["?", "this list"],
  ];
  const rows = ways.flatMap(([way, effect]) => [
    element("dt", { text: way }),
    element("dd", { text: effect }),
  ]);
  const notes = [
    "Left: tokens that attend (queries). Right: tokens attended to (keys). A line's opacity is its weight, or its weight divided by the largest of its row, or by the number of heads that are on.",
    "“Mass” keeps, for each query and head, the fewest keys that hold that share of its attention. “Hide special tokens” leaves out what the model adds, such as [CLS] and [SEP], and scales the rest of each row up to a sum of one.",
    "Heads that find nothing to look at often leave their attention on the first token, whatever it says. “Hide first token” leaves out the weights on it, and scales the rest of each row up to a sum of one; a row that has everything there shows nothing.",
    "The address of the page holds the present settings. Attention shows where a head reads from; it does not by itself explain a prediction.",
  ];
  if (several) {
    notes.splice(1, 0, "“Side”: the encoder reads the source; the decoder reads what was written so far; cross-attention reads the source while it writes what stands on the left. “All” joins the three: layer and head of the same number on either side, and the parts of a row sum to one each.");
  }
  const close = element("button", { type: "button", class: "sign", text: "Close" });
  const dialog = element(
    "dialog",
    { class: "help", "aria-label": "Help" },
    element("h2", { text: "What you can do" }),
    element("dl", {}, ...rows),
    ...notes.map((text) => element("p", { text })),
    close,
  );
  close.addEventListener("click", () => dialog.close());
  return dialog;
}
