# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A real notebook: executed by Jupyter's kernel, exported to HTML, opened without a network.

What a cell's output is made of is in `test_notebook.py`, which needs neither Jupyter nor a browser.
"""

import json
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.browser

CELLS = (
    """
import numpy as np
import flaxattn as fa

def shares(seed, heads, length):
    parts = np.random.default_rng(seed).dirichlet(np.ones(length), (1, 1, heads, length))
    return parts.astype(np.float32)

first = fa.Trace.from_arrays(shares(0, 3, 4), [list("abcd")], model="first")
second = fa.Trace.from_arrays(shares(1, 2, 5), [["<b>", '"', "</script>", "&amp;", "e"]])
""",
    "fa.head_view(first, 0, precision='float16')",
    "exact = fa.head_view(second, heads=[1], precision='float16')\n"
    "for page in (exact, fa.model_view(first)):\n    display(page)",
    "[len(first), 'no page']",
)
# Of the exporter itself: scripts that it would load from elsewhere.
LEFT_OUT = ("mathjax_url", "require_js_url", "jquery_url", "mermaid_js_url", "jupyter_widgets_base")


def weights(seed: int, heads: int, length: int) -> np.ndarray:
    """What the notebook makes, `[H, Q, K]`."""
    parts = np.random.default_rng(seed).dirichlet(np.ones(length), (1, 1, heads, length))
    return parts.astype(np.float32)[0, 0]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook as a page, its cells executed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own
        import nbformat
        from nbclient import NotebookClient
        from nbconvert import HTMLExporter

        cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
        cells.insert(1, nbformat.v4.new_markdown_cell("# Attention"))
        notebook = nbformat.v4.new_notebook(cells=cells)
        folder = tmp_path_factory.mktemp("notebook")
        running = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=300, resources=running).execute()
        nbformat.write(notebook, folder / "notebook.ipynb")
        exporter = HTMLExporter(**{name: "" for name in LEFT_OUT})
        text, _ = exporter.from_notebook_node(nbformat.read(folder / "notebook.ipynb", 4))
    (folder / "notebook.html").write_text(text, encoding="utf-8")
    return folder / "notebook.html"


def test_views_of_a_notebook_live_side_by_side_and_fetch_nothing(view, exported):
    view.browser.get_log("performance")
    view.browser.get(exported.as_uri())
    frames = view.browser.find_elements("css selector", "iframe")
    assert [frame.get_attribute("sandbox") for frame in frames] == [
        "allow-scripts allow-downloads"
    ] * 3
    assert all(frame.get_attribute("srcdoc") and not frame.get_attribute("src") for frame in frames)
    ids = view.browser.execute_script(
        "return [...document.querySelectorAll('[id]')].map((e) => e.id)"
    )
    assert not [name for name, count in Counter(ids).items() if count > 1 and "level" in name]
    expected = [(weights(0, 3, 4), None), (weights(1, 2, 5), [1]), (weights(0, 3, 4), "model")]
    for frame, (shares, heads) in zip(frames, expected, strict=True):
        view.browser.switch_to.frame(frame)
        try:
            view.until("Boolean(page)")
            own = view.run("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
            assert len(own) == len(set(own)) > 0
            reached = "try { return parent.document.title } catch { return null }"
            assert view.run(reached) is None, "a frame has no say in the notebook"
            if heads == "model":
                drawn = view.run("return [...view.drawn(0, 2).values]")
                assert drawn == pytest.approx(shares[2].ravel(), abs=3e-4)
                continue
            view.assert_draws(shares, heads=heads)
            view.run("page.hold('right', 3)")
            view.assert_draws(shares, heads=heads, keys=[3])
            assert view.texts(".failure") == []
        finally:
            view.browser.switch_to.default_content()
    view.browser.switch_to.frame(frames[0])
    held = view.run("return [page.state.query, page.state.key, page.state.heads.length]")
    view.browser.switch_to.default_content()
    assert held == [None, 3, 3], "another view's choices are its own"
    entries = [json.loads(e["message"])["message"] for e in view.browser.get_log("performance")]
    requested = [
        e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in requested if url.split(":")[0] not in ("file", "about", "data")] == []


def test_a_notebook_holds_each_page_once_and_other_outputs_as_they_are(exported):
    notebook = json.loads(exported.with_suffix(".ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    kinds = [sorted(output["data"]) for output in outputs]
    assert kinds == [["text/html", "text/plain"]] * 3 + [["text/plain"]]
    plain = ["".join(output["data"]["text/plain"]) for output in outputs]
    assert plain[0].startswith("Page(head view: 4 tokens") and "<" not in plain[0]
    assert plain[3] == "[1, 'no page']"
