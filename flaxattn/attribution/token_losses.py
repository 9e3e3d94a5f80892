# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Changes of the loss at each token of a text when a head is removed, for every head by itself.

Losses are those of `flaxattn.attribution.head_losses`, before their mean over tokens is taken.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from flaxattn.attribution.head_losses import (
    HeadTask,
    LossBatch,
    head_task,
    losses_of_tokens,
    module_inputs,
)
from flaxattn.attribution.patch_task import head_sizes
from flaxattn.attribution.patching import SiteTotal, site_means, site_total
from flaxattn.errors import InputError, check_arguments
from flaxattn.models.interventions import Intervention, site_values, with_interventions
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.model_types import CLASSIFIERS
from flaxattn.pretrained.pretrained_model import Pretrained, tokens_of

Removal = Literal["zero", "mean"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TokenLosses:
    """Loss of each of the S tokens of a text, and how much it grows without each head.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> (found,) = fa.token_losses(model, ["The old man and the old man"])
    >>> bool(found.counted[0]), int(found.counted.sum()) == len(found.tokens) - 1
    (False, True)

    Attributes:
        tokens: Readable tokens; of an encoder-decoder those of the target.
        losses: Negative log-likelihood of each token in nats; 0 where `counted` is False.
        counted: True for tokens that are predicted: of a language model all but the first, of a
            masked one those that were masked.
        changes: By side, the loss without the head minus `losses`; 0 where `counted` is False.
        removal: "zero" or "mean", what took the place of the head's output.
        model: Name of the model.
    """

    tokens: Sequence[str]
    losses: Float[np.ndarray, " S"]
    counted: Bool[np.ndarray, " S"]
    changes: Mapping[str, Float[np.ndarray, "L H S"]]
    removal: Removal
    model: str = ""

    def __repr__(self) -> str:
        return (
            f"TokenLosses({self.model!r}: {int(self.counted.sum())} of {len(self.tokens)} tokens, "
            f"heads of {', '.join(self.changes)} removed by {self.removal})"
        )


@check_arguments()
def token_losses(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None = None,
    *,
    removal: Removal = "zero",
    batch: int = 16,
    truncate: bool = False,
    seed: int = 0,
    allow_nonfinite: bool = False,
    watch: Watch = show_progress,
) -> list[TokenLosses]:
    """Measure how much each head's removal changes the loss at each token of texts.

    The mean over the counted tokens of a text is what `fa.ablate` has for the text, where heads are
    replaced by 0. Costs a forward pass of all texts for each head, one without changes, and one
    more for means; L·H·S numbers of each text are kept.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> (found,) = fa.token_losses(model, ["The old man and the old man"])
    >>> found.changes["decoder"].shape[:2], len(found.tokens) == len(found.losses)
    ((4, 6), True)

    Args:
        model: A language model, a masked one, or an encoder-decoder, with its tokenizer.
        texts: At least one.
        second: The second text of each pair; of an encoder-decoder, the target.
        removal: "zero" replaces the output of a head by 0, "mean" by its mean over all real
            positions of all texts.
        batch: Texts that are computed together.
        truncate: Whether a text over the model's limit is cut; otherwise it is an error.
        seed: Random seed of the choice of tokens that are masked, for a masked language model.
        allow_nonfinite: Whether losses may be NaN or infinite; otherwise they are an error.
        watch: Receives progress.

    Returns:
        The losses of each text.

    Raises:
        InputError: For a classifier, which has no loss of tokens, an unknown removal, or a text
            that cannot be used.
    """
    if isinstance(model.module, CLASSIFIERS):
        raise InputError(
            f"{model.name!r} is a {model.config.architectures[0]}, which predicts no tokens.\n"
            "Name a language model, or measure its heads with fa.ablate."
        )
    if removal not in ("zero", "mean"):
        raise InputError(f"There is no removal {removal!r}.\nChoose zero or mean.")
    options: dict[str, Any] = {"batch": batch, "truncate": truncate, "seed": seed}
    task = head_task(model, texts, second, allow_nonfinite=allow_nonfinite, **options)
    sizes = head_sizes(model)
    values: dict[str, Any] = dict.fromkeys(sizes, 0.0)
    if removal == "mean":
        values = _means(model, task, tuple(sizes))
    removed = _one_by_one(sizes)
    results: list[TokenLosses] = []
    for part in task.batches:
        arrays = _changed(model.module, model.params, dict(part.given), values, removed)
        losses, counted, changes = (np.asarray(array) for array in arrays)
        task.check(losses.sum(1)[: part.texts], len(results))
        ids, real = _read(part)
        for row in range(part.texts):
            here = real[row]
            results.append(
                TokenLosses(
                    tokens=tokens_of(model.target_reader, ids[row : row + 1, here])[0],
                    losses=losses[row, here].astype(np.float64),
                    counted=counted[row, here],
                    changes=_by_side(sizes, changes[:, row, here].astype(np.float64)),
                    removal=removal,
                    model=model.name,
                )
            )
        watch("losses of tokens", part.texts)
    return results


def _one_by_one(sizes: Mapping[str, tuple[int, int]]) -> dict[str, Bool[np.ndarray, "N L H"]]:
    """True for the head that is removed, of every side."""
    ends = np.cumsum([0, *(layers * heads for layers, heads in sizes.values())])
    every = np.eye(ends[-1], dtype=bool)
    return {
        side: every[:, ends[n] : ends[n + 1]].reshape(-1, *size)
        for n, (side, size) in enumerate(sizes.items())
    }


def _by_side(
    sizes: Mapping[str, tuple[int, int]], changes: Float[np.ndarray, "N S"]
) -> dict[str, Float[np.ndarray, "L H S"]]:
    """Changes of all heads, one after the other, by side."""
    ends = np.cumsum([layers * heads for layers, heads in sizes.values()])[:-1]
    parts = zip(sizes.items(), np.split(changes, ends), strict=True)
    return {side: part.reshape(*size, -1) for (side, size), part in parts}


def _read(part: LossBatch) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the predicted side, masks undone, and where they are real."""
    given = part.given
    side = "decoder_" if "decoder_input_ids" in given else ""
    ids = given.get("targets", given[f"{side}input_ids"])
    return np.asarray(ids), np.asarray(given[f"{side}attention_mask"]) != 0


@functools.partial(jax.jit, static_argnames=("module",))
def _changed(
    module: nn.Module,
    params: Any,
    given: Mapping[str, Array],
    values: Mapping[str, Any],
    removed: Mapping[str, Bool[Array, "N L H"]],
) -> tuple[Float[Array, "B S"], Bool[Array, "B S"], Float[Array, "N B S"]]:
    """Losses of tokens, which ones count, and changes under each removal."""

    def losses(changes: Sequence[Intervention]) -> tuple[Array, Array]:
        return losses_of_tokens(module, params, given, {}, changes)

    base, counted = losses(())
    base = jnp.where(counted, base, 0)

    def change(one: Mapping[str, Bool[Array, "L H"]]) -> Float[Array, "B S"]:
        changes = [
            Intervention("head_output", values[side], where=where[:, None, None], side=side)
            for side, where in one.items()
        ]
        return jnp.where(counted, losses(changes)[0], 0) - base

    return base, counted, jax.lax.map(change, removed)


def _means(
    model: Pretrained, task: HeadTask, sides: tuple[str, ...]
) -> dict[str, Float[Any, "L 1 1 H D"]]:
    """Mean output of every head over all real positions of all texts."""
    batches = []
    for part in task.batches:
        rows = len(next(iter(part.given.values())))
        counted = np.arange(rows) < part.texts
        batches.append(_totals(model.module, model.params, dict(part.given), sides, counted))
    return site_means(batches)


@functools.partial(jax.jit, static_argnames=("module", "sides"))
def _totals(
    module: nn.Module,
    params: Any,
    given: Mapping[str, Array],
    sides: tuple[str, ...],
    counted: Bool[Array, " B"],
) -> dict[str, SiteTotal]:
    """Sums of the outputs of all heads over real positions, by side."""
    recorded = [Intervention("head_output", operation="record", side=side) for side in sides]
    variables = with_interventions(params, recorded)
    _, state = module.apply(variables, **module_inputs(given, {}), mutable=["sites"])
    return {
        side: site_total(sites["head_output"], given, side, "head_output", counted)
        for side, sites in site_values(state).items()
    }
