// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// How numbers read. Nothing is computed here that is not shown.

/** @returns {string} a weight with three decimals; never a rounded-down zero */
export function formatWeight(weight) {
  if (Number.isNaN(weight)) return "NaN";
  if (weight < 0) return `−${formatWeight(-weight)}`;
  return weight > 0 && weight < 0.0005 ? "<0.001" : weight.toFixed(3);
}

/** @returns {string} a share between 0 and 1 as a percentage, `100 %` only for all of it */
export function formatShare(share) {
  if (share < 0) return `−${formatShare(-share)}`;
  const percent = 100 * share;
  if (percent >= 99.95 || percent === 0) return `${percent.toFixed(0)} %`;
  return `${Math.min(percent, 99.9).toFixed(percent < 10 || percent > 99 ? 1 : 0)} %`;
}

/** @returns {string} a whole number in groups of three digits; `toLocaleString` loads its tables first, 20 ms */
export function formatCount(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}
