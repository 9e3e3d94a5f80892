# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text that encoder-decoders write: token by token what torch writes, and its trace.

Stored texts everywhere, live ones with torch; 4 models and 64 random sources for each.
"""

from pathlib import Path
from typing import Any

import make_seq2seq_golden as golden
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.pretrained import generation

NEW = golden.NEW_TOKENS
# What is written in `make test`; `make all` writes the rest.
SOON = {("bart", "greedy"), ("bart", "beam"), ("two-vocabularies", "beam-short")}
WRITTEN = [
    pytest.param(name, way, marks=() if (name, way) in SOON else pytest.mark.slow)
    for name in golden.WRITERS
    for way in golden.WAYS
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    return {name: fa.from_pretrained(golden.write(name, folder / name)) for name in golden.WRITERS}


def padded(ids: np.ndarray) -> np.ndarray:
    return np.pad(ids, ((0, 0), (0, NEW + 1 - ids.shape[1])), constant_values=1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), WRITTEN)
def test_every_token_is_torchs(models: dict[str, Any], name: str, way: str) -> None:
    with np.load(golden.GENERATED, allow_pickle=False) as texts:
        expected = texts[f"{name}/{way}"]
    sources = golden.sources()
    ids = models[name].generate(**sources, max_new_tokens=NEW, **golden.WAYS[way])
    np.testing.assert_array_equal(padded(ids), expected)


@pytest.mark.slow
@pytest.mark.parametrize("way", golden.RARE)
def test_rare_settings_are_torchs_too(models: dict[str, Any], way: str) -> None:
    with np.load(golden.GENERATED, allow_pickle=False) as texts:
        expected = texts[f"{golden.WRITERS[0]}/{way}"]
        assert (expected != texts[f"{golden.WRITERS[0]}/beam"]).any(1).sum() > golden.SOURCES / 8
    sources = golden.sources()
    given = {"max_new_tokens": NEW, **golden.RARE[way]}
    ids = models[golden.WRITERS[0]].generate(**sources, **given)
    np.testing.assert_array_equal(padded(ids), expected)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_a_cache_that_grows_changes_no_token(
    models: dict[str, Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From room for 4 positions over 8 to all 15."""
    monkeypatch.setattr(generation, "_FIRST_CAPACITY", 4)
    with np.load(golden.GENERATED, allow_pickle=False) as texts:
        expected = texts[f"bart/{way}"]
    sources = golden.sources()
    ids = models["bart"].generate(**sources, max_new_tokens=NEW, **golden.WAYS[way])
    np.testing.assert_array_equal(padded(ids), expected)


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("way", golden.WAYS)
@pytest.mark.parametrize("name", golden.WRITERS)
def test_torch_still_writes_what_is_stored(name: str, way: str) -> None:
    pytest.importorskip("torch")
    with np.load(golden.GENERATED, allow_pickle=False) as texts:
        expected = texts[f"{name}/{way}"]
    np.testing.assert_array_equal(golden.torch_written(name, way), expected)


def test_the_texts_are_worth_comparing() -> None:
    """They differ from source to source, end at different places, and beams change some."""
    with np.load(golden.GENERATED, allow_pickle=False) as texts:
        for name in golden.WRITERS:
            greedy, beam = texts[f"{name}/greedy"], texts[f"{name}/beam"]
            assert len({row.tobytes() for row in greedy}) > golden.SOURCES / 3, name
            assert (greedy != beam).any(1).sum() > golden.SOURCES / 8, name
        lengths = {int((row != 1).sum()) for name in texts for row in texts[name]}
    assert len(lengths) > 3


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_a_trace_is_that_of_reading_the_text(models: dict[str, Any], way: str) -> None:
    """Of the winning text, as if it had been given; rows of attention stand beside its tokens."""
    model = models["bart"]
    given = {name: array[:5] for name, array in golden.sources().items()}
    settings = {"max_new_tokens": NEW, **golden.WAYS[way]}
    ids, trace = model.generate(**given, trace=True, **settings)
    np.testing.assert_array_equal(ids, model.generate(**given, **settings))
    mask = trace.decoder_mask.astype(int)
    read = {"decoder_input_ids": ids[:, :-1], "decoder_attention_mask": mask}
    out = model(**given, **read, output_attentions=True)
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        pairs = zip(getattr(trace, name), getattr(out, name), strict=True)
        assert all(np.abs(a - b).max() < 1e-5 for a, b in pairs), name
    one = trace[1]
    assert [int(piece) for piece in one.written[0]] == [
        int(i) for i in ids[1, 1 : 1 + mask[1].sum()]
    ]
    assert one.cross.weights.shape[3:] == (mask[1].sum(), given["attention_mask"][1].sum())


@pytest.mark.slow
def test_n_best_come_in_order_with_the_best_first(models: dict[str, Any]) -> None:
    model = models["marian"]
    given = {name: array[:4] for name, array in golden.sources().items()}
    settings = {"max_new_tokens": NEW, "num_beams": 4}
    best = padded(model.generate(**given, **settings))
    several = padded(model.generate(**given, num_return_sequences=3, **settings))
    np.testing.assert_array_equal(several.reshape(4, 3, -1)[:, 0], best)
    assert all(len({row.tobytes() for row in rows}) == 3 for rows in several.reshape(4, 3, -1))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["beam", "greedy"])
def test_neighbours_and_padding_change_nothing(models: dict[str, Any], way: str) -> None:
    model, given = models["marian"], golden.sources()
    settings = {"max_new_tokens": NEW, **golden.WAYS[way]}
    together = padded(model.generate(**given, **settings))
    for i in (0, 7):
        length = given["attention_mask"][i].sum()
        alone = model.generate(input_ids=given["input_ids"][i : i + 1, :length], **settings)
        np.testing.assert_array_equal(padded(alone)[0], together[i])


@pytest.mark.slow
def test_a_prefix_is_kept(models: dict[str, Any]) -> None:
    model = models["bart"]
    given = {name: array[:3] for name, array in golden.sources().items()}
    prefix = np.array([[2, 5, 9], [2, 7, 7], [2, 60, 4]])
    ids = model.generate(**given, decoder_input_ids=prefix, max_new_tokens=6, num_beams=2)
    np.testing.assert_array_equal(ids[:, :3], prefix)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams must be at least 1, received 0"),
        ({"beams": 3}, "generate has no setting beams"),
        ({"max_new_tokens": 99}, "has room for 39"),
    ],
)
def test_settings_that_are_refused(
    models: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        models["marian"].generate(input_ids=[[3, 4, 5]], **settings)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


def test_text_needs_a_tokenizer(models: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="came without a tokenizer"):
        models["marian"].generate("some text")
    assert Path(models["marian"].name).is_dir()
