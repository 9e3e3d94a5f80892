# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Positions: tables by a formula or learned, T5's relative bias, and rotary embeddings.

The bias of attention scores by relative position is that of Raffel et al. (2020). Near distances
have a bias each, farther ones share one by ranges that grow with the distance. The kernel gets it
as a function of positions, so that no array of queries x keys exists.

Rotary embeddings are those of Su et al. (2021), with the ways to stretch them to longer texts.
Dimension i of the first half of a head and dimension i of its second half make a pair, which is
rotated by the angle position x frequency i, as in Hugging Face checkpoints.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import CheckpointError
from flaxattn.kernels.call import PairBias
from flaxattn.models.config_base import shown
from flaxattn.models.decoder_types import TYPES

UNUSED_ROWS = 2  # at the start of BART's table: position 0 is its row 2


def counted(ids: Int[Array, "B S"]) -> Int[Array, "B S"]:
    """Positions 0, 1, … of every sequence, also of those padded on the left, as published."""
    return jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)


def sinusoids(length: int, width: int) -> Float[np.ndarray, "P E"]:
    """Position table of Vaswani et al. 2017 section 3.5, sines first, then cosines, as in Marian.

    Args:
        length: P, positions.
        width: E; feature i of each half has the period 2 pi 10000^(2i / E).
    """
    rates = 10000.0 ** (-2 * np.arange(width // 2) / width)
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def learned(params: Any, module: str) -> Float[np.ndarray, "P E"] | None:
    """The position table that a module learned, as it is stored."""
    end = f"{module}/embedding"
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith(end):
            return np.asarray(leaf)
    return None


class BiasTable(nn.Module):
    """The learned biases of a stack of layers.

    Attributes:
        layers: L.
        buckets: Ranges of relative positions with a bias of their own.
        heads: H.
        by_layer: Whether every layer has its own; otherwise one serves all.
        initializer_range: Standard deviation of the initial biases.
    """

    layers: int
    buckets: int
    heads: int
    by_layer: bool = False
    initializer_range: float = 0.02

    @nn.compact
    def __call__(self) -> Float[Array, "L R H"]:
        """The biases of every layer."""
        one = (self.buckets, self.heads)
        shape = (self.layers, *one) if self.by_layer else one
        init = nn.initializers.truncated_normal(self.initializer_range)
        table = self.param("embedding", init, shape)
        return table if self.by_layer else jnp.broadcast_to(table[None], (self.layers, *one))


def relative_bias(
    table: Float[Array, "R H"], max_distance: int, bidirectional: bool = True
) -> PairBias:
    """The bias of pairs of positions, for `flaxattn.kernels.attention.attention`."""
    buckets = buckets_of_offsets(table.shape[0], max_distance, bidirectional)
    by_offset = table[buckets].T

    def bias(queries: Int[Array, "Q 1"], keys: Int[Array, "1 K"]) -> Float[Array, "H Q K"]:
        offset = jnp.clip(keys - queries, -max_distance, max_distance)
        return by_offset[:, offset + max_distance]

    return bias


def buckets_of_offsets(
    count: int, max_distance: int, bidirectional: bool
) -> Int[np.ndarray, " offsets"]:
    """Numbers of the ranges that relative positions, key minus query, belong to."""
    offsets = np.arange(-max_distance, max_distance + 1)
    if not bidirectional:
        return _of_distances(np.maximum(-offsets, 0), count, max_distance)
    half = count // 2
    return _of_distances(np.abs(offsets), half, max_distance) + half * (offsets > 0)


def _of_distances(distance: np.ndarray, count: int, max_distance: int) -> np.ndarray:
    """Ranges of distances, with the logarithm in float32, as published models were trained."""
    near = count // 2
    share = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(near))
    share = share / np.float32(np.log(max_distance / near)) * np.float32(count - near)
    far = np.minimum(near + share.astype(np.int64), count - 1)
    return np.where(distance < near, distance, far)


Scaling = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclasses.dataclass(frozen=True, repr=False)
class Rotary:
    """Frequencies of rotary position embeddings; fields are named as in `rope_parameters`.

    Attributes:
        rope_theta: Base of the geometric series of wavelengths.
        rope_type: Rule that stretches frequencies; "default" leaves them as they are.
        partial_rotary_factor: Part of a head's dimensions that is rotated.
        factor: By how much the context grows; None lets "longrope" take the ratio of lengths.
        original_max_position_embeddings: Context of the pretraining, for "llama3", "yarn" and
            "longrope".
        low_freq_factor: For "llama3": wavelengths above context / this are stretched whole.
        high_freq_factor: For "llama3": wavelengths below context / this are left as they are.
        beta_fast: For "yarn": rotations within the context above which a pair is left as it is.
        beta_slow: For "yarn": rotations below which a pair is stretched whole.
        truncate: For "yarn": whether these bounds are rounded to whole pairs.
        attention_factor: Factor on rotated queries and keys; None for that of the method.
        mscale: For "yarn": coefficient of the factor on queries and keys.
        mscale_all_dim: For "yarn": the coefficient that it is divided by.
        short_factor: For "longrope": divisor of each frequency within the original context.
        long_factor: The same for longer texts.
        frequencies: Angle of each pair per position, where a checkpoint holds rounded ones; empty
            for the series that `rope_theta` makes.
    """

    rope_theta: float = 10000.0
    rope_type: Scaling = "default"
    partial_rotary_factor: float = 1.0
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    frequencies: tuple[float, ...] = ()

    def __repr__(self) -> str:
        stated = {"rope_theta": self.rope_theta} | {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        return f"Rotary({', '.join(f'{name}={value!r}' for name, value in stated.items())})"

    def pairs(self, depth: int) -> int:
        """Number of pairs of dimensions that are rotated."""
        return (int(depth * self.partial_rotary_factor) + 1) // 2


class Rotation(NamedTuple):
    """Cosines and sines of the angles at every position, one per pair of dimensions."""

    cos: Float[Array, "#B S P"]
    sin: Float[Array, "#B S P"]


def rotation(
    rotary: Rotary,
    positions: Int[Array, "#B S"],
    depth: int,
    length: int,
    text_lengths: Int[Array, "#B"],
) -> Rotation:
    """Angles at some positions."""
    turns, scale = _frequencies(rotary, depth, length, text_lengths)
    angles = positions[..., None].astype(jnp.float32) * turns[..., None, :]
    return Rotation(jnp.cos(angles) * scale, jnp.sin(angles) * scale)


class HasRotary(Protocol):
    """A configuration whose layers with a window may have rotary positions of their own."""

    @property
    def rotary(self) -> Rotary | None:
        """Frequencies of layers that see everything; None where positions are embedded."""
        ...

    @property
    def local_rotary(self) -> Rotary | None:
        """Frequencies of layers with a window; None for the same."""
        ...

    @property
    def head_size(self) -> int:
        """D, depth of a head."""
        ...

    @property
    def max_position_embeddings(self) -> int:
        """Longest text, in tokens."""
        ...


def rotations_at(
    config: HasRotary,
    positions: Int[Array, "#B S"],
    mask: Bool[Array, "..."] | None = None,
    text_lengths: Int[Array, " B"] | None = None,
) -> dict[str, Rotation]:
    """Rotary positions of a model by name: `global`, and `local` where windows have their own.

    The frequencies of a text depend on its own length, unless other lengths are given.
    """
    if text_lengths is None:
        real = positions
        if mask is not None and mask.shape[1:] == positions.shape[1:]:
            real = jnp.where(mask, positions, 0)
        text_lengths = real.max(1) + 1
    depth, length = config.head_size, config.max_position_embeddings
    return {
        name: rotation(rotary, positions, depth, length, text_lengths)
        for name, rotary in _kinds(config).items()
    }


def next_change(config: HasRotary, length: int) -> int | None:
    """The length of the shortest longer text with other frequencies; None if all have the same.

    Keys that were computed for a text before it reached that length cannot be used afterwards.
    """
    changes = []
    for rotary in _kinds(config).values():
        limit = config.max_position_embeddings
        if rotary.rope_type == "dynamic":
            changes.append(max(length, limit) + 1)
        if rotary.rope_type == "longrope" and length <= _original(rotary, limit):
            changes.append(_original(rotary, limit) + 1)
    return min(changes, default=None)


def _kinds(config: HasRotary) -> dict[str, Rotary]:
    """Frequencies of a model by name, as for `rotations_at`."""
    kinds = {"global": config.rotary, "local": config.local_rotary}
    return {name: rotary for name, rotary in kinds.items() if rotary is not None}


def rotate(x: Float[Array, "B S H D"], by: Rotation) -> Float[Array, "B S H D"]:
    """Turn the pairs of dimensions of queries or keys; dimensions beyond the pairs stay."""
    count = by.cos.shape[-1]
    cos, sin = (a[:, :, None] for a in by)
    first, second, rest = jnp.split(x.astype(jnp.float32), [count, 2 * count], axis=-1)
    rotated = (first * cos - second * sin, second * cos + first * sin, rest)
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


def _frequencies(
    rotary: Rotary, depth: int, length: int, text_lengths: Int[Array, "#B"]
) -> tuple[Float[Array, "#B P"], float]:
    """Angle of each pair per position, and the factor on what is rotated."""
    base = rates(rotary, depth)
    match rotary.rope_type:
        case "default":
            return jnp.asarray(base[None]), 1.0
        case "linear":
            return jnp.asarray(base[None] / np.float32(_factor(rotary, length))), 1.0
        case "dynamic":
            return _dynamic(rotary, depth, length, text_lengths), 1.0
        case "llama3":
            return jnp.asarray(_llama3(rotary, base, length)[None]), 1.0
        case "yarn":
            turns = _yarn(rotary, base, depth, length)
            return jnp.asarray(turns[None]), _yarn_scale(rotary, length)
        case "longrope":
            return _longrope(rotary, base, length, text_lengths), _longrope_scale(rotary, length)


def rates(rotary: Rotary, depth: int) -> Float[np.ndarray, " P"]:
    """Frequencies before they are stretched: a geometric series, in float32 as published."""
    if rotary.frequencies:
        return np.asarray(rotary.frequencies, np.float32)
    rotated = int(depth * rotary.partial_rotary_factor)
    exponents = np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated)
    return (1.0 / np.power(np.float32(rotary.rope_theta), exponents)).astype(np.float32)


def _factor(rotary: Rotary, length: int) -> float:
    return length / _original(rotary, length) if rotary.factor is None else rotary.factor


def _original(rotary: Rotary, length: int) -> int:
    return rotary.original_max_position_embeddings or length


def _dynamic(
    rotary: Rotary, depth: int, length: int, text_lengths: Int[Array, "#B"]
) -> Float[Array, "#B P"]:
    """A larger base where the text is longer than the context (NTK-aware scaling)."""
    rotated, factor = int(depth * rotary.partial_rotary_factor), _factor(rotary, length)
    longest = jnp.maximum(text_lengths, length).astype(jnp.float32)[:, None]
    growth = (factor * longest / length - (factor - 1)) ** (rotated / (rotated - 2))
    exponents = jnp.asarray(np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated))
    return 1.0 / (rotary.rope_theta * growth) ** exponents[None]


def _llama3(rotary: Rotary, base: np.ndarray, length: int) -> Float[np.ndarray, " P"]:
    """Long wavelengths stretched, short ones left alone, a smooth change between them."""
    old, factor = _original(rotary, length), _factor(rotary, length)
    low, high = rotary.low_freq_factor, rotary.high_freq_factor
    wavelengths = 2 * math.pi / base
    smooth = np.clip((old / wavelengths - low) / (high - low), 0, 1)
    return ((1 - smooth) * base / factor + smooth * base).astype(np.float32)


def _yarn(rotary: Rotary, base: np.ndarray, depth: int, length: int) -> Float[np.ndarray, " P"]:
    """Interpolation by the number of rotations within the context (Peng et al. 2023)."""
    rotated, old = int(depth * rotary.partial_rotary_factor), _original(rotary, length)

    def pair_of(rotations: float) -> float:
        wavelength = math.log(old / (rotations * 2 * math.pi))
        return rotated * wavelength / (2 * math.log(rotary.rope_theta))

    low, high = pair_of(rotary.beta_fast), pair_of(rotary.beta_slow)
    if rotary.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    high += 0.001 if low == high else 0.0
    stretched = np.clip((np.arange(rotated // 2, dtype=np.float32) - low) / (high - low), 0, 1)
    return (base / _factor(rotary, length) * stretched + base * (1 - stretched)).astype(np.float32)


def _yarn_scale(rotary: Rotary, length: int) -> float:
    if rotary.attention_factor is not None:
        return rotary.attention_factor
    factor = _factor(rotary, length)

    def scale(coefficient: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * coefficient * math.log(factor) + 1.0

    if rotary.mscale and rotary.mscale_all_dim:
        return scale(rotary.mscale) / scale(rotary.mscale_all_dim)
    return scale(1.0)


def _longrope(
    rotary: Rotary, base: np.ndarray, length: int, text_lengths: Int[Array, "#B"]
) -> Float[Array, "#B P"]:
    """A divisor for each frequency, one set for texts within the context, one for longer ones."""
    short, long = (np.asarray(f, np.float32) for f in (rotary.short_factor, rotary.long_factor))
    beyond = text_lengths[:, None] > _original(rotary, length)
    return jnp.where(beyond, jnp.asarray(base / long), jnp.asarray(base / short))


def _longrope_scale(rotary: Rotary, length: int) -> float:
    if rotary.attention_factor is not None:
        return rotary.attention_factor
    old = _original(rotary, length)
    factor = _factor(rotary, length)
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(old))


_SCALINGS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
_OLD_NAMES = {"su": "longrope"}
ROTARY_KEYS = {
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary_emb_base",
    "rotary_pct",
}
"""Keys of a `config.json` that say the rotary positions of a decoder."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}


def rotary_from_hf(settings: Mapping[str, Any]) -> tuple[Rotary, Rotary | None]:
    """Rotary positions of a decoder, and those of its layers with a window where they differ."""
    kind = TYPES[settings["model_type"]]
    stated = settings.get("rope_parameters") or {}
    if "full_attention" in stated or "sliding_attention" in stated:
        own, local = stated.get("full_attention", {}), stated.get("sliding_attention", {})
    else:
        own, local = {**stated, **(settings.get("rope_scaling") or {})}, {}
    theta = settings.get("rope_theta", settings.get("rotary_emb_base", kind.theta))
    rotary = rotary_of(own, theta, settings)
    if kind.local_theta is None:
        return rotary, None
    local_theta = settings.get("rope_local_base_freq", kind.local_theta)
    return rotary, rotary_of(local, local_theta, settings)


def rotary_of(stated: Mapping[str, Any], theta: float, settings: Mapping[str, Any]) -> Rotary:
    """Rotary positions of one kind of layer."""
    kind = stated.get("rope_type", stated.get("type", "default"))
    kind = _OLD_NAMES.get(kind, kind)
    if kind not in _SCALINGS:
        raise CheckpointError(
            f"rope_type is {shown(kind)}; flaxattn has {', '.join(_SCALINGS)}.\n"
            "Choose a checkpoint with one of these."
        )
    if missing := [name for name in _NEEDED.get(kind, ()) if stated.get(name) is None]:
        raise CheckpointError(
            f"rope_parameters of kind {kind} lack {', '.join(missing)}.\n"
            "Compare config.json with the original."
        )
    part = 0.25 if settings["model_type"] == "gpt_neox" else 1.0
    part = settings.get("partial_rotary_factor", settings.get("rotary_pct", part))
    fields = {field.name for field in dataclasses.fields(Rotary)}
    values = {n: v for n, v in stated.items() if n in fields and v is not None}
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    original = settings.get("original_max_position_embeddings")
    if kind in ("llama3", "yarn", "longrope") and original is not None:
        values.setdefault("original_max_position_embeddings", original)
    return Rotary(
        **{"rope_theta": theta, "partial_rotary_factor": part, **values, "rope_type": kind}
    )


def rotary_to_hf(config: Any) -> dict[str, Any]:
    """Settings of a `config.json` for rotary positions."""
    if config.local_rotary is not None:
        both = {"full_attention": config.rotary, "sliding_attention": config.local_rotary}
        return {"rope_parameters": {name: _stated(rotary) for name, rotary in both.items()}}
    found: dict[str, Any] = {"rope_parameters": _stated(config.rotary)}
    if config.rotary.original_max_position_embeddings is not None:
        key = "original_max_position_embeddings"
        found[key] = config.rotary.original_max_position_embeddings
    return found


def _stated(rotary: Rotary) -> dict[str, Any]:
    default = Rotary()
    stated = {
        field.name: getattr(rotary, field.name)
        for field in dataclasses.fields(rotary)
        if getattr(rotary, field.name) != getattr(default, field.name)
    }
    stated |= {"rope_type": rotary.rope_type, "rope_theta": rotary.rope_theta}
    needed = {name: getattr(rotary, name) for name in _NEEDED.get(rotary.rope_type, ())}
    stated |= needed | {"partial_rotary_factor": rotary.partial_rotary_factor}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in stated.items()}
