# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Generation settings of a checkpoint: `generation_config.json`, as fields of `Decoding`.

Old checkpoints have these settings in `config.json`. What would change the text and is not
implemented here is refused when text is written, not skipped.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flaxattn.errors import InputError
from flaxattn.pretrained.decoding_settings import Decoding
from flaxattn.trace.tensor_file import read_json

FILE = "generation_config.json"
_SAME = (
    "do_sample",
    "early_stopping",
    "length_penalty",
    "min_p",
    "no_repeat_ngram_size",
    "num_beams",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
)
_DRAWING = ("temperature", "top_k", "top_p", "min_p")  # they say how a token is drawn
_LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
_BANS = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
# Settings that are not implemented, with the values under which they do nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "diversity_penalty": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1),
    "epsilon_cutoff": (None, 0),
    "eta_cutoff": (None, 0),
    "exponential_decay_length_penalty": (None,),
    "force_words_ids": (None,),
    "guidance_scale": (None, 1),
    "num_beam_groups": (None, 1),
    "penalty_alpha": (None, 0),
    "sequence_bias": (None,),
    "typical_p": (None, 1),
}


def files(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings as content of a file by its name; empty where there are none."""
    return {FILE: settings} if settings else {}


def read(directory: str | Path) -> dict[str, Any]:
    """The settings of a model directory; empty where it has none."""
    path = Path(directory) / FILE
    if path.is_file():
        return read_json(path)
    known = {*_SAME, *_LENGTHS, *_NEUTRAL, *_BANS, "renormalize_logits"}
    config = read_json(Path(directory) / "config.json")
    return {name: value for name, value in config.items() if name in known}


def decoding_fields(settings: Mapping[str, Any], prompt: int) -> dict[str, Any]:
    """Settings as fields of `Decoding`."""
    for name, neutral in _NEUTRAL.items():
        if settings.get(name) not in neutral:
            raise InputError(
                f"the checkpoint asks for {name} {settings[name]}, which is not implemented\n"
                f"take it out of {FILE}; the texts will differ from those of Hugging Face"
            )
    given = {name: value for name, value in settings.items() if value is not None}
    fields = {name: given[name] for name in _SAME if name in given}
    fields |= {name: given[name] for name in ("max_new_tokens", "min_new_tokens") if name in given}
    for total, new in {"max_length": "max_new_tokens", "min_length": "min_new_tokens"}.items():
        if total in given and new not in fields:
            fields[new] = max(0, given[total] - prompt)
    names = {"pad_token_id": "pad", "forced_bos_token_id": "forced_first"}
    names |= {"forced_eos_token_id": "forced_last", "renormalize_logits": "renormalize"}
    fields |= {ours: given[theirs] for theirs, ours in names.items() if theirs in given}
    if "eos_token_id" in given:
        ends = given["eos_token_id"]
        fields["eos"] = tuple(ends) if isinstance(ends, list) else (ends,)
    banned = [_single(words) for words in given.get("bad_words_ids", ())]
    if banned := (*banned, *given.get("suppress_tokens", ())):
        fields["banned"] = banned
    if first := tuple(given.get("begin_suppress_tokens", ())):
        fields["banned_first"] = first
    return fields


def settled(
    chosen: Mapping[str, Any],
    stored: Mapping[str, Any],
    given: Mapping[str, Any],
    prompt: int,
    limit: int,
) -> Decoding:
    """The settings of one call."""
    try:
        fields = {**chosen, **decoding_fields(stored, prompt)}
        fields["max_new_tokens"] = max(1, min(limit, int(fields["max_new_tokens"])))
        Decoding(**fields)
    except (TypeError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{FILE} has a setting of the wrong type\n{error}\ncompare it with the original"
        ) from error
    known = {field.name for field in dataclasses.fields(Decoding)}
    if unknown := sorted(set(given) - known):
        raise InputError(f"generate has no setting {unknown[0]}\nit has {', '.join(sorted(known))}")
    decoding = Decoding(**{**fields, **given})
    idle = [name for name in _DRAWING if name in given]
    if idle and not decoding.do_sample:
        raise InputError(
            f"{idle[0]} says how a token is drawn, but none is drawn\n"
            f"received {idle[0]}={given[idle[0]]} without do_sample\n"
            f"add do_sample=True, or leave {' and '.join(idle)} out"
        )
    if decoding.max_new_tokens > limit:
        raise InputError(
            f"max_new_tokens is {decoding.max_new_tokens}; after a prompt of {prompt} this "
            f"model has room for {limit}\nlower it"
        )
    return decoding


def _single(words: list[int]) -> int:
    if len(words) != 1:
        raise InputError(
            f"the checkpoint bans the sequence {words}; only single tokens can be banned\n"
            f"take it out of bad_words_ids in {FILE}"
        )
    return words[0]
