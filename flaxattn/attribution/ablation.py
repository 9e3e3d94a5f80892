# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Ablation of heads: losses without them one by one, their importance, and pruning curves.

After Michel et al. 2019, "Are Sixteen Heads Really Better than One?". Heads are silenced by masks;
no parameter is touched. `flaxattn.attribution.head_losses` computes the losses.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from flaxattn.attribution.head_losses import HeadTask, Masks
from flaxattn.errors import InputError, check_arguments
from flaxattn.pipeline.progress_reporter import show_progress
from flaxattn.trace.result_table import ResultTable, columns_of

Head = tuple[str, int, int]
"""Name of the mask, layer and head."""
_STEP = 0.1
_ABLATION, _IMPORTANCE, _PRUNING = (
    functools.partial(show_progress, name) for name in ("ablation", "importance", "pruning")
)


@dataclasses.dataclass(frozen=True, repr=False)
class HeadEffects(ResultTable):
    """A number for each head, a mean over texts.

    Attributes:
        kind: `ablation`, by how much the loss grows without the head, or `importance`.
        means: Means of each head, by name of the mask.
        errors: Standard errors of the means; nan for a single text.
        loss: Mean loss with all heads.
        texts: Number of texts.
        each: The same of each text, `[L, H, T]`.
    """

    kind: str
    means: Mapping[str, Float[np.ndarray, "L H"]]
    errors: Mapping[str, Float[np.ndarray, "L H"]]
    loss: float
    texts: int
    each: Mapping[str, Float[np.ndarray, "L H T"]] = dataclasses.field(default_factory=dict)

    def to_columns(self) -> dict[str, list[Any]]:
        """A row for each head, the largest mean first."""
        return columns_of(
            [
                {"mask": name, "layer": layer, "head": head, self.kind: mean, "error": error}
                for (name, layer, head), mean, error in self.ranked()
            ]
        )

    def ranked(self) -> list[tuple[Head, float, float]]:
        """Every head with its mean and its standard error, the largest mean first."""
        rows = [
            ((name, layer, head), float(mean), float(self.errors[name][layer, head]))
            for name, means in self.means.items()
            for (layer, head), mean in np.ndenumerate(means)
        ]
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    def by_layer(self) -> "HeadEffects":
        """Effects divided by the l2 norm over the heads of their layer, as Michel et al. do.

        A layer whose heads are all 0 stays 0.
        """
        norms = {n: np.linalg.norm(m, axis=1, keepdims=True) for n, m in self.means.items()}
        norms = {name: np.where(norm > 0, norm, 1.0) for name, norm in norms.items()}
        parts = {
            field: {name: getattr(self, field)[name] / norm for name, norm in norms.items()}
            for field in ("means", "errors")
        }
        each = {name: values / norms[name][..., None] for name, values in self.each.items()}
        return dataclasses.replace(self, **parts, each=each)


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """The loss of a model that lacks some heads.

    Attributes:
        removed: Number of heads that are silenced.
        share: That number over the number of all heads.
        loss: Mean over texts.
        error: Standard error of the mean; nan for a single text.
    """

    removed: int
    share: float
    loss: float
    error: float


@check_arguments()
def ablate(
    task: HeadTask,
    progress: Callable[[int], object] = _ABLATION,
) -> HeadEffects:
    """Measure how much the loss of a text grows when one head is silenced, for every head.

    One forward pass of all texts for each head, and one with all of them; the program is compiled
    once for each shape of a batch.

    >>> import flaxattn as fa
    >>> task = fa.head_task(fa.from_pretrained("tiny-bert"), ["The cat is very sad.", "It sleeps."])
    >>> effects = fa.ablate(task)
    >>> effects.means["head_mask"].shape, effects.texts
    ((4, 4), 2)

    Args:
        task: From `head_task`.
        progress: Called with the number of texts whenever some are done; the default shows
            progress in notebooks.

    Returns:
        Differences from the loss with all heads, which are paired by text.

    Raises:
        InputError: For arguments of other types.
    """
    masks = _one_by_one(task.sizes)
    found, base = [], []
    for batch in task.batches:
        losses = np.asarray(_over_masks(task.losses, task.params, dict(batch.given), masks))
        losses = losses[:, : batch.texts].astype(np.float64)
        task.check(losses[0], sum(map(len, base)))
        base.append(losses[0])
        found.append(losses[1:] - losses[:1])
        progress(batch.texts)
    return _effects("ablation", task.sizes, np.concatenate(found, 1), np.concatenate(base))


@check_arguments()
def head_importance(
    task: HeadTask,
    progress: Callable[[int], object] = _IMPORTANCE,
) -> HeadEffects:
    """Michel's importance of every head: the mean over texts of `|∂ loss / ∂ ξ|`, ξ its factor.

    One forward and one backward pass of all texts. The factor of a head gets a gradient for each
    text by itself, summed over positions before the absolute value is taken, as published. With
    flash attention nothing of size Q·K is stored.

    >>> import flaxattn as fa
    >>> task = fa.head_task(fa.from_pretrained("tiny-bert"), ["The cat is very sad.", "It sleeps."])
    >>> fa.head_importance(task).means["head_mask"].shape  # layers, heads
    (4, 4)

    Args:
        task: From `head_task`.
        progress: Called with the number of texts whenever some are done; the default shows
            progress in notebooks.

    Returns:
        Importances as they are; `by_layer()` divides them by the norm of their layer.

    Raises:
        InputError: For arguments of other types.
    """
    found, base = [], []
    for batch in task.batches:
        losses, slopes = _slopes(task.losses, task.params, dict(batch.given), _names(task.sizes))
        sizes = [np.abs(np.asarray(slopes[name]))[:, : batch.texts] for name in task.sizes]
        rows = [size.swapaxes(1, 2).reshape(-1, batch.texts) for size in sizes]
        found.append(np.concatenate(rows).astype(np.float64))
        whole = np.asarray(losses)[: batch.texts].astype(np.float64)
        task.check(whole, sum(map(len, base)))
        base.append(whole)
        progress(batch.texts)
    return _effects("importance", task.sizes, np.concatenate(found, 1), np.concatenate(base))


@check_arguments()
def pruning_curve(
    task: HeadTask,
    order: HeadEffects | Sequence[Head],
    share: float = _STEP,
    progress: Callable[[int], object] = _PRUNING,
) -> list[CurvePoint]:
    """The loss as more and more heads are silenced, the least important first.

    Nothing is trained in between, and the order is not taken anew, as published.

    >>> import flaxattn as fa
    >>> task = fa.head_task(fa.from_pretrained("tiny-bert"), ["The cat is very sad.", "It sleeps."])
    >>> points = fa.pruning_curve(task, fa.head_importance(task), share=0.5)
    >>> len(points)  # no head removed, half of them, all of them
    3

    Args:
        task: From `head_task`.
        order: Effects, of which the smallest goes first; or heads, the first of which goes first.
        share: Share of all heads that is removed in a step.
        progress: Called with the number of texts whenever some are done; the default shows
            progress in notebooks.

    Returns:
        Points from no head removed to all of them.

    Raises:
        InputError: If a head is missing in the order or occurs twice, or the share is not a share.
    """
    if isinstance(order, HeadEffects):
        heads = [head for head, _, _ in reversed(order.ranked())]
    else:
        heads = list(order)
    known = [(n, *place) for n, size in task.sizes.items() for place in np.ndindex(*size)]
    if sorted(heads) != sorted(known):
        raise InputError(
            f"The order has to name each of {len(known)} heads once, received {len(heads)}.\n"
            "Heads are (name of the mask, layer, head); take the effects of the same task."
        )
    if not 0 < share <= 1:
        raise InputError(f"share is {share}, expected more than 0 and at most 1.")
    step = max(1, round(share * len(heads)))
    counts = [*range(0, len(heads), step), len(heads)]
    masks = _removing(task.sizes, heads, counts)
    found = []
    for batch in task.batches:
        losses = np.asarray(_over_masks(task.losses, task.params, dict(batch.given), masks))
        task.check(np.asarray(losses)[0, : batch.texts], sum(part.shape[1] for part in found))
        found.append(losses[:, : batch.texts].astype(np.float64))
        progress(batch.texts)
    losses = np.concatenate(found, 1)
    errors = _errors(losses)
    return [
        CurvePoint(count, count / len(heads), float(losses[n].mean()), float(errors[n]))
        for n, count in enumerate(counts)
    ]


@functools.partial(jax.jit, static_argnames=("losses",))
def _over_masks(
    losses: Callable[..., Array], params: Any, given: Any, masks: Masks
) -> Float[Array, "N B"]:
    """Losses under each of N masks, one after the other."""
    return jax.lax.map(lambda one: losses(params, given, one), masks)


@functools.partial(jax.jit, static_argnames=("losses", "names"))
def _slopes(
    losses: Callable[..., Array], params: Any, given: Any, names: tuple[tuple[str, int, int], ...]
) -> tuple[Float[Array, " B"], dict[str, Float[Array, "L B H"]]]:
    """Losses, and the gradient of each text's loss with respect to the factors of its heads."""
    count = jax.tree.leaves(given)[0].shape[0]
    ones = {name: jnp.ones((layers, count, heads)) for name, layers, heads in names}

    def total(masks: dict[str, Array]) -> tuple[Array, Array]:
        each = losses(params, given, masks)
        return each.sum(), each

    slopes, each = jax.grad(total, has_aux=True)(ones)
    return each, slopes


def _names(sizes: Mapping[str, tuple[int, int]]) -> tuple[tuple[str, int, int], ...]:
    return tuple((name, *size) for name, size in sizes.items())


def _one_by_one(sizes: Mapping[str, tuple[int, int]]) -> dict[str, Float[np.ndarray, "N L H"]]:
    """Masks that silence no head, and then every head by itself."""
    heads = [(n, *place) for n, size in sizes.items() for place in np.ndindex(*size)]
    masks = {n: np.ones((len(heads) + 1, *size), np.float32) for n, size in sizes.items()}
    for number, (name, layer, head) in enumerate(heads):
        masks[name][number + 1, layer, head] = 0
    return masks


def _removing(
    sizes: Mapping[str, tuple[int, int]], heads: Sequence[Head], counts: Sequence[int]
) -> dict[str, Float[np.ndarray, "N L H"]]:
    """Masks that silence the first heads, one mask for each count."""
    masks = {n: np.ones((len(counts), *size), np.float32) for n, size in sizes.items()}
    for number, count in enumerate(counts):
        for name, layer, head in heads[:count]:
            masks[name][number, layer, head] = 0
    return masks


def _effects(
    kind: str, sizes: Mapping[str, tuple[int, int]], values: np.ndarray, base: np.ndarray
) -> HeadEffects:
    """Means and errors of values `[heads, texts]`, of all masks one after the other."""
    ends = np.cumsum([layers * heads for layers, heads in sizes.values()])[:-1]
    parts = {
        field: {n: p.reshape(sizes[n]) for n, p in zip(sizes, np.split(array, ends), strict=True)}
        for field, array in {"means": values.mean(1), "errors": _errors(values)}.items()
    }
    each = zip(sizes, np.split(values, ends), strict=True)
    texts = {name: part.reshape(*sizes[name], -1) for name, part in each}
    return HeadEffects(kind, **parts, loss=float(base.mean()), texts=len(base), each=texts)


def _errors(values: Float[np.ndarray, "N T"]) -> Float[np.ndarray, " N"]:
    """Standard errors of means over texts."""
    if values.shape[1] < 2:
        return np.full(len(values), np.nan)
    return values.std(1, ddof=1) / np.sqrt(values.shape[1])
