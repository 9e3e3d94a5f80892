# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The task of patching: which parts of a model are patched, pairs of texts, and the metric.

`PatchRequest` names the parts, the donor run and the metric. Pairs become arrays: inputs, answers,
and groups of positions.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.corpus.texts import TextPair
from flaxattn.errors import InputError
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.interventions import SITES
from flaxattn.models.layers import at_positions
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.model_types import CLASSIFIERS, ENCODER_CLASSIFIERS, MASKED_LM
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_model import Pretrained

Metric = Literal["logit-diff", "logit", "probability", "kl"]
METRICS: tuple[Metric, ...] = ("logit-diff", "logit", "probability", "kl")
"""Metrics: the logit of the answer minus that of the wrong one; the logit of the answer; its
probability; the Kullback-Leibler divergence from the clean run, in nats."""

Positions = Literal["all", "segment", "token"]


def scores_at(
    module: nn.Module,
    variables: Mapping[str, Any],
    inputs: Mapping[str, Array],
    places: Int[Any, " B"],
    mutable: tuple[str, ...] = (),
) -> tuple[Float[Array, "B V"], Mapping[str, Any]]:
    """Scores of the answer's candidates, and the mutable collections.

    A language model multiplies only the answered positions with the vocabulary.
    """

    def run(bound: Any, inputs: Mapping[str, Array]) -> Array:
        if isinstance(module, DecoderLM | Seq2SeqLM):
            hidden = bound.model(**inputs).last_hidden_state
            return bound.scores(at_positions(hidden, places[:, None])[:, 0])
        if isinstance(module, MASKED_LM):
            return bound(**inputs, masked_positions=places[:, None]).token_scores[:, 0]
        return bound(**inputs).logits

    result: Any = module.apply(variables, inputs, method=run, mutable=list(mutable) or False)
    scores, state = result if mutable else (result, {})
    return scores.astype(jnp.float32), state


def metric_values(
    metric: Metric,
    scores: Float[Array, "B V"],
    answers: Int[Any, " B"],
    wrong: Int[Any, " B"],
    clean_scores: Float[Array, "B V"],
) -> Float[Array, " B"]:
    """The metric of each text."""
    rows = jnp.arange(len(scores))
    if metric == "kl":
        clean, other = (jax.nn.log_softmax(s) for s in (clean_scores, scores))
        return (jnp.exp(clean) * (clean - other)).sum(-1)
    if metric == "probability":
        return jnp.exp(jax.nn.log_softmax(scores)[rows, answers])
    right = scores[rows, answers]
    return right if metric == "logit" else right - scores[rows, wrong]


Method = Literal["activation", "attribution", "path", "knockout", "mediation"]
METHODS: tuple[Method, ...] = ("activation", "attribution", "path", "knockout", "mediation")
RECEIVING = ("query", "key", "value")
_CHOICES = {
    "method": METHODS,
    "metric": METRICS,
    "by": ("head", "layer"),
    "positions": ("all", "segment", "token"),
    "direction": ("denoise", "noise"),
    "donor": ("pair", "zero", "mean"),
    "side": (None, "encoder", "decoder", "cross"),
}
_DEFAULTS = {"site": "head_output", "direction": "denoise", "donor": "pair"}
_NAMES = {"positions": "kind of positions", "by": "unit to patch by", "into": "input"}
STREAM = ("layer_input", "layer_output", "attention_output", "feed_forward_output")
"""Sites without heads."""
_NARROW = {  # what a method fixes
    "knockout": {"site": "scores", "direction": "noise", "donor": "pair"},
    "mediation": {"site": "weights", "direction": "noise", "donor": "pair"},
    "path": {"site": "head_output", "donor": "pair"},
}


@dataclasses.dataclass(frozen=True)
class PatchRequest:
    """A request to patch every head, or every layer, of a model on pairs of texts.

    These are the methods:

    - `activation`: a site takes its values from the other run (Vig et al. 2020; Meng et al. 2022).
    - `attribution`: the same to first order, by one backward pass (Nanda 2023), with its error
      measured on some of the heads.
    - `path`: a head's output reaches the receivers, or the scores, along the direct path alone; all
      other heads keep their values (Wang et al. 2023).
    - `knockout`: the answered position may not attend to a group of positions (Geva et al. 2023).
    - `mediation`: attention weights are exchanged; the effect through a head (indirect), and the
      effect that is left with it held (direct), as natural effects (Vig et al. 2020).

    >>> import flaxattn as fa
    >>> request = fa.PatchRequest("knockout", metric="probability", positions="segment")
    >>> request.method, request.direction
    ('knockout', 'noise')

    Attributes:
        method: One of the above.
        metric: "logit-diff", "logit", "probability" or "kl".
        site: What is patched, one of `flaxattn.models.interventions.SITES`; a method may fix it.
        by: "head" patches each head by itself, "layer" all heads of a layer together.
        positions: "all" patches all positions together, "segment" the five groups of
            `flaxattn.attribution.patch_task.SEGMENTS`, "token" each position by itself. For paths
            these are the positions of the sender; receivers read at all positions.
        direction: "denoise" patches clean values into the corrupted run, "noise" the reverse.
        donor: Source of the values: the other text of the pair, "zero", or the "mean" over all
            texts and positions of the donor side.
        receivers: Layers and heads that paths end in; empty for the scores.
        into: What receivers take from the patched run: "query", "key", "value".
        freeze_feed_forward: Whether paths lead through attention alone.
        window: Number of layers that are patched together, the middle one named; odd.
        side: Attention of an encoder-decoder that is patched; None for all.

    Raises:
        InputError: For an unknown name, or choices that do not go together.
    """

    method: Method = "activation"
    metric: Metric = "logit-diff"
    site: str = "head_output"
    by: Literal["head", "layer"] = "head"
    positions: Positions = "all"
    direction: Literal["denoise", "noise"] = "denoise"
    donor: Literal["pair", "zero", "mean"] = "pair"
    receivers: tuple[tuple[int, int], ...] = ()
    into: tuple[str, ...] = RECEIVING
    freeze_feed_forward: bool = False
    window: int = 1
    side: str | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            _check_choice(name, getattr(self, name), choices)
        for name, value in _NARROW.get(self.method, {}).items():
            if getattr(self, name) not in (value, _DEFAULTS[name]):
                raise InputError(
                    f"The method {self.method} has the {name} {value}; received "
                    f"{getattr(self, name)!r}.\nLeave {name} out, or choose another method."
                )
            object.__setattr__(self, name, value)
        _check_choice("site", self.site, SITES)
        for site in self.into:
            _check_choice("into", site, RECEIVING)
        object.__setattr__(self, "receivers", tuple(tuple(head) for head in self.receivers))
        if self.receivers and self.method != "path":
            raise InputError(
                f"receivers are heads that paths end in; the method is {self.method}.\n"
                "Leave them out, or choose the method path."
            )
        if self.method == "path" and self.by != "head":
            raise InputError(f"Paths begin at heads; received by {self.by}.\nLeave it out.")
        if self.site in STREAM and self.by == "head":
            raise InputError(
                f"{self.site} has no heads, so it cannot be patched by head.\n"
                "Choose by layer, or a site of heads such as head_output."
            )
        if self.site == "scores" and self.method != "knockout":
            raise InputError(
                "Scores of two runs are not comparable, so they are not patched.\n"
                "Choose the site weights, or the method knockout."
            )
        if self.site == "weights" and self.donor == "mean":
            raise InputError(
                "Weights of texts have no mean over positions.\nChoose the donor pair or zero."
            )
        if self.window < 1 or self.window % 2 == 0:
            raise InputError(f"window is {self.window} layers, expected an odd number from 1 on.")

    def described(self) -> dict[str, Any]:
        """The request for a report."""
        return dataclasses.asdict(self)


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise InputError(
            f"There is no {_NAMES.get(name, name)} {value!r}.\n"
            f"Choose one of {', '.join(str(c) for c in choices if c is not None)}."
        )


SEGMENTS = ("first", "before", "changed", "after", "answered")
"""Groups of positions that every pair has: the first position, those before the change, those that
differ, those behind it, and the one where the answer is read."""
_MASKS = {"decoder_head_mask": "decoder", "cross_attn_head_mask": "cross"}


class PatchBatch(NamedTuple):
    """B pairs of one padded length; the last rows may repeat a pair.

    Attributes:
        clean: Arguments of the module for the clean texts.
        corrupted: The same for the corrupted ones.
        places: Position at which the answer is read; -1 where it is read from all of them.
        answers: Ids of the answers.
        wrong: Ids of the wrong answers; of the answers where there are none.
        groups: Groups of source positions; a position belongs to one at most. None for a single
            group of all positions, of whatever side.
    """

    clean: Mapping[str, Int[np.ndarray, "B S"]]
    corrupted: Mapping[str, Int[np.ndarray, "B S"]]
    places: Int[np.ndarray, " B"]
    answers: Int[np.ndarray, " B"]
    wrong: Int[np.ndarray, " B"]
    groups: Bool[np.ndarray, "P B S"] | None

    def rows(self, start: int, count: int) -> "PatchBatch":
        """Some pairs, the last one repeated up to their number."""
        index = np.minimum(np.arange(start, start + count), len(self.places) - 1)
        return PatchBatch(
            clean={name: array[index] for name, array in self.clean.items()},
            corrupted={name: array[index] for name, array in self.corrupted.items()},
            places=self.places[index],
            answers=self.answers[index],
            wrong=self.wrong[index],
            groups=None if self.groups is None else self.groups[:, index],
        )


@dataclasses.dataclass(frozen=True)
class PatchTask:
    """Pairs as a model reads them.

    Attributes:
        model: The model.
        metric: What is judged.
        sizes: L and H of each side.
        pairs: All pairs.
        group_names: Names of the groups of positions.
        batch: B, pairs that run together.
    """

    model: Pretrained
    metric: Metric
    sizes: Mapping[str, tuple[int, int]]
    pairs: PatchBatch
    group_names: tuple[str, ...]
    batch: int

    @property
    def count(self) -> int:
        """Number of pairs."""
        return len(self.pairs.places)

    def batches(self) -> list[tuple[PatchBatch, int]]:
        """The pairs in batches of one shape, with the number that are not repetitions."""
        starts = range(0, self.count, self.batch)
        return [(self.pairs.rows(n, self.batch), min(self.batch, self.count - n)) for n in starts]


def patch_task(
    model: Pretrained,
    pairs: Sequence[TextPair],
    *,
    metric: Metric = "logit-diff",
    positions: Positions = "all",
    batch: int = 16,
) -> PatchTask:
    """Read pairs for patching."""
    _check(model, pairs, metric, positions, batch)
    texts = [pair.clean for pair in pairs] + [pair.corrupted for pair in pairs]
    targets = None
    if isinstance(model.module, Seq2SeqLM):
        targets = [target_text(model, pair) for pair in pairs] * 2
    reading = model.read(texts, targets)
    lengths = (reading.given["attention_mask"] != 0).sum(1)
    _check_lengths(pairs, reading, lengths)
    inputs = {n: a for n, a in reading.padded(model.limit).items() if n != "key_classes"}
    clean, corrupted = (
        {name: array[part] for name, array in inputs.items()}
        for part in (slice(len(pairs)), slice(len(pairs), None))
    )
    places = _places(model, pairs, reading, lengths[: len(pairs)])
    answers = np.array([_answer_id(model, pair, pair.answer) for pair in pairs], np.int32)
    wrong = answers
    if metric == "logit-diff":
        wrong = np.array([_answer_id(model, pair, pair.wrong or "") for pair in pairs], np.int32)
    names, groups = _groups(positions, pairs, clean, corrupted, lengths[: len(pairs)], places)
    whole = PatchBatch(clean, corrupted, places, answers, wrong, groups)
    return PatchTask(model, metric, head_sizes(model), whole, names, min(batch, len(pairs)))


def head_sizes(model: Pretrained) -> dict[str, tuple[int, int]]:
    """L and H of every side of a model's attention."""
    own = "decoder" if isinstance(model, PretrainedDecoder) else "encoder"
    return {_MASKS.get(name, own): size for name, size in model.masks().items()}


def _places(
    model: Any, pairs: Sequence[TextPair], reading: TokenizedTexts, lengths: np.ndarray
) -> Int[np.ndarray, " B"]:
    """Position at which each answer is read."""
    if isinstance(model.module, MASKED_LM):
        masked = reading.given["input_ids"][: len(pairs)] == model.tokenizer.mask_id
        for pair, row in zip(pairs, masked, strict=True):
            if row.sum() != 1:
                raise InputError(
                    f"{_named(pair)} has {int(row.sum())} masks in its clean text, expected one.\n"
                    f"Put {model.tokenizer.mask_token} in place of the word to predict."
                )
        return masked.argmax(1).astype(np.int32)
    if isinstance(model.module, Seq2SeqLM):
        reader = model.target_reader
        sizes = [len(_ids(reader, pair.prefix)) if pair.prefix.strip() else 0 for pair in pairs]
        return np.array(sizes, np.int32)
    if isinstance(model.module, ENCODER_CLASSIFIERS):
        pooled = getattr(model.config, "classifier_pooling", "cls")
        return np.full(len(pairs), -1 if pooled == "mean" else 0, np.int32)
    return (lengths - 1).astype(np.int32)


def _answer_id(model: Pretrained, pair: TextPair, answer: str) -> int:
    """Id of an answer: that of its token, or that of its label."""
    if isinstance(model.module, CLASSIFIERS):
        return _label_id(model, pair, answer)
    if isinstance(model.module, MASKED_LM):
        before, tokens = "", _ids(model.tokenizer, answer)
    else:
        before = pair.prefix if isinstance(model.module, Seq2SeqLM) else pair.clean
        _, tokens = _continued(model.target_reader, before, answer)
    if len(tokens) != 1:
        raise InputError(
            f"{_named(pair)}: the answer {answer!r} is {len(tokens)} tokens behind "
            f"{before[-30:]!r}, expected one.\nChoose answers that are a token of "
            f"{model.name!r} each; see its tokenizer."
        )
    return tokens[0]


def target_text(model: Pretrained, pair: TextPair) -> str:
    """Target of an encoder-decoder: the prefix, and the answer that continues it."""
    return _continued(model.target_reader, pair.prefix, pair.answer)[0]


def _continued(reader: Any, before: str, answer: str) -> tuple[str, list[int]]:
    """A text continued by an answer, and the tokens of the answer.

    A space parts them, unless the answer is a single token without one only, as a digit may be.
    """
    known = _ids(reader, before) if before.strip() else []
    found: list[tuple[str, list[int]]] = []
    for space in dict.fromkeys(("" if not before or before[-1].isspace() else " ", "")):
        text = before + space + answer.lstrip()
        whole = _ids(reader, text)
        tokens = whole[len(known) :] if whole[: len(known)] == known else whole
        found.append((text, tokens))
    return next((one for one in found if len(one[1]) == 1), found[0])


def _ids(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text without special tokens."""
    encoded = tokenizer.encode([text], special=False)
    return [int(i) for i in encoded.input_ids[0]]


def _label_id(model: Any, pair: TextPair, answer: str) -> int:
    labels = [str(label).casefold() for label in model.config.labels]
    if answer.casefold() in labels:
        return labels.index(answer.casefold())
    if answer.isdecimal() and int(answer) < len(labels):
        return int(answer)
    raise InputError(
        f"{_named(pair)}: the answer {answer!r} is not a label of {model.name!r}.\n"
        f"Its labels are {', '.join(map(str, model.config.labels))}; their numbers count from 0."
    )


def _groups(
    positions: Positions,
    pairs: Sequence[TextPair],
    clean: Mapping[str, np.ndarray],
    corrupted: Mapping[str, np.ndarray],
    lengths: Int[np.ndarray, " B"],
    places: Int[np.ndarray, " B"],
) -> tuple[tuple[str, ...], Bool[np.ndarray, "P B S"] | None]:
    """Names of the groups of source positions, and the positions of each; None for all."""
    if positions == "all":
        return ("all",), None
    ids, others = clean["input_ids"], corrupted["input_ids"]
    number = np.arange(ids.shape[1])[None]
    real = number < lengths[:, None]
    if positions == "token":
        if len(set(lengths.tolist())) > 1:
            raise InputError(
                f"Positions are compared one by one, but texts have {min(lengths)} to "
                f"{max(lengths)} tokens.\nGive pairs of one length, or compare segments."
            )
        size = int(lengths[0])
        return tuple(map(str, range(size))), np.stack([real & (number == n) for n in range(size)])
    changed = (ids != others) & real
    first = np.where(changed.any(1), changed.argmax(1), lengths)[:, None]
    answered = (number == places[:, None]) & real
    left = real & ~answered
    groups = [
        left & (number == 0) & ~changed,
        left & (number > 0) & (number < first),
        left & changed,
        left & ~changed & (number > first) & (number > 0),
        answered,
    ]
    return SEGMENTS, np.stack(groups)


def _named(pair: TextPair) -> str:
    return pair.source or f"The pair {pair.clean[:40]!r}"


def _check_lengths(
    pairs: Sequence[TextPair], reading: TokenizedTexts, lengths: Int[np.ndarray, " P"]
) -> None:
    """Refuse pairs whose texts do not have the same number of tokens."""
    for pair, clean, corrupted in zip(pairs, lengths, lengths[len(pairs) :], strict=False):
        if clean != corrupted:
            raise InputError(
                f"{_named(pair)}: the clean text has {clean} tokens, the corrupted one "
                f"{corrupted}.\nPatching goes position by position: choose words of as many tokens."
            )


def _check(
    model: Pretrained, pairs: Sequence[TextPair], metric: str, positions: str, batch: int
) -> None:
    known = (DecoderLM, Seq2SeqLM, *MASKED_LM, *CLASSIFIERS)
    if not isinstance(model.module, known) or not model.masks():
        raise InputError(
            f"{model.name!r} is a {model.config.architectures[0]}, which scores no answer that "
            "heads could be patched for.\nName a language model, an encoder-decoder or a "
            'classifier; an encoder needs head="ForMaskedLM".'
        )
    if metric not in METRICS:
        raise InputError(f"There is no metric {metric!r}.\nMetrics are {', '.join(METRICS)}.")
    if positions not in ("all", "segment", "token"):
        raise InputError(
            f"There is no kind of positions {positions!r}.\nChoose one of all, segment, token."
        )
    if len(pairs) < 2 or batch < 1:
        raise InputError(
            f"Patching needs two pairs or more, in batches of one or more; received {len(pairs)} "
            f"in batches of {batch}.\nIntervals and tests are over pairs."
        )
    if metric == "logit-diff" and (missing := [pair for pair in pairs if not pair.wrong]):
        raise InputError(
            f"{_named(missing[0])} has no wrong answer, which logit-diff compares with.\n"
            "Add the column wrong, or choose the metric probability or kl."
        )
