# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options that `flaxattn stats` and `roles` share: which texts, read how."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaxattn.commands.report_run import Out, Overwrite
from flaxattn.errors import InputError
from flaxattn.store.store_layout import is_store

if TYPE_CHECKING:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.pipeline.tokenize_texts import ReadingOptions

_RANGE = "20-40"
# Options that say how texts are read; a store's were read when it was written.
_OF_TEXTS = ("model", "text_column", "pair_column", "truncate", "batch_tokens", "allow_nonfinite")

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Sentences with trees (.conllu, also .gz and .zst), other texts as for extract, or "
        "the folder of a store, which needs no model.",
    ),
]
Model = Annotated[str, typer.Option(help="Built-in name, directory, or Hub id.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Largest number of texts.")]
Trees = Annotated[
    list[Path] | None,
    typer.Option(
        help="CoNLL-U file with trees for the texts of a store, in order; repeat for more."
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option(
        help=f"Range of text lengths in positions, such as {_RANGE}; scores vary with length."
    ),
]
TextColumn = Annotated[str, typer.Option(help="Column or key of the text.")]
SecondColumn = Annotated[
    str | None, typer.Option(help="Column or key of the second text, or of a translation's target.")
]
LabelColumn = Annotated[
    str | None, typer.Option(help="Column or key of the class number, for a classifier.")
]
Architecture = Annotated[
    str | None,
    typer.Option("--task-head", help="Architecture to load the model as, such as BertForMaskedLM."),
]
PairColumn = Annotated[str | None, typer.Option(help="Column or key of the second text.")]
Alpha = Annotated[float, typer.Option(help="Significance level of the tests.")]
Correction = Annotated[
    str, typer.Option(help="Correction for the number of tests: none, bonferroni, holm or bh.")
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut texts over the model's limit.")]
AllowNonfinite = Annotated[
    bool,
    typer.Option(
        "--allow-nonfinite",
        help="Accept NaN and infinity from a model, and leave those cells blank.",
    ),
]
OnError = Annotated[str, typer.Option(help="Texts that cannot be used: fail, skip or quarantine.")]
BatchTokens = Annotated[
    int | None, typer.Option(min=1, help="Number of positions in a batch, padding included.")
]
Side = Annotated[
    str | None,
    typer.Option(
        help="Attention to report: encoder, decoder or cross; default cross where there is any."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report's JSON.")]
WithPage = Annotated[
    bool,
    typer.Option("--page/--no-page", help="Write the page with the texts that show each claim."),
]
Sentences = Annotated[int, typer.Option(min=1, help="Largest number of texts on the page.")]
Kept = Annotated[int, typer.Option(min=1, help="Number of texts kept for each claim and head.")]
OtherReports = Annotated[
    list[Path] | None,
    typer.Option(
        help="Report of ablate, patch, probe or another command on the same model, whose numbers "
        "the page of each head shows; repeat for more."
    ),
]
SENTENCES, KEPT = 40, 5  # of the page, and for each claim


@dataclasses.dataclass(frozen=True)
class Request:
    """Texts of a command and how to read them; the fields are the options of the command.

    Attributes:
        inputs: Files, or one folder of a store.
        out: Folder of the report.
        model: What reads the texts; a store needs none.
        trees: Trees of the texts of a store.
        limit: Most texts.
        lengths: Fewest and most positions of a text that counts, as `20-40`.
        text_column: Column of the text, in tables.
        pair_column: Column of the second text.
        truncate: Whether texts over the model's limit are cut.
        on_error: What becomes of texts that cannot be used.
        batch_tokens: Positions of a batch.
        page: Whether a page is written.
        sentences: Most texts of the page.
        evidence: Texts kept for each claim and head.
        side: `encoder`, `decoder` or `cross`; None for what the model is known by.
        allow_nonfinite: Whether NaN and infinity leave cells blank; otherwise they are an error.
        overwrite: Whether the report of another run in the folder is replaced.
        facts: Folders of other reports on the model, whose numbers pages of heads show.
    """

    inputs: Inputs
    out: Out
    model: Model = "tiny-bert"
    trees: Trees = None
    limit: Limit = None
    lengths: Lengths = None
    text_column: TextColumn = "text"
    pair_column: PairColumn = None
    truncate: Truncate = False
    on_error: OnError = "fail"
    batch_tokens: BatchTokens = None
    page: WithPage = True
    sentences: Sentences = SENTENCES
    evidence: Kept = KEPT
    side: Side = None
    allow_nonfinite: AllowNonfinite = False
    overwrite: Overwrite = False
    facts: OtherReports = None

    def __post_init__(self) -> None:
        length_range(self.lengths)
        if self.store:
            check_unread(self.inputs[0], vars(self))

    @property
    def store(self) -> bool:
        """Return whether the input is a store."""
        return is_store(self.inputs[0]) and len(self.inputs) == 1

    @property
    def range(self) -> tuple[int, int] | None:
        """Fewest and most positions."""
        return length_range(self.lengths)

    @property
    def annotated(self) -> bool:
        """Return whether the texts have trees."""
        from flaxattn.corpus.dependency_trees import is_annotated

        if self.trees and not self.store:
            raise InputError(
                f"--trees is for the texts of a store; {self.inputs[0]} is not a store\n"
                "leave out --trees, and give the CoNLL-U files as inputs"
            )
        found = [is_annotated(Path(name)) for name in (self.trees or self.inputs)]
        if any(found) and not all(found):
            other = (self.trees or self.inputs)[found.index(False)]
            raise InputError(
                f"{other} has no trees, and other inputs are CoNLL-U\n"
                "give either sentences with trees or texts without"
            )
        if self.trees and not any(found):
            raise InputError(
                f"{self.trees[0]} has no trees by its name\nname a file in .conllu, also .gz"
            )
        return any(found)

    def reading(self, bad: "BadRows") -> "ReadingOptions":
        """Return the options with which texts are read."""
        from flaxattn.pipeline.tokenize_texts import ReadingOptions

        return ReadingOptions(
            self.truncate,
            bad,
            self.batch_tokens,
            limit=self.limit,
            lengths=self.range,
            allow_nonfinite=self.allow_nonfinite,
        )

    def reported(self) -> dict[str, Any]:
        """Return the arguments that `roles_report` and `stats_report` share."""
        from flaxattn.corpus.bad_rows import BadRows
        from flaxattn.reports.evidence import PageOptions

        return {
            "side": self.side,
            "trees": self.trees or (),
            "reading": self.reading(BadRows(self.on_error, self.out)),
            "page": PageOptions(self.evidence, self.sentences, self.facts or ()),
        }


@dataclasses.dataclass(frozen=True)
class StatsRequest(Request):
    """Options of `flaxattn stats`."""

    out: Out = Path("report-stats")


@dataclasses.dataclass(frozen=True)
class RolesRequest(Request):
    """Options of `flaxattn roles`."""

    out: Out = Path("report-roles")


def check_unread(store: str, given: Mapping[str, Any]) -> None:
    """Refuse options for reading texts where a store is given; they would have no effect."""
    defaults = {field.name: field.default for field in dataclasses.fields(Request)}
    for name in _OF_TEXTS:
        if name in given and given[name] != defaults[name]:
            option = "--" + name.replace("_", "-")
            raise InputError(
                f"{option} says how texts are read; {store} is a store, whose texts were read "
                "when it was written\n"
                f"leave {option} out, or give the texts in place of the store"
            )


def length_range(text: str | None) -> tuple[int, int] | None:
    """The numbers of `20-40`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)-(\d+)", text, re.ASCII)
    if not found or int(found[1]) > int(found[2]):
        message = f"{text!r} is not a range such as {_RANGE}."
        raise typer.BadParameter(message, param_hint="--lengths")
    return int(found[1]), int(found[2])
