# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of each pass over a corpus, kept on disk: made once, whoever of several asks first.

A plan is a shuffled array of pairs (`flaxattn.train.instances`), in rows of one or, packed, of
several: a function of corpus, recipe, label, length and the number of the pass. How many rows each
pass had is remembered for good, so that a restart finds its place without making the plans before
it again.
"""

import dataclasses
import functools
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from flaxattn.files import remove_abandoned, sha256_of, written_whole
from flaxattn.store.folder_lock import locked
from flaxattn.train.columns import mapped
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.instances import write_plan
from flaxattn.train.packing import write_packed
from flaxattn.train.recipe import PretrainRecipe

_COUNTS = "counts.json"
_KEPT = 2  # of the plans of one training run
_SAID_FROM = 50_000_000  # tokens; fewer are planned in seconds


@dataclasses.dataclass(frozen=True)
class Plans:
    """Plans of one label.

    Attributes:
        corpus: what is planned.
        recipe: seed, share of short sequences and pairs per row.
        label: keeps the random numbers of training and evaluation apart.
        keep_all: whether old plans stay.
    """

    corpus: TokenCorpus
    recipe: PretrainRecipe
    label: str
    keep_all: bool = False

    @property
    def folder(self) -> Path:
        """Folder of the plans."""
        return self.corpus.folder / "plans"

    @functools.cached_property
    def _prefix(self) -> str:
        made_of = [self.corpus.digest, self.recipe.seed, self.recipe.short_sequence_prob]
        made_of += [self.recipe.pack] * (self.recipe.pack > 1)
        return f"{self.label}-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]}"

    def key(self, length: int, epoch: int) -> str:
        """Key that the random numbers of a pass are drawn from."""
        return f"{self.recipe.seed}/{self.label}/{length}/{epoch}"

    def rows(self, length: int, epoch: int) -> np.ndarray:
        """The plan of a pass: an array `[R, N]` of `PAIR`, read through a map."""
        name = self._name(length, epoch)
        with locked(self.folder / ".lock"):
            self._clean(epoch)
            if not self._intact(name):
                self._make(name, length, epoch)
            return mapped(self.folder / f"{name}.npy").reshape(-1, self.recipe.pack)

    def count(self, length: int, epoch: int) -> int:
        """R, how many rows a pass has."""
        name = self._name(length, epoch)
        if name not in (counts := self._counts()):
            self.rows(length, epoch)
            counts = self._counts()
        return counts[name]["rows"]

    def _name(self, length: int, epoch: int) -> str:
        return f"{self._prefix}-{length}-{epoch}"

    def _counts(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / _COUNTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _intact(self, name: str) -> bool:
        path, known = self.folder / f"{name}.npy", self._counts().get(name)
        return known is not None and path.is_file() and sha256_of(path) == known["sha256"]

    def _make(self, name: str, length: int, epoch: int) -> None:
        recipe, key = self.recipe, self.key(length, epoch)
        if (size := len(self.corpus.tokens)) >= _SAID_FROM:
            what = f"pass {epoch + 1} at length {length} ({self.label})"
            print(f"planning {what}: {size:,} tokens", file=sys.stderr, flush=True)
        with written_whole(self.folder, last=_COUNTS) as staging:
            path = staging / f"{name}.npy"
            rows = write_plan(path, self.corpus, length, recipe.short_sequence_prob, key)
            if recipe.pack > 1:
                loose = path.rename(staging / f"{name}-loose.npy")
                rows = write_packed(loose, path, length, recipe.pack, key)
                loose.unlink()
            counts = {**self._counts(), name: {"rows": rows, "sha256": sha256_of(path)}}
            (staging / _COUNTS).write_text(json.dumps(counts, indent=1), encoding="utf-8")

    def _clean(self, epoch: int) -> None:
        """Remove plans that are no longer needed, and what killed processes left."""
        remove_abandoned(self.folder, ".*.part")
        if not self.keep_all:
            for path in self.folder.glob(f"{self.label}-*.npy"):
                ours = path.name.startswith(f"{self._prefix}-")
                if not ours or int(path.stem.rsplit("-", 1)[1]) <= epoch - _KEPT:
                    path.unlink(missing_ok=True)
