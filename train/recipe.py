# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every number of a training run, in frozen dataclasses: what all runs have, then per task.

A recipe holds no path: data and output directory are arguments of the run, so that one recipe
describes the same training anywhere. `flaxattn.train.settings` reads one from YAML.
"""

import dataclasses
from typing import Any, Literal

from flaxattn.errors import InputError

MOST_EVALUATIONS = 20
"""Evaluations of a run whose recipe names no interval: one every 5 % of the updates."""


def at_least(smallest: int, names: str) -> dict[str, int]:
    """Settings that must not be smaller, by name."""
    return dict.fromkeys(names.split(), smallest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings that every run has.

    Attributes:
        steps: optimiser updates.
        batch_size: sequences per update, over all devices and hosts.
        accumulate: parts a batch is worked through in, for less memory; the result is the same.
        learning_rate: peak, reached after `warmup_steps`.
        warmup_steps: updates of linear warm-up.
        schedule: after the warm-up, "bert": the line from the peak at update 0 to zero at the last
            one; "linear": from the peak at the end of the warm-up; "polynomial": the square root of
            that line, as LAMB is used; "constant"; "inverse-sqrt": with the inverse square root of
            the update; "noam": the same, its peak set by the width of the model, see
            `TranslationRecipe`.
        optimizer: "adamw" as BERT's code has it, "lamb", or "adam" as published (Kingma & Ba 2015).
        adam_b1: decay of the mean of the gradients.
        adam_b2: decay of the mean of their squares.
        adam_eps: added to the root of the latter.
        bias_correction: divide Adam's means by what they lack at the start, as LAMB's paper does.
        weight_decay: on everything but norms and biases.
        clip_norm: largest global norm of a gradient.
        dtype: of the computation; parameters and optimiser stay float32.
        remat: recompute layers in the backward pass instead of keeping their activations.
        unroll: compile every layer for itself: takes longer to compile, and then trains up to a
            fifth faster on CPU than a scan over the layers. With `remat` they are scanned.
        seed: of initial weights, data order and dropout.
        log_every: updates that one row of the metrics file is the mean of.
        log_seconds: seconds between two lines on the console.
        evaluate_every: updates between two held-out evaluations; 0 for the first and last only.
        checkpoint_every: updates between two checkpoints; 0 for the last only.
        keep_checkpoints: how many of the newest are kept, beside the best.
        patience: evaluations without improvement after which the run ends; 0 for never.
        workers: processes that prepare batches; 0 for a thread of this one.
        devices: how many to use; 0 for all.
        model_parallel: devices that share one copy of a layer's heads and feed-forward units.
        on_error: what to do with a row that cannot be used: "fail", "skip" or "quarantine".
    """

    # No fields: smallest values of settings, and settings that are shares.
    least = at_least(0, "steps warmup_steps evaluate_every checkpoint_every patience workers") | (
        at_least(0, "devices seed")
        | at_least(1, "batch_size accumulate log_every keep_checkpoints model_parallel")
    )
    shares = ()

    steps: int = 10000
    batch_size: int = 32
    accumulate: int = 1
    learning_rate: float = 1e-4
    warmup_steps: int = 1000
    schedule: Literal["bert", "linear", "polynomial", "constant", "inverse-sqrt", "noam"] = "bert"
    optimizer: Literal["adamw", "lamb", "adam"] = "adamw"
    adam_b1: float = 0.9
    adam_b2: float = 0.999
    adam_eps: float = 1e-6
    bias_correction: bool = False
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    unroll: bool = True
    seed: int = 12345
    log_every: int = 50
    log_seconds: float = 10.0
    evaluate_every: int = 1000
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    patience: int = 0
    workers: int = 0
    devices: int = 0
    model_parallel: int = 1
    on_error: Literal["fail", "skip", "quarantine"] = "fail"

    def __post_init__(self) -> None:
        for name, smallest in self.least.items():
            if getattr(self, name) < smallest:
                raise InputError(
                    f"recipe: {name} must be at least {smallest}, got {getattr(self, name)}"
                )
        for name in self.shares:
            if not 0 <= getattr(self, name) < 1:
                raise InputError(
                    f"recipe: {name} must be in [0, 1), got {getattr(self, name)}\n"
                    "it is a share, such as 0.1"
                )
        if self.batch_size % self.accumulate:
            raise InputError(
                f"recipe: a batch of {self.batch_size} sequences has no {self.accumulate} equal "
                "parts\nchoose accumulate so that it divides batch_size"
            )

    @property
    def peak(self) -> float:
        """The highest learning rate, at the end of the warm-up."""
        if self.schedule == "noam":
            raise InputError(
                "recipe: schedule 'noam' goes by the width of a Transformer that translates\n"
                "this recipe trains another model\nchoose schedule 'inverse-sqrt'"
            )
        return self.learning_rate

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for YAML or JSON."""
        return _plain(dataclasses.asdict(self))

    def defaults(self) -> dict[str, Any]:
        """Plain values of all settings where nobody chooses one."""
        return _plain({field.name: field.default for field in dataclasses.fields(self)})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


# What may change between two starts of one run: it moves no number of it.
FREE = frozenset(
    {"log_seconds", "checkpoint_every", "keep_checkpoints", "workers", "devices", "model_parallel"}
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRecipe(Recipe):
    """Settings of every run on running text: how files become documents, and how it is evaluated.

    Attributes:
        documents: how text files are cut: "paragraphs" groups blank-line separated paragraphs,
            "blank-lines" takes each of them for a document, "lines" each line, "files" each file,
            which is then held in memory.
        paragraphs_per_document: paragraphs in a group.
        text_column: of JSONL and Parquet, one document per row.
        heldout_fraction: share of documents kept for evaluation, chosen by their hash.
    """

    least = Recipe.least | at_least(1, "paragraphs_per_document")
    cutting = ("documents", "paragraphs_per_document", "text_column")  # what makes the documents

    documents: Literal["paragraphs", "blank-lines", "lines", "files"] = "paragraphs"
    paragraphs_per_document: int = 40
    text_column: str = "text"
    heldout_fraction: float = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainRecipe(TextRecipe):
    """BERT pretraining; the defaults are the built-in model's shape on BERT's settings.

    Attributes:
        model: encoder to start from: built-in name, directory or Hub id, of any family with a
            masked-LM head; it keeps its shape and its tokenizer. Empty for a new BERT.
        vocab_size: tokens of the WordPiece vocabulary learnt from the data.
        lowercase: fold case and strip accents.
        num_hidden_layers: L.
        num_attention_heads: H.
        hidden_size: E.
        intermediate_size: F.
        hidden_act: activation of the feed-forward layer.
        initializer_range: standard deviation of the initial weights.
        hidden_dropout_prob: dropout on embeddings and sub-layer outputs.
        attention_probs_dropout_prob: dropout on attention weights.
        max_position_embeddings: longest input of the model.
        lengths: sequence length of each phase of training.
        length_shares: share of the steps each phase gets; they add up to 1.
        short_sequence_prob: share of documents cut to a random shorter length.
        pack: most pairs that share a row, each seeing what it would see in a row of its own; 1 pads
            every pair to a row, as published. Worth it where documents are shorter than `lengths`.
        masked_lm_prob: share of the tokens predicted.
        max_predictions: most predictions per sequence; None for `masked_lm_prob` of the length.
        whole_word_masking: hide all tokens of a word, or none.
        batch_size: rows per update at the longest length; phases with shorter rows take
            proportionally more, for the same number of tokens.
        evaluate_batches: batches of one held-out evaluation.
    """

    least = TextRecipe.least | at_least(1, "steps evaluate_batches pack")

    model: str = ""
    vocab_size: int = 8000
    lowercase: bool = True
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    hidden_size: int = 256
    intermediate_size: int = 1024
    hidden_act: str = "gelu"
    initializer_range: float = 0.02
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 128
    lengths: tuple[int, ...] = (128,)
    length_shares: tuple[float, ...] = (1.0,)
    short_sequence_prob: float = 0.1
    pack: int = 1
    masked_lm_prob: float = 0.15
    max_predictions: int | None = None
    whole_word_masking: bool = False
    evaluate_batches: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def phase(self, step: int) -> int:
        """Number of the phase that update `step` (from 0) belongs to."""
        share, phase = 0.0, 0
        for phase, part in enumerate(self.length_shares):
            share += part
            if step < round(share * self.steps):
                return phase
        return phase

    def rows(self, length: int) -> int:
        """B, rows per update at a length."""
        return self.batch_size * max(self.lengths) // length

    def predictions(self, length: int) -> int:
        """The most predictions of a pair of that length (20 for 128, 77 for 512)."""
        wanted = max(1, -int(-length * self.masked_lm_prob // 1))
        return wanted if self.max_predictions is None else min(self.max_predictions, wanted)

    def row_predictions(self, length: int) -> int:
        """P, the most predictions of a row; each of its pairs rounds by less than one."""
        wanted = -int(-length * self.masked_lm_prob // 1) + self.pack - 1
        return min(self.pack * self.predictions(length), max(self.pack, wanted))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueRecipe(Recipe):
    """Fine-tuning on one GLUE task; the defaults are the paper's grid (Devlin et al. 2019 A.3).

    Attributes:
        task: name of the task, such as "sst2".
        model: what to start from: built-in name, model directory or Hub id.
        epochs: passes over the training examples; sets `steps` where that is 0.
        warmup_share: share of the steps that warm up; sets `warmup_steps` where that is 0.
        steps: updates in all; 0 lets `epochs` decide.
        evaluations_per_epoch: sets `evaluate_every` where that is 0; at most 20 in all.
        max_length: tokens kept of an example; the longer text of a pair is cut first.
        buckets: lengths that batches are padded to, up to `max_length`.
        seeds: one run per entry, of data order, dropout and the new head.
        text_column: of CSV, JSONL and Parquet; empty for the task's own names.
        pair_column: of the second text.
        label_column: of the label.
        predict_batch: sequences per batch of an evaluation.
        gate_price: added to the loss for every head whose gate is open (Voita et al. 2019): heads
            that are not worth it close, and are removed from what is saved; 0 for no gates.
        gate_speed: how many times the learning rate gates are moved with.
    """

    task: str = "sst2"
    model: str = "tiny-bert"
    epochs: float = 3.0
    warmup_share: float = 0.1
    steps: int = 0
    warmup_steps: int = 0
    learning_rate: float = 3e-5
    schedule: Literal["bert", "linear", "polynomial", "constant"] = "linear"
    evaluate_every: int = 0
    evaluations_per_epoch: int = 2
    checkpoint_every: int = 0
    max_length: int = 128
    buckets: tuple[int, ...] = (16, 24, 32, 48, 64, 96, 128)
    seeds: tuple[int, ...] = (12345,)
    text_column: str = ""
    pair_column: str = ""
    label_column: str = ""
    predict_batch: int = 64
    gate_price: float = 0.0
    gate_speed: float = 1000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gate_price < 0 or self.gate_speed <= 0:
            raise InputError(
                "recipe: gate_price must be at least 0 and gate_speed above 0, got "
                f"{self.gate_price} and {self.gate_speed}"
            )
        if not self.seeds or not self.buckets:
            raise InputError("recipe: seeds and buckets need at least one entry each")
        if max(self.buckets) < self.max_length:
            raise InputError(
                f"recipe: no bucket holds max_length {self.max_length}\n"
                f"the longest of buckets is {max(self.buckets)}\n"
                f"add {self.max_length} to buckets, or lower max_length"
            )

    def for_examples(self, count: int) -> "GlueRecipe":
        """The recipe with `steps`, `warmup_steps` and `evaluate_every` filled in for N examples."""
        epoch = -(-count // self.batch_size)
        steps = self.steps or max(1, round(self.epochs * epoch))
        return dataclasses.replace(
            self,
            steps=steps,
            warmup_steps=self.warmup_steps or round(self.warmup_share * steps),
            evaluate_every=self.evaluate_every
            or max(-(-epoch // self.evaluations_per_epoch), -(-steps // MOST_EVALUATIONS)),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifyRecipe(GlueRecipe):
    """Fine-tuning a classifier on a user's own files; everything else is as for GLUE.

    Attributes:
        task: name of the task in reports.
        text_column: column of the text.
        pair_column: column of the second text; empty for single texts.
        label_column: column of the label.
        regression: whether labels are numbers to predict, rather than classes.
    """

    task: str = "classify"
    text_column: str = "text"
    label_column: str = "label"
    regression: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = (self.text_column, self.pair_column, self.label_column)
        if not self.text_column or not self.label_column or len(set(columns)) < 3:
            raise InputError(
                "recipe: text_column, pair_column and label_column must be three columns\n"
                f"received {', '.join(map(repr, columns))}\n"
                "name a column for each; pair_column may be empty"
            )
