# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`Trace`: the attention records of a forward pass with the tokens, words and texts that were read.

Measures, figures and pages read a `Trace`, never a model. A trace and a capture request become one
safetensors file, with JSON for the rest.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt8

from flaxattn.errors import InputError
from flaxattn.files import write_bytes
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.trace.record import (
    ARRAYS,
    FIELDS,
    SIDES,
    AttentionRecord,
    one_sequence,
    windows_from_json,
)
from flaxattn.trace.token_predictions import Predictions


def as_numpy(array: Any) -> Shaped[np.ndarray, "..."]:
    """An array on the host, of the same dtype; bfloat16 of torch, which NumPy lacks, as float32."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    tensor = array.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def stacked(arrays: Any) -> Any:
    """One array of all layers: of one array, or of a sequence with one per layer."""
    if isinstance(arrays, Sequence):
        return np.stack([as_numpy(layer) for layer in arrays])
    return as_numpy(arrays) if hasattr(arrays, "detach") else arrays


@dataclasses.dataclass(frozen=True, repr=False)
class Trace:
    """Attention of a forward pass with the text beside it: B sequences, padded to one length.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> trace.encoder.weights.shape, trace.tokens[0][:4]
    ((4, 1, 4, 8, 8), ['[CLS]', 'the', 'cat', 'is'])
    >>> len(trace.attentions), trace.attentions[0].shape  # as Hugging Face returns them
    (4, (1, 4, 8, 8))

    Attributes:
        encoder: Self-attention of an encoder (BERT).
        decoder: Self-attention of a decoder.
        cross: Attention of a decoder to an encoder.
        tokens: Readable tokens of every sequence, one per position, padding included.
        mask: True at real positions; all True if nothing was padded.
        segments: Segment of each position: 0 for sentence A, 1 for sentence B.
        words: Number of the word each token belongs to; None for special tokens.
        special: True at tokens the model adds, such as `[CLS]`, and at padding.
        texts: The texts each sequence was made from, one or two.
        truncated: Number of tokens that were cut from each sequence to fit the model.
        spans: Half-open range of characters of each token in its text of `texts`, by its segment
            where there are two; None for tokens that stand for no characters, and for padding.
        decoder_tokens: Tokens that the decoder read, one per position; beside an encoder only.
        written: Tokens that the decoder wrote there, each from the row of attention beside it.
        decoder_mask: True at real positions of the decoder.
        decoder_words: Number of the word each written token belongs to; None for special tokens.
        decoder_special: True at tokens of `decoder_tokens` that the model adds, and at padding.
        predictions: Probabilities of the tokens that a language model was to continue with; None
            where they were not requested.
        model: Name of the model, for titles and reports.
    """

    encoder: AttentionRecord | None = None
    decoder: AttentionRecord | None = None
    cross: AttentionRecord | None = None
    tokens: Sequence[Sequence[str]] = ()
    mask: Bool[np.ndarray, "B S"] | None = None
    segments: Int[np.ndarray, "B S"] | None = None
    words: Sequence[Sequence[int | None]] = ()
    special: Bool[np.ndarray, "B S"] | None = None
    texts: Sequence[tuple[str, ...]] = ()
    truncated: Sequence[int] = ()
    spans: Sequence[Sequence[tuple[int, int] | None]] = ()
    decoder_tokens: Sequence[Sequence[str]] = ()
    written: Sequence[Sequence[str]] = ()
    decoder_mask: Bool[np.ndarray, "B T"] | None = None
    decoder_words: Sequence[Sequence[int | None]] = ()
    decoder_special: Bool[np.ndarray, "B T"] | None = None
    predictions: Predictions | None = None
    model: str = ""

    @classmethod
    def from_variables(
        cls, variables: Mapping[str, Any], *, vmapped: bool = False, **text: Any
    ) -> Self:
        """Read what `module.apply(…, mutable=["intermediates"])` returned beside the output.

        Records are sorted by their path: below `cross_attention` they are `cross`, below
        `decoder` they are `decoder`, all others `encoder`. Records of modules that were not
        stacked are put together in the order of their paths.

        Args:
            variables: The returned state, with or without the `intermediates` level.
            vmapped: Whether the whole apply ran under `jax.vmap` over examples, which puts the
                example axis before the layer axis; it is merged with the batch axis.
            **text: The other fields of a trace: `tokens`, `mask`, ….

        Returns:
            A trace.

        Raises:
            InputError: If nothing was recorded.
        """
        tree = variables.get("intermediates", variables)
        found: dict[str, list[AttentionRecord]] = {"encoder": [], "decoder": [], "cross": []}
        leaves = jax.tree_util.tree_leaves_with_path(
            tree, is_leaf=lambda x: isinstance(x, AttentionRecord)
        )
        for path, leaf in sorted(leaves, key=lambda item: _natural(item[0])):
            # Cross-attention records nothing where hidden states alone are requested.
            if isinstance(leaf, AttentionRecord) and jax.tree.leaves(leaf):
                found[_side(path)].append(leaf)
        sides = {side: _one(side, record, vmapped) for side, record in found.items() if record}
        if not sides:
            raise InputError(
                "These variables hold no attention: nothing was recorded.\n"
                'Call module.apply(…, mutable=["intermediates"]) on a module whose `capture` '
                "asks for something."
            )
        return cls(**sides, **text)

    @classmethod
    def from_arrays(
        cls,
        weights: Float[Any, "L B H Q K"] | None = None,
        tokens: Sequence[Sequence[str]] = (),
        *,
        decoder_weights: Float[Any, "L B H T T"] | None = None,
        cross_weights: Float[Any, "L B H T S"] | None = None,
        decoder_tokens: Sequence[Sequence[str]] = (),
        stats: Mapping[str, Any] | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        **fields: Any,
    ) -> Self:
        """Make a trace of anybody's attention.

        Weights are one array, or a sequence of L arrays `[B, H, Q, K]` as Hugging Face returns
        them, of NumPy, JAX or torch. Encoder and decoder may differ in L and H.
        `flaxattn.trace.other_libraries` reads the outputs of whole programs.

        Args:
            weights: Self-attention of an encoder.
            tokens: One list of token strings per sequence, S each; sources where there is a
                decoder.
            decoder_weights: Self-attention of a decoder.
            cross_weights: Attention of a decoder to its source.
            decoder_tokens: What the decoder read, one list of T token strings per sequence.
            stats: Statistics of the encoder by name, `[L, B, H, Q]` each.
            layers: Number of the encoder's layer at each index; default 0, 1, ….
            heads: Number of the encoder's head at each index; default 0, 1, ….
            **fields: Other fields of a trace, such as `mask`, `special` and `written`.

        Returns:
            A trace whose `encoder`, `decoder` and `cross` hold the arrays that were given.

        Raises:
            InputError: If shapes disagree with one another or with the tokens.
        """
        given = {
            "decoder": (decoder_weights, decoder_tokens, decoder_tokens),
            "cross": (cross_weights, decoder_tokens, tokens),
        }
        sides = {
            side: _given(f"{side}_weights", _stacked(f"{side}_weights", arrays), queries, keys)
            for side, (arrays, queries, keys) in given.items()
            if arrays is not None
        }
        if weights is not None or stats or not sides:
            sides["encoder"] = cls._given_encoder(weights, tokens, stats, layers, heads)
        texts = {"tokens": tokens, "decoder_tokens": decoder_tokens}
        texts = {name: [list(row) for row in rows] for name, rows in texts.items()}
        return cls(**sides, **texts, **fields)

    @staticmethod
    def _given_encoder(
        weights: Any, tokens: Any, stats: Any, layers: Any, heads: Any
    ) -> AttentionRecord:
        """The record of an encoder's arrays, which fit each other and the tokens."""
        array = None if weights is None else _stacked("weights", weights)
        named = {name: jnp.asarray(value) for name, value in (stats or {}).items()}
        shapes = [a.shape for a in (array, *named.values()) if a is not None]
        if not shapes or len(shapes[0]) < 4 or (array is not None and array.ndim != 5):
            raise InputError(
                "Trace.from_arrays expected weights of shape [L, B, H, Q, K] or statistics of "
                f"shape [L, B, H, Q], received {shapes or 'nothing'}.\n"
                "Add the missing axes, or pass one of the two."
            )
        count, batch, num_heads, length = shapes[0][:4]
        if [len(row) for row in tokens] != [length] * batch:
            raise InputError(
                f"Expected {batch} lists of {length} tokens for arrays of shape {shapes[0]}, "
                f"received lengths {[len(row) for row in tokens]}."
            )
        return AttentionRecord(
            weights=array,
            stats=named,
            layers=tuple(range(count) if layers is None else layers),
            heads=tuple(range(num_heads) if heads is None else heads),
        )

    @property
    def attentions(self) -> tuple[Any, ...]:
        """Self-attention of the encoder (or decoder), one array `[B, H, Q, K]` per layer."""
        return self._attentions(self.encoder or self.decoder, "weights")

    @property
    def encoder_attentions(self) -> tuple[Any, ...]:
        """Self-attention of the encoder, one array `[B, H, Q, K]` per layer."""
        return self._attentions(self.encoder, "encoder weights")

    @property
    def decoder_attentions(self) -> tuple[Any, ...]:
        """Self-attention of the decoder, one array `[B, H, Q, Q]` per layer."""
        return self._attentions(self.decoder, "decoder weights")

    @property
    def cross_attentions(self) -> tuple[Any, ...]:
        """Attention of the decoder to the encoder, one array `[B, H, Q, K]` per layer."""
        return self._attentions(self.cross, "cross-attention weights")

    def _attentions(self, record: AttentionRecord | None, what: str) -> tuple[Any, ...]:
        if record is None or record.weights is None:
            raise InputError(
                f"This trace holds no {what}.\nAsk for them: capture=Capture(weights=True)."
            )
        record.require_whole("This")
        return as_attentions(record.weights)

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the recorded layers of the encoder; else of the decoder, else of `cross`."""
        record = self._first()
        return record.layers if record else ()

    @property
    def heads(self) -> tuple[int, ...]:
        """Numbers of the recorded heads of the encoder; else of the decoder, else of `cross`."""
        record = self._first()
        return record.heads if record else ()

    def _first(self) -> AttentionRecord | None:
        return self.encoder or self.decoder or self.cross

    def __len__(self) -> int:
        if self.tokens:
            return len(self.tokens)
        arrays = jax.tree.leaves(self._first())
        return arrays[0].shape[1] if arrays else 0

    def __getitem__(self, sequence: int) -> "Trace":
        """One sequence as a trace of its own, with padding cut away on either side.

        Args:
            sequence: Index; negative counts from the end.

        Raises:
            InputError: If there is no such sequence, or the trace holds no tokens.
        """
        b = self.place(sequence)
        target = self.decoder_tokens or self.written
        if not self.tokens or (self.cross and not target):
            name = "decoder_tokens" if self.tokens else "tokens"
            raise InputError(
                f"This trace holds no {name}, so padding is unknown.\n"
                f"Give them: Trace.from_variables(state, {name}=[[…], …])."
            )
        real = _real(self.tokens[b], self.mask, b)
        written = _real(target[b], self.decoder_mask, b) if target else real
        places = {"encoder": (real, real), "decoder": (written, written), "cross": (written, real)}
        sides = {
            side: one_sequence(record, b, q, k)
            for side, (q, k) in places.items()
            if (record := getattr(self, side)) is not None
        }

        def cut(array: Any, places: np.ndarray) -> Any:
            return None if array is None else np.asarray(array)[b : b + 1, places]

        def pick(rows: Sequence[Sequence[Any]], places: np.ndarray) -> Any:
            return [[rows[b][i] for i in places.tolist()]] if rows else ()

        return dataclasses.replace(
            self,
            **sides,
            tokens=pick(self.tokens, real),
            mask=cut(self.mask, real),
            segments=cut(self.segments, real),
            words=pick(self.words, real),
            special=cut(self.special, real),
            texts=self.texts[b : b + 1],
            truncated=self.truncated[b : b + 1],
            spans=pick(self.spans, real),
            decoder_tokens=pick(self.decoder_tokens, written),
            written=pick(self.written, written),
            decoder_words=pick(self.decoder_words, written),
            decoder_mask=cut(self.decoder_mask, written),
            decoder_special=cut(self.decoder_special, written),
            predictions=self.predictions and self.predictions.one(b, written),
        )

    def place(self, sequence: int) -> int:
        """Index of a sequence from the start; negative counts from the end.

        Raises:
            InputError: If there is no such sequence.
        """
        if not -len(self) <= sequence < len(self):
            raise InputError(
                f"The trace has sequences 0 to {len(self) - 1}; there is no {sequence}."
            )
        return sequence % len(self)

    def __iter__(self) -> Any:
        return (self[b] for b in range(len(self)))

    def save(self, path: str | os.PathLike[str]) -> "Path":
        """Write the trace as one safetensors file, whole or not at all.

        Any safetensors reader opens it; the same trace gives the same bytes.

        Args:
            path: Such as `cat.safetensors`; its folder must exist. A file there is replaced.

        Returns:
            The path.

        Raises:
            InputError: If the folder is missing, the path is a folder, or there is nothing to save.
        """
        return write(vars(self), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Trace":
        """Read what `save` wrote, with NumPy arrays; every byte is compared with its checksum.

        Args:
            path: The file.

        Raises:
            InputError: If there is no such file, it is not a trace, or it is damaged.
        """
        return cls(**read(path))

    @property
    def sides(self) -> dict[str, AttentionRecord]:
        """The attention records of this trace by side: `encoder`, `decoder`, `cross`."""
        return {side: record for side in SIDES if (record := getattr(self, side)) is not None}

    def __repr__(self) -> str:
        record = self._first() or AttentionRecord()
        fields = [n for n in FIELDS if getattr(record, n) is not None] + list(record.stats)
        return (
            f"Trace({self.model or 'arrays'}: {len(self)} sequences, layers {list(record.layers)}, "
            f"heads {list(record.heads)}, {', '.join(fields)}; {record.implementation or 'given'})"
        )


def _stacked(name: str, weights: Any) -> Array:
    """One array of all layers, of one array or of a sequence with one per layer."""
    try:
        return jnp.asarray(stacked(weights))
    except ValueError as error:
        shapes = [tuple(np.shape(layer)) for layer in weights]
        raise InputError(
            f"{name}: expected layers of one shape [B, H, Q, K], received {shapes}.\n"
            "Take the layers of one forward pass; put encoder and decoder in sides of their own."
        ) from error


def _given(
    name: str, weights: Array, queries: Sequence[Sequence[str]], keys: Sequence[Sequence[str]]
) -> AttentionRecord:
    """The record of somebody's weights, which fit the tokens."""
    sizes = [sorted({len(row) for row in rows}) for rows in (queries, keys)]
    expected = [len(queries), *sizes[0], *sizes[1]]
    shape = list(weights.shape)
    if len(shape) != 5 or len(queries) != len(keys) or [shape[1], *shape[3:]] != expected:
        raise InputError(
            f"{name}: expected shape [L, B, H, Q, K] with B, Q, K those of the tokens, received "
            f"{shape};\nthe tokens are {len(queries)} sequences of length {sizes[0]} that attend "
            f"to {len(keys)} of length {sizes[1]}.\n"
            "Give one list of tokens per sequence, padded to one length."
        )
    return AttentionRecord(
        weights=weights, layers=tuple(range(shape[0])), heads=tuple(range(shape[2]))
    )


def _real(tokens: Sequence[str], mask: Any, sequence: int) -> np.ndarray:
    """Positions of a sequence that are not padding."""
    return np.arange(len(tokens)) if mask is None else np.flatnonzero(mask[sequence])


def _natural(path: tuple[Any, ...]) -> list[Any]:
    """Sort key under which `layer_10` comes after `layer_9`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", _text(path))]


def _text(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _side(path: tuple[Any, ...]) -> str:
    text = _text(path)
    if "cross_attention" in text:
        return "cross"
    return "decoder" if "decoder" in text else "encoder"


def _one(side: str, records: list[AttentionRecord], vmapped: bool) -> AttentionRecord:
    """The record of one side; single layers are stacked."""
    if not all(records[i].layers for i in range(len(records))):
        records = [AttentionRecord.stack(records)]
    if len(records) > 1:
        raise InputError(f"Found {len(records)} stacked records of the {side}; a trace holds one.")
    (record,) = records
    return record.map(lambda _, a: _merge_examples(a)) if vmapped else record


def _merge_examples(array: Array) -> Array:
    """[example, L, B, ...] to [L, example * B, ...]."""
    moved = jnp.moveaxis(array, 0, 1)
    return moved.reshape(moved.shape[0], -1, *moved.shape[3:])


class _Size(int):
    """Number of elements (NumPy's `a.size`) that can be called (torch's `a.size(0)`)."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> "_Size":
        self = super().__new__(cls, math.prod(shape))
        self.shape = shape
        return self

    def __call__(self, dim: int | None = None) -> int | tuple[int, ...]:
        return self.shape if dim is None else self.shape[dim]


class Attentions(np.ndarray):
    """A NumPy array that torch functions accept and that answers `.size(0)` as a tensor does.

    `Trace.attentions` returns these, so that BertViz and notebooks written for Hugging Face take
    them unchanged. Nothing in flaxattn computes with this class; torch is imported only when one of
    its functions is called on such an array.
    """

    @property
    def size(self) -> Any:
        """Number of elements; called with an axis, the length of that axis."""
        return _Size(self.shape)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        named = {name: _as_tensor(value) for name, value in (kwargs or {}).items()}
        return function(*_as_tensor(args), **named)


def as_attentions(
    weights: Float[Any, "L B H Q K"] | UInt8[Any, "L B H Q K"],
) -> tuple[Attentions, ...]:
    """One float32 array `[B, H, Q, K]` per layer, as Hugging Face models return `attentions`."""
    array = np.asarray(weights)
    if array.dtype == np.uint8:
        array = array.astype(np.float32) / np.float32(255)
    return tuple(np.asarray(layer, np.float32).view(Attentions) for layer in array)


def _as_tensor(value: Any) -> Any:
    """`value` with every `Attentions` in it, however deep, replaced by a torch tensor."""
    if isinstance(value, Attentions):
        import torch  # pyright: ignore[reportMissingImports]  # absent where only JAX is used

        return torch.from_numpy(np.array(value))
    if isinstance(value, list | tuple):
        return type(value)(_as_tensor(item) for item in value)
    return value


class FileKind(NamedTuple):
    """Kind of a file: its name in messages, its header key, and advice.

    Attributes:
        name: Name of the content, in messages.
        key: In the metadata of the header, under which the text stands.
        made: What to do where there is no such file; {} is its path.
        expected: What to give in place of a file without that key.
    """

    name: str
    key: str
    made: str
    expected: str

    def damaged(self, file: Path, reason: str) -> InputError:
        """An error that says why a file cannot be used."""
        return InputError(
            f"The {self.name} file {file} is damaged: {reason}.\nCopy or save it again."
        )


def packed(kind: FileKind, text: str, tensors: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file; the same arguments give the same bytes."""
    # One entry only: safetensors writes several in an order that changes from run to run.
    return safetensors.numpy.save(dict(tensors), {kind.key: text})


def unpacked(kind: FileKind, path: str | os.PathLike[str]) -> tuple[str, dict[str, np.ndarray]]:
    """The text and the arrays of a file."""
    file = Path(path)
    if not file.is_file():
        raise InputError(
            f"There is no {kind.name} file {str(file)!r}.\n{kind.made.format(repr(str(file)))}"
        )
    try:
        with safetensors.safe_open(file, framework="np") as handle:
            text = (handle.metadata() or {}).get(kind.key)
            names = [] if text is None else list(handle.keys())
            tensors = {name: handle.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise kind.damaged(file, str(error).splitlines()[0]) from error
    if text is None:
        raise InputError(
            f"{file} holds tensors, but no {kind.name}: its header has no {kind.key}.\n"
            f"{kind.expected}"
        )
    return text, tensors


def capture_to_json(capture: Capture) -> dict[str, Any]:
    """A request as objects that `json.dumps` takes."""
    fields = {f.name: getattr(capture, f.name) for f in dataclasses.fields(capture)}
    fields["stats"] = [s if isinstance(s, str) else dataclasses.asdict(s) for s in capture.stats]
    return {name: _as_json(value) for name, value in fields.items()}


def capture_from_json(fields: Mapping[str, Any]) -> Capture:
    """The request that `capture_to_json` wrote."""
    try:
        found = {name: _frozen(value) for name, value in fields.items()}
        stats = fields.get("stats", ())
        found["stats"] = tuple(s if isinstance(s, str) else Sieve(**_tuples(s)) for s in stats)
        return Capture(**found)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"this is not a capture request\n{str(error).splitlines()[0]}\n"
            "it was written by another version, or damaged"
        ) from error


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _frozen(value) for name, value in fields.items()}


FORMAT = 1
_KIND = FileKind(
    "trace",
    "flaxattn.trace",
    "Write one: trace.save({}).",
    "Give a file that trace.save wrote; not the directory of a model.",
)
_ARRAYS = ("mask", "segments", "special", "decoder_mask", "decoder_special")
_LISTS = ("tokens", "words", "texts", "truncated", "decoder_tokens", "written", "decoder_words")
_PREDICTIONS = "predictions"
_NUMBERS = ("layers", "heads", "implementation", "query_window", "key_window", "scale")


def write(trace: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a trace. The same trace gives the same bytes."""
    tensors = {name: np.ascontiguousarray(array) for name, array in _tensors(trace).items()}
    sides = {side: trace[side] for side in SIDES if trace[side] is not None}
    if not sides:
        raise InputError(
            "This trace holds no attention, so there is nothing to save.\n"
            "Make one with model.trace(text), or Trace.from_arrays(weights, tokens)."
        )
    head = {
        "format": FORMAT,
        "model": trace["model"],
        "sides": {side: _numbers(record) for side, record in sides.items()},
        "text": {name: _plain(trace[name]) for name in _LISTS} | _spans(trace) | _words(trace),
        "sha256": {name: _digest(array) for name, array in tensors.items()},
    }
    metadata = json.dumps({"head": head, "sha256": _digest_of(head)}, sort_keys=True)
    return write_bytes(path, packed(_KIND, metadata, tensors), "a trace")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the fields of a trace, and compare every byte with what was written."""
    metadata, tensors = unpacked(_KIND, path)
    return _trace(_head(Path(path), metadata, tensors), tensors)


def _tensors(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Every array of a trace by its name in the file."""
    found = {n: trace[n] for n in _ARRAYS if trace[n] is not None}
    if (predicted := trace["predictions"]) is not None:
        found |= {f"{_PREDICTIONS}.{name}": a for name, a in predicted.arrays().items()}
    for side in SIDES:
        if (record := trace[side]) is not None:
            fields = {n: a for n in ARRAYS if (a := getattr(record, n)) is not None}
            stats = {f"stats.{name}": array for name, array in record.stats.items()}
            found |= {f"{side}.{name}": array for name, array in (fields | stats).items()}
    return {name: np.asarray(array) for name, array in found.items()}


def _numbers(record: AttentionRecord) -> dict[str, Any]:
    """Numbers of a record beside its arrays, and the order of its statistics."""
    windows = {"sliding_windows": record.sliding_windows} if record.sliding_windows else {}
    return {n: getattr(record, n) for n in _NUMBERS} | windows | {"stats": list(record.stats)}


def _spans(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Spans in the text, where a trace has them: files written before there were any have none."""
    return {"spans": _plain(trace["spans"])} if len(trace["spans"]) else {}


def _words(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of the predictions, where a trace has any."""
    predicted = trace[_PREDICTIONS]
    if predicted is None:
        return {}
    return {_PREDICTIONS: {name: _plain(rows) for name, rows in predicted.words().items()}}


def _plain(rows: Any) -> Any:
    """Lists of what JSON knows; numbers of NumPy become Python's."""
    if isinstance(rows, str) or rows is None:
        return rows
    return [_plain(row) for row in rows] if isinstance(rows, Iterable) else int(rows)


def _digest(array: np.ndarray) -> str:
    kind = f"{array.dtype.name} {array.shape} ".encode()
    return hashlib.sha256(kind + array.tobytes()).hexdigest()


def _digest_of(head: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _head(file: Path, message: str, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the header, once it and the tensors are verified."""
    try:
        known = json.loads(message)
        head, digest = known["head"], known["sha256"]
        version = int(head["format"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _KIND.damaged(file, "its header cannot be read") from error
    if version != FORMAT:
        raise InputError(
            f"{file} is a trace of format {version}; this flaxattn reads format {FORMAT}.\n"
            "Open it with the version that wrote it, or save the trace again."
        )
    if _digest_of(head) != digest:
        raise _KIND.damaged(file, "its header is not what was written")
    if head["sha256"].keys() != tensors.keys():
        raise _KIND.damaged(file, "its tensors are not those its header names")
    for name, array in tensors.items():
        if _digest(array) != head["sha256"][name]:
            raise _KIND.damaged(file, f"tensor {name} is not what was written")
    return head


def _trace(head: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for side, numbers in head["sides"].items():
        own = _below(side, tensors)
        stats = {name: own[f"stats.{name}"] for name in numbers["stats"]}
        kept: dict[str, Any] = {
            n: tuple(v) if isinstance(v, list) else v for n, v in numbers.items()
        }
        kept |= {n: a for n, a in own.items() if n in ARRAYS} | {"stats": stats}
        kept["sliding_windows"] = windows_from_json(numbers.get("sliding_windows", ()))
        sides[side] = AttentionRecord(**kept)
    text = dict(head["text"])
    text["texts"] = [tuple(pair) for pair in text["texts"]]
    text["spans"] = [
        [None if span is None else tuple(span) for span in row] for row in text.get("spans", ())
    ]
    arrays: dict[str, Any] = {name: tensors[name] for name in _ARRAYS if name in tensors}
    if words := text.pop(_PREDICTIONS, None):
        arrays[_PREDICTIONS] = Predictions.from_parts(words, _below(_PREDICTIONS, tensors))
    return {**sides, **text, **arrays, "model": head["model"]}


def _below(name: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors whose names begin with a name and a dot, by the rest."""
    start = f"{name}."
    return {key.removeprefix(start): a for key, a in tensors.items() if key.startswith(start)}
