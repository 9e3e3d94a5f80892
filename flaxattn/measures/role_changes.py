# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Changes of roles between two models, such as before and after fine-tuning.

Tables of who has which role come in; finding roles is not done here.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Bool

from flaxattn.errors import InputError


@dataclasses.dataclass(frozen=True)
class RoleChange:
    """Change of one role in one layer.

    Attributes:
        role: Name of the role.
        layer: Number of the layer.
        before: How many of its heads had the role.
        after: How many have it.
        gained: Heads that have it and had it not.
        lost: Heads that had it and have it not.
        unsupported: Heads that have it in one of the two only, where the difference between the
            two supports no claim; `gained` and `lost` leave them out.
    """

    role: str
    layer: int
    before: int
    after: int
    gained: tuple[int, ...]
    lost: tuple[int, ...]
    unsupported: tuple[int, ...] = ()


def role_changes(
    before: Mapping[str, Bool[np.ndarray, "L H"]],
    after: Mapping[str, Bool[np.ndarray, "L H"]],
    layers: Iterable[int] | None = None,
    supported: Mapping[str, Bool[np.ndarray, "L H"]] | None = None,
) -> list[RoleChange]:
    """Changes of roles, the layers and roles with most changes first.

    Args:
        before: Whether each head has each role, in the first model.
        after: In the second: the same roles and heads.
        layers: Numbers of the layers; default 0, 1, ….
        supported: Whether the difference between the two supports a claim, by role; default it
            does everywhere.

    Returns:
        An entry for every role and layer.

    Raises:
        InputError: If roles or shapes differ.
    """
    if set(before) != set(after):
        differ = ", ".join(sorted(set(before) ^ set(after)))
        raise InputError(f"Only one of the tables has {differ}.\nFind the same roles in both.")
    found = []
    for role, had in before.items():
        old, new = np.asarray(had, bool), np.asarray(after[role], bool)
        numbers = list(range(len(old)) if layers is None else layers)
        if old.shape != new.shape or old.ndim != 2 or len(numbers) != len(old):
            raise InputError(
                f"{role}: tables of shape {list(old.shape)} and {list(new.shape)} for "
                f"{len(numbers)} layers.\nExpected [L, H] both."
            )
        sure = np.ones_like(old) if supported is None else np.asarray(supported[role], bool)
        for number, x, y, z in zip(numbers, old, new, sure, strict=True):
            parts = (y & ~x & z, x & ~y & z, (x ^ y) & ~z)
            heads = [tuple(np.flatnonzero(row).tolist()) for row in parts]
            found.append(RoleChange(role, number, int(x.sum()), int(y.sum()), *heads))
    return sorted(found, key=lambda change: -len(change.gained) - len(change.lost))
