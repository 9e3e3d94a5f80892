# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The supported kind of model that is nearest to one that is not supported."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

# What a class of Hugging Face is for, and kinds of models with that purpose, the closest first.
_BY_PURPOSE = (
    (("ForCausalLM", "LMHeadModel"), ("llama", "gpt2")),
    (("ForConditionalGeneration", "MTModel"), ("t5", "bart")),
    (("",), ("modernbert", "bert")),
)


def nearest_type(settings: Mapping[str, Any], known: Sequence[str]) -> str:
    """Name the supported model type that is most like a given one.

    A type of a similar name is preferred, such as `gpt2` for `gpt_neo`; then one that is made for
    the same purpose.
    """
    kind, classes = settings.get("model_type"), settings.get("architectures")
    if isinstance(kind, str):
        inside = sorted((name for name in known if _stem(name) in kind), key=len, reverse=True)
        if close := difflib.get_close_matches(kind, known, n=1, cutoff=0.7) or inside:
            return close[0]
    head = classes[0] if isinstance(classes, list) and classes else ""
    if settings.get("is_encoder_decoder") is True:
        head = "ForConditionalGeneration"
    for ends, names in _BY_PURPOSE:
        if str(head).endswith(ends):
            return next((name for name in names if name in known), known[0])
    return known[0]


def _stem(name: str) -> str:
    """A type without its version, where that leaves a word."""
    stem = name.rstrip("0123456789")
    return stem if len(stem) > 2 else name
