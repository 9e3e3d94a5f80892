# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Train an encoder-decoder to translate, from parallel text to a model that opens.

    flaxattn train translation --data train.de train.en --dev val.de val.en --out RUN

Everything happens in one go: a BPE vocabulary is learnt, pairs are dealt into buckets by length,
the model is trained with `flaxattn.train.loop`, judged on the dev set by loss and by BLEU, and
written to RUN/model as a Hugging Face directory.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.measures.translation_quality import sacrebleu_metrics
from flaxattn.pretrained import model_directory as weights
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train import loop, sharding
from flaxattn.train.optimizers import optimizer
from flaxattn.train.parallel_text import TranslationPair, fingerprint, held_out, read_pairs
from flaxattn.train.results import best_metrics, run_summary, write_results
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.translation_data import (
    EncodedPairs,
    TranslationFeed,
    Vocabularies,
    batches_per_epoch,
    encode_pairs,
    learn_vocabularies,
)
from flaxattn.train.translation_evaluation import TranslationEvaluation
from flaxattn.train.translation_model import (
    batch_totals,
    build_module,
    initial_parameters,
    loss_function,
)
from flaxattn.train.translation_recipe import TranslationRecipe


class PreparedTranslation(NamedTuple):
    """Data of a run: both sets of pairs, their vocabularies, and their fingerprints."""

    training: EncodedPairs
    dev: EncodedPairs
    vocabularies: Vocabularies
    identity: Mapping[str, str]


def train_translation(
    files: Sequence[Path],
    folder: RunFolder,
    recipe: TranslationRecipe,
    dev_files: Sequence[Path] = (),
    *,
    command: str = "flaxattn train translation",
) -> dict[str, Any]:
    """Run everything from parallel text to a Hugging Face directory.

    Args:
        files: parallel text, see `parallel_text.read_pairs`.
        folder: of the run; gets `vocabulary/`, metrics, checkpoints, and at the end `model/`,
            `curves.png` and `summary.json`.
        recipe: every number of the run.
        dev_files: parallel text to judge by; default a part of `files`.
        command: what was typed, for the model card.

    Returns:
        The content of `summary.json`.

    Raises:
        InputError: the text cannot be used; the loss became NaN.
        CheckpointError: what an earlier run left does not fit.
        UnavailableError: BLEU is wanted and sacrebleu is not installed.
        StopRequestedError: SIGTERM came; the state is saved.
    """
    if recipe.bleu_sentences:
        sacrebleu_metrics()  # raises where it is missing, before anything is read or learnt
    with folder.held():
        bad = BadRows(recipe.on_error, folder.path)
        data = prepare(files, dev_files, folder, recipe, bad)
        recipe = recipe.for_batches(batches_per_epoch(data.training, recipe))
        folder.claim(recipe, data.identity)
        module = build_module(recipe, data.vocabularies)
        loss = loss_function(module, recipe.label_smoothing)
        mesh = sharding.make_mesh(recipe)
        evaluation = TranslationEvaluation(module, loss, data.dev, data.vocabularies, recipe, mesh)
        task = loop.Task(
            loss=loss,
            totals=batch_totals,
            optimizer=optimizer(recipe),
            feed=TranslationFeed(data.training, recipe, jax.process_index(), jax.process_count()),
            evaluate=evaluation,
            watch=recipe.watch,
            higher=recipe.watch == "bleu",
            keep_best=True,
            average=recipe.average_checkpoints,
        )
        done = loop.run(task, initial_parameters(module, recipe.seed), recipe, folder)
        trained = sharding.gather(done.state.params)
        summary = {
            **run_summary(done, trained, recipe, data.identity, folder),
            "steps": recipe.steps,
            "pairs": data.training.size,
            "dev_pairs": data.dev.size,
            "rows": bad.summary(),
            "bleu_signature": evaluation.signature,
        }
        if recipe.average_checkpoints == 1 and done.best:
            summary["result"] = best_metrics(summary)
        else:
            with jax.set_mesh(mesh):
                summary["result"] = evaluation(done.state.params)
        if jax.process_index() == 0:
            source, target = data.vocabularies
            model = folder.path / "model"
            weights.save(model, module, trained, tokenizer=source, target_tokenizer=target)
            languages = " to ".join(filter(None, (recipe.source, recipe.target)))
            title = f"A {recipe.model_type} that translates {languages}".rstrip()
            write_results(folder, title, command, recipe, summary)
    return summary


def prepare(
    files: Sequence[Path],
    dev_files: Sequence[Path],
    folder: RunFolder,
    recipe: TranslationRecipe,
    bad: BadRows,
) -> PreparedTranslation:
    """Read pairs, learn their vocabularies or take those of an earlier start, and tokenise."""
    pairs = read_pairs(files, recipe.source, recipe.target, bad)
    if dev_files:
        dev = read_pairs(dev_files, recipe.source, recipe.target, bad)
    else:
        pairs, dev = held_out(pairs, recipe.heldout_pairs)
    vocabularies = _vocabularies(pairs, folder, recipe)
    identity = {
        "data": fingerprint(pairs),
        "dev": fingerprint(dev),
        "tokenizer": _digest(vocabularies),
    }
    training = encode_pairs(pairs, vocabularies, recipe, bad)
    judged = encode_pairs(dev, vocabularies, recipe, bad)
    for name, side in {"learn from": training, "judge by": judged}.items():
        if not side.size:
            raise InputError(
                f"no pair to {name} is left\n{bad.summary()['rows']} were read, problems: "
                f"{dict(bad.counts) or 'none'}\ngive more pairs, or raise max_length"
            )
    return PreparedTranslation(training, judged, vocabularies, identity)


def _vocabularies(
    pairs: Sequence[TranslationPair], folder: RunFolder, recipe: TranslationRecipe
) -> Vocabularies:
    """Return the vocabularies of an earlier start of the run, or new ones."""
    names = ("shared",) if recipe.shared_vocabulary else ("source", "target")
    own = [folder.path / "vocabulary" / name for name in names]
    if not folder.fresh and all((path / "tokenizer.json").is_file() for path in own):
        return Vocabularies(*map(Tokenizer.from_dir, own))
    learnt = learn_vocabularies(pairs, recipe)
    if jax.process_index() == 0:
        for path, tokenizer in zip(own, filter(None, learnt), strict=True):
            tokenizer.save(path)
    return learnt


def _digest(vocabularies: Vocabularies) -> str:
    texts = [tokenizer.backend.to_str() for tokenizer in vocabularies if tokenizer]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
