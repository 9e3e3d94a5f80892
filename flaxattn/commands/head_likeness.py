# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Comparison of heads with each other in `flaxattn stats`: distances, groups, a map, variability.

Numbers are made in `flaxattn.measures.head_pairs`, `head_similarity` and `head_embedding`; here
they become files.
"""

import dataclasses
import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flaxattn.commands.head_corpus import read_inputs
from flaxattn.commands.head_request import Request
from flaxattn.commands.report_files import without_nan
from flaxattn.commands.report_layout import DISTANCES, LIKENESS, LIKENESS_MAP
from flaxattn.views.payloads.head_pages import Nearness

if TYPE_CHECKING:
    from flaxattn.measures.head_pairs import Pairs
    from flaxattn.measures.scored_corpus import ScoredCorpus
    from flaxattn.pipeline.progress_reporter import ProgressReporter

_GROUPS = 8
_NEEDS = "Capture(weights=True)"  # of a store


class HeadComparison(NamedTuple):
    """Part of a report.

    Attributes:
        facts: Ready for JSON.
        files: Content of files beside it, by name.
        nearness: Distances between all heads; None where they were not compared.
    """

    facts: dict[str, Any]
    files: dict[str, bytes]
    nearness: Nearness | None = None


def compared_heads(
    request: Request, corpus: "ScoredCorpus", texts: int, progress: "ProgressReporter"
) -> HeadComparison:
    """Compare all heads of a side with each other on the first texts of a corpus."""
    if texts and _lacks_maps(request, corpus.tally.side):
        return HeadComparison({"needs": _NEEDS}, {})
    count = min(texts, request.limit or texts)
    pairs = _pairs(request, count, corpus, progress) if texts else None
    if pairs is None:
        return HeadComparison({}, {})
    progress("grouping heads", 0)
    return _told(pairs)


def _lacks_maps(request: Request, side: str) -> bool:
    """Return whether a store is asked that holds statistics alone."""
    from flaxattn.store.open_store import open_store

    if not request.store:
        return False
    held = open_store(request.inputs[0]).shard(0).sides
    return side not in held or "weights" not in held[side]["arrays"]


def _pairs(
    request: Request, texts: int, corpus: "ScoredCorpus", progress: "ProgressReporter"
) -> "Pairs | None":
    import itertools

    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.measures.head_pair_scores import head_pairs
    from flaxattn.measures.head_pairs import pairs_of
    from flaxattn.store.open_store import open_store

    progress.expect("comparing heads", texts)
    side = corpus.tally.side
    if corpus.model is None:
        opened = itertools.islice(open_store(request.inputs[0]), texts)
        return pairs_of(opened, side)
    # The pass over all texts has reported what cannot be used.
    bad = BadRows("fail" if request.on_error == "fail" else "skip")
    reading = dataclasses.replace(request.reading(bad, progress), limit=texts)
    given = read_inputs(request, bad)[0]
    return head_pairs(corpus.model, given, side=side, reading=reading)


def _told(pairs: "Pairs") -> HeadComparison:
    if not np.isfinite(pairs.distances).all():
        return HeadComparison({"lacks": "heads whose attention is NaN or infinite"}, {})
    import matplotlib.pyplot as plt

    from flaxattn.measures.head_embedding import head_map
    from flaxattn.measures.head_pairs import variability, variability_interval
    from flaxattn.measures.head_similarity import likeness_of
    from flaxattn.views.figures.plot_head_map import plot_head_map

    likeness = likeness_of(pairs.distances, len(pairs.heads), _GROUPS)
    places = head_map(pairs.distances)
    varies = variability(pairs.beginnings)
    low, high = variability_interval(pairs.beginnings)
    without = variability(pairs.beginnings, exclude_first=True)
    rows = {
        "layer": pairs.layers,
        "head": pairs.heads,
        "x": places.points[:, 0],
        "y": places.points[:, 1],
        "group": likeness.groups,
        "place_in_order": np.argsort(likeness.order),
        "variability": varies,
        "low": low,
        "high": high,
        "variability_without_first": without,
    }
    figure = plot_head_map(pairs.layers, pairs.heads, likeness, places)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format="png")
    plt.close(figure)
    names = [f"{layer}.{head}" for layer, head in zip(pairs.layers, pairs.heads, strict=True)]
    members = [np.flatnonzero(likeness.groups == g) for g in range(likeness.groups.max() + 1)]
    facts = {
        "texts": pairs.texts,
        "divergence_in_nats": pairs.by_layer(),
        "groups": [[names[i] for i in group] for group in members],
        "stress_of_the_map": places.stress,
        "variability": dict(zip(names, np.round(varies, 4).tolist(), strict=True)),
    }
    files = {
        LIKENESS_MAP: drawn.getvalue(),
        LIKENESS: _table(rows),
        DISTANCES: _table(_distances(pairs)),
    }
    return HeadComparison(facts, files, Nearness(pairs.distances, pairs.texts))


def _distances(pairs: "Pairs") -> dict[str, Any]:
    """One row for every two heads."""
    one, other = np.triu_indices(len(pairs.heads), 1)
    layers, heads = np.array(pairs.layers), np.array(pairs.heads)
    counts, mean, m2 = (part[one, other] for part in pairs.moments)
    spread = np.sqrt(m2 / np.maximum(counts - 1, 1))
    return {
        "layer": layers[one],
        "head": heads[one],
        "other_layer": layers[other],
        "other_head": heads[other],
        "divergence": mean,
        "sd": np.where(counts > 1, spread, np.nan),
        "distance": pairs.distances,
    }


def _table(columns: dict[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    table = pa.table({name: without_nan(np.asarray(values)) for name, values in columns.items()})
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()
