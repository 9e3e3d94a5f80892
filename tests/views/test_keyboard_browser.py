# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every control of every level is reached by the tab key, or by arrow keys inside its group."""

import pytest
import view_cases

pytestmark = pytest.mark.browser

# Names of visible controls, and the groups in which arrow keys move from one to the next.
CONTROLS = """
const main = document.querySelector("main");
const labelOf = (e) => e.getAttribute("aria-label") || e.textContent;
window.controls = [...main.querySelectorAll(
  "a[href], button, input, select, [role=tab], [role=option], [tabindex]:not([role=table])")]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled);
window.groupOf = (e) => e.closest(
  "[role=tablist], [role=radiogroup], [role=listbox], [role=rowgroup], .grid");
window.nameOf = (e) => `${e.tagName} ${e.className} ${labelOf(e)}`.slice(0, 60);
window.reached = new Set();
window.unmarked = new Set();
main.addEventListener("focusin", ({ target }) => {
  window.reached.add(target);
  const style = getComputedStyle(target);
  const marked = style.outlineStyle !== "none" || style.boxShadow !== "none";
  if (!marked) window.unmarked.add(nameOf(target));
});
return window.controls.length;
"""
LEFT = """
const groups = new Set([...window.reached].map(groupOf).filter(Boolean));
return window.controls
  .filter((e) => !window.reached.has(e) && !groups.has(groupOf(e)))
  .map(nameOf);
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keyboard")
    return view_cases.one(folder), view_cases.compared(folder)


@pytest.mark.parametrize("name", [*view_cases.LEVELS, "compare"])
def test_the_tab_key_reaches_every_control_and_shows_where_it_is(view, pages, name):
    page = pages[name == "compare"]
    view.open(page, view_cases.LEVELS.get(name, "level=head&compare=difference&query=2"))
    count = view.run(CONTROLS)
    assert count > 8
    view.run("document.body.tabIndex = -1; document.body.focus()")
    for _ in range(count + 2):
        view.press("TAB")
        if not view.run(LEFT):
            break
    assert view.run(LEFT) == []
    assert view.run("return [...window.unmarked]") == []
