# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Long texts: the ids are those of the whole text, however it is cut."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

import flaxattn
from flaxattn.text import tokenizer
from flaxattn.text.tokenizer import Tokenizer, segments_of

FOLDER = Path(flaxattn.__file__).parent / "pretrained"
BUILT_IN = [
    *(Tokenizer.from_dir(FOLDER / name) for name in ("tiny-bert", "tiny-gpt2", "tiny-dates")),
    Tokenizer.from_dir(FOLDER / "tiny-dates", "target_"),
]
ATOMS = [
    *"aZ09_ée\u0301ßİς '\u2019.,;!?-\n\t\r\u00a0\u2028\u3000\u200b\x1c\x85",
    *"。，「」猫ガか\u3099²½🙂\u200d",
    *("don't", "3.5", "the cat", "  ", " \n ", "[MASK]", " [SEP] ", "<|endoftext|>", "</s>", "▁"),
]


def random_text(random: random.Random, atoms: int) -> str:
    """A text of letters, spaces and marks that tokenizers treat in different ways."""
    words = ["the", "cat", "Katze", "кот", "猫は", "2026", "x"]
    return "".join(
        random.choice(ATOMS) if random.random() < 0.5 else " " + random.choice(words)
        for _ in range(atoms)
    )


@pytest.mark.slow
@pytest.mark.parametrize("built_in", BUILT_IN, ids=["bert", "gpt2", "dates", "dates-target"])
def test_segments_have_the_ids_of_the_whole_text(
    built_in: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "SEGMENT", 4)
    source, cuts = random.Random(0), 0
    for _ in range(1000):
        text = random_text(source, 60)
        segments = list(segments_of(text, built_in.backend))
        whole = built_in.backend.encode(text, add_special_tokens=False).ids
        rows = built_in.backend.encode_batch(segments, add_special_tokens=False)
        assert "".join(segments) == text
        assert [i for row in rows for i in row.ids] == whole, segments
        cuts += len(segments) - 1
    assert cuts > 3000


@pytest.mark.parametrize("built_in", BUILT_IN, ids=["bert", "gpt2", "dates", "dates-target"])
@pytest.mark.parametrize("limit", [4, 17, 40, 100])
def test_a_long_text_is_cut_to_the_tokens_of_the_whole(
    built_in: Tokenizer, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(limit)
    texts = [random_text(source, 60) + " a" for _ in range(20)]
    pairs = [random_text(source, 40) + " b" for _ in range(20)] if built_in is BUILT_IN[0] else None

    def encoded() -> tuple[tokenizer.TokenBatch, list[int]]:
        cut = built_in.encode(texts, pairs, max_length=limit, truncate=True)
        return cut, built_in.count(texts, pairs)

    whole, counts = encoded()
    monkeypatch.setattr(tokenizer, "SEGMENT", 8)
    cut, counts_of_segments = encoded()
    assert counts_of_segments == counts
    for name in ("tokens", "word_ids", "offsets", "truncated"):
        assert getattr(cut, name) == getattr(whole, name)
    assert np.array_equal(cut.input_ids, whole.input_ids)
    assert np.array_equal(cut.special, whole.special)


TEXT = "the cat sat " * 10_000


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "added", "is_cut"),
    [
        (None, pre_tokenizers.ByteLevel(add_prefix_space=False), None, True),
        (None, pre_tokenizers.ByteLevel(use_regex=False), None, False),
        (None, pre_tokenizers.Metaspace(), None, True),
        (None, pre_tokenizers.Metaspace(split=False), None, False),
        (None, pre_tokenizers.Split(" ", "isolated"), None, False),
        (None, None, None, False),
        (normalizers.Strip(), pre_tokenizers.Whitespace(), None, True),
        (normalizers.Strip(), pre_tokenizers.ByteLevel(), None, False),
        (normalizers.Replace("t c", "x"), pre_tokenizers.Whitespace(), None, False),
        (None, pre_tokenizers.Whitespace(), AddedToken("t s"), False),
        (None, pre_tokenizers.Whitespace(), AddedToken("cat", rstrip=True), False),
        (None, pre_tokenizers.Whitespace(), AddedToken("cat", lstrip=True), True),
    ],
)
def test_a_text_is_cut_only_where_it_is_known_to_be_safe(
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    added: AddedToken | None,
    is_cut: bool,
) -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"the": 0, "?": 1}, unk_token="?"))
    if normalizer:
        backend.normalizer = normalizer
    if pre_tokenizer:
        backend.pre_tokenizer = pre_tokenizer
    if added:
        backend.add_tokens([added])
    assert (len(list(segments_of(TEXT, backend))) > 1) == is_cut


def test_short_texts_and_texts_without_spaces_stay_whole() -> None:
    for text in ("the cat", "a" * 200_000):
        assert list(segments_of(text, BUILT_IN[0].backend)) == [text]


PEAK = """
import resource, sys
from flaxattn.text.tokenizer import Tokenizer
built_in = Tokenizer.from_dir(sys.argv[1])
text = "the cat sat on the mat " * 435_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
batch = built_in.encode(text, max_length=128, truncate=True)
assert batch.truncated[0] + 128 == built_in.count([text])[0] > 2_000_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-bert", "tiny-gpt2"])
def test_a_line_of_ten_megabytes_is_tokenized_in_little_memory(name: str) -> None:
    command = [sys.executable, "-P", "-c", PEAK, str(FOLDER / name)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 150
