# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every number of a training run in one frozen dataclass, read from YAML and `key=value` pairs.

A recipe holds no path: data and output directory are arguments of the run, so that one recipe
describes the same training anywhere.
"""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from flaxattn.errors import InputError


@dataclasses.dataclass(frozen=True)
class Recipe:
    """BERT pretraining; the defaults are the built-in model's shape on BERT's settings.

    Attributes:
        vocab_size: pieces of the WordPiece vocabulary learnt from the data.
        lowercase: fold case and strip accents.
        num_hidden_layers: L.
        num_attention_heads: H.
        hidden_size: E.
        intermediate_size: F.
        hidden_act: activation of the feed-forward layer.
        initializer_range: standard deviation of the initial weights.
        position_init: "normal" like every other weight, or "fourier": the position table starts as
            sines and cosines of evenly spaced frequencies and is trained like any parameter.
        word_init: "normal", or "cooccurrence": word vectors start as the SVD of the training text's
            co-occurrence counts, and are trained like any parameter.
        unigram_bias: start the output bias at the logarithms of the training frequencies, so that
            nothing has to learn them.
        entropy_price: added to the loss per nat of mean attention entropy while training; 0 leaves
            the loss as published. A small price makes the heads of a small model decide.
        hidden_dropout_prob: dropout on embeddings and sub-layer outputs.
        attention_probs_dropout_prob: dropout on attention weights.
        max_position_embeddings: longest input of the model.
        paragraphs_per_document: blank-line separated paragraphs that make one document.
        heldout_fraction: share of documents kept for evaluation, chosen by their hash.
        lengths: sequence length of each phase of training.
        length_shares: share of the steps each phase gets; they add up to 1.
        short_sequence_prob: share of documents packed to a random shorter length.
        masked_lm_prob: share of the tokens predicted.
        max_predictions: most predictions per sequence; None for `masked_lm_prob` of the length.
        steps: optimiser updates.
        batch_size: sequences per update at the longest length; phases with shorter sequences take
            proportionally more, for the same number of tokens.
        learning_rate: peak, reached after `warmup_steps`.
        warmup_steps: updates of linear warm-up.
        weight_decay: AdamW decay, on everything but norms and biases.
        clip_norm: largest global norm of a gradient.
        seed: of initial weights, instances, masks and dropout.
        log_seconds: seconds between two lines on the console and in the metrics file.
        evaluate_every: updates between two held-out evaluations.
        evaluate_batches: batches of one held-out evaluation.
        checkpoint_every: updates between two checkpoints.
    """

    vocab_size: int = 8000
    lowercase: bool = True
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    hidden_size: int = 256
    intermediate_size: int = 1024
    hidden_act: str = "gelu"
    initializer_range: float = 0.02
    position_init: str = "normal"
    word_init: str = "normal"
    unigram_bias: bool = False
    entropy_price: float = 0.0
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 128
    paragraphs_per_document: int = 40
    heldout_fraction: float = 0.02
    lengths: tuple[int, ...] = (128,)
    length_shares: tuple[float, ...] = (1.0,)
    short_sequence_prob: float = 0.1
    masked_lm_prob: float = 0.15
    max_predictions: int | None = None
    steps: int = 10000
    batch_size: int = 32
    learning_rate: float = 1e-4
    warmup_steps: int = 1000
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    seed: int = 12345
    log_seconds: float = 10.0
    evaluate_every: int = 1000
    evaluate_batches: int = 16
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.length_shares) or abs(sum(self.length_shares) - 1) > 1e-6:
            raise InputError(
                "recipe: every phase needs a length and a share of the steps, shares adding to 1\n"
                f"received lengths {self.lengths} and length_shares {self.length_shares}\n"
                "give both the same number of entries"
            )
        if max(self.lengths) > self.max_position_embeddings:
            raise InputError(
                f"recipe: length {max(self.lengths)} does not fit the model\n"
                f"max_position_embeddings is {self.max_position_embeddings}\n"
                "raise max_position_embeddings, or shorten lengths"
            )
        for name, other in (("position_init", "fourier"), ("word_init", "cooccurrence")):
            if getattr(self, name) not in ("normal", other):
                raise InputError(
                    f"recipe: {name} {getattr(self, name)!r} is unknown\n"
                    f"choose 'normal' or {other!r}"
                )
        for name in ("steps", "batch_size", "evaluate_batches", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"recipe: {name} must be at least 1, got {getattr(self, name)}")

    def phase(self, step: int) -> int:
        """Number of the phase that update `step` (from 0) belongs to."""
        share, phase = 0.0, 0
        for phase, part in enumerate(self.length_shares):
            share += part
            if step < round(share * self.steps):
                return phase
        return phase

    def rows(self, length: int) -> int:
        """B, sequences per update at a length."""
        return self.batch_size * max(self.lengths) // length

    def predictions(self, length: int) -> int:
        """P, the most predictions per sequence of that length (20 for 128, 77 for 512)."""
        wanted = max(1, -int(-length * self.masked_lm_prob // 1))
        return wanted if self.max_predictions is None else min(self.max_predictions, wanted)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for YAML or JSON; `from_dict` reads them back."""
        values = dataclasses.asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "recipe") -> "Recipe":
        """Check names and types and build a recipe.

        Args:
            values: any subset of the fields.
            where: what to call the source in an error message.

        Raises:
            InputError: an unknown name, with the nearest known one, or a value of the wrong type.
        """
        types = get_type_hints(cls)
        for name in values:
            if name not in types:
                near = difflib.get_close_matches(name, types, 1)
                raise InputError(
                    f"{where}: no such setting {name!r}\n"
                    + (f"the nearest is {near[0]!r}\n" if near else "")
                    + f"settings: {', '.join(list(types)[:4])}, … ({len(types)} in all)"
                )
        checked = {name: _typed(name, v, types[name], where) for name, v in values.items()}
        return cls(**checked)


def read_recipe(path: Path | None, overrides: Sequence[str] = ()) -> Recipe:
    """Recipe of a YAML file, changed by `key=value` pairs.

    Args:
        path: YAML mapping of some or all settings; None for the defaults.
        overrides: pairs such as `steps=100` or `lengths=[64,128]`; later ones win.

    Raises:
        InputError: the file is missing or no mapping, a pair has no `=`, a name or type is wrong.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values.update(_read_yaml(path))
        Recipe.from_dict(values, str(path))
    for pair in overrides:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(
                f"--set {pair!r} is no setting\nexpected key=value\nfor example --set steps=1000"
            )
        try:
            values[name.strip()] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(
                f"--set {pair!r}: the value is no YAML\n"
                f"{str(error).splitlines()[0]}\n"
                "quote it as YAML does"
            ) from error
    return Recipe.from_dict(values, "--set" if overrides else str(path))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read recipe {path}\n{error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = str(error).splitlines()[0]
        raise InputError(f"recipe {path} is no YAML\n{line}\nwrite key: value lines") from error
    if not isinstance(values, dict):
        raise InputError(
            f"recipe {path} holds no settings\n"
            f"expected key: value lines, received {type(values).__name__}"
        )
    return values


def _typed(name: str, value: Any, kind: Any, where: str) -> Any:
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_typed(name, item, inner, where) for item in items)
    allowed = get_args(kind) or (kind,)
    if float in allowed and isinstance(value, str):
        value = _number(value)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) in allowed:
        return value
    wanted = " or ".join("none" if t is type(None) else t.__name__ for t in allowed)
    raise InputError(
        f"{where}: {name} must be {wanted}\n"
        f"received {value!r} of type {type(value).__name__}\n"
        f"write for example {name}={getattr(Recipe, name)}"
    )


def _number(text: str) -> float | str:
    try:
        return float(text)  # YAML 1.1 reads 1e-4, without a dot, as a string
    except ValueError:
        return text
