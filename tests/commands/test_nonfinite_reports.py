# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Stores and reports of a model with NaN: marked, blank where it is, and never a number."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_models import with_nan

import flaxattn as fa
from flaxattn.commands.report_run import cell, print_nonfinite
from flaxattn.errors import InputError
from flaxattn.reports.report import json_text, without_nan
from flaxattn.store.verify_store import verify

TEXTS = ["the cat is very sad because it could not find food to eat", "the food", "a cat, sad"]
# Two layers of four heads; layer 1 is broken.
BROKEN = [{"layer": 1, "head": head, "texts": 3} for head in range(4)]
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(reader: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nan")
    with_nan(fa.from_pretrained(reader)).save_pretrained(folder / "model")
    (folder / "in.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    with pytest.raises(InputError, match=r"layer 1, head 0 is NaN .* text 0 \(in\.txt:1\)"):
        fa.extract_to(folder / "refused", folder / "model", folder / "in.txt")
    assert not verify(folder / "refused").shards
    fa.extract_to(folder / "store", folder / "model", folder / "in.txt", allow_nonfinite=True)
    return folder / "store"


@pytest.mark.float16
def test_a_store_reports_how_many_rows_are_broken(store: Path, typed: Typed) -> None:
    opened = fa.open_store(store)
    weights = [np.isnan(np.asarray(trace.encoder.weights)) for trace in opened]
    rows = sum(int(one.all(-1).sum()) for one in weights)
    assert rows and rows == sum(int(one.any(-1).sum()) for one in weights)
    assert verify(store).nonfinite == rows and not verify(store).damage
    code, out, _ = typed("store", "verify", store)
    assert code == 0 and f"{rows} rows of attention are NaN or infinite, as they were" in out
    _, out, _ = typed("store", "info", store, "--json")
    assert json.loads(out)["nonfinite_rows"] == rows


@pytest.mark.float16
def test_a_store_without_nan_says_none(reader: Path, folder: Path) -> None:
    fa.extract_to(folder / "whole", reader, folder / "in.txt", allow_nonfinite=True)
    assert verify(folder / "whole").nonfinite == 0
    for manifest in (folder / "whole").rglob("manifest.json"):
        assert "nonfinite" not in manifest.read_text(encoding="utf-8")


@pytest.mark.float16
def test_the_same_store_is_resumed_with_and_without(store: Path, folder: Path) -> None:
    report = fa.extract_to(store, folder / "model", folder / "in.txt")
    assert report.written == 0


def test_uint8_is_refused_before_anything_is_computed(folder: Path, typed: Typed) -> None:
    words = ("extract", folder / "in.txt", "--model", folder / "model", "--out", folder / "bytes")
    code, _, err = typed(*words, "--dtype", "uint8", "--allow-nonfinite")
    assert code == 2 and "uint8 cannot hold NaN" in err and len(err.strip().splitlines()) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("command", ["stats", "roles"])
@pytest.mark.parametrize("source", ["model", "store"])
def test_reports_leave_cells_blank_and_say_so(
    command: str, source: str, folder: Path, store: Path, typed: Typed, tmp_path: Path
) -> None:
    words = [store] if source == "store" else [folder / "in.txt", "--model", folder / "model"]
    words += [] if source == "store" else ["--allow-nonfinite"]
    code, out, err = typed(command, *words, "--out", tmp_path, "--page")
    assert code == 0, err
    assert "is NaN or infinite on some texts: 1.0, 1.1, 1.2, 1.3" in out
    assert "nan" not in out.replace("NaN", "").replace(str(folder), "").replace(str(tmp_path), "")
    facts = json.loads((tmp_path / f"{command}.json").read_text(encoding="utf-8"))
    assert facts["nonfinite"] == BROKEN
    rows = pq.read_table(tmp_path / "heads.parquet").to_pylist()
    assert {row["layer"] for row in rows} == {0, 1}
    for row in rows:
        assert (row["mean"] is None) == (row["layer"] == 1), row
        assert not any(isinstance(v, float) and not math.isfinite(v) for v in row.values()), row
    assert not any(claim["layer"] == 1 for claim in facts["evidence"]["claims"])


def test_compare_leaves_cells_blank(
    folder: Path, reader: Path, typed: Typed, tmp_path: Path
) -> None:
    words = ("compare", reader, folder / "model", folder / "in.txt", "--out", tmp_path)
    code, _, err = typed(*words)
    assert code == 2 and "layer 1, head 0" in err and "text 0" in err
    code, _, err = typed(*words, "--allow-nonfinite", "--no-page")
    assert code == 0, err
    for row in pq.read_table(tmp_path / "compare.parquet").to_pylist():
        assert (row["divergence"] is None) == (row["layer"] == 1), row
    facts = json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"))
    means = {row["layer"]: row["divergence"] for row in facts["layers"]["encoder"]}
    assert means[0] is not None and means[1] is None


def test_view_draws_gaps(folder: Path, typed: Typed, tmp_path: Path) -> None:
    words = ("view", TEXTS[0], "--model", folder / "model", "--out", tmp_path / "page.html")
    code, _, err = typed(*words)
    assert code == 2 and "layer 1, head 0" in err and not (tmp_path / "page.html").exists()
    code, _, err = typed(*words, "--allow-nonfinite")
    assert code == 0 and "not a number" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_vectors_are_refused(folder: Path) -> None:
    model = fa.from_pretrained(folder / "model")
    with pytest.raises(InputError, match=r"hidden states of layer 2 are NaN .* for text 0\n"):
        fa.embed(model, TEXTS)
    assert np.isfinite(fa.embed(model, TEXTS, layer=1)).all()
    assert np.isnan(fa.embed(model, TEXTS, allow_nonfinite=True)).all()


@pytest.mark.slow
def test_losses_are_refused(folder: Path) -> None:
    model = fa.from_pretrained(folder / "model")
    with pytest.raises(InputError, match=r"the loss of text 0 is NaN.*\n.*kernel of layer 1 holds"):
        fa.ablate(fa.head_task(model, TEXTS))
    with pytest.raises(InputError, match="the loss of text 0 is NaN"):
        fa.head_importance(fa.head_task(model, TEXTS))
    effects = fa.ablate(fa.head_task(model, TEXTS, allow_nonfinite=True))
    assert np.isnan(effects.means["head_mask"]).all()


def test_columns_and_cells_hold_no_nan() -> None:
    assert without_nan([0.5, float("nan"), None, float("inf")]).to_pylist() == [
        0.5,
        None,
        None,
        None,
    ]
    assert without_nan([float("nan")]).type == "double"
    assert without_nan(["a", "nan"]).to_pylist() == ["a", "nan"]
    assert cell(float("nan"), ".0%") == "" and cell(0.25, ".0%") == "25%"
    assert json.loads(json_text({"a": float("nan")})) == {"a": None}


@pytest.mark.parametrize(("heads", "last"), [(6, "0.5\n"), (8, "0.5 and 2 more\n")])
def test_a_long_list_of_heads_is_counted(
    heads: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_nonfinite({"nonfinite": [{"layer": 0, "head": head} for head in range(heads)]})
    assert last in capsys.readouterr().out
