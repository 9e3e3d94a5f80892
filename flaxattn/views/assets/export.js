// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Lines and tokens as an SVG file for papers and slides: the same lines in the same places as on the
// page.

import { svgElement } from "./elements.js";
import { lineEnds } from "./lines.js";

/** @returns {SVGElement[]} the lines, one group per head and colour */
function svgLines(lines, geometry, colourOf) {
  const groups = new Map();
  for (const line of lines) {
    const [from, to] = lineEnds(line, geometry).map((y) => y.toFixed(2));
    const { width } = geometry;
    const path = svgElement("path", {
      d: `M0 ${from}C${width / 2} ${from} ${width / 2} ${to} ${width} ${to}`,
      "stroke-opacity": line.opacity.toFixed(4),
    });
    const stroke = colourOf(line);
    const name = `${line.head} ${stroke}`;
    if (!groups.has(name)) groups.set(name, svgElement("g", { stroke, fill: "none", "stroke-width": 1.75 }));
    groups.get(name).append(path);
  }
  return [...groups.values()];
}

/** @returns {SVGElement[]} one column of tokens */
function svgTokens(tokens, places, x, anchor, ink) {
  return [...places].map(([position, y]) => {
    const place = { x, y: y + 5, "text-anchor": anchor, fill: ink };
    const made = svgElement("text", place, tokens[position]);
    made.style.setProperty("unicode-bidi", "isolate");
    made.style.setProperty("white-space", "pre");
    return made;
  });
}

/**
 * @param {Object} picture
 * @param {string} picture.caption
 * @param {string[]} picture.left tokens
 * @param {string[]} picture.right tokens
 * @param {SVGElement[]} picture.arcs gold pairs
 * @param {string} picture.legend what the arcs are
 * @param {import("./lines.js").Line[]} picture.lines
 * @param {import("./lines.js").Geometry} picture.geometry
 * @param {(line: import("./lines.js").Line) => string} picture.colourOf
 * @param {string} picture.ink
 * @param {string} picture.paper
 * @returns {string} an SVG document
 */
export function svgDocument({ caption, left, right, arcs, legend, lines, geometry, colourOf, ink, paper }) {
  const side = 170;
  const [width, height] = [geometry.width + 2 * side, geometry.height + (legend ? 80 : 56)];
  const root = svgElement("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    "font-family": "system-ui, sans-serif",
    "font-size": 14,
  });
  const drawing = svgElement("g", { transform: `translate(${side} 40)` });
  drawing.append(
    ...arcs,
    ...svgLines(lines, geometry, colourOf),
    ...svgTokens(left, geometry.left, -10, "end", ink),
    ...svgTokens(right, geometry.right, geometry.width + 10, "start", ink),
  );
  root.append(
    svgElement("title", {}, caption),
    svgElement("rect", { width, height, fill: paper }),
    svgElement("text", { x: width / 2, y: 22, "text-anchor": "middle", fill: ink }, caption),
    drawing,
  );
  if (legend) root.append(svgElement("text", { x: width / 2, y: height - 12, "text-anchor": "middle", fill: ink }, legend));
  return new XMLSerializer().serializeToString(root);
}
