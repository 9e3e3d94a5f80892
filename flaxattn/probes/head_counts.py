# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Counts per head of one model, item by item: the base of `Dependencies` and `Coreference`.

Each of them defines its items, and when a head is right about one.
"""

from collections.abc import Iterable
from typing import Generic, Self, TypeVar

from flaxattn.errors import InputError

Item = TypeVar("Item")


class HeadCounts(Generic[Item]):
    """Counts of the heads of one model.

    Attributes:
        layers: Number of the layer at each index; empty before anything was counted.
        heads: Number of the head at each index.
    """

    def __init__(self) -> None:
        self.layers: tuple[int, ...] = ()
        self.heads: tuple[int, ...] = ()

    @classmethod
    def of(cls, items: Iterable[Item]) -> Self:
        """Return the counts of some items.

        Args:
            items: Items of one model.
        """
        found = cls()
        for item in items:
            found.add(item)
        return found

    def add(self, item: Item) -> None:
        """Add an item.

        Args:
            item: Item of the same model.

        Raises:
            InputError: If it is of a model with other heads.
        """
        raise NotImplementedError

    def of_heads(self, layers: tuple[int, ...], heads: tuple[int, ...]) -> None:
        """Note of which heads an item is.

        Args:
            layers: Number of the layer at each index.
            heads: Number of the head at each index.

        Raises:
            InputError: If others were counted before.
        """
        if self.layers and (layers, heads) != (self.layers, self.heads):
            raise InputError(
                f"Heads of two models cannot be added up: {len(self.layers)} layers of "
                f"{len(self.heads)} heads, then {len(layers)} of {len(heads)}.\n"
                f"Keep one {type(self).__name__} for each model."
            )
        self.layers, self.heads = layers, heads
