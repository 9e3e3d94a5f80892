# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Traces name the characters of each token in the text that was read, whatever its script."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import store_cases

import flaxattn as fa
from flaxattn.text.tokens import byte_spans
from flaxattn.trace.trace import Trace

TEXT = "Straße İstanbul 你好 👩‍👩‍👧 مرحبا"
FAMILY = "👩‍👩‍👧"


def covered(trace: Trace, sequence: int = 0) -> list[tuple[str, str | None]]:
    """Each token beside the characters that its span names."""
    text = trace.texts[sequence][0]
    pairs = zip(trace.tokens[sequence], trace.spans[sequence], strict=True)
    return [(token, None if span is None else text[slice(*span)]) for token, span in pairs]


def read(name: str, *texts: str) -> Trace:
    """What a built-in model reads, without running it."""
    return fa.from_pretrained(name).read(list(texts)).metadata


def test_a_bert_keeps_the_spelling_behind_unknown_tokens() -> None:
    trace = read("tiny-bert", TEXT, "the cat")
    assert covered(trace) == [
        ("[CLS]", None),
        ("[UNK]", "Straße"),
        ("is", "İs"),
        ("##t", "t"),
        ("##an", "an"),
        ("##b", "b"),
        ("##ul", "ul"),
        ("[UNK]", "你"),
        ("[UNK]", "好"),
        ("[UNK]", FAMILY),
        ("[UNK]", "مرحبا"),
        ("[SEP]", None),
    ]
    padding = [span for token, span in covered(trace, 1) if token == "[PAD]"]
    assert padding == [None] * (len(trace.tokens[0]) - 4)


def test_tokens_of_one_character_all_have_it() -> None:
    rows = covered(read("tiny-gpt2", TEXT))
    assert [text for token, text in rows if token in ("<0xC3>", "<0x9F>")][:2] == ["ß", "ß"]
    woman = [token for token, text in rows if text == "👩"]
    assert woman == ["<0xF0>", "<0x9F>", "<0x91>", "<0xA9>"] * 2
    whole: list[tuple[int, int] | None] = []
    for span in read("tiny-gpt2", TEXT).spans[0]:
        whole += [] if whole and whole[-1] == span else [span]
    assert "".join(TEXT[slice(*span)] for span in whole if span) == TEXT


@pytest.mark.slow
def test_a_source_keeps_its_text() -> None:
    model = fa.from_pretrained("tiny-dates")
    trace = model.trace([TEXT], ["2020-01-02"])
    rows = covered(trace)
    assert ("<unk>", "你好") in rows and ("<unk>", FAMILY) in rows and ("ß", "ß") in rows
    assert rows[-1] == ("</s>", None)


def test_a_pair_counts_each_text_by_itself() -> None:
    trace = fa.from_pretrained("tiny-bert").read(["Straße"], ["مرحبا Cat"]).metadata
    second = [
        trace.texts[0][1][slice(*span)]
        for span, segment in zip(trace.spans[0], trace.segments[0], strict=True)
        if span and segment
    ]
    assert second == ["مرحبا", "Cat"]


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("a b", ["a", " b"], [(0, 1), (1, 3)]),
        ("a b", [" a", " b"], [(0, 1), (1, 3)]),  # a blank that decoders leave out
        ("é", ["<0xC3>", "<0xA9>"], [(0, 1), (0, 1)]),
        ("aé", ["a<0xC3>", "<0xA9>", "<pad>"], [(0, 2), (1, 2), None]),
        ("a�", ["a", "<0xC3>"], [None, None]),  # a character that was cut
        ("ab", ["a"], [None]),
    ],
)
def test_bytes_are_counted_as_characters(text, tokens, expected) -> None:
    assert byte_spans(text, tokens) == expected


def test_files_keep_spans_and_older_ones_have_none(tmp_path: Path) -> None:
    trace = fa.from_pretrained("tiny-bert").trace(TEXT, capture=fa.Capture(weights=True))
    back = Trace.load(trace.save(tmp_path / "new.safetensors"))
    assert back.spans == [list(row) for row in trace.spans]
    without = dataclasses.replace(trace, spans=())
    assert b'"spans"' not in without.save(tmp_path / "old.safetensors").read_bytes()
    assert Trace.load(tmp_path / "old.safetensors").spans == []


def test_one_sequence_has_its_own_spans() -> None:
    trace = Trace.from_arrays(
        np.full((1, 2, 1, 3, 3), 1 / 3, np.float32),
        [["a", "b", "[PAD]"], ["c", "d", "e"]],
        mask=np.array([[1, 1, 0], [1, 1, 1]], bool),
        texts=[("a b",), ("c d e",)],
        spans=[[(0, 1), (2, 3), None], [(0, 1), (2, 3), (4, 5)]],
    )
    assert trace[0].spans == [[(0, 1), (2, 3)]]
    assert trace[1].spans == [[(0, 1), (2, 3), (4, 5)]]


@pytest.mark.float16
@pytest.mark.parametrize("spans", [True, False])
def test_stores_keep_spans_where_a_trace_has_them(tmp_path: Path, spans: bool) -> None:
    model = fa.from_pretrained("tiny-bert")
    if spans:
        (tmp_path / "texts.txt").write_text(f"{TEXT}\nthe cat\n", encoding="utf-8")
        fa.extract_to(tmp_path / "store", model, tmp_path / "texts.txt")
    else:
        store_cases.write(tmp_path / "store", store_cases.traces("statistics", 2))
    trace = fa.open_store(tmp_path / "store")[0]
    assert bool(trace.spans) == spans
    if spans:
        assert covered(trace) == covered(read("tiny-bert", TEXT))
