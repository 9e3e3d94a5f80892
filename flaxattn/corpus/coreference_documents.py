# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Documents with marked mentions, out of files: columns of CoNLL-2012, or `Entity` of CoNLL-U.

What a bracket means is known in `mentions`; trees of CoNLL-U are read in `dependency_trees`.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.dependency_trees import NO_GOVERNOR, Sentence, is_annotated, read_sentences
from flaxattn.corpus.lines import Line, lines_of, refused, sound
from flaxattn.corpus.mentions import Document, DocumentWord, Mention, Opened, brackets

_LEAST = 6  # columns: document, part, number, word, tag, …, mentions
_NOUNS = re.compile("NN|PRP|WP|CD|EX")
_AFTER = frozenset(("IN", "TO", "WDT", "WP", "WRB", "VBG", "VBN", ",", ":", "-LRB-"))
"""Tags of words with which what follows a noun begins."""


def read_documents(paths: Iterable[Path], bad: BadRows) -> Iterator[Document]:
    """The usable documents of some files, in order.

    CoNLL-U by its name, whose mentions are `Entity=` among the last column as in CorefUD, and whose
    documents begin with `# newdoc`; the head of a mention is the word that depends on one outside.
    Everything else is read as CoNLL-2012: at least six columns parted by blanks, of which the
    fourth is the word, the fifth its tag of the Penn Treebank and the last one has the mentions,
    between `#begin document` and `#end document`. The head of a mention is there its last noun
    before a preposition, a comma or a relative clause, which is a rule of ours.
    """
    for path in paths:
        for found in _of_trees(path) if is_annotated(path) else _of_columns(path, bad):
            bad.rows_read += 1
            if isinstance(found, Problem):
                bad.report(found)
            else:
                yield found


class _Noted(BadRows):
    """Keeps problems until somebody asks: a sentence that is bad makes its document bad."""

    def __init__(self) -> None:
        super().__init__()
        self.problem: Problem | None = None

    def report(self, problem: Problem) -> None:
        self.problem = self.problem or problem


def _of_trees(path: Path) -> Iterator[Document | Problem]:
    noted = _Noted()
    part: list[Sentence] = []
    for sentence in itertools.chain(read_sentences([path], noted), [None]):
        if sentence is None or sentence.begins:
            # Nobody knows whether the bad sentence began a document or was in the one before.
            if part or noted.problem:
                yield noted.problem or _joined(part)
            part, noted.problem = [], None
        if sentence is not None:
            part.append(sentence)


def _joined(sentences: Sequence[Sentence]) -> Document | Problem:
    """Sentences of one document as one text."""
    words: list[DocumentWord] = []
    governors: list[int] = []
    notes: list[str] = []
    start = 0
    for sentence in sentences:
        first = len(words)
        for word in sentence.words:
            span = word.start + start, word.stop + start
            words.append(DocumentWord(word.form, word.tag, span, word.line))
            outside = word.governor == NO_GOVERNOR
            governors.append(NO_GOVERNOR if outside else first + word.governor)
            notes.append(word.entity)
        start += len(sentence.text) + 1
    text = " ".join(sentence.text for sentence in sentences)

    def head(start: int, stop: int) -> int:
        inside = range(start, stop)
        return next(word for word in inside if governors[word] not in inside)

    first = sentences[0]
    return _document(first.document or first.id, text, words, notes, first.file, first.line, head)


def _of_columns(path: Path, bad: BadRows) -> Iterator[Document | Problem]:
    if problem := refused(path, "txt"):
        bad.report(problem)
        return
    lines = sound(lines_of(path, bad), bad)
    for begun, some in itertools.groupby(_parts(lines), key=lambda pair: pair[0]):
        yield _columns(str(path), begun, [line for _, line in some])


def _parts(lines: Iterator[Line]) -> Iterator[tuple[tuple[str, int], Line]]:
    """Lines of words, with the name of their document and the line on which it begins."""
    begun = "", 1
    for line in lines:
        if line.body.startswith("#begin document"):
            begun = line.body.removeprefix("#begin document").strip(), line.number
        elif line.body.strip() and not line.body.startswith("#"):
            yield begun, line


def _columns(file: str, begun: tuple[str, int], lines: Sequence[Line]) -> Document | Problem:
    words: list[DocumentWord] = []
    notes: list[str] = []
    text = ""
    for line in lines:
        fields = line.body.split()
        if len(fields) < _LEAST:
            message = f"expected at least {_LEAST} columns in the line, received {len(fields)}"
            return Problem(file, line.number, "", "entity", message, excerpt(line.body))
        text += " " if text else ""
        span = len(text), len(text) + len(fields[3])
        words.append(DocumentWord(fields[3], fields[4], span, line.number))
        text += fields[3]
        notes.append("" if fields[-1] in ("-", "_", "*") else fields[-1])

    def head(start: int, stop: int) -> int:
        return start + _head([word.tag for word in words[start:stop]])

    name = begun[0] or f"{Path(file).name}:{begun[1]}"
    return _document(name, text, words, notes, file, begun[1], head)


def _head(tags: Sequence[str]) -> int:
    """The last noun before what follows it; without one, the last word."""
    found = None
    for place, tag in enumerate(tags):
        if found is not None and tag in _AFTER:
            break
        if _NOUNS.match(tag):
            found = place
    return len(tags) - 1 if found is None else found


def _document(
    name: str,
    text: str,
    words: Sequence[DocumentWord],
    marked: Sequence[str],
    file: str,
    line: int,
    head: Callable[[int, int], int],
) -> Document | Problem:
    """The document, or the first thing that is wrong with its mentions."""
    opened = Opened()
    for place, (word, marks) in enumerate(zip(words, marked, strict=True)):
        found = brackets(marks) if marks else []
        message = (
            "these are not brackets of mentions" if found is None else opened.take(place, found)
        )
        if message is not None:
            message = f"document {name!r}, word {word.form!r}: {message}"
            return Problem(file, word.line, "", "entity", message, excerpt(marks))
    if left := opened.unclosed():
        entity, place = left
        where = f"document {name!r}, word {words[place].form!r}"
        message = f"{where}: a mention of {entity!r} does not end"
        return Problem(file, words[place].line, "", "entity", message, excerpt(marked[place]))
    spans = sorted(set(opened.found), key=lambda one: (one[1], -one[2]))
    mentions = tuple(Mention(*span, head(span[1], span[2])) for span in spans)
    return Document(name, text, tuple(words), mentions, file, line)
