# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text streamed while a GPT-2 generates it, stop strings, and what is refused before it generates.

The model knows a text by heart and has a piece per byte, so all that it writes is known, and every
character beyond ASCII comes in parts. The rules for stop strings are compared with brute force.
"""

import itertools
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.head_measures import head_measures
from flaxattn.pretrained import pretrained_decoder
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

DRAWN = {"do_sample": True, "temperature": 1.3, "max_new_tokens": 32}


@pytest.fixture(scope="module")
def model(reciter: Any) -> PretrainedDecoder:
    found = fa.from_pretrained(reciter.folder)
    assert isinstance(found, PretrainedDecoder)
    return found


def by_brute_force(text: str, stops: tuple[str, ...]) -> str:
    """Character by character, as the rule is stated."""
    for size in range(len(text) + 1):
        ends = [stop for stop in stops if text[:size].endswith(stop)]
        if ends:
            return text[: size - max(map(len, ends))]
    return text


def test_a_text_is_streamed_as_it_grows(model: PretrainedDecoder, reciter: Any) -> None:
    parts = list(model.stream("Plain", max_new_tokens=80))
    assert "".join(parts) == reciter.text == model.generate("Plain", max_new_tokens=80)[0]
    assert parts == ["Plain", *reciter.text.removeprefix("Plain")]  # whole characters
    assert len(reciter.text.encode()) > len(reciter.text) + 8


@pytest.mark.slow
def test_what_is_streamed_is_what_generate_returns(model: PretrainedDecoder) -> None:
    """Random bytes: broken characters, stop strings of one and of several pieces."""
    stops = ["or", "\ufffd ", " ", "é"]
    texts = set()
    for seed in range(len(stops)):
        for stop in ((), stops[seed]):
            (whole,) = model.generate("Plain", seed=seed, stop=stop, **DRAWN)
            assert "".join(model.stream("Plain", seed=seed, stop=stop, **DRAWN)) == whole
            (again,) = model.generate("Plain", seed=seed, **DRAWN)
            written = again.removeprefix("Plain")
            assert whole == "Plain" + by_brute_force(written, (stop,) if stop else ())
            texts.add(whole)
    assert len(texts) > 4
    assert any("\ufffd" in text for text in texts)


@pytest.mark.parametrize(
    ("stop", "end"),
    [
        ("\n\n", "字."),
        ([" stop here", ": s"], "part"),
        ("漢", "😀, "),
        (["nowhere", "😀"], "a "),
        ("Plain", "go on."),
    ],
)
def test_a_text_ends_before_its_stop_string(
    model: PretrainedDecoder, reciter: Any, stop: Any, end: str
) -> None:
    expected = reciter.text[: reciter.text.index(end) + len(end)]
    settings = {"stop": stop, "max_new_tokens": 80}
    assert model.generate("Plain", **settings) == [expected]
    parts = list(model.stream("Plain", **settings))
    assert "".join(parts) == expected
    assert all(parts)


@pytest.mark.slow
def test_stop_strings_of_a_batch_in_ids_and_in_the_trace(
    model: PretrainedDecoder, reciter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ["Plain words", "P", reciter.text[:30]]
    settings = {"stop": ["part:", "😀"], "max_new_tokens": 80}
    before = reciter.text[: reciter.text.index("😀")]
    third = reciter.text[: reciter.text.index("part:")]
    looks = []
    stopped = PretrainedDecoder._stopped
    monkeypatch.setattr(
        PretrainedDecoder, "_stopped", lambda *given: looks.append(0) or stopped(*given)
    )
    texts, trace = model.generate(prompts, trace=True, **settings)
    assert texts == [before, before, third]
    assert len(looks) == 2  # 32 of 80 tokens: after those, every text has its stop string
    lengths = [len(text.encode()) for text in (before + "😀", before + "😀", third + "part:")]
    assert trace.mask.sum(1).tolist() == lengths
    assert list(trace.tokens[0][:5]) == list("Plain")
    assert list(trace[0].tokens[0][-4:]) == ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    assert len(head_measures(trace)) == 2
    encoded = model.tokenizer.encode("Plain")
    ids = model.generate(input_ids=encoded.input_ids, **settings)
    assert model.tokenizer.decode(ids[0]) == before + "😀"


def test_rules_of_stop_strings_against_brute_force() -> None:
    random = np.random.default_rng(0)
    found = 0
    for _ in range(400):
        text = "".join(random.choice(list("ab\ufffd"), 12))
        stops = tuple("".join(random.choice(list("ab"), n)) for n in random.integers(1, 5, 2))
        assert pretrained_decoder.cut(text, stops) == by_brute_force(text, stops)
        cuts = np.sort(random.integers(0, 13, 4))
        states = [text[:size] for size in cuts] + [text]
        parts = list(pretrained_decoder.grown(states, stops))
        assert "".join(parts) == by_brute_force(text, stops)
        assert all(parts)
        found += len("".join(parts)) < len(text)
        ids = list(range(12))
        count = pretrained_decoder.tokens_needed(
            ids, lambda some, text=text: text[: len(some)], stops
        )
        ends = [i for i in ids if pretrained_decoder.certain(text[: i + 1], stops)[1]]
        assert count == (ends[0] + 1 if ends else 12)
    assert 100 < found < 400


def test_no_more_is_written_than_is_needed() -> None:
    states = itertools.chain(["a", "ab", "abc"], (pytest.fail("requested more") for _ in "x"))
    assert list(pretrained_decoder.grown(states, ("c",))) == ["a", "b"]
    assert list(pretrained_decoder.grown(["x\ufffd", "x\ufffd\ufffd", "x漢"], ())) == ["x", "漢"]
    assert list(pretrained_decoder.grown(["\ufffd" * 5, "\ufffd" * 6], ())) == [
        "\ufffd" * n for n in (2, 1, 3)
    ]


@pytest.mark.parametrize(
    ("given", "settings", "parts"),
    [
        ("", {}, ["prompt 0 is empty\nreceived ''", "or '<|endoftext|>' to begin a text"]),
        (["a", " \n"], {}, ["prompt 1 is empty\nreceived ' \\n'", "give it at least one word"]),
        (
            ["a", "b" * 130],
            {},
            ["prompt 1 is too long: 130 tokens, this model has room for 128 with", "shorten it"],
        ),
        (3, {}, ["expected a prompt or a list of them", "received int: 3"]),
        ("a", {"stop": ["b", ""]}, ["stop string 1 is empty\nreceived ''", "leave it out"]),
        ("a", {"stop": 3 * [0]}, ["stop string 0 is not a string\nreceived 0"]),
        ("a", {"stop": "b", "scores": True}, ["scores are of all generated tokens", "leave out"]),
        (
            "a",
            {"top_k": 5, "top_p": 0.9},
            [
                "top_k says how a token is drawn, but none is drawn",
                "received top_k=5 without do_sample",
                "add do_sample=True, or leave top_k and top_p out",
            ],
        ),
        ("a", {"temperature": 1.0, "do_sample": False}, ["add do_sample=True"]),
        (
            "a",
            {"do_sample": True, "num_beams": 2},
            ["num_beams is 2", "num_beams=1 to draw, do_sample=False to keep beams"],
        ),
        ("a", {"do_sample": True, "temperature": 0.0}, ["temperature must be above 0"]),
        ("a", {"max_new_tokens": 128}, ["max_new_tokens is 128", "room for 127", "lower it"]),
        ("a", {"max_tokens": 128}, ["generate has no setting max_tokens"]),
    ],
)
def test_what_cannot_be_used(
    model: PretrainedDecoder, given: Any, settings: dict[str, Any], parts: list[str]
) -> None:
    calls = [model.generate] if "scores" in settings else [model.generate, model.stream]
    for call in calls[: 1 + isinstance(given, str)]:
        with pytest.raises(InputError) as error:
            call(given, **settings)  # before the first part is requested
        assert all(part in str(error.value) for part in parts), error.value
        assert len(str(error.value).splitlines()) <= 3


def test_what_a_checkpoint_says_of_drawing_is_no_contradiction(reciter: Any) -> None:
    found = fa.from_pretrained(reciter.folder)
    assert isinstance(found, PretrainedDecoder)
    found.generation["top_k"] = 3  # as the file would say
    assert found.decoding(5, {}).top_k == 3
    with pytest.raises(InputError, match="top_k says how a token is drawn"):
        found.decoding(5, {"top_k": 3})


def test_streams_are_of_one_text(model: PretrainedDecoder) -> None:
    with pytest.raises(InputError, match="stream continues one text, received list"):
        model.stream(["a"])
    for settings in ({"num_beams": 2}, {"do_sample": True, "num_return_sequences": 2}):
        with pytest.raises(InputError) as error:
            model.stream("a", **settings)
        assert "the best of several is known at the end" in str(error.value)
        assert "set both to 1, or call generate" in str(error.value)
        assert len(str(error.value).splitlines()) == 3


def test_a_model_without_the_head_writes_nothing(reciter: Any) -> None:
    base = fa.from_pretrained(reciter.folder, head="base")
    assert isinstance(base, PretrainedDecoder)
    with pytest.raises(InputError) as error:
        base.stream("a")
    assert "is a GPT2Model, which writes no text" in str(error.value)
    assert 'load this one with head="GPT2LMHeadModel"' in str(error.value)
