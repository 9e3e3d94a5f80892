# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From files to ids on disk: what is read, what is refused, and what a killed writer leaves."""

import copy
import gc
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.rows import BadRows
from flaxattn.errors import CheckpointError, InputError
from flaxattn.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from flaxattn.text.tokenizer_files import bert_backend
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.train import corpus as corpus_module
from flaxattn.train.corpus import (
    COLUMNS,
    Column,
    TokenCorpus,
    build_corpus,
    count_tokens,
    log_frequencies,
    mapped,
    paragraphs,
    read_documents,
    split_sentences,
    unigram_loss,
)
from flaxattn.train.recipe import PretrainRecipe

LINES = PretrainRecipe(documents="lines")
WORDS = "the cat sat on a mat and saw nine dogs run past it".split()


def text_of(number: int, sentences: int = 3) -> str:
    rng = random.Random(number)
    made = (" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) + "." for _ in range(sentences))
    return " ".join(sentence.capitalize() for sentence in made)


TEXTS = [text_of(number) for number in range(12)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece([*TEXTS, " ".join(WORDS)], 90, True)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def cut(path: Path, **settings: Any) -> list[list[str]]:
    return list(read_documents([path], PretrainRecipe(**settings), BadRows()))


def test_documents_are_groups_of_paragraphs_within_a_file(tmp_path: Path) -> None:
    for name in "ab":
        text = "\n\n".join(f"{name} one.\nTwo {i}." for i in range(5))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    found = list(read_documents(files, PretrainRecipe(paragraphs_per_document=2), BadRows()))
    assert [len(document) for document in found] == [4, 4, 2, 4, 4, 2]
    assert found[0][:2] == ["a one.", "Two 0."]


def test_the_three_ways_to_cut_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfOne. Two.\r\n three\r\n\r\n \t\r\nFour.\r\n\r\nFive.\n")
    whole = ["One.", "Two. three", "Four.", "Five."]
    assert cut(path) == [whole]
    assert cut(path, documents="blank-lines") == [whole[:2], ["Four."], ["Five."]]
    assert cut(path, documents="lines") == [["One.", "Two."], ["three"], ["Four."], ["Five."]]


def test_a_block_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_LONGEST_BLOCK", 20)
    path = tmp_path / "a.txt"
    path.write_text("nine char\n" * 5, encoding="utf-8")
    found = cut(path, documents="blank-lines")
    assert [len(document[0].split()) for document in found] == [6, 4]


def test_every_kind_of_file_gives_the_same_corpus(
    lines: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    rows = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS))
    (tmp_path / "a.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(lines.read_bytes()))
    pq.write_table(pa.table({"body": TEXTS}), tmp_path / "a.parquet")
    found = set()
    for name in ("text.txt", "a.jsonl", "a.jsonl.gz", "a.txt.gz", "a.parquet"):
        column = "body" if name == "a.parquet" else "text"
        recipe = PretrainRecipe(documents="lines", text_column=column)
        found.add(build_corpus([tmp_path / name], tokenizer, recipe, tmp_path / name[2:]).digest)
    assert len(found) == 1


@pytest.fixture
def corpus(lines: Path, tmp_path: Path, tokenizer: Tokenizer) -> TokenCorpus:
    return build_corpus([lines], tokenizer, LINES, tmp_path / "corpus")


def test_documents_begin_with_a_token_where_one_is_named(
    lines: Path, tokenizer: Tokenizer, corpus: TokenCorpus, tmp_path: Path
) -> None:
    begun = build_corpus([lines], tokenizer, LINES, tmp_path / "begun", begin=3)
    assert [[3, *ids] for ids in corpus] == [ids.tolist() for ids in begun]
    assert len(begun.sentences) == len(corpus.sentences)
    with pytest.raises(InputError, match="begin 3 -> 4"):
        build_corpus([lines], tokenizer, LINES, tmp_path / "begun", begin=4)


def test_ids_stand_where_the_text_stood(corpus: TokenCorpus, tokenizer: Tokenizer) -> None:
    assert len(corpus) == 12
    assert [mapped(corpus.folder / name).dtype for name in COLUMNS] == [
        np.uint16,
        np.int64,
        np.int64,
        np.uint64,
    ]
    for number, text in enumerate(TEXTS):
        sentences = tokenizer.ids(split_sentences(text))
        assert corpus.lengths(number).tolist() == [len(sentence) for sentence in sentences]
        assert corpus.document(number).tolist() == [i for s in sentences for i in s]
        for place, sentence in enumerate(sentences):
            assert corpus.sentence(number, place).tolist() == sentence
    with pytest.raises(IndexError):
        corpus.sentence(0, 3)
    assert [d.tolist() for d in corpus] == [corpus.document(n).tolist() for n in range(12)]
    index = corpus.index
    assert (index["documents"], index["sentences"], index["tokens"]) == (
        12,
        36,
        len(corpus.tokens),
    )


def test_large_vocabularies_get_wider_ids(lines: Path, tmp_path: Path) -> None:
    tokens = [*SPECIAL_TOKENS.values(), *(f"x{n}" for n in range(70000)), *WORDS, "."]
    wide = Tokenizer(bert_backend({p: n for n, p in enumerate(tokens)}, {}), {})
    corpus = build_corpus([lines], wide, LINES, tmp_path / "corpus")
    assert corpus.tokens.dtype == np.uint32
    assert corpus.tokens.min() > 70000


def test_what_has_no_token_is_left_out(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [*TEXTS[:4], "\u200b", "The cat. \u200b\u200b", "x" * 50000]
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    recipe = PretrainRecipe(documents="blank-lines")
    corpus = build_corpus([path], tokenizer, recipe, tmp_path / "corpus")
    assert [len(corpus.lengths(number)) for number in range(len(corpus))] == [3] * 4 + [1, 1]
    assert corpus.document(5).tolist() == [tokenizer.unk_id]


def test_it_is_used_again(
    lines: Path, tmp_path: Path, tokenizer: Tokenizer, corpus: TokenCorpus, monkeypatch: Any
) -> None:
    digest = corpus.digest
    monkeypatch.setattr(Tokenizer, "ids", None)  # whoever tokenises fails
    moved = lines.rename(tmp_path / "elsewhere.txt")
    assert build_corpus([moved], tokenizer, LINES, corpus.folder).digest == digest


def refused(*arguments: Any) -> str:
    with pytest.raises(InputError) as error:
        build_corpus(*arguments)
    text = str(error.value)
    assert len(text.splitlines()) == 3
    assert text.endswith("\nput it back as it was, or start again with --fresh")
    return text


def test_other_data_is_refused_with_the_reason(
    lines: Path, tmp_path: Path, tokenizer: Tokenizer, corpus: TokenCorpus
) -> None:
    folder, before = corpus.folder, corpus.digest
    more = tmp_path / "more.txt"
    more.write_text(TEXTS[0], encoding="utf-8")
    assert f"{folder} holds the tokens of other data\nchanged: 1 files -> 2\n" in refused(
        [lines, more], tokenizer, LINES, folder
    )
    assert "changed: text.txt -> more.txt\n" in refused([more], tokenizer, LINES, folder)
    cased = train_wordpiece(TEXTS, 90, False)
    assert "changed: the tokenizer\n" in refused([lines], cased, LINES, folder)
    blocks = PretrainRecipe(documents="blank-lines")
    text = refused([lines], tokenizer, blocks, folder)
    assert "changed: documents 'lines' -> 'blank-lines'\n" in text
    lines.write_text("\n".join(TEXTS[1:]), encoding="utf-8")
    assert "changed: text.txt\n" in refused([lines], tokenizer, LINES, folder)
    assert build_corpus([lines], tokenizer, LINES, folder, rebuild=True).digest != before


@pytest.mark.parametrize("name", COLUMNS)
def test_a_damaged_store_is_made_again(
    name: str, lines: Path, tokenizer: Tokenizer, corpus: TokenCorpus
) -> None:
    content, digest = (corpus.folder / name).read_bytes(), corpus.digest
    flipped = bytes([*content[:-3], content[-3] ^ 4, *content[-2:]])
    for damaged in (flipped, content[:-1], b""):
        (corpus.folder / name).write_bytes(damaged)
        assert build_corpus([lines], tokenizer, LINES, corpus.folder).digest == digest
        assert (corpus.folder / name).read_bytes() == content


class StopError(Exception):
    """Ends a build where a test wants it."""


def stop(_: str) -> None:
    raise StopError


def test_nothing_half_stays(lines: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = tmp_path / "corpus"
    with pytest.raises(StopError):
        build_corpus([lines], tokenizer, LINES, folder, note=stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".corpus.lock", "text.txt"]


def test_a_rebuild_that_fails_leaves_the_old_one(
    lines: Path, tokenizer: Tokenizer, corpus: TokenCorpus
) -> None:
    before = {path.name: path.read_bytes() for path in corpus.folder.iterdir()}
    digest = corpus.digest
    text = lines.read_text(encoding="utf-8")
    lines.write_text("\n".join(TEXTS[1:]), encoding="utf-8")
    with pytest.raises(StopError):
        build_corpus([lines], tokenizer, LINES, corpus.folder, rebuild=True, note=stop)
    assert {path.name: path.read_bytes() for path in corpus.folder.iterdir()} == before
    lines.write_text(text, encoding="utf-8")
    assert build_corpus([lines], tokenizer, LINES, corpus.folder).digest == digest


KILLED = """
import os, signal, sys
from pathlib import Path
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train.corpus import build_corpus
from flaxattn.train.recipe import PretrainRecipe
text, tokens, folder = map(Path, sys.argv[1:])
def kill(_): os.kill(os.getpid(), signal.SIGKILL)
recipe = PretrainRecipe(documents="lines")
build_corpus([text], Tokenizer.from_dir(tokens), recipe, folder, note=kill)
"""


def test_a_killed_writer(lines: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokens")
    folder = tmp_path / "corpus"
    command = [sys.executable, "-P", "-c", KILLED, *map(str, (lines, tmp_path / "tokens", folder))]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not folder.exists()
    (left,) = tmp_path.glob(".corpus.*.part")
    corpus = build_corpus([lines], tokenizer, LINES, folder)
    assert len(corpus) == 12
    assert left.exists()  # for all that is known, another host is still writing it
    for path in (*left.iterdir(), left):
        os.utime(path, (time.time() - 4000,) * 2)
    build_corpus([lines], tokenizer, LINES, folder)
    assert not left.exists()


def test_a_full_disk(
    lines: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Column, values: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Column, "extend", full)
    with pytest.raises(CheckpointError) as error:
        build_corpus([lines], tokenizer, LINES, tmp_path / "corpus")
    assert f"Could not write {tmp_path / 'corpus'}: No space left on device." in str(error.value)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "_CHARACTERS_AT_ONCE", 2**13)
    peaks, content = [], "".join(text_of(number, 6) + "\n" for number in range(200))
    for times in (1, 16):
        path = tmp_path / f"{times}.txt"
        path.write_text(content * times, encoding="utf-8")
        gc.collect()  # what other tests left counts for neither
        tracemalloc.start()
        corpus = build_corpus([path], tokenizer, LINES, tmp_path / f"corpus{times}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(corpus) == 200 * times
    assert path.stat().st_size > 200_000
    assert peaks[1] < 1.5 * peaks[0]


def test_progress_is_reported(lines: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    printed: list[str] = []
    corpus = build_corpus([lines], tokenizer, LINES, tmp_path / "corpus", note=printed.append)
    assert printed == [f"12 documents, {len(corpus.tokens)} tokens"]


def test_bad_lines_and_rows_are_left_out_and_counted(
    tmp_path: Path, tokenizer: Tokenizer, corpus: TokenCorpus
) -> None:
    good = [json.dumps({"text": text}) for text in TEXTS]
    wrong = ['{"text": ""}', '{"text": null}', '{"txt": "a"}', '{"text": "\\ud800"}', "{", "[]"]
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    path.write_text("\n".join([*good[:5], *wrong, *good[5:]]), encoding="utf-8")
    bad = BadRows("quarantine", out)
    found = build_corpus([path], tokenizer, LINES, tmp_path / "rows", bad=bad)
    assert found.digest == corpus.digest
    assert found.index["rows"]["rows"] == 18
    assert found.index["rows"]["kept"] == 12
    listed = [json.loads(row) for row in (out / "errors.jsonl").read_text().splitlines()]
    assert [row["line"] for row in listed] == [6, 7, 8, 9, 10, 11]
    codes = ["empty", "null", "missing-column", "surrogate", "json", "json"]
    assert [row["code"] for row in listed] == codes
    with pytest.raises(InputError, match=r"a\.jsonl, line 6, column 'text': the text is empty"):
        build_corpus([path], tokenizer, LINES, tmp_path / "fails")


@pytest.mark.parametrize("documents_are", ["lines", "blank-lines", "paragraphs"])
def test_bad_lines_of_text(documents_are: Any, tmp_path: Path, tokenizer: Tokenizer) -> None:
    recipe = PretrainRecipe(documents=documents_are, paragraphs_per_document=1)
    found = []
    for name, middle in (("good", b""), ("bad", b"Stra\xdfe\nn\x00l\n")):
        blocks = [text.encode() + b"\n" for text in TEXTS]
        blocks[3] = middle + blocks[3]
        path = tmp_path / f"{name}.txt"
        path.write_bytes(b"\n".join(blocks))
        bad = BadRows("skip")
        found.append(build_corpus([path], tokenizer, recipe, tmp_path / name, bad=bad))
    assert found[0].digest == found[1].digest
    assert dict(bad.counts) == {"encoding": 1, "nul": 1}


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.txt", b"one paragraph only.", "too little text: 1 documents in 1 files"),
        ("a.txt", b"fine\nStra\xdfe\n", "a.txt, line 2: byte 0xdf at position 5 is not UTF-8"),
        ("a.txt", b"", "a.txt: the file is empty"),
        ("a.txt", "ä".encode("utf-16"), "a.txt: the file is UTF-16, expected UTF-8"),
        ("a.md", b"text", "a.md: files of kind '.md' are not read"),
        ("a.jsonl", b'{"body": "x"}\n', "a.jsonl, line 1, column 'text': there is no such key"),
        ("a.txt.gz", gzip.compress(b"a" * 99, mtime=0)[:-9], "the compressed file ends too early"),
        ("a.txt", None, "a.txt: there is no such file"),
    ],
)
def test_unusable_files(
    name: str, content: bytes | None, part: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        build_corpus([tmp_path / name], tokenizer, PretrainRecipe(), tmp_path / "corpus")
    assert part in str(error.value)
    assert len(str(error.value).splitlines()) <= 3
    assert not (tmp_path / "corpus").exists()


def test_no_file_at_all(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="name at least one file after --data"):
        build_corpus([], tokenizer, LINES, tmp_path)


@pytest.mark.slow
def test_heldout_documents_are_chosen_by_content(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [f"{text_of(number)} {number}" for number in range(2000)]
    sides = []
    for name, order in (("a", texts), ("b", texts[::-1])):
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join(order), encoding="utf-8")
        corpus = build_corpus([path], tokenizer, LINES, tmp_path / name)
        training, heldout = corpus.split(0.1)
        assert len(training) + len(heldout) == len(corpus) == 2000
        assert not set(training.members.tolist()) & set(heldout.members.tolist())
        sides.append(sorted(document.tobytes() for document in heldout))
        assert len({corpus.digest, training.digest, heldout.digest}) == 3
    assert sides[0] == sides[1]
    assert 150 < len(sides[0]) < 250
    assert len(corpus.split(0.0)[1]) == 2


Store = Callable[[Sequence[Sequence[Sequence[int]]]], TokenCorpus]


def test_counting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_AT_ONCE", 7)
    rng = random.Random(0)
    nested = [[[rng.randrange(20) for _ in range(4)] for _ in range(3)] for _ in range(30)]
    corpus = store(nested)
    for side in (corpus, *corpus.split(0.4)):
        members = side.members.tolist()
        flat = [token for n in members for sentence in nested[n] for token in sentence]
        assert count_tokens(side, 20).tolist() == np.bincount(flat, minlength=20).tolist()
    total = np.exp(log_frequencies(corpus, 25).astype(np.float64))
    assert total.sum() == pytest.approx(1)
    assert total[24] == pytest.approx(1 / (360 + 25))


def test_unigram_loss_is_the_entropy_of_even_frequencies(store: Store) -> None:
    even = store([[list(range(50)) * 200]])
    assert unigram_loss(even, even, 50) == pytest.approx(np.log(50), abs=1e-6)


def test_only_names_travel_to_another_process(corpus: TokenCorpus) -> None:
    assert corpus.digest and len(corpus.tokens) > len(corpus.members)  # looked at, so kept
    again = copy.copy(corpus)
    assert vars(again) == {"folder": corpus.folder, "side": "all", "fraction": 0.0}
    assert again.digest == corpus.digest


def test_sentences_end_where_they_should() -> None:
    text = (
        'Mr. Pip met Dr. J. T. Smith. "Who are you?" he asked. I am he. (So it was.) It cost 3.5 '
        "pounds! And then? no. Yes, he said no. Then it was I. He left."
    )
    assert split_sentences(text) == [
        "Mr. Pip met Dr. J. T. Smith.",
        '"Who are you?" he asked.',
        "I am he.",
        "(So it was.)",
        "It cost 3.5 pounds!",
        "And then? no.",
        "Yes, he said no.",
        "Then it was I.",
        "He left.",
    ]
    assert " ".join(split_sentences(text)) == text
    assert paragraphs("\ufeffa\nb\r\n\r\n \n\nc  d\n") == ["a b", "c d"]
