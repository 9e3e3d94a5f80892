# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Masked language modelling from text files: a new BERT, with next sentences, or any encoder.

    flaxattn train mlm --data text/*.txt --out RUN --config recipe.yaml
    flaxattn train mlm --data text/*.txt --out RUN --model DIRECTORY

Everything happens in one go: a WordPiece vocabulary is learnt, documents are cut, the model is
trained with `flaxattn.train.loop` and written to RUN/model as a Hugging Face directory. A killed
run continues where its last checkpoint stands when the same command is given again.

`examples/tiny_bert.py` made the built-in tiny-bert.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.models.encoder_config import BertConfig, EncoderConfig
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.task_heads import BertForMaskedLM, BertForPreTraining, ModernBertForMaskedLM
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.pretrained import hub, model_directory
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.trace.trace import Trace
from flaxattn.train import loop
from flaxattn.train.corpus import (
    Paragraphs,
    TokenCorpus,
    build_corpus,
    check_files,
    count_tokens,
    learn_once,
    tokenizer_digest,
    unigram_loss,
)
from flaxattn.train.objectives import Metrics, Totals, pretraining_loss, pretraining_totals
from flaxattn.train.optimizers import optimizer
from flaxattn.train.pretraining_data import PretrainingBatch, PretrainingFeed, heldout_batches
from flaxattn.train.recipe import PretrainRecipe
from flaxattn.train.report import bert_flops
from flaxattn.train.results import parameters_digest, run_summary, write_results
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import LossFunction, Params, gather, make_mesh, place_batch

MaskedLM = BertForPreTraining | BertForMaskedLM | ModernBertForMaskedLM


class AttentionLoss(NamedTuple):
    """A term of the loss that reads what attention recorded, while training only.

    Attributes:
        capture: What is recorded.
        name: Name of the metric.
        price: Factor in the loss.
        value: The mean over a batch, from its trace.
    """

    capture: Capture
    name: str
    price: float
    value: Callable[[Trace, PretrainingBatch], Float[Array, ""]]


def initial_parameters(module: BertForPreTraining, recipe: PretrainRecipe) -> Params:
    """Draw the parameters of a new BERT from the recipe's seed."""
    ids = jnp.zeros((1, max(recipe.lengths)), jnp.int32)
    return jax.jit(module.init)(jax.random.key(recipe.seed), ids)["params"]


def load_base(recipe: PretrainRecipe) -> PretrainedBert | None:
    """The encoder that a run starts from; None for a new BERT.

    A BERT keeps its next-sentence head where it has one; all others predict words alone.
    """
    if not recipe.model:
        return None
    found = model_directory.read_config(hub.find(recipe.model))
    if not isinstance(found, EncoderConfig):
        raise InputError(
            f"recipe: model {recipe.model!r} is not an encoder, but a {found.architectures[0]}\n"
            "masked words are predicted by an encoder\nname one with --model"
        )
    pairs = found.architectures[0] == "BertForPreTraining"
    base = from_pretrained(recipe.model, head=None if pairs else "ForMaskedLM")
    assert isinstance(base, PretrainedBert)
    if max(recipe.lengths) > base.limit:
        raise InputError(
            f"recipe: length {max(recipe.lengths)} does not fit the model\n"
            f"{recipe.model} reads up to {base.limit} tokens\nshorten lengths: --set lengths=…"
        )
    return base


def module_of(base: PretrainedBert, recipe: PretrainRecipe) -> MaskedLM:
    """The module of a model, as it is trained: attention records nothing."""
    settings = {"remat": recipe.remat, "unroll": recipe.unroll or 1, "capture": NOTHING}
    module = base.module.clone(dtype=jnp.dtype(recipe.dtype), **settings)
    assert isinstance(module, MaskedLM)
    return module


def pretrain(
    files: Sequence[Path],
    folder: RunFolder,
    recipe: PretrainRecipe,
    *,
    tokenizer: Path | None = None,
    command: str = "flaxattn train mlm",
    initial: Callable[[BertForPreTraining, TokenCorpus], Params] | None = None,
    attention_loss: AttentionLoss | None = None,
) -> dict[str, Any]:
    """Run everything from text files to a Hugging Face directory.

    `initial` makes the parameters that a new BERT starts with, from its module and training text.
    """
    check_files(files)
    with folder.held():
        bad = BadRows(recipe.on_error, folder.path)
        base = load_base(recipe)
        reader = _tokenizer(files, folder, recipe, tokenizer, base)
        store = folder.path / "corpus"
        with ProgressReporter() as progress:
            progress("reading text", 0)
            corpus = build_corpus(
                files,
                reader,
                recipe,
                store,
                bad=bad,
                rebuild=folder.fresh or folder.allow_changes,
                note=functools.partial(progress, "reading text", 0),
            )
        identity = {"data": corpus.digest, "tokenizer": tokenizer_digest(reader)}
        if base is not None:
            identity["start"] = parameters_digest(base.params)
        folder.claim(recipe, identity)
        training, heldout = corpus.split(recipe.heldout_fraction)
        module = build_module(recipe, reader) if base is None else module_of(base, recipe)
        loss = loss_function(module, attention_loss)
        task = build_task(module, loss, recipe, reader, training, heldout)
        if base is None:
            assert isinstance(module, BertForPreTraining)
            drawn = initial is None
            params = initial_parameters(module, recipe) if drawn else initial(module, training)
        else:
            params = base.params
        done = loop.run(task, params, recipe, folder)
        trained = gather(done.state.params)
        summary = {
            **run_summary(done, trained, recipe, identity, folder),
            "training_tokens": int(count_tokens(training, reader.vocab_size).sum()),
            "heldout_tokens": int(count_tokens(heldout, reader.vocab_size).sum()),
            "rows": corpus.index["rows"],
            "unigram_loss": unigram_loss(training, heldout, reader.vocab_size),
        }
        if jax.process_index() == 0:
            model_directory.save(folder.path / "model", module, trained, tokenizer=reader)
            write_results(folder, "BERT pretrained with flaxattn", command, recipe, summary)
    return summary


def build_task(
    module: MaskedLM,
    loss: LossFunction,
    recipe: PretrainRecipe,
    tokenizer: Tokenizer,
    training: TokenCorpus,
    heldout: TokenCorpus,
) -> loop.Task:
    """Build the task of the loop: loss, optimiser, batches and evaluation."""
    part, parts = jax.process_index(), jax.process_count()

    def flops(batch: PretrainingBatch) -> float:
        (rows, length), scored = batch.input_ids.shape, batch.masked_positions.shape[1]
        return bert_flops(module.config, rows, length, scored)

    feed = PretrainingFeed(training, tokenizer, recipe, part=part, parts=parts)
    feed.find(0)  # refuses too little text before anything is trained
    return loop.Task(
        loss=loss,
        totals=batch_totals,
        optimizer=optimizer(recipe),
        feed=feed,
        evaluate=PretrainingEvaluation(loss, heldout, tokenizer, recipe, make_mesh(recipe)),
        watch="mlm_loss",
        flops=flops,
    )


def build_module(recipe: PretrainRecipe, tokenizer: Tokenizer) -> BertForPreTraining:
    """The model of a recipe; attention records nothing while it trains."""
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=recipe.hidden_size,
        num_hidden_layers=recipe.num_hidden_layers,
        num_attention_heads=recipe.num_attention_heads,
        intermediate_size=recipe.intermediate_size,
        hidden_act=recipe.hidden_act,
        hidden_dropout_prob=recipe.hidden_dropout_prob,
        attention_probs_dropout_prob=recipe.attention_probs_dropout_prob,
        max_position_embeddings=recipe.max_position_embeddings,
        initializer_range=recipe.initializer_range,
        pad_token_id=tokenizer.pad_id,
        architectures=("BertForPreTraining",),
    )
    return BertForPreTraining(
        config,
        dtype=jnp.dtype(recipe.dtype),
        capture=NOTHING,
        remat=recipe.remat,
        unroll=recipe.unroll or 1,
    )


def batch_totals(batch: PretrainingBatch) -> Totals:
    """Denominators of the sums over a whole batch."""
    pairs = None if batch.packing is None else batch.packing.weights
    return pretraining_totals(batch.attention_mask, batch.masked_weights, pairs)


def loss_function(module: MaskedLM, attention_loss: AttentionLoss | None = None) -> LossFunction:
    """Loss of the module on a batch, in the form the loop takes."""
    watched = module if attention_loss is None else module.clone(capture=attention_loss.capture)
    config: EncoderConfig = module.config
    types = config.variant.tokenized_types  # else tokenizers of the family tell no texts apart

    def loss(
        params: Params, batch: PretrainingBatch, dropout: Array | None, totals: Totals
    ) -> tuple[Array, Metrics]:
        added = None if dropout is None else attention_loss
        packing = batch.packing
        out, state = (module if added is None else watched).apply(
            {"params": params},
            batch.input_ids,
            batch.attention_mask,
            batch.token_type_ids if types else jnp.zeros_like(batch.token_type_ids),
            None if packing is None else packing.position_ids + config.first_position,
            segment_ids=None if packing is None else packing.segment_ids,
            starts=None if packing is None else packing.starts,
            masked_positions=batch.masked_positions,
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
            mutable=[] if added is None else ["intermediates"],
        )
        assert isinstance(out, ModelOutput)
        scores = out.token_scores
        assert scores is not None
        total, metrics = pretraining_loss(
            scores,
            out.seq_relationship_logits,
            batch.masked_ids,
            batch.masked_weights,
            batch.next_sentence_label,
            totals,
            1.0 if packing is None else packing.weights,
        )
        if added is not None:
            share = batch.attention_mask.shape[0] / totals["rows"]  # of the batch, in this part
            metrics[added.name] = added.value(Trace.from_variables(state), batch) * share
            total += added.price * metrics[added.name]
        return total, metrics

    return loss


class PretrainingEvaluation:
    """Mean metrics over the first held-out batches, always the same ones.

    At the length of the phase that the next update is of; before and after training, of the last.
    """

    def __init__(
        self,
        loss: LossFunction,
        heldout: TokenCorpus,
        tokenizer: Tokenizer,
        recipe: PretrainRecipe,
        mesh: Mesh,
    ) -> None:
        """Prepare the batches of every length."""
        self._recipe, self._mesh = recipe, mesh
        part, parts = jax.process_index(), jax.process_count()
        self._batches = {
            length: heldout_batches(heldout, tokenizer, recipe, length, part=part, parts=parts)
            for length in recipe.lengths
        }
        self._compute = jax.jit(
            lambda params, batch: loss(params, batch, None, batch_totals(batch))[1]
        )

    def __call__(self, params: Params, step: int) -> dict[str, float]:
        """Held-out metrics after `step` updates."""
        phase = self._recipe.phase(step - 1) if 0 < step < self._recipe.steps else -1
        length = self._recipe.lengths[phase]
        batches = self._batches[length]
        placed = (place_batch(batches[i], self._mesh) for i in range(len(batches)))
        rows = [self._compute(params, batch) for batch in placed]
        loop.fetch(rows)
        return {"length": length, **loop.mean(rows)}


def _tokenizer(
    files: Sequence[Path],
    folder: RunFolder,
    recipe: PretrainRecipe,
    given: Path | None,
    base: PretrainedBert | None,
) -> Tokenizer:
    if given is not None:
        return _fitting(Tokenizer.from_dir(given), base)
    if base is not None:
        if base.tokenizer is None:
            raise InputError(
                f"the model {recipe.model!r} came without a tokenizer, so it cannot read text\n"
                "put tokenizer.json or vocab.txt into its directory, or name one with --tokenizer"
            )
        return base.tokenizer
    bad = BadRows("fail" if recipe.on_error == "fail" else "skip")
    text, length = Paragraphs(files, recipe, bad), recipe.max_position_embeddings
    return learn_once(
        folder, lambda: train_wordpiece(text, recipe.vocab_size, recipe.lowercase, length)
    )


def _fitting(tokenizer: Tokenizer, base: PretrainedBert | None) -> Tokenizer:
    """The tokenizer, if a model has an embedding for each of its tokens."""
    if base is not None and tokenizer.largest_id >= base.config.vocab_size:
        raise InputError(
            f"the tokenizer has the id {tokenizer.largest_id}, the model {base.name!r} ids 0 to "
            f"{base.config.vocab_size - 1}\nleave --tokenizer out to use the model's own"
        )
    return tokenizer
