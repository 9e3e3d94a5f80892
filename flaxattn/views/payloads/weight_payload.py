# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attribution maps on a page, and effects of ablation.

Arrays are fitted and scaled by `weight_kinds.py`; `side_payload.py` shapes attention itself.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.encoded_weights import Blocks, Precision, encode_weights, visible
from flaxattn.views.payloads.side_payload import shape_likeness, side_measures
from flaxattn.views.payloads.weight_kinds import Scaled, WeightKind, measured_as

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
