# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Masks of heads, in every family: exact where nothing is masked, and the model without the head.

The truth is a projection whose rows for the head are zero, and torch with the head's output
multiplied on its way into the projection (transformers 5 has no `head_mask` of its own).
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.bert import Bert
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import GPT2Config
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.models.seq2seq_config import RnnConfig, Seq2SeqConfig
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq

IDS = np.array([[3, 5, 7, 9, 11, 4], [8, 2, 6, 1, 0, 0]], np.int32)
MASK = np.array([[1] * 6, [1] * 4 + [0] * 2], np.int32)
BERT = BertConfig(
    vocab_size=13,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=8,
)
GPT2 = GPT2Config(
    vocab_size=13,
    n_positions=8,
    n_embd=16,
    n_layer=2,
    n_head=4,
    bos_token_id=0,
    eos_token_id=0,
)
SEQ2SEQ = Seq2SeqConfig(
    vocab_size=13,
    d_model=16,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=24,
    decoder_ffn_dim=24,
    max_position_embeddings=8,
    decoder_start_token_id=1,
)
FAMILIES = {
    "bert": (Bert, BERT, PretrainedBert),
    "gpt2": (DecoderLM, GPT2, PretrainedDecoder),
    "seq2seq": (Seq2SeqLM, SEQ2SEQ, PretrainedSeq2Seq),
}
# Every argument that masks heads: of which family, and where their projection is.
PLACES = {
    "bert head_mask": ("encoder", "attention"),
    "gpt2 head_mask": ("model/decoder", "attention"),
    "seq2seq head_mask": ("model/encoder", "attention"),
    "seq2seq decoder_head_mask": ("model/decoder", "attention"),
    "seq2seq cross_attn_head_mask": ("model/decoder", "cross_attention"),
}


@functools.cache
def model(family: str) -> Pretrained:
    """A model whose attention is peaked and whose every parameter matters."""
    kind, config, handle = FAMILIES[family]
    module = kind(config)
    params = jax.jit(module.init)(jax.random.key(0), IDS)["params"]
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [a + 0.3 * jax.random.normal(k, a.shape) for a, k in zip(leaves, keys, strict=True)]
    return handle(module, jax.tree.unflatten(tree, noisy), None, config, family)


def output(handle: Pretrained, **options: Any) -> np.ndarray:
    return np.asarray(handle(IDS, MASK, **options).last_hidden_state)


def without_rows(params: Any, place: str, layer: int, head: int) -> Any:
    """Parameters whose output projection does not read a head of four numbers."""
    stack, attention = PLACES[place]
    path = [*stack.split("/"), "layers", attention, "output", "kernel"]

    def change(tree: Any, names: list[str]) -> Any:
        if not names:
            return tree.at[layer, 4 * head : 4 * head + 4].set(0)
        return {**tree, names[0]: change(tree[names[0]], names[1:])}

    return change(params, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [pytest.param(p, marks=[] if "bert" in p else pytest.mark.slow) for p in PLACES]
)
def test_a_mask_is_the_model_without_the_head(place: str) -> None:
    family, argument = place.split()
    whole = model(family)
    mask = np.ones((2, 4), np.float32)
    mask[1, 2] = 0
    found = output(whole, **{argument: mask})
    params = without_rows(whole.params, place, 1, 2)
    expected = output(dataclasses.replace(whole, params=params))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.abs(found - output(whole)).max() > 1e-2, "the head matters"


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_mask_of_ones_changes_no_bit(place: str) -> None:
    family, argument = place.split()
    np.testing.assert_array_equal(
        output(model(family), **{argument: np.ones(4)}), output(model(family))
    )


@pytest.mark.slow
@pytest.mark.few("bert")
@pytest.mark.parametrize("family", FAMILIES)
def test_no_mask_costs_nothing(family: str) -> None:
    """The program is the one of a model that has never heard of masks: no factor is in it."""
    handle = model(family)

    def text(**masks: Any) -> str:
        def run(params: Any, masks: Any) -> Any:
            return handle.module.apply({"params": params}, IDS, **masks).last_hidden_state

        return jax.jit(run).lower(handle.params, masks).as_text()

    masks = {name: np.ones(size, np.float32) for name, size in handle.masks().items()}
    assert text() == text(**dict.fromkeys(masks, None))
    assert text().count("stablehlo.multiply") < text(**masks).count("stablehlo.multiply")


@pytest.mark.slow
def test_what_attention_saw_is_recorded_as_before_the_mask() -> None:
    whole = model("bert")
    plain = whole(IDS, MASK, output_attentions=True).attentions
    masked = whole(IDS, MASK, head_mask=np.zeros(4), output_attentions=True).attentions
    np.testing.assert_array_equal(plain[0], masked[0])
    assert np.asarray(masked[0]).sum() == pytest.approx(2 * 4 * 6, abs=1e-3)


@pytest.mark.slow
def test_a_mask_for_each_sequence() -> None:
    whole = model("bert")
    mask = np.ones((2, 2, 4), np.float32)
    mask[0, 1, 3] = 0
    given = {"attention_mask": MASK}
    apply = jax.jit(whole.module.apply)
    found = apply({"params": whole.params}, IDS, head_mask=mask, **given)
    second = output(whole, head_mask=mask[:, 1])
    np.testing.assert_allclose(found.last_hidden_state[0], output(whole)[0], atol=2e-6)
    np.testing.assert_allclose(found.last_hidden_state[1], second[1], atol=2e-6)


@pytest.mark.slow
@pytest.mark.few("options0")
@pytest.mark.parametrize("options", [{"unroll": True}, {"remat": True}, {"segments": True}])
def test_however_layers_are_run(options: dict[str, bool]) -> None:
    whole = model("bert")
    mask = np.array([[1, 0, 0.5, 1], [0.25, 1, 1, 0]], np.float32)
    settings = dict(options)
    if settings.pop("segments", False):
        settings["capture"] = Capture(weights=True, layers=(1,))
    module = whole.module.clone(**settings)
    out, _ = module.apply(
        {"params": whole.params}, IDS, MASK, head_mask=mask, mutable=["intermediates"]
    )
    np.testing.assert_allclose(out.last_hidden_state, output(whole, head_mask=mask), atol=2e-6)


@pytest.mark.slow
def test_it_can_be_mapped_and_has_a_gradient() -> None:
    """The gradient of a factor is the difference quotient; masks are vmapped into one program."""
    whole = model("gpt2")

    def loss(mask: Any) -> Any:
        out = whole.module.apply({"params": whole.params}, IDS, MASK, head_mask=mask)
        return (out.logits**2).mean()

    ones, step = np.ones((2, 4), np.float32), 1e-2
    slope = jax.grad(loss)(ones)
    steps = step * np.eye(8, dtype=np.float32).reshape(8, 2, 4)
    up, down = (jax.vmap(loss)(jnp.asarray(ones + sign * steps)) for sign in (1, -1))
    np.testing.assert_allclose(slope.ravel(), (up - down) / (2 * step), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(
    ("argument", "mask", "words"),
    [
        ("head_mask", np.ones((3, 4)), r"\[L, H\].*L = 2.*H = 4 heads, received \[3, 4\]"),
        ("head_mask", np.ones(5), r"received \[5\]"),
        ("head_mask", [[1, 2], [3]], "expected numbers"),
        ("head_mask", np.full(4, np.nan), "finite"),
        ("cross_attn_head_mask", np.ones(1), "cross_attn_head_mask"),
    ],
)
def test_bad_masks(argument: str, mask: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        output(model("seq2seq"), **{argument: mask})
    assert len(str(caught.value).splitlines()) <= 3


def test_a_recurrent_model_has_no_heads_to_mask() -> None:
    whole = model("seq2seq")
    recurrent = dataclasses.replace(whole, config=RnnConfig(vocab_size=13))
    with pytest.raises(InputError, match="no heads that can be masked"):
        recurrent._masked(head_mask=np.ones(4))


@pytest.mark.few("bert", "cross")
@pytest.mark.parity
@pytest.mark.parametrize("place", PLACES)
def test_torch_with_the_output_of_heads_multiplied(place: str, tmp_path: Path) -> None:
    """What `head_mask` was in transformers: the same factor on each head's share of the output."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    family, argument = place.split()
    whole = model(family)
    whole.save_pretrained(tmp_path)
    loaders = {
        "bert": transformers.BertModel,
        "gpt2": transformers.GPT2Model,
        "seq2seq": transformers.MarianModel,
    }
    theirs = loaders[family].from_pretrained(tmp_path, attn_implementation="eager").eval()
    mask = np.random.RandomState(0).uniform(size=(2, 4)).astype(np.float32)
    for factors, projection in zip(mask, projections(theirs, place), strict=True):
        row = torch.from_numpy(np.repeat(factors, 4))
        projection.register_forward_pre_hook(lambda _, given, row=row: (given[0] * row,))
    given = {"input_ids": IDS, "attention_mask": MASK}
    if family == "seq2seq":
        given |= {"decoder_input_ids": IDS, "decoder_attention_mask": MASK}
    with torch.no_grad():
        out = theirs(**{name: torch.from_numpy(array).long() for name, array in given.items()})
    found = np.asarray(whole(**given, **{argument: mask}).last_hidden_state)
    assert np.abs(found - np.asarray(whole(**given).last_hidden_state))[MASK == 1].max() > 1e-2
    expected = out.last_hidden_state.numpy()
    np.testing.assert_allclose(found[MASK == 1], expected[MASK == 1], atol=2e-5)


def projections(theirs: Any, place: str) -> list[Any]:
    """The modules of torch that project the outputs of heads, layer by layer."""
    return {
        "bert head_mask": lambda: [n.attention.output.dense for n in theirs.encoder.layer],
        "gpt2 head_mask": lambda: [n.attn.c_proj for n in theirs.h],
        "seq2seq head_mask": lambda: [n.self_attn.out_proj for n in theirs.encoder.layers],
        "seq2seq decoder_head_mask": lambda: [n.self_attn.out_proj for n in theirs.decoder.layers],
        "seq2seq cross_attn_head_mask": lambda: [
            n.encoder_attn.out_proj for n in theirs.decoder.layers
        ],
    }[place]()
