# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a language model in training: numbers on held-out text, and generated texts.

Numbers come from windows that overlap, see `lm_data.cut_chunks`: each token is scored once.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from flaxattn.errors import CheckpointError, InputError
from flaxattn.files import write_text
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train import loop, sharding
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.lm_data import TokenRows, bytes_per_token
from flaxattn.train.lm_model import LanguageModel
from flaxattn.train.lm_recipe import LanguageModelRecipe
from flaxattn.train.sealed_rows import RowChain, read_rows
from flaxattn.train.state import LossFunction, Params

_BEGINNINGS, _WORDS = 3, 8  # held-out documents that are continued, and tokens given of each
_UNSEALED = b'{"step"'  # how a file of earlier versions begins
_LARGEST = 100.0  # nats; the exponential of more is no news


class LanguageModelEvaluation:
    """Metrics on held-out rows, as `loop.Task` wants them."""

    def __init__(
        self,
        loss: LossFunction,
        rows: TokenRows,
        tokenizer: Tokenizer,
        recipe: LanguageModelRecipe,
        mesh: Mesh,
        samples: "Samples | None" = None,
    ) -> None:
        """Prepare."""
        self._rows, self._recipe, self._mesh, self._samples = rows, recipe, mesh, samples
        self._bytes = bytes_per_token(tokenizer)
        one = {"words": jnp.ones(())}
        self._sums = jax.jit(lambda params, batch: loss(params, batch, None, one)[1])

    def __call__(self, params: Params, step: int) -> dict[str, float]:
        """Held-out metrics after `step` updates; samples are logged and kept."""
        sums, words, length = [], 0.0, 0
        size = self._recipe.batch_size
        part, parts = jax.process_index(), jax.process_count()
        mine = slice(part * size // parts, (part + 1) * size // parts)
        for first in range(0, len(self._rows), size):
            numbers = np.arange(first, min(first + size, len(self._rows)))
            batch = self._rows.batch(numbers, size)
            real = np.asarray(batch.label_mask) > 0
            words += int(real.sum())
            length += int(self._bytes[np.asarray(batch.labels)[real]].sum())
            local = type(batch)(*(array[mine] for array in batch))
            sums.append(self._sums(params, sharding.place_batch(local, self._mesh)))
        loop.fetch(sums)
        found = {name: sum(row[name] for row in sums) / words for name in sums[0]}
        if self._samples is not None:
            self._samples(params, step)
        return {
            **found,
            "perplexity": math.exp(min(found["nll"], _LARGEST)),
            "bits_per_byte": found["nll"] * words / math.log(2) / max(length, 1),
        }


class Samples:
    """Continuations of the same prompts at each evaluation, on standard error and in a file."""

    def __init__(
        self,
        module: LanguageModel,
        tokenizer: Tokenizer,
        recipe: LanguageModelRecipe,
        heldout: TokenCorpus,
        path: Path,
    ) -> None:
        """Prepare."""
        self._module, self._tokenizer, self._recipe, self._path = module, tokenizer, recipe, path
        self._prompts = list(recipe.prompts) or beginnings(heldout, tokenizer)
        longest = max(tokenizer.count(self._prompts), default=0)
        self._room = min(recipe.sample_tokens, module.config.longest - longest)
        if self._room < 1:
            raise InputError(
                "recipe: one of the prompts leaves no room for an answer\n"
                f"it has {longest} tokens, the model reads up to {module.config.longest}\n"
                "shorten it, or raise block"
            )

    def __call__(self, params: Params, step: int) -> list[str]:
        """Write, tell and keep a continuation of each prompt; the same for the same parameters."""
        local = jax.tree.map(jnp.asarray, sharding.gather(params))
        if jax.process_index():
            return []
        texts = self._write(local)
        rows = [
            {"prompt": prompt, "text": text, "step": step}
            for prompt, text in zip(self._prompts, texts, strict=True)
        ]
        chain = RowChain()
        lines = (chain.line(row, escape=False) for row in [*self._before(step), *rows])
        write_text(self._path, "".join(lines))
        for row in rows:
            message = " ".join(f"{row['prompt']}|{row['text']}".split())
            print(f"step {step}  {message}", file=sys.stderr, flush=True)
        return texts

    def _before(self, step: int) -> list[dict[str, Any]]:
        """Read what an earlier start of the run wrote, up to the present step."""
        if not step or not self._path.is_file():
            return []
        return [row for row in read_samples(self._path) if row["step"] < step]

    def _write(self, params: Params) -> list[str]:
        recipe, module = self._recipe, self._module
        model = PretrainedDecoder(module, params, self._tokenizer, module.config, "in training")
        settings: dict[str, Any] = {"max_new_tokens": self._room}
        if recipe.sample_temperature:
            settings |= {"do_sample": True, "temperature": recipe.sample_temperature}
        generated = model.generate(self._prompts, seed=recipe.seed, **settings)
        return [
            text.removeprefix(given) for text, given in zip(generated, self._prompts, strict=True)
        ]


def read_samples(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of samples: `prompt`, `text` and `step`."""
    with path.open("rb") as file:
        sealed = file.read(len(_UNSEALED)) != _UNSEALED
    if sealed:
        return read_rows(path)
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return [{name: row[name] for name in ("prompt", "text", "step")} for row in rows]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged: a line is not a sample\nexpected prompt, text and step in each\n"
            "copy the file again, or start the run again with --fresh"
        ) from error


def beginnings(corpus: TokenCorpus, tokenizer: Tokenizer) -> list[str]:
    """The first few tokens of the first few documents, as text."""
    found = (corpus.document(n)[:_WORDS] for n in range(min(_BEGINNINGS, len(corpus))))
    texts = (tokenizer.decode(ids.tolist()).rstrip("\ufffd \n") for ids in found)
    return [text for text in dict.fromkeys(texts) if text.strip()]
