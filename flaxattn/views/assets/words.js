// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// A side in words in place of tokens. Attention to a word is the sum over its tokens, attention from
// a word the mean over its tokens (Clark et al. 2019, section 4.1), so that rows still sum to one.

import { Side } from "./sides.js";
import { Column } from "./source.js";

/** @returns {[number, number][]} ranges of positions, half-open, one per word or special token */
function groupWords(words) {
  const groups = [];
  words.forEach((word, i) => {
    const last = groups[groups.length - 1];
    if (last && word !== null && words[i - 1] === word) last[1] = i + 1;
    else groups.push([i, i + 1]);
  });
  return groups;
}

/** @returns {string} tokens as the word they are part of */
function joinTokens(tokens) {
  return tokens.map((token, i) => (i && token.startsWith("##") ? token.slice(2) : token)).join("");
}

/** @returns {import("./source.js").Span|null} the characters from the first to the last of some tokens */
function spanOfWord(spans) {
  const real = spans.filter(Boolean);
  if (!real.length || real.some(([passage]) => passage !== real[0][0])) return null;
  return [real[0][0], real[0][1], real[real.length - 1][2]];
}

/** @returns {Column} a column with one token per word */
function wordColumn(column, groups) {
  const at = (position) => groups.findIndex(([from, to]) => from <= position && position < to);
  const special = [...column.special].map(at);
  const { passages, spans, known } = column.source;
  const about = {
    read: groups.map(([from, to]) => joinTokens(column.read.slice(from, to))),
    special: new Set(special),
    boundary: column.boundary === null ? null : at(column.boundary),
    parts: column.parts,
    words: column.words,
    source: {
      passages,
      spans: groups.map(([from, to]) => spanOfWord(spans.slice(from, to))),
      known: groups.map(([from, to]) => known.slice(from, to).every(Boolean)),
    },
  };
  return new Column(about, column.spelled);
}

class WordSide extends Side {
  /** @param {Side} base @param {import("./types.js").InputAbout} input */
  constructor(base, input) {
    super(base.payload, input, base.about, base.shows, base.spelled);
    this.base = base;
    this.groups = { left: groupWords(base.left.words), right: groupWords(base.right.words) };
    this.left = wordColumn(base.left, this.groups.left);
    this.right = wordColumn(base.right, this.groups.right);
    this.firsts = new Set([...base.firsts].map((position) => this.placeOf("right", position)));
  }

  get inTokens() {
    return this.base;
  }

  placeOf(column, position) {
    return this.groups[column].findIndex(([from, to]) => from <= position && position < to);
  }

  tokensOf(column, index) {
    return this.groups[column][index];
  }

  decode(at, trace) {
    const layer = this.base.layerOf(at, trace);
    const { left, right } = this.groups;
    const weights = new Float32Array(this.heads.length * left.length * right.length);
    for (let head = 0; head < this.heads.length; head += 1) {
      for (let row = 0; row < left.length; row += 1) {
        const start = (head * left.length + row) * right.length;
        this.addRows(layer, head, left[row], weights.subarray(start, start + right.length));
      }
    }
    const ranges = (query) =>
      layer.parts(left[query][0]).map(([from, to]) => [this.placeOf("right", from), this.placeOf("right", to - 1) + 1]);
    return { ...layer, weights, rows: left.length, columns: right.length, parts: ranges };
  }

  /** Add the mean of some rows to one row of words. */
  addRows(layer, head, [first, last], row) {
    for (let query = first; query < last; query += 1) {
      const start = (head * layer.rows + query) * layer.columns;
      this.groups.right.forEach(([from, to], word) => {
        for (let key = from; key < to; key += 1) row[word] += layer.weights[start + key] / (last - first);
      });
    }
  }

  get likeness() {
    return this.base.likeness;
  }

  measure(at, head) {
    return this.base.measure(at, head);
  }

  has(at, head) {
    return this.base.has(at, head);
  }

  lacks(at) {
    return this.base.lacks(at);
  }
}

/** @returns {boolean} whether it is known which tokens of a side make a word */
function hasWords(side) {
  return Boolean(side.left.words && side.right.words);
}

/** @returns {boolean} whether any side reads otherwise in words than in tokens */
export function knowsWords(sides) {
  const merges = (column) => groupWords(column.words).length < column.tokens.length;
  return Object.values(sides).some((side) => hasWords(side) && (merges(side.left) || merges(side.right)));
}

/** @returns {Object<string, Side>} the same sides in words, where words are known */
export function inWords(sides, input) {
  const change = ([name, side]) => [name, hasWords(side) ? new WordSide(side, input) : side];
  return Object.fromEntries(Object.entries(sides).map(change));
}
