# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Paragraphs and sentences of plain text, by rule.

Good enough to cut training text into sentences; not a linguistic segmenter.
"""

import re

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
