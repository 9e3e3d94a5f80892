# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From files of text to a corpus on disk: read, cut into sentences, tokenised once.

The store is written whole or not at all, and used again as long as files, settings and tokenizer
are the same. Memory does not grow with the text.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from flaxattn.corpus.rows import BadRows
from flaxattn.errors import CheckpointError, InputError
from flaxattn.files import remove_abandoned, sha256_of, written_whole
from flaxattn.store.folder_lock import locked
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train.columns import Column
from flaxattn.train.corpus import COLUMNS, INDEX, TokenCorpus
from flaxattn.train.documents import read_documents
from flaxattn.train.recipe import TextRecipe

Note = Callable[[str], None]
Read = Callable[[Sequence[Path], Any, BadRows], Iterable[list[str]]]
_VERSION = 1  # of the store's layout
_AT_ONCE = 2**20  # characters tokenised together


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
        if size >= _AT_ONCE:
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
