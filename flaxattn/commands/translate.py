# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn translate`: it parses, reads lines, calls and prints.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaxattn.commands.text_arguments import OnDone, cost, progress, read_lines, report_empty
from flaxattn.errors import InputError
from flaxattn.files import check_writable, write_text

if TYPE_CHECKING:
    from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq

Beam = Annotated[int, typer.Option("--num-beams", help="Number of beams; 1 decodes greedily.")]
Batch = Annotated[int, typer.Option("--batch-size", help="Number of sentences per batch.")]
MaxLength = Annotated[
    int | None,
    typer.Option(help="Largest number of generated tokens; default 50 more than the source."),
]
Penalty = Annotated[
    float | None,
    typer.Option("--length-penalty", help="Exponent of the length penalty; default the model's."),
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut sources that are too long.")]


def translate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Text file with a sentence per line; default standard input."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model directory, built-in name, or Hugging Face Hub id.")
    ] = None,
    beam: Beam = 4,
    n_best: Annotated[
        int, typer.Option(help="Number of translations per line, printed with scores.")
    ] = 1,
    batch: Batch = 32,
    max_length: MaxLength = None,
    length_penalty: Penalty = None,
    align: Annotated[
        bool, typer.Option("--align", help="Print Pharaoh alignments i-j after a tab.")
    ] = False,
    view: Annotated[
        Path | None, typer.Option(help="Write a page with the attention to the first sentence.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", "--out", help="Output file.")
    ] = None,
    truncate: Truncate = False,
) -> None:
    """Translate text line by line.

    Each line of the input gives one line of output, in order.

    With --n-best above 1, lines are `number ||| translation ||| score`, numbered from 0 as in
    Moses. Alignments are between words separated by spaces: source word i, generated word j.

    Example: flaxattn translate dates.txt --model tiny-dates --align

    Example: flaxattn translate test.de --model RUN/model --num-beams 8 --n-best 3
    """
    check_counts(beam, batch, max_length, n_best)
    if n_best > beam:
        raise InputError(
            f"--n-best {n_best} needs as many hypotheses\n--num-beams is {beam}\nraise --num-beams"
        )
    if align and n_best > 1:
        raise InputError("--align is of the best translation\nleave out --n-best")
    for path, what in ((out, "the translations"), (view, "the page")):
        if path is not None:
            check_writable(path, what)
    lines = read_lines(files or [])
    texts = [text for _, text in lines]
    if view is not None and not any(text.strip() for text in texts):
        raise InputError("every line is empty\n--view shows the first that is not")
    loaded = load(model)
    settings = {**settings_of(beam, max_length, length_penalty), "num_return_sequences": n_best}
    report_empty(lines)
    message = translation_cost(lines, loaded, beam, batch)
    with progress("translating", len(lines), message) as on_done:
        if align:
            written = _aligned(loaded, lines, batch, truncate, on_done, settings)
        else:
            written = translated(loaded, lines, batch, truncate, on_done, settings)
    _print(written, out)
    if view is not None:
        _write_view(loaded, texts, view, truncate, settings)


def check_counts(beam: int, batch: int, max_length: int | None, n_best: int = 1) -> None:
    """Refuse counts below 1."""
    counts = {
        "--num-beams": beam,
        "--batch-size": batch,
        "--max-length": max_length,
        "--n-best": n_best,
    }
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(
                f"{name} is {count}\nit must be at least 1"
                + ("; a beam of 1 writes greedily" if name == "--num-beams" else "")
            )


def settings_of(beam: int, max_length: int | None, penalty: float | None) -> dict[str, Any]:
    """Settings of generation; others keep the defaults of the model."""
    given = {"max_new_tokens": max_length, "length_penalty": penalty}
    return {"num_beams": beam, **{name: v for name, v in given.items() if v is not None}}


def translation_cost(
    lines: Sequence[tuple[str, str]], model: "PretrainedSeq2Seq", beam: int, batch: int
) -> str:
    """Sentence on what translating costs."""
    filled = sum(bool(text.strip()) for _, text in lines)
    how = "greedily" if beam == 1 else f"with {beam} beams"
    work = f"translated {how}, {batch} at a time, one forward pass per generated token"
    return cost(filled, model.name, work)


def load(name: str | None) -> "PretrainedSeq2Seq":
    """The model that translates."""
    if name is None:
        raise typer.BadParameter("it is missing: which model?", param_hint="--model")
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq

    loaded = from_pretrained(name)
    if not isinstance(loaded, PretrainedSeq2Seq):
        raise InputError(
            f"the model {name!r} does not translate: it is a {loaded.config.architectures[0]}\n"
            "name an encoder-decoder, such as one from flaxattn train translation"
        )
    return loaded


def translated(
    model: "PretrainedSeq2Seq",
    lines: Sequence[tuple[str, str]],
    batch: int,
    truncate: bool,
    on_done: OnDone,
    settings: dict[str, Any],
) -> list[str]:
    """The lines to print."""
    from flaxattn.pretrained import pretrained_seq2seq

    texts = [text for _, text in lines]
    with named(lines):
        found = pretrained_seq2seq.translate(
            model, texts, batch=batch, truncate=truncate, on_done=on_done, **settings
        )
    if settings.get("num_return_sequences", 1) == 1:
        return [one.texts[0] for one in found]
    return [
        f"{number} ||| {text} ||| {score:.4f}"
        for number, one in enumerate(found)
        for text, score in zip(one.texts, one.scores, strict=True)
    ]


def _aligned(
    model: "PretrainedSeq2Seq",
    lines: Sequence[tuple[str, str]],
    batch: int,
    truncate: bool,
    on_done: OnDone,
    settings: dict[str, Any],
) -> list[str]:
    """The lines to print: a translation, a tab, and its alignment."""
    from flaxattn.measures.word_alignment import pharaoh, word_alignment
    from flaxattn.pretrained import pretrained_seq2seq

    texts = [text for _, text in lines]
    filled = [number for number, text in enumerate(texts) if text.strip()]
    on_done(len(texts) - len(filled))
    some = [texts[number] for number in filled]
    with named(lines):
        pretrained_seq2seq.encode(model, some, truncate, filled)  # names the line that is too long
        found = pretrained_seq2seq.traced(
            model, some, batch=batch, truncate=truncate, on_done=on_done, **settings
        )
    written = ["\t"] * len(texts)
    for number, (text, trace) in zip(filled, found, strict=True):
        written[number] = f"{text}\t{pharaoh(word_alignment(trace)[0])}"
    return written


def _print(written: Sequence[str], out: Path | None) -> None:
    text = "".join(f"{line}\n" for line in written)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text, "the translations")
        typer.echo(f"wrote {out.resolve()}", err=True)


def _write_view(
    model: "PretrainedSeq2Seq",
    texts: Sequence[str],
    path: Path,
    truncate: bool,
    settings: dict[str, Any],
) -> None:
    from flaxattn.views.trace_views import head_view

    first = next(text for text in texts if text.strip())
    best = {**settings, "num_return_sequences": 1}
    _, trace = model.generate([first], trace=True, truncate=truncate, **best)
    head_view(trace).save(path)
    typer.echo(f"wrote {path.resolve()}", err=True)


@contextlib.contextmanager
def named(lines: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Call a source that cannot be read by its file and line."""
    from flaxattn.pretrained.pretrained_seq2seq import SourceError
    from flaxattn.text.tokenizer_files import shortened

    try:
        yield
    except SourceError as error:
        where, text = lines[error.number]
        first, *others = error.problem.splitlines()
        received = (
            [] if len(others) > 1 else [f"received: {shortened(text)}"]
        )  # three lines at most
        raise InputError("\n".join([f"{where} {first}", *received, *others])) from error
