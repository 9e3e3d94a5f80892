# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained` and what it returns: a module, its parameters and its tokenizer in one hand.

This file puts the parts together; it computes nothing itself. Who wants `jax.grad`, `vmap` or a
mesh takes `module` and `params` from the handle and calls `module.apply`.
"""

import dataclasses
import functools
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Int

from flaxattn import hub, inputs, weights
from flaxattn.bert import ARCHITECTURES, ModelOutput
from flaxattn.config import BertConfig
from flaxattn.errors import CheckpointError, InputError
from flaxattn.kernels.contract import Capture
from flaxattn.matching import Report
from flaxattn.tokens import Encoded, Tokenizer
from flaxattn.trace import Trace

# Bits of the key classes that `trace` hands to sieves: Sieve("x", key_class=SEPARATOR).
SPECIAL, FIRST, SEPARATOR, PUNCTUATION = range(4)
_WEIGHTS = Capture(weights=True)
_DTYPES = ("float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Pretrained:
    """A model ready to use.

    Attributes:
        module: Linen module of the architecture.
        params: Its parameters, float32.
        tokenizer: None where the directory had none; `trace` needs one.
        config: Shape and settings.
        name: What it was loaded as.
        report: How the checkpoint met the model.
    """

    module: nn.Module
    params: Any
    tokenizer: Tokenizer | None
    config: BertConfig
    name: str = ""
    report: Report = dataclasses.field(default_factory=Report)

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        token_type_ids: Int[Any, "B S"] | None = None,
        position_ids: Int[Any, "B S"] | None = None,
        *,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> ModelOutput:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each shape.

        Args:
            input_ids: Word pieces; NumPy, JAX or nested lists, like the other arrays.
            attention_mask: 1 at real positions, 0 at padding; default 1.
            token_type_ids: 0 for sentence A, 1 for sentence B; default 0.
            position_ids: Default 0, 1, …, also for sequences padded on the left, as published.
            output_attentions: Whether to return `attentions`: per layer float32 `[B, H, Q, K]`,
                NumPy arrays that torch's functions and BertViz take too.
            output_hidden_states: Whether to return `hidden_states`: the embeddings and each
                layer's output.

        Returns:
            The fields that the architecture has.

        Raises:
            InputError: For a wrong shape or dtype, an id out of range, a length over the limit.
        """
        given = inputs.checked(
            {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "token_type_ids": token_type_ids,
                "position_ids": position_ids,
            },
            self.config,
        )
        module = self.module.clone(
            capture=Capture(weights=output_attentions), keep_hidden=output_hidden_states
        )
        out, seen = _run(module, self.params, given, output_attentions)
        if not output_attentions:
            return out
        return out.replace(attentions=Trace.from_variables(seen).attentions)

    def trace(
        self,
        text: str | Sequence[str],
        text_b: str | Sequence[str] | None = None,
        *,
        capture: Capture = _WEIGHTS,
        truncate: bool = False,
    ) -> Trace:
        """Read a text, a pair of texts, or several, and keep what attention saw.

        Inputs are padded to one of a few lengths, so that other texts seldom compile again; the
        trace is cut back to the longest text. Sieves may use the key classes `SPECIAL` (any piece
        the tokenizer adds), `FIRST` ([CLS]), `SEPARATOR` ([SEP]) and `PUNCTUATION` of this module.

        Args:
            text: A text, or B texts.
            text_b: The second text of each pair.
            capture: What to keep, of which layers and heads.
            truncate: Whether a text over the model's limit is cut, which the trace then tells in
                `truncated`; otherwise it is an error.

        Returns:
            The trace of B sequences.

        Raises:
            InputError: For an unknown layer or head, a model without tokenizer, an empty text, or
                one over the limit.
        """
        inputs.check_capture(capture, self.config)
        encoded = self._encode(text, text_b, truncate)
        given = inputs.padded(
            {
                "input_ids": encoded.input_ids,
                "attention_mask": encoded.attention_mask,
                "token_type_ids": encoded.token_type_ids,
                "key_classes": self._key_classes(encoded),
            },
            self.config.max_position_embeddings,
        )
        seen = _see(self.module.clone(capture=capture, keep_hidden=False), self.params, given)
        trace = Trace.from_variables(
            seen,
            tokens=encoded.tokens,
            mask=encoded.attention_mask == 1,
            segments=encoded.token_type_ids,
            words=encoded.word_ids,
            special=encoded.special,
            texts=_texts(text, text_b),
            truncated=encoded.truncated,
            model=self.name,
        )
        assert trace.encoder is not None
        cut = functools.partial(_cut, length=encoded.input_ids.shape[1])
        return dataclasses.replace(trace, encoder=trace.encoder.map(cut))

    def save_pretrained(self, directory: str | Path, dtype: str | None = None) -> None:
        """Write a directory that `from_pretrained` and torch transformers open.

        Args:
            directory: Made where absent.
            dtype: `float32` (as the parameters are), `float16` or `bfloat16` on disk.

        Raises:
            CheckpointError: If it cannot be written; then it is as it was before.
        """
        weights.save(directory, self.module, self.params, dtype=dtype, tokenizer=self.tokenizer)

    def __repr__(self) -> str:
        count = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return (
            f"Pretrained({self.name!r}: {self.config.architectures[0]}, "
            f"{self.config.num_hidden_layers} layers, {self.config.num_attention_heads} heads, "
            f"{count:,} parameters)"
        )

    def _encode(
        self, text: str | Sequence[str], text_b: str | Sequence[str] | None, truncate: bool
    ) -> Encoded:
        if self.tokenizer is None:
            raise InputError(
                f"The model {self.name!r} came without a tokenizer, so it cannot read text.\n"
                "Call it with input_ids, or put tokenizer.json or vocab.txt into its directory."
            )
        limit = self.config.max_position_embeddings
        limit = min(limit, self.tokenizer.max_length or limit)
        return self.tokenizer.encode(text, text_b, max_length=limit, truncate=truncate)

    def _key_classes(self, encoded: Encoded) -> Int[np.ndarray, "B S"]:
        assert self.tokenizer is not None
        real = encoded.attention_mask == 1
        punctuation = [[_is_punctuation(piece) for piece in row] for row in encoded.tokens]
        classes = {
            SPECIAL: encoded.special & real,
            FIRST: encoded.input_ids == self.tokenizer.cls_id,
            SEPARATOR: encoded.input_ids == self.tokenizer.sep_id,
            PUNCTUATION: np.array(punctuation) & ~encoded.special,
        }
        bits = [member.astype(np.int32) << bit for bit, member in classes.items()]
        return np.bitwise_or.reduce(bits)


def from_pretrained(
    name: str | Path,
    head: str | None = None,
    dtype: Dtype | None = None,
    *,
    num_labels: int | None = None,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Pretrained:
    """Load a model.

    Args:
        name: Name of a built-in model, a Hugging Face directory, or a Hub id, tried in this order.
        head: An architecture such as `BertForMaskedLM`, or `base` for the encoder alone; default
            what the checkpoint was saved as. Weights of a head that the checkpoint lacks are
            freshly initialised, and a UserWarning says so.
        dtype: Of the computation: float32 (default), bfloat16 or float16; parameters are float32.
        num_labels: Number of classes of a new classifier.
        revision: Branch, tag or commit on the Hub.
        cache_dir: Where the Hub's files are kept.
        local_files_only: Do not use the network; `HF_HUB_OFFLINE=1` does the same.

    Returns:
        The model.

    Raises:
        CheckpointError: If there is no such model, or its files do not make a whole one.
        UnavailableError: If the Hub would be needed but cannot be reached.
        InputError: For an unknown head or dtype.
    """
    kind = jnp.dtype("float32" if dtype is None else dtype)
    if kind.name not in _DTYPES:
        raise InputError(f"dtype {kind.name}: expected one of {', '.join(_DTYPES)}.")
    directory = hub.find(
        name, revision=revision, cache_dir=cache_dir, local_files_only=local_files_only
    )
    config = weights.read_config(directory)
    config = dataclasses.replace(config, architectures=(_architecture(head, config),))
    if num_labels is not None and num_labels != config.num_labels:
        labels = tuple(f"LABEL_{i}" for i in range(num_labels))
        config = dataclasses.replace(config, labels=labels)
    tokenizer = _tokenizer(directory, config)
    module = ARCHITECTURES[config.architectures[0]](config, dtype=kind)
    params, report = weights.load(directory, module)
    return Pretrained(module, params, tokenizer, config, str(name), report)


def _architecture(head: str | None, config: BertConfig) -> str:
    wanted = config.architectures[0] if head is None else head
    wanted = "BertModel" if wanted == "base" else wanted
    if wanted not in ARCHITECTURES:
        kind, whose = (CheckpointError, "The checkpoint's") if head is None else (InputError, "The")
        raise kind(
            f"{whose} architecture {wanted!r} is not one that flaxattn has.\n"
            f"It has {', '.join(ARCHITECTURES)}.\n"
            'Load the encoder alone with head="base", or name one of these as head.'
        )
    return wanted


def _tokenizer(directory: Path, config: BertConfig) -> Tokenizer | None:
    if not any((directory / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
        return None
    tokenizer = Tokenizer.from_dir(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} pieces, config.json says "
            f"vocab_size {config.vocab_size}.\n"
            "Its files are not of one model; take them all from the same place."
        )
    return tokenizer


@functools.partial(jax.jit, static_argnames=("module", "record"))
def _run(module: nn.Module, params: Any, given: dict[str, Any], record: bool) -> Any:
    """The output, and what was recorded."""
    if not record:
        return module.apply({"params": params}, **given), {}
    return module.apply({"params": params}, **given, mutable=["intermediates"])


@functools.partial(jax.jit, static_argnames=("module",))
def _see(module: nn.Module, params: Any, given: dict[str, Any]) -> Any:
    """Only what was recorded: pooler, heads and the end of the last layer are not computed."""
    return module.apply({"params": params}, **given, mutable=["intermediates"])[1]


def _cut(name: str, array: Array, length: int) -> Array:
    """Cut the padding off a field of a record; `[L, B, H, Q, …]`, projections `[L, B, S, H, D]`."""
    if name in ("query", "key", "value", "head_output"):
        return array[:, :, :length]
    if name in ("weights", "scores"):
        return array[..., :length, :length]
    return array[:, :, :, :length]


def _texts(text: str | Sequence[str], text_b: str | Sequence[str] | None) -> list[tuple[str, ...]]:
    first = [text] if isinstance(text, str) else list(text)
    if text_b is None:
        return [(one,) for one in first]
    return list(zip(first, [text_b] if isinstance(text_b, str) else text_b, strict=True))


def _is_punctuation(piece: str) -> bool:
    return all(unicodedata.category(character)[0] == "P" for character in piece)
