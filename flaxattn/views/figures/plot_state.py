# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of what a page shows: its state, copied in the browser, picks the same picture.

Filters that the page applies to weights are applied here to the same end; each is named on the
figure. How a state is made and read in the browser is in `views/assets/state.js`.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import SIDES, AttentionRecord
from flaxattn.trace.selection import choose
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_maps import Maps, read_maps
from flaxattn.views.figures.plot_atlas import plot_atlas
from flaxattn.views.figures.plot_heads import check_count, draw_heads
from flaxattn.views.figures.plot_model import draw_thumbnails
from flaxattn.views.figures.plot_neuron import plot_neuron
from flaxattn.views.figures.shown_once import shown_once
from flaxattn.views.payloads.page_state import check_state
from flaxattn.views.payloads.side_payload import one_side, recorded
from flaxattn.views.payloads.weight_kinds import RAW, Given, read_kinds
from flaxattn.views.payloads.weight_payload import Effects

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SENTENCES = {"a": 0, "b": 1}
_PARTS = {"a": "prompt", "b": "continuation"}


@dataclasses.dataclass(frozen=True)
class _Selected:
    """Maps as a page shows them, and which tokens they are between."""

    maps: Maps
    queries: list[str]
    keys: list[str]
    layers: list[int]
    heads: list[int]
    said: list[str]


@shown_once
@check_arguments()
def plot_state(
    trace: Trace,
    state: Mapping[str, Any] | str,
    ax: "Axes | None" = None,
    *,
    weights: Given | None = None,
    effects: Effects | Sequence[Effects] | None = None,
) -> "Figure":
    """Draw what a page shows of a trace.

    Level, text, side, layer and heads choose the figure: `plot_atlas`, thumbnails of all heads,
    maps of the heads that are on, or `plot_neuron`. Pinned tokens, the sentence pair, hidden
    special or first tokens and the slider of mass change its weights as in the page.

    Args:
        trace: The one the page was made of.
        state: What "copy state" gave, as JSON or as the object it holds. Everything may be left
            out: then the head level, the first text, side and layer, and all heads.
        ax: Axes to draw into, of a state that shows one picture.
        weights: As the page was given them; the state says which of them it shows.
        effects: As the page was given them.

    Returns:
        The figure, to be shown or saved.

    Raises:
        InputError: If the state is no JSON object, names what the trace or `weights` have not, or
            shows what no figure draws: words in place of pieces, a difference, or all sides in one
            square.
    """
    told = _read(state)
    level = str(told.get("level", "head"))
    sequence = int(told.get("sequence", 0))
    side = _side(trace, told)
    if level == "atlas":
        measure, order = told.get("measure") or "entropy", told.get("order", "grid")
        kinds = read_kinds(trace, _picked(weights, told))
        own = {
            name: {side: [maps[sequence]] for side, maps in kind.sides.items()}
            for name, kind in kinds.items()
        }
        beside = {"weights": own or None, "effects": effects}
        return plot_atlas(trace[sequence], measure, ax, side=side, order=order, **beside)
    if level == "neuron":
        seen, _, _ = one_side(trace, sequence, side)
        heads = choose(told.get("heads"), seen.heads, "head")
        layer = _layer(told, seen, side)
        return plot_neuron(trace, layer, heads[0], told.get("query") or 0, sequence, ax, side=side)
    chosen = _selected(trace, told, sequence, side, weights, whole=level == "model")
    if level == "model":
        title = ", ".join(chosen.said)
        return draw_thumbnails(chosen.maps, chosen.layers, chosen.heads, title, ax)
    return _heads(chosen, ax)


def _read(state: Mapping[str, Any] | str) -> Mapping[str, Any]:
    try:
        told = json.loads(state) if isinstance(state, str) else state
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"This state is no JSON: {error}.\nCopy it whole from the page."
        ) from error
    if not isinstance(told, Mapping):
        raise InputError(
            f"A state is a JSON object, received {type(told).__name__}.\n"
            "Copy it from the page, or write one: {'level': 'head', 'layer': 3}."
        )
    if told.get("unit", "pieces") != "pieces":
        raise InputError(
            "This state shows words; figures draw the pieces a model reads.\n"
            "Turn words off in the page, or leave out the state's 'unit'."
        )
    if told.get("compare") == "difference":
        raise InputError(
            "plot_state draws one trace; this state shows the difference of two.\n"
            "Use fa.plot_compare(first, second), or switch the page to one of them."
        )
    return check_state(told)


def _side(trace: Trace, told: Mapping[str, Any]) -> str | None:
    """The side the state names; None where a trace has one side only."""
    name = told.get("side")
    if name == "all":
        raise InputError(
            "This state shows all sides in one square, which no figure draws.\n"
            "Choose encoder, decoder or cross in the page."
        )
    held = [n for n in SIDES if getattr(trace, n) is not None]
    return None if name is None or (name not in held and len(held) == 1) else str(name)


def _layer(told: Mapping[str, Any], record: AttentionRecord, side: str | None) -> int:
    """The layer that is shown; by default the one the page begins with."""
    usual = record.layers[max(0, len(record.layers) - 2) if side == "cross" else 0]
    asked = told.get("layer")
    return choose([usual if asked is None else int(asked)], record.layers, "layer")[0]


def _selected(
    trace: Trace,
    told: Mapping[str, Any],
    sequence: int,
    side: str | None,
    given: Given | None,
    *,
    whole: bool,
) -> _Selected:
    """The weights a page shows, of all layers and heads or of those that are on."""
    seen, queries, keys = one_side(trace, sequence, side)
    seen.require_whole("Drawing a state")
    layers = list(seen.layers) if whole else [_layer(told, seen, side)]
    heads = choose(None if whole else told.get("heads"), seen.heads, "head")
    picked = _picked(given, told)
    maps = read_maps(trace, picked, sequence, side, seen, layers, heads)
    weights = maps.values.copy()
    one, own, said = trace[sequence], side or next(iter(recorded(trace))), []
    rows, columns = _positions(one, own, told, (len(queries), len(keys)), said)
    if hidden := sorted(_hidden(one, own, told, said)):
        weights[..., hidden] = 0
        said[-1] += ", renormalised" if maps.shares else ""
        weights = _renormalised(weights) if maps.shares else weights
    if (mass := float(told.get("mass", 100)) / 100) < 1:
        said.append(f"{mass:.0%} of each row's mass")
        weights = _heaviest(weights, mass)
    for name, axis in (("query", rows), ("key", columns)):
        if (pinned := told.get(name)) is not None and not whole:
            axis[:] = [place for place in axis if place == pinned]
            said.append(f"{name} {pinned}")
    if not rows or not columns:
        raise InputError(
            "This state shows no position of the text: all are filtered away.\n"
            "Take back a filter or a pin in the page."
        )
    return _Selected(
        dataclasses.replace(maps, values=weights[:, :, rows][..., columns]),
        [queries[i] for i in rows],
        [keys[i] for i in columns],
        layers,
        heads,
        said,
    )


def _positions(
    one: Trace, side: str, told: Mapping[str, Any], sizes: tuple[int, int], said: list[str]
) -> tuple[list[int], list[int]]:
    """Positions on the left and on the right that the filters leave."""
    left, right = (list(range(size)) for size in sizes)
    pair = str(told.get("attention", "all"))
    alone = side == "decoder" and one.encoder is None  # segments are a prompt and what follows it
    if pair != "all" and one.segments is not None and (side == "encoder" or alone):
        segments = np.asarray(one.segments[0])
        left, right = (np.flatnonzero(segments == _SENTENCES[name]).tolist() for name in pair)
        parts = [_PARTS[name] for name in pair] if alone else list(pair.upper())
        said.append(f"{'' if alone else 'sentence '}{' → '.join(parts)}")
    if told.get("special") == "hidden":
        of_queries, of_keys = _specials(one, side)
        left = [i for i in left if i not in of_queries]
        right = [i for i in right if i not in of_keys]
    return left, right


def _specials(one: Trace, side: str) -> tuple[set[int], set[int]]:
    """Positions of special pieces on the left and on the right of a side."""
    source = set() if one.special is None else set(np.flatnonzero(one.special[0]).tolist())
    if side == "encoder" or not (one.decoder_tokens or one.written):
        return source, source
    read = one.decoder_special
    target = set() if read is None else set(np.flatnonzero(read[0]).tolist())
    if side == "decoder":
        return target, target
    if one.written:
        pieces, words = one.written[0], one.decoder_words[0] if one.decoder_words else []
        target = {i for i, word in enumerate(words) if word is None and pieces[i].strip(" ▁")}
    return target, source


def _hidden(one: Trace, side: str, told: Mapping[str, Any], said: list[str]) -> set[int]:
    """Keys whose weight is shared out among the others."""
    special = _specials(one, side)[1] if told.get("special") == "hidden" else set()
    first = {0} if told.get("first") == "hidden" else set()
    named = [name for name, keys in (("special tokens", special), ("first token", first)) if keys]
    if named:
        said.append(f"{' and '.join(named)} out")
    return special | first


def _heaviest(weights: Float[np.ndarray, "L H Q K"], mass: float) -> Float[np.ndarray, "L H Q K"]:
    """Zeros in place of all but the fewest weights that hold a share of their row."""
    sizes = np.abs(np.nan_to_num(weights))
    ordered = -np.sort(-sizes, axis=-1)
    enough = ordered.cumsum(-1) >= mass * sizes.sum(-1, keepdims=True) - 1e-6
    smallest = np.take_along_axis(ordered, enough.argmax(-1)[..., None], -1)
    return np.where((sizes >= smallest) | np.isnan(weights), weights, 0)


def _renormalised(weights: Float[np.ndarray, "L H Q K"]) -> Float[np.ndarray, "L H Q K"]:
    """Rows scaled up to a sum of one; what has NaN in it stays as it is."""
    total = weights.sum(-1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.where(np.isnan(total), weights, shares)


def _picked(given: Given | None, told: Mapping[str, Any]) -> Given | None:
    """The one kind of weights that a state shows; None for attention."""
    name = told.get("weights", RAW)
    if name == RAW:
        return None
    if name not in (given or {}):
        raise InputError(
            f"This state shows the weights {name!r}; plot_state was given "
            f"{', '.join(given or ()) or 'none'}.\n"
            f"Give what the page was given: plot_state(trace, state, weights={{{name!r}: …}})."
        )
    return {name: (given or {})[name]}


def _heads(chosen: _Selected, ax: "Axes | None") -> "Figure":
    """Maps of the heads that are on, of what is selected."""
    check_count(len(chosen.layers), len(chosen.heads), ax)
    titles = chosen.maps.titles(chosen.layers, chosen.heads)
    if chosen.said:
        titles = [[f"{title}\n{', '.join(chosen.said)}" for title in row] for row in titles]
    return draw_heads(chosen.maps, titles, chosen.queries, chosen.keys, ax)
