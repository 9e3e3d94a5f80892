# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A stored text as an xarray Dataset. xarray is optional and imported here only."""

import importlib
from typing import Any

import numpy as np

from flaxattn.errors import UnavailableError
from flaxattn.store.shard_tables import lengths
from flaxattn.store.store_layout import OF_MAPS, TokenSides, places, rows_of
from flaxattn.trace.record import FIELDS, AttentionRecord
from flaxattn.trace.trace import Trace


def dataset(trace: Trace) -> Any:
    """All arrays and statistics of a text, named `encoder.weights`, `encoder.entropy`, …."""
    try:
        xarray = importlib.import_module("xarray")
    except ImportError as error:
        raise UnavailableError(
            "to_xarray needs the package xarray, which is not installed\npip install xarray"
        ) from error
    size, found, labels = lengths(trace), {}, {}
    tokens = {"source": trace.tokens, "target": trace.decoder_tokens or trace.written}
    for kind, count in size.items():
        for dimension in (kind, f"{kind}_key"):
            labels[dimension] = np.arange(count)
            labels[f"{kind}_token"] = (kind, list(tokens[kind][0]))
    for side, seen in trace.sides.items():
        where = places(side, "target" in size)
        labels |= {f"{side}_layer": list(seen.layers), f"{side}_head": list(seen.heads)}
        found |= _variables(side, seen, where, labels)
    return xarray.Dataset(found, coords=labels)


def _variables(
    side: str, record: AttentionRecord, where: TokenSides, labels: dict[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """Dimensions and values of each array of a side."""
    heads, found = [f"{side}_layer", f"{side}_head"], {}
    rows, columns = where.queries, f"{where.keys}_key"
    for axis, window in ((0, record.query_window), (1, record.key_window)):
        if window is not None:  # its maps have positions of their own
            name = f"{side}_{('query', 'key')[axis]}"
            labels[name] = np.arange(*window)
            rows, columns = (name, columns) if axis == 0 else (rows, name)
    for name in FIELDS:
        if (array := getattr(record, name)) is None:
            continue
        if name in OF_MAPS:
            found[f"{side}.{name}"] = ([*heads, rows, columns], np.asarray(array)[:, 0])
        else:
            dimensions = [*heads, rows_of(name, where), f"{side}_{name}_depth"]
            found[f"{side}.{name}"] = (dimensions, np.asarray(array)[:, 0].swapaxes(1, 2))
    for name, array in record.stats.items():
        rank = [f"{side}_rank"] if array.ndim == 5 else []
        dimensions = [*heads, rows_of(name, where), *rank]
        found[f"{side}.{name}"] = (dimensions, np.asarray(array)[:, 0])
    return found
