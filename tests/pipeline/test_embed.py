# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`fa.embed`: vectors of sentences against hidden states of one text at a time."""

import dataclasses
import json

import numpy as np
import pytest
from small_encoders import byte_level, write_encoder

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError

pytestmark = pytest.mark.usefixtures("one_device")

# Sums are ordered by shape: of values about 1, float32 differs by some 1e-7.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def states(model, text):
    """Hidden states `[layers + 1, S, E]` of one text, and which pieces are special."""
    reading = model.read([text])
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: reading.given[name] for name in names if name in reading.given}
    out = model(**given, output_hidden_states=True)
    found = getattr(out, "encoder_hidden_states", None) or out.hidden_states
    return np.stack([np.asarray(state)[0] for state in found]), np.asarray(
        reading.metadata.special
    )[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "seq2seq"))],
)
def test_the_mean_of_plain_pieces(family, texts, request):
    model, texts = request.getfixturevalue(family), texts[:4]
    expected = []
    for text in texts:
        hidden, special = states(model, text)
        expected.append(hidden[-1][~special].mean(0))
    found = fa.embed(model, texts)
    assert found.dtype == np.float32 and found.shape == (len(texts), 16)
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "mean-all"])
def test_weights_of_tokens_weigh_the_mean(pooling, bert, texts):
    weights = np.random.default_rng(0).random(bert.config.vocab_size)
    weights[5] = 0
    vectors = fa.embed(bert, texts, pooling, token_weights=weights)
    for text, vector in zip(texts, vectors, strict=True):
        hidden, special = states(bert, text)
        share = weights[bert.read([text]).given["input_ids"][0]] * (
            1 if pooling == "mean-all" else ~special
        )
        expected = (share[:, None] * hidden[-1]).sum(0) / share.sum()
        np.testing.assert_allclose(vector, expected, **CLOSE)
    alike = fa.embed(bert, texts, pooling, token_weights=np.full(len(weights), 3.0))
    np.testing.assert_allclose(alike, fa.embed(bert, texts, pooling), **CLOSE)


@pytest.mark.parametrize(
    ("pooling", "weights", "words"),
    [
        ("cls", lambda size: np.ones(size), 'are of a mean, and pooling is "cls"'),
        ("mean", lambda size: np.ones(size - 1), "finite numbers of 0 or above, one for each"),
        ("mean", lambda size: -np.ones(size), "finite numbers of 0 or above"),
        ("mean", lambda size: np.full(size, np.nan), "finite numbers of 0 or above"),
        ("mean", lambda size: np.zeros(size), "all tokens of the text have weight 0"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(pooling, weights, words, bert):
    with pytest.raises(InputError, match=words):
        fa.embed(bert, ["the cat"], pooling, token_weights=weights(bert.config.vocab_size))


def test_company_makes_no_difference(bert, texts):
    texts = texts[:6]
    together = fa.embed(bert, texts, batch_tokens=64)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(fa.embed(bert, [text])[0], vector, **CLOSE)


@pytest.mark.slow
def test_other_poolings_and_layers(bert, gpt2, texts):
    some = texts[:2]
    for number, text in enumerate(some):
        hidden, special = states(bert, text)
        for layer in (0, 1, 2, -2):
            found = fa.embed(bert, some, "cls", layer)[number]
            np.testing.assert_allclose(found, hidden[layer][0], **CLOSE)
        found = fa.embed(bert, some, "last", 1)[number]
        np.testing.assert_allclose(found, hidden[1][np.flatnonzero(~special)[-1]], **CLOSE)
        hidden, _ = states(gpt2, text)
        np.testing.assert_allclose(fa.embed(gpt2, some, "last")[number], hidden[-1][-1], **CLOSE)


def test_products_of_unit_vectors_are_cosines(bert, texts):
    texts = texts[:4]
    vectors = fa.embed(bert, texts)
    units = fa.embed(bert, texts, normalize=True)
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(units, expected, **CLOSE)
    np.testing.assert_allclose(np.diag(units @ units.T), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "texts", "options", "words"),
    [
        ("bert", ["a"], {"pooling": "sum"}, ("'sum' is unknown", "mean, mean-all, cls, last")),
        ("gpt2", ["a"], {"pooling": "cls"}, ("has no [CLS]", '"last"')),
        ("bert", ["a"], {"layer": 3}, ("layer is 3", "1 to 2")),
        ("bert", ["a"], {"layer": -4}, ("layer is -4",)),
        ("bert", "a", {}, ("received a string",)),
        ("bert", [], {}, ("received no text",)),
        ("bert", ["a", "a " * 60], {}, ("text 1 is too long",)),
    ],
)
def test_what_is_refused(family, texts, options, words, request):
    with pytest.raises(InputError) as told:
        fa.embed(request.getfixturevalue(family), texts, **options)
    assert all(word in str(told.value) for word in words), told.value
    assert len(str(told.value).splitlines()) <= 3


def test_a_text_of_special_pieces_has_no_mean(gpt2):
    special = dataclasses.replace(gpt2.config, bos_token_id=3)  # what "a" is read as
    model = dataclasses.replace(gpt2, config=special)
    with pytest.raises(InputError, match=r"text 1 has special pieces only\nleave it out"):
        fa.embed(model, ["b", "a"])


def _sentence_model(folder, mode, normalize):
    """A model directory as sentence-transformers writes them."""
    write_encoder(folder, "Model", byte_level(), model_type="roberta", pad_token_id=1)
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens")}
    modes["pooling_mode_max_tokens"] = mode == "max_tokens"
    settings = {"word_embedding_dimension": 16, **modes, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    kinds = ["Transformer", "Pooling", *["Normalize"] * normalize]
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.mark.few("cls_token-True", "mean_tokens-True")
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "max_tokens"])
def test_the_pooling_of_sentence_transformers(mode, normalize, tmp_path):
    """Special tokens count; padding beside a longer text does not."""
    model = fa.from_pretrained(_sentence_model(tmp_path, mode, normalize))
    some = ["The cat is very sad.", "cat", "She said that he was not there, because it was."]
    found = fa.embed(model, some)
    for text, vector in zip(some, found, strict=True):
        hidden, _ = states(model, text)
        pools = {"mean_tokens": hidden[-1].mean(0), "cls_token": hidden[-1][0]}
        expected = pools.get(mode, hidden[-1].max(0))
        expected = expected / np.linalg.norm(expected) if normalize else expected
        np.testing.assert_allclose(vector, expected, **CLOSE)
    plain, special = fa.embed(model, some, "mean"), states(model, some[0])[1]
    expected = states(model, some[0])[0][-1][~special].mean(0)
    if mode != "mean_tokens":  # another pooling than the directory's is not normalised
        np.testing.assert_allclose(plain[0], expected, **CLOSE)


@pytest.mark.few("cls_token-True", "mean_tokens-False")
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "max_tokens"])
def test_the_pooling_is_saved_with_the_model(mode, normalize, tmp_path):
    """Under the names of sentence-transformers; a model without pooling takes it away again."""
    (tmp_path / "own").mkdir()
    model = fa.from_pretrained(_sentence_model(tmp_path / "own", mode, normalize))
    for _ in range(2):  # into a new directory, then over the files there
        model.save_pretrained(tmp_path / "saved")
    settings = json.loads((tmp_path / "saved/1_Pooling/config.json").read_bytes())
    modes = ["cls_token", "mean_tokens", "max_tokens"]
    assert settings.pop("word_embedding_dimension") == 16
    assert settings == {f"pooling_mode_{name}": name == mode for name in modes}
    modules = json.loads((tmp_path / "saved/modules.json").read_bytes())
    kinds = ["Transformer", "Pooling", *["Normalize"] * normalize]
    assert [module["type"].rpartition(".")[2] for module in modules] == kinds
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Normalize"][: len(kinds)]
    loaded = fa.from_pretrained(tmp_path / "saved")
    assert loaded.pooling == model.pooling
    np.testing.assert_array_equal(fa.embed(loaded, ["cat"]), fa.embed(model, ["cat"]))

    dataclasses.replace(model, pooling=None).save_pretrained(tmp_path / "saved")
    assert fa.from_pretrained(tmp_path / "saved").pooling is None
    assert not (tmp_path / "saved/modules.json").exists()


def test_a_changed_pooling_is_not_read(tmp_path):
    """The checksums cover files in folders too."""
    (tmp_path / "own").mkdir()
    model = fa.from_pretrained(_sentence_model(tmp_path / "own", "mean_tokens", False))
    model.save_pretrained(tmp_path / "saved")
    path = tmp_path / "saved/1_Pooling/config.json"
    path.write_text(path.read_text().replace("true", "false"))
    with pytest.raises(CheckpointError, match="is not the file that was saved with"):
        fa.from_pretrained(tmp_path / "saved")


def test_a_pooling_that_there_is_not_is_refused(tmp_path):
    folder = _sentence_model(tmp_path, "weightedmean_tokens", False)
    with pytest.raises(CheckpointError, match=r"1_Pooling/config\.json: the pooling is"):
        fa.from_pretrained(folder)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    assert fa.from_pretrained(folder).pooling == ("mean-all", False)
