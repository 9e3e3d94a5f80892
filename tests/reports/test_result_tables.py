# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Results that are tables: short when printed, a table in a notebook, one length in all columns."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import UnavailableError
from flaxattn.trace.result_table import ResultTable

TEXTS = ["The cat is very sad.", "It found no food.", "A dog ran."]


def masked() -> Any:
    return fa.head_task(fa.from_pretrained("tiny-bert", head="BertForMaskedLM"), TEXTS)


RESULTS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "head_stats": (lambda: fa.head_stats(fa.from_pretrained("tiny-bert"), TEXTS), "mean", 16),
    "head_roles": (lambda: fa.head_roles(fa.from_pretrained("tiny-bert"), TEXTS), "score", 16),
    "detect_heads": (
        lambda: fa.detect_heads(fa.from_pretrained("tiny-gpt2"), sequences=2, length=10),
        "score",
        24,
    ),
    "head_importance": (lambda: fa.head_importance(masked()), "importance", 16),
    "faithfulness": (
        lambda: fa.faithfulness(
            fa.from_pretrained("tiny-gpt2"), TEXTS, kinds=("attention", "random"), steps=2
        ),
        "gap",
        6,
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_a_table(name: str) -> None:
    make, column, heads = RESULTS[name]
    result = make()
    columns = result.to_columns()
    (rows,) = {len(values) for values in columns.values()}
    assert rows and rows % heads == 0 and np.isfinite(np.asarray(columns[column], float)).any()
    assert len(repr(result)) < 120 and f"({rows:,} rows of" in repr(result)
    html = result._repr_html_()
    assert f"{rows:,} rows" in html and html.count("<tr>") == 1 + min(rows, 20)


class Hostile(ResultTable):
    def to_columns(self) -> dict[str, list[Any]]:
        return {"<b>": ["<script>", None, float("nan")]}


def test_what_a_notebook_shows_is_escaped_and_blank_where_nothing_is_known() -> None:
    html = Hostile()._repr_html_()
    assert html is not None and "<script>" not in html and "<b>" not in html
    assert "<td></td>" in html and "nan" not in html


def test_without_pandas_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnavailableError, match="pandas"):
        Hostile().to_pandas()


@pytest.mark.float16
def test_other_results_are_short(tmp_path: Any) -> None:
    model = fa.from_pretrained("tiny-bert")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    fa.extract_to(tmp_path / "store", model, str(tmp_path / "texts.txt"))
    assert f"3 texts of {model.name!r}" in repr(fa.open_store(tmp_path / "store"))
    assert "3 texts" in repr(masked())
