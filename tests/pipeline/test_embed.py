# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`fa.embed`: vectors of sentences against hidden states of one text at a time."""

import dataclasses
import json

import ml_dtypes  # noqa: F401  # NumPy knows bfloat16 by it
import numpy as np
import pytest
import safetensors.numpy
from small_encoders import byte_level, write_encoder

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError

# Sums are ordered by shape: of values about 1, float32 differs by some 1e-7.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
LENGTH = 40  # of the longest text in tokens, or more


def states(model, text):
    """Hidden states `[layers + 1, S, E]` of one text, and which tokens are special."""
    reading = model.read([text])
    size = reading.given["input_ids"].shape[1]
    given = {"attention_mask": np.ones((1, size), np.int32), **reading.given}
    names = ("input_ids", "attention_mask", "token_type_ids")
    # Padded to one length, so that one program is compiled for all texts.
    padding = {"input_ids": getattr(model.config, "pad_token_id", None) or 0}
    given = {
        name: np.pad(
            given[name], ((0, 0), (0, LENGTH - size)), constant_values=padding.get(name, 0)
        )
        for name in names
        if name in given
    }
    out = model(**given, output_hidden_states=True)
    found = getattr(out, "encoder_hidden_states", None) or out.hidden_states
    special = np.asarray(reading.metadata.special)[0]
    return np.stack([np.asarray(state)[0, :size] for state in found]), special


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "seq2seq"))],
)
def test_the_mean_of_plain_tokens(family, texts, request):
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


@pytest.mark.slow
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
        ("bert", ["a"], {"pooling": "sum"}, ("'sum' is unknown", "mean, mean-all, mean-sqrt")),
        ("gpt2", ["a"], {"pooling": "cls"}, ("has no [CLS]", '"last"')),
        ("bert", ["a"], {"layer": 3}, ("layer is 3", "1 to 2")),
        ("bert", ["a"], {"layer": -4}, ("layer is -4",)),
        ("bert", "a", {}, ("received one text", "['a']")),
        ("bert", [], {}, ("received none",)),
        ("bert", ["a", "a " * 60], {}, ("text 1 is too long",)),
    ],
)
def test_what_is_refused(family, texts, options, words, request):
    with pytest.raises(InputError) as caught:
        fa.embed(request.getfixturevalue(family), texts, **options)
    assert all(word in str(caught.value) for word in words), caught.value
    assert len(str(caught.value).splitlines()) <= 3


def test_a_text_of_special_tokens_has_no_mean(gpt2):
    special = dataclasses.replace(gpt2.config, bos_token_id=3)  # what "a" is read as
    model = dataclasses.replace(gpt2, config=special)
    with pytest.raises(InputError, match=r"text 1 has special tokens only\nleave it out"):
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
    for name in ("1_Pooling/config.json", "modules.json"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "own" / name).read_bytes()
    loaded = fa.from_pretrained(tmp_path / "saved")
    assert loaded.sentence_modules == model.sentence_modules
    np.testing.assert_array_equal(fa.embed(loaded, ["cat"]), fa.embed(model, ["cat"]))

    dataclasses.replace(model, sentence_modules=None).save_pretrained(tmp_path / "saved")
    assert fa.from_pretrained(tmp_path / "saved").sentence_modules is None
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


SENTENCES = ["The cat is very sad.", "cat", "She said that he was not there, because it was."]
POOLED = {
    "cls_token": lambda x: x[0],
    "max_tokens": lambda x: x.max(0),
    "mean_tokens": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / np.sqrt(len(x)),
    "weightedmean_tokens": lambda x: np.average(x, 0, np.arange(len(x)) + 1),
    "lasttoken": lambda x: x[-1],
}
FUNCTIONS = {"Tanh": np.tanh, "Identity": lambda x: x, "ReLU": lambda x: np.maximum(x, 0)}
# Pooling modes, the modules after it, and what else the directory says.
DIRECTORIES = {
    "weighted": (["weightedmean_tokens"], [], {}),
    "last": (["lasttoken"], ["Normalize"], {}),
    "root": (["mean_sqrt_len_tokens"], [], {}),
    "joined": (["lasttoken", "cls_token", "max_tokens"], ["Normalize"], {}),
    "dense": (["mean_tokens"], ["Dense Tanh", "Normalize"], {}),
    "two dense": (["cls_token"], ["Dense ReLU", "Dense Identity", "LayerNorm"], {}),
    "short": (["mean_tokens"], [], {"longest": 5}),
    "lower case": (["mean_tokens"], ["Dropout"], {"lower": True}),
    "prompt": (["mean_tokens"], ["LayerNorm", "Normalize"], {"prompt": "Query: "}),
    "prompt not pooled": (["mean_tokens"], [], {"prompt": "Query: ", "include_prompt": False}),
}


def write_modules(folder, modes, after, said):
    """Files beside a model, as sentence-transformers writes them; what the modules compute."""
    random, functions, width = np.random.default_rng(0), [], 16 * len(modes)
    kinds = ["Transformer", "Pooling", *(name.split()[0] for name in after)]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    contents = {"modules.json": listed}
    pooling = {f"pooling_mode_{mode}": mode in modes for mode in POOLED}
    contents["1_Pooling/config.json"] = pooling | {
        "include_prompt": said.get("include_prompt", True)
    }
    contents["sentence_bert_config.json"] = {
        "max_seq_length": said.get("longest"),
        "do_lower_case": said.get("lower", False),
    }
    if prompt := said.get("prompt"):
        contents["config_sentence_transformers.json"] = {
            "prompts": {"query": prompt, "other": "Other: "},
            "default_prompt_name": "query",
        }
    for path, name in zip(paths[2:], after, strict=True):
        (folder / path).mkdir()
        kind, _, activation = name.partition(" ")
        if kind == "Dense":
            weight = random.normal(0, 0.3, (6, width)).astype(np.float32)
            bias, width = random.normal(size=6).astype(np.float32), 6
            contents[f"{path}/config.json"] = {
                "activation_function": f"torch.nn.modules.activation.{activation}"
            }
            stored = {"linear.weight": weight, "linear.bias": bias}
            functions.append(lambda x, w=weight, b=bias, f=FUNCTIONS[activation]: f(w @ x + b))
        if kind == "LayerNorm":
            scale, shift = random.normal(size=(2, width)).astype(np.float32)
            stored = {"norm.weight": scale, "norm.bias": shift}
            functions.append(
                lambda x, s=scale, b=shift: (x - x.mean()) / np.sqrt(x.var() + 1e-5) * s + b
            )
        if kind in ("Dense", "LayerNorm"):
            safetensors.numpy.save_file(stored, folder / path / "model.safetensors")
        if kind == "Normalize":
            functions.append(lambda x: x / np.linalg.norm(x))
    (folder / "1_Pooling").mkdir()
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    return functions


@pytest.mark.filterwarnings("ignore:.* texts were cut at 5 tokens:UserWarning")
@pytest.mark.parametrize("name", DIRECTORIES)
def test_the_modules_of_sentence_transformers(name, tmp_path):
    """Against the definition of each module, on hidden states of one text at a time."""
    modes, after, settings = DIRECTORIES[name]
    write_encoder(tmp_path, "Model", byte_level(), model_type="roberta", pad_token_id=1)
    plain = fa.from_pretrained(tmp_path)
    functions = write_modules(tmp_path, modes, after, settings)
    model = fa.from_pretrained(tmp_path)
    found, prompt = fa.embed(model, SENTENCES), settings.get("prompt", "")
    unpooled = (
        0 if settings.get("include_prompt", True) else len(states(plain, prompt.strip())[0][0])
    )
    for text, vector in zip(SENTENCES, found, strict=True):
        text = (prompt + text).lower() if settings.get("lower") else prompt + text
        if longest := settings.get("longest"):
            ids = plain.tokenizer.encode([text], max_length=longest, truncate=True).input_ids
            hidden = np.asarray(plain(ids).last_hidden_state)[0]
        else:
            hidden = states(plain, text)[0][-1]
        start = unpooled - 1 if unpooled else 0  # all of the prompt but its last, special token
        expected = np.concatenate([POOLED[m](hidden[start:]) for m in POOLED if m in modes])
        for function in functions:
            expected = function(expected)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-5)
    model.save_pretrained(tmp_path / "saved")
    again = fa.embed(fa.from_pretrained(tmp_path / "saved"), SENTENCES)
    np.testing.assert_array_equal(again, found)


@pytest.mark.slow
def test_a_text_over_the_limit_of_the_model_is_cut(tmp_path):
    """As sentence-transformers does where its files name no limit, or a larger one."""
    write_encoder(tmp_path, "Model", byte_level(), model_type="roberta", pad_token_id=1)
    write_modules(tmp_path, ["mean_tokens"], [], {"longest": 10_000})
    model = fa.from_pretrained(tmp_path)
    text = "a b c " * model.limit
    with pytest.warns(UserWarning, match=rf"1 of 2 texts were cut at {model.limit} tokens"):
        found = fa.embed(model, [text, "cat"])
    ids = model.tokenizer.encode([text], max_length=model.limit, truncate=True).input_ids
    expected = np.asarray(model(ids).last_hidden_state)[0].mean(0)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="too long"):
        fa.embed(model, [text], "mean")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_modules_in_half_precision(dtype, tmp_path):
    write_encoder(tmp_path, "Model", byte_level(), model_type="roberta", pad_token_id=1)
    write_modules(tmp_path, ["mean_tokens"], ["Dense Tanh"], {})
    path = tmp_path / "2_Dense" / "model.safetensors"
    stored = safetensors.numpy.load_file(path)
    rounded = {name: array.astype(dtype) for name, array in stored.items()}
    safetensors.numpy.save_file(rounded, path)
    model = fa.from_pretrained(tmp_path)
    weight, bias = (rounded[name].astype(np.float32) for name in ("linear.weight", "linear.bias"))
    expected = np.tanh(fa.embed(model, ["cat"], "mean-all") @ weight.T + bias)
    np.testing.assert_allclose(fa.embed(model, ["cat"]), expected, **CLOSE)


@pytest.mark.slow
def test_a_translation_model_keeps_the_files_of_its_modules(tmp_path):
    fa.from_pretrained("tiny-dates").save_pretrained(tmp_path / "own")
    (tmp_path / "own" / "modules.json").write_text("[]")
    model = fa.from_pretrained(tmp_path / "own")
    model.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "modules.json").read_text() == "[]"


def test_a_prompt_by_name(tmp_path):
    write_encoder(tmp_path, "Model", byte_level(), model_type="roberta", pad_token_id=1)
    write_modules(tmp_path, ["mean_tokens"], [], {"prompt": "Query: "})
    model = fa.from_pretrained(tmp_path)
    found = fa.embed(model, ["cat"], prompt_name="other")
    np.testing.assert_allclose(found, fa.embed(model, ["Other: cat"], "mean-all"), **CLOSE)
    with pytest.raises(InputError, match="prompt_name 'unknown' is unknown"):
        fa.embed(model, ["cat"], prompt_name="unknown")


REFUSED = {
    "modules.json": [
        ('[{"type": "sentence_transformers.models.Transformer"}]', "without Pooling"),
        ('[{"type": "own.Transformer", "path": ""}]', "own.Transformer"),
        ('[{"type": "sentence_transformers.models.CNN", "path": "0_CNN"}]', "0_CNN"),
        ('{"a": 1', "modules.json"),
    ],
    "1_Pooling/config.json": [
        ('{"pooling_mode": "attention"}', "attention"),
        ("{}", "1_Pooling/config.json"),
        ("[]", "1_Pooling/config.json"),
    ],
    "2_Dense/config.json": [('{"activation_function": "torch.nn.Softmax"}', "Softmax")],
    "2_Dense/model.safetensors": [("", "2_Dense/model.safetensors")],
    "sentence_bert_config.json": [('{"max_seq_length": "long"}', "max_seq_length")],
    "config_sentence_transformers.json": [('{"default_prompt_name": "q"}', "default_prompt_name")],
}


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [(file, *row) for file, rows in REFUSED.items() for row in rows],
)
def test_what_is_not_understood_is_refused_at_embed(file, content, named, tmp_path):
    """The model opens, traces, and gives vectors of a named pooling."""
    write_encoder(tmp_path, "Model", byte_level(), model_type="roberta", pad_token_id=1)
    write_modules(tmp_path, ["mean_tokens"], ["Dense Tanh"], {})
    (tmp_path / file).write_text(content)
    model = fa.from_pretrained(tmp_path)
    assert model.trace("cat").encoder is not None
    assert fa.embed(model, ["cat"], "mean").shape == (1, 16)
    with pytest.raises(CheckpointError) as error:
        fa.embed(model, ["cat"])
    assert named in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


@pytest.mark.slow
def test_modules_of_a_decoder(tmp_path, gpt2):
    """As in models that embed with the last token of a decoder."""
    gpt2.save_pretrained(tmp_path)
    write_modules(tmp_path, ["lasttoken"], ["Normalize"], {})
    found = fa.embed(fa.from_pretrained(tmp_path), SENTENCES)
    for text, vector in zip(SENTENCES, found, strict=True):
        expected = states(gpt2, text)[0][-1][-1]
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), **CLOSE)
