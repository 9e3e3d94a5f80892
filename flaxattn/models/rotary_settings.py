# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary positions in a `config.json`: `rope_parameters`, and the older `rope_scaling`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from flaxattn.errors import CheckpointError
from flaxattn.models.config_base import shown
from flaxattn.models.decoder_types import TYPES
from flaxattn.models.rotary import Rotary

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
