# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pretrain BERT from text files: masked language modelling and next-sentence prediction.

    flaxattn train bert-mlm --data text/*.txt --out RUN --config recipe.yaml

Everything happens in one go: a WordPiece vocabulary is learnt, documents are cut, the model is
trained with `flaxattn.train.loop` and written to RUN/model as a Hugging Face directory. A killed
run goes on where its last checkpoint stands when the same command is given again.

The recipe of the built-in model is `flaxattn/pretrained/tiny-bert/recipe.yaml`; the README.md
beside it names data, commands, hardware, time and results.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import yaml
from jaxtyping import Array, Float

from flaxattn import weights
from flaxattn.bert import BertForPreTraining, ModelOutput
from flaxattn.config import BertConfig
from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.tokens import Tokenizer, train_wordpiece
from flaxattn.trace import Trace
from flaxattn.train import data, loop
from flaxattn.train.initial import initial_parameters
from flaxattn.train.objectives import Metrics, pretraining_loss
from flaxattn.train.recipe import Recipe
from flaxattn.train.state import Params, bert_adamw


def pretrain(
    files: Sequence[Path], out: Path, recipe: Recipe, fresh: bool = False
) -> dict[str, Any]:
    """Run everything from text files to a Hugging Face directory.

    Args:
        files: UTF-8 text with blank lines between paragraphs.
        out: run directory; gets `tokenizer/`, `recipe.yaml`, `metrics.jsonl`, the checkpoint, and
            at the end `model/` and `summary.json`.
        recipe: every number of the run.
        fresh: ignore what an earlier run left in `out`.

    Returns:
        The content of `summary.json`.

    Raises:
        InputError: the text is missing, unreadable or too little; the loss became NaN.
        CheckpointError: what an earlier run left does not fit.
    """
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(files, out / "tokenizer", recipe, fresh)
    text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
    (out / "recipe.yaml").write_text(text, encoding="utf-8")
    sides = data.split_heldout(data.read_documents(files, recipe), recipe.heldout_fraction)
    training, heldout = (data.tokenize(side, tokenizer) for side in sides)
    module = build_module(recipe, tokenizer)
    task = loop.Task(
        loss=loss_function(module, recipe.entropy_price),
        optimizer=bert_adamw(recipe),
        training=data.Feed(training, tokenizer, recipe),
        heldout=data.Feed(heldout, tokenizer, recipe, label="heldout"),
    )
    params = initial_parameters(module, recipe, training)
    done = loop.run(task, params, recipe, out, fresh)
    weights.save(out / "model", module, done.state.params, tokenizer=tokenizer)
    summary = {
        "steps": int(done.state.step),
        "tokens": done.tokens,
        "seconds": round(done.seconds, 1),
        "training_tokens": _count(training),
        "heldout_tokens": _count(heldout),
        "unigram_loss": data.unigram_loss(training, heldout, tokenizer.vocab_size),
        "heldout": [r for r in loop.read_metrics(out / "metrics.jsonl") if r["kind"] == "heldout"],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def build_module(recipe: Recipe, tokenizer: Tokenizer) -> BertForPreTraining:
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
    return BertForPreTraining(config, capture=NOTHING)


def loss_function(module: BertForPreTraining, entropy_price: float = 0.0) -> loop.LossFunction:
    """Loss of the module on a batch, in the form the loop takes.

    Args:
        module: the model.
        entropy_price: see `Recipe`; charged while training only, so that evaluations compare.
    """
    watched = module.clone(capture=Capture(stats=("entropy",)))

    def loss(
        params: Params, batch: data.Batch, dropout: jax.Array | None
    ) -> tuple[jax.Array, Metrics]:
        pays = entropy_price > 0 and dropout is not None
        out, state = (watched if pays else module).apply(
            {"params": params},
            batch.input_ids,
            batch.attention_mask,
            batch.token_type_ids,
            masked_positions=batch.masked_positions,
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
            mutable=["intermediates"] if pays else [],
        )
        assert isinstance(out, ModelOutput)
        assert out.prediction_logits is not None
        assert out.seq_relationship_logits is not None
        total, metrics = pretraining_loss(
            out.prediction_logits,
            out.seq_relationship_logits,
            batch.masked_ids,
            batch.masked_weights,
            batch.next_sentence_label,
        )
        if pays:
            metrics["attention_entropy"] = mean_entropy(state, batch)
            total += entropy_price * metrics["attention_entropy"]
        return total, metrics

    return loss


def mean_entropy(state: Mapping[str, Any], batch: data.Batch) -> Float[Array, ""]:
    """Mean over layers, heads and real queries of the entropy in nats that `state` recorded."""
    seen = Trace.from_variables(state).encoder
    assert seen is not None
    entropy = seen.stats["entropy"]
    real = jnp.asarray(batch.attention_mask, entropy.dtype)[None, :, None, :]
    return (entropy * real).sum() / (real.sum() * entropy.shape[0] * entropy.shape[2])


def _tokenizer(files: Sequence[Path], folder: Path, recipe: Recipe, fresh: bool) -> Tokenizer:
    if (folder / "tokenizer.json").is_file() and not fresh:
        return Tokenizer.from_dir(folder)
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        raise InputError(
            f"no such text file: {missing[0]}\nname existing files after --data"
            if missing
            else "no text to train on\nname at least one file after --data"
        )
    tokenizer = train_wordpiece(
        list(files), recipe.vocab_size, recipe.lowercase, recipe.max_position_embeddings
    )
    tokenizer.save(folder)
    return tokenizer


def _count(documents: list[data.Document]) -> int:
    return sum(len(sentence) for document in documents for sentence in document)
