# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The encoder-decoder by itself: its masks, its cache, its configurations, and what it refuses.

Its numbers are compared with torch's in test_family_parity.py.
"""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import make_family_golden
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.positions import sinusoids
from flaxattn.models.seq2seq import Seq2SeqLM, shifted_right
from flaxattn.trace import tensor_file

SIZES: dict[str, Any] = dict(
    vocab_size=50,
    d_model=32,
    encoder_layers=3,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=4,
    encoder_ffn_dim=40,
    decoder_ffn_dim=48,
    max_position_embeddings=24,
    init_std=0.3,
)
OWN: dict[str, Any] = dict(
    norm_first=True,
    positions="learned",
    normalize_embedding=True,
    share_encoder_decoder_embeddings=False,
    decoder_vocab_size=41,
    tie_word_embeddings=False,
)
MARIAN = make_family_golden.read("marian")["marian"]
ROOM = 12
SOURCE = np.random.default_rng(0).integers(3, 41, (2, 9))
TARGET = np.random.default_rng(1).integers(3, 41, (2, 7))
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3])


@pytest.fixture(scope="module", params=[{}, OWN], ids=["post-norm", "pre-norm"])
def model(request: pytest.FixtureRequest) -> tuple[Seq2SeqLM, Any]:
    module = Seq2SeqLM(fa.Seq2SeqConfig(**SIZES, **request.param), cache_length=ROOM)
    return module, jax.jit(module.init)(jax.random.key(0), SOURCE, MASK, TARGET)


@functools.cache
def compiled(module: Seq2SeqLM, mutable: tuple[str, ...], method: str) -> Any:
    return jax.jit(functools.partial(module.apply, mutable=list(mutable), method=method))


def apply(
    module: Seq2SeqLM,
    variables: Any,
    *given: Any,
    mutable: tuple[str, ...] = (),
    method: str = "__call__",
    **named: Any,
) -> Any:
    """`module.apply`, compiled; without the state where nothing is mutable."""
    out, state = compiled(module, mutable, method)(variables, *given, **named)
    return (out, state) if mutable else out


@pytest.mark.slow
@pytest.mark.few("pre-norm")
def test_a_trace_has_three_sides(model: tuple[Seq2SeqLM, Any]) -> None:
    module, variables = model
    _, state = apply(module, variables, SOURCE, MASK, TARGET, mutable=("intermediates",))
    trace = fa.Trace.from_variables(state)
    shapes = [s.weights.shape for s in (trace.encoder, trace.decoder, trace.cross)]
    assert shapes == [(3, 2, 2, 9, 9), (2, 2, 4, 7, 7), (2, 2, 4, 7, 9)]
    for side in (trace.encoder_attentions, trace.decoder_attentions, trace.cross_attentions):
        np.testing.assert_allclose(np.stack(side).sum(-1), 1, atol=1e-5)


@pytest.mark.few("pre-norm")
def test_asking_changes_no_number(model: tuple[Seq2SeqLM, Any]) -> None:
    module, variables = model
    plain = apply(module, variables, SOURCE, MASK, TARGET).logits
    requested, _ = apply(module, variables, SOURCE, MASK, TARGET, mutable=("intermediates",))
    np.testing.assert_allclose(requested.logits, plain, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.few("post-norm-1")
@pytest.mark.parametrize("changed", range(1, 7))
def test_a_future_token_changes_nothing_before_it(
    model: tuple[Seq2SeqLM, Any], changed: int
) -> None:
    """Exactly: not one bit."""
    module, variables = model
    other = TARGET.copy()
    other[:, changed] = 3 + (other[:, changed] - 2) % 38
    one, two = (apply(module, variables, SOURCE, MASK, t).logits for t in (TARGET, other))
    assert (one[:, :changed] == two[:, :changed]).all()
    assert (one[:, changed] != two[:, changed]).any()


def test_padding_of_the_source_changes_nothing(model: tuple[Seq2SeqLM, Any]) -> None:
    module, variables = model
    other = np.where(MASK == 1, SOURCE, 5)
    one, two = (apply(module, variables, s, MASK, TARGET).logits for s in (SOURCE, other))
    np.testing.assert_array_equal(one, two)


@pytest.mark.few("post-norm")
@pytest.mark.parametrize(
    "first", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(7, marks=pytest.mark.slow)]
)
def test_a_cache_changes_nothing(model: tuple[Seq2SeqLM, Any], first: int) -> None:
    """The first tokens at once, the others one by one; what attention saw is the same too."""
    module, variables = model
    whole, state = apply(module, variables, SOURCE, MASK, TARGET, mutable=("intermediates",))
    trace = fa.Trace.from_variables(state)
    encoded = apply(module, variables, SOURCE, MASK, method="encode")
    cache: dict[str, Any] = {}
    begin, scores = 0, []
    for end in [first, *range(first + 1, 8)]:
        places = np.broadcast_to(np.arange(begin, end), (2, end - begin))
        logits, state = apply(
            module,
            {**variables, **cache},
            TARGET[:, begin:end],
            encoded,
            MASK,
            position_ids=places,
            mutable=("cache", "intermediates"),
            method="decode",
        )
        cache = {"cache": state["cache"]}
        step = fa.Trace.from_variables(state)
        np.testing.assert_allclose(
            step.cross.weights, trace.cross.weights[:, :, :, begin:end], atol=1e-5
        )
        own = step.decoder.weights[..., :end]
        np.testing.assert_allclose(own, trace.decoder.weights[:, :, :, begin:end, :end], atol=1e-5)
        scores.append(logits)
        begin = end
    np.testing.assert_allclose(jnp.concatenate(scores, 1), whole.logits, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_sequences_may_share_a_cached_source(model: tuple[Seq2SeqLM, Any]) -> None:
    """Three continuations of each source, as beams: the same as with the source three times.

    All see the start token, which was read once, and each its own token after it.
    """
    module, variables = model
    thrice = lambda a: np.repeat(a, 3, axis=0)  # noqa: E731
    rows = lambda a: jnp.pad(a, [(0, 0), (0, 0), (0, 2), (0, 0), (0, 0)])  # noqa: E731
    visible = np.zeros((2, 3, 3, ROOM), bool)
    visible[:, :, 0, 0] = visible[:, range(3), range(3), 1] = True
    encoded = apply(module, variables, SOURCE, MASK, method="encode")
    start = TARGET[:, :1]
    _, state = apply(module, variables, start, encoded, MASK, mutable=("cache",), method="decode")
    paths = jax.tree_util.tree_map_with_path(
        lambda path, a: a if "cross" in str(path) or a.ndim < 2 else rows(a),
        state["cache"],
    )
    following = np.arange(3, 9)[:, None]
    step, _ = apply(
        module,
        {**variables, "cache": paths},
        following,
        encoded,
        MASK,
        visible.reshape(6, -1),
        position_ids=np.ones((6, 1), int),
        mutable=("cache",),
        method="decode",
    )
    written = np.concatenate([thrice(start), following], axis=1)
    whole = apply(module, variables, thrice(SOURCE), thrice(MASK), written).logits
    # Batches of another shape are summed in another order, which large numbers feel most.
    np.testing.assert_allclose(step[:, 0], whole[:, 1], rtol=2e-6, atol=1e-5)


def test_sinusoids_have_the_published_periods() -> None:
    """PE(pos, 2i) = sin(pos / 10000^(2i / E)), PE(pos, 2i + 1) = cos; here sines come first."""
    table = sinusoids(50, 8)
    for position in (0, 1, 7, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[position, i] == pytest.approx(np.sin(angle), abs=1e-6)
            assert table[position, 4 + i] == pytest.approx(np.cos(angle), abs=1e-6)


def test_the_published_sizes() -> None:
    def parameters(config: fa.Seq2SeqConfig) -> float:
        ids = jnp.zeros((1, 1), int)
        tree = jax.eval_shape(Seq2SeqLM(config).init, jax.random.key(0), ids)
        return sum(leaf.size for leaf in jax.tree.leaves(tree)) / 1e6

    assert parameters(fa.Seq2SeqConfig()) == pytest.approx(65, rel=0.05)
    assert parameters(fa.Seq2SeqConfig.big()) == pytest.approx(213, rel=0.02)
    assert fa.Seq2SeqConfig.tiny().d_model == 128


@pytest.mark.parametrize("settings", [{}, OWN, {"norm_first": True}])
def test_a_config_comes_back_from_its_file(settings: dict[str, Any]) -> None:
    config = fa.Seq2SeqConfig(**SIZES, **settings)
    text = json.loads(json.dumps(config.to_hf()))
    assert fa.Seq2SeqConfig.from_hf(text) == config
    assert text["model_type"] == ("flaxattn-seq2seq" if settings else "marian")


def test_shifted_right_begins_with_the_start_token() -> None:
    config = fa.Seq2SeqConfig(decoder_start_token_id=9)
    assert shifted_right(np.array([[4, 5, 6]]), config).tolist() == [[9, 4, 5]]


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fa.from_pretrained(written(tmp_path_factory.mktemp("model")))


def written(folder: Path, **changes: Any) -> Path:
    """The checkpoint of a Marian, with other settings."""
    MARIAN.write(folder)
    (folder / "config.json").write_text(json.dumps(MARIAN.config | changes))
    return folder


@pytest.mark.slow
def test_labels_are_what_the_decoder_shall_write(handle: Any) -> None:
    start = handle.config.decoder_start_token_id
    read = np.concatenate([np.full((2, 1), start), TARGET[:, :-1]], axis=1)
    one = handle(SOURCE, MASK, labels=TARGET)
    two = handle(SOURCE, MASK, decoder_input_ids=read)
    assert (one.logits == two.logits).all() and one.cross_attentions is None
    padded = np.where(np.arange(7) < 4, TARGET, -100)
    three = handle(SOURCE, MASK, labels=padded)
    assert (three.logits[:, :4] == one.logits[:, :4]).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input_ids": [[99]]}, "input_ids: expected values from 0 to 66 (vocab_size), received"),
        ({"labels": [[3, 70], [4, 5]]}, "labels: expected values from 0 to 66 (size of the target"),
        ({"decoder_input_ids": [[3], [4], [5]]}, "expected 2 sequences as input_ids has, received"),
        ({"decoder_attention_mask": [[1]]}, "expected shape [2, 9] as decoder_input_ids has"),
        ({"labels": [[3] * 41] * 2}, "labels: 41 positions, the limit of this model is 40."),
    ],
)
def test_what_a_call_refuses(handle: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        handle(**{"input_ids": SOURCE, "attention_mask": None, **given})
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_layers": 3}, "encoder_layers is 3, the tensors have 2 layers"),
        ({"d_model": 30}, "d_model 30 is not a multiple of encoder_attention_heads 4"),
        ({"decoder_ffn_dim": 44}, "decoder_ffn_dim is 44 in config.json, 40 in the tensors"),
        ({"normalize_before": True}, "normalize_before is True; flaxattn's marian implements"),
        ({"decoder_vocab_size": 66}, "both sides share one embedding"),
        ({"activation_function": "mish"}, "activation_function is 'mish'; flaxattn has gelu"),
    ],
)
def test_checkpoints_that_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError) as error:
        fa.from_pretrained(written(tmp_path, **changes))
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


def test_copies_of_older_versions_are_compared(tmp_path: Path) -> None:
    """They wrote shared embeddings under all their names; a different one is an error."""
    folder, tensors = written(tmp_path), MARIAN.tensors()
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    names = [*(f"model.{name}" for name in copies), "lm_head.weight"]
    tensors |= {name: tensors["model.shared.weight"].copy() for name in names}
    tensors["model.encoder.embed_positions.weight"] = sinusoids(40, 32)
    tensor_file.write(folder / "model.safetensors", tensors)
    report = fa.from_pretrained(folder).report
    assert len(report.ignored) == 4 and not report.unexpected and not report.missing
    tensors["lm_head.weight"][0, 0] += 1
    tensor_file.write(folder / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=r"ties lm_head\.weight to shared\.weight"):
        fa.from_pretrained(folder)


def test_num_labels_is_for_classifiers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="encoder-decoders have no classifier"):
        fa.from_pretrained(written(tmp_path), num_labels=3)
