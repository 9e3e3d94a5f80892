// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The running text behind tokens: passages, where each token stands in them, and how tokens read in
// the spelling of the text. No character that a reader sees as one is ever cut. No document is touched.

/**
 * @typedef {[number, number, number]} Span passage, start and stop, in UTF-16 units
 *
 * @typedef {Object} Run tokens that share characters, one or more
 * @property {number} passage
 * @property {number} start
 * @property {number} stop
 * @property {number[]} tokens positions
 *
 * @typedef {Object} SourceText
 * @property {string[]} passages
 * @property {(Span|null)[]} spans of each token; null where it stands for no characters
 * @property {boolean[]} known whether a token's span is of the text that was read, not put together here
 */

/** Tokens that stand for what the vocabulary does not have. */
const UNKNOWN = ["[UNK]", "<unk>"];

/** @returns {boolean} whether tokens are written with the blanks between them, as byte-level ones are */
function hasBlanks(tokens) {
  return tokens.some((token) => token.startsWith(" "));
}

/** @returns {SourceText} a text that tokens spell, where the text that was read is not known */
function spell({ tokens, special, boundary }) {
  const added = new Set(special);
  const blank = hasBlanks(tokens) ? "" : " ";
  const passages = [""];
  const spans = tokens.map((token, i) => {
    if (i === boundary && passages[0]) passages.push("");
    if (added.has(i)) return null;
    const last = passages.length - 1;
    const joined = token.startsWith("##") && token.length > 2 && passages[last] !== "";
    if (passages[last] && !joined) passages[last] += blank;
    const start = passages[last].length;
    passages[last] += joined ? token.slice(2) : token;
    return /** @type {Span} */ ([last, start, passages[last].length]);
  });
  return { passages, spans, known: tokens.map(() => false) };
}

/** @returns {SourceText} the passages of texts of a payload, one after the other */
export function joinPassages(texts) {
  const joined = { passages: [], spans: [], known: [] };
  for (const text of texts) {
    const { passages, spans, known } = text.passages ? { ...text, known: text.spans.map(Boolean) } : spell(text);
    const first = joined.passages.length;
    joined.passages.push(...passages);
    joined.spans.push(...spans.map((span) => span && [first + span[0], span[1], span[2]]));
    joined.known.push(...known);
  }
  return joined;
}

/** @returns {string[]} a text in characters as a reader counts them: a letter with its accents is one */
export function graphemes(text) {
  if (Intl.Segmenter) return [...new Intl.Segmenter("und", { granularity: "grapheme" }).segment(text)].map(({ segment }) => segment);
  return text.match(/\P{M}(?:\p{M}|\p{Emoji_Modifier}|\u200d\P{M})*|\p{M}+/gu) || [];
}

/** @returns {Uint8Array} 1 at the places of a text where it may be cut */
function placesToCut(text) {
  const places = new Uint8Array(text.length + 1);
  // Without letters beyond ASCII, every unit is a character.
  if (!/[^\t\n -~]/.test(text)) return places.fill(1);
  let at = 0;
  places[0] = 1;
  for (const character of graphemes(text)) places[(at += character.length)] = 1;
  return places;
}

/**
 * Whole characters under tokens. Tokens that share one are one run.
 * @param {SourceText} source
 * @returns {Run[]} in the order of the tokens
 */
export function runsOf({ passages, spans }) {
  const cuts = passages.map(placesToCut);
  const runs = [];
  spans.forEach((span, token) => {
    if (!span || span[1] === span[2]) return;
    let [passage, start, stop] = span;
    while (!cuts[passage][start]) start -= 1;
    while (!cuts[passage][stop]) stop += 1;
    const last = runs[runs.length - 1];
    if (last && last.passage === passage && start < last.stop) {
      last.stop = Math.max(last.stop, stop);
      last.tokens.push(token);
    } else {
      runs.push({ passage, start, stop, tokens: [token] });
    }
  });
  return runs;
}

/**
 * One column of tokens, which reads as the text does or as the model's tokens.
 */
export class Column {
  /**
   * @param {Object} about
   * @param {string[]} about.read the model's tokens
   * @param {Set<number>} about.special positions of what the model adds
   * @param {number|null} about.boundary where the second text begins
   * @param {string[]|null} about.parts what is before it and after it, where these are not sentences
   * @param {(string|null)[]|null} about.words a name for the word of each token; null if unknown
   * @param {SourceText} about.source
   * @param {() => boolean} spelled whether tokens are to read as in the text
   */
  constructor({ read, special, boundary, parts, words, source }, spelled) {
    this.read = read;
    this.special = special;
    this.boundary = boundary;
    this.parts = parts;
    this.words = words;
    this.source = source;
    this.spelled = spelled;
    /** @type {Run[]} made when first asked for, as what follows */
    this.found = null;
    /** @type {(Run|undefined)[]} */
    this.ofToken = null;
    /** @type {string[]} */
    this.labels = null;
  }

  /** @returns {string[]} how each token reads */
  get tokens() {
    return this.inSource ? this.sourceLabels() : this.read;
  }

  /** @returns {boolean} whether the text that was read is known */
  get hasSource() {
    return this.source.known.includes(true);
  }

  /** @returns {boolean} whether tokens read as in the text */
  get inSource() {
    return this.hasSource && this.spelled();
  }

  /** @returns {string} how a token reads in running text, whatever the setting */
  labelOf(i) {
    return this.hasSource ? this.sourceLabels()[i] : this.read[i];
  }

  /** @returns {string} how a token reads in a list, with the part of a character that it is */
  nameOf(i) {
    const note = this.noteOf(i);
    return note && note.part ? `${this.tokens[i]} ${note.part}` : this.tokens[i];
  }

  /** @returns {Run[]} */
  runs() {
    if (!this.found) this.found = runsOf(this.source);
    return this.found;
  }

  /** @returns {(Run|undefined)[]} the run that each token is in */
  runOfToken() {
    if (this.ofToken) return this.ofToken;
    this.ofToken = new Array(this.read.length);
    for (const run of this.runs()) for (const token of run.tokens) this.ofToken[token] = run;
    return this.ofToken;
  }

  /** @returns {string} the characters of a run */
  textOf({ passage, start, stop }) {
    return this.source.passages[passage].slice(start, stop);
  }

  sourceLabels() {
    if (this.labels) return this.labels;
    const runs = this.runOfToken();
    this.labels = this.read.map((token, i) => (runs[i] && this.source.known[i] ? this.textOf(runs[i]) : token));
    return this.labels;
  }

  /**
   * What a label hides of the token behind it.
   * @returns {{token: string, unknown: boolean, joined: boolean, part: string}|null} null if nothing: the
   *   `part` of a character that it is, such as 1/4; whether it is `joined` to the token before it
   */
  noteOf(i) {
    return this.inSource ? this.differenceOf(i) : null;
  }

  /** What the text that was read hides of a token; as `noteOf`, whatever the setting. */
  differenceOf(i) {
    if (!this.source.known[i]) return null;
    const [token, label] = [this.read[i], this.labelOf(i)];
    const joined = token.startsWith("##") && token.length > 2;
    const run = this.runOfToken()[i];
    const part = run && run.tokens.length > 1 ? `${run.tokens.indexOf(i) + 1}/${run.tokens.length}` : "";
    if (token.trim() === label.trim() && !part) return null;
    return { token, unknown: UNKNOWN.includes(token), joined, part };
  }
}

/** @returns {string} what the model read in place of a label, as a sentence; empty if that is the same */
export function readAs(note) {
  if (!note) return "";
  return `read by the model as ${note.token}${note.part ? `, token ${note.part.replace("/", " of ")} of it` : ""}`;
}
