# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From parallel text to a model that translates, on copying and reversing a few letters."""

import json
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

import flaxattn as fa
from flaxattn.cli import main
from flaxattn.errors import InputError, UnavailableError
from flaxattn.measures.translation_quality import bleu
from flaxattn.models.seq2seq_config import Seq2SeqConfig
from flaxattn.pretrained.pretrained_seq2seq import translate
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_bpe
from flaxattn.train import loop
from flaxattn.train.recipe import TranslationRecipe
from flaxattn.train.report import read_metrics
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import build
from flaxattn.train.translation import batch_totals, build_module, loss_function, train_translation
from flaxattn.train.translation_data import TranslationBatch, Vocabularies

SETTINGS: dict[str, Any] = {
    "steps": 160,
    "evaluate_every": 80,
    "checkpoint_every": 80,
    "keep_checkpoints": 4,
    "vocab_size": 60,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_length": 8,
    "buckets": [8],
    "batch_tokens": 512,
    "max_position_embeddings": 16,
    "dropout": 0.0,
    "schedule": "inverse-sqrt",
    "learning_rate": 1e-2,
    "warmup_steps": 30,
    "bleu_sentences": 12,
    "devices": 1,
    "log_every": 40,
    "log_seconds": 1000,
    "on_error": "quarantine",
}


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """A small model: compiling costs more than running what is compiled, so it is done once."""
    compile_update, compiled = loop.compile_update, {}

    def shared(task: loop.Task, recipe: TranslationRecipe, *layout: Any) -> loop.Update:
        if recipe not in compiled:
            compiled[recipe] = compile_update(task, recipe, *layout)
        return compiled[recipe]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "compile_update", shared)
        yield


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    pick = random.Random(seed)
    found = []
    for number in range(count):
        letters = pick.choices("abcd", k=pick.randint(2, 4))
        task = ("copy", "turn")[number % 2]
        found.append((" ".join([task, *letters]), " ".join(letters[:: (1, -1)[number % 2]])))
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two text files, the second of which has an empty line; a dev set as JSONL."""
    folder = tmp_path_factory.mktemp("data")
    pairs = sentences(600, 1)
    (folder / "train.de").write_text("".join(f"{a}\n" for a, _ in pairs))
    wrong = [b if n != 100 else "" for n, (_, b) in enumerate(pairs)]
    (folder / "train.en").write_text("".join(f"{b}\n" for b in wrong))
    rows = [{"translation": {"de": a, "en": b}} for a, b in sentences(40, 2)]
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as a person types it."""
    out = tmp_path_factory.mktemp("translation") / "run"
    settings = [word for item in SETTINGS.items() for word in ("--set", "=".join(map(str, item)))]
    files = ["--data", str(data / "train.de"), str(data / "train.en")]
    dev = ["--dev", str(data / "dev.jsonl"), "--source-lang", "de", "--target-lang", "en"]
    assert main(["train", "translation", *files, *dev, "--out", str(out), *settings]) == 0
    return out


@pytest.fixture(scope="module")
def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


@pytest.fixture(scope="module")
def model(run: Path) -> fa.Pretrained:
    return fa.from_pretrained(run / "model")


@pytest.mark.slow
def test_it_learns_and_says_what_it_did(run: Path, summary: dict[str, Any]) -> None:
    rows = [row for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "heldout"]
    assert [row["step"] for row in rows] == [0, 80, 160]
    assert set(rows[0]) == {
        *("step", "kind", "loss", "nll", "accuracy", "perplexity", "bleu"),
    }
    assert rows[0]["accuracy"] < 0.5 < 0.8 < rows[-1]["accuracy"]
    assert rows[-1]["bleu"] > 60 > rows[0]["bleu"]
    for row in rows:
        assert row["perplexity"] == pytest.approx(np.exp(row["nll"]))
        assert row["loss"] > row["nll"] or row["nll"] > 0.5  # smoothing keeps a good one from 0
    assert summary["best"]["value"] == max(row["bleu"] for row in rows[1:])
    best = next(row for row in rows if row["step"] == summary["best"]["step"])
    assert summary["result"] == {k: v for k, v in best.items() if k not in ("step", "kind")}
    assert (summary["pairs"], summary["dev_pairs"]) == (599, 40)
    assert summary["rows"] == {"rows": 640, "kept": 639, "bad": {"empty": 1}}
    assert len((run / "errors.jsonl").read_text().splitlines()) == 1
    assert summary["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert all((run / name).is_file() for name in ("curves.png", "model/README.md", "recipe.yaml"))


@pytest.mark.slow
def test_the_model_translates(model: fa.Pretrained, summary: dict[str, Any]) -> None:
    pairs = sentences(40, 2)[: SETTINGS["bleu_sentences"]]
    translations = translate(model, [source for source, _ in pairs], batch=12)
    found = bleu([one.texts[0] for one in translations], [target for _, target in pairs])
    assert found.value == pytest.approx(summary["result"]["bleu"])
    assert found.signature == summary["bleu_signature"]


@pytest.mark.slow
def test_the_teacher_forced_metrics_are_those_of_the_whole_dev_set(
    model: fa.Pretrained, summary: dict[str, Any]
) -> None:
    sources, targets = zip(*sentences(40, 2), strict=True)
    source, target = model.tokenizer.encode(sources), model.tokenizer.encode(targets)
    out = model(source.input_ids, source.attention_mask, labels=target.input_ids)
    logits, real = np.asarray(out.logits, np.float64), target.attention_mask == 1
    scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(scores, target.input_ids[..., None], -1)[..., 0]
    hits = scores.argmax(-1) == target.input_ids
    assert summary["result"]["nll"] == pytest.approx(-picked[real].mean(), rel=1e-4)
    assert summary["result"]["accuracy"] == pytest.approx(hits[real].mean(), abs=1e-6)


@pytest.mark.slow
def test_the_directory_is_a_marian_model(run: Path, model: fa.Pretrained) -> None:
    settings = json.loads((run / "model" / "config.json").read_text())
    assert settings["model_type"] == "marian"
    assert settings["architectures"] == ["MarianMTModel"]
    assert (settings["pad_token_id"], settings["eos_token_id"]) == (0, 1)
    assert settings["decoder_start_token_id"] == 0
    assert isinstance(model.config, Seq2SeqConfig)
    assert model.config.encoder_layers == 1
    card = (run / "model" / "README.md").read_text()
    assert "A transformer that translates de to en" in card
    assert "bleu_signature" in card


@pytest.mark.parity
def test_torch_opens_the_model_and_translates_alike(run: Path, model: fa.Pretrained) -> None:
    torch = pytest.importorskip("torch")
    import transformers

    theirs = transformers.MarianMTModel.from_pretrained(run / "model").eval()
    encoded = model.tokenizer.encode([source for source, _ in sentences(20, 5)])
    source = {name: getattr(encoded, name) for name in ("input_ids", "attention_mask")}
    labels = model.tokenizer.encode([target for _, target in sentences(20, 5)]).input_ids
    with torch.no_grad():
        given = {name: torch.from_numpy(array).long() for name, array in source.items()}
        logits = theirs(**given, labels=torch.from_numpy(labels).long()).logits.numpy()
    np.testing.assert_allclose(model(**source, labels=labels).logits, logits, atol=5e-4)


def tensors(run: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(run / "model" / "model.safetensors")


@pytest.mark.slow
def test_a_stopped_run_continues_as_if_nothing_had_happened(
    run: Path, data: Path, summary: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000160")
    shutil.rmtree(tmp_path / "run" / "model")
    recipe = build(TranslationRecipe, {**SETTINGS, "source": "de", "target": "en"})
    files = [data / "train.de", data / "train.en"]
    again = train_translation(files, RunFolder(tmp_path / "run"), recipe, [data / "dev.jsonl"])
    for name in ("metrics.jsonl", "model/tokenizer.json"):
        assert (tmp_path / "run" / name).read_bytes() == (run / name).read_bytes(), name
    for name, array in tensors(run).items():
        np.testing.assert_array_equal(tensors(tmp_path / "run")[name], array)
    assert again["result"] == summary["result"]


@pytest.mark.slow
def test_pairs_may_be_held_out_and_evaluations_averaged(data: Path, tmp_path: Path) -> None:
    """And the model may be recurrent, with a vocabulary of each language."""
    shape = dict.fromkeys(("embedding_size", "hidden_size", "attention_size", "readout_size"), 8)
    changes = {"steps": 4, "evaluate_every": 2, "average_checkpoints": 2, "heldout_pairs": 20}
    changes |= {**shape, "model_type": "rnn", "shared_vocabulary": False}
    recipe = build(TranslationRecipe, {**SETTINGS, **changes, "bleu_sentences": 0, "watch": "loss"})
    files = [data / "train.de", data / "train.en"]
    done = train_translation(files, RunFolder(tmp_path), recipe)
    assert done["pairs"] + done["dev_pairs"] == 599
    assert 20 <= done["dev_pairs"] < 300
    assert "bleu" not in done["result"]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000002",
        "step-00000004",
    ]
    model = fa.from_pretrained(tmp_path / "model")
    assert model.config.architectures == ("RnnLM",)
    for name, reader in (("source", model.tokenizer), ("target", model.target_tokenizer)):
        own = Tokenizer.from_dir(tmp_path / "vocabulary" / name)
        assert reader.backend.to_str() == own.backend.to_str()
    assert model.tokenizer.vocab_size > model.target_tokenizer.vocab_size
    assert "translates" in (tmp_path / "model" / "README.md").read_text()


def vocabularies(shared: bool) -> Vocabularies:
    one = train_bpe(["a b c d"], 12)
    return Vocabularies(one) if shared else Vocabularies(one, train_bpe(["x y z w v u"], 20))


@pytest.mark.parametrize("attention", [True, False])
def test_a_recurrent_model_attends_or_not(attention: bool) -> None:
    changes = {"model_type": "rnn", "attention": attention, "shared_vocabulary": False}
    recipe = build(TranslationRecipe, {**SETTINGS, **changes})
    module = build_module(recipe, vocabularies(False))
    assert module.config.attention == attention
    params = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 3), np.int32))["params"]
    assert ("cross_attention" in params["decoder"]) == attention


@pytest.mark.parametrize("shared", [True, False])
def test_the_model_is_the_one_of_the_recipe(shared: bool) -> None:
    recipe = build(TranslationRecipe, {**SETTINGS, "shared_vocabulary": shared, "d_model": 64})
    both = vocabularies(shared)
    config = build_module(recipe, both).config
    assert config.share_encoder_decoder_embeddings == shared
    assert (config.vocab_size, config.target_size) == (
        both.source.vocab_size,
        both.writer.vocab_size,
    )
    assert config.init_std == 64**-0.5
    assert (config.d_model, config.encoder_layers, config.dropout) == (64, 1, 0.0)
    assert config.kind == "marian"


@pytest.mark.slow
def test_the_loss_looks_at_no_padding_and_at_no_later_token(model: fa.Pretrained) -> None:
    random_ = np.random.default_rng(0)
    ids = random_.integers(3, 12, (2, 6))
    mask = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]])
    batch = TranslationBatch(ids * mask, mask, ids * mask, mask.astype(np.float32))
    loss = jax.jit(loss_function(model.module, 0.1), static_argnums=2)

    def value(batch: TranslationBatch) -> float:
        return float(loss(model.params, batch, None, batch_totals(batch))[0])

    wider = TranslationBatch(*(np.pad(array, ((0, 0), (0, 4))) for array in batch))
    assert value(wider) == pytest.approx(value(batch), rel=1e-5)
    other = batch._replace(labels=np.where(mask == 0, 7, batch.labels))
    assert value(other) == value(batch)


def test_words_of_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path
) -> None:
    assert main(["train", "translation", "--print-config", "--set", "steps=3"]) == 0
    assert "label_smoothing: 0.1" in capsys.readouterr().out
    assert main(["train", "translation", "--out", str(tmp_path / "x")]) == 2
    assert "--data" in capsys.readouterr().err
    short = tmp_path / "short.en"
    short.write_text("one\n")
    words = ["train", "translation", "--data", str(data / "train.de"), str(short)]
    assert main([*words, "--out", str(tmp_path / "y")]) == 2
    printed = capsys.readouterr().err
    assert f"train.de has 600 lines, {short} has 1" in printed
    assert len(printed.splitlines()) == 3


def test_nothing_is_left_of_the_text(tmp_path: Path) -> None:
    pairs = sentences(20, 1)
    (tmp_path / "a").write_text("".join(f"{a}\n" for a, _ in pairs))
    (tmp_path / "b").write_text("".join(f"{' '.join('abcdefgh')}\n" for _ in pairs))
    recipe = build(TranslationRecipe, {**SETTINGS, "on_error": "skip"})
    with pytest.raises(InputError) as error:
        train_translation([tmp_path / "a", tmp_path / "b"], RunFolder(tmp_path / "r"), recipe)
    assert str(error.value).splitlines() == [
        "no pair to learn from is left",
        "20 were read, problems: {'over-long': 20}",
        "give more pairs, or raise max_length",
    ]


@pytest.mark.slow
def test_the_vocabulary_of_a_run_opens(run: Path) -> None:
    own = Tokenizer.from_dir(run / "vocabulary" / "shared")
    assert own.ids(["copy a b"]) == fa.from_pretrained(run / "model").tokenizer.ids(["copy a b"])


def test_a_missing_sacrebleu_is_reported_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    recipe = build(TranslationRecipe, SETTINGS)
    with pytest.raises(UnavailableError, match="sacrebleu"):
        train_translation([tmp_path / "none.tsv"], RunFolder(tmp_path / "run"), recipe)
