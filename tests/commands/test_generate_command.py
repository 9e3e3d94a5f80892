# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn generate` as a person types it, on a model that knows one text by heart."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flaxattn as fa
from flaxattn import cli
from flaxattn.commands import generate
from flaxattn.views.payloads import neuron_payload

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, reciter: Any) -> Run:
    def typed(*words: Any, stdin: bytes | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        usual = {"--model": reciter.folder, "--max-new-tokens": 80}
        more = [part for one in usual.items() if one[0] not in words for part in one]
        code = cli.main(["generate", *(str(word) for word in (*words, *more))])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return typed


@pytest.mark.slow
def test_a_text_is_shown_while_it_is_written(
    run: Run, reciter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    say = generate._say
    monkeypatch.setattr(generate, "_say", lambda part: printed.append(part) or say(part))
    code, out, err = run("Plain")
    assert (code, err) == (0, "")
    assert out == f"{reciter.text}\n"
    assert printed == ["Plain", *reciter.text.removeprefix("Plain"), "\n"]


@pytest.mark.slow
def test_prompts_come_from_standard_input_and_texts_end_at_stop_strings(
    run: Run, reciter: Any
) -> None:
    first = reciter.text.split("\n\n")[0]
    for data in (b"Plain", b"Plain\n", b"Plain\r\n"):
        assert run("-", "--stop", r"\n\n", stdin=data) == (0, f"{first}\n", "")
    words = ["--stop", "nowhere", "--stop", "é"]
    assert run("Plain", *words) == (0, "Plain words; \n", "")
    assert run("-", "--stop", ";", stdin=b"Plai\n\n")[1] == "Plai\n words\n"


@pytest.mark.slow
def test_samples_are_distinguished_and_a_seed_repeats_them(
    run: Run, reciter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["Plain", "--max-new-tokens", 32, "--temperature", 1.3]
    model = fa.from_pretrained(reciter.folder)
    settings = {"do_sample": True, "temperature": 1.3, "max_new_tokens": 32}
    texts = model.generate("Plain", seed=7, num_return_sequences=3, **settings)
    code, out, err = run(*words, "--samples", 3, "--seed", 7, "--view")
    shown = "".join(f"--- {n} of 3 ---\n{text}\n" for n, text in enumerate(texts, 1))
    assert (code, out) == (0, shown)
    assert err.startswith(f"wrote {tmp_path / 'attention.html'} (")
    assert len(set(texts)) == 3
    assert run(*words, "--seed", 7)[:2] == (0, f"{texts[0]}\n")
    assert run(*words)[1] != f"{texts[0]}\n"
    assert run(*words)[1] == run(*words, "--seed", 0)[1]


@pytest.mark.slow
def test_the_page_has_every_level_and_what_was_predicted(
    run: Run, reciter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "a.html"
    words = ["Plain", "--max-new-tokens", 5, "-o", page]
    assert run(*words)[0] == 0
    model = fa.from_pretrained(reciter.folder)
    capture = fa.Capture(weights=True, query=True, key=True, value=True)
    requested = {"max_new_tokens": 5, "num_beams": 1, "trace": True, "predictions": 5}
    trace = model.generate("Plain", capture=capture, **requested)[1]
    expected = fa.head_view(fa.logit_contributions(model, trace)).html
    assert page.read_text(encoding="utf-8") == expected
    assert '"levels":["atlas","model","head","text","neuron"]' in expected
    assert '"predictions":{' in expected
    monkeypatch.setattr(neuron_payload, "VECTORS_BYTES", 100)
    code, _, err = run(*words)
    assert code == 0 and "no Neurons tab: query, key, value of the decoder would take" in err
    assert '"levels":["atlas","model","head","text"]' in page.read_text(encoding="utf-8")
    assert run(*words, "--num-beams", 2)[0] == 0
    assert '"predictions":{' in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_beams_are_cut_when_they_are_written(run: Run) -> None:
    words = ["Plain", "--max-new-tokens", 8, "--num-beams", 2, "--stop", ";"]
    assert run(*words) == (0, "Plain words\n", "")


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ([], {"num_beams": 1}),
        (["--seed", 3], {"do_sample": True, "seed": 3}),
        (["--top-k", 5], {"do_sample": True, "top_k": 5}),
        (["--top-p", 0.5, "--temperature", 2], {"top_p": 0.5, "temperature": 2.0}),
        (["--min-p", 0.1], {"do_sample": True, "min_p": 0.1}),
        (["--repetition-penalty", 1.2], {"repetition_penalty": 1.2, "num_beams": 1}),
        (["--stop", r"a\\n\t", "--stop", "b"], {"stop": ["a\\n\t", "b"]}),
        (["--max-new-tokens", 7], {"max_new_tokens": 7}),
    ],
)
def test_options_become_settings(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[Any], settings: dict[str, Any]
) -> None:
    requested: dict[str, Any] = {}

    def streaming(self: Any, text: str, **given: Any) -> list[str]:
        requested.update(given)
        return [text]

    monkeypatch.setattr(
        "flaxattn.pretrained.pretrained_decoder.PretrainedDecoder.stream", streaming
    )
    assert run("Plain", *words)[0] == 0
    assert settings.items() <= requested.items()
    assert ("do_sample" in requested) == bool(
        {"--seed", "--top-k", "--top-p", "--min-p"} & {*words}
    )


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_a_chat_is_a_list_of_messages(
    run: Run, monkeypatch: pytest.MonkeyPatch, system: str | None
) -> None:
    requested: list[Any] = []
    monkeypatch.setattr(
        "flaxattn.pretrained.pretrained_decoder.PretrainedDecoder.stream",
        lambda self, text, **given: requested.append(text) or ["Hi", "."],
    )
    more = [] if system is None else ["--system", system]
    assert run("Hello", "--chat", *more) == (0, "Hi.\n", "")
    before = [] if system is None else [{"role": "system", "content": system}]
    assert requested == [[*before, {"role": "user", "content": "Hello"}]]


@pytest.mark.slow
def test_the_page_of_what_was_read_and_written(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = run("Plain", "--stop", "é", "-o", page)
    assert (code, out) == (0, "Plain words; \n")
    assert err.startswith(f"wrote {page} (") and err.endswith("B)\n")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert r'"P","l","a","i","n"," ","w","o","r","d","s",";"," ","\u003c0xC3\u003e",' in text


@pytest.mark.parametrize(
    ("words", "data", "parts"),
    [
        ([""], None, ["prompt 0 is empty", "received ''", "give it at least one word, or '<|end"]),
        (["-"], b"\n", ["prompt 0 is empty"]),
        (["-"], b"a\n\xff", ["standard input, line 2: byte 0xff is not valid UTF-8"]),
        (["x" * 200], None, ["prompt 0 is too long: 200 tokens", "has room for 128", "shorten it"]),
        (["a", "--max-new-tokens", "500"], None, ["max_new_tokens is 500", "has room for 127"]),
        (["a", "--max-new-tokens", "0"], None, ["Invalid value for '--max-new-tokens'"]),
        (["a", "--samples", "0"], None, ["Invalid value for '--samples'"]),
        (["a", "--temperature", "0"], None, ["temperature must be above 0", "leave both out"]),
        (["a", "--chat"], None, ["has no chat template", "or give the prompt as one text"]),
        (["a", "--system", "b"], None, ["--system 'b' is a message of a chat", "add --chat"]),
        (["a", "--top-p", "1.5"], None, ["top_p in (0, 1], received 1.0 and 1.5"]),
        (["a", "--top-k", "-1"], None, ["top_k must be at least 0, received -1"]),
        (
            ["a", "--top-k", "4", "--num-beams", "2"],
            None,
            ["--top-k draws tokens, --num-beams 2 looks for the likeliest text\nleave out one"],
        ),
        (["a", "--samples", "2", "--num-beams", "2"], None, ["--samples draws tokens"]),
        (["a", "--stop", ""], None, ["stop string 0 is empty", "leave it out"]),
        ([], None, ["Missing argument 'prompt'"]),
        (["a", "--model", "no such model"], None, ["No model 'no such model' was found"]),
        (
            ["a", "--model", "tiny-bert"],
            None,
            [
                "the model 'tiny-bert' does not continue texts: it is a BertForPreTraining",
                "name a GPT-2, or use this one with flaxattn view",
            ],
        ),
        (["a", "--model", "tiny-dates"], None, ["use this one with flaxattn translate"]),
    ],
)
def test_what_cannot_be_used(
    run: Run, words: list[str], data: bytes | None, parts: list[str]
) -> None:
    code, out, err = run(*words, stdin=data)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert all(part in err for part in parts), err
    assert len(err.splitlines()) <= 3


def test_a_page_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    code, out, err = run("Plain", "--stop", "é", "-o", tmp_path / "absent" / "page.html")
    assert (code, out) == (2, ""), "it is refused before anything is generated"
    assert "Cannot write the page: " in err and "is in a folder that does not exist" in err


def test_interrupting_it_ends_the_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, text: str, **settings: Any) -> Iterator[str]:
        yield text
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "flaxattn.pretrained.pretrained_decoder.PretrainedDecoder.stream", interrupted
    )
    assert run("Plain") == (130, "Plain\n", "error: interrupted\n")


def test_it_explains_itself(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert len(out.splitlines()) < 60
    assert "tiny-gpt2" in out and "--num-beams" in out
