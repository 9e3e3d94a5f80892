// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Attention pages in frames take the theme that the reader chooses for the site.

function followTheme() {
  const theme = document.body.dataset.theme || "auto";
  for (const frame of document.querySelectorAll("iframe.attention-page")) {
    const [address, settings] = frame.src.split("#");
    if (settings === undefined && theme === "auto") continue;
    const wanted = `${address}#theme=${theme}`;
    if (frame.src !== wanted) frame.src = wanted;
  }
}

new MutationObserver(followTheme).observe(document.body, { attributeFilter: ["data-theme"] });
followTheme();
