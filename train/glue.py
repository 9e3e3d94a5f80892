# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Fine-tune a BERT on one task of GLUE or on a user's own labels, and judge it there.

    flaxattn train glue --task sst2 --data GLUE --model tiny-bert --out RUN --set seeds=[1,2,3]
    flaxattn train classify --data train.csv --dev dev.csv --model tiny-bert --out RUN

Each seed gets RUN/seed-N with its checkpoints and metrics; the best parameters on the dev set
count. RUN gets summary.json, the Hugging Face directory of the best seed in model/, GLUE's files
in predictions/ where there are test sets, and the attention of a few examples in the stores
traces/before and traces/after.
"""

import dataclasses
import functools
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from flaxattn import __version__
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.encoder_config import EncoderConfig
from flaxattn.pipeline.extraction import Options
from flaxattn.pretrained import model_directory
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.store.commit_shards import write_texts
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train import glue_model, loop
from flaxattn.train.glue_data import (
    EncodedExamples,
    GlueBatch,
    GlueFeed,
    TaskPart,
    encode,
    read_parts,
)
from flaxattn.train.glue_model import (
    GlueClassifier,
    batch_totals,
    build_module,
    columns_for,
    initial_parameters,
    judge,
    load_base,
    loss_function,
    over_seeds,
    predict,
    write_submissions,
)
from flaxattn.train.glue_tasks import GlueTask, find_task, own_task
from flaxattn.train.optimizers import faster, optimizer
from flaxattn.train.recipe import ClassifyRecipe, GlueRecipe
from flaxattn.train.report import bert_flops, read_metrics
from flaxattn.train.results import draw_curves, write_card
from flaxattn.train.run_folder import RunFolder, write_json
from flaxattn.train.state import LossFunction, Params, gather, make_mesh

_CAPTURE = Capture(weights=True, dtype="float16")


class SeedResult(NamedTuple):
    """Result of one seed: its best parameters, on the host, and their score."""

    seed: int
    params: Params
    metrics: dict[str, float]
    facts: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """Parts that all seeds of a run share.

    Attributes:
        task: Task that is learned.
        recipe: Recipe with steps filled in.
        base: The model that it starts from.
        data: Encoded parts.
        identity: Fingerprints of data, model and tokenizer.
    """

    task: GlueTask
    recipe: GlueRecipe
    base: PretrainedBert
    data: Mapping[str, EncodedExamples]
    identity: Mapping[str, str]

    @functools.cached_property
    def module(self) -> GlueClassifier:
        """The model that is trained."""
        return build_module(self.task, self.base, self.recipe)

    @functools.cached_property
    def loss(self) -> LossFunction:
        """Loss function; one object for all seeds, so that it is compiled once."""
        return loss_function(self.module, self.task, self.recipe.gate_price)

    @functools.cached_property
    def optimizer(self) -> optax.GradientTransformation:
        """Optimizer; one object, as the loss is."""
        whole = optimizer(self.recipe)
        if not self.recipe.gate_price:
            return whole
        return faster(whole, glue_model.NAME, self.recipe.gate_speed)

    def start(self, seed: int) -> Params:
        """The parameters that a seed starts from, with gates where their price is named."""
        params = initial_parameters(self.task, self.base, seed)
        return (
            glue_model.with_gates(params, self.module.config) if self.recipe.gate_price else params
        )


def finetune(
    data: str | Path | Sequence[Path],
    folder: RunFolder,
    recipe: GlueRecipe,
    trace_examples: int = 0,
    *,
    dev: Sequence[Path] = (),
    command: str = "flaxattn train glue",
) -> dict[str, Any]:
    """Run everything from files to a Hugging Face directory, once per seed.

    Args:
        data: Folder of the task or of all of GLUE, or `datasets:` and a name; for a
            `ClassifyRecipe` a user's own files.
        folder: Folder of the run; seeds that an earlier run finished there are not run again.
        recipe: Task, model and every number.
        trace_examples: Dev examples whose attention is stored before and after fine-tuning.
        dev: Files to evaluate on, of a user's own; default a part of `data`.
        command: Command that was typed, for the model card.

    Returns:
        The content of `summary.json`.

    Raises:
        InputError: The data or the recipe cannot be used; the loss became NaN.
        CheckpointError: The model, or what an earlier run left, cannot be used.
    """
    if isinstance(recipe, ClassifyRecipe):
        assert not isinstance(data, str | Path)
        task, place = own_task(data, dev, recipe), ""
    else:
        assert isinstance(data, str | Path)
        task, place = _trainable(recipe.task), data
    recipe = dataclasses.replace(recipe, task=task.name)
    with folder.held():
        bad = BadRows(recipe.on_error, folder.path)
        parts = read_parts(task, place, recipe, bad, tuple(task.parts))
        shared = prepare(task, parts, recipe, bad)
        runs, best = [], None
        for seed in recipe.seeds:
            done = one_seed(shared, seed, folder)
            runs.append(done._replace(params=None))
            if best is None or done.metrics["score"] > best.metrics["score"]:
                best = done
        assert best is not None
        summary = {**_summary(shared, parts, bad, runs), "best_seed": best.seed}
        if jax.process_index() == 0:
            write_model(shared, best, folder, command)
        files = write_submissions(
            task, shared.module, best.params, shared.data, recipe, folder.path / "predictions"
        )
        if jax.process_index() == 0:
            write_traces(shared, best, parts, folder, trace_examples)
            summary = {**summary, "predictions": files}
            write_json(folder.path / "summary.json", summary)
    return summary


def prepare(
    task: GlueTask, parts: Mapping[str, TaskPart], recipe: GlueRecipe, bad: BadRows
) -> FineTuning:
    """Load the model, tokenise the data and settle the number of steps."""
    base = load_base(task, recipe)
    assert base.tokenizer is not None
    data = {
        name: encode(part.examples, base.tokenizer, recipe.max_length, bad)
        for name, part in parts.items()
    }
    identity = {
        "data": _fingerprint(*(text for part in parts.values() for text in part.sha256.values())),
        "start": _fingerprint(*jax.tree.leaves(base.params)),
        "tokenizer": _fingerprint(base.tokenizer.backend.to_str()),
    }
    return FineTuning(task, recipe.for_examples(data["train"].size), base, data, identity)


def one_seed(shared: FineTuning, seed: int, folder: RunFolder) -> SeedResult:
    """Train with one seed, or take what an earlier run left, and judge the best parameters."""
    recipe = dataclasses.replace(shared.recipe, seed=seed, seeds=(seed,))
    own = dataclasses.replace(folder, path=folder.path / f"seed-{seed}")
    module, mesh = shared.module, make_mesh(recipe)
    evaluate = functools.partial(_evaluate, shared, mesh)
    training = loop.Task(
        loss=shared.loss,
        totals=batch_totals,
        optimizer=shared.optimizer,
        feed=GlueFeed(shared.data["train"], recipe, jax.process_index(), jax.process_count()),
        evaluate=lambda params, step: evaluate(params),
        watch="score",
        higher=True,
        keep_best=not recipe.gate_price,  # gates close in the course of training
        flops=lambda batch: bert_flops(module.config, *_shape(batch), scored=0),
    )
    with own.held():
        own.claim(recipe, shared.identity)
        done = loop.run(training, shared.start(seed), recipe, own)
        metrics = evaluate(done.state.params)
        if jax.process_index() == 0:
            draw_curves(own.metrics, own.path / "curves.png")
    facts = {
        "best_step": done.best["step"] if done.best and training.keep_best else recipe.steps,
        "tokens": done.tokens,
        "seconds": round(done.seconds, 1),
    }
    params = gather(done.state.params)
    if recipe.gate_price:
        facts["closed_heads"] = glue_model.closed_heads(params)
    return SeedResult(seed, glue_model.folded(params), metrics, facts)


def write_model(shared: FineTuning, best: SeedResult, folder: RunFolder, command: str) -> None:
    """Write the best seed's Hugging Face directory, with a model card."""
    model, task = folder.path / "model", shared.task
    recipe = dataclasses.replace(shared.recipe, seed=best.seed)
    closed = best.facts.get("closed_heads", [])
    params, config = glue_model.without_closed(best.params, shared.module.config, closed)
    module = shared.module.clone(config=config)
    model_directory.save(model, module, params, tokenizer=shared.base.tokenizer)
    rows = read_metrics(folder.path / f"seed-{best.seed}" / "metrics.jsonl")
    heldout = [row for row in rows if row["kind"] == "heldout"]
    facts = {**shared.identity, "examples": shared.data["train"].size, **best.facts}
    write_card(
        model, f"{recipe.model} fine-tuned on {task.folder}", command, recipe, facts, heldout
    )


def write_traces(
    shared: FineTuning,
    best: SeedResult,
    parts: Mapping[str, TaskPart],
    folder: RunFolder,
    count: int,
) -> None:
    """Store the attention to the first dev examples, before and after fine-tuning."""
    texts = [
        Text(number, f"{e.file}:{e.line}", e.first, e.second, e.file, e.line)
        for number, e in enumerate(parts["dev"].examples[:count])
    ]
    name, reader = shared.recipe.model, shared.base.tokenizer
    assert reader is not None
    limit = {**reader.settings, "model_max_length": shared.recipe.max_length}
    reader = Tokenizer(reader.backend, limit)
    module = shared.module.clone(capture=Capture(weights=True))
    states = {
        "before": initial_parameters(shared.task, shared.base, best.seed),
        "after": best.params,
    }
    for when, params in states.items() if texts else ():
        title = name if when == "before" else f"{name}, fine-tuned on {shared.task.folder}"
        model = PretrainedBert(module, params, reader, module.config, title)
        store = folder.path / "traces" / when
        shutil.rmtree(store, ignore_errors=True)  # that of an earlier run
        write_texts(store, model, texts, Options(capture=_CAPTURE, truncate=True))


def _trainable(name: str) -> GlueTask:
    task = find_task(name)
    if "train" not in task.parts:
        raise InputError(
            f"{task.folder} has no training set\n"
            "it is predicted with a model of MNLI\n"
            "train mnli: its predictions include AX where diagnostic.tsv is there"
        )
    return task


def _evaluate(shared: FineTuning, mesh: Mesh, params: Params) -> dict[str, float]:
    """Metrics on every dev part; those of the second one get its name."""
    found: dict[str, float] = {}
    whole = glue_model.folded(params)
    for part in shared.task.dev_parts:
        if part in shared.data:
            logits = predict(shared.module, whole, shared.data[part], shared.recipe, mesh)
            values = judge(shared.task, logits, shared.data[part].label)
            prefix = part.removeprefix("dev").lstrip("_")
            found |= {f"{prefix}_{name}" if prefix else name: v for name, v in values.items()}
    return found


def _summary(
    shared: FineTuning, parts: Mapping[str, TaskPart], bad: BadRows, runs: list[SeedResult]
) -> dict[str, Any]:
    return {
        "version": __version__,
        "task": shared.task.name,
        "model": shared.recipe.model,
        "seeds": [run.seed for run in runs],
        "metrics": over_seeds([run.metrics for run in runs]),
        "runs": [{"seed": run.seed, **run.facts, **run.metrics} for run in runs],
        "data": {name: part.sha256 for name, part in parts.items()},
        "examples": {name: data.size for name, data in shared.data.items()},
        "truncated": {name: data.truncated for name, data in shared.data.items()},
        "dev_split_off": parts["dev"].sha256.items() <= parts["train"].sha256.items(),
        "rows": bad.summary(),
        "settings": shared.recipe.to_dict(),
    }


def _fingerprint(*values: Any) -> str:
    """SHA-256 of texts or arrays."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.encode() if isinstance(value, str) else np.asarray(value).tobytes())
    return digest.hexdigest()


def _shape(batch: GlueBatch) -> tuple[int, int]:
    """B and S."""
    rows, length = batch.input_ids.shape
    return rows, length


def evaluate(
    data: str | Path, recipe: GlueRecipe, out: Path | None = None, predictions: Path | None = None
) -> dict[str, Any]:
    """Judge a fine-tuned model on every dev part that is there."""
    mesh = make_mesh(recipe)
    model = from_pretrained(recipe.model)  # in float32, which training keeps parameters in
    module = model.module.clone(dtype=jnp.dtype(recipe.dtype))
    config = model.config
    task = _task(data, recipe, config)
    classifier = config.architectures[0].endswith("ForSequenceClassification")
    if not isinstance(config, EncoderConfig) or not classifier or model.report.missing:
        raise InputError(
            f"{recipe.model} is not a classifier: it is a {config.architectures[0]}\n"
            f"expected a model that was fine-tuned on {task.folder}\n"
            f"{task.command} --model {recipe.model} makes one"
        )
    assert isinstance(model, PretrainedBert)
    if model.tokenizer is None:
        raise InputError(f"{recipe.model} came without a tokenizer\nput tokenizer.json beside it")
    columns = columns_for(task, config.labels, recipe.model)
    params = {**model.params, "classifier": _reordered(model.params["classifier"], columns)}
    bad = BadRows(recipe.on_error, out.parent if out else Path())
    wanted = (*task.dev_parts, *(task.test_parts if predictions else ()))
    parts = read_parts(task, data, recipe, bad, wanted)
    length = min(recipe.max_length, model.limit)
    read = {n: encode(p.examples, model.tokenizer, length, bad) for n, p in parts.items()}
    found = {
        name: judge(task, predict(module, params, read[name], recipe, mesh), read[name].label)
        for name in task.dev_parts
        if name in read
    }
    files = []
    if predictions is not None:
        files = write_submissions(task, module, params, read, recipe, predictions, mesh)
    answer = {
        "version": __version__,
        "task": task.name,
        "model": recipe.model,
        "metrics": found,
        "examples": {name: encoded.size for name, encoded in read.items()},
        "truncated": {name: encoded.truncated for name, encoded in read.items()},
        "data": {name: part.sha256 for name, part in parts.items()},
        "rows": bad.summary(),
        "predictions": files,
    }
    if out is not None and jax.process_index() == 0:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, answer)
    return answer


def _task(data: str | Path, recipe: GlueRecipe, config: Any) -> GlueTask:
    """The task of GLUE, or that of a user's own file with the labels of the model."""
    if not isinstance(recipe, ClassifyRecipe):
        return find_task(recipe.task)
    regression = getattr(config, "problem_type", None) == "regression"
    names = getattr(config, "labels", ())
    if all(name == f"LABEL_{number}" for number, name in enumerate(names)):
        names = [str(number) for number in range(len(names))]
    recipe = dataclasses.replace(recipe, regression=regression)
    return own_task((), [Path(data)], recipe, names)


def _reordered(classifier: dict[str, Any], columns: list[int]) -> dict[str, Any]:
    """The classifier with its outputs in the order of the task's labels."""
    picked = np.array(columns)
    return {"kernel": classifier["kernel"][:, picked], "bias": classifier["bias"][picked]}
