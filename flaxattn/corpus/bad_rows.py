# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One policy for rows that cannot be used: stop, leave them out, or leave them out and list them.

This file defines a problem and its message; readers find problems.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.errors import InputError

POLICIES = ("fail", "skip", "quarantine")
LIST = "errors.jsonl"
EXCERPT = 80

# Every code a problem can have, and how a person puts it right.
FIXES: Mapping[str, str] = {
    "missing-file": "name an existing file",
    "dangling-link": "restore what the link points to, or name the file itself",
    "directory": "name the files in it",
    "not-a-file": "write the data to a regular file first",
    "unreadable": "change its permissions, or copy it to where it can be read",
    "wrong-extension": "name it as it is: .txt .tsv .csv .jsonl (also .gz .zst), .parquet .arrow",
    "empty-file": "name a file that holds rows",
    "pickled": "write the column as a plain type; a pickle can run any program",
    "damaged": "copy or download the file again",
    "truncated-file": "copy or download the file again: it was cut short",
    "truncated": "copy or download the file again: it was cut short",
    "utf-16": "convert the file, for example: iconv -f UTF-16 -t UTF-8",
    "missing-header": "add the column, or name the right one, as in text_column='text'",
    "missing-column": "add the column, or name the right one, as in text_column='text'",
    "duplicate-column": "give every column a name of its own",
    "encoding": "convert the file, for example: iconv -f LATIN1 -t UTF-8",
    "nul": "remove the NUL characters",
    "surrogate": "remove the character, or write it as a whole pair",
    "too-long": "break the line, or shorten the text",
    "short-row": "give the row all its fields",
    "long-row": "remove the extra field, or quote a field that holds the separator",
    "unclosed-quote": "close the quote, and double every quote inside a field",
    "json": "write one JSON object per line",
    "duplicate-key": "keep each key once",
    "nan-literal": "JSON has no NaN and no Infinity: write null or a number",
    "null": "give it a value",
    "not-text": "write the text in quotes",
    "nested": "give a plain value",
    "empty": "give it at least one word",
    "language": "name a language that it has, or add the translation",
    "duplicate-id": "give every row an id of its own, or leave out the id column",
    "too-many-tokens": "shorten the text, or pass truncate=True to cut it",
    "over-long": "split the sentences, or raise max_length",
    "label": "correct the label",
    "label-range": "correct the label",
    "label-type": "correct the label",
    "conllu": "give every word ten fields parted by tabs, as universaldependencies.org says",
    "tree": "correct the tree: words numbered from 1, one root, no cycle",
    "annotation": "correct `# text`, or the forms of the words",
    "another-text": "give the trees of the texts that were extracted, in their order",
    "mention": "mark the pronoun, and the two people it may mean, as the others are",
    "entity": "write CoNLL-2012 or CoNLL-U, and end every mention in its document",
    "no-tokens": "correct the word, or take another tokenizer",
}

# Codes that concern a whole file: none of its rows were read.
WHOLE_FILE = frozenset(
    (
        *("missing-file", "dangling-link", "directory", "not-a-file", "unreadable"),
        *("wrong-extension", "empty-file", "pickled", "damaged", "truncated-file", "utf-16"),
        *("missing-header", "duplicate-column"),
    )
)


class Problem(NamedTuple):
    """One thing that is wrong with a file.

    Attributes:
        file: The file.
        line: Line from 1, in Parquet the row from 1; 0 for the whole file.
        column: Name of the column, empty where the whole row is meant.
        code: A key of `FIXES`.
        message: Description of what is wrong, in a few words.
        excerpt: At most 80 printable characters of what was found.
    """

    file: str
    line: int
    column: str
    code: str
    message: str
    excerpt: str = ""

    def __str__(self) -> str:
        where = self.file + (f", line {self.line}" if self.line else "")
        where += f", column {self.column!r}" if self.column else ""
        found = f"received: {self.excerpt}\n" if self.excerpt else ""
        message = _one_line(f"{where}: {self.message}")
        return f"{message}\n{found}{FIXES[self.code]}"


class BadRows:
    """Receives the problems of a run and applies the policy to them.

    Attributes:
        policy: "fail", "skip" or "quarantine".
        counts: Problems by code.
        rows_read: Data rows that readers found, good and bad ones.
        lost: Bad rows among them; problems of whole files are not rows.
    """

    def __init__(self, policy: str = "fail", folder: Path | None = None) -> None:
        if policy not in POLICIES:
            raise InputError(f"on_error {policy!r} is unknown\nchoose one of {', '.join(POLICIES)}")
        if policy == "quarantine" and folder is None:
            raise InputError(
                "on_error quarantine needs a folder for errors.jsonl\nname one, or choose skip"
            )
        self.policy, self.folder = policy, folder
        self.counts: Counter[str] = Counter()
        self.rows_read, self.lost = 0, 0
        self._listed: set[str] | None = None

    def report(self, problem: Problem) -> None:
        """Note a problem; the caller then leaves the row out. Report each row once.

        Args:
            problem: Description of what is wrong.

        Raises:
            InputError: Under "fail": three lines with file, line and how to put it right.
        """
        if self.policy == "fail":
            is_row = problem.line > 0 and problem.code not in WHOLE_FILE
            # Only functions that name a folder have the argument.
            skip = ', or pass on_error="skip" to leave it out' if is_row and self.folder else ""
            raise InputError(f"{problem}{skip}")
        self.counts[problem.code] += 1
        self.lost += problem.line > 0 and problem.code not in WHOLE_FILE
        if self.policy == "quarantine":
            self._list(problem)

    def summary(self) -> dict[str, Any]:
        """Rows found, kept and left out, and the problems by code: ready for JSON."""
        return {
            "rows": self.rows_read,
            "kept": self.rows_read - self.lost,
            "bad": dict(sorted(self.counts.items())),
        }

    def _list(self, problem: Problem) -> None:
        """Append to the list, unless an earlier start of the same run did so already."""
        assert self.folder is not None
        path = self.folder / LIST
        if self._listed is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            old = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            self._listed = set(old)
        line = json.dumps(problem._asdict())
        if line not in self._listed:
            self._listed.add(line)
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


class ListedProblems(BadRows):
    """Keeps every problem of an extraction, which stores them; under "fail" the first is raised.

    Attributes:
        problems: Problems in the order of the rows.
    """

    def __init__(self, policy: str = "fail") -> None:
        super().__init__("fail" if policy == "fail" else "skip", Path())
        self.problems: list[Problem] = []

    def report(self, problem: Problem) -> None:
        """Keep a problem."""
        super().report(problem)
        self.problems.append(problem)


def excerpt(found: Any) -> str:
    """At most 80 printable characters of what was found; others are written as escapes."""
    text = found if isinstance(found, str) else repr(found)
    head = _one_line(text[: EXCERPT + 1])
    return head if len(head) <= EXCERPT else head[: EXCERPT - 1] + "…"


def _one_line(text: str) -> str:
    """A text whose characters all print; others are written as escapes."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
