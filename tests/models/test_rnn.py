# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The recurrent encoder-decoder against the formulas of its paper, and in the hand.

`published` is Bahdanau et al. 2015, appendix A, written down once more in NumPy: float64, one
sentence and one position at a time.
"""

import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.rnn import GatedUnit, RnnLM
from flaxattn.pretrained import model_directory
from flaxattn.pretrained.pretrained_model import run
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace import tensor_file

CONFIG = fa.RnnConfig(
    vocab_size=23,
    decoder_vocab_size=19,
    embedding_size=6,
    hidden_size=8,
    attention_size=7,
    readout_size=5,
    max_position_embeddings=48,
)
WEIGHTS = fa.Capture(weights=True)
STATISTICS = ("lse", "entropy", "max", "argmax", "topk(2)", "distance", "sum_sq", "received")
RNG = np.random.default_rng(0)
SOURCE, TARGET = RNG.integers(2, 23, (3, 9)), RNG.integers(2, 19, (3, 7))
# Whole, padded behind, padded in front.
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3, [0] * 2 + [1] * 7])
PLACES = [np.flatnonzero(row) for row in MASK]
INPUTS = {"input_ids": SOURCE, "attention_mask": MASK, "decoder_input_ids": TARGET}


def drawn(module: RnnLM, seed: int = 0, scale: float = 0.7) -> Any:
    """Parameters far from their start, biases too: peaked attention, and every term matters."""
    rng = np.random.default_rng(seed)
    tree = jax.eval_shape(module.init, jax.random.key(0), SOURCE)["params"]
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(0, scale, a.shape), a.dtype), tree)
    params["decoder"]["cross_attention"]["score"] *= 3
    return params


MODULE = RnnLM(CONFIG, capture=WEIGHTS)
PARAMS = drawn(MODULE)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def unit(p: Any, state: np.ndarray, given: np.ndarray) -> np.ndarray:
    """(1 - z) s + z tanh(… + U (r s)); `given` is everything that does not come from the state."""
    uz, ur, u = np.split(p["recurrent"], 3, axis=1)
    gz, gr, g = np.split(given, 3)
    z, r = sigmoid(gz + state @ uz), sigmoid(gr + state @ ur)
    return (1 - z) * state + z * np.tanh(g + (r * state) @ u)


def annotations(p: Any, source: np.ndarray) -> np.ndarray:
    """[hf_j ; hb_j] of every position."""
    sides = {"forward": source, "backward": source[::-1]}
    read: dict[str, list[np.ndarray]] = {}
    for side, ids in sides.items():
        own, state = p["encoder"][side], np.zeros(CONFIG.hidden_size)
        read[side] = []
        for word in ids:
            x = p["words"]["embedding"][word]
            state = unit(own, state, x @ own["input"]["kernel"] + own["input"]["bias"])
            read[side].append(state)
    return np.concatenate([read["forward"], read["backward"][::-1]], axis=1)


def published(params: Any, source: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """Logits, scores, weights and contexts of one sentence without padding."""
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    h, decoder = annotations(p, source), p["decoder"]
    a, start = decoder["cross_attention"], decoder["start"]
    state = np.tanh(h[0, CONFIG.hidden_size :] @ start["kernel"] + start["bias"])
    steps = []
    for word in target:
        y = p["decoder_words"]["embedding"][word]
        e = np.array(
            [a["score"] @ np.tanh(state @ a["query"] + row @ a["key"]["kernel"] + a["key"]["bias"])
             for row in h]
        )  # fmt: skip
        alpha = np.exp(e) / np.exp(e).sum()
        c = sum(weight * row for weight, row in zip(alpha, h, strict=True))
        kernel, bias = decoder["readout"]["kernel"], decoder["readout"]["bias"]
        pairs = np.concatenate([state, y, c]) @ kernel + bias
        t = np.array([max(pairs[2 * j], pairs[2 * j + 1]) for j in range(len(pairs) // 2)])
        logits = t @ p["output"]["kernel"] + p["output"]["bias"]
        steps.append({"logits": logits, "scores": e, "weights": alpha, "contexts": c})
        given = y @ decoder["unit"]["input"]["kernel"] + decoder["unit"]["input"]["bias"]
        state = unit(decoder["unit"], state, given + c @ decoder["context"])
    return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def forward(params: Any = PARAMS, capture: fa.Capture = WEIGHTS, **changes: Any) -> Any:
    """Output and trace."""
    out, captured = run(MODULE.clone(capture=capture), params, {**INPUTS, **changes}, True)
    return out, fa.Trace.from_variables(captured)


def test_every_number_is_the_papers() -> None:
    capture = fa.Capture(weights=True, scores=True, head_output=True, query=True, key=True)
    out, trace = forward(capture=capture)
    assert trace.cross.weights.shape == (1, 3, 1, 7, 9)
    assert trace.cross.query.shape == (1, 3, 7, 1, 7) and trace.cross.key.shape == (1, 3, 9, 1, 7)
    sharpest = []
    for b, places in enumerate(PLACES):
        truth = published(PARAMS, SOURCE[b, places], TARGET[b])
        sharpest.append(truth["weights"].max())
        np.testing.assert_allclose(out.logits[b], truth["logits"], rtol=0, atol=1e-5)
        contexts = trace.cross.head_output[0, b, :, 0]
        np.testing.assert_allclose(contexts, truth["contexts"], rtol=0, atol=1e-5)
        for name in ("weights", "scores"):
            found = np.asarray(getattr(trace.cross, name))[0, b, 0]
            np.testing.assert_allclose(found[:, places], truth[name], rtol=0, atol=1e-5)
            padding = np.delete(found, places, axis=1)
            assert (padding == (0 if name == "weights" else -np.inf)).all()
        encoded = annotations(PARAMS, SOURCE[b, places])
        found = out.encoder_last_hidden_state[b]
        np.testing.assert_allclose(found[places], encoded, rtol=0, atol=1e-5)
    assert min(sharpest) > 0.5, "attention that is nearly uniform tests little"


@pytest.mark.slow
def test_row_statistics_are_those_of_the_scores() -> None:
    """Science of rows holds for any scores; all with NumPy, from the scores of the formulas."""
    trace = forward(capture=fa.Capture(stats=STATISTICS))[1]
    found = {name: np.asarray(array)[0, :, 0] for name, array in trace.cross.stats.items()}
    assert trace.cross.weights is None
    for b, places in enumerate(PLACES):
        truth = published(PARAMS, SOURCE[b, places], TARGET[b])
        e, p = truth["scores"], truth["weights"]
        order = np.argsort(-e, axis=1)[:, :2]
        gap = np.abs(np.arange(7)[:, None] - places[None])
        expected = {
            "lse": np.log(np.exp(e).sum(1)),
            "entropy": -(p * np.log(p)).sum(1),
            "max": p.max(1),
            "argmax": places[p.argmax(1)],
            "topk_weights": np.take_along_axis(p, order, 1),
            "topk_indices": places[order],
            "distance": (p * gap).sum(1),
            "sum_sq": (p**2).sum(1),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(found[name][b], value, rtol=0, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(found["received"][b][places], p.sum(0), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_asking_changes_no_number() -> None:
    requested, _ = forward()
    plain, _ = run(MODULE, PARAMS, INPUTS, False)
    np.testing.assert_allclose(requested.logits, plain.logits, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_padding_of_the_source_changes_nothing() -> None:
    """Not one bit by what stands there, and by how much of it no more than rounding."""
    one = forward()[0].logits
    other = forward(input_ids=np.where(MASK == 1, SOURCE, 5))[0].logits
    np.testing.assert_array_equal(one, other)
    wider = {n: np.pad(a, ((0, 0), (3, 5))) for n, a in list(INPUTS.items())[:2]}
    # Rounding grows from step to step; either is within 1e-5 of the truth, see below.
    np.testing.assert_allclose(forward(**wider)[0].logits, one, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_padding_of_the_target_is_not_read() -> None:
    mask = np.array([[1] * 7, [0, 0] + [1] * 5, [1, 0, 1, 1, 0, 1, 1]])
    capture = fa.Capture(stats=("received",))
    out, trace = forward(decoder_attention_mask=mask, capture=capture)
    for b, places in enumerate(PLACES):
        kept = np.flatnonzero(mask[b])
        truth = published(PARAMS, SOURCE[b, places], TARGET[b, kept])
        np.testing.assert_allclose(out.logits[b, kept], truth["logits"], rtol=0, atol=1e-5)
        received = trace.cross.stats["received"][0, b, 0, places]
        np.testing.assert_allclose(received, truth["weights"].sum(0), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_future_token_changes_nothing_before_it() -> None:
    """Exactly; the readout reads the word of its own row."""
    one = forward()[0].logits
    for changed in range(7):
        other = TARGET.copy()
        other[:, changed] = 2 + (other[:, changed] - 1) % 17
        two = forward(decoder_input_ids=other)[0].logits
        np.testing.assert_array_equal(one[:, :changed], two[:, :changed])
        assert (one[:, changed] != two[:, changed]).any()


@jax.jit
def continued(cache: dict[str, Any], ids: Any, encoded: Any, places: Any) -> tuple[Any, Any]:
    """The decoder on further tokens: scores, and the cache with what attention saw."""
    return MODULE.clone(cache_length=7).apply(
        {"params": PARAMS, **cache},
        ids,
        encoded,
        MASK,
        position_ids=places,
        mutable=["cache", "intermediates"],
        method="decode",
    )


@pytest.mark.slow
@pytest.mark.few("4")
@pytest.mark.parametrize("first", [1, 4])
def test_a_cache_changes_nothing(first: int) -> None:
    """The first tokens at once, the others one by one; what attention saw is the same too."""
    whole, captured = forward()
    cache: dict[str, Any] = {}
    begin = 0
    for end in [first, *range(first + 1, 8)]:
        encoded = jnp.zeros((3, 9, 16)) if cache else whole.encoder_last_hidden_state
        places = np.broadcast_to(np.arange(begin, end), (3, end - begin))
        logits, state = continued(cache, TARGET[:, begin:end], encoded, places)
        cache = {"cache": state["cache"]}
        np.testing.assert_allclose(logits, whole.logits[:, begin:end], rtol=0, atol=1e-5)
        step = fa.Trace.from_variables(state).cross.weights
        np.testing.assert_allclose(step, captured.cross.weights[:, :, :, begin:end], atol=1e-5)
        begin = end


def test_the_cache_of_a_sequence_is_one_state() -> None:
    given = {}, TARGET[:, :1], jnp.zeros((3, 9, 16)), np.zeros((3, 1), int)
    _, state = jax.eval_shape(continued, *given)
    leaves = jax.tree_util.tree_leaves_with_path(state["cache"])
    shapes = {jax.tree_util.keystr(p, simple=True, separator="/"): a.shape for p, a in leaves}
    assert shapes == {
        "decoder/cross_attention/key": (3, 9, 7),
        "decoder/cross_attention/value": (3, 9, 16),
        "decoder/state": (3, 8),
    }


def cost(params: Any, module: RnnLM) -> Any:
    """A loss that depends on logits, and on the entropy of attention."""
    out, captured = module.apply({"params": params}, **INPUTS, mutable=["intermediates"])
    entropy = fa.Trace.from_variables(captured).cross.stats["entropy"]
    return jnp.square(out.logits).mean() + entropy.mean()


def true_cost(params: Any) -> float:
    truths = [published(params, SOURCE[b, places], TARGET[b]) for b, places in enumerate(PLACES)]
    entropies = [-(t["weights"] * np.log(t["weights"])).sum(1) for t in truths]
    return np.mean([t["logits"] ** 2 for t in truths]) + np.mean(entropies)


@pytest.mark.slow
def test_gradients_are_those_of_the_formulas() -> None:
    """Along random directions of each parameter, against differences of float64.

    Computing the steps again on the way back changes nothing.
    """
    params, module = (
        drawn(MODULE, 1, scale=0.4),
        MODULE.clone(capture=fa.Capture(stats=("entropy",))),
    )
    grad = jax.jit(jax.grad(cost), static_argnums=1)
    gradient, again = (grad(params, module.clone(remat=remat)) for remat in (False, True))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradient, again
    )
    exact = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    leaves, structure = jax.tree.flatten(exact)
    slopes = jax.tree.leaves(gradient)
    rng, step = np.random.default_rng(2), 1e-5
    for number, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        direction = rng.normal(size=leaf.shape)
        ends = []
        for sign in (1, -1):
            moved = [*leaves]
            moved[number] = leaf + sign * step * direction
            ends.append(true_cost(jax.tree.unflatten(structure, moved)))
        expected = (ends[0] - ends[1]) / (2 * step)
        found = float((np.asarray(slope, np.float64) * direction).sum())
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_dropout_drops_only_when_requested() -> None:
    module = RnnLM(dataclasses.replace(CONFIG, dropout=0.5))
    still = run(module, PARAMS, INPUTS, False)[0].logits
    np.testing.assert_allclose(still, forward()[0].logits, atol=1e-6)
    rngs = {"dropout": jax.random.key(0)}
    apply = jax.jit(functools.partial(module.apply, deterministic=False))
    dropped = apply({"params": PARAMS}, **INPUTS, rngs=rngs).logits
    assert np.abs(dropped - still).max() > 0.1


@pytest.mark.slow
def test_bfloat16_is_close() -> None:
    module = RnnLM(CONFIG, dtype=jnp.bfloat16, capture=WEIGHTS)
    out, captured = run(module, PARAMS, INPUTS, True)
    truth, trace = forward()
    assert out.logits.dtype == jnp.bfloat16
    weights = fa.Trace.from_variables(captured).cross.weights
    assert np.abs(weights - trace.cross.weights).mean() < 0.02
    assert np.abs(out.logits.astype(jnp.float32) - truth.logits).mean() < 0.1


TOKENS = ["<pad>", "</s>", "<unk>", *"a b c d e f g h i j k l m n o p".split()]


def reading() -> Tokenizer:
    """One word per piece, and the end of the text."""
    vocabulary = {piece: number for number, piece in enumerate(TOKENS)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    backend.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return Tokenizer(backend, {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = RnnLM(dataclasses.replace(CONFIG, decoder_vocab_size=None))
    folder = tmp_path_factory.mktemp("rnn") / "model"
    PretrainedSeq2Seq(module, drawn(module, 3), reading(), module.config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def handle(folder: Path) -> Any:
    return fa.from_pretrained(folder)


def test_a_directory_comes_back_bit_by_bit(folder: Path, handle: Any) -> None:
    expected = drawn(handle.module, 3)
    jax.tree.map(np.testing.assert_array_equal, handle.params, expected)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "flaxattn-rnn"
    assert handle.config == dataclasses.replace(CONFIG, decoder_vocab_size=None)
    assert not handle.report.table()
    assert "RnnLM, 1 + 1 layers, 0 and 1 heads" in repr(handle)
    tensors = tensor_file.TensorFiles(folder).shapes
    assert tensors["decoder.cross_attention.query.weight"] == (7, 8)
    assert set(model_directory.to_hf(handle.module, handle.params)) == set(tensors)


def test_the_hand_calls_it_as_any_encoder_decoder(handle: Any) -> None:
    out = handle(SOURCE, MASK, TARGET, output_attentions=True, output_hidden_states=True)
    truth = published(handle.params, SOURCE[1, :6], TARGET[1])
    np.testing.assert_allclose(out.logits[1], truth["logits"], atol=1e-5)
    assert out.encoder_attentions is None and out.decoder_attentions is None
    assert [a.shape for a in out.cross_attentions] == [(3, 1, 7, 9)]
    assert [a.shape[-1] for a in out.decoder_hidden_states] == [6, 8, 5]


def test_a_trace_of_two_texts_has_cross_only(handle: Any) -> None:
    trace = handle.trace(["a b c d", "e f", "g"], ["d c b", "f e a g", "h"])
    assert trace.encoder is None and trace.decoder is None
    assert trace.layers == (0,) and trace.heads == (0,) and len(trace) == 3
    assert "weights" in repr(trace)
    one = trace[1]
    assert one.tokens == [["e", "f", "</s>"]]
    assert one.written == [["f", "e", "a", "g", "</s>"]] and one.decoder_tokens[0][0] == "<pad>"
    assert one.cross.weights.shape == (1, 1, 1, 5, 3)
    ids = [[TOKENS.index(piece) for piece in row] for row in (one.tokens[0], one.decoder_tokens[0])]
    truth = published(handle.params, np.array(ids[0]), np.array(ids[1]))
    np.testing.assert_allclose(one.cross.weights[0, 0, 0], truth["weights"], atol=1e-5)


WAYS = {"greedy": {}, "beam": {"num_beams": 3}}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", pytest.param("beam", marks=pytest.mark.slow)])
def test_a_trace_is_that_of_reading_what_was_written(handle: Any, way: str) -> None:
    settings = {"max_new_tokens": 9, **WAYS[way]}
    ids, trace = handle.generate(
        input_ids=SOURCE, attention_mask=MASK, trace=True, capture=WEIGHTS, **settings
    )
    for b, places in enumerate(PLACES):
        truth = published(handle.params, SOURCE[b, places], ids[b, :-1])
        real = int(trace.decoder_mask[b].sum())
        found = np.asarray(trace.cross.weights)[0, b, 0][:real][:, places]
        np.testing.assert_allclose(found, truth["weights"][:real], atol=1e-5)
        if way == "greedy":
            np.testing.assert_array_equal(truth["logits"][:real].argmax(1), ids[b, 1 : real + 1])


@pytest.mark.few("greedy")
@pytest.mark.parametrize("way", WAYS)
def test_neighbours_and_padding_change_nothing(handle: Any, way: str) -> None:
    settings = {"max_new_tokens": 9, **WAYS[way]}
    together = handle.generate(input_ids=SOURCE, attention_mask=MASK, **settings)[1]
    alone = handle.generate(input_ids=SOURCE[1:2, :6], **settings)[0]
    np.testing.assert_array_equal(alone, together[: len(alone)])
    assert (together[len(alone) :] == CONFIG.pad_token_id).all()


@pytest.mark.slow
def test_beams_find_the_best_of_all_texts() -> None:
    """Five words and three steps: with a beam for every text, search is exhaustive."""
    config = dataclasses.replace(CONFIG, decoder_vocab_size=5)
    module = RnnLM(config)
    params = drawn(module, 5)
    handle = PretrainedSeq2Seq(module, params, None, config)
    settings = {"max_new_tokens": 3, "num_beams": 25, "length_penalty": 0.0}
    found = handle.generate(input_ids=SOURCE, attention_mask=MASK, **settings)
    for b, places in enumerate(PLACES):
        best: dict[tuple[int, ...], float] = {}
        for words in itertools.product(range(5), repeat=3):
            logits = published(params, SOURCE[b, places], np.array([0, *words[:2]]))["logits"]
            gains = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            end = words.index(1) + 1 if 1 in words else 3
            text = words[:end]
            best[text] = sum(gains[i, word] for i, word in enumerate(text))
        expected = max(best, key=lambda text: best[text])
        assert tuple(found[b, 1 : 1 + len(expected)]) == expected
        assert (found[b, 1 + len(expected) :] == config.pad_token_id).all()


def test_writing_texts(handle: Any) -> None:
    given = ["a b c d e f g h", "d", "k l"]
    texts, trace = handle.generate(given, trace=True, max_new_tokens=9)
    assert len(texts) == 3 and all(isinstance(text, str) for text in texts)
    assert trace[1].tokens == [["d", "</s>"]] and trace.cross.weights.shape[1] == 3


def test_the_published_size() -> None:
    """With the paper's settings; 30,000 words on either side."""
    tree = jax.eval_shape(RnnLM(fa.RnnConfig()).init, jax.random.key(0), jnp.zeros((1, 1), int))
    count = sum(leaf.size for leaf in jax.tree.leaves(tree))
    n, m, l, v = 1000, 620, 500, 30000  # noqa: E741 the paper's letters
    kernels = 3 * (3 * (m * n + n * n)) + 3 * 2 * n * n + n * n + (n + 2 * n) * n + n
    kernels += 2 * l * (n + m + 2 * n) + l * v + 2 * v * m
    biases = 3 * 3 * n + n + n + 2 * l + v
    assert count == kernels + biases


@pytest.mark.slow
def test_initial_recurrent_kernels_are_orthogonal() -> None:
    params = jax.jit(GatedUnit(8, local=True).init)(jax.random.key(0), jnp.zeros((1, 2, 6)))[
        "params"
    ]
    assert params["input"]["bias"].tolist() == [1] * 8 + [-1] * 8 + [0] * 8
    for block in np.split(np.asarray(params["recurrent"]), 3, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(8), atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"decoder_vocab_size": 9, "dropout": 0.3}])
def test_a_config_comes_back_from_its_file(settings: dict[str, Any]) -> None:
    config = fa.RnnConfig.tiny(vocab_size=13, **settings)
    assert fa.RnnConfig.from_hf(json.loads(json.dumps(config.to_hf()))) == config
    assert fa.RnnConfig.small().hidden_size == 512


def test_what_is_refused(folder: Path, handle: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="hidden_size must be at least 1, got 0"):
        fa.RnnConfig(hidden_size=0)
    with pytest.raises(InputError, match=r"capture\.heads asks for 1, but this model has heads 0"):
        handle.trace("a", "b", capture=fa.Capture(weights=True, heads=(1,)))
    with pytest.raises(ValueError, match="the model has layer 0 only"):
        run(MODULE.clone(capture=fa.Capture(weights=True, layers=(1,))), PARAMS, INPUTS, True)
    with pytest.raises(InputError, match="recurrent models do not record"):
        handle.trace("a", "b", capture=fa.Capture(hidden=True))
    tensors = model_directory.to_hf(handle.module, handle.params)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    tensor_file.write(tmp_path / "model.safetensors", {"0.weight": tensors["output.weight"]})
    with pytest.raises(CheckpointError, match="lacks 22 tensors"):
        fa.from_pretrained(tmp_path)
    tensor_file.write(tmp_path / "model.safetensors", {**tensors, "0.weight": np.zeros(1, "f4")})
    with pytest.warns(UserWarning, match=r"no flaxattn RNN has: 0\.weight"):
        fa.from_pretrained(tmp_path)
