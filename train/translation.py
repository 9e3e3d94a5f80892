# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Train an encoder-decoder to translate, from parallel text to a model that opens.

    flaxattn train translation --data train.de train.en --dev val.de val.en --out RUN

A BPE vocabulary is learnt, pairs are sorted into buckets by length, the model is trained with
`flaxattn.train.loop`, evaluated on the dev set by loss and BLEU, and written to RUN/model as a
Hugging Face directory.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING
from flaxattn.measures.translation_quality import Score, bleu, sacrebleu_metrics
from flaxattn.models.outputs import Seq2SeqOutput
from flaxattn.models.rnn import RnnLM
from flaxattn.models.seq2seq import Seq2SeqLM, shifted_right
from flaxattn.models.seq2seq_config import RnnConfig, Seq2SeqConfig
from flaxattn.pretrained import model_directory
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq, generate_targets
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import EOS, PAD
from flaxattn.train import loop
from flaxattn.train.objectives import Metrics, Totals, token_loss
from flaxattn.train.optimizers import optimizer
from flaxattn.train.recipe import TranslationRecipe
from flaxattn.train.results import best_metrics, run_summary, write_results
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import LossFunction, Params, gather, make_mesh, place_batch
from flaxattn.train.translation_data import (
    EncodedPairs,
    TranslationBatch,
    TranslationFeed,
    TranslationPair,
    Vocabularies,
    batches_per_epoch,
    buckets,
    encode_pairs,
    fingerprint,
    held_out,
    learn_vocabularies,
    read_pairs,
)


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
        files: Parallel text, see `parallel_text.read_pairs`.
        folder: Folder of the run; gets `vocabulary/`, metrics, checkpoints, and at the end
            `model/`, `curves.png` and `summary.json`.
        recipe: Every number of the run.
        dev_files: Parallel text to judge by; default a part of `files`.
        command: Command that was typed, for the model card.

    Returns:
        The content of `summary.json`.

    Raises:
        InputError: The text cannot be used; the loss became NaN.
        CheckpointError: If the state that an earlier run left does not fit.
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
        mesh = make_mesh(recipe)
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
        trained = gather(done.state.params)
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
            model_directory.save(model, module, trained, tokenizer=source, target_tokenizer=target)
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


_ROWS = 64  # sentences translated at a time


class TranslationEvaluation:
    """Metrics on a dev set, as `loop.Task` wants them."""

    def __init__(
        self,
        module: Any,
        loss: LossFunction,
        dev: EncodedPairs,
        vocabularies: Vocabularies,
        recipe: TranslationRecipe,
        mesh: Mesh,
    ) -> None:
        """Prepare."""
        self._module, self._dev, self._recipe, self._mesh = module, dev, recipe, mesh
        self._vocabularies = vocabularies
        if recipe.bleu_sentences:
            sacrebleu_metrics()
        one = {"words": jnp.ones(())}
        self._sums = jax.jit(lambda params, batch: loss(params, batch, None, one)[1])

    def __call__(self, params: Params, step: int = 0) -> dict[str, float]:
        """`loss`, `nll`, `accuracy` and `perplexity` per token, and `bleu` where it is wanted."""
        del step
        found = self._forced(params)
        if self._recipe.bleu_sentences:
            found["bleu"] = self.bleu(params, self._recipe.bleu_sentences).value
        return found

    @property
    def signature(self) -> str:
        """Signature of sacrebleu for `bleu`; empty where no BLEU is wanted."""
        return bleu(["-"], ["-"]).signature if self._recipe.bleu_sentences else ""

    def bleu(self, params: Params, count: int, **settings: Any) -> Score:
        """BLEU of the first dev sentences, translated greedily by default."""
        pairs = self._dev.pairs[:count]
        translations = self.translations(params, count, **settings)
        return bleu(translations, [pair.target for pair in pairs])

    def translations(self, params: Params, count: int, **settings: Any) -> list[str]:
        """Translate the first dev sentences; arguments as for `bleu`."""
        local = jax.tree.map(jnp.asarray, gather(params))
        module = self._module
        model = PretrainedSeq2Seq(module, local, None, module.config, "in training")
        side, writer = self._dev.source, self._vocabularies.writer
        rows: Sequence[Any] = np.split(side.ids, side.starts[1:-1])[:count]
        found = generate_targets(model, rows, batch=min(_ROWS, len(rows)), **settings)
        return [writer.decode(best.ids.tolist()) for best, *_ in found]

    def _forced(self, params: Params) -> dict[str, float]:
        """Means over the real target tokens of the dev set."""
        sums, words = [], 0.0
        for length, numbers in buckets(self._dev, self._recipe, np.arange(self._dev.size)):
            batch = self._dev.batch(numbers, (self._recipe.rows(length), length))
            words += float(batch.label_mask.sum())
            part, parts = jax.process_index(), jax.process_count()
            rows = len(batch.input_ids) // parts
            mine = type(batch)(*(array[part * rows : (part + 1) * rows] for array in batch))
            sums.append(self._sums(params, place_batch(mine, self._mesh)))
        loop.fetch(sums)
        means = {name: sum(row[name] for row in sums) / words for name in sums[0]}
        return {**means, "perplexity": float(np.exp(min(means["nll"], 100.0)))}


_RNN_SHAPE = (
    "embedding_size",
    "hidden_size",
    "attention",
    "attention_size",
    "readout_size",
    "dropout",
)
_TRANSFORMER_SHAPE = (
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "activation_function",
    "positions",
    "norm_first",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "tie_word_embeddings",
)


def build_module(recipe: TranslationRecipe, vocabularies: Vocabularies) -> Any:
    """The model of a recipe; attention records nothing while it trains."""
    source, target = vocabularies.source.vocab_size, vocabularies.writer.vocab_size
    common = {
        "vocab_size": source,
        "decoder_vocab_size": None if target == source else target,
        "max_position_embeddings": recipe.max_position_embeddings,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "decoder_start_token_id": PAD,
    }
    options: dict[str, Any] = {
        "dtype": jnp.dtype(recipe.dtype),
        "capture": NOTHING,
        "remat": recipe.remat,
    }
    if recipe.model_type == "rnn":
        shape = {name: getattr(recipe, name) for name in _RNN_SHAPE}
        return RnnLM(RnnConfig(**common, **shape), **options)
    shape = {name: getattr(recipe, name) for name in _TRANSFORMER_SHAPE}
    config = Seq2SeqConfig(
        **common,
        **shape,
        share_encoder_decoder_embeddings=recipe.shared_vocabulary,
        init_std=recipe.init_std or recipe.d_model**-0.5,
    )
    return Seq2SeqLM(config, **options, unroll=recipe.unroll or 1)


def initial_parameters(module: Any, seed: int) -> Params:
    """The parameters that training starts from."""
    ids = jnp.zeros((1, 1), jnp.int32)
    return jax.jit(module.init)(jax.random.key(seed), ids)["params"]


def loss_function(module: Any, smoothing: float) -> LossFunction:
    """Loss of the module on a batch, in the form the loop takes."""

    def loss(
        params: Params, batch: TranslationBatch, dropout: Array | None, totals: Totals
    ) -> tuple[Array, Metrics]:
        labels = jnp.asarray(batch.labels)
        out = module.apply(
            {"params": params},
            batch.input_ids,
            batch.attention_mask,
            shifted_right(labels, module.config),
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )
        assert isinstance(out, Seq2SeqOutput)
        assert out.logits is not None
        return token_loss(out.logits, labels, batch.label_mask, totals, smoothing)

    return loss


def batch_totals(batch: TranslationBatch) -> Totals:
    """Denominators of a batch's losses."""
    return {"words": jnp.asarray(batch.label_mask, jnp.float32).sum()}
