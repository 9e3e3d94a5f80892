// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// From weights to lines: which are drawn, how strong, and where. No document is touched except the
// canvas that is handed in; the SVG export and the tests read the very same list.

import { keepMass, largestOf, massOf, readRow, total } from "./rows.js";

/** More lines than this only slow the page down; the strongest stay, and the status line says so. */
const LINE_LIMIT = 40000;

/** So many of the strongest lines are wide and smooth; a browser takes ten times longer for one. */
const WIDE_LIMIT = 800;
const WIDTH = 2;
const FOCUS_WIDTH = 2.5;
const EDGE_WIDTH = 4.25;
const STEPS = 16;

/**
 * @typedef {Object} Layer weights of one layer
 * @property {Float32Array} weights `[head, query, key]`
 * @property {number} rows number of queries
 * @property {number} columns number of keys
 * @property {(query: number) => number[][]} parts ranges of keys, half-open, over each of
 *   which the weights of a row sum to one
 * @property {boolean} shares whether rows sum to one, in each part; norms, say, have no such sum
 * @property {boolean} signed whether weights can be below 0
 * @property {Layer[]} [pair] the two layers it is the difference of
 * @property {Layer} [beside] the same layer of another trace, with which it shares a scale
 *
 * @typedef {Object} Selection what is to be drawn
 * @property {number[]} heads indices of the heads that are on
 * @property {number[]} queries positions on the left
 * @property {number[]} keys positions on the right
 * @property {Set<number>|null} hidden keys whose weight is shared out among the others
 * @property {number} mass share of each row to show, strongest keys first
 * @property {string} opacity absolute, row or heads
 * @property {{side: "left"|"right", index: number}|null} focus token whose lines alone are drawn
 * @property {number} [limit] of lines
 *
 * @typedef {Object} Line
 * @property {number} head index of the head
 * @property {number} query
 * @property {number} key
 * @property {number} weight below 0 where the second trace has less, or where a kind of weights has signs
 * @property {number} opacity between 0 and 1
 *
 * @typedef {Object} Drawing
 * @property {Line[]} lines the faintest first
 * @property {number} found how many there were before the limit
 * @property {number} share how much of the attention of the rows considered the lines carry
 * @property {number} broken how many weights are not numbers, and so no lines
 * @property {{head: number, query: number, key: number}[]} gaps where these are, of a token in focus
 * @property {Scan|null} scan what all candidates are, of a picture without focus that is not too large
 *
 * @typedef {Object} Scan every candidate `[head, query, key]`
 * @property {Float32Array} opacities 0 where no line is wanted
 * @property {Float32Array} units turn the opacities of each row back into weights
 * @property {Int8Array|null} signs of a difference
 * @property {Float32Array} masses attention of each row
 * @property {number[]} broken candidates that are NaN
 * @property {number[]} queries
 * @property {number[]} keys
 */

/** Up to so many candidates are kept, so that those of a token in focus are found at once. */
const KEPT_SCAN = 2 ** 22;

/** @returns {number} what the weights of a row are divided by to become opacities; `other` shares the scale */
function opacityUnit(row, selection, other) {
  if (selection.opacity === "row") return Math.max(largestOf(row), largestOf(other)) || 1;
  return selection.opacity === "heads" ? selection.heads.length : 1;
}

/** @returns {Scan} all candidates among some queries and keys */
function scanRows(layer, selection, queries, keys) {
  const rows = selection.heads.flatMap((head) => queries.map((query) => [head, query]));
  const opacities = new Float32Array(rows.length * keys.length);
  const units = new Float32Array(rows.length);
  const signs = layer.signed ? new Int8Array(opacities.length) : null;
  const broken = [];
  const masses = new Float32Array(rows.length);
  for (let at = 0; at < rows.length; at += 1) {
    const row = readRow(layer, ...rows[at], selection.hidden);
    units[at] = opacityUnit(row, selection, layer.beside ? readRow(layer.beside, ...rows[at], selection.hidden) : []);
    masses[at] = massOf(row);
    if (selection.mass < 1) keepMass(row, layer.parts(rows[at][1]), selection.mass);
    for (let i = 0; i < keys.length; i += 1) {
      const weight = row[keys[i]];
      if (Number.isNaN(weight)) broken.push(at * keys.length + i);
      opacities[at * keys.length + i] = Math.abs(weight) / units[at] || 0;
      if (signs) signs[at * keys.length + i] = Math.sign(weight);
    }
  }
  return { opacities, units, signs, masses, broken, queries, keys };
}

/** @returns {Scan|null} the candidates of one token; null if it is not among them */
function scanOfToken(scan, { side, index }) {
  const { opacities, units, signs, masses, broken, queries, keys } = scan;
  const left = side === "left";
  const place = (left ? queries : keys).indexOf(index);
  if (place < 0) return null;
  const [own, all] = left ? [keys.length, queries.length] : [1, 1];
  const rows = units.length / all;
  const at = (row, i) => (left ? (row * all + place) * keys.length + i : row * keys.length + place);
  const pick = (values, made) => {
    for (let row = 0; row < rows; row += 1) for (let i = 0; i < own; i += 1) made[row * own + i] = values[at(row, i)];
    return made;
  };
  const ofRow = (values) => values.filter((_, row) => !left || row % all === place);
  const isOwn = (i) => (left ? Math.floor(i / keys.length) % all : i % keys.length) === place;
  const placeOf = (i) => (left ? Math.floor(i / (all * keys.length)) * own + (i % keys.length) : Math.floor(i / keys.length));
  return {
    opacities: pick(opacities, new Float32Array(rows * own)),
    units: ofRow(units),
    signs: signs && pick(signs, new Int8Array(rows * own)),
    masses: ofRow(masses),
    broken: broken.filter(isOwn).map(placeOf),
    queries: left ? [index] : queries,
    keys: left ? keys : [index],
  };
}

/**
 * The value that so many are at least as large as. No value is negative, so that their bits are in
 * the same order; only those that share the first 16 bits with it are sorted.
 * @param {Float32Array} values
 * @param {number} count
 * @returns {number}
 */
function largestAt(values, count) {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const counts = new Uint32Array(2 ** 16);
  for (let i = 0; i < bits.length; i += 1) counts[bits[i] >>> 16] += 1;
  let start = counts.length - 1;
  let left = count;
  while (counts[start] < left) {
    left -= counts[start];
    start -= 1;
  }
  const alike = values.filter((_, i) => bits[i] >>> 16 === start).sort();
  return alike[alike.length - left];
}

/** @returns {number[]} indices of the `limit` largest values above 0, in order of index */
function strongest(values, limit) {
  const faintest = values.length > limit ? largestAt(values, limit) : 0;
  const chosen = [];
  const ties = [];
  for (let i = 0; i < values.length; i += 1) {
    if (values[i] > faintest) chosen.push(i);
    else if (values[i] > 0 && values[i] === faintest) ties.push(i);
  }
  return chosen.concat(ties.slice(0, limit - chosen.length)).sort((a, b) => a - b);
}

/**
 * @param {Layer} layer
 * @param {Selection} selection
 * @param {Scan|null} [known] what the same selection without focus found
 * @returns {Drawing}
 */
export function selectLines(layer, selection, known = null) {
  const { focus, heads } = selection;
  const only = (side, all) => (focus && focus.side === side ? [focus.index] : all);
  const queries = only("left", selection.queries);
  const keys = only("right", selection.keys);
  const scan = (focus && known && scanOfToken(known, focus)) || scanRows(layer, selection, queries, keys);
  const { opacities, units, signs, masses, broken } = scan;
  const mass = total(masses);
  const pairAt = (i) => {
    const row = Math.floor(i / keys.length);
    return { head: heads[Math.floor(row / queries.length)], query: queries[row % queries.length], key: keys[i % keys.length] };
  };
  const lines = strongest(opacities, selection.limit || LINE_LIMIT).map((i) => {
    const weight = opacities[i] * units[Math.floor(i / keys.length)] * (signs ? signs[i] : 1);
    return { ...pairAt(i), weight, opacity: Math.min(1, opacities[i]) };
  });
  lines.sort((a, b) => a.opacity - b.opacity);
  const shown = lines.reduce((sum, line) => sum + Math.abs(line.weight), 0);
  const found = opacities.reduce((count, opacity) => count + Number(opacity > 0), 0);
  const gaps = focus ? broken.map(pairAt) : [];
  return { lines, found, share: mass > 0 ? Math.min(1, shown / mass) : 0, broken: broken.length, gaps, scan: !focus && opacities.length <= KEPT_SCAN ? scan : null };
}

/** So many pixels of lines take a browser about a second; of a high picture fewer lines are drawn. */
const INK_LIMIT = 60e6;

/**
 * Where lines run. Heads are set apart a little, so that lines of one pair lie side by side.
 * @typedef {Object} Geometry
 * @property {number} width
 * @property {number} height
 * @property {Map<number, number>} left vertical centre by query
 * @property {Map<number, number>} right vertical centre by key
 * @property {Map<number, number>} shift vertical distance from the centre, by head
 * @property {number} limit of lines that are drawn at most
 *
 * @param {Selection} selection
 * @param {number} width
 * @param {number} rowHeight
 * @returns {Geometry}
 */
export function layOut(selection, width, rowHeight) {
  const place = (positions) => new Map(positions.map((p, i) => [p, (i + 0.5) * rowHeight]));
  const count = selection.heads.length;
  const gap = Math.min(2.5, (0.7 * rowHeight) / count);
  const height = rowHeight * Math.max(selection.queries.length, selection.keys.length);
  return {
    width,
    height,
    limit: Math.max(1000, Math.min(LINE_LIMIT, Math.floor(INK_LIMIT / (width + height / 3)))),
    left: place(selection.queries),
    right: place(selection.keys),
    shift: new Map(selection.heads.map((head, i) => [head, (i - (count - 1) / 2) * gap])),
  };
}

/** @returns {[number, number]} vertical start and end of a line */
export function lineEnds(line, geometry) {
  const shift = geometry.shift.get(line.head);
  return [geometry.left.get(line.query) + shift, geometry.right.get(line.key) + shift];
}

/** @returns {number} horizontal place, 0 to 1, of a curve whose handles are half way across */
function across(t) {
  return 1.5 * t - 1.5 * t * t + t ** 3;
}

/** @returns {number} how far down its way a line is, both 0 to 1: flat at the ends */
function blend(t) {
  return t * t * (3 - 2 * t);
}

/** Add a line to the pen's path: as a smooth curve, or as short straight segments. */
function tracePath(pen, [from, to], width, smooth) {
  pen.moveTo(0, from);
  if (smooth) {
    pen.bezierCurveTo(width / 2, from, width / 2, to, width, to);
    return;
  }
  for (let i = 1; i <= STEPS; i += 1) {
    const t = i / STEPS;
    pen.lineTo(width * across(t), from + (to - from) * blend(t));
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Line[]} lines
 * @param {Geometry} geometry
 * @param {(line: Line) => string} colourOf
 * @param {{top: number, height: number}} [sight] the part that is drawn; all, if left out
 * @param {number} [ratio] pixels of the canvas for each of the page
 * @param {string} [casing] colour that sets wide lines off from what is behind them, which are wider then
 */
export function paintLines(canvas, lines, geometry, colourOf, sight = { top: 0, height: geometry.height }, ratio = window.devicePixelRatio || 1, casing = "") {
  const { width } = geometry;
  const scale = Math.min(ratio, 16000 / Math.max(width, sight.height));
  const size = { width: Math.round(width * scale), height: Math.round(sight.height * scale) };
  if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
  canvas.style.setProperty("top", `${sight.top}px`);
  canvas.style.setProperty("height", `${sight.height}px`);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, sight.height);
  pen.translate(0, -sight.top);
  pen.lineWidth = 1 / scale;
  const shown = lines.filter((line) => inPart(line, geometry, sight));
  const wide = Math.max(0, shown.length - WIDE_LIMIT);
  paintFaint(pen, shown.slice(0, wide), geometry, colourOf);
  const stroke = (line, colour, opacity) => {
    pen.strokeStyle = colour;
    pen.globalAlpha = opacity;
    pen.beginPath();
    tracePath(pen, lineEnds(line, geometry), width, true);
    pen.stroke();
  };
  const strongest = shown.slice(wide);
  pen.lineWidth = EDGE_WIDTH;
  if (casing) for (const line of strongest) stroke(line, casing, Math.min(1, 2 * line.opacity));
  pen.lineWidth = casing ? FOCUS_WIDTH : WIDTH;
  for (const line of strongest) stroke(line, colourOf(line), inkOf(line));
}

/** @returns {Line[]} lines as a backdrop: in full from a weight of one half on, and much fainter below */
export function backdropOf(lines) {
  return lines.map((line) => ({ ...line, opacity: Math.min(1, (2 * line.opacity) ** 4) }));
}

/** @returns {boolean} whether a line crosses a part of the picture */
function inPart(line, geometry, { top, height }) {
  const [from, to] = lineEnds(line, geometry);
  return Math.max(from, to) + EDGE_WIDTH >= top && Math.min(from, to) - EDGE_WIDTH <= top + height;
}

/** Paint thin lines, those of a colour and of one opacity at once: a browser is much faster so. */
function paintFaint(pen, lines, geometry, colourOf) {
  let at = lines.findIndex((line) => alphaOf(line) > 0);
  while (at >= 0 && at < lines.length) {
    const alpha = alphaOf(lines[at]);
    const colours = new Map();
    for (; at < lines.length && alphaOf(lines[at]) === alpha; at += 1) {
      const colour = colourOf(lines[at]);
      if (!colours.has(colour)) colours.set(colour, []);
      colours.get(colour).push(lines[at]);
    }
    pen.globalAlpha = alpha / 255;
    for (const [colour, alike] of colours) {
      pen.strokeStyle = colour;
      pen.beginPath();
      for (const line of alike) tracePath(pen, lineEnds(line, geometry), geometry.width, false);
      pen.stroke();
    }
  }
}

/** @returns {boolean} whether a line is strong enough to be seen on a screen */
export function isSeen(line) {
  return alphaOf(line) > 0;
}

/** @returns {[number, Line[]][]} thin lines and wide ones, with their widths, as they are painted */
export function linesByWidth(lines) {
  const wide = Math.max(0, lines.length - WIDE_LIMIT);
  /** @type {[number, Line[]][]} */
  const parts = [[1, lines.slice(0, wide)], [WIDTH, lines.slice(wide)]];
  return parts.filter(([, some]) => some.length);
}

/** @returns {number} how strongly a line is drawn: nearly in full from one half on, so that it has a contrast of 3 : 1 */
export function inkOf(line) {
  return Math.min(1.8 * line.opacity, 0.8 + 0.2 * line.opacity);
}

/** @returns {number} the same in the 255 steps that a screen has */
function alphaOf(line) {
  return Math.round(255 * inkOf(line));
}

/**
 * The line under a point, the strongest of those within a few pixels.
 * @returns {Line|null}
 */
export function lineAt(lines, geometry, x, y) {
  let t = x / geometry.width;
  for (let i = 0; i < 8; i += 1) {
    t -= (across(t) - x / geometry.width) / (1.5 - 3 * t + 3 * t * t);
  }
  for (let i = lines.length - 1; i >= 0 && lines[i].opacity > 0.02; i -= 1) {
    const [from, to] = lineEnds(lines[i], geometry);
    if (Math.abs(from + (to - from) * blend(t) - y) < 2.5) return lines[i];
  }
  return null;
}
