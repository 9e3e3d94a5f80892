# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Heads taken out for good: outputs of the mask, fewer parameters, the same numbers of heads.

A checkpoint of a pruned model is read back here; transformers 5 no longer knows `pruned_heads`.
"""

import functools
import json
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.config_base import pruned_from_hf, pruned_to_hf
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import GPT2Config
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.models.seq2seq_config import Seq2SeqConfig
from flaxattn.models.task_heads import BertForSequenceClassification
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.trace import tensor_file
from flaxattn.trace.tensor_file import accept_files
from flaxattn.trace.trace import Trace

IDS = np.array([[3, 5, 7, 9, 11], [8, 2, 6, 1, 4]], np.int32)
GONE = [(0, 1), (2, 0), (2, 3)]
MASK = np.ones((3, 4), np.float32)
for place in GONE:
    MASK[place] = 0
BERT = BertConfig(
    vocab_size=13,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=8,
    architectures=("BertForSequenceClassification",),
)
GPT2 = GPT2Config(
    vocab_size=13,
    n_positions=12,
    n_embd=16,
    n_layer=3,
    n_head=4,
    bos_token_id=0,
    eos_token_id=None,
)


@functools.cache
def model(family: str) -> Pretrained:
    kinds = {
        "bert": (BertForSequenceClassification, BERT, PretrainedBert),
        "gpt2": (DecoderLM, GPT2, PretrainedDecoder),
    }
    kind, config, handle = kinds[family]
    module = kind(config)
    params = jax.jit(module.init)(jax.random.key(0), IDS)["params"]
    noisy = jax.tree.map(
        lambda a: a + 0.3 * np.random.RandomState(a.size).standard_normal(a.shape).astype("f"),
        params,
    )
    return handle(module, noisy, None, config, family)


@functools.cache
def pruned(family: str) -> Pretrained:
    return model(family).prune(GONE)


def size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_outputs_are_those_of_the_mask(family: str) -> None:
    expected, found = model(family)(IDS, head_mask=MASK), pruned(family)(IDS)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-6)
    np.testing.assert_allclose(found.last_hidden_state, expected.last_hidden_state, atol=2e-6)
    assert np.abs(found.logits - model(family)(IDS).logits).max() > 1e-2
    per_head = 4 * (3 * (16 + 1) + 16)  # four columns of three projections, four rows of the last
    assert size(pruned(family).params) == size(model(family).params) - 3 * per_head
    again = model(family).prune({2: [3]}).prune({0: [1], 2: [0]})
    assert again.config == pruned(family).config
    jax.tree.map(np.testing.assert_array_equal, again.params, pruned(family).params)


@pytest.mark.slow
def test_a_mask_names_heads_as_before_pruning() -> None:
    mask = np.where(MASK == 1, [[0.5, 1, 1, 0], [1, 1, 1, 1], [1, 0.25, 1, 1]], 1)
    found = pruned("bert")(IDS, head_mask=mask).logits
    expected = model("bert")(IDS, head_mask=mask * MASK).logits
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [None, (0, 3)])
def test_heads_keep_their_numbers_in_a_trace(heads: tuple[int, ...] | None) -> None:
    """What is left saw the same; a head that is gone is one that had no key to attend to."""
    capture = Capture(
        weights=True, scores=True, value=True, stats=("lse", "argmax", "topk(2)"), heads=heads
    )
    handles = {"whole": model("bert"), "pruned": pruned("bert")}
    seen = {}
    for name, handle in handles.items():
        masks = {"head_mask": MASK} if name == "whole" else {}
        module = handle.module.clone(capture=capture)
        _, state = module.apply({"params": handle.params}, IDS, **masks, mutable=["intermediates"])
        seen[name] = Trace.from_variables(state).encoder
    assert seen["pruned"].heads == seen["whole"].heads == (heads or (0, 1, 2, 3))
    present = MASK[:, list(seen["whole"].heads)] == 1
    for field, nothing in {"weights": 0, "scores": -np.inf, "value": 0}.items():
        compare(*(getattr(seen[n], field) for n in ("pruned", "whole")), present, nothing, field)
    for name, nothing in {"lse": -np.inf, "argmax": -1, "topk_indices": -1}.items():
        compare(*(seen[n].stats[name] for n in ("pruned", "whole")), present, nothing, name)


def compare(found: Any, expected: Any, present: np.ndarray, nothing: float, name: str) -> None:
    axis = 3 if name == "value" else 2
    found, expected = (np.moveaxis(np.asarray(a), axis, 1) for a in (found, expected))
    np.testing.assert_allclose(found[present], expected[present], atol=2e-5, err_msg=name)
    assert (found[~present] == nothing).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_checkpoint_goes_there_and_back(family: str, tmp_path: Path) -> None:
    pruned(family).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["pruned_heads"] == {"0": [1], "2": [0, 3]}
    tensors = tensor_file.TensorFiles(tmp_path).shapes
    name = "bert.encoder.layer.{}.attention.self.query.weight"
    if family == "gpt2":
        name = "transformer.h.{}.attn.c_attn.weight"
    widths = [tensors[name.format(n)][-1 if family == "gpt2" else 0] for n in range(3)]
    assert widths == [size * (3 if family == "gpt2" else 1) for size in (12, 16, 8)]
    again = fa.from_pretrained(tmp_path)
    assert again.config == pruned(family).config
    jax.tree.map(np.testing.assert_array_equal, again.params, pruned(family).params)
    np.testing.assert_array_equal(again(IDS).logits, pruned(family)(IDS).logits)


@pytest.mark.slow
def test_a_pruned_model_writes_what_the_masked_one_finds_likeliest() -> None:
    handle = pruned("gpt2")
    written = handle.generate(input_ids=IDS[:1], max_new_tokens=4, do_sample=False)[0]
    for end in range(IDS.shape[1], len(written)):
        logits = model("gpt2")(written[None, :end], head_mask=MASK).logits[0, -1]
        assert written[end] == np.argmax(logits)


@pytest.mark.slow
@pytest.mark.parametrize("remat", [False, True])
def test_it_can_be_trained(remat: bool) -> None:
    """Gradients of what is left are those of the masked model."""

    def gradient(handle: Pretrained, **masks: Any) -> Any:
        module = handle.module.clone(remat=remat)

        def loss(params: Any) -> Any:
            return (module.apply({"params": params}, IDS, **masks).logits ** 2).sum()

        return jax.jit(jax.grad(loss))(handle.params)

    whole, less = gradient(model("bert"), head_mask=MASK), gradient(pruned("bert"))
    kernel = whole["bert"]["encoder"]["layers"]["attention"]["value"]["kernel"]
    ours = less["bert"]["encoder"]["layers"][2]["attention"]["value"]["kernel"]
    np.testing.assert_allclose(ours, kernel[2][:, 4:12], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_fresh_parameters_have_the_shapes_of_a_pruned_model() -> None:
    handle = pruned("bert")
    fresh = jax.eval_shape(handle.module.init, jax.random.key(0), IDS)["params"]
    assert jax.tree.map(np.shape, fresh) == jax.tree.map(np.shape, handle.params)


@hypothesis.given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
def test_the_setting_is_read_back(layers: list[list[int]]) -> None:
    heads = tuple(tuple(sorted(set(row))) for row in layers)
    facts = json.loads(json.dumps(pruned_to_hf(heads)))
    assert pruned_from_hf(facts.get("pruned_heads"), len(heads)) == (heads if any(heads) else ())


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ([(0, 4)], "no head 4 in layer 0.*heads 0 to 3"),
        ({3: [0]}, "no head 0 in layer 3"),
        ([(0, -1)], "no head -1"),
        ({1: [0, 1, 2, 3]}, "Layer 1 would have none of its 4 heads left"),
    ],
)
def test_heads_that_cannot_be_removed(heads: Any, words: str) -> None:
    with pytest.raises(InputError, match="(?s)" + words) as caught:
        model("bert").prune(heads)
    assert len(str(caught.value).splitlines()) <= 3


def test_an_encoder_decoder_says_what_to_do_instead() -> None:
    config = Seq2SeqConfig(encoder_layers=1, decoder_layers=1)
    handle = PretrainedSeq2Seq(Seq2SeqLM(config), {}, None, config, "translator")
    with pytest.raises(InputError, match="cross_attn_head_mask") as caught:
        handle.prune([(0, 0)])
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"5": [0]}, "names layer 5, the model has layers 0 to 2"),
        ({"0": [7]}, r"pruned_heads of layer 0 are \[7\], expected numbers from 0 to 3"),
        ({"0": [0, 1, 2, 3]}, "leaves layer 0 without any of its 4 heads"),
        ([0], "wrong type"),
        (None, "pruned_heads of config.json are not the heads that the tensors lack"),
    ],
)
def test_a_config_that_is_wrong_about_heads(setting: Any, words: str, tmp_path: Path) -> None:
    pruned("bert").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pruned_heads": setting}))
    accept_files(tmp_path)
    with pytest.raises(CheckpointError, match=words) as caught:
        fa.from_pretrained(tmp_path)
    assert len(str(caught.value).splitlines()) <= 3
