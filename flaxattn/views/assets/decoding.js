// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// From the blocks of a payload to numbers, as `payloads/encoded_weights.py` encodes them.

/** @returns {Uint8Array<ArrayBuffer>} the bytes behind base64 text */
export function decodeBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/**
 * Decode the blocks of a payload, once and before anything reads them.
 * @param {import("./types.js").Payload} payload
 */
export async function unpackBlocks(payload) {
  payload.bytes = decodeBase64(payload.data);
  if (payload.compressed) {
    if (!window.DecompressionStream) {
      throw new Error("this browser cannot decompress; take one of 2023 or later, or save the page with page.decompressed().save(…)");
    }
    const stream = new Blob([payload.bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    payload.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
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

/** Decode shares of the maximum of each row in 2048 steps: maxima, low bytes, high bytes. */
function decodeSteps(bytes, rows, keys, weights) {
  const peaks = new Float32Array(bytes.buffer, 0, rows);
  const low = bytes.subarray(4 * rows);
  const high = low.subarray(rows * keys);
  for (let row = 0; row < rows; row += 1) {
    for (let i = row * keys; i < (row + 1) * keys; i += 1) {
      weights[i] = high[i] === 255 ? NaN : ((low[i] + 256 * high[i]) / 2048) * peaks[row];
    }
  }
  return weights;
}
