# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes: tokens of a text, bytes of its attention records, and the memory that a job will take.

A job knows the sizes of its own arrays; to these are added the process as it is, and the compiler.
"""

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from flaxattn.errors import InputError
from flaxattn.files import readable_size
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.models.modernbert_config import EncoderConfig
from flaxattn.models.rnn_config import EncoderDecoderConfig, RnnConfig
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.model_types import ModelConfig
from flaxattn.pretrained.pretrained_encoders import (
    PretrainedBert,
    PretrainedRnnClassifier,
    PretrainedT5Encoder,
)
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.token_batch import Reader
from flaxattn.text.tokenizer import Tokenizer

_ITEM = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}
_FLOAT = 4


class TextSize(NamedTuple):
    """Tokens of a text as a model reads it.

    Attributes:
        source: tokens of the text, or of the pair read as one sequence; special ones counted.
        target: tokens of the target, 0 where there is none. Of a target that the model will
            write, the most that it does by default.
        source_cut: how many more there would be, were the model not too short.
        target_cut: of the target.
        limit: most tokens that the model takes.
    """

    source: int
    target: int
    source_cut: int
    target_cut: int
    limit: int


class AttentionSize(NamedTuple):
    """One attention of a model: its size, and whether queries and keys come from the target.

    The width is that of the hidden states of its layers; 0 where these are not recorded.
    """

    name: str
    layers: int
    heads: int
    depth: int
    width: int
    target_queries: bool
    target_keys: bool


Measure = Callable[[Sequence[str], Sequence[str] | None], list[TextSize]]


def measure_for(model: Pretrained, pairs: bool) -> Measure:
    """Return a function that measures the sizes of many texts in one call."""
    reader, config = model.tokenizer, model.config
    if reader is None:
        raise InputError(
            f"The model {model.name!r} came without a tokenizer, so it cannot read text.\n"
            "Put tokenizer.json or vocab.txt into its directory."
        )
    limit = model.limit
    if isinstance(model, PretrainedBert):
        assert isinstance(reader, Tokenizer)
        limit = min(limit, reader.max_length or limit)
        return lambda texts, seconds: _one_sequence(reader.count(texts, seconds), limit)
    alone = isinstance(model, PretrainedT5Encoder | PretrainedRnnClassifier)
    if alone or isinstance(config, GPT2Config | DecoderConfig):
        if pairs:
            raise InputError(
                f"The model {model.name!r} is a {config.architectures[0]}, which reads no pairs.\n"
                "Leave the column of the second text out."
            )
        return lambda texts, _: _one_sequence(reader.count(texts), limit)
    writer = model.target_reader or reader
    return lambda texts, targets: _two_sequences(reader, writer, texts, targets, limit)


def sides(config: ModelConfig) -> tuple[AttentionSize, ...]:
    """The attentions of a model."""
    if isinstance(config, EncoderConfig):
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        size = (layers, heads, config.head_size, config.hidden_size)
        return (AttentionSize("encoder", *size, False, False),)
    if isinstance(config, GPT2Config | DecoderConfig):
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        size = (layers, heads, config.head_size, config.hidden_size)
        return (AttentionSize("decoder", *size, True, True),)
    if isinstance(config, RnnConfig):
        return (AttentionSize("cross", 1, 1, config.encoded_size, 0, True, False),)
    read, wrote = config.encoder_attention_heads, config.decoder_attention_heads
    inner, depth = (config.head_dim or config.d_model // heads for heads in (read, wrote))
    width = config.d_model
    encoder = AttentionSize("encoder", config.encoder_layers, read, inner, width, False, False)
    if not config.decoder_layers:
        return (encoder,)
    return (
        encoder,
        AttentionSize("decoder", config.decoder_layers, wrote, depth, width, True, True),
        AttentionSize("cross", config.decoder_layers, wrote, depth, 0, True, False),
    )


def raw_bytes(capture: Capture, which: Sequence[AttentionSize], size: TextSize) -> int:
    """Bytes of the arrays that a request yields for one text, before compression."""
    return sum(_of_side(capture, side, size) for side in which)


def _of_side(capture: Capture, side: AttentionSize, size: TextSize) -> int:
    single = side.name == "decoder" and not size.target  # a language model's text is its source
    queries = size.target if side.target_queries and not single else size.source
    keys = size.target if side.target_keys and not single else size.source
    entries = _within(capture.query_window, queries) * _within(capture.key_window, keys)
    each = entries * (_ITEM[capture.dtype] * capture.weights + _FLOAT * capture.scores)
    number = _ITEM[capture.vector_dtype or "float32"]
    each += number * side.depth * queries * (capture.query + capture.head_output)
    each += number * side.depth * keys * (capture.key + capture.value)
    for name in capture.keys:
        width = capture.topk if name.startswith("topk_") else 1
        each += _FLOAT * width * (keys if name == "received" else queries)
    layers = side.layers if capture.layers is None else len(capture.layers)
    heads = side.heads if capture.heads is None else len(capture.heads)
    return layers * (heads * each + number * side.width * queries * capture.hidden)


def _within(window: tuple[int, int] | None, length: int) -> int:
    return length if window is None else max(0, min(window[1], length) - window[0])


def _one_sequence(counts: Sequence[int], limit: int) -> list[TextSize]:
    return [TextSize(min(n, limit), 0, max(0, n - limit), 0, limit) for n in counts]


def _two_sequences(
    reader: Reader,
    writer: Reader,
    texts: Sequence[str],
    targets: Sequence[str] | None,
    limit: int,
) -> list[TextSize]:
    sources = _one_sequence(reader.count(texts), limit)
    if targets is None:
        return [s._replace(target=model_inputs.bucket(s.source + 50, limit)) for s in sources]
    wrote = _one_sequence(writer.count(targets), limit)
    both = zip(sources, wrote, strict=True)
    return [s._replace(target=t.source, target_cut=t.source_cut) for s, t in both]


# Programs of a job and the compiler, while it works: 350 to 550 MB for the built-in models.
_PROGRAMS = 450_000_000
# Requests whose traces are estimated.
TRACES: Mapping[str, Capture] = {
    "trace of the longest text with weights": Capture(weights=True),
    "trace of the longest text with statistics": Capture(stats=("lse", "entropy", "max", "argmax")),
}
_STATES = 8  # arrays as wide as the hidden states or the feed-forward layer, while a block runs
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of what getrusage counts


def memory_needed(arrays: int) -> int:
    """Bytes that this process will take at most, within about half as much again."""
    present = _UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return present + _PROGRAMS + arrays


def memory_sentence(arrays: int) -> str:
    """Say how much memory a job needs."""
    return f"about {readable_size(memory_needed(arrays))} of memory"


def parameter_bytes(params: Any) -> int:
    """Bytes of parameters, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))


def model_memory(model: Pretrained) -> dict[str, int]:
    """Bytes of the arrays of a model: its parameters, and with them each of `TRACES`.

    A trace is of one text as long as the model takes, and of a target as long. It is held twice for
    a moment, when the padding is cut off.
    """
    parameters, config = parameter_bytes(model.params), model.config
    target = isinstance(config, EncoderDecoderConfig) and config.decoder_layers > 0
    size = TextSize(model.limit, model.limit if target else 0, 0, 0, model.limit)
    states = _STATES * 4 * config.hidden_size * model.limit
    found = {"parameters": parameters}
    for name, capture in TRACES.items():
        found[name] = parameters + states + 2 * raw_bytes(capture, sides(config), size)
    return found
