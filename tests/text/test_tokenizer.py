# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: ids, readable pieces, words and offsets in several scripts, files, bad input.

Small vocabularies are written here; none of them is a published one.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors

from flaxattn.errors import CheckpointError, InputError
from flaxattn.text.tokenizer import SPECIAL_TOKENS, Tokenizer, longest_first, readable, spelling_of
from flaxattn.text.vocabulary_training import train_wordpiece

CASED = [
    "Straße",
    "Übergrößen",
    "##träger",
    "İstanbul",
    "'",
    "da",
    "ığdır",
    "Köln",
    "##er",
    "Der",
    "Herr",
    "geht",
    "in",
]
UNCASED = [
    "uber",
    "##gro",
    "##ße",
    "##ßen",
    "##trager",
    "istanbul",
    "'",
    "da",
    "ıgdır",
    "the",
    "cat",
    "play",
    "##ing",
    ".",
    ",",
    "?",
]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyzı")]


def write_vocab(folder: Path, tokens: list[str], **settings: object) -> Path:
    folder.mkdir()
    lines = [*SPECIAL_TOKENS.values(), *dict.fromkeys(tokens)]
    (folder / "vocab.txt").write_text("".join(f"{p}\n" for p in lines), encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def uncased(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """No tokenizer_config.json at all: the defaults of an uncased BERT."""
    folder = tmp_path_factory.mktemp("uncased") / "model"
    return Tokenizer.from_dir(write_vocab(folder, [*UNCASED, *LETTERS]))


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("cased") / "model"
    return Tokenizer.from_dir(write_vocab(folder, [*CASED, *LETTERS], do_lower_case=False))


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    texts = ["the cats are playing, playing and playing", "a cat plays", "The Dog sleeps"] * 5
    return train_wordpiece(texts, 80, lowercase=True, max_length=32)


def spans(text: str, offsets: list[tuple[int, int]]) -> list[str]:
    return [text[start:stop] for start, stop in offsets]


def test_a_sentence_gets_special_tokens_and_readable_tokens(uncased: Tokenizer) -> None:
    row = uncased.encode("The cat, playing.", max_length=16)
    assert row.tokens == [["[CLS]", "the", "cat", ",", "play", "##ing", ".", "[SEP]"]]
    assert row.word_ids == [[None, 0, 1, 2, 3, 3, 4, None]]
    assert spans("The cat, playing.", row.offsets[0])[1:-1] == [
        "The",
        "cat",
        ",",
        "play",
        "ing",
        ".",
    ]
    assert row.special.tolist() == [[True, *[False] * 6, True]]
    assert row.input_ids.dtype == np.int32
    assert row.input_ids[0, 0] == uncased.cls_id
    assert uncased.decode(row.input_ids[0]) == "the cat, playing."


def test_a_pair_has_two_segments_and_counts_words_in_each(uncased: Tokenizer) -> None:
    row = uncased.encode("the cat", "playing?", max_length=16)
    assert row.tokens == [["[CLS]", "the", "cat", "[SEP]", "play", "##ing", "?", "[SEP]"]]
    assert row.token_type_ids.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    assert row.word_ids == [[None, 0, 1, None, 0, 0, 1, None]]
    assert spans("playing?", row.offsets[0][4:7]) == ["play", "ing", "?"]


def test_shorter_sequences_are_padded_on_the_right(uncased: Tokenizer) -> None:
    batch = uncased.encode(["the", "the cat ."], max_length=16, pad_to=7)
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0]]
    assert batch.tokens[0][3:] == ["[PAD]"] * 4
    assert batch.special[0].tolist() == [True, False, True, True, True, True, True]
    assert batch.input_ids[0, 3:].tolist() == [uncased.pad_id] * 4
    assert batch.word_ids[0][3:] == [None] * 4


@pytest.mark.parametrize(
    ("text", "tokens", "words"),
    [
        ("Straße", ["Straße"], [0]),
        ("Übergrößenträger", ["Übergrößen", "##träger"], [0, 0]),
        (
            "Der Herr geht in Kölner",
            ["Der", "Herr", "geht", "in", "Köln", "##er"],
            [0, 1, 2, 3, 4, 4],
        ),
        ("İstanbul'da", ["İstanbul", "'", "da"], [0, 1, 2]),
        ("ığdır", ["ığdır"], [0]),
    ],
)
def test_cased_german_and_turkish(
    cased: Tokenizer, text: str, tokens: list[str], words: list[int]
) -> None:
    row = cased.encode(text, max_length=16)
    assert row.tokens[0][1:-1] == tokens
    assert row.word_ids[0][1:-1] == words
    readable_spans = [piece.removeprefix("##") for piece in tokens]
    assert spans(text, row.offsets[0])[1:-1] == readable_spans


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Straße", ["s", "##t", "##r", "##a", "##ße"]),  # ß is a letter, not an accented s
        ("Übergrößenträger", ["uber", "##gro", "##ßen", "##trager"]),
        ("İstanbul'da", ["istanbul", "'", "da"]),  # the dot of İ is stripped as an accent
        ("ığdır", ["ıgdır"]),  # dotless ı has no accent to lose
    ],
)
def test_uncased_german_and_turkish_keep_their_offsets(
    uncased: Tokenizer, text: str, tokens: list[str]
) -> None:
    row = uncased.encode(text, max_length=16)
    assert row.tokens[0][1:-1] == tokens
    assert "".join(spans(text, row.offsets[0])) == text


@pytest.mark.parametrize(
    "text",
    [
        "the 👩‍👩‍👧 cat",  # one picture, five code points
        "cafe\u0301 the",  # a combining acute accent
        "the שלום عربي cat",  # right to left
        "the \u202e cat",  # a control character, dropped
        "the 猫 cat",  # split off as a word of its own
    ],
)
def test_other_scripts_give_known_words_and_spans_inside_the_text(
    uncased: Tokenizer, text: str
) -> None:
    row = uncased.encode(text, max_length=32)
    assert "the" in row.tokens[0]
    place = row.tokens[0].index("the")
    assert spans(text, row.offsets[0])[place] == "the"
    assert all(0 <= start <= stop <= len(text) for start, stop in row.offsets[0])


def test_a_multilingual_directory_with_explicit_settings(tmp_path: Path) -> None:
    folder = write_vocab(
        tmp_path / "multilingual",
        ["猫", "Ü", "ü", "ber", "über", "кот", "a"],
        do_lower_case=True,
        strip_accents=False,
        tokenize_chinese_chars=False,
    )
    row = Tokenizer.from_dir(folder).encode("Über КОТ 猫", max_length=16)
    assert row.tokens == [["[CLS]", "über", "кот", "猫", "[SEP]"]]
    row = Tokenizer.from_dir(folder).encode("猫猫", max_length=16)
    assert row.tokens == [["[CLS]", "[UNK]", "[SEP]"]]  # not split, as the settings say


def test_tokenizer_json_comes_without_its_stored_padding_and_truncation(
    tmp_path: Path, uncased: Tokenizer
) -> None:
    stored = tokenizers.Tokenizer.from_str(uncased.backend.to_str())
    stored.enable_truncation(3)
    stored.enable_padding(length=50)
    stored.save(str(tmp_path / "tokenizer.json"))
    row = Tokenizer.from_dir(tmp_path).encode("the cat .", max_length=16)
    assert row.tokens == [["[CLS]", "the", "cat", ".", "[SEP]"]]


def test_saved_files_open_again_with_identical_ids(tmp_path: Path, trained: Tokenizer) -> None:
    trained.save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    again = Tokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    from_vocabulary = Tokenizer.from_dir(tmp_path)
    for text in ("The cats, played", "Ünknown [MASK] dog"):
        want = trained.encode(text).input_ids.tolist()
        assert again.encode(text).input_ids.tolist() == want
        assert from_vocabulary.encode(text).input_ids.tolist() == want
    assert again.max_length == 32


@pytest.mark.parametrize("kind", ["trained", "cased", "uncased"])
def test_saved_files_open_in_transformers_with_identical_ids(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    ours: Tokenizer = request.getfixturevalue(kind)
    settings = {"tokenizer_class": "BertTokenizer", **ours.settings}
    Tokenizer(ours.backend, settings).save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    pairs = [("The cats, playing", "Straße ığdır"), ("İstanbul'da [MASK]", "Übergrößenträger 👩‍👧")]
    for first, second in pairs:
        got, want = ours.encode(first, second), theirs(first, second)
        assert got.input_ids[0].tolist() == want["input_ids"]
        assert got.token_type_ids[0].tolist() == want["token_type_ids"]


def test_training_learns_whole_words_and_leaves_five_special_ids_first(
    trained: Tokenizer,
) -> None:
    ids = [trained.pad_id, trained.unk_id, trained.cls_id, trained.sep_id, trained.mask_id]
    assert ids == [0, 1, 2, 3, 4]
    assert trained.vocab_size <= 80
    assert trained.encode("Playing the CAT").tokens == [["[CLS]", "playing", "the", "cat", "[SEP]"]]


def test_training_reads_files_and_respects_case(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("Köln Köln Köln\nköln\n", encoding="utf-8")
    tokens = train_wordpiece([path], 60, lowercase=False).encode("Köln").tokens
    assert tokens == [["[CLS]", "Köln", "[SEP]"]]


def test_ids_of_many_texts_have_no_special_tokens(uncased: Tokenizer) -> None:
    vocabulary = uncased.backend.get_vocab()
    assert uncased.ids(["the cat", "playing"]) == [
        [vocabulary["the"], vocabulary["cat"]],
        [vocabulary["play"], vocabulary["##ing"]],
    ]


@pytest.mark.parametrize(
    ("lengths", "removed", "kept"),
    [
        ((5, 2), 2, (3, 2)),
        ((5, 2), 4, (2, 1)),
        ((2, 5), 5, (1, 1)),
        ((4, 4), 1, (4, 3)),
        ((7, 0), 3, (4, 0)),
    ],
)
def test_truncation_takes_from_the_longer_text(
    lengths: tuple[int, int], removed: int, kept: tuple[int, int]
) -> None:
    assert longest_first(lengths, removed) == kept


def test_a_truncated_pair_says_how_many_tokens_it_lost(uncased: Tokenizer) -> None:
    texts, pairs = ["the cat the cat the cat", "the"], ["the . the", "cat"]
    batch = uncased.encode(texts, pairs, max_length=8, truncate=True)
    assert batch.truncated == [4, 0]
    assert batch.tokens[0] == ["[CLS]", "the", "cat", "the", "[SEP]", "the", ".", "[SEP]"]


def message(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert len(text.splitlines()) <= 3
    return text


def test_too_long_names_the_limit_and_the_length(uncased: Tokenizer) -> None:
    with pytest.raises(InputError) as error:
        uncased.encode(["the", "the cat the cat"], max_length=4)
    assert "text 1 is too long: 6 tokens, the limit is 4" in message(error)
    assert "truncate=True" in message(error)


def test_a_limit_below_the_special_tokens_is_refused(uncased: Tokenizer) -> None:
    with pytest.raises(InputError) as error:
        uncased.encode("the", "cat", max_length=3, truncate=True)
    assert "the limit is 3" in message(error)


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_empty_text(uncased: Tokenizer, text: str) -> None:
    with pytest.raises(InputError) as error:
        uncased.encode(["the", text])
    assert "text 1 is empty" in message(error)
    with pytest.raises(InputError) as error:
        uncased.encode("the", text)
    assert "second text 0 is empty" in message(error)


def test_lone_surrogates(uncased: Tokenizer) -> None:
    with pytest.raises(InputError) as error:
        uncased.encode("the \ud83d cat")
    assert "text 0 is not valid Unicode" in message(error)
    assert "lone surrogate U+D83D at character 4" in message(error)


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        (b"the cat", "received bytes"),
        (None, "received NoneType"),
        ([], "received list"),
        (["the", b"cat"], "text 1 is not a string\nexpected str, received bytes: b'cat'"),
        (["the", 3], "text 1 is not a string\nexpected str, received int: 3"),
    ],
)
def test_wrong_types(uncased: Tokenizer, texts: object, part: str) -> None:
    with pytest.raises(InputError) as error:
        uncased.encode(texts)
    assert part in message(error)


def test_unequal_pairs(uncased: Tokenizer) -> None:
    with pytest.raises(InputError) as error:
        uncased.encode(["the", "cat"], ["the"])
    assert "expected 2 second texts, received 1" in message(error)


def test_a_directory_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as error:
        Tokenizer.from_dir(tmp_path)
    assert f"no tokenizer in {tmp_path}" in message(error)
    assert "expected tokenizer.json or vocab.txt" in message(error)


def test_damaged_files(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model"', encoding="utf-8")
    with pytest.raises(CheckpointError) as error:
        Tokenizer.from_dir(tmp_path)
    assert "tokenizer.json is not a tokenizer" in message(error)
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError) as error:
        Tokenizer.from_dir(tmp_path)
    assert "tokenizer_config.json is not valid JSON" in message(error)


def test_files_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\nStra\xdfe\n")
    with pytest.raises(InputError) as error:
        Tokenizer.from_dir(tmp_path)
    assert "vocab.txt is not valid UTF-8\nbyte 0xdf at position 10" in message(error)


def test_a_vocabulary_without_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("the\ncat\n[CLS]\n[UNK]\n", encoding="utf-8")
    with pytest.raises(CheckpointError) as error:
        Tokenizer.from_dir(tmp_path)
    assert "the vocabulary has no [SEP]" in message(error)


def test_no_text_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        train_wordpiece([tmp_path / "empty.txt"], 100, lowercase=True)
    assert "no text to learn a vocabulary from" in message(error)


def test_byte_level_tokens_become_text_again() -> None:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("die Straße 🙂")
    tokens = [piece for piece, _ in alphabet]
    assert "ĠStraÃŁe" in tokens
    assert readable([*tokens, "ðŁ", "<|endoftext|>"], spelling_of(backend)) == [
        "die",
        " Straße",
        " 🙂",
        "<0xF0><0x9F>",
        "<|endoftext|>",
    ]


CALLS = [
    ("the cat", {}),
    ("the cat", {"text_pair": "playing"}),
    (["the cat", "playing ."], {}),
    (["the cat", "the"], {"padding": True, "return_tensors": "np"}),
    (["the cat", "the"], {"padding": "max_length", "max_length": 9}),
    (["the cat the cat", "the"], {"truncation": True, "max_length": 4}),
    (["the", "cat"], {"return_tensors": "np", "return_special_tokens_mask": True}),
    ("the cat", {"return_offsets_mapping": True, "return_special_tokens_mask": True}),
    ("playing", {"return_tensors": "np"}),
]


@pytest.mark.parametrize(("text", "arguments"), CALLS)
def test_it_is_called_as_a_tokenizer_of_transformers(
    uncased: Tokenizer, tmp_path: Path, text: str | list[str], arguments: dict[str, Any]
) -> None:
    Tokenizer(uncased.backend, {"tokenizer_class": "BertTokenizer"}).save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)(text, **arguments)
    ours = uncased(text, **arguments)
    assert set(ours) == set(theirs)
    for name, column in theirs.items():
        if arguments.get("return_tensors"):
            assert ours[name].dtype == column.dtype
            np.testing.assert_array_equal(ours[name], column)
        else:
            assert json.dumps(ours[name]) == json.dumps(column)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"padding": "left"}, "padding='left' is not supported"),
        ({"padding": "max_length"}, 'padding="max_length" needs a length'),
        ({"return_tensors": "pt"}, "return_tensors='pt' is not supported"),
        ({"return_tensors": "np"}, 'return_tensors="np" needs sequences of one length'),
        ({"max_length": 3}, "text 0 is too long: 4 tokens, the limit is 3"),
    ],
)
def test_a_call_that_cannot_be_answered(
    uncased: Tokenizer, arguments: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError) as error:
        uncased(["the cat", "the"], **arguments)
    assert expected in message(error)


def test_tokens_and_ids_are_converted(uncased: Tokenizer) -> None:
    ids = uncased.convert_tokens_to_ids(["the", "##ing", "absent"])
    assert ids[2] is None
    known = [number for number in ids if number is not None]
    assert uncased.convert_ids_to_tokens([*known, 10**6]) == ["the", "##ing", None]


@pytest.mark.slow
def test_a_regular_expression_that_does_not_end_is_an_error_of_ours(tmp_path: Path) -> None:
    """The package panics, which is not a `Exception`; in what it splits, replaces and decodes."""
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    pattern = {"pattern": {"Regex": "^(a|a)*$|b"}}
    parts = {
        "pre_tokenizer": {"type": "Split", **pattern, "behavior": "Isolated", "invert": False},
        "normalizer": {"type": "Replace", **pattern, "content": "x"},
    }
    text = "a" * 40 + "b!"
    for name, part in parts.items():
        content = {**json.loads(backend.to_str()), name: part}
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        tokenizer = Tokenizer.from_dir(tmp_path)
        for call in (tokenizer.encode, tokenizer.count, tokenizer.ids):
            with pytest.raises(CheckpointError) as error:
                call([text])
            assert "the tokenizer fails on a text: Onig: Regex search error" in message(error)
