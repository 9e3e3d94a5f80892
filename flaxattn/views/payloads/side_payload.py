# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The sides of a trace as a page knows them: what attends to what, where, and under which text.

Where a trace has cross-attention, a page holds all its sides, and joined ones if there are three.
Next-token probabilities are k + 2 numbers and as many whole ones for each token, with contributions
to the logits four and one for each head more; a trace without predictions adds nothing. This file
shapes payloads; `trace_page.py` decides what a page shows.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.measures.head_measures import (
    MAJORITY,
    CrossMeasures,
    HeadMeasures,
    cross_measures,
    head_measures,
    repeated_token_shares,
)
from flaxattn.measures.head_similarity import head_likeness
from flaxattn.trace.record import AttentionRecord, layer_weights
from flaxattn.trace.token_predictions import Predictions
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.neuron_payload import shape_neuron
from flaxattn.views.payloads.page_encoding import Blocks, Precision, encode_weights, visible

ALL = "all"
# Texts on the left (queries) and on the right (keys) of each side. A row of cross-attention stands
# beside what it wrote; self-attention of a decoder is among what it read.
_TEXTS = {
    "encoder": (["source"], ["source"]),
    "decoder": (["read"], ["read"]),
    "cross": (["written"], ["source"]),
    ALL: (["source", "written"], ["source", "read"]),
}
_REPEATS = {"duplicate": "duplicate token", "induction": "induction"}
_MEASURES = (
    "next",
    "previous",
    "own",
    "strongest",
    "delimiter",
    "first",
    "same_segment",
    "entropy",
    "distance",
)


def recorded(trace: Trace, *, numbers_do: bool = False) -> dict[str, AttentionRecord]:
    """The sides of a trace that have weights, by name."""
    sides = {"encoder": trace.encoder, "decoder": trace.decoder, "cross": trace.cross}
    found = {
        name: record for name, record in sides.items() if record and record.weights is not None
    }
    present = {name: record for name, record in sides.items() if record and _query_stats(record)}
    if numbers_do and present and not found:
        return present
    if not found:
        held = next(
            (", ".join(record.stats) for record in sides.values() if record and record.stats), ""
        )
        raise InputError(
            "A view draws attention weights; this trace holds "
            f"{f'only {held}' if held else 'nothing to draw'}.\n"
            "Capture them: model.trace(text, capture=fa.Capture(weights=True))."
        )
    return found


def one_side(
    trace: Trace, sequence: int, side: str | None = None
) -> tuple[AttentionRecord, list[str], list[str]]:
    """One side of a sequence without its padding, the tokens of its rows and of its columns.

    For a window of weights, the tokens are those of the window.
    """
    found = recorded(trace)
    name = check_side(side, list(found)) or next(iter(found))
    one = trace[sequence]
    texts = {"source": one.tokens, "read": one.decoder_tokens or one.written}
    texts["written"] = one.written or one.decoder_tokens
    queries, keys = (texts[text] or one.tokens for (text,) in _TEXTS[name])
    record = recorded(one)[name]
    rows = list(queries[0])[slice(*record.query_window or (None,))]
    columns = list(keys[0])[slice(*record.key_window or (None,))]
    if not rows or not columns:
        raise InputError(
            f"The window of weights holds no position of sequence {sequence}, only padding.\n"
            "Choose another sequence, or capture a window within it."
        )
    return record, rows, columns


def check_side(requested: str | None, names: Sequence[str]) -> str | None:
    """Check the side that was requested."""
    if requested is not None and requested not in names:
        raise InputError(f"There is no side {requested!r}.\nThis trace has {', '.join(names)}.")
    return requested


def side_names(found: Mapping[str, Any]) -> list[str]:
    """Names of the sides that a page can show; the joined square needs all three."""
    return [*found, *([ALL] if len(found) == 3 else [])]


def numbers(found: Mapping[str, Sequence[int]], side: str) -> list[int]:
    """Layers, or heads, of a side; the joined square has those of any side."""
    return sorted(set().union(*found.values())) if side == ALL else list(found[side])


def shape_input(
    one: Trace,
    found: Mapping[str, AttentionRecord],
    layers: Mapping[str, Sequence[int]],
    precision: Precision,
    blocks: Blocks,
    number: int,
    *,
    likeness: bool = True,
) -> dict[str, Any]:
    """One sequence as a page holds it: its texts, and weights and measures of its sides."""
    sides = {
        side: shape_side(
            one, side, found[side], chosen, precision, blocks, f"{number}/{side}", likeness=likeness
        )
        for side, chosen in layers.items()
    }
    heads = {side: found[side].heads for side in sides}
    joined = {"layers": numbers(layers, ALL), "heads": numbers(heads, ALL)}
    named = side_names(sides)
    used = {text for side in named for column in _TEXTS[side] for text in column}
    return {
        "truncated": int(one.truncated[0]) if one.truncated else 0,
        "texts": {name: make(one) for name, make in _makers().items() if name in used},
        "sides": [
            {"name": side, "left": _TEXTS[side][0], "right": _TEXTS[side][1]}
            | sides.get(side, joined)
            for side in named
        ],
    }


def side_texts(one: Trace, side: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Texts on the left and on the right of a side, as a page holds them."""
    (left,), (right,) = _TEXTS[side]
    return _makers()[left](one), _makers()[right](one)


def _makers() -> dict[str, Callable[[Trace], dict[str, Any]]]:
    return {"source": _source, "read": _read, "written": _written}


def shape_side(
    one: Trace,
    side: str,
    record: AttentionRecord,
    layers: Sequence[int],
    precision: Precision,
    blocks: Blocks,
    prefix: str,
    *,
    likeness: bool = True,
) -> dict[str, Any]:
    """Weights of the chosen layers, what each head does, and how alike the heads are."""
    about: dict[str, Any] = {"layers": list(layers), "heads": list(record.heads)}
    if record.weights is None:
        return about | {"measures": _mean_statistics(record, layers)}
    weights = layer_weights(record, layers, allow_nan=True)
    about["weights"] = [
        blocks.put(f"{prefix}/weights/{number}", encode_weights(layer, precision))
        for number, layer in zip(layers, weights, strict=True)
    ]
    about["measures"] = side_measures(one, side, record, layers)
    if not likeness:
        return about
    about["likeness"] = shape_likeness(weights, blocks, f"{prefix}/distances")
    neuron = shape_neuron(record, one, side, layers, blocks, prefix)
    return about | ({"neuron": neuron} if neuron else {})


def shape_likeness(
    weights: Float[np.ndarray, "L H Q K"], blocks: Blocks, block: str
) -> dict[str, Any]:
    """Return distances between heads in the form a page holds."""
    alike = head_likeness(np.nan_to_num(weights).reshape(-1, *weights.shape[2:]))
    steps = np.rint(255 * alike.distances).astype(np.uint8)
    return {
        "order": alike.order.tolist(),
        "groups": alike.groups.tolist(),
        "distances": blocks.add(block, steps),
    }


def _source(one: Trace) -> dict[str, Any]:
    special = None if one.special is None else one.special[0]
    words = one.words[0] if one.words else None
    text = _text(one.tokens[0], special, _boundary(one), words) | source_text(one)
    alone = one.encoder is None and one.cross is None and text["boundary"] is not None
    return text | ({"parts": ["Prompt", "Continuation"]} if alone else {})


def _read(one: Trace) -> dict[str, Any]:
    """Tokens that a decoder read; without an encoder, those of the text itself."""
    tokens = one.decoder_tokens or one.written
    if not tokens:
        return _source(one)
    special = None if one.decoder_special is None else one.decoder_special[0]
    return _text(tokens[0], special, words=_read_words(one))


def _read_words(one: Trace) -> list[int | None] | None:
    """Words of what was read: what was written, one position later."""
    if not one.decoder_words or not one.decoder_tokens or not one.written:
        return None
    later = one.decoder_tokens[0][1:] == one.written[0][:-1]
    return [None, *one.decoder_words[0][:-1]] if later else None


def _written(one: Trace) -> dict[str, Any]:
    """Tokens in no word are special, unless they are just blank."""
    if not one.written:
        return _read(one)
    tokens = one.written[0]
    words = one.decoder_words[0] if one.decoder_words else [0] * len(tokens)
    blank = [not token.strip(" ▁") for token in tokens]
    special = [w is None and not b for w, b in zip(words, blank, strict=True)]
    known = one.decoder_words[0] if one.decoder_words else None
    return _text(tokens, np.array(special, bool), words=known)


def _text(
    tokens: Sequence[str],
    special: Any,
    boundary: int | None = None,
    words: Sequence[int | None] | None = None,
) -> dict[str, Any]:
    """Text fields of a page; tokens that draw nothing are made visible."""
    return {
        "tokens": [visible(token) for token in tokens],
        "special": [] if special is None else np.flatnonzero(special).tolist(),
        "boundary": boundary,
        "words": None if words is None else [None if w is None else int(w) for w in words],
    }


def _boundary(one: Trace) -> int | None:
    """Position at which sentence B begins; None if the text is not one A followed by one B."""
    if one.segments is None:
        return None
    segments = one.segments[0]
    boundary = int((segments == 0).sum())
    in_order = (segments[:boundary] == 0).all() and (segments[boundary:] == 1).all()
    return boundary if in_order and 0 < boundary < len(segments) else None


def side_measures(
    one: Trace, side: str, record: AttentionRecord, layers: Sequence[int]
) -> list[list[dict[str, Any]]]:
    """Measures of each head of the chosen layers."""
    if side == "cross":
        found: Sequence[CrossMeasures | HeadMeasures] = cross_measures(one)
    elif side == "decoder" and one.decoder_tokens:
        found = head_measures(Trace(decoder=record, special=one.decoder_special))
    else:  # of a decoder, segments are a prompt and what was written, no sentences
        found = head_measures(one if side == "encoder" else dataclasses.replace(one, segments=None))
    measured = {(m.layer, m.head): _measure(m) for m in found}
    if side != "cross":
        separate = side == "decoder" and one.decoder_tokens
        _add_repeats(measured, record, (one.decoder_tokens if separate else one.tokens)[0])
    payload = _mean_statistics(record, layers)
    return [
        [extra | measured[layer, head] for head, extra in zip(record.heads, row, strict=True)]
        for layer, row in zip(layers, payload, strict=True)
    ]


def _add_repeats(
    measured: Mapping[tuple[int, int], dict[str, Any]],
    record: AttentionRecord,
    tokens: Sequence[str],
) -> None:
    """Add what heads of a decoder do at tokens that occur in the text before."""
    weights = layer_weights(record, record.layers, allow_nan=True)
    for name, shares in repeated_token_shares(weights, tokens).items():
        for place, measure in measured.items():
            share = shares[record.layers.index(place[0]), record.heads.index(place[1])]
            measure[name] = round(float(share), 4)
            if share > MAJORITY:
                measure["does"] = _REPEATS[name]


def _query_stats(record: AttentionRecord) -> list[str]:
    """Statistics with a number per query, whose mean describes a head."""
    return [n for n in ("entropy", "max", "distance", "sum_sq", "lse") if n in record.stats]


def _mean_statistics(record: AttentionRecord, layers: Sequence[int]) -> list[list[dict[str, Any]]]:
    """Means over queries of the statistics that a trace of one sequence has."""
    stats = {
        name: np.asarray(record.stats[name], np.float32)[:, 0] for name in _query_stats(record)
    }
    means = {name: values.mean(-1) for name, values in stats.items()}
    rows = [record.layers.index(number) for number in layers]
    known = [
        [
            {name: float(mean[row, head]) for name, mean in means.items()}
            for head in range(len(record.heads))
        ]
        for row in rows
    ]
    return [[{"does": ""} | _finite(values) for values in heads] for heads in known]


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(v, 4) for name, v in values.items() if math.isfinite(v)}


def _measure(measure: CrossMeasures | HeadMeasures) -> dict[str, Any]:
    """Measures of a head in this text; those that the text does not have are left out."""
    known = [name for name in _MEASURES if hasattr(measure, name)]
    does = "not a number" if math.isnan(measure.entropy) else measure.does
    return {"does": does} | _finite({name: getattr(measure, name) for name in known})


def source_text(one: Trace) -> dict[str, Any]:
    """Return the passages of a sequence, and the span of each of its tokens."""
    if not one.texts or not one.spans:
        return {}
    passages = [[visible(char) for char in text] for text in one.texts[0]]
    places = [
        list(itertools.accumulate((_units(char) for char in passage), initial=0))
        for passage in passages
    ]
    of_token = _passages(one, len(passages))
    spans: list[list[int] | None] = []
    for number, span in zip(of_token, one.spans[0], strict=True):
        ends = places[number]
        if span is None:
            spans.append(None)
        elif not 0 <= span[0] <= span[1] < len(ends):
            return {}
        else:
            spans.append([number, ends[span[0]], ends[span[1]]])
    return {"passages": ["".join(passage) for passage in passages], "spans": spans}


def _passages(one: Trace, count: int) -> list[int]:
    """Passage that each token is of: of a pair its segment, else the only one."""
    if count == 1 or one.segments is None:
        return [0] * len(one.tokens[0])
    return np.minimum(np.asarray(one.segments[0]), count - 1).tolist()


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


# Where a token of a text stands to what is predicted. A row of cross-attention stands beside what
# was generated from it.
_PLACES = {"read": "after", "written": "here"}


def add_predictions(
    inputs: Sequence[dict[str, Any]],
    ones: Sequence[Trace],
    layers: Mapping[str, Sequence[int]],
    blocks: Blocks,
) -> None:
    """Put the predictions of traces that have any into the sequences of a page.

    Each then has `predictions`: `texts`, whether a token of a text is `after` or `here` where the
    model predicts; `tokens`, all that are named; `count` (k); `ends`, positions where the text
    ends; and names of blocks. `names` holds k + 2 int32 for each position: places of the
    alternatives and of the target in `tokens`, and its rank. `scores` holds k + 1 float32: their
    probabilities. For contributions, `parts` holds four float32: those of all heads, all
    feed-forward layers, the embeddings and the biases; `heads` names a block `[T, H]` for each
    layer of the decoder.
    """
    for number, (shaped, one) in enumerate(zip(inputs, ones, strict=True)):
        found = one.predictions
        if found is None or not np.isfinite(found.log_probability).all():
            continue
        texts = {name: place for name, place in _PLACES.items() if name in shaped["texts"]}
        prefix = f"{number}/predictions"
        named = [*found.tokens[0], *(token for row in found.alternatives[0] for token in row)]
        places = {token: place for place, token in enumerate(dict.fromkeys(map(visible, named)))}
        shaped["predictions"] = {
            "texts": texts,
            "tokens": list(places),
            "count": found.likeliest.shape[-1],
            "ends": np.flatnonzero(~found.follows[0]).tolist(),
            "names": blocks.add(f"{prefix}/names", _names(found, places)),
            "scores": blocks.add(f"{prefix}/scores", _scores(found)),
        } | _contributions(found, one, layers.get("decoder", ()), blocks, prefix)


def _names(found: Predictions, places: Mapping[str, int]) -> np.ndarray:
    """Places of the alternatives and of the target, and its rank, of each position."""
    rows = zip(found.alternatives[0], found.tokens[0], found.rank[0].tolist(), strict=True)
    return np.array(
        [[*(places[visible(t)] for t in (*likely, own)), rank] for likely, own, rank in rows],
        np.int32,
    )


def _scores(found: Predictions) -> Float[np.ndarray, "T N"]:
    """Probabilities of the alternatives and of the target."""
    both = np.concatenate([found.likeliest[0], found.log_probability[0][:, None]], axis=1)
    return np.exp(both.astype(np.float64)).astype(np.float32)


def _contributions(
    found: Predictions, one: Trace, layers: Sequence[int], blocks: Blocks, prefix: str
) -> dict[str, Any]:
    """Parts of the logits by what adds them, where that is known."""
    if found.heads is None or one.decoder is None or not np.isfinite(found.heads).all():
        return {}
    assert found.feed_forward is not None and found.embedding is not None and found.bias is not None
    heads, fed = (array[0].astype(np.float64) for array in (found.heads, found.feed_forward))
    totals = [heads.sum((1, 2)), fed.sum(1), found.embedding[0], found.bias[0]]
    shown = heads[:, :, list(one.decoder.heads)].astype(np.float32)
    return {
        "parts": blocks.add(f"{prefix}/parts", np.stack(totals, 1).astype(np.float32)),
        "heads": [blocks.add(f"{prefix}/heads/{n}", shown[:, n]) for n in layers],
    }
