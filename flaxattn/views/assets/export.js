// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Lines and tokens as a file for papers and slides: what is on the page, in the same places. An SVG
// file holds every line that can be seen; of an image, the browser paints lines as on the page.

import { stripeColour } from "./colours.js";
import { svgElement } from "./elements.js";
import { LEGEND_HEIGHT } from "./gold_paint.js";
import { inkOf, isSeen, lineEnds, linesByWidth, paintLines } from "./lines.js";
import { formatWeight } from "./numbers.js";
import { FONT, svgCaption } from "./pens.js";

/** Room beside the lines, and above them: a caption, the colours, the titles of the columns. */
const SIDE_ROOM = 240;
const ABOVE = { colours: 48, titles: 74, lines: 88 };
/** Room for a token and for the number beside it. */
const TOKEN_ROOM = 165;
const NUMBER_ROOM = 48;
const TOKEN_GAP = 10;
/** More lines than this take too long to paint again for an image. */
const MANY = 6000;
/** Room for a colour and its name. */
const NAME_ROOM = 30;

/**
 * One column of tokens as it is on the page.
 * @typedef {Object} ShownColumn
 * @property {string} title
 * @property {string[]} tokens
 * @property {Map<number, number>} places vertical centres, by position
 * @property {Set<number>} special
 * @property {Set<number>} out positions whose weight is left out
 * @property {number|null} held
 * @property {number|null} boundary where the second text begins
 * @property {string} begins what begins there
 * @property {Map<number, import("./head_rows.js").Other>} others numbers, by position
 *
 * @typedef {Object} HeadPicture
 * @property {string} caption
 * @property {{left: ShownColumn, right: ShownColumn}} columns
 * @property {import("./lines.js").Line[]} lines
 * @property {import("./lines.js").Geometry} geometry
 * @property {HTMLCanvasElement|null} painted the lines as the page has painted them, if all of them
 * @property {number} rowHeight
 * @property {number[]} heads indices of those that are on
 * @property {(head: number) => number} numberOf
 * @property {[string, string][]} named colours: what they are called, and what they are
 * @property {(line: {head: number, weight: number}) => string} colourOf
 * @property {(name: string) => string} style
 * @property {SVGElement|null} gold gold pairs over the lines
 * @property {SVGElement|null} legend of these, below the tokens
 */

/** @returns {SVGElement[]} the lines that can be seen, the faintest first */
function svgLines({ lines, geometry, colourOf, numberOf }) {
  return linesByWidth(lines.filter(isSeen)).map(([width, some]) => {
    const group = svgElement("g", { class: "lines", fill: "none", "stroke-width": width });
    for (const line of some) {
      const [from, to] = lineEnds(line, geometry).map((y) => y.toFixed(2));
      const half = geometry.width / 2;
      group.append(
        svgElement("path", {
          d: `M0 ${from}C${half} ${from} ${half} ${to} ${geometry.width} ${to}`,
          stroke: colourOf(line),
          "stroke-opacity": inkOf(line).toFixed(4),
          "data-head": numberOf(line.head),
          "data-query": line.query,
          "data-key": line.key,
          "data-weight": line.weight.toPrecision(6),
        }),
      );
    }
    return group;
  });
}

/** @returns {SVGElement} text that keeps its blanks and its direction to itself */
function svgText(text, attributes) {
  const made = svgElement("text", attributes, text);
  made.style.setProperty("unicode-bidi", "isolate");
  made.style.setProperty("white-space", "pre");
  return made;
}

/** @returns {string} the beginning of a text that fits into a width, as on the page */
function fitText(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const letters = [...text];
  let [least, most] = [0, letters.length];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (pen.measureText(`${letters.slice(0, middle).join("")}…`).width <= width) least = middle;
    else most = middle - 1;
  }
  return `${letters.slice(0, least).join("")}…`;
}

/** @returns {SVGElement[]} what is behind a token: a mark where it is held, a stripe for each head */
function rowMarks(column, index, y, left, picture) {
  const { rowHeight, heads, colourOf, style } = picture;
  const [x, width] = left ? [-TOKEN_ROOM - NUMBER_ROOM - TOKEN_GAP, TOKEN_ROOM + NUMBER_ROOM] : [picture.geometry.width + TOKEN_GAP, TOKEN_ROOM + NUMBER_ROOM];
  const place = { y: y - rowHeight / 2, height: rowHeight };
  if (column.held === index) return [svgElement("rect", { x, width, ...place, class: "held", fill: style("--held") })];
  const other = column.others.get(index);
  if (!other) return [];
  const step = width / heads.length;
  return heads.flatMap((head, i) => {
    const weight = other.weights.get(head) || 0;
    if (Math.abs(weight) < 1 / 255) return [];
    return [svgElement("rect", { x: x + i * step, width: step, ...place, class: "stripe", fill: stripeColour(colourOf({ head, weight }), weight) })];
  });
}

/** @returns {SVGElement[]} one column: its title, tokens, numbers and where the second text begins */
function svgColumn(side, picture) {
  const { geometry, style, rowHeight } = picture;
  const column = picture.columns[side];
  const left = side === "left";
  const [x, outer] = left ? [-TOKEN_GAP - 4, -TOKEN_GAP - TOKEN_ROOM - 8] : [geometry.width + TOKEN_GAP + 4, geometry.width + TOKEN_GAP + TOKEN_ROOM + 8];
  const anchor = left ? "end" : "start";
  const size = Math.min(15, Math.max(12, rowHeight * 0.6));
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${size}px ${FONT}`;
  const made = [svgText(column.title, { class: "column", x, y: ABOVE.titles - ABOVE.lines, "text-anchor": anchor, "font-size": 12, fill: style("--soft") })];
  for (const [index, y] of column.places) {
    made.push(...rowMarks(column, index, y, left, picture));
    const token = column.tokens[index];
    const shown = fitText(pen, token, TOKEN_ROOM);
    const ink = style(column.special.has(index) ? "--soft" : "--ink");
    const text = svgText(shown, { class: "token", x, y: (y + 0.35 * size).toFixed(2), "text-anchor": anchor, "font-size": size, fill: ink });
    if (shown !== token) text.setAttribute("data-token", token);
    if (column.out.has(index)) {
      text.setAttribute("opacity", "0.45");
      text.setAttribute("text-decoration", "line-through");
    }
    made.push(text);
    const other = column.others.get(index);
    if (other) made.push(svgText(formatWeight(other.mean), { class: "value", x: outer, y: y + 4, "text-anchor": anchor, "font-size": 11.5, fill: style("--soft") }));
  }
  return [...made, ...svgDivider(column, left, picture)];
}

/** @returns {SVGElement[]} a line where the second text begins, and its name if it has one */
function svgDivider({ places, boundary, begins }, left, { geometry, rowHeight, style }) {
  if (boundary === null || !places.has(0) || !places.has(boundary)) return [];
  const y = places.get(boundary) - rowHeight / 2;
  const [from, to] = left ? [-TOKEN_GAP - TOKEN_ROOM - NUMBER_ROOM, -TOKEN_GAP] : [geometry.width + TOKEN_GAP, geometry.width + TOKEN_GAP + TOKEN_ROOM + NUMBER_ROOM];
  const rule = svgElement("line", { class: "divider", x1: from, x2: to, y1: y, y2: y, stroke: style("--soft"), "stroke-dasharray": "4 3" });
  const x = left ? from : to;
  return [rule, ...(begins ? [svgText(begins, { class: "begins", x, y: y - 3, "text-anchor": left ? "start" : "end", "font-size": 10.5, fill: style("--soft") })] : [])];
}

/** @returns {SVGElement[]} the colours by name, in rows that are no wider than there is room */
function svgColours({ named, geometry, style }) {
  const room = Math.max(NAME_ROOM, geometry.width + 2 * SIDE_ROOM - 2 * TOKEN_GAP);
  const step = Math.min(named.length && named[0][0].length > 3 ? 3 * NAME_ROOM : NAME_ROOM, room / named.length);
  const start = (geometry.width - step * named.length) / 2;
  return named.flatMap(([name, colour], i) => {
    const [x, y] = [start + i * step, ABOVE.colours - ABOVE.lines];
    return [
      svgElement("rect", { class: "swatch", x, y: y - 9, width: 10, height: 10, rx: 2, fill: colour }),
      svgText(name, { class: "colour", x: x + 13, y, "font-size": 11, fill: style("--ink") }),
    ];
  });
}

/** @returns {number} pixels of an image for each of the page: as many as the page has where lines are many */
export function pictureScale({ lines, painted, geometry }) {
  return lines.length > MANY && painted ? painted.width / geometry.width : 2;
}

/** @returns {number} width of a picture, in CSS pixels */
function pictureWidth({ width }) {
  return width + 2 * SIDE_ROOM;
}

/**
 * @param {HeadPicture} picture
 * @param {boolean} [bare] whether the lines are left out, for them to be painted
 * @returns {string} an SVG document
 */
export function svgDocument(picture, bare = false) {
  const { caption, geometry, style, gold, legend } = picture;
  const { text, more } = svgCaption(caption, pictureWidth(geometry), style("--ink"));
  const [width, height] = [pictureWidth(geometry), geometry.height + ABOVE.lines + more + 16 + (legend ? LEGEND_HEIGHT : 0)];
  const root = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, "font-size": 14 });
  const drawing = svgElement("g", { transform: `translate(${SIDE_ROOM} ${ABOVE.lines + more})` });
  drawing.append(
    ...(bare ? [] : svgLines(picture)),
    ...(gold ? [gold] : []),
    ...svgColours(picture),
    svgText("→", { class: "direction", x: geometry.width / 2, y: ABOVE.titles - ABOVE.lines, "text-anchor": "middle", fill: style("--soft") }),
    ...svgColumn("left", picture),
    ...svgColumn("right", picture),
  );
  root.append(
    svgElement("title", {}, caption),
    svgElement("rect", { width, height, fill: style("--paper") }),
    text,
    drawing,
  );
  if (legend) {
    legend.setAttribute("transform", `translate(0 ${height - LEGEND_HEIGHT})`);
    root.append(legend);
  }
  return new XMLSerializer().serializeToString(root);
}

/**
 * Paint the lines of a picture into an image of it: anew where they are few, and else those that
 * the page has painted, which took it as long as the reader can wait.
 * @param {CanvasRenderingContext2D} context in CSS pixels
 * @param {HeadPicture} picture
 * @param {number} scale pixels of the image for each of the page
 */
export function paintPictureLines(context, { caption, lines, geometry, colourOf, painted, style }, scale) {
  const { more } = svgCaption(caption, pictureWidth(geometry), style("--ink"));
  const canvas = lines.length > MANY && painted ? painted : document.createElement("canvas");
  if (canvas !== painted) paintLines(canvas, lines, geometry, colourOf, undefined, scale);
  context.drawImage(canvas, SIDE_ROOM, ABOVE.lines + more, geometry.width, geometry.height);
}
