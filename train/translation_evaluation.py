# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a model in training on its dev set: loss, and translations of its own.

Teacher-forced: the decoder reads the right translation. Free-running: it reads what it wrote.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from flaxattn.measures.translation_quality import Score, bleu, sacrebleu_metrics
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.pretrained.translation_batches import write
from flaxattn.train import loop, sharding
from flaxattn.train.state import LossFunction, Params
from flaxattn.train.translation_data import EncodedPairs, Vocabularies, buckets
from flaxattn.train.translation_recipe import TranslationRecipe

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
        """BLEU of the first dev sentences, translated greedily unless told otherwise."""
        pairs = self._dev.pairs[:count]
        told = self.translations(params, count, **settings)
        return bleu(told, [pair.target for pair in pairs])

    def translations(self, params: Params, count: int, **settings: Any) -> list[str]:
        """Translate the first dev sentences; arguments as for `bleu`."""
        local = jax.tree.map(jnp.asarray, sharding.gather(params))
        module = self._module
        model = PretrainedSeq2Seq(module, local, None, module.config, "in training")
        side, writer = self._dev.source, self._vocabularies.writer
        rows: Sequence[Any] = np.split(side.ids, side.starts[1:-1])[:count]
        found = write(model, rows, batch=min(_ROWS, len(rows)), **settings)
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
            sums.append(self._sums(params, sharding.place_batch(mine, self._mesh)))
        loop.fetch(sums)
        means = {name: sum(row[name] for row in sums) / words for name in sums[0]}
        return {**means, "perplexity": float(np.exp(min(means["nll"], 100.0)))}
