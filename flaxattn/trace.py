# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a forward pass saw: `Seen`, one stack's record, and `Trace`, the tree a person works with.

Every consumer (measures, figures, pages) reads a `Trace`; none of them ever meets a model.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxattn.attentions import as_attentions
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture, Intermediates

# Axis, counted in a stacked record, that runs over heads; statistics share the layout of weights.
_HEAD_AXIS = {"weights": 2, "scores": 2, "query": 3, "key": 3, "value": 3, "head_output": 3}
_FIELDS = tuple(_HEAD_AXIS)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[*_FIELDS, "stats"],
    meta_fields=["layers", "heads", "implementation", "query_window", "key_window"],
)
@dataclasses.dataclass(frozen=True)
class Seen:
    """What one attention stack saw. A pytree; fields that were not asked for are None.

    The leading axis runs over `layers`. A record sown by a single module has no such axis and an
    empty `layers`.

    Attributes:
        weights: Attention before dropout, in the dtype asked for; uint8 holds round(255 p).
        scores: Scaled and biased q k, -inf where masked; float32.
        query: Projected queries.
        key: Projected keys.
        value: Projected values.
        head_output: Weighted sums of values, before the output projection.
        stats: Statistics by name, mostly per query and float32; `received` is per key, `topk_*`
            have a last axis R.
        layers: Number of the layer at each index of the leading axis.
        heads: Number of the head at each index of the head axis.
        implementation: Name of the attention kernel that ran.
        query_window: `(start, stop)`, the queries that `weights` and `scores` hold; None for all.
        key_window: `(start, stop)`, the keys that they hold of these; None for all.
    """

    weights: Array | None = None
    scores: Array | None = None
    query: Array | None = None
    key: Array | None = None
    value: Array | None = None
    head_output: Array | None = None
    stats: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    implementation: str = ""
    query_window: tuple[int, int] | None = None
    key_window: tuple[int, int] | None = None

    @classmethod
    def of(
        cls, capture: Capture, saw: Intermediates, **projections: Float[Array, "B S H D"]
    ) -> Self:
        """Join what the kernel handed back with what only the attention module knows.

        Args:
            capture: The request; decides which projections are kept, and of which heads.
            saw: The kernel's record.
            **projections: `query`, `key`, `value` and `head_output`, with all heads.

        Returns:
            The record of one layer.
        """
        everything = range(projections["query"].shape[2])
        heads = tuple(everything) if capture.heads is None else capture.heads
        chosen = np.asarray(heads)
        kept = {
            name: value if capture.heads is None else value[:, :, chosen]
            for name, value in projections.items()
            if getattr(capture, name)
        }
        seen = cls(
            weights=saw.weights,
            scores=saw.scores,
            stats=saw.stats,
            heads=heads,
            implementation=saw.implementation,
            query_window=capture.query_window,
            key_window=capture.key_window,
        )
        return dataclasses.replace(seen, **kept)

    @classmethod
    def stack(cls, records: Sequence[Self]) -> Self:
        """Put records of single layers on a leading layer axis, numbered in the given order.

        Args:
            records: At least one, all with the same fields and shapes.

        Returns:
            One record with `layers` 0, 1, ….
        """
        joined = jax.tree.map(lambda *leaves: jnp.stack(leaves), *records)
        return dataclasses.replace(joined, layers=tuple(range(len(records))))

    def map(self, change: Any) -> Self:
        """A copy with `change(name, array)` in place of every array that is there.

        Args:
            change: Called with the field's name, or `stats` for a statistic.

        Returns:
            A record with the same layers, heads and implementation.
        """
        fields = {n: change(n, a) for n in _FIELDS if (a := getattr(self, n)) is not None}
        stats = {name: change(f"stats.{name}", array) for name, array in self.stats.items()}
        return dataclasses.replace(self, **fields, stats=stats)

    def require_whole(self, reader: str) -> None:
        """Check that the weights are those of all positions.

        Args:
            reader: What needs them, as the subject of a sentence.

        Raises:
            InputError: If they are a window.
        """
        if self.query_window is not None or self.key_window is not None:
            held = (f"{n} {w[0]} to {w[1] - 1}" for n, w in self._windows().items() if w)
            raise InputError(
                f"{reader} needs the weights of all positions; this trace holds a window of them: "
                f"{', '.join(held)}.\n"
                "Capture without query_window and key_window, or read the `weights` themselves."
            )

    def _windows(self) -> dict[str, tuple[int, int] | None]:
        return {"queries": self.query_window, "keys": self.key_window}


@dataclasses.dataclass(frozen=True, repr=False)
class Trace:
    """Everything a forward pass saw, with the text beside it. B sequences, padded to one length.

    Attributes:
        encoder: Self-attention of an encoder (BERT).
        decoder: Self-attention of a decoder.
        cross: Attention of a decoder to an encoder.
        tokens: Readable pieces of every sequence, one per position, padding included.
        mask: True at real positions; all True if nothing was padded.
        segments: Segment of each position: 0 for sentence A, 1 for sentence B.
        words: Number of the word each piece belongs to; None for special pieces.
        special: True at pieces the model adds, such as `[CLS]`, and at padding.
        texts: The texts each sequence was made from, one or two.
        truncated: Number of pieces that were cut from each sequence to fit the model.
        decoder_tokens: Pieces that the decoder read, one per position; beside an encoder only.
        written: Pieces that the decoder wrote there, each from the row of attention beside it.
        decoder_mask: True at real positions of the decoder.
        decoder_words: Number of the word each written piece belongs to; None for special pieces.
        decoder_special: True at pieces of `decoder_tokens` that the model adds, and at padding.
        model: Name of the model, for titles and reports.
    """

    encoder: Seen | None = None
    decoder: Seen | None = None
    cross: Seen | None = None
    tokens: Sequence[Sequence[str]] = ()
    mask: Bool[np.ndarray, "B S"] | None = None
    segments: Int[np.ndarray, "B S"] | None = None
    words: Sequence[Sequence[int | None]] = ()
    special: Bool[np.ndarray, "B S"] | None = None
    texts: Sequence[tuple[str, ...]] = ()
    truncated: Sequence[int] = ()
    decoder_tokens: Sequence[Sequence[str]] = ()
    written: Sequence[Sequence[str]] = ()
    decoder_mask: Bool[np.ndarray, "B T"] | None = None
    decoder_words: Sequence[Sequence[int | None]] = ()
    decoder_special: Bool[np.ndarray, "B T"] | None = None
    model: str = ""

    @classmethod
    def from_variables(
        cls, variables: Mapping[str, Any], *, vmapped: bool = False, **text: Any
    ) -> Self:
        """Read what `module.apply(…, mutable=["intermediates"])` returned beside the output.

        Records are told apart by their path: below `cross_attention` they are `cross`, below
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
        found: dict[str, list[Seen]] = {"encoder": [], "decoder": [], "cross": []}
        leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, Seen))
        for path, leaf in sorted(leaves, key=lambda item: _natural(item[0])):
            if isinstance(leaf, Seen):
                found[_side(path)].append(leaf)
        sides = {side: _one(side, seen, vmapped) for side, seen in found.items() if seen}
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
        them. Encoder and decoder may differ in L and H.

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
            side: _given(f"{side}_weights", _stacked(arrays), queries, keys)
            for side, (arrays, queries, keys) in given.items()
            if arrays is not None
        }
        if weights is not None or stats or not sides:
            sides["encoder"] = cls._given_encoder(weights, tokens, stats, layers, heads)
        texts = {"tokens": tokens, "decoder_tokens": decoder_tokens}
        texts = {name: [list(row) for row in rows] for name, rows in texts.items()}
        return cls(**sides, **texts, **fields)

    @staticmethod
    def _given_encoder(weights: Any, tokens: Any, stats: Any, layers: Any, heads: Any) -> Seen:
        """The record of an encoder's arrays, which fit each other and the tokens."""
        array = None if weights is None else _stacked(weights)
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
        return Seen(
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

    def _attentions(self, seen: Seen | None, what: str) -> tuple[Any, ...]:
        if seen is None or seen.weights is None:
            raise InputError(
                f"This trace holds no {what}.\nAsk for them: capture=Capture(weights=True)."
            )
        seen.require_whole("This")
        return as_attentions(seen.weights)

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the recorded layers of the encoder; else of the decoder, else of `cross`."""
        seen = self._first()
        return seen.layers if seen else ()

    @property
    def heads(self) -> tuple[int, ...]:
        """Numbers of the recorded heads of the encoder; else of the decoder, else of `cross`."""
        seen = self._first()
        return seen.heads if seen else ()

    def _first(self) -> Seen | None:
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
                f"This trace holds no {name}, so no sequence can be told from its padding.\n"
                f"Give them: Trace.from_variables(state, {name}=[[…], …])."
            )
        real = _real(self.tokens[b], self.mask, b)
        written = _real(target[b], self.decoder_mask, b) if target else real
        places = {"encoder": (real, real), "decoder": (written, written), "cross": (written, real)}
        sides = {
            side: _one_sequence(seen, b, q, k)
            for side, (q, k) in places.items()
            if (seen := getattr(self, side)) is not None
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
            decoder_tokens=pick(self.decoder_tokens, written),
            written=pick(self.written, written),
            decoder_words=pick(self.decoder_words, written),
            decoder_mask=cut(self.decoder_mask, written),
            decoder_special=cut(self.decoder_special, written),
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

    def __repr__(self) -> str:
        seen = self._first() or Seen()
        fields = [n for n in _FIELDS if getattr(seen, n) is not None] + list(seen.stats)
        return (
            f"Trace({self.model or 'arrays'}: {len(self)} sequences, layers {list(seen.layers)}, "
            f"heads {list(seen.heads)}, {', '.join(fields)}; {seen.implementation or 'given'})"
        )


def _stacked(weights: Any) -> Array:
    """One array of all layers, of one array or of a sequence with one per layer."""
    if isinstance(weights, list | tuple):
        weights = np.stack([np.asarray(layer) for layer in weights])
    return jnp.asarray(weights)


def _given(
    name: str, weights: Array, queries: Sequence[Sequence[str]], keys: Sequence[Sequence[str]]
) -> Seen:
    """The record of somebody's weights, which fit the tokens."""
    sizes = [sorted({len(row) for row in rows}) for rows in (queries, keys)]
    told = [len(queries), *sizes[0], *sizes[1]]
    shape = list(weights.shape)
    if len(shape) != 5 or len(queries) != len(keys) or [shape[1], *shape[3:]] != told:
        raise InputError(
            f"{name}: expected shape [L, B, H, Q, K] with B, Q, K those of the tokens, received "
            f"{shape};\nthe tokens are {len(queries)} sequences of length {sizes[0]} that attend "
            f"to {len(keys)} of length {sizes[1]}.\n"
            "Give one list of tokens per sequence, padded to one length."
        )
    return Seen(weights=weights, layers=tuple(range(shape[0])), heads=tuple(range(shape[2])))


def _real(tokens: Sequence[str], mask: Any, sequence: int) -> np.ndarray:
    """Positions of a sequence that are no padding."""
    return np.arange(len(tokens)) if mask is None else np.flatnonzero(mask[sequence])


def _one_sequence(seen: Seen, sequence: int, queries: np.ndarray, keys: np.ndarray) -> Seen:
    """Cut one sequence and its real positions out of a stacked record.

    A window then counts the positions that are left; one that held padding only is empty.
    """
    rows, query_window = _inside(seen.query_window, queries)
    columns, key_window = _inside(seen.key_window, keys)

    def cut(name: str, array: Array) -> Array:
        array = array[:, sequence : sequence + 1]
        if name in ("weights", "scores"):
            return array[:, :, :, rows][..., columns]
        if _HEAD_AXIS.get(name) == 3:
            return array[:, :, keys if name in ("key", "value") else queries]
        return array[:, :, :, keys if name == "stats.received" else queries]

    return dataclasses.replace(seen.map(cut), query_window=query_window, key_window=key_window)


def _inside(
    window: tuple[int, int] | None, places: np.ndarray
) -> tuple[np.ndarray, tuple[int, int] | None]:
    """Where real positions are stored, and the window as it counts them."""
    if window is None:
        return places, None
    chosen = places[(places >= window[0]) & (places < window[1])]
    start = int((places < window[0]).sum())
    return chosen - window[0], (start, start + len(chosen))


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


def _one(side: str, records: list[Seen], vmapped: bool) -> Seen:
    """The record of one side; single layers are stacked."""
    if not all(records[i].layers for i in range(len(records))):
        records = [Seen.stack(records)]
    if len(records) > 1:
        raise InputError(f"Found {len(records)} stacked records of the {side}; a trace holds one.")
    (seen,) = records
    return seen.map(lambda _, a: _merge_examples(a)) if vmapped else seen


def _merge_examples(array: Array) -> Array:
    """[example, L, B, ...] to [L, example * B, ...]."""
    moved = jnp.moveaxis(array, 0, 1)
    return moved.reshape(moved.shape[0], -1, *moved.shape[3:])
