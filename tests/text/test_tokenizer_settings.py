# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files beside a vocabulary change ids and characters of tokens as they do in transformers."""

import importlib
import json
import os
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from small_encoders import byte_level, unigram
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from flaxattn.errors import CheckpointError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import (
    PYTHON_CLASSES,
    SPECIAL_TOKENS,
    bert_backend,
)
from flaxattn.text.transformers_tokenizer import PythonTokenizer, open_tokenizer

TEXTS = [
    "The Cat sat, the café.",
    "CAFÉ the [E1] cat [/E1] sat",
    "[MASK]cat [PAD] <mask> the<s>",
    "東京 the CAT東",
    "  the   cat ",
]
WORDS = ["the", "cat", "sat", "The", "Cat", "café", "cafe", "東", "京", ".", ",", "[", "]", "/"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZé1<>"]
TRIALS = 200 if os.environ.get("FLAXATTN_TRIALS") == "full" else 12


def wordpiece(**settings: Any) -> tokenizers.Tokenizer:
    tokens = [*SPECIAL_TOKENS.values(), *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    return bert_backend(vocabulary, settings)


def llama() -> tokenizers.Tokenizer:
    """Llama's kind: byte pairs over ▁, letters without an entry as bytes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    vocabulary = {token: number for number, token in enumerate([*tokens, *LETTERS])}
    merges = []
    for word in ("▁the", "▁cat", "▁The", "sat"):
        for end in range(2, len(word) + 1):
            pair = (word[: end - 1], word[end - 1])
            if pair not in merges:
                merges.append(pair)
            vocabulary.setdefault(word[:end], len(vocabulary))
    model = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return backend


def albert(lowercase: bool = True) -> tokenizers.Tokenizer:
    backend = unigram().backend
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD()]
    steps += [normalizers.StripAccents(), *([normalizers.Lowercase()] if lowercase else [])]
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    return backend


BASES = {
    "bert": ("bert", "BertTokenizer", wordpiece),
    "roberta": ("roberta", "RobertaTokenizer", lambda: byte_level().backend),
    "llama": ("llama", "LlamaTokenizer", llama),
    "albert": ("albert", "AlbertTokenizer", albert),
}


def added(content: str, **properties: bool) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"content": content, **plain, **properties}


def write(
    folder: Path,
    base: str,
    settings: dict[str, Any] | None = None,
    *,
    name: str | None = "",
    files: dict[str, Any] | None = None,
    only_vocabulary: bool = False,
    backend: tokenizers.Tokenizer | None = None,
) -> Path:
    """A directory with a tokenizer, and what lies beside it."""
    model_type, own, make = BASES[base]
    folder.mkdir(parents=True, exist_ok=True)
    backend = make() if backend is None else backend
    if only_vocabulary:
        tokens = sorted(backend.get_vocab(), key=backend.get_vocab().__getitem__)
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    else:
        backend.save(str(folder / "tokenizer.json"))
    contents = {"config.json": {"model_type": model_type}, **(files or {})}
    if settings is not None:
        named = {} if name is None else {"tokenizer_class": name or own}
        contents["tokenizer_config.json"] = named | settings
    for file, content in contents.items():
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    return folder


def agree(folder: Path) -> None:
    """Check ids and characters against transformers; a refusal is an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = open_tokenizer(folder), AutoTokenizer.from_pretrained(str(folder))
    assert isinstance(ours, Tokenizer)
    for text in TEXTS:
        batch = ours.encode(text)
        expected = theirs(text, return_offsets_mapping=True)
        assert batch.input_ids[0].tolist() == expected["input_ids"], text
        assert batch.offsets[0] == [tuple(span) for span in expected["offset_mapping"]], text
    pair = ours.encode("the cat", "The CAFÉ").input_ids[0].tolist()
    assert pair == theirs("the cat", "The CAFÉ")["input_ids"]


# Name of the case: base, tokenizer_config.json, and how the directory differs otherwise.
LEFT_STRIPPED = added("<mask>", lstrip=True, special=True)
DIRECTORIES: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any]]] = {
    "as-saved": ("bert", {}, {}),
    "cased": ("bert", {"do_lower_case": False}, {}),
    "cased-fast": ("bert", {"do_lower_case": False}, {"name": "BertTokenizerFast"}),
    "cased-electra": ("bert", {"do_lower_case": False}, {"name": "ElectraTokenizer"}),
    "general-class": ("bert", {"do_lower_case": False}, {"name": "PreTrainedTokenizerFast"}),
    "accents-stripped": ("bert", {"do_lower_case": False, "strip_accents": True}, {}),
    "accents-kept": ("bert", {"strip_accents": False}, {}),
    "ideographs-joined": ("bert", {"tokenize_chinese_chars": False}, {}),
    "default-case": ("bert", {}, {"backend": wordpiece(do_lower_case=False)}),
    "no-config": ("bert", None, {"backend": wordpiece(do_lower_case=False)}),
    "special-split": ("bert", {"split_special_tokens": True}, {}),
    "vocabulary": ("bert", {}, {"only_vocabulary": True}),
    "vocabulary-cased": ("bert", {"do_lower_case": False}, {"only_vocabulary": True}),
    "vocabulary-of-another-class": (
        "bert",
        {"cls_token": "[CLS]", "sep_token": "[SEP]"},
        {"name": "MPNetTokenizer", "only_vocabulary": True},
    ),
    "listed": ("bert", {"additional_special_tokens": ["[E1]", "[/E1]"]}, {}),
    "listed-anew": ("bert", {"extra_special_tokens": ["[E1]", "[/E1]"]}, {}),
    "listed-by-name": ("bert", {"extra_special_tokens": {"start_token": "[E1]"}}, {}),
    "own-name": ("bert", {"image_token": "[E1]"}, {}),
    "decoder": ("bert", {"added_tokens_decoder": {"SIZE": added("[E1]")}}, {}),
    "decoder-normalized": (
        "bert",
        {"added_tokens_decoder": {"SIZE": added("CAFÉ", normalized=True, single_word=True)}},
        {},
    ),
    "added-file": ("bert", {}, {"files": {"added_tokens.json": {"[E1]": "SIZE"}}}),
    "added-file-special": (
        "bert",
        {"additional_special_tokens": ["[E1]"]},
        {"files": {"added_tokens.json": {"[E1]": "SIZE"}}, "only_vocabulary": True},
    ),
    "map": (
        "bert",
        {"mask_token": "[MASK]"},
        {"files": {"special_tokens_map.json": {"mask_token": LEFT_STRIPPED}}},
    ),
    "map-unread": (
        "bert",
        {"added_tokens_decoder": {}},
        {"files": {"special_tokens_map.json": {"additional_special_tokens": ["[E1]"]}}},
    ),
    "blank-before": ("roberta", {"add_prefix_space": True}, {}),
    "blank-before-general": (
        "roberta",
        {"add_prefix_space": True},
        {"name": "PreTrainedTokenizerFast"},
    ),
    "mask-takes-blanks": ("roberta", {"added_tokens_decoder": {"4": LEFT_STRIPPED}}, {}),
    "named-only": ("roberta", {"bos_token": "<begin>", "pad_token": "[PAD]"}, {}),
    "llama": ("llama", {"legacy": False}, {}),
    "llama-padded": ("llama", {"pad_token": "[PAD]"}, {}),
    "llama-no-blank": ("llama", {"add_prefix_space": False}, {}),
    "albert": ("albert", {}, {}),
    "albert-cased": ("albert", {"do_lower_case": False}, {}),
    "albert-accents": ("albert", {"keep_accents": True}, {}),
}


def with_size(value: Any, size: int) -> Any:
    """The same files; SIZE stands for the first id after the vocabulary."""
    if isinstance(value, dict):
        return {
            (str(size) if key == "SIZE" else key): with_size(each, size)
            for key, each in value.items()
        }
    return size if value == "SIZE" else value


@pytest.mark.parametrize("case", DIRECTORIES)
def test_ids_and_characters_are_those_of_transformers(tmp_path: Path, case: str) -> None:
    base, settings, options = DIRECTORIES[case]
    size = BASES[base][2]().get_vocab_size()
    agree(write(tmp_path, base, with_size(settings, size), **with_size(options, size)))


@pytest.mark.parametrize("seed", range(TRIALS))
def test_drawn_directories_are_read_as_by_transformers(tmp_path: Path, seed: int) -> None:
    """Files drawn at random are read as transformers reads them, or refused by their name."""
    draw = random.Random(seed)
    base = draw.choice(list(BASES))
    bert = base == "bert"
    size = BASES[base][2]().get_vocab_size()
    settings: dict[str, Any] = {}
    switches = {
        "bert": ("do_lower_case", "strip_accents", "tokenize_chinese_chars"),
        "roberta": ("add_prefix_space",),
        "llama": ("add_prefix_space",),
        "albert": ("do_lower_case", "keep_accents"),
    }[base]
    for name in switches:
        if draw.random() < 0.5:
            settings[name] = draw.choice([True, False])
    tokens = draw.sample(["[E1]", "[/E1]", "CAFÉ", "the cat", "sat,"], draw.randrange(4))
    places = [size + number for number in range(len(tokens))]
    if draw.random() < 0.3:
        places = [place + 1 for place in places]
    files: dict[str, Any] = {}
    properties = {
        name: draw.random() < 0.3 for name in ("single_word", "lstrip", "rstrip", "normalized")
    }
    match draw.choice(["decoder", "file", "list", "map"]):
        case "decoder":
            listed = {str(n): added(t, **properties) for n, t in zip(places, tokens, strict=True)}
            settings["added_tokens_decoder"] = listed
        case "file":
            files["added_tokens.json"] = dict(zip(tokens, places, strict=True))
        case "list":
            settings["additional_special_tokens"] = tokens
        case "map":
            files["special_tokens_map.json"] = {"additional_special_tokens": tokens}
    cased = draw.random() < 0.5
    backend = wordpiece(do_lower_case=not cased) if bert else None
    only = bert and draw.random() < 0.3
    folder = write(tmp_path, base, settings, files=files, only_vocabulary=only, backend=backend)
    try:
        agree(folder)
    except CheckpointError as error:
        assert places[:1] == [size + 1]
        assert any(name in str(error) for name in ("added_tokens.json", "tokenizer_config.json"))


CONTRADICTIONS = {
    "added-file": ({}, {"added_tokens.json": {"[E1]": 9000}}, "added_tokens.json"),
    "another-id": ({}, {"added_tokens.json": {"cat": 5000}}, "added_tokens.json"),
    "decoder": (
        {"added_tokens_decoder": {"9000": added("[E1]")}},
        {},
        "tokenizer_config.json",
    ),
    "no-id": ({}, {"added_tokens.json": {"[E1]": "first"}}, "added_tokens.json"),
    "text-for-a-switch": ({"do_lower_case": "false"}, {}, "do_lower_case"),
    "number-for-a-token": ({"pad_token": 0}, {}, "pad_token"),
    "tokens-as-text": ({"additional_special_tokens": "[E1]"}, {}, "additional_special_tokens"),
    "decoder-as-list": ({"added_tokens_decoder": [added("[E1]")]}, {}, "added_tokens_decoder"),
    "map-of-numbers": ({}, {"special_tokens_map.json": {"cls_token": 3}}, "special_tokens_map"),
    "map-as-list": ({}, {"special_tokens_map.json": [1]}, "special_tokens_map.json"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_files_that_contradict_each_other_are_refused_by_name(tmp_path: Path, case: str) -> None:
    settings, files, named = CONTRADICTIONS[case]
    folder = write(tmp_path, "bert", settings, files=files)
    with pytest.raises(CheckpointError) as caught:
        open_tokenizer(folder)
    assert named in str(caught.value) and str(caught.value).count("\n") == 2


@pytest.mark.parametrize("kind", ["BertJapaneseTokenizer", "PhobertTokenizer"])
@pytest.mark.parametrize("vocabulary", [True, False])
def test_a_class_without_a_pipeline_is_never_read_as_a_bert(
    tmp_path: Path, kind: str, vocabulary: bool
) -> None:
    """transformers reads it, or the refusal names the class."""
    folder = write(tmp_path, "bert", {}, name=kind, only_vocabulary=vocabulary)
    with pytest.raises(CheckpointError, match=kind):
        Tokenizer.from_dir(folder)
    try:
        found = open_tokenizer(folder)
    except CheckpointError as error:
        assert kind in str(error)
    else:
        assert isinstance(found, PythonTokenizer) and found.class_name == kind


def test_a_default_that_decides_is_announced(tmp_path: Path) -> None:
    folder = write(tmp_path, "bert", {}, backend=wordpiece(do_lower_case=False))
    with pytest.warns(UserWarning, match="do_lower_case"):
        Tokenizer.from_dir(folder)


def test_settings_are_saved_with_what_they_did(tmp_path: Path) -> None:
    files = {"special_tokens_map.json": {"additional_special_tokens": ["[E1]"]}}
    folder = write(tmp_path / "first", "bert", {"do_lower_case": False}, files=files)
    ours = Tokenizer.from_dir(folder)
    ours.save(tmp_path / "second")
    (tmp_path / "second" / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    agree(tmp_path / "second")
    again = Tokenizer.from_dir(tmp_path / "second")
    for text in TEXTS:
        assert again.encode(text).input_ids.tolist() == ours.encode(text).input_ids.tolist()


@pytest.mark.slow
def test_the_classes_in_python_are_those_of_transformers() -> None:
    """A class that transformers gains or turns into a pipeline is noticed here."""
    from transformers import models as their_models
    from transformers.tokenization_python import PythonBackend
    from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

    found = set()
    for path in Path(their_models.__path__[0]).glob("*/tokenization_*.py"):
        if path.parent.name == "pop2piano":  # fails to import without its packages
            continue
        name = f"transformers.models.{path.parent.name}.{path.stem}"
        for each in vars(importlib.import_module(name)).values():
            base = (PythonBackend, SentencePieceBackend)
            if isinstance(each, type) and issubclass(each, base):
                found.add(each.__name__)
    assert found >= PYTHON_CLASSES
    # Those of speech and pictures, those of ours, and bases.
    others = ("Clvp", "Dia", "Esm", "FastSpeech2Conformer", "Marian", "Mgpstr", "PreTrained")
    others += ("Speech2Text", "SpeechT5", "Vits", "Wav2Vec2CTC", "Wav2Vec2PhonemeCTC")
    rest = found - PYTHON_CLASSES - {f"{name}Tokenizer" for name in others}
    assert rest <= {"BertTokenizerLegacy", "SentencePieceBackend", "PythonBackend"}
