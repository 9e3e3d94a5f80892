// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The sides of a trace: what stands on the left and on the right of each, and its weights, decoded
// when a layer is first shown. Nothing is drawn here.

/** How a side reads in its list, and over its two columns. A page with one side has the last. */
const SIDES = {
  encoder: ["Encoder", "source, attends from", "source, attended to"],
  decoder: ["Decoder", "target, as read", "target, as read"],
  cross: ["Cross", "target, as written", "source"],
  all: ["All", "source + target, as written", "source + target, as read"],
  alone: ["", "attends from", "attended to"],
};
/** The blocks of the joined square, each with its corner: 0, or 1 for the length of the source. */
const BLOCKS = [
  ["encoder", 0, 0],
  ["cross", 1, 0],
  ["decoder", 1, 1],
];

/**
 * One column of tokens.
 * @typedef {Object} Column
 * @property {string[]} tokens
 * @property {Set<number>} special positions of what the model adds
 * @property {number|null} boundary where the second text begins
 */

/** @returns {Column} texts of a payload, one below the other */
function joinTexts(texts) {
  const tokens = texts.flatMap((text) => text.tokens);
  const special = new Set();
  let from = 0;
  for (const text of texts) {
    text.special.forEach((position) => special.add(from + position));
    from += text.tokens.length;
  }
  return { tokens, special, boundary: texts.length > 1 ? texts[0].tokens.length : texts[0].boundary };
}

class Side {
  /**
   * @param {Object} payload as `sides.py` makes it
   * @param {Object} about the side's part of it
   */
  constructor(payload, about) {
    this.name = about.name;
    this.layers = about.layers;
    this.heads = about.heads;
    this.about = about;
    this.precision = payload.precision;
    this.left = joinTexts(about.left.map((name) => payload.texts[name]));
    this.right = joinTexts(about.right.map((name) => payload.texts[name]));
    /** Whether the text is a sentence pair, whose sentences can be drawn apart. */
    this.paired = about.left.length === 1 && this.left.boundary !== null;
    /** Positions on the right of the first token of each text, where heads leave unused attention. */
    this.firsts = new Set([0]);
    this.decoded = new Map();
  }

  /** @returns {Layer} the layer at an index, decoded once */
  layerAt(at) {
    if (!this.decoded.has(at)) this.decoded.set(at, this.decode(at));
    return this.decoded.get(at);
  }

  decode(at) {
    const [rows, columns] = [this.left.tokens.length, this.right.tokens.length];
    const weights = decodeWeights(this.about.weights[at], this.precision, this.heads.length * rows, columns);
    return { weights, rows, columns, parts: () => [[0, columns]] };
  }

  /** @returns {Object<string, number|string>} what a head does */
  measure(at, head) {
    return this.about.measures[at][head];
  }

  /** @returns {string} what the side lacks of a layer, empty if nothing */
  lacks() {
    return "";
  }
}

/** Source and target together: the encoder's square, cross-attention and the decoder's square. */
class JoinedSide extends Side {
  /** @param {Object<string, Side>} sides by name */
  constructor(payload, about, sides) {
    super(payload, about);
    this.sides = sides;
    this.firsts.add(this.right.boundary);
  }

  /** @returns {Layer} as of any side, but only the last one is kept: squares are large */
  layerAt(at) {
    if (!this.decoded.has(at)) this.decoded.clear();
    return super.layerAt(at);
  }

  /** @returns {[Side, number, number, number][]} sides that have the layer at an index, their index
   *    of it, and their row and column in the square */
  blocks(at) {
    const length = this.left.boundary;
    const found = BLOCKS.map(([name, row, column]) => {
      const side = this.sides[name];
      return [side, side.layers.indexOf(this.layers[at]), row * length, column * length];
    });
    return found.filter(([, index]) => index >= 0);
  }

  decode(at) {
    const [rows, columns, length] = [this.left.tokens.length, this.right.tokens.length, this.left.boundary];
    const weights = new Float32Array(this.heads.length * rows * columns);
    for (const [side, index, row, column] of this.blocks(at)) {
      const block = side.layerAt(index);
      side.heads.forEach((number, head) => {
        const top = this.heads.indexOf(number) * rows + row;
        for (let i = 0; i < block.rows; i += 1) {
          const start = (head * block.rows + i) * block.columns;
          weights.set(block.weights.subarray(start, start + block.columns), (top + i) * columns + column);
        }
      });
    }
    const both = [[0, length], [length, columns]];
    return { weights, rows, columns, parts: (query) => (query < length ? [[0, length]] : both) };
  }

  measure(at, head) {
    const known = this.blocks(at).filter(([side]) => side.heads.includes(this.heads[head]));
    const role = ([side, index]) => side.measure(index, side.heads.indexOf(this.heads[head])).does;
    return { does: known.map((block) => `${block[0].name}: ${role(block)}`).join(", ") || "in no block" };
  }

  lacks(at) {
    const known = this.blocks(at).map(([side]) => side.name);
    const missing = BLOCKS.map(([name]) => name).filter((name) => !known.includes(name));
    return missing.length ? `no layer ${this.layers[at]} in ${missing.join(", ")}` : "";
  }
}

/** @returns {Object<string, Side>} the sides of a payload by name, in the order of its list */
function readSides(payload) {
  if (!payload.sides) {
    const alone = { ...payload, name: "alone", left: ["text"], right: ["text"] };
    return { alone: new Side({ ...payload, texts: { text: payload } }, alone) };
  }
  const sides = {};
  for (const about of payload.sides) {
    const joined = about.name === "all";
    sides[about.name] = joined ? new JoinedSide(payload, about, sides) : new Side(payload, about);
  }
  return sides;
}
