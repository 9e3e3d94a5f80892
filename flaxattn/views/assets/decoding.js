// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// From the blocks of a payload to numbers, as `payloads/page_encoding.py` encodes them.

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_`{|}~";

/**
 * Decode base85 text, five characters for four bytes; a last group of n characters is n - 1 bytes.
 * @param {string} text of a length that `payloads/page_encoding.py` writes
 * @returns {Uint8Array<ArrayBuffer>}
 */
function decodeBase85(text) {
  const values = new Uint8Array(128);
  for (let i = 0; i < 85; i += 1) values[DIGITS.charCodeAt(i)] = i;
  const words = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  for (let i = 0; i < text.length; i += 5) {
    let word = 0;
    for (let j = i; j < i + 5; j += 1) word = 85 * word + (j < text.length ? values[text.charCodeAt(j)] : 84);
    words.setUint32((4 * i) / 5, word);
  }
  return new Uint8Array(words.buffer, 0, text.length - Math.ceil(text.length / 5));
}

/**
 * Decode the blocks of a payload, once and before anything reads them.
 * @param {import("./types.js").Payload} payload
 */
export async function unpackBlocks(payload) {
  payload.bytes = decodeBase85(payload.data);
  if (payload.compressed) {
    if (!window.DecompressionStream) {
      throw new Error("this browser cannot decompress; take one of 2023 or later, or save the page with page.decompressed().save(…)");
    }
    const { readable, writable } = new DecompressionStream("deflate");
    const whole = new Response(readable).arrayBuffer();
    const writer = writable.getWriter();
    // A damaged payload is reported once, by the readable end.
    writer.write(payload.bytes).catch(() => {});
    writer.close().catch(() => {});
    payload.bytes = new Uint8Array(await whole);
  }
  payload.data = "";
}

/** @returns {Uint8Array} a copy of the bytes of a block */
export function readBlock(payload, name) {
  return payload.bytes.slice(...payload.blocks[name]);
}

/** @returns {number} the value of an IEEE half given its sixteen bits */
export function halfToNumber(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  let size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
  if (exponent === 31) size = fraction ? NaN : Infinity;
  return bits & 0x8000 ? -size : size;
}

/** @returns {Float32Array} little-endian IEEE halves as numbers */
export function decodeHalves(bytes) {
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1);
  return Float32Array.from(halves, halfToNumber);
}

/**
 * Decode one layer.
 * @param {Uint8Array} bytes
 * @param {"float16"|"uint11"|"uint8"} precision
 * @param {number} rows heads × queries
 * @param {number} keys
 * @returns {Float32Array} rows × keys weights
 */
export function decodeWeights(bytes, precision, rows, keys) {
  if (precision === "float16") return decodeHalves(bytes);
  const weights = new Float32Array(rows * keys);
  if (precision === "uint11") return decodeSteps(bytes, rows, keys, weights);
  const peaks = new Uint16Array(bytes.buffer, 0, rows);
  for (let row = 0; row < rows; row += 1) {
    const step = halfToNumber(peaks[row]) / 255;
    for (let i = row * keys; i < (row + 1) * keys; i += 1) weights[i] = bytes[2 * rows + i] * step;
  }
  return weights;
}

/** Decode shares of the maximum of each row in 2046 steps: maxima, upper eight bits, lower three. */
function decodeSteps(bytes, rows, keys, weights) {
  const peaks = new Float32Array(Uint32Array.from(new Uint16Array(bytes.buffer, 0, rows), (half) => half << 16).buffer);
  const upper = bytes.subarray(2 * rows);
  const lower = upper.subarray(rows * keys);
  for (let row = 0; row < rows; row += 1) {
    for (let i = row * keys; i < (row + 1) * keys; i += 1) {
      const pair = (lower[(3 * i) >> 3] << 8) | lower[((3 * i) >> 3) + 1];
      const steps = (upper[i] << 3) | ((pair >> (13 - ((3 * i) & 7))) & 7);
      weights[i] = steps === 2047 ? NaN : (steps / 2046) * peaks[row];
    }
  }
  return weights;
}
