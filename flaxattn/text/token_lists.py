# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of lists of tokens, as a GGUF file holds them under `tokenizer.ggml`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from flaxattn.errors import CheckpointError
from flaxattn.text.tokenizer import Tokenizer

_CONTROL, _USER = 3, 4  # values of token_type
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _splitters() -> dict[str, Any]:
    """Steps before byte pairs by the name that llama.cpp has for them."""
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _BYTES])
    return {
        "gpt-2": _BYTES,
        "smollm": digits,
        "starcoder": digits,
        "llama-bpe": _split(_LLAMA),
        "qwen2": _split(_QWEN),
    }


def byte_level_tokenizer(facts: Mapping[str, Any], template: str | None) -> Tokenizer:
    """A tokenizer of byte pairs, as of GPT-2."""
    kind, splitters = facts.get("pre", "gpt-2"), _splitters()
    kind = "gpt-2" if kind == "default" else kind
    if kind not in splitters:
        raise CheckpointError(
            f"its tokenizer splits texts as {kind!r}; flaxattn knows {', '.join(splitters)}"
        )
    vocabulary = {token: number for number, token in enumerate(facts["tokens"])}
    merges = [(pair[0], pair[1]) for pair in map(_pair, facts["merges"])]
    model = models.BPE(vocabulary, merges, ignore_merges=kind == "llama-bpe")
    backend = tokenizers.Tokenizer(model)
    if kind == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer, backend.decoder = splitters[kind], decoders.ByteLevel()
    return _finished(backend, facts, template, begins=kind == "llama-bpe")


def sentencepiece_tokenizer(facts: Mapping[str, Any], template: str | None) -> Tokenizer:
    """A tokenizer of SentencePiece's byte pairs, as of Llama 2 and Gemma."""
    tokens = facts["tokens"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = _merges(vocabulary, facts["scores"], facts["token_type"])
    unknown = tokens[facts.get("unknown_token_id", 0)]
    model = models.BPE(
        vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback="<0x00>" in vocabulary
    )
    backend = tokenizers.Tokenizer(model)
    prefix = facts.get("add_space_prefix", True)
    steps = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    last = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )
    return _finished(backend, facts, template, begins=True)


def _pair(merge: str) -> list[str]:
    return merge.split(" ", 1)


def _merges(
    vocabulary: Mapping[str, int], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Pairs of tokens that make a token, those of the highest score first."""

    def pairs() -> Iterator[tuple[float, int, str, str]]:
        for token, number in vocabulary.items():
            if kinds[number] in (_CONTROL, _USER) or len(token) < 2:
                continue
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if left in vocabulary and right in vocabulary:
                    yield -scores[number], number, left, right

    return [(left, right) for _, _, left, right in sorted(pairs())]


def _finished(
    backend: tokenizers.Tokenizer, facts: Mapping[str, Any], template: str | None, begins: bool
) -> Tokenizer:
    """The tokenizer with its special tokens; `begins` is whether it adds one by default."""
    tokens, kinds = facts["tokens"], facts.get("token_type", ())
    added = [
        AddedToken(token, normalized=False, special=kind == _CONTROL)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (_CONTROL, _USER)
    ]
    backend.add_tokens(added)
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    settings: dict[str, Any] = {
        name: tokens[facts[f"{key}_token_id"]]
        for name, key in names.items()
        if facts.get(f"{key}_token_id") is not None
    }
    first = [settings["bos_token"]] if facts.get("add_bos_token", begins) else []
    last = [settings["eos_token"]] if facts.get("add_eos_token", False) else []
    if first or last:
        around = " ".join([*first, "$A", *last])
        second = " ".join([*(f"{token}:1" for token in first), "$B:1", *(f"{t}:1" for t in last)])
        backend.post_processor = processors.TemplateProcessing(
            single=around,
            pair=f"{around} {second}",
            special_tokens=[(token, backend.token_to_id(token)) for token in {*first, *last}],
        )
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    return Tokenizer(backend, settings, template)
