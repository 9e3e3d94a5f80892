// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// From weights to lines: which are drawn, how strong, and where. No document is touched except the
// canvas that is handed in; the SVG export and the tests read the very same list.

/** More lines than this only slow the page down; the strongest stay, and the status line says so. */
const LINE_LIMIT = 40000;

/** So many of the strongest lines are wide and smooth; a browser takes ten times longer for one. */
const WIDE_LIMIT = 800;
const WIDTH = 1.75;
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
 * @property {number} broken how many weights are no numbers, and so no lines
 * @property {{head: number, query: number, key: number}[]} gaps where these are, of a token in focus
 */

/** @returns {number} sum of the sizes in a row; what is no number has none */
function massOf(row) {
  let sum = 0;
  for (let i = 0; i < row.length; i += 1) sum += Math.abs(row[i]) || 0;
  return sum;
}

/** @returns {boolean} whether a weight shows in place of another; NaN shows before all */
export function outweighs(weight, other) {
  return Math.abs(weight) > Math.abs(other) || (Number.isNaN(weight) && !Number.isNaN(other));
}

/** @returns {number} largest size in a row; 0 if none is a number */
export function largestOf(row) {
  let most = 0;
  for (let i = 0; i < row.length; i += 1) if (Math.abs(row[i]) > most) most = Math.abs(row[i]);
  return most;
}

/** @returns {number} sum of an array */
export function total(values) {
  let sum = 0;
  for (let i = 0; i < values.length; i += 1) sum += values[i];
  return sum;
}

/** @returns {Float32Array} weights of one row without the hidden keys; shares are renormalised */
export function readRow(layer, head, query, hidden) {
  if (hidden && layer.pair) {
    const [first, second] = layer.pair.map((one) => readRow(one, head, query, hidden));
    return second.map((weight, i) => weight - first[i]);
  }
  const start = (head * layer.rows + query) * layer.columns;
  const row = layer.weights.slice(start, start + layer.columns);
  if (!hidden) return row;
  for (const key of hidden) row[key] = 0;
  if (!layer.shares) return row;
  for (const [from, to] of layer.parts(query)) {
    const part = row.subarray(from, to);
    const rest = total(part);
    if (rest > 0) part.set(part.map((weight) => weight / rest));
  }
  return row;
}

/** @returns {number} mean weight, over heads, that a query gives to some keys */
export function meanOn(layer, heads, query, keys) {
  const shares = heads.map((head) => {
    const start = (head * layer.rows + query) * layer.columns;
    return total([...keys].map((key) => layer.weights[start + key]));
  });
  return total(shares) / heads.length;
}

/** Put to zero, in each part of a row, all but the fewest weights that hold `mass` of it. */
export function keepMass(row, parts, mass) {
  for (const [from, to] of parts) {
    const part = row.subarray(from, to);
    const floor = smallestKept(part, mass);
    part.set(part.map((weight) => (Math.abs(weight) < floor ? 0 : weight)));
  }
}

/** @returns {number} smallest weight among the fewest keys that hold `mass` of the row */
function smallestKept(row, mass) {
  const sorted = row.map((weight) => Math.abs(weight) || 0).sort();
  const wanted = mass * massOf(row);
  let sum = 0;
  for (let i = sorted.length - 1; i >= 0; i -= 1) {
    sum += sorted[i];
    if (sum >= wanted - 1e-6) return sorted[i];
  }
  return 0;
}

/** @returns {number} what the weights of a row are divided by to become opacities */
function opacityUnit(row, selection) {
  if (selection.opacity === "row") return largestOf(row) || 1;
  return selection.opacity === "heads" ? selection.heads.length : 1;
}

/**
 * Opacities of every candidate `[head, query, key]`, 0 where no line is wanted.
 * @returns {{opacities: Float32Array, units: Float32Array, signs: Int8Array|null, mass: number,
 *   broken: number[]}} `units` turn the opacities of each row back into weights, of a difference with
 *   `signs`; `mass` is the attention of all rows together; `broken` are candidates that are NaN
 */
function scanRows(layer, selection, queries, keys) {
  const rows = selection.heads.flatMap((head) => queries.map((query) => [head, query]));
  const opacities = new Float32Array(rows.length * keys.length);
  const units = new Float32Array(rows.length);
  const signs = layer.signed ? new Int8Array(opacities.length) : null;
  const broken = [];
  let mass = 0;
  for (let at = 0; at < rows.length; at += 1) {
    const row = readRow(layer, ...rows[at], selection.hidden);
    units[at] = opacityUnit(row, selection);
    mass += massOf(row);
    if (selection.mass < 1) keepMass(row, layer.parts(rows[at][1]), selection.mass);
    for (let i = 0; i < keys.length; i += 1) {
      const weight = row[keys[i]];
      if (Number.isNaN(weight)) broken.push(at * keys.length + i);
      opacities[at * keys.length + i] = Math.abs(weight) / units[at] || 0;
      if (signs) signs[at * keys.length + i] = Math.sign(weight);
    }
  }
  return { opacities, units, signs, mass, broken };
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
 * @returns {Drawing}
 */
export function selectLines(layer, selection) {
  const { focus, heads } = selection;
  const only = (side, all) => (focus && focus.side === side ? [focus.index] : all);
  const queries = only("left", selection.queries);
  const keys = only("right", selection.keys);
  const { opacities, units, signs, mass, broken } = scanRows(layer, selection, queries, keys);
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
  return { lines, found, share: mass > 0 ? Math.min(1, shown / mass) : 0, broken: broken.length, gaps };
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

/** Add a line to the pen's path: as a smooth curve, or as short straight pieces. */
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
 */
export function paintLines(canvas, lines, geometry, colourOf, sight = { top: 0, height: geometry.height }) {
  const { width } = geometry;
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / Math.max(width, sight.height));
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
  pen.lineWidth = WIDTH;
  for (const line of shown.slice(wide)) {
    pen.strokeStyle = colourOf(line);
    pen.globalAlpha = line.opacity;
    pen.beginPath();
    tracePath(pen, lineEnds(line, geometry), width, true);
    pen.stroke();
  }
}

/** @returns {boolean} whether a line crosses a part of the picture */
function inPart(line, geometry, { top, height }) {
  const [from, to] = lineEnds(line, geometry);
  return Math.max(from, to) + WIDTH >= top && Math.min(from, to) - WIDTH <= top + height;
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

/** @returns {number} the opacity of a line in the 255 steps that a screen has */
function alphaOf(line) {
  return Math.round(255 * line.opacity);
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
