# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Correlations of what reports tell of heads are those of scipy, over the right heads."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.files import json_digest, sha256_of
from flaxattn.measures.read_report import read_head_numbers

LAYERS, HEADS = 3, 4
PLACES = list(np.ndindex(LAYERS, HEADS))


def write(
    folder: Path, command: str, rows: Sequence[Mapping[str, Any]], table: str = "", **facts: Any
) -> Path:
    """A report of a command as the commands write it: the table, and facts with digests."""
    folder.mkdir(parents=True)
    table = table or "heads.parquet"
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), folder / table)
    metadata = {"flaxattn": "1", "model": "m", "request": {"model": "m"}, **facts}
    metadata["files"] = {table: sha256_of(folder / table)}
    metadata["sha256"] = json_digest(metadata)
    (folder / f"{command}.json").write_text(json.dumps(metadata), encoding="utf-8")
    return folder


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(LAYERS, HEADS))


def roles(folder: Path, tables: Mapping[str, np.ndarray], **facts: Any) -> Path:
    rows = [
        {"kind": kind, "name": name, "layer": i, "head": j, "mean": float(table[i, j])}
        for name, table in tables.items()
        for i, j in PLACES
        for kind in ("score", "mass")
    ]
    for row in rows:
        row["mean"] += row["kind"] == "mass" and 100.0  # which a report of roles does not compare
        row["mean"] = None if np.isnan(row["mean"]) else row["mean"]
    return write(folder, "roles", rows, side="encoder", **facts)


def ablate(folder: Path, table: np.ndarray, side: str = "encoder", **facts: Any) -> Path:
    rows = [
        {"side": side, "layer": i, "head": j, "ablation": float(table[i, j]), "ablation_error": 9.0}
        for i, j in PLACES
    ]
    return write(folder, "ablate", rows, "ablate.parquet", **facts)


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    broken = drawn(2)
    broken[1, 2] = np.nan
    scores = {"a": drawn(0), "b": np.round(drawn(1)), "c": broken}
    return [roles(tmp_path / "roles", scores), ablate(tmp_path / "ablate", drawn(0) + drawn(3))]


def test_correlations_are_those_of_scipy(two: list[Path]) -> None:
    found = fa.head_concordance(two, draws=20)
    assert found.columns == ("roles: a", "roles: b", "roles: c", "ablate: ablation")
    assert (found.model, found.side, found.sources) == ("m", "encoder", (0, 0, 0, 1))
    assert list(zip(found.layers.tolist(), found.heads.tolist(), strict=True)) == PLACES
    for i, j in itertools.product(range(4), repeat=2):
        some = ~np.isnan(found.values[:, [i, j]]).any(1)
        one, other = found.values[some][:, [i, j]].T
        assert found.counts[i, j] == some.sum() == (11 if 2 in (i, j) else 12)
        spearman: Any = scipy.stats.spearmanr(one, other)
        pearson: Any = scipy.stats.pearsonr(one, other)
        assert found.spearman[i, j] == pytest.approx(spearman.statistic, abs=1e-9)
        assert found.pearson[i, j] == pytest.approx(pearson.statistic, abs=1e-9)


def test_intervals_are_percentiles_over_heads_that_are_drawn_anew(two: list[Path]) -> None:
    found = fa.head_concordance(two, draws=50, seed=7)
    random = np.random.default_rng(7)
    one, other = found.values[:, [0, 3]].T
    each = []
    for _ in range(50):
        some = random.integers(12, size=12)
        spearman: Any = scipy.stats.spearmanr(one[some], other[some])
        each.append((spearman.statistic, np.corrcoef(one[some], other[some])[0, 1]))
    low, high = np.quantile(each, (0.025, 0.975), axis=0)
    assert found.spearman_low[0, 3] == pytest.approx(low[0])
    assert found.spearman_high[3, 0] == pytest.approx(high[0])
    assert found.pearson_low[0, 3] == pytest.approx(low[1])
    assert found.pearson_high[0, 3] == pytest.approx(high[1])


@pytest.mark.slow
def test_p_values_are_shares_of_permutations(two: list[Path]) -> None:
    found = fa.head_concordance(two, draws=4000, correction="bonferroni")
    pairs = found.values[:, [0, 3]]
    exact: Any = scipy.stats.permutation_test(
        (pairs[:, 0],),
        lambda one: scipy.stats.spearmanr(one, pairs[:, 1])[0],
        permutation_type="pairings",
        n_resamples=4000,
        rng=np.random.default_rng(0),
    )
    assert found.p[0, 3] == found.p[3, 0] == pytest.approx(exact.pvalue, abs=0.02)
    tested = [row for row in found.rows() if not row["same_report"]]
    assert len(tested) == 3
    for row in tested:
        assert row["p_corrected"] == pytest.approx(min(1, 3 * row["p"]))
    assert all(np.isnan(row["p_corrected"]) for row in found.rows() if row["same_report"])


@pytest.mark.slow
def test_permutations_within_layers_keep_what_depth_explains(tmp_path: Path) -> None:
    depth = np.arange(LAYERS)[:, None] * 10.0
    reports = [
        roles(tmp_path / "roles", {"deep": depth + drawn(0), "same": drawn(1)}),
        ablate(tmp_path / "ablate", depth + drawn(4)),
    ]
    found = fa.head_concordance(reports, draws=500)
    last = len(found.columns) - 1
    assert found.spearman[0, last] > 0.7
    assert found.p[0, last] < 0.02 and found.p_within_layers[0, last] > 0.05
    orders = itertools.permutations(range(HEADS))
    orders = list(itertools.product(orders, repeat=LAYERS))[::23]
    moved = [np.concatenate([4 * n + np.array(o) for n, o in enumerate(each)]) for each in orders]
    one, other = found.values[:, [0, last]].T
    as_large = [abs(scipy.stats.spearmanr(one[m], other)[0]) for m in moved]  # type: ignore[arg-type]
    share = np.mean(np.array(as_large) >= found.spearman[0, last] - 1e-9)
    assert found.p_within_layers[0, last] == pytest.approx(share, abs=0.07)


def test_columns_are_chosen_by_pattern_and_those_that_do_not_vary_are_named(
    tmp_path: Path, two: list[Path]
) -> None:
    found = fa.head_concordance(two, columns=["*: a", "ablate:*"], draws=2)
    assert found.columns == ("roles: a", "ablate: ablation") and found.left_out == ()
    flat = roles(tmp_path / "flat", {"a": drawn(0), "none": np.zeros((LAYERS, HEADS))})
    found = fa.head_concordance([flat, two[1]], draws=2)
    assert found.left_out == ("roles: none",)
    table = found.to_columns()
    assert list(table) == ["side", "layer", "head", "roles: a", "ablate: ablation"]
    np.testing.assert_array_equal(table["roles: a"], drawn(0).ravel())


def test_two_reports_of_a_command_keep_their_folders(tmp_path: Path, two: list[Path]) -> None:
    other = ablate(tmp_path / "more", drawn(5))
    found = fa.head_concordance([two[1], other / "ablate.json"], draws=2)
    assert found.columns == (f"ablate {two[1]}: ablation", f"ablate {other}: ablation")


def test_the_side_is_one_of_which_every_report_has_numbers(tmp_path: Path) -> None:
    both = [
        {
            "side": side,
            "layer": i,
            "head": j,
            "copying": None if side == "cross" else drawn(0)[i, j],
        }
        for side in ("cross", "decoder")
        for i, j in PLACES
    ]
    scores = write(tmp_path / "circuits", "circuits", both, "circuits.parquet")
    rows = [{**row, "ablation": drawn(1)[row["layer"], row["head"]]} for row in both]
    worth = write(tmp_path / "ablate", "ablate", rows, "ablate.parquet")
    found = fa.head_concordance([scores, worth], columns=["circuits:*", "*: ablation"], draws=1)
    assert found.side == "decoder" and len(found.columns) == 2
    more = write(tmp_path / "more", "ablate", rows, "ablate.parquet")
    assert fa.head_concordance([worth, more], columns=["*: ablation"], draws=1).side == "cross"
    with pytest.raises(InputError, match=r"^A report is named twice"):
        fa.head_concordance([worth, worth / ".." / "ablate"])


def test_a_report_of_every_kind_is_read(tmp_path: Path) -> None:
    where = {"layer": 1, "head": 2}
    head = ("decoder", 1, 2)
    texts = [{"text": n, "kind": "norm", "side": "decoder", **where, "own": n} for n in (1.0, 2.0)]
    rows = [
        *texts,
        {**texts[0], "text": 3, "own": None},
        {**texts[0], "kind": "rollout", "head": -1},
    ]
    maps = read_head_numbers(write(tmp_path / "weights", "weights", rows))
    assert maps.columns == {"norm own": {head: 1.5}}
    row = {"side": "decoder", **where, "kind": "direct", "positions": "all", "effect": 7.0}
    others = [{**row, "kind": "indirect"}, {**row, "kind": "path", "positions": "changed"}]
    effects = write(tmp_path / "patch", "patch", [row, *others], "patch.parquet")
    assert read_head_numbers(effects).columns == {
        "indirect": {head: 7.0},
        "path at changed": {head: 7.0},
    }
    row = {"side": "decoder", **where, "copying": 0.5, "prefix_layer": 0, "prefix_matching": 0.1}
    scores = write(tmp_path / "circuits", "circuits", [row], "circuits.parquet")
    assert read_head_numbers(scores).columns == {
        "copying": {head: 0.5},
        "prefix matching": {head: 0.1},
    }
    row = {"side": "decoder", **where, "ablation": 2.0, "ablation_error": 0.5, "importance": None}
    worth = read_head_numbers(write(tmp_path / "ablate", "ablate", [row], "ablate.parquet"))
    assert worth.columns["ablation"] == {head: 2.0} and np.isnan(worth.columns["importance"][head])
    assert list(worth.intervals) == ["ablation"]
    assert worth.intervals["ablation"][head] == pytest.approx((1.02, 2.98), abs=1e-3)
    row = {"relation": "nsubj", "direction": "up", **where, "count": 3, "accuracy": 0.25}
    person = {"group": "", "candidates": "words", "direction": "back", **where, "accuracy": 0.75}
    probe = read_head_numbers(write(tmp_path / "probe", "probe", [row]))
    assert probe.columns == {"nsubj up": {("encoder", 1, 2): 0.25}}
    probe = read_head_numbers(write(tmp_path / "pronouns", "probe", [person]))
    assert probe.columns == {"back among words": {("encoder", 1, 2): 0.75}}
    means = [{"kind": k, "name": "entropy", **where, "mean": 2.0} for k in ("mean", "pattern")]
    stats = read_head_numbers(write(tmp_path / "stats", "stats", means, side="cross"))
    assert stats.columns == {"entropy": {("cross", 1, 2): 2.0}}


def marked(parameters: str, architecture: str = "A") -> dict[str, Any]:
    return {"fingerprint": {"parameters": parameters, "architecture": architecture}}


def test_models_are_compared_by_digest_and_else_by_name(tmp_path: Path) -> None:
    one = ablate(tmp_path / "one", drawn(0), **marked("1"))
    same = ablate(tmp_path / "same", drawn(1), **marked("1"), model="elsewhere/m")
    other = ablate(tmp_path / "other", drawn(2), **marked("2"))
    with_head = ablate(tmp_path / "with_head", drawn(3), **marked("3", "B"))
    plain = ablate(tmp_path / "plain", drawn(4), model="elsewhere/m")
    fa.head_concordance([one, same, with_head, plain], draws=1)
    with pytest.raises(InputError) as raised:
        fa.head_concordance([one, same, other], draws=1)
    assert str(raised.value) == (
        f"{other} is of the model m, which has other parameters; {one} is of m.\n"
        "Give reports of one model."
    )
    folders = [{"model": {"name": "x", "files": {"model.safetensors": n}}} for n in "12"]
    first = ablate(tmp_path / "first", drawn(0), request=folders[0])
    second = ablate(tmp_path / "second", drawn(1), request=folders[1])
    with pytest.raises(InputError, match="which has other parameters"):
        fa.head_concordance([first, second], draws=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["x*"]}, "No column matches 'x*'.\nThere are roles: a, roles: b, roles: c, "),
        (
            {"columns": ["roles: a"]},
            "1 columns were chosen, expected 2 to 60.\nChoose with columns",
        ),
        ({"side": "cross"}, "Not all reports have cross.\nThey have these: "),
        (
            {"draws": 0},
            "Expected draws of 1 or more and a correction of none, bonferroni, holm, bh",
        ),
        ({"correction": "fdr"}, "Expected draws of 1 or more and a correction of none, bonferroni"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, Any], message: str, two: list[Path]
) -> None:
    with pytest.raises(InputError) as raised:
        fa.head_concordance(two, **options)
    assert str(raised.value).startswith(message)
    assert len(str(raised.value).splitlines()) <= 3


def test_reports_that_cannot_be_compared_are_refused(tmp_path: Path, two: list[Path]) -> None:
    decoder = ablate(tmp_path / "decoder", drawn(0), "decoder")
    other = roles(tmp_path / "other", {"a": drawn(0)}, model="n")
    compare = write(tmp_path / "compare", "compare", [{"layer": 0}], "compare.parquet")
    row = {"side": "encoder", "layer": 0, "head": -1, "kind": "activation", "positions": "all"}
    layers = write(tmp_path / "layers", "patch", [{**row, "effect": 1.0}], "patch.parquet")
    few = [{"side": "encoder", "layer": 0, "head": n, "ablation": float(n)} for n in range(3)]
    small = write(tmp_path / "small", "ablate", few, "ablate.parquet")
    cases = {
        "No side is in all reports.\nThey have these: ": [two[0], decoder],
        f"{other} is of the model n; {two[1]} is of m.\nGive reports of one model.": [
            two[1],
            other,
        ],
        f"{compare} is a report of flaxattn compare, which has no numbers": [two[0], compare],
        f"{layers} is a report of flaxattn patch without a number of": [two[0], layers],
        "1 of 2 columns vary over 4 heads, expected two.": [two[1], small],
        "A report is named twice.\nName each folder once.": [two[0], two[0]],
        "Columns of two reports or more are compared; received one": [two[0]],
        f"{tmp_path} holds 0 reports, expected one.\nGive the folder": [two[0], tmp_path],
    }
    for message, reports in cases.items():
        with pytest.raises(InputError) as raised:
            fa.head_concordance(reports, draws=1)
        assert str(raised.value).startswith(message), raised.value
        assert len(str(raised.value).splitlines()) <= 3
    (two[1] / "ablate.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="is missing or damaged"):
        fa.head_concordance(two)
