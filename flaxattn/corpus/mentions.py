# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Documents with marked mentions, and pronouns with the two people that each may mean, from files.

Documents are columns of CoNLL-2012, or `Entity` of CoNLL-U, whose trees are read in
`dependency_trees`; brackets mark the mentions of entities. Pronouns are rows of GAP, WinoBias and
Winogender. The files are the user's.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.dependency_trees import NO_GOVERNOR, Sentence, is_annotated, read_sentences
from flaxattn.corpus.input_files import Line, lines_of, refused, sound
from flaxattn.corpus.rows import Row, read_rows, text_of
from flaxattn.errors import InputError

PRONOUN, PROPER, NOMINAL = "pronoun", "proper", "nominal"
_KINDS = {
    **dict.fromkeys(("PRON", "PRP", "PRP$", "WP", "WP$"), PRONOUN),
    **dict.fromkeys(("PROPN", "NNP", "NNPS"), PROPER),
}
_BRACKET = re.compile(r"(\(?)([^()]+)(\)?)")
_NAME = re.compile(r"[^-\[]+")


class DocumentWord(NamedTuple):
    """A word of a document.

    Attributes:
        form: As it is written.
        tag: Part of speech, of the Penn Treebank or universal.
        span: Its characters in the text, half-open.
        line: Line of the file, from 1.
    """

    form: str
    tag: str
    span: tuple[int, int]
    line: int


class Mention(NamedTuple):
    """Some words that mean an entity.

    Attributes:
        entity: Its name in the document.
        start: Number of the first word.
        stop: Number of the one after the last.
        head: Number of the word that stands for all of them.
    """

    entity: str
    start: int
    stop: int
    head: int


class Document(NamedTuple):
    """A text, its words and who is mentioned.

    Attributes:
        id: What to call it.
        text: As a model reads it.
        words: In order.
        mentions: By their first word, of two the longer one first.
        file: Path of the file.
        line: Its first line, from 1.
    """

    id: str
    text: str
    words: tuple[DocumentWord, ...]
    mentions: tuple[Mention, ...]
    file: str
    line: int

    def kind(self, mention: Mention) -> str:
        """Return whether it is a pronoun, a proper name or nominal, by the tag of its head."""
        return _KINDS.get(self.words[mention.head].tag, NOMINAL)

    def until(self, count: int) -> "Document":
        """Its beginning; mentions that reach beyond are left out."""
        words = self.words[:count]
        kept = tuple(mention for mention in self.mentions if mention.stop <= count)
        return self._replace(text=self.text[: words[-1].span[1]], words=words, mentions=kept)


class Bracket(NamedTuple):
    """Marks of a word in the brackets of mentions: one begins, one ends, or both."""

    entity: str
    opens: bool
    closes: bool


def brackets(message: str) -> list[Bracket] | None:
    """The brackets of a word: `(12|(3)|7)` in CoNLL-2012, `(e1-person(e2)e3)` in CoNLL-U."""
    found = []
    for part in message.split("|"):
        place = 0
        for match in _BRACKET.finditer(part):
            name = _NAME.match(match[2])
            if match.start() != place or name is None or not (match[1] or match[3]):
                return None
            found.append(Bracket(name[0], bool(match[1]), bool(match[3])))
            place = match.end()
        if not part or place != len(part):
            return None
    return found


class Opened:
    """Brackets of a document that are still open, and the mentions that were closed.

    Attributes:
        found: Entity, first word and the one after the last.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int]] = []
        self._open: dict[str, list[int]] = {}

    def take(self, word: int, bracket: Sequence[Bracket]) -> str | None:
        """Add the brackets of a word."""
        for entity, opens, closes in bracket:
            if opens:
                self._open.setdefault(entity, []).append(word)
            if closes:
                if not self._open.get(entity):
                    return f"a mention of {entity!r} ends that did not begin"
                self.found.append((entity, self._open[entity].pop(), word + 1))
        return None

    def unclosed(self) -> tuple[str, int] | None:
        """The entity and the first word of a mention that does not end, if there is one."""
        left = [(starts[0], entity) for entity, starts in self._open.items() if starts]
        return (min(left)[1], min(left)[0]) if left else None


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
    """Keeps problems: a sentence that is bad makes its document bad."""

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


Span = tuple[int, int]
_GAP = ("ID", "Text", "Pronoun", "Pronoun-offset")
_GAP_NAMES = ("A", "B")
_WORDS = {
    "masculine": ("he", "him", "his", "himself"),
    "feminine": ("she", "her", "hers", "herself"),
    "neutral": ("they", "them", "their", "theirs", "themself", "themselves"),
}
_PRONOUN = re.compile(rf"\b({'|'.join(w for words in _WORDS.values() for w in words)})\b", re.I)
_BRACKETED = re.compile(r"\[([^][]+)\]")


class Pronoun(NamedTuple):
    """A pronoun in a text, and whom it may mean.

    Attributes:
        id: What to call it.
        text: Without marks.
        span: Characters of the pronoun, half-open.
        candidates: Characters of each mention that it may mean.
        right: Number of the one it does mean; None if neither.
        group: What results are split by: the file, and the gender of the pronoun.
        file: Path of the file.
        line: In that file, from 1.
    """

    id: str
    text: str
    span: Span
    candidates: tuple[Span, ...]
    right: int | None
    group: str
    file: str
    line: int


def read_pronouns(paths: Iterable[Path], form: str, bad: BadRows) -> Iterator[Pronoun]:
    """The usable pronouns of some files, in order.

    `form` is `gap` (Webster et al. 2018, TSV with offsets), `winobias` (Zhao et al. 2018, numbered
    lines with brackets, two in a row with the same two people), or `winogender` (Rudinger et al.
    2018, the TSV of all sentences).
    """
    if form not in _FORMS:
        raise InputError(
            f"{form!r} is not a form of files with pronouns\nchoose one of {', '.join(_FORMS)}"
        )
    for path in paths:
        for found in _FORMS[form](path, bad):
            bad.rows_read += form == "winobias"  # tables count their rows themselves
            if isinstance(found, Problem):
                bad.report(found)
            else:
                yield found


def _gap(path: Path, bad: BadRows) -> Iterator[Pronoun | Problem]:
    wanted = [*_GAP, *(f"{n}{end}" for n in _GAP_NAMES for end in ("", "-offset", "-coref"))]
    for row in read_rows(path, wanted, bad, kind="tsv"):
        if all(text_of(row, column, bad) is not None for column in wanted):
            yield _gap_row(row)


def _gap_row(row: Row) -> Pronoun | Problem:
    values, spans = row.values, []
    for name in ("Pronoun", *_GAP_NAMES):
        form, offset = values[name], values[f"{name}-offset"]
        known = offset.isdecimal() and len(offset) < 10
        if not (known and values["Text"].startswith(form, int(offset))):
            message = f"the text does not have {form!r} at character {offset}"
            return _problem(row, f"{name}-offset", message, offset)
        spans.append((int(offset), int(offset) + len(form)))
    answers = [values[f"{name}-coref"].upper() for name in _GAP_NAMES]
    if not {*answers} <= {"TRUE", "FALSE"} or answers == ["TRUE", "TRUE"]:
        message = "expected TRUE for A, for B, or for neither"
        return _problem(row, "A-coref", message, " and ".join(answers))
    right = answers.index("TRUE") if "TRUE" in answers else None
    group = _gender(values["Pronoun"])
    where = (row.file, row.line)
    return Pronoun(values["ID"], values["Text"], spans[0], tuple(spans[1:]), right, group, *where)


def _winogender(path: Path, bad: BadRows) -> Iterator[Pronoun | Problem]:
    for row in read_rows(path, ["sentid", "sentence"], bad, kind="tsv"):
        if all(text_of(row, column, bad) is not None for column in ("sentid", "sentence")):
            yield _winogender_row(row)


def _winogender_row(row: Row) -> Pronoun | Problem:
    name, text = row.values["sentid"], row.values["sentence"]
    parts = name.split(".")
    if len(parts) != 5 or not all(parts[:2]) or parts[2] not in ("0", "1"):
        message = "expected occupation.participant.answer.gender.txt, the answer 0 or 1"
        return _problem(row, "sentid", message, name)
    people = [re.search(rf"\b{re.escape(word)}\b", text, re.I) for word in parts[:2]]
    pronoun = _PRONOUN.search(text)
    for what, found in (*zip(parts[:2], people, strict=True), ("a pronoun", pronoun)):
        if found is None:
            return _problem(row, "sentence", f"the sentence does not have {what}", text)
    spans = [found.span() for found in (pronoun, *people) if found is not None]
    where = (row.file, row.line)
    return Pronoun(name, text, spans[0], tuple(spans[1:]), int(parts[2]), parts[3], *where)


def _winobias(path: Path, bad: BadRows) -> Iterator[Pronoun | Problem]:
    if problem := refused(path, "txt"):
        bad.report(problem)
        return
    held: tuple[int, str, int] | None = None
    for line in sound(lines_of(path, bad), bad):
        number, _, text = line.body.strip().partition(" ")
        if not line.body.strip():
            continue
        if not number.isdecimal() or len(number) > 9:
            message = "the line does not begin with its number"
            yield Problem(str(path), line.number, "", "mention", message, excerpt(line.body))
        elif int(number) % 2:
            if held is not None:
                yield _alone(path, held)
            held = int(number), text, line.number
        elif held is None or held[0] != int(number) - 1:
            yield _alone(path, (int(number), text, line.number))
        else:
            pair = (held[1], held[2]), (text, line.number)
            yield _marked(path, *pair)
            yield _marked(path, *reversed(pair))
            held = None
    if held is not None:
        yield _alone(path, held)


def _alone(path: Path, line: tuple[int, str, int]) -> Problem:
    message = f"sentence {line[0]} has no partner; 1 and 2, 3 and 4, … speak of the same two people"
    return Problem(str(path), line[2], "", "mention", message, excerpt(line[1]))


def _marked(path: Path, one: tuple[str, int], other: tuple[str, int]) -> Pronoun | Problem:
    """The pronoun of a line; its partner marks the second person that it may mean."""
    (marked, line), (partner, _) = one, other
    text, pronouns, people = _unmarked(marked)
    theirs, _, others = _unmarked(partner)
    if not pronouns or len(people) != 1 or len(others) != 1:
        message = "expected brackets around one person and a pronoun, here and in the partner"
        return Problem(str(path), line, "", "mention", message, excerpt(marked))
    form = theirs[slice(*others[0])]
    found = re.search(rf"\b{re.escape(form)}\b", text, re.I)
    if found is None or found.span() == people[0]:
        message = f"the sentence does not have {form!r}, which its partner marks"
        return Problem(str(path), line, "", "mention", message, excerpt(marked))
    both = sorted([people[0], found.span()])
    group = f"{path.name}, {_gender(text[slice(*pronouns[0])])}"
    right = both.index(people[0])
    name = f"{path.name}:{line}"
    return Pronoun(name, text, pronouns[0], tuple(both), right, group, str(path), line)


def _unmarked(marked: str) -> tuple[str, list[Span], list[Span]]:
    """A text without its brackets, and which pronouns and people were in them."""
    text, place = "", 0
    pronouns: list[Span] = []
    people: list[Span] = []
    for found in _BRACKETED.finditer(marked):
        text += marked[place : found.start()]
        kind = pronouns if _PRONOUN.fullmatch(found[1]) else people
        kind.append((len(text), len(text) + len(found[1])))
        text += found[1]
        place = found.end()
    return text + marked[place:], pronouns, people


def _gender(pronoun: str) -> str:
    known = (gender for gender, words in _WORDS.items() if pronoun.lower() in words)
    return next(known, "other")


def _problem(row: Row, column: str, message: str, found: str) -> Problem:
    return Problem(row.file, row.line, column, "mention", message, excerpt(found))


_FORMS: dict[str, Callable[[Path, BadRows], Iterator[Pronoun | Problem]]] = {
    "gap": _gap,
    "winobias": _winobias,
    "winogender": _winogender,
}
