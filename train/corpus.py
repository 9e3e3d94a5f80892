# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A corpus of token ids on disk: written from files of text once, read through memory maps.

Documents come from text, JSONL and Parquet files, one at a time, each a list of sentences; no file
is held in memory. Vocabularies are trained from the same files (`flaxattn tokenizer train`), and
the hosts of a run come to one vocabulary. The learning itself is in
`flaxattn.text.vocabulary_training`.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float32, Int64, Integer, UInt64

from flaxattn.corpus.input_files import kind_of
from flaxattn.corpus.rows import BadRows, read_rows, text_of
from flaxattn.errors import CheckpointError, InputError
from flaxattn.files import remove_abandoned, sha256_of, written_whole
from flaxattn.pipeline.progress_reporter import ProgressReporter, Watch, show_progress
from flaxattn.store.folder_lock import locked
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import SPECIAL_TOKENS
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.train.recipe import PretrainRecipe, TextRecipe
from flaxattn.train.run_folder import RunFolder

_LONGEST_BLOCK = 2**24  # characters; a block of lines without a blank one is cut after as many


def check_files(files: Sequence[Path]) -> None:
    """Refuse to begin without text."""
    missing = [path for path in files if not path.exists()]
    if missing or not files:
        raise InputError(
            f"no such text file: {missing[0]}\nname files that exist"
            if missing
            else "no text to train on\nname at least one file after --data"
        )


def read_documents(files: Iterable[Path], recipe: TextRecipe, bad: BadRows) -> Iterator[list[str]]:
    """Documents in the order of the files; none crosses a file's end, none is empty."""
    for text in read_texts(files, recipe, bad):
        if document := [s for paragraph in text for s in split_sentences(paragraph)]:
            yield document


def read_texts(
    files: Iterable[Path], recipe: TextRecipe, bad: BadRows, *, as_written: bool = False
) -> Iterator[Sequence[str]]:
    """Documents as lists of paragraphs, each on one line."""
    for path in files:
        if kind_of(path) == "txt":
            lines = (row.values["text"] for row in read_rows(path, ["text"], bad))
            yield from _cut(lines, recipe, as_written)
            continue
        for row in read_rows(path, [recipe.text_column], bad):
            if text := text_of(row, recipe.text_column, bad):
                yield [text] if as_written else paragraphs(text)


class Paragraphs:
    """Every paragraph of some files, as often as it is gone through.

    Args:
        files: Files, as for `read_documents`.
        recipe: Names the text column.
        bad: Takes what cannot be used, the first time.
    """

    def __init__(self, files: Sequence[Path], recipe: TextRecipe, bad: BadRows) -> None:
        self._files, self._recipe, self._bad = files, recipe, bad

    def __iter__(self) -> Iterator[str]:
        bad, self._bad = self._bad, BadRows("skip")
        for text in read_texts(self._files, self._recipe, bad):
            yield from text


def _cut(lines: Iterable[str], recipe: TextRecipe, as_written: bool = False) -> Iterator[list[str]]:
    if recipe.documents == "lines":
        yield from ([line if as_written else flat] for line in lines if (flat := _flat(line)))
        return
    sizes = {"paragraphs": recipe.paragraphs_per_document, "blank-lines": 1, "files": None}
    blocks = _blocks(lines, as_written)
    while group := list(itertools.islice(blocks, sizes[recipe.documents])):
        yield group


def _blocks(lines: Iterable[str], as_written: bool = False) -> Iterator[str]:
    """Blank-line separated blocks, each on one line unless kept as written."""
    block: list[str] = []
    size = 0
    for line in itertools.chain(lines, [""]):
        if flat := _flat(line):
            block.append(line if as_written else flat)
            size += len(block[-1])
        if block and (not flat or size > _LONGEST_BLOCK):
            yield ("\n" if as_written else " ").join(block)
            block, size = [], 0


def _flat(line: str) -> str:
    """A line with single spaces; empty if there is nothing else in it."""
    return " ".join(line.split())


# Words after which a full stop does not end an English sentence.
_ABBREVIATION = re.compile(
    r"(mr|mrs|ms|dr|st|prof|rev|hon|gen|col|capt|lieut|lt|sgt|maj|jr|sr|esq|messrs|mme|mlle"
    r"|vol|vs|viz|etc|i\.e|e\.g|cf|pp)",
    re.IGNORECASE,
)
_INITIALS = re.compile(r"\w(\.\w)*")
_BOUNDARY = re.compile(r"""([.!?…]+["'”’»)\]]*)\s+(?=["'“‘«(\[¡¿—-]*[^\W\d_a-z]|["'“‘«(]*\d)""")
_LAST_WORD = re.compile(r"([\w.]+)\.[\"'”’»)\]]*$")


def paragraphs(text: str) -> list[str]:
    """Blank-line separated blocks of a text, each on one line."""
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n").removeprefix("\ufeff"))
    return [flat for block in blocks if (flat := " ".join(block.split()))]


def split_sentences(paragraph: str) -> list[str]:
    """Sentences of a paragraph.

    A sentence ends at `.`, `!`, `?` or `…` with its closing quotes, before white space and
    something that can start a sentence. Titles, a few abbreviations and single initials do not end
    one.
    """
    sentences, start = [], 0
    for match in _BOUNDARY.finditer(paragraph):
        sentence = paragraph[start : match.end(1)]
        word = _LAST_WORD.search(sentence)
        if word is None or not _abbreviates(word[1]):
            sentences.append(sentence)
            start = match.end()
    tail = paragraph[start:]
    return [s for s in [*sentences, tail] if s.strip()]


def _abbreviates(word: str) -> bool:
    if _ABBREVIATION.fullmatch(word):
        return True
    return bool(_INITIALS.fullmatch(word)) and word not in ("I", "a")


def learn_tokenizer(
    files: Sequence[Path],
    out: Path,
    vocab_size: int,
    lowercase: bool,
    *,
    max_length: int = 512,
    text_column: str = "text",
    on_error: str = "fail",
    watch: Watch = show_progress,
) -> tuple[Tokenizer, BadRows]:
    """Learn a vocabulary from files that need not fit in memory.

    Returns:
        The tokenizer, and what was left out.
    """
    if not files:
        raise InputError("no text to learn a vocabulary from\nname at least one file")
    if vocab_size <= len(SPECIAL_TOKENS):
        raise InputError(
            f"a vocabulary of {vocab_size} tokens is too small\n"
            f"{len(SPECIAL_TOKENS)} of them are special\n"
            "raise --vocab-size; BERT has 30522"
        )
    if (out / "tokenizer.json").exists():
        raise InputError(
            f"{out} holds a tokenizer already\nit may belong to a model\nname another --out"
        )
    watch("learning a vocabulary", 0)
    bad = BadRows(on_error, out)
    texts = Paragraphs(files, PretrainRecipe(text_column=text_column), bad)
    tokenizer = train_wordpiece(texts, vocab_size, lowercase, max_length)
    with written_whole(out) as staging:
        tokenizer.save(staging)
    return tokenizer, bad


def learn_once(folder: RunFolder, learn: Callable[[], Tokenizer]) -> Tokenizer:
    """The tokenizer of a run: that of an earlier start, or one that the first host learns."""
    own = folder.path / "tokenizer"
    if (own / "tokenizer.json").is_file() and not folder.fresh:
        return Tokenizer.from_dir(own)
    if jax.process_index() == 0:
        with ProgressReporter() as progress:
            progress("learning a vocabulary", 0)
            learn().save(own)
    deadline = time.monotonic() + 3600
    while not (own / "tokenizer.json").is_file():
        if time.monotonic() > deadline:
            raise InputError(f"no tokenizer appeared in {own}\nall hosts need the same --out")
        time.sleep(1)
    return Tokenizer.from_dir(own)


class Column:
    """A one-dimensional .npy file that grows at its end; a context manager."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb")
        self._count = 0
        self._write_header()

    def __enter__(self) -> "Column":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()

    def __len__(self) -> int:
        return self._count

    def extend(self, values: Any) -> None:
        """Append numbers, cast to the dtype of the column."""
        array = np.ascontiguousarray(values, self._dtype)
        self._file.write(array.data if array.dtype.names is None else array.tobytes())
        self._count += len(array)

    def _write_header(self) -> None:
        """NumPy leaves room for the length, so the header keeps its size when that changes."""
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._count,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def mapped(path: Path) -> np.ndarray:
    """The content of a .npy file, read from the disk where it is looked at; cannot be written."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray)


INDEX = "corpus.json"
COLUMNS = ("tokens.npy", "sentences.npy", "documents.npy", "hashes.npy")
_AT_ONCE = 2**22  # tokens looked at in one chunk


@dataclasses.dataclass(frozen=True)
class TokenCorpus:
    """All documents of a store, or one side of its held-out split.

    Light to send to another process: the arrays are opened again there, when first used.

    Attributes:
        folder: Folder of the corpus.
        side: "all", "training" or "heldout".
        fraction: Share of the documents on the held-out side.
    """

    folder: Path
    side: Literal["all", "training", "heldout"] = "all"
    fraction: float = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @functools.cached_property
    def tokens(self) -> Integer[np.ndarray, " T"]:
        """Ids of all documents of the store, one after another."""
        return mapped(self.folder / "tokens.npy")

    @functools.cached_property
    def sentences(self) -> Int64[np.ndarray, " N"]:
        """Start of each sentence of the store in `tokens`, and at last their end."""
        return mapped(self.folder / "sentences.npy")

    @functools.cached_property
    def documents(self) -> Int64[np.ndarray, " M"]:
        """Start of each document of the store in `sentences`, and at last their end."""
        return mapped(self.folder / "documents.npy")

    @functools.cached_property
    def members(self) -> Int64[np.ndarray, " D"]:
        """Numbers of this side's documents in the store, ascending.

        A document's side depends on its own text only; at least two, those with the smallest
        hashes, are held out.
        """
        hashes: UInt64[np.ndarray, " M"] = mapped(self.folder / "hashes.npy")
        if self.side == "all":
            return np.arange(len(hashes))
        shares = hashes / 2.0**64
        limit = max(self.fraction, float(np.partition(shares, 1)[1]))
        return np.flatnonzero((shares > limit) == (self.side == "training"))

    @functools.cached_property
    def index(self) -> dict[str, Any]:
        """Description of the store: content of `corpus.json`."""
        return json.loads((self.folder / INDEX).read_text(encoding="utf-8"))

    @functools.cached_property
    def digest(self) -> str:
        """Fingerprint of the ids and how they are cut, and of the side."""
        content = [self.index["files"], self.side, self.fraction]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Integer[np.ndarray, " T"]]:
        return (self.document(number) for number in range(len(self)))

    def bounds(self, number: int) -> Int64[np.ndarray, " N"]:
        """Start of each sentence of a document in `tokens`, and the end of the last."""
        start, stop = self.documents[self.members[number] :][:2]
        return self.sentences[start : stop + 1]

    def lengths(self, number: int) -> Int64[np.ndarray, " N"]:
        """Tokens of each sentence of a document."""
        return np.diff(self.bounds(number))

    def document(self, number: int) -> Integer[np.ndarray, " T"]:
        """Ids of a document, its sentences joined."""
        bounds = self.bounds(number)
        return self.tokens[bounds[0] : bounds[-1]]

    def sentence(self, number: int, sentence: int) -> Integer[np.ndarray, " T"]:
        """Ids of one sentence of a document."""
        bounds = self.bounds(number)
        return self.tokens[bounds[:-1][sentence] : bounds[1:][sentence]]

    def split(self, fraction: float) -> tuple["TokenCorpus", "TokenCorpus"]:
        """The training side and the held-out side."""
        return (
            TokenCorpus(self.folder, "training", fraction),
            TokenCorpus(self.folder, "heldout", fraction),
        )

    def chunks(self) -> Iterator[Integer[np.ndarray, " T"]]:
        """All ids of this side in a few long chunks, for counting."""
        if not len(self.members):
            return
        runs = np.split(self.members, np.flatnonzero(np.diff(self.members) > 1) + 1)
        for run in runs:
            start, stop = self.sentences[self.documents[[run[0], run[-1] + 1]]]
            for chunk in range(start, stop, _AT_ONCE):
                yield self.tokens[chunk : min(stop, chunk + _AT_ONCE)]


def count_tokens(corpus: TokenCorpus, vocabulary: int) -> Int64[np.ndarray, " V"]:
    """Count the occurrences of each id."""
    counts = np.zeros(vocabulary, np.int64)
    for chunk in corpus.chunks():
        counts += np.bincount(chunk, minlength=vocabulary)
    return counts


def log_frequencies(corpus: TokenCorpus, vocabulary: int) -> Float32[np.ndarray, " V"]:
    """Natural logarithms of the token frequencies, each count raised by one."""
    counts = count_tokens(corpus, vocabulary) + 1.0
    return np.log(counts / counts.sum()).astype(np.float32)


def unigram_loss(training: TokenCorpus, heldout: TokenCorpus, vocabulary: int) -> float:
    """Cross-entropy in nats of held-out tokens under the training frequencies (add one).

    The loss of a model that ignores context: what masked language modelling must beat.
    """
    counts = count_tokens(heldout, vocabulary)
    return float(-(counts * log_frequencies(training, vocabulary)).sum() / counts.sum())


Note = Callable[[str], None]
Read = Callable[[Sequence[Path], Any, BadRows], Iterable[list[str]]]
_VERSION = 1  # of the store's layout
_CHARACTERS_AT_ONCE = 2**20  # characters tokenised together


def build_corpus(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    recipe: TextRecipe,
    folder: Path,
    *,
    read: Read = read_documents,
    fewest: int = 4,
    begin: int | None = None,
    bad: BadRows | None = None,
    rebuild: bool = False,
    note: Note | None = None,
) -> TokenCorpus:
    """The corpus of some files in a folder; made, or used again where it is there and fits.

    Processes of one machine that ask at the same time wait for the first one.
    """
    if not files:
        raise InputError("no text to train on\nname at least one file after --data")
    with locked(folder.with_name(f".{folder.name}.lock")):
        for place in (folder.parent, folder):  # see `written_whole`
            remove_abandoned(place, f".{folder.name}.*.part")
        made_of = _fingerprint(files, tokenizer, recipe, begin)
        if not _fits(folder, made_of, rebuild):
            documents = read(files, recipe, bad := bad or BadRows("fail"))
            try:
                with written_whole(folder, last=INDEX) as staging:
                    counts = _write(documents, tokenizer, staging, begin, note)
                    if counts["documents"] < fewest:
                        raise _too_little(counts["documents"], len(files), fewest)
                    digests = {name: sha256_of(staging / name) for name in COLUMNS}
                    index = {**made_of, **counts, "rows": bad.summary(), "files": digests}
                    text = json.dumps(index, indent=2, ensure_ascii=False) + "\n"
                    (staging / INDEX).write_text(text, encoding="utf-8")
            except CheckpointError:
                if not _fits(folder, made_of, rebuild):  # else another host was faster
                    raise
    return TokenCorpus(folder)


def _too_little(documents: int, files: int, fewest: int) -> InputError:
    shared = ": 2 to learn from and 2 held out" if fewest == 4 else ""
    return InputError(
        f"too little text: {documents} documents in {files} files\n"
        f"it takes {fewest}{shared}\n"
        "add text, or cut it into more documents: lower paragraphs_per_document, or set documents"
    )


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Fingerprint of everything that decides which ids a text gets."""
    return hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest()


def _fingerprint(
    files: Sequence[Path], tokenizer: Tokenizer, recipe: TextRecipe, begin: int | None
) -> dict[str, Any]:
    settings = {name: getattr(recipe, name) for name in recipe.cutting}
    return {
        "version": _VERSION,
        "tokenizer": tokenizer_digest(tokenizer),
        "settings": settings if begin is None else {**settings, "begin": begin},
        "inputs": [{"name": p.name, "sha256": sha256_of(p) if p.is_file() else ""} for p in files],
    }


def _read_index(folder: Path) -> dict[str, Any] | None:
    """Read the description of an earlier corpus; None if there is none, or it cannot be read."""
    try:
        found = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("version") == _VERSION else None


def _fits(folder: Path, made_of: dict[str, Any], rebuild: bool) -> bool:
    """Return whether the folder holds the corpus, undamaged."""
    found = _read_index(folder)
    if found is None:
        return False
    changes = _changes(found, made_of)
    if changes and not rebuild:
        raise InputError(
            f"{folder} holds the tokens of other data\n"
            f"changed: {'; '.join(changes)}\n"
            "put it back as it was, or start again with --fresh"
        )
    return not changes and _intact(folder, found)


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe the differences."""
    old, new = before["settings"], now["settings"]
    found = [f"{n} {old.get(n)!r} -> {new[n]!r}" for n in new if old.get(n) != new[n]]
    if before["tokenizer"] != now["tokenizer"]:
        found.append("the tokenizer")
    pairs = itertools.zip_longest(before["inputs"], now["inputs"])
    for one, other in pairs:
        if one is None or other is None:
            found.append(f"{len(before['inputs'])} files -> {len(now['inputs'])}")
            break
        if one["sha256"] != other["sha256"]:
            same = one["name"] == other["name"]
            found.append(one["name"] if same else f"{one['name']} -> {other['name']}")
    return found if len(found) <= 4 else [*found[:4], f"and {len(found) - 4} more"]


def _intact(folder: Path, index: dict[str, Any]) -> bool:
    """Return whether the columns are the bytes that were written."""
    try:
        return {name: sha256_of(folder / name) for name in COLUMNS} == index["files"]
    except (OSError, KeyError):
        return False


def _write(
    documents: Iterable[list[str]],
    tokenizer: Tokenizer,
    folder: Path,
    begin: int | None,
    note: Note | None,
) -> dict[str, int]:
    """Write the columns; sentences and documents without a token are left out."""
    narrow = tokenizer.vocab_size <= 2**16
    dtypes = (np.uint16 if narrow else np.uint32, np.int64, np.int64, np.uint64)
    with ExitStack() as stack:
        columns = [
            stack.enter_context(Column(folder / name, dtype))
            for name, dtype in zip(COLUMNS, dtypes, strict=True)
        ]
        tokens, sentences, starts, hashes = columns
        sentences.extend([0])
        starts.extend([0])
        for group, rows in _tokenized(_groups(documents), tokenizer):
            rows = rows if begin is None else _begun(group, rows, begin)
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            owner = np.repeat(np.arange(len(group)), [len(document) for document in group])
            counts = np.bincount(owner[sizes > 0], minlength=len(group))
            starts.extend(len(sentences) - 1 + np.cumsum(counts[counts > 0]))
            sentences.extend(len(tokens) + np.cumsum(sizes[sizes > 0]))
            tokens.extend(np.fromiter(itertools.chain.from_iterable(rows), np.int64))
            hashes.extend([_hash(d) for d, n in zip(group, counts, strict=True) if n])
            if note:
                note(f"{len(hashes):,} documents, {len(tokens):,} tokens")
        return {
            "documents": len(hashes),
            "sentences": len(sentences) - 1,
            "tokens": len(tokens),
        }


def _groups(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Documents together that are worth a parallel call of the tokenizer."""
    group: list[list[str]] = []
    size = 0
    for document in documents:
        group.append(document)
        size += sum(map(len, document))
        if size >= _CHARACTERS_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _tokenized(
    groups: Iterable[list[list[str]]], tokenizer: Tokenizer
) -> Iterator[tuple[list[list[str]], list[list[int]]]]:
    """Each group with the ids of its sentences; the next one is read meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        before: tuple[list[list[str]], Future[list[list[int]]]] | None = None
        for group in groups:
            ids = pool.submit(tokenizer.ids, [s for document in group for s in document])
            if before:
                yield before[0], before[1].result()
            before = group, ids
        if before:
            yield before[0], before[1].result()


def _begun(group: list[list[str]], rows: list[list[int]], begin: int) -> list[list[int]]:
    """Put an id before the first sentence with tokens of each document."""
    found, number = [], 0
    for document in group:
        before = [begin]
        for row in rows[number : number + len(document)]:
            found.append([*before, *row] if row else row)
            before = [] if row else before
        number += len(document)
    return found


def _hash(document: Sequence[str]) -> int:
    """64 bits that depend on the text of a document only."""
    digest = hashlib.sha256("\n".join(document).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big")
