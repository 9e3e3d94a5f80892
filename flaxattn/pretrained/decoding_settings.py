# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of generation: their effect on the scores of a step, and `generation_config.json`.

Old checkpoints have these settings in `config.json`. Settings that would change the text and are
not implemented are refused when text is generated, not skipped. Nothing here runs a model.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.trace.tensor_file import read_json

NEVER = -1e9  # score of what must not be chosen; finite, so that sums stay comparable


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Settings of generation; hashable, static under jit.

    Attributes:
        max_new_tokens: Most tokens that are written.
        min_new_tokens: The text does not end before.
        num_beams: N, hypotheses kept per sequence; 1 writes greedily, or samples.
        num_return_sequences: Best hypotheses that are returned, at most `num_beams`; with
            `do_sample`, texts that are drawn.
        length_penalty: Exponent of the length that a hypothesis' log-probability is divided by.
        penalty: "power" divides by n ** length_penalty, as Hugging Face does, "gnmt" by
            ((5 + n) / 6) ** length_penalty, as Wu et al. 2016 and Vaswani et al. 2017 do.
        early_stopping: True ends a sequence with its N-th finished hypothesis; False when no open
            one is better at its present length; "never" when none can become better.
        renormalize: Whether the probabilities of the tokens that are allowed are made to add up
            to 1 before beams are compared, as in newer Marian checkpoints.
        do_sample: Whether to draw the next token, from one hypothesis.
        temperature: Divides the scores before drawing.
        top_k: Draw from so many best tokens; 0 for all.
        top_p: Draw from the fewest best tokens that have this probability together.
        min_p: Draw from the tokens that are at least this share as likely as the likeliest one.
        repetition_penalty: Divides the positive scores of tokens that the prompt or the text
            already has, and multiplies the negative ones; above 1 it makes them less likely.
        no_repeat_ngram_size: No n-gram of this length is written twice; 0 for no such limit.
        banned: Ids that are never written.
        banned_first: Ids that the first token is not chosen from.
        forced_first: Id of the first token that is written.
        forced_last: Id of the last one at the limit.
        eos: Ids that end a text.
        pad: Id after the end.
    """

    max_new_tokens: int = 64
    min_new_tokens: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    penalty: Literal["power", "gnmt"] = "power"
    early_stopping: bool | Literal["never"] = False
    renormalize: bool = False
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()
    forced_first: int | None = None
    forced_last: int | None = None
    eos: tuple[int, ...] = ()
    pad: int = 0

    def __post_init__(self) -> None:
        least = {"max_new_tokens": 1, "num_beams": 1, "num_return_sequences": 1, "top_k": 0}
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise InputError(
                    f"{name} must be at least {smallest}, received {getattr(self, name)}"
                )
        if self.do_sample and self.num_beams > 1:
            raise InputError(
                f"do_sample draws one hypothesis, num_beams is {self.num_beams}\n"
                "give num_beams=1 to draw, do_sample=False to keep beams"
            )
        if self.num_return_sequences > self.num_beams and not self.do_sample:
            raise InputError(
                f"num_return_sequences is {self.num_return_sequences}, but only num_beams "
                f"{self.num_beams} hypotheses are kept\nraise num_beams"
            )
        if self.temperature <= 0 or not 0 < self.top_p <= 1:
            raise InputError(
                "temperature must be above 0 and top_p in (0, 1], received "
                f"{self.temperature} and {self.top_p}\n"
                "leave both out for the best token at every step"
            )
        if not 0 <= self.min_p <= 1:
            raise InputError(
                f"min_p must be in [0, 1], received {self.min_p}\n"
                "0 draws from all tokens, 1 only from the likeliest"
            )
        if self.repetition_penalty <= 0:
            raise InputError(
                f"repetition_penalty must be above 0, received {self.repetition_penalty}\n"
                "1 changes nothing, above 1 repeats less, below 1 repeats more"
            )

    def penalised(self, score: Float[Array, "..."], length: Int[Array, ""]) -> Float[Array, "..."]:
        """Log-probabilities of hypotheses made comparable across lengths."""
        size = length.astype(jnp.float32)
        size = size if self.penalty == "power" else (5 + size) / 6
        return score / size**self.length_penalty

    def ends(self, tokens: Int[Array, "..."]) -> Bool[Array, "..."]:
        """Mask of the tokens that end a text."""
        return jnp.isin(tokens, jnp.array(self.eos, jnp.int32))


def allowed(
    scores: Float[Array, "R V"],
    written: Int[Array, "R T"],
    prompt: int,
    step: Int[Array, ""],
    decoding: Decoding,
    padding: Int[Array, " R"] | None = None,
) -> Float[Array, "R V"]:
    """Apply the penalty of repeated tokens, and exclude forbidden tokens."""
    size = scores.shape[-1]
    ids = jnp.arange(size)
    if decoding.repetition_penalty != 1:
        scores = _penalised_repeats(scores, written, prompt + step, decoding, padding)
    never = jnp.isin(ids, jnp.array(decoding.banned, jnp.int32))[None]
    if decoding.no_repeat_ngram_size:
        never = never | _repeating(written, prompt + step, decoding.no_repeat_ngram_size, size)
    if decoding.min_new_tokens:
        never = never | (decoding.ends(ids)[None] & (step < decoding.min_new_tokens))
    scores = jnp.where(never, -jnp.inf, scores)
    forced = {0: decoding.forced_first, decoding.max_new_tokens - 1: decoding.forced_last}
    for number, token in forced.items():
        if token is not None:
            alone = jnp.where(ids == token, 0.0, -jnp.inf)[None]
            scores = jnp.where(step == number, alone, scores)
    if decoding.banned_first:
        # Behind a start token alone a forced token comes first, and the text after it.
        first = int(prompt == 1 and decoding.forced_first is not None)
        banned = jnp.isin(ids, jnp.array(decoding.banned_first, jnp.int32))[None]
        scores = jnp.where(banned & (step == first), -jnp.inf, scores)
    return scores


def _penalised_repeats(
    scores: Float[Array, "R V"],
    written: Int[Array, "R T"],
    length: Int[Array, ""],
    decoding: Decoding,
    padding: Int[Array, " R"] | None,
) -> Float[Array, "R V"]:
    """The scores with those of tokens among the first `length` of `written` made smaller."""
    places = jnp.arange(written.shape[1])[None]
    real = places < length
    if padding is not None:
        real = real & (places >= padding[:, None])
    rows = jnp.arange(written.shape[0])[:, None]
    tokens = jnp.where(real, written, scores.shape[-1])
    repeated = jnp.zeros(scores.shape, bool).at[rows, tokens].set(True, mode="drop")
    factor = decoding.repetition_penalty
    return jnp.where(repeated, jnp.where(scores < 0, scores * factor, scores / factor), scores)


def _repeating(
    written: Int[Array, "R T"], length: Int[Array, ""], n: int, size: int
) -> Bool[Array, "R V"]:
    """Tokens that would end an n-gram which was written before."""
    count = written.shape[1] - n + 1
    if count < 1:
        return jnp.zeros((written.shape[0], size), bool)
    last = jax.lax.dynamic_slice_in_dim(written, length - n + 1, n - 1, axis=1)
    same = jnp.ones((written.shape[0], count), bool)
    for offset in range(n - 1):
        same &= written[:, offset : offset + count] == last[:, offset : offset + 1]
    same &= (jnp.arange(count) + n - 1 < length)[None]
    rows = jnp.arange(written.shape[0])[:, None]
    return jnp.zeros((written.shape[0], size), bool).at[rows, written[:, n - 1 :]].max(same)


def chosen(scores: Float[Array, "R V"], keys: Array | None, decoding: Decoding) -> Int[Array, " R"]:
    """The next token of every sequence: the best one, or a sample."""
    if keys is None:
        return scores.argmax(-1)
    scores = scores / decoding.temperature
    if 0 < decoding.top_k < scores.shape[-1]:
        least = jax.lax.top_k(scores, decoding.top_k)[0][:, -1:]
        scores = jnp.where(scores < least, -jnp.inf, scores)
    if decoding.top_p < 1:
        ordered = jnp.sort(scores, axis=-1)[:, ::-1]
        chances = jnp.exp(ordered - jax.nn.logsumexp(ordered, axis=-1, keepdims=True))
        before = jnp.cumsum(chances, axis=-1) - chances
        least = jnp.where(before < decoding.top_p, ordered, jnp.inf).min(-1, keepdims=True)
        scores = jnp.where(scores < least, -jnp.inf, scores)
    if decoding.min_p > 0:
        least = scores.max(-1, keepdims=True) + jnp.log(decoding.min_p)
        scores = jnp.where(scores < least, -jnp.inf, scores)
    return jax.vmap(jax.random.categorical)(keys, scores)


FILE = "generation_config.json"
_SAME = (
    "do_sample",
    "early_stopping",
    "length_penalty",
    "min_p",
    "no_repeat_ngram_size",
    "num_beams",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
)
_DRAWING = ("temperature", "top_k", "top_p", "min_p")  # they say how a token is drawn
# Names that other libraries give to settings.
_OTHER_NAMES = {
    "beam_size": "num_beams",
    "max_length": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "min_length": "min_new_tokens",
    "num_samples": "num_return_sequences",
}
_LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
_BANS = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
# Settings that are not implemented, with the values under which they do nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "diversity_penalty": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1),
    "epsilon_cutoff": (None, 0),
    "eta_cutoff": (None, 0),
    "exponential_decay_length_penalty": (None,),
    "force_words_ids": (None,),
    "guidance_scale": (None, 1),
    "num_beam_groups": (None, 1),
    "penalty_alpha": (None, 0),
    "sequence_bias": (None,),
    "typical_p": (None, 1),
}


def files(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings as content of a file by its name; empty where there are none."""
    return {FILE: settings} if settings else {}


def read(directory: str | Path) -> dict[str, Any]:
    """The settings of a model directory; empty where it has none."""
    path = Path(directory) / FILE
    if path.is_file():
        return read_json(path)
    known = {*_SAME, *_LENGTHS, *_NEUTRAL, *_BANS, "renormalize_logits"}
    config = read_json(Path(directory) / "config.json")
    return {name: value for name, value in config.items() if name in known}


def decoding_fields(settings: Mapping[str, Any], prompt: int) -> dict[str, Any]:
    """Settings as fields of `Decoding`."""
    for name, neutral in _NEUTRAL.items():
        if settings.get(name) not in neutral:
            raise InputError(
                f"the checkpoint asks for {name} {settings[name]}, which is not implemented\n"
                f"take it out of {FILE}; the texts will differ from those of Hugging Face"
            )
    given = {name: value for name, value in settings.items() if value is not None}
    fields = {name: given[name] for name in _SAME if name in given}
    fields |= {name: given[name] for name in ("max_new_tokens", "min_new_tokens") if name in given}
    for total, new in {"max_length": "max_new_tokens", "min_length": "min_new_tokens"}.items():
        if total in given and new not in fields:
            fields[new] = max(0, given[total] - prompt)
    names = {"pad_token_id": "pad", "forced_bos_token_id": "forced_first"}
    names |= {"forced_eos_token_id": "forced_last", "renormalize_logits": "renormalize"}
    fields |= {ours: given[theirs] for theirs, ours in names.items() if theirs in given}
    if "eos_token_id" in given:
        ends = given["eos_token_id"]
        fields["eos"] = tuple(ends) if isinstance(ends, list) else (ends,)
    banned = [_single(words) for words in given.get("bad_words_ids", ())]
    if banned := (*banned, *given.get("suppress_tokens", ())):
        fields["banned"] = banned
    if first := tuple(given.get("begin_suppress_tokens", ())):
        fields["banned_first"] = first
    return fields


def settled(
    chosen: Mapping[str, Any],
    stored: Mapping[str, Any],
    given: Mapping[str, Any],
    prompt: int,
    limit: int,
) -> Decoding:
    """The settings of one call."""
    try:
        fields = {**chosen, **decoding_fields(stored, prompt)}
        fields["max_new_tokens"] = max(1, min(limit, int(fields["max_new_tokens"])))
        Decoding(**fields)
    except (TypeError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{FILE} has a setting of the wrong type\n{error}\ncompare it with the original"
        ) from error
    known = {field.name for field in dataclasses.fields(Decoding)}
    if unknown := sorted(set(given) - known):
        close = difflib.get_close_matches(unknown[0], known, 1, 0.7)
        meant = _OTHER_NAMES.get(unknown[0]) or next(iter(close), None)
        advice = f"\ndid you mean {meant}?" if meant else ""
        raise InputError(
            f"generate has no setting {unknown[0]}\nit has {', '.join(sorted(known))}{advice}"
        )
    decoding = Decoding(**{**fields, **given})
    idle = [name for name in _DRAWING if name in given]
    if idle and not decoding.do_sample:
        raise InputError(
            f"{idle[0]} says how a token is drawn, but none is drawn\n"
            f"received {idle[0]}={given[idle[0]]} without do_sample\n"
            f"add do_sample=True, or leave {' and '.join(idle)} out"
        )
    if decoding.max_new_tokens > limit:
        raise InputError(
            f"max_new_tokens is {decoding.max_new_tokens}; after a prompt of {prompt} this "
            f"model has room for {limit}\nlower it"
        )
    return decoding


def _single(words: list[int]) -> int:
    if len(words) != 1:
        raise InputError(
            f"the checkpoint bans the sequence {words}; only single tokens can be banned\n"
            f"take it out of bad_words_ids in {FILE}"
        )
    return words[0]
