# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn translate` and `flaxattn evaluate` as a person types them, on a model that guesses."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sacrebleu

import flaxattn as fa
from flaxattn import cli
from flaxattn.errors import InputError
from flaxattn.measures.word_alignment import pharaoh, word_alignment
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.models.seq2seq_config import Seq2SeqConfig
from flaxattn.pretrained import model_directory
from flaxattn.pretrained.pretrained_seq2seq import generate_targets, translate
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_bpe
from flaxattn.trace.tensor_file import accept_files

LINES = ["a dog runs", "", "two old men sit here now", "a", "b c d e f g h a b c", "red"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, loud enough that every source has another translation."""
    tokenizer = train_bpe([" ".join(LINES)] * 3, 40, 24)
    config = Seq2SeqConfig.tiny(
        vocab_size=tokenizer.vocab_size,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=24,
    )
    module = Seq2SeqLM(config)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 4), jnp.int32))["params"]
    noise = np.random.default_rng(19)
    params = jax.tree.map(lambda x: noise.standard_normal(x.shape, np.float32), shapes)
    target = tmp_path_factory.mktemp("model")
    model_directory.save(target, module, params, tokenizer=tokenizer)
    return target


@pytest.fixture(scope="module")
def model(folder: Path) -> fa.Pretrained:
    return fa.from_pretrained(folder)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def typed(*words: Any, stdin: bytes | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return typed


def filled(texts: list[str]) -> list[str]:
    return [text for text in texts if text]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.mark.slow
def test_lines_come_out_as_they_went_in(
    run: Run, folder: Path, model: fa.Pretrained, source: Path, tmp_path: Path
) -> None:
    generated = iter(model.generate(filled(LINES), max_new_tokens=6))
    expected = [next(generated) if text else "" for text in LINES]
    assert len(set(expected)) > 4
    words = ["--model", folder, "--num-beams", 1, "--max-length", 6, "--batch-size", 2]
    code, out, err = run("translate", source, *words)
    assert (code, out.splitlines()) == (0, expected)
    assert f"{source}, line 2: empty, so its translation is empty" in err
    assert run("translate", *words, stdin=source.read_bytes())[1] == out
    assert run("translate", source, source, *words)[1] == 2 * out
    crlf = source.read_bytes().replace(b"\n", b"\r\n").removesuffix(b"\r\n")
    assert run("translate", *words, stdin=crlf)[1] == out
    code, printed, _ = run("translate", source, *words, "-o", tmp_path / "out.txt")
    assert (code, printed, (tmp_path / "out.txt").read_text()) == (0, "", out)


@pytest.mark.slow
def test_the_best_of_a_beam_with_their_scores(
    run: Run, folder: Path, model: fa.Pretrained, source: Path
) -> None:
    settings = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.6}
    words = ["--model", folder, "--num-beams", 3, "--n-best", 2, "--length-penalty", 0.6]
    code, out, _ = run("translate", source, *words, "--max-length", 6)
    assert code == 0
    rows = [line.split(" ||| ") for line in out.splitlines()]
    assert [row[0] for row in rows] == [str(n) for n in range(len(LINES)) for _ in (1, 2)]
    assert [row[1:] for row in rows[2:4]] == [["", "0.0000"]] * 2
    ids = model.tokenizer.encode(filled(LINES))
    given = {"input_ids": ids.input_ids, "attention_mask": ids.attention_mask}
    generated, scores = model.generate(**given, scores=True, max_new_tokens=6, **settings)
    del rows[2:4]
    assert [row[1] for row in rows] == [model.tokenizer.decode(one) for one in generated]
    assert [float(row[2]) for row in rows] == pytest.approx(scores.tolist(), abs=2e-4)
    assert all(float(rows[n][2]) >= float(rows[n + 1][2]) for n in range(0, len(rows), 2))


@pytest.mark.slow
def test_a_score_is_the_log_probability_of_what_was_written(model: fa.Pretrained) -> None:
    rows = [ids for ids in model.tokenizer.encode("a dog runs").input_ids]
    ((best,),) = generate_targets(model, rows, batch=2, max_new_tokens=6)
    logits = model(rows[0][None], decoder_input_ids=best.ids[None, :-1]).logits
    logs = np.asarray(jax.nn.log_softmax(logits[0]))
    written = best.ids[1:]
    assert best.score == pytest.approx(logs[np.arange(len(written)), written].sum(), abs=1e-4)


@pytest.mark.slow
def test_alignments_are_those_of_the_trace(
    run: Run, folder: Path, model: fa.Pretrained, source: Path
) -> None:
    words = ["--model", folder, "--num-beams", 2, "--max-length", 6, "--align"]
    code, out, _ = run("translate", source, *words)
    assert code == 0
    generated, trace = model.generate(filled(LINES), trace=True, num_beams=2, max_new_tokens=6)
    pairs = [pharaoh(one) for one in word_alignment(trace)]
    assert any(pairs)
    expected = [f"{text}\t{links}" for text, links in zip(generated, pairs, strict=True)]
    expected.insert(1, "\t")
    assert out.split("\n")[:-1] == expected
    assert run("translate", source, *words, "--n-best", 2)[2].startswith(
        "error: --align is of the best translation"
    )


@pytest.mark.slow
def test_the_page_of_the_first_sentence(run: Run, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["--model", folder, "--max-length", 4, "--num-beams", 1, "--view", page]
    code, _, err = run("translate", *words, stdin=b"\na dog\nred\n")
    assert (code, f"wrote {page}" in err) == (0, True)
    assert '"cross"' in page.read_text()


@pytest.mark.parametrize(
    ("words", "data", "parts"),
    [
        (
            ["--num-beams", "0"],
            b"a\n",
            ["--num-beams is 0\nit must be at least 1; a beam of 1 writes"],
        ),
        (["--batch-size", "-1"], b"a\n", ["--batch-size is -1\nit must be at least 1"]),
        (
            ["--num-beams", "2", "--n-best", "3"],
            b"a\n",
            ["--n-best 3 needs as many hypotheses", "--num-beams is 2", "raise --num-beams"],
        ),
        (
            [],
            b"a\nb\n" + b"a " * 23 + b"a\n",
            [
                "standard input, line 3 has 25 tokens, this model reads at most 24",
                "received: a a a",
                "shorten it, or pass --truncate to cut it at the limit",
            ],
        ),
        (
            ["--align"],
            b"a\n\n" + b"a " * 23 + b"a\n",
            ["standard input, line 3 has 25 tokens, this model reads at most 24"],
        ),
        (
            [],
            b"a\nb\xff\n",
            ["standard input, line 2: byte 0xff at position 2 is not UTF-8", "iconv"],
        ),
        (["absent.txt"], b"", ["cannot read absent.txt", "No such file", "name a text file"]),
        (["--max-length", "99"], b"a\n", ["max_new_tokens is 99", "room for 23"]),
        (["--view", "x.html"], b"\n", ["every line is empty"]),
    ],
)
def test_bad_input(run: Run, folder: Path, words: list[str], data: bytes, parts: list[str]) -> None:
    code, out, err = run("translate", "--model", folder, *words, stdin=data)
    assert (code, out.strip()) == (2, "")
    message = err[err.index("error: ") :]
    assert all(part in message for part in parts), err
    assert len(message.splitlines()) <= 3


def test_what_a_tokenizer_refuses_is_reported_with_its_line(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Tokenizer.encode

    def refusing(self: Tokenizer, texts: Any, *others: Any, **options: Any) -> Any:
        for number, text in enumerate(texts):
            if text.startswith(">>"):
                raise InputError(f"text {number} begins with >>xx<<, an unknown language\nname one")
        return encode(self, texts, *others, **options)

    monkeypatch.setattr(Tokenizer, "encode", refusing)
    code, out, err = run("translate", "--model", folder, stdin=b"a\n\n>>xx<< red\n")
    assert (code, out) == (2, "")
    assert err.splitlines()[1:] == [
        "error: standard input, line 3 begins with >>xx<<, an unknown language",
        "received: >>xx<< red",
        "name one",
    ]


@pytest.mark.slow
def test_a_source_that_is_too_long_may_be_cut(run: Run, folder: Path, model: fa.Pretrained) -> None:
    words = [
        "--model",
        folder,
        "--truncate",
        "--num-beams",
        1,
        "--max-length",
        6,
        "--batch-size",
        2,
    ]
    code, out, _ = run("translate", *words, stdin=b"a " * 60 + b"\n")
    expected = model.generate(["a " * 60], truncate=True, max_new_tokens=6)
    assert (code, out.splitlines()) == (0, expected)


def test_models_that_do_not_translate(run: Run, folder: Path, tmp_path: Path) -> None:
    code, _, err = run("translate", "--model", "tiny-bert", stdin=b"a\n")
    assert code == 2
    assert "the model 'tiny-bert' does not translate: it is a BertForPreTraining" in err
    code, _, err = run("translate", stdin=b"a\n")
    assert (code, "--model" in err) == (2, True)
    shutil.copytree(folder, tmp_path / "other")
    train_bpe(["many more different words than before"] * 3, 60).save(tmp_path / "other")
    settings = json.loads((folder / "config.json").read_text()) | {"vocab_size": 60}
    settings["decoder_vocab_size"] = 60
    (tmp_path / "other" / "config.json").write_text(json.dumps(settings))
    accept_files(tmp_path / "other")
    code, _, err = run("translate", "--model", tmp_path / "other", stdin=b"a\n")
    assert code == 2
    assert "shape" in err
    shutil.copytree(folder, tmp_path / "mute")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "mute" / name).unlink()
    accept_files(tmp_path / "mute")
    code, _, err = run("translate", "--model", tmp_path / "mute", stdin=b"a\n")
    assert (code, "came without a tokenizer" in err) == (2, True)


@pytest.mark.slow
def test_the_order_of_sentences_changes_no_translation(model: fa.Pretrained) -> None:
    whole = translate(model, LINES, batch=2, max_new_tokens=6)
    turned = translate(model, LINES[::-1], batch=3, max_new_tokens=6)[::-1]
    assert [one.texts for one in whole] == [one.texts for one in turned]


@pytest.mark.slow
def test_evaluating_translations(run: Run, folder: Path, source: Path, tmp_path: Path) -> None:
    hypotheses, right = tmp_path / "hypotheses.txt", tmp_path / "right.txt"
    hypotheses.write_text("a dog runs now .\ntwo men sit here\n")
    right.write_text("a dog runs here .\ntwo old men sit here\n")
    code, out, _ = run("evaluate", "--hypothesis", hypotheses, "--reference", right)
    texts = [path.read_text().splitlines() for path in (hypotheses, right)]
    expected = sacrebleu.corpus_bleu(texts[0], [texts[1]])
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith(f"BLEU {expected.score:.2f}  nrefs:1|case:mixed|eff:no|tok:13a|")
    assert lines[1].startswith("chrF2 ")
    words = ["--lowercase", "--tokenize", "none", "-o", tmp_path / "scores.json"]
    assert run("evaluate", "--hypothesis", hypotheses, "--reference", right, *words)[0] == 0
    found = json.loads((tmp_path / "scores.json").read_text())
    assert "case:lc|eff:no|tok:none" in found["BLEU"]["signature"]
    settings = ["--model", folder, "--num-beams", 1, "--max-length", 6, "--batch-size", 2]
    own = tmp_path / "own.txt"
    assert run("translate", source, *settings, "-o", own)[0] == 0
    code, out, _ = run("evaluate", *settings, "--source", source, "--reference", own)
    assert (code, out.startswith("BLEU 100.00 ") or out.startswith("BLEU 0.00 ")) == (0, True)
    code, again, _ = run("evaluate", "--hypothesis", own, "--reference", own)
    assert out == again


@pytest.mark.slow
def test_evaluating_alignments(
    run: Run, folder: Path, model: fa.Pretrained, tmp_path: Path
) -> None:
    texts, targets = ["a dog runs", "two men"], ["red dog", "b c d"]
    gold, found = tmp_path / "gold", tmp_path / "found"
    gold.write_text("0-0 1-1 2?1\n0-0 1p1 1-2\n")
    found.write_text("0-0 2-1\n0-1\n")
    code, out, _ = run("evaluate", "--gold", gold, "--alignment", found)
    assert (code, out) == (0, f"AER {1 - (1 + 0 + 2 + 0) / (3 + 4):.4f}\n")
    source, reference = tmp_path / "source", tmp_path / "reference"
    source.write_text("\n".join(texts))
    reference.write_text("\n".join(targets))
    pairs = [word_alignment(model.trace(a, b))[0] for a, b in zip(texts, targets, strict=True)]
    found.write_text("".join(pharaoh(one) + "\n" for one in pairs))
    files = ["--model", folder, "--source", source, "--reference", reference]
    code, own, _ = run("evaluate", "--gold", gold, *files)
    assert (code, own) == run("evaluate", "--gold", gold, "--alignment", found)[:2]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "there is nothing to judge"),
        (["--reference", "x"], "there are no translations to judge"),
        (["--gold", "x"], "there are no alignments to judge"),
        (["--gold", "x", "--alignment", "bad"], "'0:1' is not a link of words"),
        (["--hypothesis", "x", "--reference", "two"], "1 translations and 2 references"),
        (["--task", "sst2"], "--data: it is missing"),
    ],
)
def test_wrong_use_of_evaluate(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("0-0\n")
    (tmp_path / "bad").write_text("0:1\n")
    (tmp_path / "two").write_text("a\nb\n")
    code, out, err = run("evaluate", *words)
    assert (code, out) == (2, "")
    assert part in err
    assert len(err.splitlines()) <= 3


@pytest.mark.slow
def test_both_explain_themselves(run: Run) -> None:
    for name in ("translate", "evaluate"):
        code, out, _ = run(name, "--help")
        assert code == 0
        assert len(out.splitlines()) < 75
    assert "--n-best" in run("translate", "--help")[1]
