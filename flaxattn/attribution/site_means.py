# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Means of a site, such as the outputs of heads, over all real positions of many batches."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class SiteTotal(NamedTuple):
    """Sum of a site over real positions.

    Attributes:
        total: The sum.
        count: Number of these positions.
    """

    total: Float[Any, "L *S"]
    count: Int[Any, ""]


def site_total(
    values: Float[Array, "L B S ..."],
    inputs: Mapping[str, Any],
    side: str,
    site: str,
    counted: Bool[Any, " B"],
) -> SiteTotal:
    """Add up a site over the real positions of a batch."""
    of_source = side == "encoder" or (side == "cross" and site in ("key", "value"))
    is_target = not of_source and "decoder_input_ids" in inputs
    mask = inputs["decoder_attention_mask" if is_target else "attention_mask"]
    real = (jnp.asarray(mask) != 0) & jnp.asarray(counted)[:, None]
    spread = real.reshape(1, *real.shape, *[1] * (values.ndim - 3))
    array = jnp.where(spread, values.astype(jnp.float32), 0)
    return SiteTotal(array.sum((1, 2)), real.sum())


def site_means(batches: Sequence[Any]) -> Any:
    """Means over batches, as arrays `[L, 1, 1, ...]` that broadcast to the site."""
    added = jax.tree.map(lambda *parts: np.sum(np.asarray(parts, np.float64), 0), *batches)
    return jax.tree.map(
        lambda one: jnp.asarray(one.total / one.count, jnp.float32)[:, None, None],
        added,
        is_leaf=lambda node: isinstance(node, SiteTotal),
    )
