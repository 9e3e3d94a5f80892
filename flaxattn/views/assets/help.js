// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The help text of the page.

import { element } from "./elements.js";
import { glossaryList } from "./glossary.js";

/**
 * The list of everything that can be done.
 * @param {boolean} several whether the page has more than one side
 * @param {boolean} compares whether it has two traces
 * @param {boolean} kinds whether it has weights other than attention
 * @param {boolean} served whether it is one of the pages of a store
 * @returns {HTMLDialogElement}
 */
export function helpDialog(several, compares, kinds, served) {
  const ways = [
    ["point at a token", "only its lines show, also while another is pinned; numbers beside the other tokens"],
    ["point at a line", "its head and weight"],
    ["click a token", "pin it; then point at one on the other side, or click it, for each head's weight; a second click unpins it"],
    ["click a head", "switch it on or off; one always stays on"],
    ["double-click a head", "only this head; once more: all heads"],
    ["click a small picture or a cell", "see that head; Back returns"],
    ["1 2 3 …", "atlas, model, head, text and further levels, as their tabs stand"],
    ["← →", "previous, next layer; among pictures and cells: previous, next head"],
    ["↑ ↓", "previous, next token; among pictures and cells: layer above, below"],
    ["[ ]", "previous, next head by itself"],
    ["Shift + Enter on a head", "only this head; once more: all heads"],
    ["g", "gold pairs on or off, where the page has any"],
    [".", "next theme"],
    ["Esc", "unpin the tokens: all lines show"],
    ["?", "this list"],
  ];
  if (served) ways.splice(-2, 0, ["p n l", "previous text of the store, next text, list of the texts"]);
  const rows = ways.flatMap(([way, effect]) => [
    element("dt", { text: way }),
    element("dd", { text: effect }),
  ]);
  const notes = [
    "Left: tokens that attend (queries). Right: tokens attended to (keys). The larger a weight, the stronger its line; from 0.5 on, lines are drawn nearly in full. “Opacity” can divide weights by the largest of their row, or by the number of heads that are on. Behind the lines of one token, strong lines of the others are grey.",
    "“Mass” keeps, for each query and head, the fewest keys that hold that share of its attention. “Hide special tokens” leaves out what the model adds, such as [CLS] and [SEP], and scales the rest of each row up to a sum of one.",
    "Heads that find nothing to look at often leave their attention on the first token, whatever it says. “Hide first token” leaves out the weights on it, and scales the rest of each row up to a sum of one; a row that has everything there shows nothing.",
    "Atlas: a cell for each head, coloured by a number. “By likeness” puts heads side by side that attend alike, by Jensen–Shannon distance: 0 for the same attention, 1 for no key in common. Model: each head as a picture, queries downwards and keys to the right; where weights are more than pixels, the largest shows. “Words” joins the tokens of a word: attention to it is the sum, attention from it the mean.",
    "A page opens with the head whose strongest weights on ordinary tokens are largest, on average over queries, and with one token of it; Esc unpins it. Ordinary are tokens of the text, but for the first one and the query itself.",
    "Matrix: one head, a cell for each weight; faint ones are drawn stronger than they are, as its scale says. The wheel with Ctrl zooms, dragging and the small picture move; with the keyboard, arrows move a crosshair, Enter holds its query, + and − zoom, 0 shows all.",
    "Text: the text as it was written, shaded by the attention of the token that is pinned or pointed at, a mean over the heads that are on; “Shaded by attention” turns to the attention on it. Without such a token, the attention that each one receives is shown. What shares a character, such as the tokens of an emoji, is shaded as one: attention to them adds up. In the text, ← and → move the pinned token.",
    "Tokens read as the text does, where it is known. A dotted underline marks what the model does not know ([UNK]) or reads with other letters; a dot before a token joins it to the one before, and 1/4 stands for the first of four tokens of one character. The tooltip names the token; “Model tokens” shows them all.",
    "Gold pairs: the pairs of tokens that a claim is about, such as each word and its governor. A dashed green curve with discs, or a whole outline in a matrix, is a pair that the head hits; a dotted pink curve with crosses, or a dashed outline, one that it misses. The line above the picture says what the pairs are and when one is hit.",
    "Neurons, of traces with queries and keys: a row for each key of one query, the strongest first, with every number between the vectors and the weight. The 8 dimensions that add most are shown, and the others as one sum. Below the titles stand the query itself, what each dimension adds to the scores of attended keys over the mean of all keys, and the output. Click a key to see its own sum; titles fold up. “Walk through the numbers” goes from the vectors to the output in steps: Next and Back, or → and ← there, Esc to end; on paper all steps are printed.",
    "Pages of language models say which tokens were likeliest after the one that is pinned or pointed at, and how likely the one was that came. Where each head’s part of that token’s logit is known, bars show it: to the right of the middle it adds, to the left it takes away. It is the direct part, by the head’s own output; what later layers make of that is theirs. The text level can shade each token by its surprise: −ln of the probability that it had.",
    "The address of the page holds the present settings, the button with braces gives them to Python; the browser prints what is shown, with the settings in words. A click on a word with dots below it says what it means. Attention shows where a head reads from; it does not by itself explain a prediction.",
  ];
  if (several) {
    notes.splice(1, 0, "“Side”: the encoder reads the source; the decoder reads what was written so far; cross-attention reads the source while it writes what stands on the left. “All” joins the three: layer and head of the same number on either side, and the parts of a row sum to one each.");
  }
  if (compares) {
    notes.splice(-1, 0, "Two traces of the same tokens: the switch shows the first, the second, the second less the first, or all three side by side; what is pointed at in one is marked in all. Of a difference, blue is more and orange is less; lines are as strong as it is large. Heads are compared by divergence (Jensen–Shannon, a mean over queries): 0 for the same attention, 0.693 for no key in common. An arrow (“a → b”) is a change that is claimed, by the rule in the panel; “a / b” is what a head does in this text in either. Gold pairs of a difference are won or lost (whole lines), kept (dashed) or missed by both (dotted).");
  }
  if (kinds) {
    notes.splice(-1, 0, "“Weights” shows something else in the place of attention. Where rows do not sum to one, the largest size of a layer is drawn as 1, and the line above the picture says how much that is; “mass” is then a share of the sum of sizes in a row, and nothing is scaled up where tokens are hidden. Blue is above 0 and orange below, where weights have signs. What a head does, and the atlas, are measured by sizes as shares of their row.");
  }
  const close = element("button", { type: "button", class: "sign", text: "Close" });
  const dialog = element(
    "dialog",
    { class: "help", "aria-label": "Help" },
    element("div", { class: "dialog-top" }, element("h2", { text: "What you can do" }), close),
    element("dl", {}, ...rows),
    ...notes.map((text) => element("p", { text })),
    glossaryList(),
  );
  close.addEventListener("click", () => dialog.close());
  return dialog;
}
