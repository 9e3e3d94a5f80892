# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Documents whose mentions of entities are marked, and the brackets that mark them.

Files of CoNLL-2012 and CoNLL-U are read in `coreference_documents`; who resolves a mention, and how
well, is found out in `flaxattn.measures`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

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
        line: Of the file, from 1.
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
        file: Where it stands.
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
        """Take in what a word says."""
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
