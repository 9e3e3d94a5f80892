// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The sides of a trace: what stands on the left and on the right of each, and its weights, decoded
// when a layer is first shown. Nothing is drawn here.

import { decodeWeights, readBlock } from "./decoding.js";
import { formatCount } from "./numbers.js";
import { Column, joinPassages } from "./source.js";

/** How a side reads in its list, and over its two columns. Self-attention by itself has the last. */
export const SIDES = {
  encoder: ["Encoder", "source, attends from", "source, attended to"],
  decoder: ["Decoder", "target, as read", "target, as read"],
  cross: ["Cross", "target, as written", "source"],
  all: ["All", "source + target, as written", "source + target, as read"],
  alone: ["", "attends from", "attended to"],
};
/** The blocks of the joined square, each with its corner: 0, or 1 for the length of the source. */
const BLOCKS = [
  { name: "encoder", row: 0, column: 0 },
  { name: "cross", row: 1, column: 0 },
  { name: "decoder", row: 1, column: 1 },
];
/** Facts about two traces together. */
export const APART = ["divergence", "cosine"];
/** Below so many nats between two traces a head is named after the first alone: its name turns at a share
 * of one half, which a difference in rounding can cross. Changes are claimed by Python, over all texts. */
const LEAST_DIVERGENCE = 0.01;
/** So many weights of a side stay decoded; of larger sides only the last layer does. */
const KEPT_WEIGHTS = 2 ** 24;

/** @returns {Column} texts of a payload, one below the other */
function joinTexts(texts, spelled) {
  const read = texts.flatMap((text) => text.tokens);
  const special = new Set();
  let from = 0;
  for (const text of texts) {
    text.special.forEach((position) => special.add(from + position));
    from += text.tokens.length;
  }
  const named = (text, i) => text.words.map((word) => (word === null ? null : `${i}.${word}`));
  const known = texts.every((text) => text.words);
  const about = {
    read,
    special,
    boundary: texts.length > 1 ? texts[0].tokens.length : texts[0].boundary,
    parts: texts.length === 1 ? texts[0].parts || null : null,
    words: known ? texts.flatMap(named) : null,
    source: joinPassages(texts),
  };
  return new Column(about, spelled);
}

/** @returns {import("./lines.js").Layer} weights of the second layer less those of the first */
function subtract(first, second) {
  const weights = second.weights.map((weight, i) => weight - first.weights[i]);
  return { ...first, weights, signed: true, pair: [first, second] };
}

/** @returns {Float32Array} the same weights for so many heads */
function repeat(weights, heads) {
  const whole = new Float32Array(heads * weights.length);
  for (let head = 0; head < heads; head += 1) whole.set(weights, head * weights.length);
  return whole;
}

/**
 * @param {Object<string, any>} first measures of a head
 * @param {Object<string, any>} second the same in the other trace
 * @param {import("./types.js").HeadClaim|undefined} claim what all texts say of the head
 * @returns {Object<string, any>} what it does in either, and by how much that differs; an arrow is a change that is claimed
 */
function changeOf(first, second, claim) {
  const alike = first.does === second.does || first.divergence < LEAST_DIVERGENCE;
  const here = alike ? first.does : `${first.does} / ${second.does}`;
  const change = { does: claim && claim.role ? claim.role.join(" → ") : here, changed: true, claim: claimText(claim) };
  for (const name of Object.keys(first)) {
    if (name !== "does" && name in second) change[name] = APART.includes(name) ? first[name] : second[name] - first[name];
  }
  return change;
}

/** @returns {string} whether a change of a head is claimed, and by which interval */
export function claimText(claim) {
  if (!claim) return "";
  const said = claim.changed ? "changed" : "no change is claimed";
  const ends = claim.interval && claim.interval.map((end) => end.toFixed(3)).join(" to ");
  return ends ? `${said}: ${ends} nats, ${formatCount(claim.texts)} texts` : `${said}: no interval of ${claim.texts === 1 ? "one text" : "these texts"}`;
}

export class Side {
  /**
   * @param {import("./types.js").Payload} payload
   * @param {import("./types.js").InputAbout} input
   * @param {import("./types.js").SideAbout} about the side's part of it
   * @param {() => string} shows which trace: "a", "b", or their "difference"; or a kind of weights
   * @param {() => boolean} spelled whether tokens read as in the text they are of
   */
  constructor(payload, input, about, shows, spelled) {
    this.payload = payload;
    this.shows = shows;
    this.spelled = spelled;
    this.name = about.name;
    this.layers = about.layers;
    this.heads = about.heads;
    this.about = about;
    this.left = joinTexts(about.left.map((name) => input.texts[name]), spelled);
    this.right = joinTexts(about.right.map((name) => input.texts[name]), spelled);
    /** Whether it is self-attention of a page with no other side. */
    this.alone = input.sides.length === 1 && about.name !== "cross";
    /** Whether the text is a sentence pair, whose sentences can be drawn apart. */
    this.paired = about.left.length === 1 && this.left.boundary !== null;
    /** Positions on the right of the first token of each text, where heads leave unused attention. */
    this.firsts = new Set([0]);
    this.decoded = new Map();
  }

  /** @returns {Side} the side in tokens, as the model read it */
  get inTokens() {
    return this;
  }

  /** @returns {number} where a token stands in a column, "left" or "right" */
  placeOf(column, position) {
    return position;
  }

  /** @returns {[number, number]} the tokens behind an item of a column, "left" or "right", half-open */
  tokensOf(column, index) {
    return [index, index + 1];
  }

  /** @returns {string[]} how it reads in a list, and over its columns */
  get titles() {
    return SIDES[this.alone ? "alone" : this.name];
  }

  /** @returns {import("./lines.js").Layer} the layer at an index, decoded once where that is small */
  layerAt(at) {
    return this.layerOf(at, this.shows());
  }

  /** @returns {import("./types.js").SideAbout} what is known of one trace, or of a kind of weights */
  partOf(trace) {
    if (trace === "a") return this.about;
    return trace === "b" ? this.about.second : this.about.other[trace];
  }

  /** @returns {import("./lines.js").Layer} the layer at an index of one trace or kind, or the difference */
  layerOf(at, trace) {
    const name = `${at} ${trace}`;
    if (!this.decoded.has(name)) {
      const layer = trace === "difference" ? subtract(this.layerOf(at, "a"), this.layerOf(at, "b")) : this.decode(at, trace);
      if (this.layers.length * layer.weights.length > KEPT_WEIGHTS) this.forgetOthers(at);
      this.decoded.set(name, layer);
    }
    return this.decoded.get(name);
  }

  /** Keep the layer at an index only. */
  forgetOthers(at) {
    for (const name of this.decoded.keys()) if (!name.startsWith(`${at} `)) this.decoded.delete(name);
  }

  /** @returns {import("./lines.js").Layer} a layer of one of two traces, with the other for a scale of both */
  layerBeside(at, trace) {
    const name = `${at} ${trace}, beside`;
    const [layer, beside] = [this.layerOf(at, trace), this.layerOf(at, trace === "a" ? "b" : "a")];
    const kept = this.decoded.get(name);
    if (!kept || kept.weights !== layer.weights) this.decoded.set(name, { ...layer, beside });
    return this.decoded.get(name);
  }

  /** @returns {import("./lines.js").Layer} */
  decode(at, trace) {
    const [rows, columns] = [this.left.tokens.length, this.right.tokens.length];
    const { weights: blocks, precision = this.payload.precision, common, shares = true, signed = false } = this.partOf(trace);
    const bytes = readBlock(this.payload, blocks[at]);
    const stored = decodeWeights(bytes, precision, (common ? 1 : this.heads.length) * rows, columns);
    const weights = common ? repeat(stored, this.heads.length) : stored;
    return { weights, rows, columns, shares, signed, parts: () => [[0, columns]] };
  }

  /** @returns {Object<string, any>} what a head does, in words and numbers */
  measure(at, head) {
    if (this.shows() !== "difference") return this.partOf(this.shows()).measures[at][head];
    const claims = (this.payload.changes && this.payload.changes.heads[this.name]) || {};
    const claim = claims[`${this.layers[at]}.${this.heads[head]}`];
    return changeOf(this.about.measures[at][head], this.about.second.measures[at][head], claim);
  }

  /** How alike its heads are; unknown of a difference, and where heads share a map. */
  get likeness() {
    return this.shows() === "difference" ? undefined : this.partOf(this.shows()).likeness;
  }

  /** @returns {boolean} whether there is such a head in the layer at an index */
  has(at, head) {
    return Boolean(this.measure(at, head));
  }

  /** @returns {string} what the side lacks of a layer, empty if nothing */
  lacks(at) {
    return "";
  }
}

/** Source and target together: the encoder's square, cross-attention and the decoder's square. */
class JoinedSide extends Side {
  /** @param {Object<string, Side>} sides by name */
  constructor(payload, input, about, shows, spelled, sides) {
    super(payload, input, about, shows, spelled);
    this.sides = sides;
    this.firsts.add(this.right.boundary);
  }

  /** Sides that have the layer at an index, their index of it, and their corner in the square. */
  blocks(at) {
    const length = this.left.boundary;
    return BLOCKS.map(({ name, row, column }) => {
      const side = this.sides[name];
      const index = side.layers.indexOf(this.layers[at]);
      return { side, index, row: row * length, column: column * length };
    }).filter(({ index }) => index >= 0);
  }

  decode(at, trace) {
    const [rows, columns, length] = [this.left.tokens.length, this.right.tokens.length, this.left.boundary];
    const weights = new Float32Array(this.heads.length * rows * columns);
    for (const { side, index, row, column } of this.blocks(at)) {
      const block = side.layerOf(index, trace);
      side.heads.forEach((number, head) => {
        const top = this.heads.indexOf(number) * rows + row;
        for (let i = 0; i < block.rows; i += 1) {
          const start = (head * block.rows + i) * block.columns;
          weights.set(block.weights.subarray(start, start + block.columns), (top + i) * columns + column);
        }
      });
    }
    const both = [[0, length], [length, columns]];
    return { weights, rows, columns, shares: true, signed: false, parts: (query) => (query < length ? [[0, length]] : both) };
  }

  measure(at, head) {
    const known = this.blocks(at).filter(({ side }) => side.heads.includes(this.heads[head]));
    const role = ({ side, index }) => side.measure(index, side.heads.indexOf(this.heads[head])).does;
    return { does: known.map((block) => `${block.side.name}: ${role(block)}`).join(", ") || "in no block" };
  }

  get likeness() {
    return undefined;
  }

  has(at, head) {
    return this.blocks(at).some(({ side }) => side.heads.includes(this.heads[head]));
  }

  lacks(at) {
    const known = this.blocks(at).map(({ side }) => side.name);
    const missing = BLOCKS.map(({ name }) => name).filter((name) => !known.includes(name));
    return missing.length ? `no layer ${this.layers[at]} in ${missing.join(", ")}` : "";
  }
}

/** @returns {Object<string, Side>} the sides of a text by name, in the order of its list */
export function readSides(payload, input, shows, spelled) {
  const sides = {};
  for (const about of input.sides) {
    const joined = about.name === "all";
    if (joined) sides[about.name] = new JoinedSide(payload, input, about, shows, spelled, sides);
    else sides[about.name] = new Side(payload, input, about, shows, spelled);
  }
  return sides;
}
