# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of one tile backwards: weights from the final sums of rows, and gradients.

The forward arithmetic, and what tiles and vectors are, is in tiles.py.
"""

import functools
import operator
from collections.abc import Iterator, Mapping

import jax.numpy as jnp

from flaxattn.kernels.plan import KernelPlan
from flaxattn.kernels.tiles import NEVER, Tile, TileLayout, Vector, gap, inside


def rebuilt_weights(form: TileLayout, tile: Tile, rows: Mapping[str, Vector]) -> Tile:
    """The weights of a tile from the final sums of their rows, for the passes after the first.

    Args:
        form: of the tile.
        tile: scores in the kernels' units.
        rows: packed vectors with "lse2", or "shift" and "log total" where one float32 would lose
            digits of scores that are huge; +inf for rows without keys.

    Returns:
        A tile.
    """
    logs = _log_weights(form, tile, rows)
    return jnp.exp2(logs) if "lse2" in rows else jnp.exp(logs)


def _log_weights(form: TileLayout, tile: Tile, rows: Mapping[str, Vector]) -> Tile:
    if "lse2" in rows:
        return tile - form.rows(rows["lse2"])
    return (tile - form.rows(rows["shift"])) - form.rows(rows["log total"])


def score_gradient(
    plan: KernelPlan,
    form: TileLayout,
    tile: Tile,
    weights: Tile,
    weights_bar: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
    scores_bar: Tile | None = None,
) -> Tile:
    """The gradient with respect to the (natural) scores of a tile.

    With G the gradient that reaches a weight, p (G - sum_j p_j G_j); the sum over the row is
    ``rows["delta"]``. Gradients of statistics join G; see `weights_gradient`.

    Args:
        plan: of the call.
        form: of the tile.
        tile: scores in the kernels' units.
        weights: of the tile.
        weights_bar: gradient from the output and captured weights: keep * (dO·v), plus theirs.
        rows: packed vectors of the tile's queries, with "delta" and the gradients of statistics.
        keys: packed vectors of the tile's keys.
        scores_bar: gradient of captured scores.

    Returns:
        A tile.
    """
    of_statistics = weights_gradient(plan, form, tile, weights, rows, keys)
    total = weights_bar if isinstance(of_statistics, float) else weights_bar + of_statistics
    result = weights * (total - form.rows(rows["delta"]))
    if "d max_score" in rows:
        chosen = _is_key(form, rows["argmax"])
        result = result + jnp.where(chosen, form.rows(rows["d max_score"]), 0.0)
    if scores_bar is not None:
        result = result + jnp.where(tile == -jnp.inf, 0.0, scores_bar)
    return result


def weights_gradient(
    plan: KernelPlan,
    form: TileLayout,
    tile: Tile,
    weights: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
) -> Tile | float:
    """Gradient of row statistics with respect to each weight of a tile.

    Args:
        plan: of the call.
        form: of the tile.
        tile: scores in the kernels' units.
        weights: of the tile.
        rows: packed vectors; "d NAME" is the gradient of the result NAME.
        keys: packed vectors; "d received" likewise.

    Returns:
        A tile, or 0 when no statistic has a gradient.
    """
    terms = _terms(plan, form, tile, weights, rows, keys)
    # Not a sum that begins with 0.0, which costs an addition for each weight. Each term is added
    # before the next is computed: registers hold one at a time.
    first = next(terms, None)
    return 0.0 if first is None else functools.reduce(operator.add, terms, first)


def _terms(
    plan: KernelPlan,
    form: TileLayout,
    tile: Tile,
    weights: Tile,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
) -> Iterator[Tile]:
    """Gradients of the statistics with respect to each weight, one by one."""
    if "d entropy" in rows:
        # d(-p log p): the constant -1 drops out, since weights sum to 1.
        logs = jnp.maximum(_log_weights(form, tile, rows), NEVER)
        yield form.rows(rows["d entropy"] * (-1 / plan.nat)) * logs
    if "d sum_sq" in rows:
        yield form.rows(rows["d sum_sq"] * 2.0) * weights
    if "d distance" in rows:
        yield form.rows(rows["d distance"]) * gap(plan, form, rows)
    ranks = [("d max", "argmax")]
    ranks += [(f"d topk weight {rank}", f"topk index {rank}") for rank in range(plan.topk)]
    for name, index in ranks:
        if name in rows:
            yield jnp.where(_is_key(form, rows[index]), form.rows(rows[name]), 0.0)
    for number, sieve in enumerate(plan.sieves):
        if f"d sieve {number}" in rows:
            of_sieve = form.rows(rows[f"d sieve {number}"])
            if sieve.statistic == "entropy":
                # -(log p + offset) / mass, where p = weight and offset = entropy - log mass.
                logs = jnp.maximum(_log_weights(form, tile, rows), NEVER) * (1 / plan.nat)
                of_sieve = -of_sieve * (logs + form.rows(rows[f"offset {number}"]))
            yield jnp.where(inside(plan, sieve, form, rows, keys), of_sieve, 0.0)
    if "d received" in keys:
        yield form.rows(rows["counted"]) * form.keys(keys["d received"])


def _is_key(form: TileLayout, index: Vector) -> Tile:
    """Mask of the entries whose key is that of their row."""
    return form.key_positions() == form.rows(index.astype(jnp.int32))


def product_gradient(plan: KernelPlan, form: TileLayout, product: Tile, gradient: Tile) -> Tile:
    """The gradient with respect to the scaled product, from that of the scores of a tile.

    Args:
        plan: of the call.
        form: of the tile.
        product: q·k in float32.
        gradient: with respect to the scores.

    Returns:
        The same tile where no soft cap is between them.
    """
    if plan.soft_cap is None:
        return gradient
    share = form.tanh(product * (plan.scale / plan.soft_cap))
    return gradient * (1.0 - share * share)
