// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The page's address, which holds its settings after `#`.

/** What the address holds beside settings. */
const KEPT_BESIDE = {};

/** Keep something in the address from its next change on. */
export function keepInAddress(record) {
  Object.assign(KEPT_BESIDE, record);
}

/** @returns {Object<string, string>} what the address holds */
export function readFragment() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** @returns {string} what is not null as an address holds it */
export function fragment(settings) {
  const kept = Object.entries(settings).filter(([, value]) => value !== null);
  return kept.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
}

/**
 * Put the settings that are not null into the address. Frames without an address go without.
 * @param {Object<string, any>} settings
 * @param {boolean} visit whether going back leads to the address before
 */
export function writeFragment(settings, visit) {
  const text = fragment({ ...settings, ...KEPT_BESIDE });
  if (text === location.hash.slice(1)) return;
  try {
    if (visit) history.pushState(null, "", `#${text}`);
    else history.replaceState(null, "", `#${text}`);
  } catch (error) {
    console.info("The address of this frame cannot be changed.", error.name);
  }
}
