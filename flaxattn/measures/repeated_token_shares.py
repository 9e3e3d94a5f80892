# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shares of attention on earlier occurrences of the query's token, and on the tokens after them.

The kinds of heads are those of `flaxattn.measures.induction`, which scores them on repeated random
tokens; here they are read off one text as it is, at the tokens that occur in it before.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

FEWEST = 3
"""Queries with an earlier occurrence that a text must have for a share to be known."""


def repeated_token_shares(
    weights: Float[np.ndarray, "*heads Q Q"], tokens: Sequence[str]
) -> dict[str, Float[np.ndarray, "*heads"]]:
    """Measure duplicate-token and induction attention of causal maps."""
    if np.any(np.triu(np.nan_to_num(weights, nan=1), 1)):
        return {}
    ids = np.unique(np.asarray(tokens, object).astype(str), return_inverse=True)[1]
    same = np.tril(ids[:, None] == ids, -1)
    after = np.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    found = {}
    for name, keys in (("duplicate", same), ("induction", np.tril(after, -1))):
        queries = keys.any(-1)
        if queries.sum() >= FEWEST:
            found[name] = np.sum(weights, axis=-1, where=keys)[..., queries].mean(-1)
    return found
