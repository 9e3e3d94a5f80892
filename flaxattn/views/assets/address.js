// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// The page's address, which holds its settings after `#`.

/** @returns {Object<string, string>} what the address holds */
export function readFragment() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/**
 * Put the settings that are not null into the address. Frames without an address go without.
 * @param {Object<string, any>} settings
 * @param {boolean} visit whether going back leads to the address before
 */
export function writeFragment(settings, visit) {
  const kept = Object.entries(settings).filter(([, value]) => value !== null);
  const text = kept.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  if (text === location.hash.slice(1)) return;
  try {
    if (visit) history.pushState(null, "", `#${text}`);
    else history.replaceState(null, "", `#${text}`);
  } catch (error) {
    console.info("The address of this frame cannot be changed.", error.name);
  }
}
