# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every command on every built-in model succeeds, or refuses in at most three plain lines.

So it does on small random models with tokenizers of their kind: a RoBERTa, an ALBERT, a Gemma 3,
a T5, the encoder of a T5 and a BERT that answers questions.
None of them loads transformers or torch.
"""

import dataclasses
import io
import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import report_cases
from small_decoders import write_decoder
from small_encoders import byte_level, unigram, write_encoder
from small_models import with_nan

import flaxattn as fa
from flaxattn import cli

MODELS = ("tiny-bert", "tiny-gpt2", "tiny-dates")
ENCODERS = ("small-roberta", "small-albert")  # directories beside the inputs
DECODER = "small-gemma"
T5, T5_ENCODER = "small-t5", "small-t5-encoder"
READER = "small-reader"  # answers questions
SMALL = (*ENCODERS, DECODER, T5, T5_ENCODER, READER)
# Digits are tokens of most models; [MASK] is text to all but BERT.
PAIRS = (
    "clean,corrupted,answer,wrong\n1 [MASK] 3 .,2 [MASK] 3 .,1,2\n2 [MASK] 4 .,1 [MASK] 4 .,2,1\n"
)
# Words of each command; {m} is the model, {s} a store of it, {r}-1 and {r}-2 are reports on it, and
# [] what goes to standard input.
COMMANDS = {
    "view text": "view 12.07.2003 --view all --model {m} --out page.html",
    "view pair": "view 12.07.2003 2003-07-12 --model {m} --out page.html",
    "view stdin": "view - --model {m} --out page.html",
    "view store": "view {s} --out page.html",
    "extract": "extract two.txt --model {m} --out again",
    "store info": "store info {s}",
    "store verify": "store verify {s}",
    "store export": "store export {s} --format npz --out exported",
    "search build": "search build two.txt --layers 1 --model {m} --out index",
    "generate": "generate 12.07 --max-new-tokens 3 --model {m}",
    "translate": "translate dates.txt --model {m}",
    "fill-mask": "fill-mask --file masks.txt --model {m}",
    "classify": "classify 12.07.2003 --model {m}",
    "answer": "answer When? --context 12.07.2003 --model {m}",
    "demo": "demo --model {m} --out demo",
    "stats": "stats trees.conllu --limit 2 --model {m} --out report",
    "stats store": "stats {s} --limit 2 --out report",
    "roles": "roles trees.conllu --limit 2 --drawings 1 --repeats 2 --model {m} --out report",
    "roles store": "roles {s} --limit 2 --out report",
    "probe": "probe trees.conllu --model {m} --out report",
    "probe states": "probe trees.conllu --train other.conllu --states --model {m} --out report",
    "probe pronouns": "probe gap.tsv --pronouns gap --model {m} --out report",
    "compare": "compare {m} {m} trees.txt --limit 2 --out report",
    "ablate": "ablate trees.txt --limit 1 --measure importance --model {m} --out report",
    "patch": "patch pairs.csv --controls 2 --model {m} --out report",
    "faithfulness": (
        "faithfulness trees.txt --limit 1 --kinds attention --steps 2 --model {m} --out report"
    ),
    "weights": "weights trees.txt --limit 1 --kinds attention --model {m} --out report",
    "heads": "heads {r}-1 {r}-2 --draws 9 --out report",
    "circuits": "circuits --model {m} --out report",
    "lens": "lens trees.txt --limit 2 --model {m} --out lens.csv --figure lens.png",
    "doctor": "doctor",
}
REFUSED = {
    ("view pair", "tiny-gpt2"),
    ("search build", "tiny-dates"),
    ("generate", "tiny-bert"),
    ("generate", "tiny-dates"),
    ("translate", "tiny-bert"),
    ("translate", "tiny-gpt2"),
    ("fill-mask", "tiny-gpt2"),
    ("fill-mask", "tiny-dates"),
    ("probe", "tiny-gpt2"),
    ("probe", "tiny-dates"),
    ("probe pronouns", "tiny-gpt2"),
    ("probe pronouns", "tiny-dates"),
    ("compare", "tiny-dates"),
    ("ablate", "tiny-dates"),
    *((name, model) for model in (*ENCODERS, READER) for name in ("generate", "translate")),
    *((name, DECODER) for name in ("view pair", "translate", "probe", "probe pronouns")),
    *((name, T5) for name in ("search build", "generate", "compare")),
    *((name, T5_ENCODER) for name in ("view pair", "generate", "translate")),
    *((n, model) for model in (T5, T5_ENCODER) for n in ("probe", "probe pronouns", "ablate")),
    *(("fill-mask", model) for model in ("small-roberta", DECODER, T5, T5_ENCODER, READER)),
    *(("classify", model) for model in (*MODELS, *SMALL)),
    *(("answer", model) for model in (*MODELS, *SMALL) if model != READER),
    *((name, READER) for name in ("ablate", "faithfulness", "lens")),
    ("lens", T5_ENCODER),
    *(
        ("patch", model) for model in (*ENCODERS, READER, T5, T5_ENCODER)
    ),  # no [MASK], two-token digits
    ("faithfulness", T5_ENCODER),
    ("heads", T5),  # which has too few heads
}
# Other sentences with trees than those of the inputs.
OTHER = "".join(
    f"1\t{a}\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\t{b}\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
    for a, b in (("Cats", "sleep"), ("Dogs", "run"), ("Birds", "sing"), ("Trees", "grow"))
)
# Commands that extract, or read what was extracted before: in float16.
EXTRACTED = [name for name, words in COMMANDS.items() if "{s}" in words]
EXTRACTED += ["extract", "search build"]
# Commands that run a model; those below have an option to continue with NaN.
RUNS = [name for name, words in COMMANDS.items() if "{m}" in words]
ALLOWING = ("view", "extract", "search", "stats", "roles", "probe", "compare", "ablate")
ALLOWING += ("circuits", "lens")
# Commands that take seconds, and other forms of a command: with one model in `make test`.
VARIANTS = ("view pair", "view stdin", "view store", "stats store", "roles store")
VARIANTS += ("probe states", "probe pronouns")
ONCE = dict.fromkeys(VARIANTS, "tiny-bert")
ONCE |= dict.fromkeys(("demo", "stats", "ablate"), "tiny-bert")
ONCE |= dict.fromkeys(("circuits", "heads", "faithfulness", "patch"), "tiny-gpt2")


@pytest.fixture(scope="module")
def folder(t5: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    report_cases.write_inputs(folder)
    dates = "".join(f"{date}\n" for date, _ in report_cases.DATES)
    (folder / "dates.txt").write_text(dates, encoding="utf-8")
    (folder / "pairs.csv").write_text(PAIRS, encoding="utf-8")
    (folder / "other.conllu").write_text(OTHER, encoding="utf-8")
    texts = (folder / "trees.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "two.txt").write_text("".join(sorted(texts, key=len)[:2]), encoding="utf-8")
    (folder / "masks.txt").write_text("12.07 [MASK]\n[MASK] 2003", encoding="utf-8")
    for model, tokenizer in zip(ENCODERS, (byte_level(), unigram()), strict=True):
        shape = {"model_type": model.removeprefix("small-"), "max_position_embeddings": 512}
        shape["pad_token_id"] = tokenizer.pad_id
        write_encoder(folder / model, "ForMaskedLM", tokenizer, **shape)
    write_encoder(folder / READER, "ForQuestionAnswering", unigram(), max_position_embeddings=512)
    write_decoder(folder / DECODER)
    config = dataclasses.replace(t5.config, n_positions=512)
    long = dataclasses.replace(t5, config=config, module=t5.module.clone(config=config))
    long.save_pretrained(folder / T5)
    fa.from_pretrained(folder / T5, head="T5EncoderModel").save_pretrained(folder / T5_ENCODER)
    return folder


def cases(names: Iterable[str] = COMMANDS, models: Iterable[str] = MODELS) -> list:
    def marks(name: str, model: str) -> list[pytest.MarkDecorator]:
        slow = ONCE.get(name, model) != model
        return [pytest.mark.slow] * slow + [pytest.mark.float16] * (name in EXTRACTED)

    return [
        pytest.param(name, model, marks=marks(name, model)) for model in models for name in names
    ]


@pytest.fixture(scope="module")
def broken(folder: Path) -> Callable[[str], Path]:
    """The directory of a built-in model with NaN in a row of the query weights of layer 1."""

    def made(model: str) -> Path:
        path = folder / f"nan-{model}"
        if not path.exists():
            with_nan(fa.from_pretrained(model)).save_pretrained(path)
        return path

    return made


def words_of(name: str, tmp_path: Path, **names: Any) -> list[str]:
    """What is typed for a command; what it writes goes to a fresh folder."""
    words = COMMANDS[name].format(**names).split()
    if "--out" in words:
        place = words.index("--out") + 1
        words[place] = str(tmp_path / words[place])
    return words


def give_dates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (folder / "dates.txt").read_text(encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.few("tiny")
@pytest.mark.parametrize(("name", "model"), cases(models=(*MODELS, *SMALL)))
def test_it_succeeds_or_is_refused(
    name: str,
    model: str,
    folder: Path,
    tmp_path: Path,
    typed: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = folder / f"store-{model}"
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "transformers", None)  # so that importing it fails
    loaded = set(sys.modules)
    if "{s}" in COMMANDS[name] and not store.exists():
        assert cli.main(["extract", "two.txt", "--model", model, "--out", str(store)]) == 0
    reports = folder / f"report-{model}"
    for seed in "12" if "{r}" in COMMANDS[name] else "":
        made = ("circuits", "--model", model, "--seed", seed, "--out", f"{reports}-{seed}")
        assert typed(*made)[0] == 0
    words = words_of(name, tmp_path, m=model, s=store, r=reports)
    if "-" in words:
        give_dates(folder, monkeypatch)
    code, out, err = typed(*words)
    assert "torch" not in sys.modules.keys() - loaded
    if (name, model) in REFUSED:
        assert code == 2 and not out
        assert err.startswith("error: ") and len(err.strip().splitlines()) <= 3
    else:
        assert code == 0, err
        assert "Traceback" not in err


@pytest.mark.few("view text-tiny-bert", "generate-tiny-gpt2", "stats-tiny-bert")
@pytest.mark.parametrize(("name", "model"), cases(RUNS))
def test_a_model_with_nan_is_refused_by_its_layer(
    name: str,
    model: str,
    folder: Path,
    tmp_path: Path,
    broken: Callable[[str], Path],
    typed: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    give_dates(folder, monkeypatch)
    words = words_of(name, tmp_path, m=broken(model))
    code, _, err = typed(*words)
    message = err[err.index("error: ") :].strip()
    assert code in (1, 2) and len(message.splitlines()) <= 3
    if (name, model) not in REFUSED:
        assert (
            "layer 1" in message
            and f"nan-{model}" in message
            and "kernel of layer 1 holds" in message
        )
        assert ("--allow-nonfinite" in message) == (words[0] in ALLOWING)
        assert not list(tmp_path.rglob("*.html")) and not list(tmp_path.rglob("heads.parquet"))


@pytest.mark.few("view text-tiny-bert", "stats-tiny-bert")
@pytest.mark.parametrize(
    ("name", "model"), cases([name for name in RUNS if name.split()[0] in ALLOWING])
)
def test_a_model_with_nan_runs_where_that_is_allowed(
    name: str,
    model: str,
    folder: Path,
    tmp_path: Path,
    broken: Callable[[str], Path],
    typed: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if (name, model) in REFUSED:
        return  # for another reason, as above
    monkeypatch.chdir(folder)
    give_dates(folder, monkeypatch)
    code, _, err = typed(*words_of(name, tmp_path, m=broken(model)), "--allow-nonfinite")
    assert code == 0, err
    assert "Traceback" not in err
    for file in tmp_path.rglob("*.json"):
        json.loads(file.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    for file in tmp_path.rglob("heads.parquet"):
        check_blank(pq.read_table(file).to_pylist())


def check_blank(rows: list[dict[str, Any]]) -> None:
    """Heads of the broken layer have no number; no cell is NaN or infinite."""
    numbers = ("mean", "low", "high", "sd", "accuracy", "ablation", "importance", "divergence")
    for row in rows:
        values = [value for value in row.values() if isinstance(value, float)]
        assert all(map(math.isfinite, values)), row
        if row.get("layer") == 1:
            assert not any(row.get(name) for name in numbers), row
