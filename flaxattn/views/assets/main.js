// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where a page begins: the table of its levels, and the message where they cannot be shown.

import { AtlasLevel } from "./atlas.js";
import { unpackBlocks } from "./decoding.js";
import { element } from "./elements.js";
import { HeadLevel } from "./head.js";
import { ModelLevel } from "./model.js";
import { Shell } from "./shell.js";
import { TextLevel } from "./text.js";

/**
 * @typedef {Object} Kind of level
 * @property {any} make its class
 * @property {string} label how its tab reads
 * @property {string[]} fields controls of the bar that it has
 * @property {boolean} [heads] whether it has the squares of heads
 * @property {boolean} [oneHead] whether it shows one head at a time
 * @property {any} [together] class that shows two traces and their difference beside each other
 * @property {boolean} [noPicture] whether it has no picture to save
 */

/** @type {Object<string, Kind>} */
export const LEVELS = {
  atlas: { make: AtlasLevel, label: "Atlas", fields: ["text", "side", "compare", "weights", "measure", "order"] },
  model: {
    make: ModelLevel,
    label: "Model",
    fields: ["text", "side", "compare", "weights", "attention", "opacity", "special", "first", "unit"],
  },
  head: {
    make: HeadLevel,
    label: "Head",
    fields: ["text", "side", "layer", "compare", "weights", "drawing", "gold", "attention", "opacity", "mass", "special", "first", "unit", "labels"],
    heads: true,
  },
  text: {
    make: TextLevel,
    label: "Text",
    fields: ["text", "side", "layer", "direction", "compare", "weights", "attention", "opacity", "special", "first", "unit"],
    heads: true,
  },
};

/** Put a message where the page would have been. */
function showFailure(root, error) {
  const message = `The view could not be drawn (${error.message}). The data in this file is intact; please report this together with the name and version of your browser.`;
  root.replaceChildren(element("p", { class: "failure", role: "alert", text: message }));
  console.error(error);
}

/** Start every page in the document, each with the payload that follows it. */
function startPages() {
  document.querySelectorAll("main.flaxattn").forEach(startPage);
}

async function startPage(root) {
  try {
    const payload = JSON.parse(root.nextElementSibling.textContent);
    await unpackBlocks(payload);
    Object.assign(root, { flaxattn: new Shell(root, payload, LEVELS) });
  } catch (error) {
    showFailure(root, error);
  }
}

document.addEventListener("DOMContentLoaded", startPages);
