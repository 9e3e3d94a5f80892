# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors of Hugging Face and TransformerLens become the trace of the same numbers, or are refused.

A stand-in for torch's tensors answers only what the importers may ask; the last test uses torch.
"""

import sys
import types
from collections import UserDict

import numpy as np
import pytest

from flaxattn import head_view
from flaxattn.errors import InputError
from flaxattn.trace.other_libraries import from_huggingface, from_transformer_lens
from flaxattn.trace.trace import Trace

RNG = np.random.default_rng(0)


class Tensor:
    """What a torch tensor that is part of a graph allows."""

    def __init__(self, array, detached=False, dtype=None):
        self.array, self.detached = array, detached
        self.dtype = dtype or f"torch.{array.dtype}"
        self.shape = array.shape

    def detach(self):
        return Tensor(self.array, True, self.dtype)

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.array.astype(np.float32), self.detached)

    def numpy(self):
        assert self.detached and self.dtype != "torch.bfloat16"
        return self.array

    def __array__(self, *_):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


def shares(*shape):
    return RNG.dirichlet(np.full(shape[-1], 0.5), shape[:-1]).astype(np.float32)


def causal(*shape):
    weights = np.tril(shares(*shape)) + 1e-9 * np.eye(shape[-1], dtype=np.float32)
    return weights / weights.sum(-1, keepdims=True)


def names(batch, length, letter="t"):
    return [[f"{letter}{b}{i}" for i in range(length)] for b in range(batch)]


def test_a_tuple_of_torch_tensors():
    layers = shares(2, 3, 4, 5, 5)
    trace = from_huggingface(tuple(map(Tensor, layers)), names(3, 5), model="mine")
    np.testing.assert_array_equal(trace.encoder.weights, layers)
    assert (trace.tokens, trace.model, trace.layers) == (names(3, 5), "mine", (0, 1))
    assert "torch" not in sys.modules or Tensor.__module__ != "torch"
    head_view(trace)


def test_bfloat16_of_torch_is_widened():
    layer = Tensor(shares(1, 1, 3, 3), dtype="torch.bfloat16")
    assert from_huggingface([layer], names(1, 3)).encoder.weights.dtype == np.float32
    assert Trace.from_arrays([layer], names(1, 3)).encoder.weights.dtype == np.float32


def test_a_single_sequence_without_its_batch_axis():
    layers = shares(2, 4, 5, 5)
    trace = from_huggingface(list(layers), names(1, 5)[0])
    np.testing.assert_array_equal(trace.encoder.weights, layers[:, None])
    assert trace.tokens == names(1, 5)


def test_what_sees_only_what_is_before_it_is_a_decoder():
    weights = causal(2, 1, 3, 4, 4)
    trace = from_huggingface(types.SimpleNamespace(attentions=tuple(weights)), names(1, 4))
    assert trace.encoder is None
    np.testing.assert_array_equal(trace.decoder.weights, weights)
    assert from_huggingface(tuple(weights), names(1, 4), side="encoder").decoder is None
    head_view(trace)


def test_three_sides_of_an_encoder_decoder():
    outputs = {
        "encoder_attentions": tuple(shares(3, 2, 2, 5, 5)),
        "decoder_attentions": tuple(causal(2, 2, 4, 3, 3)),
        "cross_attentions": tuple(shares(2, 2, 4, 3, 5)),
        "logits": None,
    }
    mask = np.array([[1] * 5, [1, 1, 1, 0, 0]])
    trace = from_huggingface(outputs, names(2, 5), names(2, 3, "d"), mask=mask)
    for name in outputs:
        if name != "logits":
            np.testing.assert_array_equal(np.stack(getattr(trace, name)), np.stack(outputs[name]))
    assert trace[1].tokens == [["t10", "t11", "t12"]]
    assert trace[1].cross.weights.shape == (2, 1, 4, 3, 3)


def test_steps_of_generate_are_put_together():
    whole, cross = causal(2, 1, 3, 4, 4), shares(2, 1, 3, 4, 6)
    steps = [tuple(whole[:, :, :, t : t + 1, : t + 1]) for t in range(4)]
    reads = [tuple(cross[:, :, :, t : t + 1]) for t in range(4)]
    outputs = UserDict(
        encoder_attentions=tuple(shares(1, 1, 3, 6, 6)),
        decoder_attentions=tuple(steps),
        cross_attentions=tuple(reads),
    )
    trace = from_huggingface(outputs, names(1, 6), names(1, 4, "d"))
    np.testing.assert_array_equal(trace.decoder.weights, whole)
    np.testing.assert_array_equal(trace.cross.weights, cross)
    prompt = [tuple(whole[:, :, :, :2, :2]), *steps[2:]]
    trace = from_huggingface({"attentions": tuple(prompt)}, names(1, 4))
    np.testing.assert_array_equal(trace.decoder.weights, whole)


def test_rows_of_padding_are_not_looked_at():
    weights = shares(1, 1, 2, 4, 4)
    weights[..., 3, :] = 0
    trace = from_huggingface(tuple(weights), names(1, 4), mask=[[1, 1, 1, 0]])
    assert trace[0].encoder.weights.shape == (1, 1, 2, 3, 3)


@pytest.mark.parametrize(
    ("outputs", "tokens", "message"),
    [
        ((), names(1, 4), "No attention is in this tuple: expected one of attentions"),
        ({"logits": 1}, names(1, 4), "No attention is in this dict"),
        ({"attentions": (None, None)}, names(1, 4), "output_attentions=True"),
        (tuple(shares(2, 1, 2, 4, 4)[..., None]), names(1, 4), "expected layers of one shape"),
        ((shares(1, 2, 4, 4), shares(1, 2, 3, 3)), names(1, 4), r"received \(1, 2, 4, 4\), \(1"),
        (tuple(shares(2, 1, 2, 4, 4)), names(1, 5), "received tokens of 1 sequences of length 5"),
        (tuple(shares(2, 1, 2, 4, 4)), names(2, 4), "received tokens of 2 sequences"),
        (tuple(2 * shares(2, 1, 2, 4, 4)), names(1, 4), r"query 0 sums to 2 over its keys, not to"),
        (tuple(shares(2, 1, 2, 4, 4) * np.nan), names(1, 4), "sums to nan over its keys"),
    ],
)
def test_what_does_not_fit_is_refused_in_three_lines(outputs, tokens, message):
    with pytest.raises(InputError, match=message) as caught:
        from_huggingface(outputs, tokens)
    assert len(str(caught.value).splitlines()) <= 3


def lens(stacks, batch=True):
    """A cache like that of TransformerLens."""
    cache = {"hook_embed": np.zeros(3)}
    for stack, kind, layers, queries, keys in stacks:
        for n in layers:
            start = f"{stack}.{n}.{kind}.hook_"
            weights = (
                causal(1, 4, queries, keys) if stack == "blocks" else shares(1, 4, queries, keys)
            )
            cache[start + "pattern"] = weights
            cache[start + "attn_scores"] = np.log(np.maximum(weights, 1e-30))
            for name, length in (("q", queries), ("k", keys), ("v", keys), ("z", queries)):
                cache[start + name] = RNG.normal(size=(1, length, 4, 3)).astype(np.float32)
    return cache if batch else {n: a[0] if a.ndim > 1 else a for n, a in cache.items()}


@pytest.mark.parametrize("batch", [True, False])
def test_a_cache_of_transformer_lens(batch):
    cache = lens([("blocks", "attn", (1, 10), 5, 5)], batch)
    trace = from_transformer_lens({n: Tensor(a) for n, a in cache.items()}, names(1, 5)[0])
    assert (trace.layers, trace.heads, trace.encoder) == ((1, 10), (0, 1, 2, 3), None)
    fields = {"weights": "pattern", "scores": "attn_scores", "query": "q", "key": "k"}
    for field, hook in {**fields, "value": "v", "head_output": "z"}.items():
        given = cache[f"blocks.10.attn.hook_{hook}"]
        shown = getattr(trace.decoder, field)[1]
        np.testing.assert_array_equal(shown if batch else shown[0], given)
    head_view(trace)


def test_a_cache_of_an_encoder_decoder():
    sides = [
        ("encoder", "attn", (0, 1), 5, 5),
        ("decoder", "attn", (0,), 3, 3),
        ("decoder", "cross_attn", (0,), 3, 5),
    ]
    cache = lens(sides)
    trace = from_transformer_lens(cache, names(1, 5), names(1, 3, "d"))
    np.testing.assert_array_equal(
        trace.cross.weights[0], cache["decoder.0.cross_attn.hook_pattern"]
    )
    assert trace.encoder.layers == (0, 1) and trace.decoder.weights.shape[-1] == 3


def test_heads_that_share_a_key_each_get_it():
    cache = lens([("blocks", "attn", (0,), 4, 4)])
    cache["blocks.0.attn.hook_k"] = cache["blocks.0.attn.hook_k"][:, :, :2]
    trace = from_transformer_lens(cache, names(1, 4))
    keys = trace.decoder.key
    np.testing.assert_array_equal(keys[..., 0, :], keys[..., 1, :])
    np.testing.assert_array_equal(keys[0][..., 2, :], cache["blocks.0.attn.hook_k"][..., 1, :])


@pytest.mark.parametrize("batch", [True, False])
def test_queries_and_keys_of_a_rotary_model_are_those_after_the_rotation(batch):
    """Of Llama and NeoX a cache has them before and after; scores are made of the latter."""
    layers = (0, 1)
    cache = lens([("blocks", "attn", layers, 4, 4)], batch)
    for layer in layers:
        start = f"blocks.{layer}.attn.hook_"
        for name in ("q", "k"):
            axes = (1, 4, 4 if name == "q" else 2, 3)  # two queries share a key
            plain, turned = RNG.normal(size=(2, *axes)).astype(np.float32)
            cache[start + name] = plain if batch else plain[0]
            cache[start + f"rot_{name}"] = turned if batch else turned[0]
    trace = from_transformer_lens(cache, names(1, 4))
    for layer in layers:
        query = cache[f"blocks.{layer}.attn.hook_rot_q"].reshape(1, 4, 4, 3)
        key = cache[f"blocks.{layer}.attn.hook_rot_k"].reshape(1, 4, 2, 3)
        np.testing.assert_array_equal(trace.decoder.query[layer], query)
        np.testing.assert_array_equal(trace.decoder.key[layer], np.repeat(key, 2, axis=2))
    alone = {n: a for n, a in cache.items() if not n.endswith(("hook_q", "hook_k"))}
    again = from_transformer_lens(alone, names(1, 4))
    np.testing.assert_array_equal(again.decoder.query, trace.decoder.query)
    del cache["blocks.1.attn.hook_rot_k"]
    with pytest.raises(InputError, match=r"hook_rot_k is missing in layers 1; layers 0, 1 were"):
        from_transformer_lens(cache, names(1, 4))


def test_what_is_missing_in_a_cache_is_reported():
    cache = lens([("blocks", "attn", (0, 1, 2), 4, 4)])
    del cache["blocks.1.attn.hook_k"]
    with pytest.raises(InputError) as caught:
        from_transformer_lens(cache, names(1, 4))
    assert str(caught.value) == (
        "blocks.*.attn.hook_k is missing in layers 1; layers 0, 1, 2 were cached.\n"
        "Cache the same hooks in every layer you want, or drop the layers without them."
    )
    with pytest.raises(InputError, match=r"expected names such as blocks\.0\.attn\.hook_pattern"):
        from_transformer_lens({"hook_embed": 1}, names(1, 4))
    cache = lens([("blocks", "attn", (0,), 4, 4)])
    cache["blocks.0.attn.hook_pattern"] = cache["blocks.0.attn.hook_attn_scores"]
    with pytest.raises(InputError, match="sums to"):
        from_transformer_lens(cache, names(1, 4))


@pytest.mark.parity
def test_outputs_of_torch_transformers():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 30, "n_positions": 12}
    config = transformers.GPT2Config(**small, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.tensor([[3, 4, 5]])
    called = model(ids, output_attentions=True)
    trace = from_huggingface(called, names(1, 3))
    for ours, theirs in zip(trace.attentions, called.attentions, strict=True):
        np.testing.assert_array_equal(ours, theirs.detach().numpy())
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    trace = from_huggingface(made, names(1, 5))
    whole = model(made.sequences[:, :-1], output_attentions=True).attentions
    theirs = torch.stack(whole).detach().numpy()
    np.testing.assert_allclose(trace.decoder.weights, theirs, atol=1e-6)


# How a step of `generate` shows a layer: of (weights of all positions, queries from, to, window).
CACHES = {
    "growing": lambda a, start, end, window: a[..., start:end, :end],
    "fixed": lambda a, start, end, window: np.pad(
        a[..., start:end, :end], [(0, 0)] * 3 + [(0, 20 - end)]
    ),
    "window": lambda a, start, end, window: a[
        ..., start:end, 0 if start == 0 else max(0, end - window) : end
    ],
    "fixed window": lambda a, start, end, window: np.pad(
        a[..., start:end, 0 if start == 0 else max(0, end - window) : end],
        [(0, 0)] * 3 + [(0, 0 if start == 0 else max(0, window - end))],
    ),
    "none": lambda a, start, end, window: a[..., :end, :end],
}


@pytest.mark.parametrize("beams", [False, True])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(("prompt", "window", "written"), [(1, 3, 5), (4, 3, 4), (6, 8, 3)])
def test_every_cache_and_beams(cache, beams, prompt, window, written):
    """Each returned sequence has the weights of one pass over it, whatever a step showed."""
    random, rows = np.random.default_rng(prompt), 3
    whole = causal(2, rows, 2, prompt + written - 1, prompt + written - 1)
    keys = np.arange(whole.shape[3])
    hidden = keys[:, None] - keys[None] >= window
    if "window" in cache:
        whole[0] = np.where(hidden, 0, whole[0])
        whole[0] /= whole[0].sum(-1, keepdims=True)
    lineage = np.stack([random.permutation(rows) for _ in range(written)], axis=1)
    lineage[0, -1] = -1 if beams and written > 4 else lineage[0, -1]
    steps = []
    for step in range(written):
        start, end = (0, prompt) if step == 0 else (prompt + step - 1, prompt + step)
        layers = [CACHES[cache](whole[0], start, end, window)]
        layers.append(
            CACHES["growing" if "window" in cache else cache](whole[1], start, end, window)
        )
        if beams:  # hypothesis `lineage[s, step]` continues sequence s
            order = np.argsort(np.maximum(lineage[:, step], 0), kind="stable")
            if lineage[0, step] == -1:
                free = (set(range(rows)) - set(lineage[1:, step])).pop()
                order = np.argsort(np.where(lineage[:, step] < 0, free, lineage[:, step]))
            layers = [layer[order] for layer in layers]
        steps.append(tuple(layers))
    outputs = {"attentions": tuple(steps), "sequences": np.zeros((rows, prompt + written))}
    if beams:
        outputs["beam_indices"] = lineage
    trace = from_huggingface(outputs, names(rows, whole.shape[3]), side="decoder")
    real = np.ones(whole.shape[1:4:2], bool)
    if (lineage < 0).any():
        real[0, -1] = False
        np.testing.assert_array_equal(trace.mask, real)
    expected = np.where(real[None, :, None, :, None], whole, 0)
    np.testing.assert_allclose(trace.decoder.weights, expected, atol=1e-7)


def test_beams_without_their_indices_are_refused():
    steps = tuple((shares(3, 1, 1, t + 1),) for t in range(3))
    outputs = {"attentions": steps, "sequences": np.zeros((1, 4))}
    with pytest.raises(InputError, match=r"3 hypotheses, and 1 sequences(.|\n)*beam_indices"):
        from_huggingface(outputs, names(1, 3))


def test_steps_without_a_batch_axis():
    whole = causal(2, 1, 3, 4, 4)
    steps = [tuple(whole[:, 0, :, t : t + 1, : t + 1]) for t in range(4)]
    trace = from_huggingface({"attentions": tuple(steps)}, names(1, 4))
    np.testing.assert_array_equal(trace.decoder.weights, whole)


@pytest.mark.parametrize("outputs", [(None, None), ((None, None), (None, None)), ()])
def test_attention_that_was_not_returned_names_the_cure(outputs):
    for given in (outputs, {"attentions": outputs}):
        with pytest.raises(InputError, match='attn_implementation="eager"'):
            from_huggingface(given, names(1, 2))


def test_sides_without_tokens_are_refused():
    outputs = {
        "encoder_attentions": tuple(shares(1, 1, 2, 5, 5)),
        "decoder_attentions": tuple(causal(1, 1, 2, 3, 3)),
    }
    with pytest.raises(InputError, match="received tokens of 0 sequences"):
        from_huggingface(outputs, [], names(1, 3, "d"))


def test_several_sequences_of_each_source():
    whole, cross = causal(1, 4, 2, 3, 3), shares(1, 4, 2, 3, 5)
    outputs = {
        "encoder_attentions": tuple(shares(1, 2, 2, 5, 5)),
        "decoder_attentions": tuple((whole[0, :, :, t : t + 1, : t + 1],) for t in range(3)),
        "cross_attentions": tuple((cross[0, :, :, t : t + 1],) for t in range(3)),
    }
    mask = [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    trace = from_huggingface(outputs, names(2, 5), names(4, 3, "d"), mask=mask)
    np.testing.assert_array_equal(trace.cross.weights, cross)
    np.testing.assert_array_equal(trace.encoder.weights[:, 1], outputs["encoder_attentions"][0][:1])
    assert trace.encoder.weights.shape[1] == len(trace.tokens) == len(trace.mask) == 4


GENERATE = {
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "samples": {"do_sample": True, "num_return_sequences": 3, "use_cache": False},
    "fixed cache": {"cache_implementation": "static"},
}


CALLS = [(kind, name) for kind in ("GPT2", "Gemma3", "Bart") for name in GENERATE]
CALLS.remove(("Bart", "fixed cache"))  # upstream has none


@pytest.mark.parity
@pytest.mark.parametrize(("kind", "settings"), CALLS)
def test_generate_of_torch_transformers(kind, settings):
    """Against one pass of torch over each returned sequence, up to its end."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"vocab_size": 30, "pad_token_id": 0, "eos_token_id": 7, "bos_token_id": 2}
    if kind == "GPT2":
        small |= {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 32}
        config, head = transformers.GPT2Config(**small), transformers.GPT2LMHeadModel
    elif kind == "Gemma3":
        small |= {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
        small |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
        layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
        config = transformers.Gemma3TextConfig(**small, **layers)
        head = transformers.Gemma3ForCausalLM
    else:
        small |= {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
        small |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
        small |= {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")}
        config, head = transformers.BartConfig(**small, forced_eos_token_id=None), None
        head = transformers.BartForConditionalGeneration
    config._attn_implementation = "eager"
    model = head(config).eval()
    ids = torch.tensor([[3, 4, 5, 6, 9, 11], [12, 13, 14, 15, 16, 17]])
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=6,
        output_attentions=True,
        output_scores=True,
        return_dict_in_generate=True,
        **GENERATE[settings],
    )
    read = made.sequences[:, :-1]
    count, length = read.shape
    if kind == "Bart":
        trace = from_huggingface(made, names(2, 6), names(count, length, "d"))
        sources = ids.repeat_interleave(count // 2, 0)
    else:
        trace = from_huggingface(made, names(count, length))
    for row in range(count):
        real = length if trace.mask is None and trace.decoder_mask is None else None
        if real is None:
            real = int((trace.decoder_mask if kind == "Bart" else trace.mask)[row].sum())
        given = {"output_attentions": True}
        if kind == "Bart":
            out = model(
                sources[row : row + 1], decoder_input_ids=read[row : row + 1, :real], **given
            )
            pairs = [(trace.cross, out.cross_attentions), (trace.decoder, out.decoder_attentions)]
        else:
            out = model(read[row : row + 1, :real], **given)
            pairs = [(trace.decoder, out.attentions)]
        for record, theirs in pairs:
            theirs = torch.stack(theirs).detach().numpy()[:, 0]
            ours = record.weights[:, row, :, :real, : theirs.shape[-1]]
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
