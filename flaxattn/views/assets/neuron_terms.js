// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The numbers of the neuron level: vectors of one head, and from a query to its weights as the model
// went there. `views/neuron.py` has said which factor, mask and bias that takes. Nothing is drawn.

import { decodeHalves, readBlock } from "./decoding.js";

/** Colours are full at this share of the sizes, so that one outlier does not leave the rest pale. */
const FULL_COLOUR = 0.98;
/** More numbers than this are sampled for their size. */
const SAMPLED = 20000;

/** @returns {Float32Array} the numbers of a block */
export function readNumbers(payload, name, precision) {
  const bytes = readBlock(payload, name);
  return precision === "float32" ? new Float32Array(bytes.buffer) : decodeHalves(bytes);
}

/** @returns {number} the size that nearly all numbers stay below; 1 if all are 0 */
export function usualSize(numbers) {
  const step = Math.max(1, Math.floor(numbers.length / SAMPLED));
  const sizes = new Float32Array(Math.ceil(numbers.length / step));
  for (let i = 0; i < sizes.length; i += 1) sizes[i] = Math.abs(numbers[i * step]);
  sizes.sort();
  return sizes[Math.floor(FULL_COLOUR * (sizes.length - 1))] || sizes[sizes.length - 1] || 1;
}

/** @returns {number[]} indices of numbers, the largest sizes first */
export function bySize(numbers) {
  return Array.from(numbers, (_, i) => i).sort((a, b) => Math.abs(numbers[b]) - Math.abs(numbers[a]) || a - b);
}

/**
 * What leads from one query to its weights.
 * @typedef {Object} QueryTerms
 * @property {number} query
 * @property {Float32Array} q `[D]`
 * @property {Float32Array} products q × k, `[K, D]`
 * @property {Float32Array} dots q·k, `[K]`
 * @property {Float32Array} scaled scale q·k + bias, -Infinity where masked
 * @property {Float32Array} weights their softmax; as the page holds it where that is closer
 * @property {Float32Array|null} output sum of the values, weighted
 */

/** @returns {Float32Array} vectors `[S, depth]` as they were before their pairs of dimensions were rotated */
function beforeRotation(vectors, depth, angles, pairs) {
  const turned = Float32Array.from(vectors);
  for (let start = 0, at = 0; start < turned.length; start += depth, at += 2 * pairs) {
    for (let i = 0; i < pairs; i += 1) {
      const [cos, sin] = [angles[at + i], angles[at + pairs + i]];
      const [first, second] = [vectors[start + i], vectors[start + pairs + i]];
      const size = cos * cos + sin * sin;
      turned[start + i] = (first * cos + second * sin) / size;
      turned[start + pairs + i] = (second * cos - first * sin) / size;
    }
  }
  return turned;
}

/** The vectors of one head of a side in tokens. */
export class HeadTerms {
  /**
   * @param {import("./types.js").Payload} payload
   * @param {import("./sides.js").Side} side
   * @param {number} layer index
   * @param {number} head index
   */
  constructor(payload, side, layer, head) {
    const about = side.about.neuron;
    this.about = about;
    this.layer = side.layerOf(layer, "a");
    this.head = head;
    /** Whether the softmax of these vectors is closer to the model's weights than those stored. */
    this.exact = about.error <= payload.error;
    this.rows = this.layer.rows;
    this.columns = this.layer.columns;
    const read = (name, size) => {
      if (!about[name]) return null;
      const numbers = readNumbers(payload, about[name][layer], about.precision);
      return numbers.subarray(head * size, (head + 1) * size);
    };
    this.query = read("query", this.rows * about.depth);
    this.key = read("key", this.columns * about.depth);
    this.value = read("value", this.columns * about.width);
    this.bias = read("bias", this.rows * this.columns);
    /** Positions before and behind a query that it sees; null for all. */
    this.window = about.windows ? about.windows[layer] : null;
    this.sizes = { query: usualSize(this.query), key: usualSize(this.key) };
    /** @type {Float32Array|null} */
    this.queryBefore = null;
    /** @type {Float32Array|null} */
    this.keyBefore = null;
    if (about.rotation) {
      const angles = readNumbers(payload, about.rotation[layer], about.precision);
      const before = (vectors) => beforeRotation(vectors, about.depth, angles, about.pairs);
      this.queryBefore = before(this.query);
      this.keyBefore = before(this.key);
      this.sizes.before = usualSize(this.keyBefore);
    }
    if (this.value) this.sizes.value = usualSize(this.value);
  }

  /** @returns {boolean} whether a key is hidden from a query */
  masked(query, key) {
    if (this.bias && this.bias[query * this.columns + key] === -Infinity) return true;
    if (this.window && (query - key > this.window[0] || key - query > this.window[1])) return true;
    return this.about.mask === "causal" && key > query;
  }

  /** @returns {Float32Array} the vector of a position */
  vector(name, position) {
    const depth = name === "value" ? this.about.width : this.about.depth;
    return this[name].subarray(position * depth, (position + 1) * depth);
  }

  /** @returns {QueryTerms} */
  at(query) {
    const { depth, scale } = this.about;
    const q = this.vector("query", query);
    const products = new Float32Array(this.columns * depth);
    const [dots, scaled] = [new Float32Array(this.columns), new Float32Array(this.columns)];
    for (let key = 0; key < this.columns; key += 1) {
      let sum = 0;
      for (let d = 0; d < depth; d += 1) {
        const product = q[d] * this.key[key * depth + d];
        products[key * depth + d] = product;
        sum += product;
      }
      dots[key] = sum;
      scaled[key] = this.masked(query, key) ? -Infinity : scale * sum + (this.biasAt(query, key) || 0);
    }
    const weights = this.exact ? softmax(scaled) : this.stored(query);
    const output = this.value ? this.mix(weights) : null;
    return { query, q, products, dots, scaled, weights, output };
  }

  /** @returns {Float32Array} weights of a query as the page holds them, rounded */
  stored(query) {
    const start = (this.head * this.rows + query) * this.columns;
    return this.layer.weights.subarray(start, start + this.columns);
  }

  /** @returns {number|null} what is added to a scaled product; null where nothing ever is */
  biasAt(query, key) {
    return this.bias ? this.bias[query * this.columns + key] : null;
  }

  /** @returns {Float32Array} values summed with weights: what the head passes on */
  mix(weights) {
    const { width } = this.about;
    const sum = new Float32Array(width);
    for (let key = 0; key < this.columns; key += 1) {
      for (let d = 0; d < width; d += 1) sum[d] += weights[key] * this.value[key * width + d];
    }
    return sum;
  }

  /** @returns {number} length of a value */
  norm(key) {
    return Math.hypot(...this.vector("value", key));
  }

  /**
   * How much each dimension adds: to the score of one key; or, of no key, to how far the scores of
   * what is attended to lie above those of all keys the query may see.
   * @param {QueryTerms} terms
   * @param {number|null} key
   * @returns {Float32Array} `[D]`, scaled
   */
  contributions(terms, key) {
    const { depth, scale } = this.about;
    const sum = new Float32Array(depth);
    const seen = Array.from(terms.scaled.keys()).filter((k) => terms.scaled[k] !== -Infinity);
    for (const k of key === null ? seen : [key]) {
      const share = key === null ? terms.weights[k] - 1 / seen.length : 1;
      for (let d = 0; d < depth; d += 1) sum[d] += scale * share * terms.products[k * depth + d];
    }
    return sum;
  }
}

/**
 * What each pair of rotated dimensions, i and i + pairs, adds: the sum of what both add.
 * @param {Float32Array} numbers of dimensions, `[N, D]`
 * @param {number} depth D
 * @param {number} pairs
 * @param {number} scale
 * @returns {Float32Array} `[N, pairs]`
 */
export function sumPairs(numbers, depth, pairs, scale) {
  const sums = new Float32Array((numbers.length / depth) * pairs);
  for (let row = 0; row * depth < numbers.length; row += 1) {
    for (let i = 0; i < pairs; i += 1) sums[row * pairs + i] = scale * (numbers[row * depth + i] + numbers[row * depth + pairs + i]);
  }
  return sums;
}

/** @returns {Float32Array} shares of a row; 0 throughout if all of it is masked */
export function softmax(scores) {
  const peak = Math.max(...scores);
  if (peak === -Infinity) return new Float32Array(scores.length);
  const parts = scores.map((score) => Math.exp(score - peak));
  let sum = 0;
  for (const part of parts) sum += part;
  return parts.map((part) => part / sum);
}
