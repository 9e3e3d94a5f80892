# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attribution maps of a model on texts: norms, gradients, effective attention, value zeroing.

`attention_norms`, `effective_attention`, `attention_gradients` and `value_zeroing` take a model and
texts and return maps by side; `fa.rollout` and `fa.attention_flow` read a trace. The arithmetic is
in `flaxattn.measures`; what needs the model run again is here.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.attribution.contributions import Maps, TextMaps, contributions, zeroing_shares
from flaxattn.attribution.relevance import sizes_of, slopes_of_losses, weight_gradients
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.models.interventions import Intervention, with_interventions
from flaxattn.models.seq2seq_config import RnnConfig
from flaxattn.pipeline.extraction import with_targets
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.head_projections import output_projections
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.text_lists import text_list
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

_VALUES = Capture(weights=True, value=True)
_OUTPUTS = Capture(weights=True, value=True, head_output=True)
_TOKENS = 4096  # positions of a batch of targets that are written
COPIES = 4096  # positions of the copies of a text that run at once, each without another value
Texts = str | Sequence[str]


@check_arguments()
def attention_norms(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    watch: Watch = show_progress,
) -> Maps:
    """‖α f(x)‖, how long a vector each key adds to each query (Kobayashi et al. 2020).

    f(x) is the value through the head's rows of the output projection, the bias of values counted.
    A norm behind attention, as Gemma 2, Gemma 3 and OLMo 2 have, is left out: lengths are those of
    what it reads, and it divides all vectors of a query by the same number.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> fa.attention_norms(model, "The cat is very sad.")["encoder"][0].shape  # [L, H, Q, K]
    (4, 4, 8, 8)

    Args:
        model: Any with multi-head attention, and a tokenizer.
        text: A text, or B of them.
        text_b: The second text, or the target, of each; an encoder-decoder without targets writes
            them.
        watch: Receives progress; the default shows it in notebooks.

    Returns:
        By side, `encoder`, `decoder` and `cross` as there are, one float array `[L, H, Q, K]` for
        each text, without padding. Lengths of vectors: rows do not sum to one.

    Raises:
        InputError: For a model whose attention has no heads, or a text that cannot be read.
    """
    return _collected("norm", iterate_norms(model, text, text_b), watch)


@check_arguments()
def effective_attention(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    watch: Watch = show_progress,
) -> Maps:
    """Attention without the part that makes no difference (Brunner et al. 2020).

    The part in the left null space of the values adds nothing to the output; texts longer than the
    depth of a head have such a part. A singular value decomposition for each head.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> fa.effective_attention(model, "The cat is very sad.")["encoder"][0].shape  # [L, H, Q, K]
    (4, 4, 8, 8)

    Args:
        model: As for `attention_norms`, like what follows.
        text: A text, or B of them.
        text_b: The second text, or the target, of each.
        watch: Receives progress.

    Returns:
        As `attention_norms`; rows need be neither positive nor sum to one.

    Raises:
        InputError: As `attention_norms`.
    """
    return _collected("effective", iterate_effective(model, text, text_b), watch)


@check_arguments()
def attention_gradients(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    labels: Sequence[int] | None = None,
    seed: int = 0,
    watch: Watch = show_progress,
) -> Maps:
    """α · ∂ loss / ∂ α, what the loss gains from each weight to first order.

    The loss is that of `fa.head_task`: of a masked model that of tokens which are masked, so
    attention is that over the masked text. One backward pass per text; no gradient of size Q·K is
    made by the model.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> fa.attention_gradients(model, "The cat is very sad.")["encoder"][0].shape  # [L, H, Q, K]
    (4, 4, 8, 8)

    Args:
        model: With a head that has such a loss, and a tokenizer.
        text: A text, or B of them.
        text_b: The second text of each pair; of an encoder-decoder, the target.
        labels: Number of the right class of each text, for a classifier.
        seed: Seed of the tokens that are masked.
        watch: Receives progress.

    Returns:
        As `attention_norms`; positive where a weight makes the loss larger.

    Raises:
        InputError: As `fa.head_task`.
    """
    each = iterate_gradients(model, text, text_b, labels=labels, seed=seed)
    return _collected("gradient", each, watch)


@check_arguments()
def value_zeroing(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    watch: Watch = show_progress,
) -> Maps:
    """Change of each position of a layer when the value of one key is zeroed (Mohebbi et al. 2023).

    The cosine distance between the outputs of a layer with and without the value of a key in all of
    its heads, rows divided by their sum; weights stay as they are. Costs L passes over K copies of
    each text; the last layer is judged where the model ends, after its last normalisation.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> fa.value_zeroing(model, "The cat is very sad.")["encoder"][0].shape  # [L, 1, Q, K]
    (4, 1, 8, 8)

    Args:
        model: As for `attention_norms`, like what follows.
        text: A text, or B of them.
        text_b: The second text, or the target, of each.
        watch: Receives progress.

    Returns:
        By side, one array `[L, 1, Q, K]` for each text: heads are zeroed together. Rows sum to one,
        or are 0 where nothing turns.

    Raises:
        InputError: As `attention_norms`.
    """
    return _collected("zeroing", iterate_zeroing(model, text, text_b), watch)


def iterate_norms(
    model: Pretrained, text: Texts, text_b: Texts | None = None
) -> Iterator[TextMaps]:
    """Maps of `attention_norms`, one text after another."""
    rows, projections = _rows(model, text, text_b), output_projections(model)
    for row in rows:
        yield _contributed(model.trace_tokens(row, _VALUES), "norm", projections=projections)


def iterate_effective(
    model: Pretrained, text: Texts, text_b: Texts | None = None
) -> Iterator[TextMaps]:
    """Maps of `effective_attention`, one text after another; arguments as for `iterate_norms`."""
    for row in _rows(model, text, text_b):
        yield _contributed(model.trace_tokens(row, _VALUES), "effective")


def iterate_gradients(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    labels: Sequence[int] | None = None,
    seed: int = 0,
) -> Iterator[TextMaps]:
    """Maps of `attention_gradients`, one text after another; arguments as there."""
    options = {"labels": labels, "truncate": False, "seed": seed}
    for trace, slopes, sizes in slopes_of_losses(model, text, text_b, False, options):
        yield weight_gradients(trace, slopes, sizes)


def iterate_zeroing(
    model: Pretrained, text: Texts, text_b: Texts | None = None
) -> Iterator[TextMaps]:
    """Maps of `value_zeroing`, one text after another; arguments as for `iterate_norms`."""
    for row in _rows(model, text, text_b):
        yield zeroing_of(model, row)


def zeroing_of(model: Pretrained, row: TokenizedTexts) -> TextMaps:
    """Maps of `value_zeroing` of one text."""
    module = model.module.clone(capture=_OUTPUTS, keep_hidden=True)
    given = row.padded(model.limit)
    out, state = _run(module, model.params, given)
    sizes, found = sizes_of(row.metadata), {}
    for side, record in Trace.from_variables(state).sides.items():
        queries, keys = sizes[side]
        maps = []
        for place in range(len(record.layers)):
            whole = np.asarray(_hidden(out, side)[place + 1])[0, :queries]
            without = _without(module, model.params, given, record, side, place)
            maps.append(zeroing_shares(whole, without[:keys, :queries]))
        found[side] = np.stack(maps)[:, None]
    return found


def _without(
    module: nn.Module,
    params: Any,
    given: dict[str, np.ndarray],
    record: AttentionRecord,
    side: str,
    place: int,
) -> Float[np.ndarray, "K Q E"]:
    """Outputs of a layer, each without the value of one key."""
    weights = np.asarray(record.weights, np.float32)[place, 0]
    values = np.asarray(record.value, np.float32)[place, 0]
    keys = len(values)  # padding too, so that texts of a width share a program
    positions = sum(array.shape[1] for name, array in given.items() if name.endswith("input_ids"))
    parts = -(-keys * positions // COPIES)
    count = -(-keys // parts)  # of every part alike, so that parts share a program
    copies = {name: np.repeat(array, count, axis=0) for name, array in given.items()}
    layer = record.layers[place]

    def outputs(chosen: np.ndarray) -> np.ndarray:
        lost = -np.einsum("hqk,khd->kqhd", weights[..., chosen], values[chosen])
        change = Intervention("head_output", lost, (layer,), operation="add", side=side)
        return np.asarray(_hidden_states(module, side, params, copies, change)[place + 1])

    places = np.minimum(np.arange(parts * count), keys - 1).reshape(parts, count)
    return np.concatenate([outputs(chosen) for chosen in places])[:keys]


@functools.partial(jax.jit, static_argnames=("module",))
def _run(module: nn.Module, params: Any, given: Any, interventions: Any = ()) -> Any:
    """Output and record of a module."""
    variables = with_interventions(params, interventions)
    return module.apply(variables, **given, mutable=["intermediates"])


@functools.partial(jax.jit, static_argnames=("module", "side"))
def _hidden_states(
    module: nn.Module, side: str, params: Any, given: Any, interventions: Any
) -> Sequence[Array]:
    """Hidden states of a side alone: of many copies, records and logits would fill the memory."""
    return _hidden(_run(module, params, given, interventions)[0], side)


def _hidden(out: Any, side: str) -> Sequence[Array]:
    """Hidden states of the stack that a side is part of."""
    if hasattr(out, "decoder_hidden_states"):
        return out.encoder_hidden_states if side == "encoder" else out.decoder_hidden_states
    return out.hidden_states


def check_heads(model: Pretrained) -> None:
    """Refuse a model whose attention has no heads."""
    if isinstance(model.config, RnnConfig):
        raise InputError(
            f"{model.name!r} has additive attention, without heads or values of its own: only its "
            "weights are defined.\nName a model with multi-head attention."
        )


def _rows(model: Pretrained, text: Texts, text_b: Texts | None) -> Sequence[TokenizedTexts]:
    """Each text as the model takes it, with the target that it writes where it came without."""
    check_heads(model)
    rows = model.read(text_list(text), None if text_b is None else text_list(text_b)).rows()
    return with_targets([model], rows, {}, _TOKENS)


def _contributed(trace: Trace, name: str, **given: Any) -> TextMaps:
    """One kind of maps of one text."""
    found = contributions(trace, [name], **given)[name]
    return {side: maps for side, (maps,) in found.items()}


def _collected(name: str, each: Iterable[TextMaps], watch: Watch) -> Maps:
    """The maps of several texts, by side."""
    found: Maps = {}
    for one in each:
        for side, maps in one.items():
            found.setdefault(side, []).append(maps)
        watch(name, 1)
    return found
