# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights of a page: attention, attribution maps or other maps in its place, and ablations."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import Blocks, Precision, encode_weights, visible
from flaxattn.views.payloads.side_payload import shape_likeness, side_measures

RAW = "attention"
"""Default kind of weights on a page."""
Given = Mapping[str, Any]
"""By name: an array of the first side, an array for each text, or either of these by side."""

# Names that are known: how they read, and what they are.
LABELS = {
    RAW: ("raw attention", "what the softmax gave"),
    "norm": ("‖αf(x)‖", "length of the vector that each key adds to each query"),
    "rollout": ("rollout", "which inputs a head reads, through all layers below it"),
    "effective": ("effective attention", "attention without the part that values cancel"),
    "gradient": ("gradient × attention", "how much the loss grows with each weight"),
    "relevance": ("relevance (AttnLRP)", "share of each weight in the text's log-likelihood"),
    "chefer": ("relevance (Chefer)", "inputs that matter, by gradients through all layers below"),
}
_TAKEN = ("a", "b", "difference")  # what a page of two traces calls them
_SUM = 1e-3  # rows whose sum is as close to one are shares


@dataclasses.dataclass(frozen=True)
class Scaled:
    """Weights of one text as a picture shows them.

    Attributes:
        values: Between 0 and 1, or between -1 and 1 if any is negative; NaN stays.
        peaks: What 1 stands for in each layer: its largest size, or 1 of shares.
        shares: Whether every row sums to one, or to zero.
        signed: Whether any value is negative.
        common: Whether all heads share a map; then there is one.
    """

    values: Float[np.ndarray, "L H Q K"]
    peaks: Float[np.ndarray, " L"]
    shares: bool
    signed: bool
    common: bool

    @property
    def unit(self) -> str:
        """Name of the value that 1 stands for."""
        if self.shares:
            return "rows sum to 1"
        what = "size" if self.signed else "value"
        if len(self.peaks) == 1:
            return f"÷ {self.peaks[0]:.4g}, the layer's largest {what}"
        return f"÷ the largest {what} of each layer"


@dataclasses.dataclass(frozen=True)
class WeightKind:
    """One kind of weights of a trace.

    Attributes:
        name: Such as `norm`.
        sides: `[L, H, Q, K]` of each text without padding, by side; one head where all share it.
    """

    name: str
    sides: Mapping[str, Sequence[Float[np.ndarray, "L H Q K"]]]

    @property
    def label(self) -> str:
        """Label of the kind."""
        return LABELS.get(self.name, (self.name, ""))[0]

    @property
    def about(self) -> str:
        """Description of the kind; empty for an unknown name."""
        return LABELS.get(self.name, ("", ""))[1]

    def scaled(
        self, side: str, sequence: int, record: AttentionRecord, layers: Sequence[int]
    ) -> Scaled:
        """Its weights in some layers of one text, ready to be drawn."""
        chosen = self.sides[side][sequence][[record.layers.index(number) for number in layers]]
        common = chosen.shape[1] < len(record.heads)
        if np.isinf(chosen).any():
            raise InputError(
                f"weights[{self.name!r}] of the {side} hold infinite values, which have no size to "
                "be drawn by.\nReplace them; NaN is drawn hatched."
            )
        return _scale(chosen, common)


def read_kinds(trace: Trace, given: Given | None) -> dict[str, WeightKind]:
    """Weights as they were given, fitted to the texts of a trace."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(
            f"weights: expected a mapping from names to arrays, received {type(given).__name__}.\n"
            'Name them: weights={"norm": array}, or fa.contributions(trace, ["rollout"]).'
        )
    return {name: _kind(trace, name, arrays) for name, arrays in (given or {}).items()}


def one_kind(trace: Trace, given: Given | None) -> WeightKind | None:
    """The kind that a figure draws in place of attention; None where nothing is given."""
    kinds = read_kinds(trace, given)
    if len(kinds) > 1:
        name = next(iter(kinds))
        raise InputError(
            f"A figure draws one kind of weights, received {', '.join(kinds)}.\n"
            f"Choose one: weights={{{name!r}: found[{name!r}]}}."
        )
    return next(iter(kinds.values()), None)


def sized_rows(values: Float[np.ndarray, "L H Q K"]) -> Float[np.ndarray, "L H Q K"]:
    """Sizes as shares of their row, which measures of attention can be taken of; zeros stay."""
    sizes = np.abs(values).astype(np.float64)
    total = sizes.sum(-1, keepdims=True)
    shares = np.divide(sizes, total, out=np.zeros_like(sizes), where=total > 0)
    return np.where(np.isnan(total), np.nan, shares).astype(np.float32)


def measured_as(one: Trace, side: str, values: Float[np.ndarray, "L H Q K"]) -> Trace:
    """A text whose attention is the sizes of other weights, so that they can be measured."""
    attention: AttentionRecord = getattr(one, side)
    rows = sized_rows(values)
    whole: Any = np.broadcast_to(rows, (len(rows), len(attention.heads), *rows.shape[2:]))
    record = AttentionRecord(weights=whole[:, None], layers=attention.layers, heads=attention.heads)
    others = {name: None for name in one.sides}
    return dataclasses.replace(one, **(others | {side: record}))


def _scale(values: np.ndarray, common: bool) -> Scaled:
    sums, known = values.sum(-1, dtype=np.float64), values[~np.isnan(values)]
    least = float(known.min(initial=0))
    close = np.isnan(sums) | (np.abs(sums - 1) < _SUM) | (sums == 0)
    if least > -(_SUM**2) and known.any() and close.all():
        bounded = np.clip(values, 0, 1).astype(np.float32)
        return Scaled(bounded, np.ones(len(values)), True, False, common)
    sizes = np.abs(np.nan_to_num(values)).reshape(len(values), -1)
    peaks = sizes.max(-1, initial=0).astype(np.float64)
    peaks[peaks == 0] = 1.0
    scaled = (values / peaks[:, None, None, None]).astype(np.float32)
    return Scaled(scaled, peaks, False, least < 0, common)


def _kind(trace: Trace, name: str, arrays: Any) -> WeightKind:
    """Arrays under one name."""
    if name == RAW or name in _TAKEN or not isinstance(name, str) or not name.strip():
        raise InputError(
            f"weights: the name {name!r} is taken.\nName them by what they are, such as 'norm'."
        )
    held = {side: record for side, record in trace.sides.items() if record.weights is not None}
    by_side = arrays if isinstance(arrays, Mapping) else {next(iter(held), ""): arrays}
    if wrong := [side for side in by_side if side not in held]:
        raise InputError(
            f"weights[{name!r}] are of {wrong[0] or 'a side'!r}; this trace has weights of "
            f"{', '.join(held) or 'none'}.\nCapture them: capture=fa.Capture(weights=True)."
        )
    return WeightKind(name, {side: _fitted(trace, name, side, a) for side, a in by_side.items()})


def _fitted(trace: Trace, name: str, side: str, given: Any) -> list[np.ndarray]:
    """One array `[L, H or 1, Q, K]` for each text."""
    whole: AttentionRecord = getattr(trace, side)
    assert whole.weights is not None
    if isinstance(given, list | tuple):
        shapes = [np.shape(getattr(one, side).weights) for one in trace]
        found = [_with_heads(np.asarray(array)) for array in given]
        if len(found) == len(shapes) and all(map(_fits, found, shapes)):
            return found
        raise _misfit(name, side, [np.shape(array) for array in given], shapes)
    array, shape = np.asarray(given), np.shape(whole.weights)
    if (full := _whole(array, shape)) is None:
        raise _misfit(name, side, [array.shape], [shape])
    record = dataclasses.replace(whole, weights=full, **_BARE)
    cut = dataclasses.replace(trace, **{side: record})
    return [np.asarray(getattr(one, side).weights)[:, 0] for one in cut]


_BARE: dict[str, Any] = {
    "scores": None,
    "query": None,
    "key": None,
    "value": None,
    "head_output": None,
    "stats": {},
}


def _whole(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """An array with all five axes, heads perhaps as one; None if it does not fit."""
    layers, batch, heads, queries, keys = shape
    if array.shape == shape:
        return array
    if array.shape == (layers, batch, queries, keys):
        return array[:, :, None]
    if batch == 1 and array.shape == (layers, heads, queries, keys):
        return array[:, None]
    return array[:, None, None] if batch == 1 and array.shape == (layers, queries, keys) else None


def _with_heads(array: np.ndarray) -> np.ndarray:
    """With an axis of heads."""
    return array[:, None] if array.ndim == 3 else array


def _fits(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Return whether an array of one text belongs beside weights `[L, 1, H, Q, K]` of it."""
    layers, _, heads, queries, keys = shape
    return array.shape in ((layers, heads, queries, keys), (layers, 1, queries, keys))


def _misfit(name: str, side: str, given: Any, expected: Any) -> InputError:
    message = ", ".join(map(str, given[:3])) or "nothing"
    wanted = ", ".join(map(str, expected[:3]))
    return InputError(
        f"weights[{name!r}] have shape {message}; weights of the {side} have {wanted}.\n"
        "Give [L, B, H, Q, K], or [L, B, Q, K] for all heads, or a list with one array for each "
        "text."
    )


_MASKS = {"decoder_head_mask": "decoder", "cross_attn_head_mask": "cross"}


class Effects(Protocol):
    """Results of `flaxattn.ablate` and `flaxattn.head_importance`."""

    @property
    def kind(self) -> str:
        """`ablation` or `importance`."""
        ...

    @property
    def means(self) -> Mapping[str, Float[np.ndarray, "L H"]]:
        """Mean effect of every head of the model, by name of the mask."""
        ...

    @property
    def loss(self) -> float:
        """With all heads."""
        ...

    @property
    def texts(self) -> int:
        """Number of texts it was measured on."""
        ...


def shape_kinds(
    shaped: dict[str, Any],
    kinds: Mapping[str, WeightKind],
    one: Trace,
    found: Mapping[str, AttentionRecord],
    sequence: int,
    precision: Precision,
    blocks: Blocks,
    number: int,
) -> None:
    """Put weights other than attention beside those of a text."""
    for about in shaped["sides"]:
        side = about["name"]
        of_side = [kind for kind in kinds.values() if side in kind.sides]
        for place, kind in enumerate(of_side):
            scaled = kind.scaled(side, sequence, found[side], about["layers"])
            prefix = f"{number}/{side}/other/{place}"
            stored: Precision = "float16" if scaled.signed else precision
            part = _part(kind, scaled, stored, about["layers"], blocks, prefix)
            held = dataclasses.replace(found[side], layers=tuple(about["layers"]))
            measured = measured_as(dataclasses.replace(one, **{side: held}), side, scaled.values)
            rows = getattr(measured, side)
            part["measures"] = side_measures(measured, side, rows, about["layers"])
            if not part["common"]:
                shares = np.asarray(rows.weights)[:, 0]
                part["likeness"] = shape_likeness(shares, blocks, f"{prefix}/distances")
            about.setdefault("other", {})[visible(kind.name)] = part


def _part(
    kind: WeightKind,
    scaled: Scaled,
    precision: Precision,
    layers: Sequence[int],
    blocks: Blocks,
    prefix: str,
) -> dict[str, Any]:
    """Weights of one kind, and what they are."""
    return {
        "label": visible(kind.label),
        "about": kind.about,
        "weights": [
            blocks.put(f"{prefix}/{number}", encode_weights(layer, precision))
            for number, layer in zip(layers, scaled.values, strict=True)
        ],
        "peaks": [float(f"{peak:.5g}") for peak in scaled.peaks],
        "shares": scaled.shares,
        "signed": scaled.signed,
        "common": scaled.common,
        "precision": precision,
    }


def read_effects(
    trace: Trace, effects: Effects | Sequence[Effects] | None
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, str]]:
    """Numbers of heads by kind and side, and what each kind was measured by."""
    given = [] if effects is None else effects if isinstance(effects, Sequence) else [effects]
    values: dict[str, dict[str, np.ndarray]] = {}
    captions: dict[str, str] = {}
    for one in given:
        if not all(hasattr(one, name) for name in ("kind", "means", "loss", "texts")):
            raise InputError(
                f"effects: expected what fa.ablate(task) returns, received {type(one).__name__}.\n"
                "Measure them: fa.ablate(fa.head_task(model, texts))."
            )
        alone = "encoder" if trace.encoder is not None else "decoder"
        values[one.kind] = {_MASKS.get(n, alone): np.asarray(m) for n, m in one.means.items()}
        for side, numbers in values[one.kind].items():
            _check_heads(one.kind, side, numbers, getattr(trace, side))
        what = {"ablation": "growth of the loss, in nats, without the head"}.get(
            one.kind, "size of the loss's slope in a factor on the head"
        )
        texts = "1 text" if one.texts == 1 else f"{one.texts:,} texts"
        captions[one.kind] = (
            f"{what}; mean over {texts}, whose loss is {one.loss:.4g} with all heads"
        )
    return values, captions


def _check_heads(kind: str, side: str, numbers: np.ndarray, record: AttentionRecord | None) -> None:
    if record is None:
        return
    layers, heads = numbers.shape
    if max(record.layers) >= layers or max(record.heads) >= heads:
        raise InputError(
            f"effects: {kind} of the {side} has {layers} layers of {heads} heads; the trace has "
            f"layer {max(record.layers)} and head {max(record.heads)}.\n"
            "Measure it with the model of the trace."
        )


def add_effects(shaped: dict[str, Any], values: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Put them among the measures of every head, whatever weights those are of."""
    for about in shaped["sides"]:
        parts = [about, *about.get("other", {}).values()]
        for kind, sides in values.items():
            if (numbers := sides.get(about["name"])) is None:
                continue
            for part in parts:
                for layer, measures in zip(about["layers"], part["measures"], strict=True):
                    for head, measure in zip(about["heads"], measures, strict=True):
                        if math.isfinite(value := float(numbers[layer, head])):
                            measure[kind] = float(f"{value:.4g}")
