# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Plans and requests as JSON and back, and what is said of two that differ."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.input_files import Fingerprint
from flaxattn.corpus.texts import Columns
from flaxattn.errors import InputError
from flaxattn.kernels.contract import WEIGHT_DTYPES, Capture, Sieve
from flaxattn.store.plan import JobPlan, ModelFingerprint, Rows, Settings, ShardPlan, read_plan
from flaxattn.trace.trace import capture_from_json, capture_to_json

NUMBERS = st.lists(st.integers(0, 99), min_size=1, unique=True).map(tuple) | st.none()
SIEVES = st.builds(
    Sieve,
    st.sampled_from(["next", "é <b>"]),
    st.none() | st.integers(0, 31),
    st.just((-1, 1)),
    st.none() | st.booleans(),
)
STATS = st.lists(st.sampled_from(["lse", "entropy", "topk(8)", "received"]), unique=True)
CAPTURES = st.builds(
    lambda stats, sieve, **others: Capture(stats=(*stats, *([sieve] if sieve else [])), **others),
    STATS,
    st.none() | SIEVES,
    weights=st.just(True),
    key=st.booleans(),
    layers=NUMBERS,
    heads=NUMBERS,
    dtype=st.sampled_from(WEIGHT_DTYPES),
    query_window=st.none() | st.just((2, 5)),
)
PLAN = JobPlan(
    files=(Fingerprint("a.txt", 10, "0" * 64), Fingerprint("é.txt", 12, "1" * 64)),
    columns=Columns("text", "pair", "../id"),
    model=ModelFingerprint("tiny", "BertModel", "float32", "a" * 64, "b" * 64, "c" * 64),
    capture=Capture(weights=True, stats=("entropy", Sieve("next", offsets=(1, 1)))),
    settings=Settings(truncate=True),
    texts=5,
    tokens=50,
    bytes=500,
    problems=(Problem("b.txt", 0, "", "empty-file", "the file is empty"),),
    shards=(
        ShardPlan(0, 3, 30, 300, (Rows(0, 0, 2), Rows(1, 0, 1))),
        ShardPlan(3, 5, 20, 200, (Rows(1, 1, 3, 40),)),
    ),
)


ALL = {"start": 0, "stop": 5, "tokens": 50, "bytes": 500}


@hypothesis.given(CAPTURES)
def test_a_request_survives_json(capture: Capture) -> None:
    assert capture_from_json(json.loads(json.dumps(capture_to_json(capture)))) == capture


@pytest.mark.parametrize(
    "fields", [{"weight": True}, {"stats": ["entrpy"]}, {"stats": [{"name": "x"}]}, {"stats": 3}]
)
def test_what_is_no_request_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="this is not a capture request"):
        capture_from_json(fields)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None
    (tmp_path / "plan.json").write_text(PLAN.text, encoding="utf-8")
    found = read_plan(tmp_path)
    assert found == PLAN and found.text == PLAN.text and found.sha256 == PLAN.sha256
    content = json.loads(PLAN.text)
    assert content["format"] == 1
    rows = [[1, 1, 3, 40, 0]]
    shard = {"start": 3, "stop": 5, "tokens": 20, "bytes": 200, "rows": rows}
    assert content["shards"][1] == shard


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "its format is 2, this version reads 1"),
        ({"texts": 6}, "its shards do not hold each row once"),
        ({"shards": []}, "its shards do not hold each row once"),
        ({"shards": [{"start": 0}]}, "missing"),
        ({"shards": [ALL | {"rows": [[0, 0, -5]]}]}, "rows of a shard cannot be"),
        ({"shards": [ALL | {"rows": [["0", 0, 5]]}]}, "rows of a shard cannot be"),
        ({"shards": [ALL | {"rows": [[0]]}]}, "missing"),
        ({"more": 1}, "unexpected keyword"),
        ({"files": 3}, "not iterable"),
        ({"capture": {"weight": True}}, "this is not a capture request"),
    ],
)
def test_a_plan_that_cannot_be_used_says_why(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(json.loads(PLAN.text) | change))
    with pytest.raises(InputError) as error:
        read_plan(tmp_path)
    lines = str(error.value).splitlines()
    assert lines[0] == f"{tmp_path / 'plan.json'} cannot be used"
    assert reason in lines[1]
    assert lines[2] == "restore it, or extract into another folder"
    content = json.loads(PLAN.text)
    del content["model"]
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="it has no 'model'"):
        read_plan(tmp_path)
    (tmp_path / "plan.json").write_text(PLAN.text[:-40])
    with pytest.raises(InputError, match="cannot be used"):
        read_plan(tmp_path)


def test_differences_are_reported() -> None:
    changed = dataclasses.replace(
        PLAN,
        files=(PLAN.files[0], Fingerprint("é.txt", 12, "2" * 64)),
        columns=Columns("text", None, "../id"),
        model=dataclasses.replace(PLAN.model, name="another name", parameters="d" * 64),
        capture=Capture(weights=True, stats=("entropy",), dtype="uint8"),
        settings=Settings(truncate=False, limit=10),
        flaxattn="99",
        shards=(),
    )
    assert PLAN.compare(changed) == [
        "file é.txt 111111111111… -> 222222222222…",
        "pair column pair -> null",
        "model's parameters aaaaaaaaaaaa… -> dddddddddddd…",
        'capture stats ["entropy", … -> ["entropy"]',
        "capture dtype float32 -> uint8",
        "truncate true -> false",
        "limit null -> 10",
    ]
    assert PLAN.compare(dataclasses.replace(PLAN, texts=0, shards=(), flaxattn="99")) == []
    gone = dataclasses.replace(PLAN, files=PLAN.files[:1])
    assert PLAN.compare(gone) == [
        'order of files ["a.txt", "é.txt"] -> ["a.txt"]',
        "file é.txt 111111111111… -> null",
    ]
    turned = dataclasses.replace(PLAN, files=PLAN.files[::-1])
    assert len(PLAN.compare(turned)) == 1
