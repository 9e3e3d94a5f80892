// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Text inside a PNG file: a chunk `tEXt` behind the first, as the PNG specification describes it.

/** Bytes before the first chunk, of which the header has 25. */
const SIGNATURE = 8;
const HEADER = 25;

/** @returns {number} checksum of a chunk: CRC-32 */
function checksum(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return ~sum >>> 0;
}

/**
 * @param {Uint8Array} png a file
 * @param {string} name of the text, in ASCII
 * @param {string} text in ASCII
 * @returns {Uint8Array<ArrayBuffer>} the file with the text in it
 */
export function withText(png, name, text) {
  const content = new TextEncoder().encode(`tEXt${name}\0${text}`);
  const chunk = new Uint8Array(content.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, content.length - 4);
  chunk.set(content, 4);
  view.setUint32(content.length + 4, checksum(content));
  const at = SIGNATURE + HEADER;
  const made = new Uint8Array(png.length + chunk.length);
  made.set(png.subarray(0, at));
  made.set(chunk, at);
  made.set(png.subarray(at), at + chunk.length);
  return made;
}
