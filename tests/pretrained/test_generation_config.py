# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`generation_config.json` as settings of generation."""

import json
from pathlib import Path
from typing import Any

import pytest

from flaxattn.errors import InputError
from flaxattn.pretrained import decoding_settings
from flaxattn.pretrained.decoding_settings import Decoding

MARIAN: dict[str, Any] = {
    "_from_model_config": True,
    "bad_words_ids": [[58100]],
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "max_length": 512,
    "num_beams": 6,
    "pad_token_id": 58100,
    "renormalize_logits": True,
}


def test_marians_settings_are_understood() -> None:
    decoding = Decoding(**decoding_settings.decoding_fields(MARIAN, 1))
    assert decoding == Decoding(
        max_new_tokens=511,
        num_beams=6,
        banned=(58100,),
        eos=(0,),
        forced_last=0,
        pad=58100,
        renormalize=True,
    )


def test_barts_settings_are_understood() -> None:
    settings = {"min_length": 56, "max_length": 142, "length_penalty": 2.0, "early_stopping": True}
    settings |= {"no_repeat_ngram_size": 3, "forced_bos_token_id": 0, "eos_token_id": [2, 3]}
    decoding = Decoding(**decoding_settings.decoding_fields(settings, 1))
    assert decoding == Decoding(
        max_new_tokens=141,
        min_new_tokens=55,
        length_penalty=2.0,
        early_stopping=True,
        no_repeat_ngram_size=3,
        forced_first=0,
        eos=(2, 3),
    )


def test_settings_of_a_chat_model_are_understood() -> None:
    settings: dict[str, Any] = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8}
    settings |= {"min_p": 0.05, "repetition_penalty": 1.1, "eos_token_id": [128001, 128008, 128009]}
    settings |= {"suppress_tokens": [5, 6], "begin_suppress_tokens": [220], "max_new_tokens": 9}
    settings |= {"bad_words_ids": [[4]]}
    decoding = Decoding(**decoding_settings.decoding_fields(settings, 1))
    assert decoding == Decoding(
        max_new_tokens=9,
        do_sample=True,
        temperature=0.7,
        top_k=20,
        top_p=0.8,
        min_p=0.05,
        repetition_penalty=1.1,
        banned=(4, 5, 6),
        banned_first=(220,),
        eos=(128001, 128008, 128009),
    )


def test_old_checkpoints_have_them_in_their_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_beams": 4, "vocab_size": 9}))
    assert decoding_settings.read(tmp_path) == {"num_beams": 4}
    (tmp_path / "generation_config.json").write_text(json.dumps({"num_beams": 2}))
    assert decoding_settings.read(tmp_path) == {"num_beams": 2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"typical_p": 0.9}, "asks for typical_p 0.9, which is not implemented"),
        ({"num_beam_groups": 2}, "asks for num_beam_groups 2"),
        ({"bad_words_ids": [[3, 4]]}, "bans the sequence [3, 4]"),
    ],
)
def test_what_would_change_the_text_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        decoding_settings.decoding_fields(settings, 1)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


def test_what_changes_nothing_is_let_through() -> None:
    settings = {"typical_p": 1.0, "num_beam_groups": 1, "suppress_tokens": None}
    assert decoding_settings.decoding_fields(settings, 1) == {}
    settings |= {"repetition_penalty": 1.0, "min_p": 0, "begin_suppress_tokens": []}
    assert Decoding(**decoding_settings.decoding_fields(settings, 1)) == Decoding()
