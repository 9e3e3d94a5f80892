# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Circuits of heads against the formulas of Elhage et al. (2021), with whole matrices in NumPy.

The references here make `V x V` and `E x E` matrices, name the parameters of each family and fold
norms by matrix products; nothing of them is shared with the package.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from small_decoders import beginning_with_bos, write_decoder
from small_encoders import unigram, write_encoder
from small_models import drawn, with_nan

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.positions import Rotary
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

NORMS = ("query_norm", "key_norm")


class Dense(NamedTuple):
    """Folded matrices of a head, vectors as rows: queries, keys, values `[E, D]`, output."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    output: np.ndarray

    @property
    def ov(self) -> np.ndarray:
        return self.value @ self.output

    @property
    def qk(self) -> np.ndarray:
        return self.query @ self.key.T


def wide(array: Any) -> np.ndarray:
    return np.asarray(array, np.float64)


def centring(width: int) -> np.ndarray:
    return np.eye(width) - 1 / width


def dense(layers: Any, layer: int, head: int, heads: int, kind: str = "attention") -> Dense:
    """One head without norms; several query heads may share one of keys and values."""
    kernels = {n: wide(layers[kind][n]["kernel"][layer]) for n in ("query", "key", "value")}
    output = wide(layers[kind]["output"]["kernel"][layer])
    depth = len(output) // heads
    shared = kernels["query"].shape[1] // kernels["key"].shape[1]
    group = slice(head // shared * depth, (head // shared + 1) * depth)
    own = slice(head * depth, (head + 1) * depth)
    parts = kernels["query"][:, own], kernels["key"][:, group], kernels["value"][:, group]
    return Dense(*parts, output[own])


def score(matrix: np.ndarray) -> float:
    """Sum of the eigenvalues over the sum of their sizes; those of rounding are left out."""
    values = np.linalg.eigvals(matrix)
    return values.sum().real / np.abs(values).sum()


def composed(earlier: Dense, later: Dense, kind: str) -> float:
    read = {"query": later.qk, "key": later.qk.T, "value": later.ov}[kind]
    sizes = np.linalg.norm(earlier.ov) * np.linalg.norm(read)
    return np.linalg.norm(earlier.ov @ read) / sizes


def assert_composed(circuits: Any, heads: dict[tuple[str, int, int], Dense], after: Any) -> None:
    """Every composition that there is, and no other."""
    count = 0
    for c in circuits.compositions:
        for i, j, k, m in np.ndindex(*c.scores.shape):
            earlier, later = (c.writer, i, j), (c.reader, k, m)
            if after(c.writer, i, c.reader, k, c.kind):
                expected = composed(heads[earlier], heads[later], c.kind)
                assert c.scores[i, j, k, m] == pytest.approx(expected, abs=1e-5), (earlier, later)
                count += 1
            else:
                assert np.isnan(c.scores[i, j, k, m])
    assert count


def decoder(**settings: Any) -> PretrainedDecoder:
    tokenizer = beginning_with_bos()
    shape = dict(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    config = DecoderConfig(vocab_size=tokenizer.vocab_size, **(shape | settings))
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    return PretrainedDecoder(module, params, tokenizer, config, "llama")


def changed(model: Any, change: Callable[[str, np.ndarray], np.ndarray]) -> Any:
    """The model with other parameters, each made of its path and what it was."""

    def one(path: Any, leaf: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return np.asarray(change(name, np.array(leaf)), np.float32)

    return dataclasses.replace(model, params=jax.tree_util.tree_map_with_path(one, model.params))


def gpt2_heads(model: Any) -> dict[tuple[str, int, int], Dense]:
    layers = model.params["decoder"]["layers"]
    centre, found = centring(16), {}
    for layer, head in np.ndindex(2, 2):
        norm = centre @ np.diag(wide(layers["attention_norm"]["scale"][layer]))
        raw = dense(layers, layer, head, 2)
        folded = [norm @ part for part in raw[:3]]
        found["decoder", layer, head] = Dense(*folded, raw.output @ centre)
    return found


def later_layer(writer: str, first: int, reader: str, second: int, kind: str) -> bool:
    return first < second


def on_diagonal(queries: np.ndarray, middle: np.ndarray, keys: np.ndarray, depth: int) -> float:
    """Trace of the matrix of all tokens, over the largest that its norm and rank allow."""
    matrix = queries @ middle @ keys.T
    return np.trace(matrix) / (depth**0.5 * np.linalg.norm(matrix))


@pytest.mark.parametrize("centred", [False, True])
def test_gpt2_is_as_with_whole_matrices(gpt2: Any, centred: bool) -> None:
    circuits, heads = fa.head_circuits(gpt2, centred=centred), gpt2_heads(gpt2)
    words = wide(gpt2.params["words"]["embedding"])
    final = centring(16) @ np.diag(wide(gpt2.params["norm"]["scale"]))
    output = final @ words.T
    if centred:
        words, output = words - words.mean(0), output - output.mean(1, keepdims=True)
    for (_, layer, head), one in heads.items():
        expected = score(words @ one.ov @ output)
        assert circuits.copying["decoder"][layer, head] == pytest.approx(expected, abs=1e-4)
        expected = score(words @ one.qk @ words.T)
        assert circuits.matching["decoder"][layer, head] == pytest.approx(expected, abs=1e-4)
    assert_composed(circuits, heads, later_layer)
    assert [(c.kind, c.scores.shape) for c in circuits.compositions] == [
        (kind, (2, 2, 2, 2)) for kind in ("query", "key", "value")
    ]
    assert np.isnan(circuits.prefix_matching["decoder"][0]).all()
    for head in range(2):
        one, apart = heads["decoder", 1, head], words - words.mean(0)
        by = [on_diagonal(apart, one.qk @ heads["decoder", 0, n].ov.T, apart, 8) for n in range(2)]
        assert circuits.prefix_writers["decoder"][1, head].tolist() == [0, int(np.argmax(by))]
        assert circuits.prefix_matching["decoder"][1, head] == pytest.approx(max(by), abs=1e-5)
    assert circuits.distances == () and not circuits.rotary_matching


def turn(distance: float, depth: int, theta: float, part: float = 1.0) -> np.ndarray:
    """Rotation of a row vector by the angles of a distance, dimension i with dimension i + P."""
    pairs = int(depth * part) // 2
    found = np.eye(depth)
    for i in range(pairs):
        angle = distance * theta ** (-2 * i / (2 * pairs))
        found[i, i] = found[i + pairs, i + pairs] = np.cos(angle)
        found[i, i + pairs], found[i + pairs, i] = np.sin(angle), -np.sin(angle)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", [1.0, 0.5])
def test_llama_with_shared_keys_is_turned_by_distance(part: float) -> None:
    rotary = Rotary(rope_theta=100.0, partial_rotary_factor=part)
    model = decoder(head_dim=8, rotary=rotary, sliding_window=5)
    circuits = fa.head_circuits(model, distances=(0, 1, 4, 5, 9))
    layers = model.params["model"]["decoder"]["layers"]
    words = wide(model.params["model"]["words"]["embedding"])
    output = np.diag(wide(model.params["model"]["norm"]["scale"])) @ wide(model.params["output"])
    heads = {}
    for layer, head in np.ndindex(3, 4):
        norm = np.diag(wide(layers["attention_norm"]["scale"][layer]))
        raw = dense(layers, layer, head, 4)
        one = heads["decoder", layer, head] = Dense(*(norm @ m for m in raw[:3]), raw.output)
        expected = score(words @ one.ov @ output)
        assert circuits.copying["decoder"][layer, head] == pytest.approx(expected, abs=1e-4)
        for place, distance in enumerate(circuits.distances):
            turned = one.query @ turn(distance, 8, 100.0, part) @ one.key.T
            found = circuits.rotary_matching["decoder"][layer, head, place]
            if distance < 5:
                assert found == pytest.approx(score(words @ turned @ words.T), abs=1e-4)
            else:
                assert np.isnan(found)  # beyond the window
    apart = words - words.mean(0)
    for head in range(4):  # keys and values are shared by two
        qk = heads["decoder", 2, head].qk
        by = {
            place: on_diagonal(apart, qk @ heads["decoder", *place].ov.T, apart, 8)
            for place in np.ndindex(2, 4)
        }
        best = max(by, key=lambda place: by[place])
        assert tuple(circuits.prefix_writers["decoder"][2, head]) == best
        assert circuits.prefix_matching["decoder"][2, head] == pytest.approx(by[best], abs=1e-5)
    first = circuits.rotary_matching["decoder"][..., 0]
    np.testing.assert_allclose(first, circuits.matching["decoder"], atol=1e-5)
    assert abs(circuits.rotary_matching["decoder"][..., 2] - first).max() > 0.05
    assert_composed(circuits, heads, later_layer)
    assert not circuits.positions


def test_a_turned_score_is_the_score_of_the_model() -> None:
    """The rotation above is the one that the model has: its scores depend on it."""
    model = decoder(head_dim=8, rotary=Rotary(rope_theta=100.0))
    ids = np.full((1, 6), 9)
    _, state = model.module.clone(capture=Capture(query=True, key=True)).apply(
        {"params": model.params}, ids, mutable=["intermediates"]
    )
    record = fa.Trace.from_variables(state).decoder
    x = wide(model.params["model"]["words"]["embedding"])[9]
    x = x / np.sqrt((x * x).mean() + 1e-6)
    layers = model.params["model"]["decoder"]["layers"]
    norm = np.diag(wide(layers["attention_norm"]["scale"][0]))
    for head in range(4):
        raw = dense(layers, 0, head, 4)
        for distance in range(5):
            form = norm @ raw.query @ turn(distance, 8, 100.0) @ raw.key.T @ norm
            query, key = (
                wide(record.query)[0, 0, 5, head],
                wide(record.key)[0, 0, 5 - distance, head],
            )
            assert query @ key == pytest.approx(x @ form @ x, abs=1e-4)


@pytest.mark.slow
def test_norms_of_heads_and_behind_attention_are_folded(tmp_path: Path) -> None:
    model = fa.from_pretrained(write_decoder(tmp_path / "gemma"))
    circuits = fa.head_circuits(model, distances=(0, 3))
    layers = model.params["model"]["decoder"]["layers"]
    words = wide(model.params["model"]["words"]["embedding"])

    def scale(name: str, layer: int) -> np.ndarray:
        return np.diag(1 + wide(layers[name]["scale"][layer]))

    output = np.diag(1 + wide(model.params["model"]["norm"]["scale"])) @ words.T
    for layer, head in np.ndindex(3, 4):
        raw, read = dense(layers, layer, head, 4), scale("attention_norm", layer)
        own = {n: np.diag(1 + wide(layers["attention"][n]["scale"][layer])) for n in NORMS}
        ov = read @ raw.ov @ scale("attention_post_norm", layer)
        expected = score(words @ ov @ output)
        assert circuits.copying["decoder"][layer, head] == pytest.approx(expected, abs=1e-4)
        # The second layer's positions are stretched by 2, the others have positions of their own.
        angles = turn(1.5, 8, 1000.0) if layer == 1 else turn(3, 8, 100.0)
        left, right = read @ raw.query @ own["query_norm"], read @ raw.key @ own["key_norm"]
        expected = score(words @ left @ angles @ right.T @ words.T)
        found = circuits.rotary_matching["decoder"][layer, head, 1]
        assert found == pytest.approx(expected, abs=1e-4)


def test_bert_is_of_its_weights_as_they_are(bert: Any) -> None:
    circuits = fa.head_circuits(bert)
    layers, table = bert.params["encoder"]["layers"], bert.params["embeddings"]
    words = wide(table["word"]["embedding"])
    embedded = words @ centring(16) @ np.diag(wide(table["norm"]["scale"]))
    heads = {}
    for layer, head in np.ndindex(2, 2):
        one = heads["encoder", layer, head] = dense(layers, layer, head, 2)
        expected = score(embedded @ one.ov @ words.T)
        assert circuits.copying["encoder"][layer, head] == pytest.approx(expected, abs=1e-4)
        expected = score(embedded @ one.qk @ embedded.T)
        assert circuits.matching["encoder"][layer, head] == pytest.approx(expected, abs=1e-4)
    assert_composed(circuits, heads, later_layer)


@pytest.mark.slow
def test_layers_that_share_parameters_have_the_same_scores(tmp_path: Path) -> None:
    path = write_encoder(
        tmp_path / "a", "ForMaskedLM", unigram(), model_type="albert", embedding_size=8
    )
    model = fa.from_pretrained(path)
    circuits = fa.head_circuits(model)
    table = model.params["bert"]["embeddings"]
    words, kernel = (
        wide(a)
        for a in (
            table["word"]["embedding"],
            model.params["bert"]["embedding_projection"]["kernel"],
        )
    )
    embedded = words @ centring(8) @ np.diag(wide(table["norm"]["scale"])) @ kernel
    for layer, head in np.ndindex(2, 2):
        one = dense(model.params["bert"]["encoder"]["layers"], 0, head, 2)
        expected = score(embedded @ one.ov @ (words @ kernel).T)
        assert circuits.copying["encoder"][layer, head] == pytest.approx(expected, abs=1e-4)
    assert circuits.positions["encoder"].shape == (2, 2, 3)


@pytest.mark.slow
def test_modern_bert_reads_its_first_layer_without_norm(modern: Any) -> None:
    circuits = fa.head_circuits(modern, distances=(-4, -3, 0, 2))
    params = modern.params["model"]
    words = wide(params["embeddings"]["word"]["embedding"])
    centre = centring(16)
    embedded = words @ centre @ np.diag(wide(params["embeddings"]["norm"]["scale"]))
    output = centre @ np.diag(wide(params["norm"]["scale"])) @ words.T
    for layer, head in np.ndindex(3, 2):
        norm = np.eye(16)
        if layer:
            norm = centre @ np.diag(wide(params["attention_norms"]["scale"][layer - 1]))
        one = dense(params["encoder"]["layers"], layer, head, 2)
        expected = score(embedded @ norm @ one.ov @ output)
        assert circuits.copying["encoder"][layer, head] == pytest.approx(expected, abs=1e-4)
        unseen = np.isnan(circuits.rotary_matching["encoder"][layer, head]).tolist()
        assert unseen == [layer > 0, False, False, False]


def t5_heads(model: Any) -> dict[tuple[str, int, int], Dense]:
    params, found = model.params["model"], {}
    of_encoder = np.diag(wide(params["encoder_norm"]["scale"]))
    for side, layers, kind in (
        ("encoder", 2, "attention"),
        ("decoder", 1, "attention"),
        ("cross", 1, "cross_attention"),
    ):
        stack = params["encoder" if side == "encoder" else "decoder"]["layers"]
        for layer, head in np.ndindex(layers, 2):
            norm = np.diag(wide(stack[f"{kind}_norm"]["scale"][layer]))
            keys = of_encoder if side == "cross" else norm
            raw = dense(stack, layer, head, 2, kind)
            folded = norm @ raw.query, keys @ raw.key, keys @ raw.value
            found[side, layer, head] = Dense(*folded, raw.output)
    return found


def reads(writer: str, first: int, reader: str, second: int, kind: str) -> bool:
    """Whether a side reads what another writes: cross-attention reads the whole encoder."""
    if reader == "cross" and kind != "query":
        return writer == "encoder"
    if writer == "cross" and reader == "decoder":
        return first < second
    if writer == "decoder" and reader == "cross":
        return first <= second
    return first < second


@pytest.mark.slow
def test_t5_and_its_cross_attention(t5: Any) -> None:
    circuits, heads = fa.head_circuits(t5), t5_heads(t5)
    words = wide(t5.params["model"]["words"]["embedding"])
    output = wide(t5.params["output"]) if "output" in t5.params else words.T
    finals = {s: wide(t5.params["model"][f"{s}_norm"]["scale"]) for s in ("encoder", "decoder")}
    for (side, layer, head), one in heads.items():
        last = words.T if side == "encoder" else output
        last = np.diag(finals["encoder" if side == "encoder" else "decoder"]) @ last
        expected = score(words @ one.ov @ last)
        assert circuits.copying[side][layer, head] == pytest.approx(expected, abs=1e-4)
        expected = score(words @ one.qk @ words.T)
        assert circuits.matching[side][layer, head] == pytest.approx(expected, abs=1e-4)
    assert_composed(circuits, heads, reads)
    assert {(c.writer, c.reader, c.kind) for c in circuits.compositions} == {
        *(("encoder", "encoder", kind) for kind in ("query", "key", "value")),
        ("encoder", "cross", "key"),
        ("encoder", "cross", "value"),
        ("decoder", "cross", "query"),
    }
    assert circuits.positions.keys() == {"encoder", "decoder"}


def test_a_translation_model_copies_only_where_vocabularies_are_one(translation: Any) -> None:
    circuits = fa.head_circuits(translation)
    assert np.isnan(circuits.copying["cross"]).all()
    assert np.isnan(circuits.matching["cross"]).all()
    params, heads = translation.params["model"], {}
    for side, layers, kind in (
        ("encoder", 1, "attention"),
        ("decoder", 2, "attention"),
        ("cross", 2, "cross_attention"),
    ):
        stack = params["encoder" if side == "encoder" else "decoder"]["layers"]
        for layer, head in np.ndindex(layers, 2):
            heads[side, layer, head] = dense(stack, layer, head, 2, kind)
    assert_composed(circuits, heads, reads)
    pairs = {(c.writer, c.reader) for c in circuits.compositions}
    assert ("cross", "decoder") in pairs and ("cross", "cross") in pairs
    words = wide(params["decoder_words"]["embedding"])
    one = heads["decoder", 1, 0]
    expected = score(words @ one.ov @ words.T)
    assert circuits.copying["decoder"][1, 0] == pytest.approx(expected, abs=1e-4)


def crafted(gpt2: Any, sign: float) -> Any:
    """Heads that write what they read, times a sign; norms have scales of 1."""

    def change(name: str, leaf: np.ndarray) -> np.ndarray:
        if name.endswith("norm/scale"):
            return np.ones_like(leaf)
        if name.endswith("attention/output/kernel"):
            values = np.asarray(gpt2.params["decoder"]["layers"]["attention"]["value"]["kernel"])
            return sign * values.swapaxes(-1, -2)
        return leaf

    return changed(gpt2, change)


def test_a_head_that_copies_has_score_1_and_its_opposite_minus_1(gpt2: Any) -> None:
    np.testing.assert_allclose(fa.head_circuits(crafted(gpt2, 1)).copying["decoder"], 1, atol=1e-5)
    np.testing.assert_allclose(
        fa.head_circuits(crafted(gpt2, -1)).copying["decoder"], -1, atol=1e-5
    )


def test_a_head_that_reads_what_another_writes_composes_with_it(gpt2: Any) -> None:
    """Rank-one heads: head 1.0 has the key that head 0.1 writes, head 1.1 one across it."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(16, 4)))[0]
    basis = np.linalg.qr(centring(16) @ basis)[0]  # no norm takes a mean away from these
    layers = gpt2.params["decoder"]["layers"]["attention"]
    keys, outputs = (np.array(layers[n]["kernel"]) for n in ("key", "output"))
    keys[1] = outputs[0] = 0
    outputs[0, 8] = basis[:, 0]
    outputs[0, 0] = basis[:, 2]
    keys[1, :, 0], keys[1, :, 8] = basis[:, 0], basis[:, 1]

    def change(name: str, leaf: np.ndarray) -> np.ndarray:
        if name.endswith("norm/scale"):
            return np.ones_like(leaf)
        made = {"attention/key/kernel": keys, "attention/output/kernel": outputs}
        return next((array for end, array in made.items() if name.endswith(end)), leaf)

    (scores,) = (
        c.scores[0, :, 1]
        for c in fa.head_circuits(changed(gpt2, change)).compositions
        if c.kind == "key"
    )
    np.testing.assert_allclose(scores, [[0, 0], [1, 0]], atol=1e-5)


def test_the_expected_score_is_that_of_random_matrices() -> None:
    model = decoder(head_dim=2, hidden_size=32)
    circuits = fa.head_circuits(model, drawings=400, seed=1)
    rng = np.random.default_rng(7)
    found = []
    for _ in range(400):
        first, second = (
            Dense(*(rng.normal(size=(32, 2)) for _ in range(3)), rng.normal(size=(2, 32)))
            for _ in range(2)
        )
        found.append(composed(first, second, "key"))
    assert circuits.expected == pytest.approx(np.mean(found), rel=0.03)
    assert circuits.expected_sd == pytest.approx(np.std(found), rel=0.15)
    again = fa.head_circuits(model, drawings=400, seed=1)
    assert again.expected == circuits.expected
    assert fa.head_circuits(model, drawings=400, seed=2).expected != circuits.expected
    one = circuits.compositions[0]
    np.testing.assert_allclose(one.above_random(), one.scores - circuits.expected)


def diagonals(weights: np.ndarray) -> np.ndarray:
    """Means on the keys before, on and behind the query, of weights `[L, H, N, N]`."""
    return np.stack(
        [np.diagonal(weights, n, axis1=-2, axis2=-1).mean(-1) for n in (-1, 0, 1)], axis=-1
    )


@pytest.mark.slow
def test_positions_alone_have_the_attention_of_a_model_without_words(gpt2: Any, bert: Any) -> None:
    """A model whose words, and layers in between, are silent attends by its positions."""
    silent = ("words/embedding", "attention/output/kernel", "attention/output/bias", "down/kernel")
    silent = (*silent, "down/bias", "word/embedding", "token_type/embedding")

    def change(name: str, leaf: np.ndarray) -> np.ndarray:
        return np.zeros_like(leaf) if name.endswith(silent) else leaf

    weights = wide(changed(gpt2, change).trace(" ".join("abcdefgh")).decoder.weights)[:, 0]
    found = fa.head_circuits(gpt2, positions=8).positions["decoder"]
    np.testing.assert_allclose(found[..., :2], diagonals(weights)[..., :2], atol=1e-5)
    assert np.isnan(found[..., 2]).all() and abs(found[..., :2]).max() > 0.2
    weights = wide(changed(bert, change).trace(" ".join("abcdefgh")).encoder.weights)[:, 0]
    found = fa.head_circuits(bert, positions=10).positions["encoder"]
    np.testing.assert_allclose(found[0], diagonals(weights)[0], atol=1e-5)
    assert abs(found[0] - found[1]).max() > 1e-3  # every layer reads positions with its own weights


@pytest.mark.slow
def test_biases_by_distance_are_positions_too(t5: Any) -> None:
    """A T5 whose queries are 0 attends by its biases alone, in encoder and decoder."""

    def change(name: str, leaf: np.ndarray) -> np.ndarray:
        return np.zeros_like(leaf) if name.endswith("attention/query/kernel") else leaf

    trace = changed(t5, change).trace("a b c d e f", "a b c d e f")
    found = fa.head_circuits(t5, positions=7).positions
    for side in ("encoder", "decoder"):
        weights = wide(trace.sides[side].weights)[:, 0]
        assert weights.shape[-1] == 7
        expected = diagonals(weights)
        if side == "decoder":
            expected[..., 2] = np.nan
        np.testing.assert_allclose(found[side], expected, atol=1e-5)


def test_pruned_heads_have_no_scores(gpt2: Any) -> None:
    whole, less = (fa.head_circuits(model) for model in (gpt2, gpt2.prune([(0, 1)])))
    assert np.isnan(less.copying["decoder"][0, 1]) and np.isnan(less.matching["decoder"][0, 1])
    assert np.isnan(less.positions["decoder"][0, 1]).all()
    kept = ([0, 1, 1], [0, 0, 1])
    np.testing.assert_allclose(less.copying["decoder"][kept], whole.copying["decoder"][kept])
    for before, after in zip(whole.compositions, less.compositions, strict=True):
        assert np.isnan(after.scores[0, 1]).all()
        np.testing.assert_allclose(after.scores[0, 0, 1], before.scores[0, 0, 1], rtol=1e-6)
    assert (less.prefix_writers["decoder"][1] == [0, 0]).all()


def test_rows_and_edges_are_tables(t5: Any) -> None:
    circuits = fa.head_circuits(t5)
    rows = circuits.rows()
    assert len(rows) == 8 and {row["side"] for row in rows} == {"encoder", "decoder", "cross"}
    assert rows[0].keys() >= {"copying", "matching", "prefix_matching", "previous", "own", "next"}
    edges = circuits.edges("value", 3)
    strongest = max(np.nanmax(c.scores) for c in circuits.compositions if c.kind == "value")
    assert edges[0]["score"] == pytest.approx(strongest) and len(edges) == 3
    assert edges[0]["above_random"] == pytest.approx(strongest - circuits.expected)
    assert all(edge["kind"] == "value" for edge in edges)
    assert len(circuits.edges()) == 12 + 16 + 4
    assert repr(circuits).startswith("HeadCircuits('t5': ") and "32 compositions" in repr(circuits)
    with pytest.raises(InputError, match="kind: expected one of query, key, value, received 'k'"):
        circuits.edges("k")


def test_what_has_no_circuits_is_refused_in_words(rnn: Any, gpt2: Any) -> None:
    with pytest.raises(InputError) as caught:
        fa.head_circuits(rnn)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and lines[0].endswith("whose attention has no heads.")
    with pytest.raises(InputError, match="distances: expected whole numbers from 0 to 127"):
        fa.head_circuits(decoder(), distances=(-1, 0))
    with pytest.raises(InputError, match="positions: expected a whole number from 2, received 1"):
        fa.head_circuits(gpt2, positions=1)
    with pytest.raises(InputError, match="Pretrained"):
        fa.head_circuits("tiny-gpt2")  # type: ignore - refused for that


def test_nan_is_refused_by_its_parameter_or_left_blank(gpt2: Any) -> None:
    broken = with_nan(gpt2)
    with pytest.raises(InputError, match="query/kernel of layer 1 holds NaN"):
        fa.head_circuits(broken)
    circuits = fa.head_circuits(broken, allow_nonfinite=True)
    assert np.isnan(circuits.matching["decoder"][1]).all()
    assert np.isfinite(circuits.matching["decoder"][0]).all()
    assert np.isfinite(circuits.copying["decoder"]).all()


@pytest.mark.slow
def test_prefix_matching_names_the_induction_heads_of_the_built_in_model() -> None:
    model = fa.from_pretrained("tiny-gpt2")
    circuits = fa.head_circuits(model)
    scores, writers = circuits.prefix_matching["decoder"], circuits.prefix_writers["decoder"]
    behaves = fa.detect_heads(model, sequences=4, length=30).scores["induction"] > 0.5
    assert behaves.sum() >= 4
    assert np.nanmin(scores[behaves]) > 2 * np.nanmax(np.where(behaves, np.nan, scores))
    assert (writers[behaves] == [2, 2]).all()  # which attends to the previous token


def test_a_head_that_finds_what_was_written_has_prefix_matching_1(gpt2: Any) -> None:
    """Both heads' products undo half of what makes some directions of embeddings larger."""

    def change(name: str, leaf: np.ndarray) -> np.ndarray:
        if name == "words/embedding":
            return leaf - leaf.mean(0) - leaf.mean(1, keepdims=True) + leaf.mean()
        if "norm/scale" in name:
            return np.ones_like(leaf)
        if "attention/" in name and name.endswith("kernel"):
            rows = basis if "output" not in name else basis.T
            return np.broadcast_to(np.asarray(rows), leaf.shape)
        return leaf

    words = wide(gpt2.params["words"]["embedding"])
    words = words - words.mean(0) - words.mean(1, keepdims=True) + words.mean()
    values, vectors = np.linalg.eigh(words.T @ words)
    half = vectors[:, -8:] / values[-8:] ** 0.25
    basis = np.concatenate([half, half], 1)
    circuits = fa.head_circuits(changed(gpt2, change))
    np.testing.assert_allclose(circuits.prefix_matching["decoder"][1], 1, atol=1e-4)
