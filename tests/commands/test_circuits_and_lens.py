# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn circuits` and `flaxattn lens` write what the functions of the same names return."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import flaxattn as fa

Typed = Callable[..., tuple[int, str, str]]


@pytest.mark.slow
def test_a_report_of_circuits_can_be_read_again(tmp_path: Path, typed: Typed) -> None:
    out = tmp_path / "report"
    words = ("--model", "tiny-gpt2", "--edges", "7", "--seed", "3", "--out", str(out))
    code, printed, err = typed("circuits", *words)
    assert code == 0, err
    assert "key composition decoder 1.3 to decoder 2.0" in printed
    report = fa.read_report(out / "circuits.json")
    circuits = fa.head_circuits(fa.from_pretrained("tiny-gpt2"), seed=3)
    assert report["seed"] == 3 and report["flaxattn"] == fa.__version__
    assert len(report["fingerprint"]["parameters"]) == 64
    assert report["random_composition"]["mean"] == pytest.approx(circuits.expected)
    assert report["composition"]["key"] == circuits.edges("key", 7)
    table = pq.read_table(out / "circuits.parquet")
    origin = json.loads(table.schema.metadata[b"flaxattn"])
    assert origin["model"] == "tiny-gpt2" and origin["seed"] == 3
    rows = table.to_pylist()
    assert len(rows) == 24
    assert rows[7]["copying"] == pytest.approx(circuits.copying["decoder"][1, 1])
    assert rows[0]["next"] is None and rows[0]["prefix_matching"] is None
    pairs = pq.read_table(out / "composition.parquet")
    assert pairs.num_rows == 3 * 216
    np.testing.assert_allclose(
        pairs["score"][:3].to_numpy(), [e["score"] for e in circuits.edges(count=3)]
    )
    for name in ("circuits.png", "composition.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kind", "keys"), "choose one of query, key, value"),
        (("--distances", "0,x"), "is not a list of numbers"),
    ],
)
def test_options_of_circuits_are_checked(
    words: tuple[str, str], message: str, tmp_path: Path, typed: Typed
) -> None:
    code, _, err = typed("circuits", *words, "--out", str(tmp_path / "report"))
    assert code == 2 and message in err and not (tmp_path / "report").exists()


@pytest.mark.slow
def test_a_lens_is_a_table_or_json(tmp_path: Path, typed: Typed) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("The old man\nIt was\n", encoding="utf-8")
    words = ("lens", str(texts), "--model", "tiny-gpt2", "--k", "2")
    table, figure = tmp_path / "lens.csv", tmp_path / "lens.svg"
    code, _, err = typed(*words, "--out", str(table), "--figure", str(figure))
    assert code == 0, err
    first, second = fa.logit_lens(fa.from_pretrained("tiny-gpt2"), ["The old man", "It was"], k=2)
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * (len(first.tokens) + len(second.tokens))
    expected = first.rows()[-1]
    row = rows[5 * len(first.tokens) - 1]
    assert (row["token"], row["token_2"]) == (expected["token"], expected["tokens"][1])
    assert float(row["probability_1"]) == pytest.approx(expected["probabilities"][0], rel=1e-4)
    assert (row["text"], row["layer"], row["rank"]) == ("0", "3", str(expected["rank"]))
    assert "<svg" in figure.read_text(encoding="utf-8")
    code, _, err = typed(*words, "--out", str(tmp_path / "lens.json"))
    facts = json.loads((tmp_path / "lens.json").read_text(encoding="utf-8"))
    assert facts["flaxattn"] == fa.__version__ and facts["settings"]["k"] == 2
    assert [text["text"] for text in facts["texts"]] == ["The old man", "It was"]
    assert facts["texts"][1]["states"][-1]["tokens"] == second.rows()[-1]["tokens"]


def test_places_of_a_lens_are_checked_first(tmp_path: Path, typed: Typed) -> None:
    code, _, err = typed("lens", "absent.txt", "--out", str(tmp_path / "lens.txt"))
    assert code == 2 and "names neither" in err and len(err.strip().splitlines()) <= 3
    texts = tmp_path / "texts.txt"
    texts.write_text("It was\n", encoding="utf-8")
    words = ("--figure", str(tmp_path / "a.png"), "--figure-text", "1")
    code, _, err = typed("lens", str(texts), "--out", str(tmp_path / "lens.csv"), *words)
    assert code == 2 and "there is no text 1 of 1, counted from 0" in err
