# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn answer`: it parses, calls `fa.answer_question` and prints.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from flaxattn.commands.text_arguments import AsJson, IsText, cost, given_text, progress
from flaxattn.commands.written_page import PageFile, View, requested_page, write_text_page
from flaxattn.files import printable

if TYPE_CHECKING:
    from flaxattn.pipeline.task_predictions import Answer


def answer(
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTION...", help="Questions about the context.")
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Model with a question-answering head: directory or Hugging Face Hub id."
        ),
    ],
    context: Annotated[
        str, typer.Option(help="Text with the answers; - reads standard input.")
    ] = "-",
    top: Annotated[int, typer.Option(min=1, help="Number of answers to each question.")] = 1,
    null_answer: Annotated[
        bool, typer.Option("--null-answer", help="Allow the answer that there is none.")
    ] = False,
    max_answer_tokens: Annotated[
        int, typer.Option(min=1, help="Largest number of tokens of an answer.")
    ] = 15,
    max_length: Annotated[
        int, typer.Option(min=1, help="Number of tokens of a window, the question counted.")
    ] = 384,
    stride: Annotated[
        int, typer.Option(min=0, help="Number of tokens that neighbouring windows share.")
    ] = 128,
    as_json: AsJson = False,
    view: View = False,
    out: PageFile = None,
    is_text: IsText = False,
) -> None:
    """Find the words of a context that answer questions.

    Each answer is printed with its probability and its range of characters in the context. Long
    contexts are read in overlapping windows. With --json, a line per question holds its answers.
    The page of --view shows the first question with the window of its first answer.

    Example: flaxattn answer "Who slept?" --context "The cat slept." --model MODEL

    Example: flaxattn answer "Who slept?" "Where?" --model MODEL --top 3 < story.txt
    """
    page = requested_page(view, out)
    text = given_text(context, is_text)
    from flaxattn.pipeline.task_predictions import answer_question
    from flaxattn.pretrained.from_pretrained import from_pretrained

    loaded = from_pretrained(model)
    message = cost(len(questions), loaded.name, "one forward pass over all windows of the context")
    with progress("answering", len(questions), message) as advance:
        several = answer_question(
            loaded,
            questions,
            [text] * len(questions),
            top,
            null_answer=null_answer,
            max_answer_tokens=max_answer_tokens,
            max_length=max_length,
            stride=stride,
        )
        answers = cast("list[list[Answer]]", several)
        advance(len(questions))
    for question, some in zip(questions, answers, strict=True):
        typer.echo(_as_json(question, some) if as_json else _as_text(question, some))
    if page is not None:
        window = slice(*answers[0][0].window) if answers[0] else slice(None)
        write_text_page(loaded, page, questions[0], text[window], truncate=True)


def _as_json(question: str, answers: Sequence["Answer"]) -> str:
    fields = [one._asdict() for one in answers]
    return json.dumps({"question": question, "answers": fields}, ensure_ascii=False)


def _as_text(question: str, answers: Sequence["Answer"]) -> str:
    rows = [
        f"  {one.score:.4f}  {f'{one.start}-{one.end}':<9}  "
        f"{printable(one.answer) if one.answer else '(no answer)'}"
        for one in answers
    ]
    return "\n".join([printable(question), *rows])
