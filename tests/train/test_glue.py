# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning from files to a model that answers, on toy tasks that take seconds."""

import csv
import dataclasses
import json
import random
import re
from pathlib import Path
from typing import Any

import bert_checkpoint
import jax
import make_glue_golden
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.cli import main
from flaxattn.errors import CheckpointError, InputError
from flaxattn.pretrained import model_directory
from flaxattn.store.verify_store import verify
from flaxattn.trace import tensor_file
from flaxattn.train import glue, glue_model
from flaxattn.train.glue import evaluate
from flaxattn.train.glue_data import GlueBatch
from flaxattn.train.glue_tasks import TASKS
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.report import read_metrics
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import to_yaml

WORDS = "red cat runs home now while big dogs sleep under old trees".split()
RECIPE = GlueRecipe(
    task="sst2",
    steps=60,
    batch_size=16,
    learning_rate=2e-3,
    evaluate_every=20,
    max_length=16,
    buckets=(16,),
    seeds=(1, 2),
    predict_batch=32,
    devices=1,
    log_every=10,
    log_seconds=1000,
)


def sentence(pick: random.Random, label: int) -> str:
    words = pick.choices(WORDS, k=pick.randint(1, 4))
    words.insert(pick.randint(0, len(words)), ("bad", "good")[label])
    return " ".join(words)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SST-2 as the classic download has it; one word tells the label. One row is bad."""
    folder, pick = tmp_path_factory.mktemp("data"), random.Random(0)
    for part, count in (("train", 200), ("dev", 50)):
        rows = [(sentence(pick, i % 2), str(i % 2)) for i in range(count)]
        text = "sentence\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in rows)
        (folder / f"{part}.tsv").write_text(text + "no label\n" * (part == "train"))
    rows = [f"{i}\t{sentence(pick, i % 2)}\n" for i in range(20)]
    (folder / "test.tsv").write_text("index\tsentence\n" + "".join(rows))
    return folder


@pytest.fixture(scope="module")
def recipe(start: str) -> GlueRecipe:
    return dataclasses.replace(RECIPE, model=start, on_error="quarantine")


@pytest.fixture(scope="module")
def run(data: Path, recipe: GlueRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("glue") / "run"
    glue.finetune(data, RunFolder(out), recipe, trace_examples=3)
    return out


@pytest.fixture(scope="module")
def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


@pytest.mark.float16
def test_it_learns_and_says_what_it_did(run: Path, summary: dict[str, Any]) -> None:
    assert summary["metrics"]["accuracy"]["mean"] > 0.95
    assert summary["metrics"]["accuracy"]["deviation"] >= 0
    assert summary["seeds"] == [1, 2]
    runs = summary["runs"]
    best = max(runs, key=lambda one: one["accuracy"])
    assert summary["best_seed"] == best["seed"]
    assert summary["metrics"]["loss"]["mean"] == pytest.approx(
        np.mean([one["loss"] for one in runs])
    )
    assert summary["examples"] == {"train": 200, "dev": 50, "test": 20}
    assert summary["rows"] == {"rows": 271, "kept": 270, "bad": {"short-row": 1}}
    assert len((run / "errors.jsonl").read_text().splitlines()) == 1
    assert len(summary["data"]["train"]["train.tsv"]) == 64
    assert summary["settings"]["steps"] == 60
    assert summary["version"] == fa.__version__
    for seed in (1, 2):
        rows = read_metrics(run / f"seed-{seed}" / "metrics.jsonl")
        heldout = {row["step"]: row["score"] for row in rows if row["kind"] == "heldout"}
        assert list(heldout) == [0, 20, 40, 60]
        mine = next(one for one in runs if one["seed"] == seed)
        later = {step: score for step, score in heldout.items() if step}
        assert mine["score"] == max(later.values()) == heldout[mine["best_step"]]


@pytest.mark.slow
def test_the_model_is_a_hugging_face_directory(run: Path, data: Path) -> None:
    settings = json.loads((run / "model" / "config.json").read_text())
    assert settings["id2label"] == {"0": "negative", "1": "positive"}
    assert settings["architectures"] == ["BertForSequenceClassification"]
    model = fa.from_pretrained(run / "model")
    encoded = model.tokenizer.encode(["red good cat", "dogs sleep bad"])
    assert model(encoded.input_ids, encoded.attention_mask).logits.argmax(-1).tolist() == [1, 0]
    assert (run / "model" / "README.md").is_file()


@pytest.mark.parity
def test_torch_opens_the_model(run: Path) -> None:
    torch = pytest.importorskip("torch")
    import transformers

    theirs = transformers.BertForSequenceClassification.from_pretrained(run / "model").eval()
    model = fa.from_pretrained(run / "model")
    encoded = model.tokenizer.encode(["red good cat", "dogs sleep bad"])
    with torch.no_grad():
        logits = theirs(
            torch.from_numpy(encoded.input_ids).long(),
            torch.from_numpy(encoded.attention_mask).long(),
        ).logits
    ours = model(encoded.input_ids, encoded.attention_mask).logits
    np.testing.assert_allclose(ours, logits.numpy(), atol=2e-5)
    assert theirs.config.label2id == {"negative": 0, "positive": 1}


@pytest.mark.float16
def test_predictions_are_those_of_the_model(run: Path, data: Path) -> None:
    lines = (run / "predictions" / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    texts = [row.split("\t")[1] for row in (data / "test.tsv").read_text().splitlines()[1:]]
    found = [f"{i}\t{int('good' in text)}" for i, text in enumerate(texts)]
    assert np.mean([a == b for a, b in zip(lines[1:], found, strict=True)]) > 0.9


@pytest.mark.float16
def test_evaluate_repeats_the_dev_metrics(
    run: Path, data: Path, summary: dict[str, Any], recipe: GlueRecipe, tmp_path: Path
) -> None:
    fine = dataclasses.replace(recipe, model=str(run / "model"), on_error="fail")
    found = evaluate(data, fine, tmp_path / "m.json", tmp_path / "answers")
    best = next(one for one in summary["runs"] if one["seed"] == summary["best_seed"])
    assert found["metrics"]["dev"]["accuracy"] == best["accuracy"]
    assert found["metrics"]["dev"]["loss"] == pytest.approx(best["loss"], rel=1e-5)
    assert json.loads((tmp_path / "m.json").read_text()) == found
    answers = (tmp_path / "answers" / "SST-2.tsv").read_bytes()
    assert answers == (run / "predictions" / "SST-2.tsv").read_bytes()
    with pytest.raises(InputError, match="is not a classifier"):
        evaluate(data, recipe)


@pytest.mark.float16
def test_labels_in_another_order_are_put_right(
    run: Path, data: Path, recipe: GlueRecipe, tmp_path: Path
) -> None:
    model = fa.from_pretrained(run / "model")
    config = dataclasses.replace(model.config, labels=("positive", "negative"))
    head = jax.tree.map(lambda x: x[..., ::-1], model.params["classifier"])
    params = {**model.params, "classifier": head}
    model_directory.save(
        tmp_path, model.module.clone(config=config), params, tokenizer=model.tokenizer
    )
    turned, straight = (
        evaluate(data, dataclasses.replace(recipe, model=str(path), on_error="fail"))
        for path in (tmp_path, run / "model")
    )
    assert turned["metrics"] == straight["metrics"]


@pytest.mark.float16
def test_attention_before_and_after(run: Path, data: Path) -> None:
    before, after = (fa.open_store(run / "traces" / when) for when in ("before", "after"))
    lines = (data / "dev.tsv").read_text().splitlines()[1:4]
    assert [trace.texts[0][0] for trace in after] == [line.split("\t")[0] for line in lines]
    assert [trace.tokens for trace in before] == [trace.tokens for trace in after]
    assert len(after) == 3 and before[0].tokens[0][0] == "[CLS]"
    model = fa.from_pretrained(run / "model")
    for number in range(3):
        old, new = before.weights(number), after.weights(number)
        np.testing.assert_allclose(new.sum(-1), 1, atol=5e-3)
        assert np.abs(new - old).max() > 0.02
        live = model.trace(after[number].texts[0][0]).attentions[0]
        np.testing.assert_allclose(new[0], live[0], atol=1e-3)
    for store in (before, after):
        assert not verify(store.path).damage and store.complete


@pytest.mark.slow
def test_a_finished_run_is_not_run_again(run: Path, data: Path, recipe: GlueRecipe) -> None:
    path = run / "seed-1" / "metrics.jsonl"
    before, summary = path.read_bytes(), json.loads((run / "summary.json").read_text())
    again = glue.finetune(data, RunFolder(run), recipe, trace_examples=3)
    assert path.read_bytes() == before
    assert json.loads(json.dumps(again)) == summary
    assert len((run / "errors.jsonl").read_text().splitlines()) == 1
    changed = dataclasses.replace(recipe, learning_rate=1e-4)
    with pytest.raises(CheckpointError, match="learning_rate"):
        glue.finetune(data, RunFolder(run), changed)


@pytest.mark.float16
def test_the_head_is_drawn_by_seed_or_kept(start: str, run: Path, recipe: GlueRecipe) -> None:
    task = TASKS["mnli"]
    base = glue_model.load_base(task, recipe)
    one, two = (glue_model.initial_parameters(task, base, seed)["classifier"] for seed in (1, 2))
    assert one["kernel"].shape == (32, 3)
    assert np.abs(one["kernel"]).max() <= 0.04
    assert 0.012 < np.std(one["kernel"]) < 0.022
    assert not one["bias"].any()
    assert not np.array_equal(one["kernel"], two["kernel"])
    tuned = dataclasses.replace(recipe, model=str(run / "model"))
    kept = glue_model.initial_parameters(
        TASKS["sst2"], glue_model.load_base(TASKS["sst2"], tuned), 1
    )
    other = glue_model.initial_parameters(task, glue_model.load_base(task, tuned), 1)
    saved = fa.from_pretrained(run / "model").params
    np.testing.assert_array_equal(kept["classifier"]["kernel"], saved["classifier"]["kernel"])
    np.testing.assert_array_equal(other["classifier"]["kernel"], one["kernel"])
    np.testing.assert_array_equal(
        other["bert"]["pooler"]["dense"]["kernel"], saved["bert"]["pooler"]["dense"]["kernel"]
    )


@pytest.mark.slow
def test_gates_close_heads_that_the_task_does_not_need(
    run: Path, data: Path, recipe: GlueRecipe, tmp_path: Path
) -> None:
    """From a model that has learnt the task; what is saved lacks heads, and says the same."""
    settings = {"model": str(run / "model"), "gate_price": 0.1, "gate_speed": 50.0, "seeds": (1,)}
    gated = dataclasses.replace(recipe, **settings)
    summary = glue.finetune(data, RunFolder(tmp_path / "run"), gated)
    closed = summary["runs"][0]["closed_heads"]
    assert len(closed) == 1 and summary["metrics"]["accuracy"]["mean"] > 0.9
    model = fa.from_pretrained(tmp_path / "run" / "model")
    assert model.config.pruned_heads == ((closed[0][1],),)
    rows = read_metrics(tmp_path / "run" / "seed-1" / "metrics.jsonl")
    open_heads = [row["open_heads"] for row in rows if "open_heads" in row]
    assert open_heads[0] > 1.9 and open_heads[-1] < 1.2
    judged = evaluate(data, dataclasses.replace(recipe, model=str(tmp_path / "run" / "model")))
    found = judged["metrics"]["dev"]["accuracy"]
    assert found == pytest.approx(summary["metrics"]["accuracy"]["mean"])


@pytest.mark.slow
def test_regression_stops_early(recipe: GlueRecipe, tmp_path: Path) -> None:
    pick = random.Random(2)
    for part, count in (("train", 64), ("dev", 30)):
        with (tmp_path / f"stsb-en-{part}.csv").open("w", newline="") as file:
            for i in range(count):
                text = sentence(pick, i % 2)
                csv.writer(file).writerow([text, f'"{text}", he said', f"{5.0 * (i % 2):.1f}"])
    small = dataclasses.replace(
        recipe, task="stsb", seeds=(1,), steps=100, evaluate_every=20, patience=1, max_length=32,
        buckets=(32,),
    )  # fmt: skip
    summary = glue.finetune(tmp_path, RunFolder(tmp_path / "run"), small)
    assert summary["metrics"]["pearson"]["mean"] > 0.9
    assert summary["metrics"]["pearson"]["deviation"] is None
    rows = read_metrics(tmp_path / "run" / "seed-1" / "metrics.jsonl")
    heldout = [row["step"] for row in rows if row["kind"] == "heldout"]
    assert heldout[-1] == min(100, summary["runs"][0]["best_step"] + 20)
    settings = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert settings["problem_type"] == "regression"
    assert len(settings["id2label"]) == 1


@pytest.mark.slow
def test_three_labels_and_several_sets(recipe: GlueRecipe, tmp_path: Path) -> None:
    pick = random.Random(3)
    labels = TASKS["mnli"].labels
    header = "index\tsentence1\tsentence2\tgold_label\n"
    for part in ("train", "dev_matched", "dev_mismatched", "test_matched", "diagnostic"):
        lines = [
            f"{i}\t{sentence(pick, 0)}\t{sentence(pick, 1)}\t{labels[i % 3]}\n" for i in range(20)
        ]
        (tmp_path / f"{part}.tsv").write_text(header + "".join(lines))
    few = dataclasses.replace(
        recipe, task="mnli", seeds=(1,), steps=2, evaluate_every=2, predict_batch=13, max_length=10,
    )  # fmt: skip
    summary = glue.finetune(tmp_path, RunFolder(tmp_path / "run"), few)
    assert {"accuracy", "score", "mismatched_accuracy"} <= set(summary["metrics"])
    assert summary["predictions"] == ["AX.tsv", "MNLI-m.tsv"]
    assert summary["truncated"]["train"] > 0
    lines = (tmp_path / "run" / "predictions" / "AX.tsv").read_text().splitlines()[1:]
    assert len(lines) == 20
    assert {line.split("\t")[1] for line in lines} <= set(labels)


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(make_glue_golden.GOLDEN, allow_pickle=False) as arrays:
        return dict(arrays)


def ours(name: str, folder: Path) -> dict[str, np.ndarray]:
    """Loss and gradients under torch's names, summed over two parts of a filled batch."""
    make, cases = bert_checkpoint, make_glue_golden
    case = cases.CASES[name]
    settings = {"model_type": "bert", "architectures": [case.head], **case.config()}
    (folder / "config.json").write_text(json.dumps(settings))
    tensor_file.write(folder / "model.safetensors", make.tensors(case))
    model = fa.from_pretrained(folder)
    given = {key: np.asarray(array, np.int32) for key, array in make.inputs(case).items()}
    label = np.asarray(cases.LABELS[name], np.float32)
    batch = GlueBatch(
        given["input_ids"],
        given["attention_mask"],
        given.get("token_type_ids", np.zeros_like(given["input_ids"])),
        label,
        np.ones(len(label), np.float32),
    )
    filled = GlueBatch(*(np.concatenate([x, x[:1]]) for x in batch[:4]), np.array([1.0] * 3 + [0]))
    loss = glue_model.loss_function(model.module, TASKS["stsb" if name == "regression" else "mnli"])
    whole = glue_model.batch_totals(filled)
    halves = [jax.tree.map(lambda x, part=part: x[part::2], filled) for part in (0, 1)]
    gradient = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=2)
    parts = [gradient(model.params, half, None, whole) for half in halves]
    (value, _), grads = jax.tree.map(lambda *x: sum(x), *parts)
    named = model_directory.to_hf(model.module, grads)
    return {"loss": np.asarray(value), **{key: named[key] for key in cases.KEPT}}


@pytest.mark.parametrize("name", ["classes", pytest.param("regression", marks=pytest.mark.slow)])
def test_loss_and_gradients_are_torchs(
    name: str, stored: dict[str, np.ndarray], tmp_path: Path
) -> None:
    found = ours(name, tmp_path)
    expected = {k.split("/")[1]: v for k, v in stored.items() if k.startswith(name)}
    assert set(found) == set(expected)
    for field, array in expected.items():
        np.testing.assert_allclose(found[field], array, rtol=1e-4, atol=1e-5, err_msg=field)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.parity
@pytest.mark.parametrize("name", ["classes", "regression"])
def test_torch_still_computes_what_is_stored(name: str, stored: dict[str, np.ndarray]) -> None:
    pytest.importorskip("torch")
    for field, array in make_glue_golden.torch_outputs(name).items():
        np.testing.assert_allclose(array, stored[f"{name}/{field}"], rtol=1e-4, atol=1e-6)


@pytest.mark.float16
def test_the_commands(
    run: Path, data: Path, recipe: GlueRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training continues from the finished run, so that nothing is trained again."""
    config = tmp_path / "recipe.yaml"
    config.write_text(to_yaml(recipe))
    words = ["train", "glue", "--task", "SST-2", "--data", str(data), "--config", str(config)]
    assert main([*words, "--out", str(run)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^accuracy [01]\.\d{4} ± 0\.\d{4}$", text, re.MULTILINE)
    assert "left out 1 bad rows of 271" in text
    assert main([*words, "--out", str(run), "--on-error", "fail"]) == 2
    text = capsys.readouterr().err
    assert "train.tsv, line 202: expected 2 fields, received 1" in text
    answer = tmp_path / "m.json"
    words = ["evaluate", "--task", "sst2", "--model", str(run / "model"), "--data", str(data)]
    settings = [word for name in ("devices=1", "max_length=16", "buckets=[16]", "predict_batch=32")
                for word in ("--set", name)]  # fmt: skip
    assert main([*words, *settings, "--out", str(answer)]) == 0
    assert re.match(r"dev: loss \d\.\d{4}  accuracy [01]\.\d{4}", capsys.readouterr().out)
    assert main(["train", "glue", "--print-config", "--set", "epochs=5"]) == 0
    assert "epochs: 5.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--task mrcp", "the nearest is 'mrpc'"),
        ("--set epoch=1", "the nearest is 'epochs'"),
        ("--set epochs=many", "epochs must be float"),
        ("--on-error ignore", "on_error"),
        ("--task ax --data DATA --out OUT", "has no training set"),
        ("--task rte --out OUT", "--data"),
        ("--data DATA", "--out"),
        ("--data DATA/none --out OUT", "is not there"),
        ("--data DATA/dev.tsv --out OUT", "is a file, expected a folder"),
        ("--data DATA --out DATA/dev.tsv", "cannot write to"),
        ("--data DATA --out OUT --on-error skip --set max_length=64", "reads up to 32 tokens"),
        ("--data DATA --out OUT --on-error skip --model OUT/none", "No model"),
    ],
)
def test_wrong_use_is_refused_in_a_few_lines(
    words: str, message: str, start: str, data: Path, tmp_path: Path, capsys: Any
) -> None:
    given = words.replace("DATA", str(data)).replace("OUT", str(tmp_path / "out")).split()
    model = [] if "--model" in given else ["--model", start]
    assert main(["train", "glue", *model, *given]) == 2
    text = capsys.readouterr().err
    assert message in text
    assert len(text.splitlines()) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("task", ["cola", "mrpc", "rte", "stsb", "sst2"])
def test_the_real_tasks_run(task: str, flaxattn_data: Path, tmp_path: Path) -> None:
    few = GlueRecipe(
        task=task,
        steps=4,
        batch_size=16,
        evaluate_every=4,
        max_length=48,
        buckets=(32, 48),
        seeds=(1,),
        devices=1,
    )
    summary = glue.finetune(flaxattn_data / "glue", RunFolder(tmp_path / "run"), few, 2)
    assert set(TASKS[task].metrics) <= set(summary["metrics"])
    assert summary["rows"]["bad"] == {}
    sizes = {
        "cola": (8551, 1043),
        "rte": (2490, 277),
        "stsb": (5749, 1500),
        "sst2": (67349, 872),
    }
    found = (summary["examples"]["train"], summary["examples"]["dev"])
    assert found == sizes.get(task, found)
    assert sum(found) == 4076 or task != "mrpc"
    assert len(fa.open_store(tmp_path / "run" / "traces" / "after")) == 2
