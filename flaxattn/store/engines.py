# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Engines that compute the shards of a job: this process, or the workers of a Ray cluster.

Only the choice is here. Ray is imported where it was chosen, and nowhere else.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from flaxattn.errors import InputError
from flaxattn.pipeline.extraction import Options
from flaxattn.store.commit_shards import Commit, commit_shards
from flaxattn.store.ray_engine import on_ray
from flaxattn.store.ray_session import RayOptions

ENGINES = ("local", "ray")


@contextlib.contextmanager
def engine_of(
    engine: str, ray_options: Mapping[str, Any] | None, options: Options
) -> Iterator[Commit]:
    """Yield the function that commits the shards of a job; a cluster stays connected meanwhile."""
    given = dict(ray_options or {})
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is unknown\nchoose one of {', '.join(ENGINES)}")
    known = [field.name for field in dataclasses.fields(RayOptions)]
    if unknown := sorted(given.keys() - set(known)):
        raise InputError(f"ray_options has no field {unknown[0]!r}\nknown: {', '.join(known)}")
    if engine == "local":
        if given:
            raise InputError(
                "options of Ray are given, but the engine is local\n"
                f"received {', '.join(sorted(given))}\nchoose the engine ray, or leave them out"
            )
        yield commit_shards
        return
    with on_ray(RayOptions(**given), options) as commit:
        yield commit
