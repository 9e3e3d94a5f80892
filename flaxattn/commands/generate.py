# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn generate`: it parses, calls and prints what a model writes, while it writes.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaxattn.commands.text_arguments import IsText, given_text
from flaxattn.commands.written_page import (
    PageFile,
    View,
    requested_page,
    requested_predictions,
    with_contributions,
    write_page,
)
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
    from flaxattn.text.tokenizer_files import Chat
    from flaxattn.trace.trace import Trace

MODEL = "tiny-gpt2"
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def generate(
    prompt: Annotated[
        str,
        typer.Argument(help="Text to continue; - reads standard input, without its last newline."),
    ],
    model: Annotated[
        str, typer.Option(help="Built-in name, model directory, or Hugging Face Hub id.")
    ] = MODEL,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Largest number of generated tokens; default the model's, or 64."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Number of texts to sample.")] = 1,
    seed: Annotated[int | None, typer.Option(help="Random seed of the samples; default 0.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; below 1 prefers likely tokens.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Sample from this many of the likeliest tokens; 0 for all.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the likeliest tokens of this total probability."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            help="Sample from tokens at least this share as likely as the likeliest; 0 for all."
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1, repeat tokens of the prompt and the text less; 1 for none."),
    ] = None,
    num_beams: Annotated[int, typer.Option(min=1, help="Number of beams.")] = 1,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="Stop before this string, in which \\n is a line break; repeat for several."
        ),
    ] = None,
    view: View = False,
    out: PageFile = None,
    chat: Annotated[
        bool,
        typer.Option("--chat", help="Take PROMPT as a user's message and print the model's reply."),
    ] = False,
    system: Annotated[
        str | None, typer.Option(help="With --chat, the system message before it.")
    ] = None,
    is_text: IsText = False,
) -> None:
    """Continue a text; tokens are printed as they are generated.

    By default the likeliest token is taken at every step, unless the generation_config.json of the
    model says otherwise. With --samples, --seed, --temperature, --top-k, --top-p or --min-p, tokens
    are sampled.

    Example: flaxattn generate "The captain" --max-new-tokens 40 --view

    Example: flaxattn generate "The captain" --temperature 0.8 --top-p 0.9 --samples 3 --seed 1
    """
    settings = _settings(
        {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p},
        samples,
        seed,
        num_beams,
    )
    if repetition_penalty is not None:
        settings["repetition_penalty"] = repetition_penalty
    if max_new_tokens is not None:
        settings["max_new_tokens"] = max_new_tokens
    settings |= {"seed": seed or 0, "stop": [_unescaped(one) for one in stop or ()]}
    text = given_text(prompt, is_text)
    text = text if is_text or prompt != "-" else text.removesuffix("\n").removesuffix("\r")
    messages = _messages(text, chat, system)
    page = requested_page(view, out)
    traced = page is not None
    if samples > 1 or num_beams > 1:
        trace = _write(_load(model), messages, settings, traced)
    else:
        trace = _stream(_load(model), messages, settings, traced)
    if trace is not None and page is not None:
        write_page(trace, page)


def _settings(
    drawing: dict[str, Any], samples: int, seed: int | None, num_beams: int
) -> dict[str, Any]:
    """Settings of generation; others keep the defaults of the model."""
    drawing = {name: value for name, value in drawing.items() if value is not None}
    reasons = [f"--{name.replace('_', '-')}" for name in drawing]
    reasons += ["--samples"] * (samples > 1) + ["--seed"] * (seed is not None)
    if reasons and num_beams > 1:
        raise InputError(
            f"{reasons[0]} draws tokens, --num-beams {num_beams} looks for the likeliest text\n"
            "leave out one of the two"
        )
    if reasons:
        return {**drawing, "do_sample": True, "num_beams": 1, "num_return_sequences": samples}
    return {"num_beams": 1} if num_beams == 1 else {"num_beams": num_beams, "do_sample": False}


def _messages(text: str, chat: bool, system: str | None) -> "str | Chat":
    """The prompt as it is, or as a message of a chat."""
    if not chat:
        if system is not None:
            raise InputError(f"--system {system!r} is a message of a chat\nadd --chat")
        return text
    before = [] if system is None else [{"role": "system", "content": system}]
    return [*before, {"role": "user", "content": text}]


def _unescaped(text: str) -> str:
    r"""A stop string as meant: a shell hands on `\n` as two characters."""
    return re.sub(r"\\([nt\\])", lambda found: _ESCAPES[found[1]], text)


def _load(name: str) -> "PretrainedDecoder":
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
    from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq

    with _status(f"loading {name}"):
        loaded = from_pretrained(name)
    if not isinstance(loaded, PretrainedDecoder):
        command = "translate" if isinstance(loaded, PretrainedSeq2Seq) else "view"
        raise InputError(
            f"the model {name!r} does not continue texts: it is a "
            f"{loaded.config.architectures[0]}\n"
            f"name a GPT-2, or use this one with flaxattn {command}"
        )
    return loaded


def _stream(
    model: "PretrainedDecoder", text: "str | Chat", settings: dict[str, Any], traced: bool
) -> "Trace | None":
    """Print one text while it is written."""
    parts = model.stream(text, **settings)  # raises before anything is shown
    try:
        for part in parts:
            _say(part)
    finally:
        _say("\n")
    if not traced:
        return None
    with _status("reading the text again"):
        trace = model.generate(text, **_recorded(model), **settings)[1]
        return with_contributions(model, trace)


def _write(
    model: "PretrainedDecoder", text: "str | Chat", settings: dict[str, Any], traced: bool
) -> "Trace | None":
    """Print texts when all of them are written."""
    with _status("writing"):
        generated = model.generate(text, **(_recorded(model) if traced else {}), **settings)
        texts, trace = generated if traced else (generated, None)
        trace = trace and with_contributions(model, trace)
    for number, one in enumerate(texts, 1):
        if len(texts) > 1:
            _say(f"--- {number} of {len(texts)} ---\n")
        _say(f"{one}\n")
    return trace


def _recorded(model: "PretrainedDecoder") -> dict[str, Any]:
    """Options of a traced pass whose page has every level, and predictions."""
    from flaxattn.kernels.contract import Capture

    capture = Capture(weights=True, query=True, key=True, value=True)
    return {"trace": True, "capture": capture, **requested_predictions(model)}


def _say(text: str) -> None:
    """Print without delay, control characters of the generated text included."""
    typer.echo(text, nl=False, color=True)


@contextmanager
def _status(what: str) -> Iterator[None]:
    """A sign of life on standard error."""
    from flaxattn.pipeline.progress_reporter import ProgressReporter

    with ProgressReporter() as progress:
        progress(what, 0)
        yield
