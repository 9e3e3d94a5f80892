# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every number of a training run, in frozen dataclasses: what all runs have, then per task.

A recipe holds no path: data and output directory are arguments of the run, so that one recipe
describes the same training anywhere. `flaxattn.train.settings` reads one from YAML. Nothing here
reads a file or builds a model.
"""

import dataclasses
import difflib
from typing import Any, Literal

from flaxattn.errors import InputError
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.decoder_types import OWN, TYPES, Setting, switches

MOST_EVALUATIONS = 20
"""Evaluations of a run whose recipe names no interval: one every 5 % of the updates."""


def at_least(smallest: int, names: str) -> dict[str, int]:
    """Settings that must not be smaller, by name."""
    return dict.fromkeys(names.split(), smallest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings that every run has.

    Attributes:
        steps: Optimiser updates.
        batch_size: Sequences per update, over all devices and hosts.
        accumulate: Parts a batch is worked through in, for less memory; the result is the same.
        learning_rate: Peak, reached after `warmup_steps`.
        warmup_steps: Updates of linear warm-up.
        schedule: Learning rate after the warm-up, "bert": the line from the peak at update 0 to
            zero at the last one; "linear": from the peak at the end of the warm-up; "polynomial":
            the square root of that line, as LAMB is used; "constant"; "inverse-sqrt": with the
            inverse square root of the update; "noam": the same, its peak set by the width of the
            model, see `TranslationRecipe`.
        optimizer: "adamw" as BERT's code has it, "lamb", or "adam" as published (Kingma & Ba 2015).
        adam_b1: Decay of the mean of the gradients.
        adam_b2: Decay of the mean of their squares.
        adam_eps: Added to the root of the latter.
        bias_correction: Divide Adam's means by what they lack at the start, as LAMB's paper does.
        weight_decay: Weight decay of all parameters but norms and biases.
        clip_norm: Largest global norm of a gradient.
        dtype: Dtype of the computation; parameters and optimizer stay float32.
        remat: Recompute layers in the backward pass instead of keeping their activations.
        unroll: Compile every layer for itself: takes longer to compile, and then trains up to a
            fifth faster on CPU than a scan over the layers. With `remat` they are scanned.
        seed: Random seed of initial weights, data order and dropout.
        log_every: Updates that one row of the metrics file is the mean of.
        log_seconds: Seconds between two lines on the console.
        evaluate_every: Updates between two held-out evaluations; 0 for the first and last only.
        checkpoint_every: Updates between two checkpoints; 0 for the last only.
        keep_checkpoints: Number of newest checkpoints that are kept, beside the best.
        patience: Evaluations without improvement after which the run ends; 0 for never.
        workers: Processes that prepare batches; 0 for a thread of this one.
        devices: Number of devices to use; 0 for all.
        model_parallel: Devices that share one copy of a layer's heads and feed-forward units.
        on_error: Policy for rows that cannot be used: "fail", "skip" or "quarantine".
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
        documents: Unit that text files are cut into: "paragraphs" groups blank-line separated
            paragraphs, "blank-lines" takes each of them for a document, "lines" each line, "files"
            each file, which is then held in memory.
        paragraphs_per_document: Paragraphs in a group.
        text_column: Column of JSONL and Parquet files, one document per row.
        heldout_fraction: Share of documents kept for evaluation, chosen by their hash.
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
        model: Encoder to start from: built-in name, directory or Hub id, of any family with a
            masked-LM head; it keeps its shape and its tokenizer. Empty for a new BERT.
        vocab_size: Tokens of the WordPiece vocabulary learnt from the data.
        lowercase: Fold case and strip accents.
        num_hidden_layers: L.
        num_attention_heads: H.
        hidden_size: E.
        intermediate_size: F.
        hidden_act: Activation of the feed-forward layer.
        initializer_range: Standard deviation of the initial weights.
        hidden_dropout_prob: Dropout on embeddings and sub-layer outputs.
        attention_probs_dropout_prob: Dropout on attention weights.
        max_position_embeddings: Longest input of the model.
        lengths: Sequence length of each phase of training.
        length_shares: Share of the steps each phase gets; they add up to 1.
        short_sequence_prob: Share of documents cut to a random shorter length.
        pack: Most pairs that share a row, each seeing what it would see in a row of its own; 1 pads
            every pair to a row, as published. Worth it where documents are shorter than `lengths`.
        masked_lm_prob: Share of the tokens predicted.
        max_predictions: Most predictions per sequence; None for `masked_lm_prob` of the length.
        whole_word_masking: Hide all tokens of a word, or none.
        batch_size: Rows per update at the longest length; phases with shorter rows take
            proportionally more, for the same number of tokens.
        evaluate_batches: Batches of one held-out evaluation.
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
        task: Name of the task, such as "sst2".
        model: Model to start from: built-in name, model directory or Hub id.
        epochs: Passes over the training examples; sets `steps` where that is 0.
        warmup_share: Share of the steps that warm up; sets `warmup_steps` where that is 0.
        steps: Updates in all; 0 lets `epochs` decide.
        evaluations_per_epoch: Sets `evaluate_every` where that is 0; at most 20 in all.
        max_length: Tokens kept of an example; the longer text of a pair is cut first.
        buckets: Lengths that batches are padded to, up to `max_length`.
        seeds: One run per entry, of data order, dropout and the new head.
        text_column: Column of CSV, JSONL and Parquet files; empty for the task's own names.
        pair_column: Column of the second text.
        label_column: Column of the label.
        predict_batch: Sequences per batch of an evaluation.
        gate_price: Added to the loss for every head whose gate is open (Voita et al. 2019): heads
            that are not worth it close, and are removed from what is saved; 0 for no gates.
        gate_speed: Factor on the learning rate with which gates are moved.
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
        task: Name of the task in reports.
        text_column: Column of the text.
        pair_column: Column of the second text; empty for single texts.
        label_column: Column of the label.
        regression: Whether labels are numbers to predict, rather than classes.
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


GPT2 = "gpt2"
ARCHITECTURES = (GPT2, *(kind for kind in TYPES if kind != OWN))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelRecipe(TextRecipe):
    """Next-word prediction; the defaults suit a small model and a few megabytes of text.

    Attributes:
        architecture: Architecture of a new model, a `model_type` of Hugging Face: gpt2, llama,
            qwen3, gemma2 or another key of `flaxattn.models.decoder_types.TYPES`. The type decides
            everything that no setting here names: norms, activation, rotary positions, windows,
            soft caps.
        model: Model to continue from: built-in name, model directory or Hub id; it keeps its
            tokenizer and its config. Empty for a new model.
        vocab_size: Most tokens of a byte-level BPE vocabulary learnt from the data.
        n_layer: L of a new model.
        n_head: H of a new model.
        n_embd: E of a new model.
        key_heads: G of a new model, a divisor of `n_head`: heads of keys and values that query
            heads share; 0 for as many as query heads.
        dropout: Dropout of a new model: on embeddings, attention weights and sub-layer outputs,
            where its type has such a setting. Most types have one for attention weights alone.
        model_dropout: The same for a model that training continues from; None for what its config
            says.
        initializer_range: Standard deviation of a new model's weights. Its positions get half of
            it, and what a layer adds to the residual stream is scaled by 1 / sqrt(2 L).
        block: S, tokens of a row, and the context of a new model.
        reflow: Put each paragraph on one line, for text with hard line breaks; else lines and white
            space stay as written, and only blank lines between paragraphs count as one.
        pack: Most documents that share a row.
        repeat_share: Share of the rows of every batch that hold spans which stand twice, the second
            time to be copied; see `flaxattn.train.lm`. They come on top of the text, which
            `epochs` counts. 0 for none.
        repeat_spans: Fewest and most tokens of such a span.
        repeat_mix: Shares of the spans that are random tokens, each as likely; random tokens, as
            likely as in the text; and passages of the text. They add up to 1.
        stride: Tokens between two windows of an evaluation, so that each token but the first ones
            is predicted from at least `block` - `stride`; 0 for half of `block`.
        epochs: Passes over the text; sets `steps` where that is 0.
        steps: Updates in all; 0 lets `epochs` decide.
        learning_rate: The peak; 0 for 0.2 / E, and half of that where training starts from a model.
        warmup_share: Share of the steps that warm up; sets `warmup_steps` where that is 0.
        evaluations: Largest number of evaluations; sets `evaluate_every` where that is 0.
        evaluate_tokens: Held-out tokens that an evaluation looks at, from the first on; 0 for all.
        prompts: Texts that are continued at every evaluation; none for the beginnings of the first
            held-out documents.
        sample_tokens: Most tokens of a continuation; 0 for none.
        sample_temperature: Temperature of sampling; 0 takes the likeliest token.
        save_dtype: Dtype of the parameters in the finished model.
    """

    least = (
        TextRecipe.least
        | at_least(0, "stride evaluate_tokens sample_tokens sample_temperature epochs key_heads")
        | at_least(1, "pack evaluations n_layer n_head n_embd")
        | {"block": 2}
    )
    shares = ("dropout", "warmup_share", "heldout_fraction", "repeat_share")
    cutting = (*TextRecipe.cutting, "reflow")

    architecture: str = GPT2
    model: str = ""
    vocab_size: int = 8192
    n_layer: int = 4
    n_head: int = 6
    n_embd: int = 192
    key_heads: int = 0
    dropout: float = 0.1
    model_dropout: float | None = None
    initializer_range: float = 0.02
    block: int = 256
    reflow: bool = False
    paragraphs_per_document: int = 20
    heldout_fraction: float = 0.05
    pack: int = 64
    repeat_share: float = 0.0
    repeat_spans: tuple[int, ...] = (8, 127)
    repeat_mix: tuple[float, ...] = (0.5, 0.25, 0.25)
    stride: int = 0
    batch_size: int = 16
    epochs: float = 5.0
    steps: int = 0
    warmup_share: float = 0.05
    warmup_steps: int = 0
    learning_rate: float = 0.0
    schedule: Literal["bert", "linear", "polynomial", "constant", "inverse-sqrt", "noam"] = "linear"
    adam_b2: float = 0.95
    adam_eps: float = 1e-8
    bias_correction: bool = True
    weight_decay: float = 0.1
    evaluations: int = 10
    evaluate_every: int = 0
    evaluate_tokens: int = 50_000
    checkpoint_every: int = 0
    prompts: tuple[str, ...] = ()
    sample_tokens: int = 40
    sample_temperature: float = 0.8
    save_dtype: Literal["float32", "float16", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride > self.block:
            raise InputError(
                f"recipe: stride {self.stride} would leave tokens out between two windows\n"
                f"block is {self.block}, and a window has so many tokens\n"
                f"lower stride to at most {self.block}, or raise block"
            )
        if self.n_embd % self.n_head:
            raise InputError(
                f"recipe: n_embd {self.n_embd} is not a multiple of n_head {self.n_head}\n"
                "every head gets n_embd / n_head dimensions\nchange one of them"
            )
        if not 0 <= (self.model_dropout or 0) < 1:
            raise InputError(
                f"recipe: model_dropout must be in [0, 1), got {self.model_dropout}\n"
                "it is a share, such as 0.1"
            )
        self._check_architecture()
        self._check_repeats()
        if "" in (prompt.strip() for prompt in self.prompts):
            raise InputError(
                "recipe: one of the prompts is empty\n"
                f"received {list(self.prompts)}\n"
                "give it a word, or no prompts for the beginnings of held-out documents"
            )

    def _check_architecture(self) -> None:
        kind = self.architecture
        if kind not in ARCHITECTURES:
            near = difflib.get_close_matches(kind, ARCHITECTURES, 1, 0)[0]
            raise InputError(
                f"recipe: there is no architecture {kind!r}\n"
                f"architectures are {', '.join(ARCHITECTURES)}\n"
                f"choose one of them: --set architecture={near}"
            )
        if self.n_head % (self.key_heads or self.n_head):
            raise InputError(
                f"recipe: n_head {self.n_head} is not a multiple of key_heads {self.key_heads}\n"
                "every head of keys serves the same number of query heads\nchange one of them"
            )
        heads = None if kind == GPT2 else switches(kind)["num_key_value_heads"]
        own = self.model or self.key_heads in (0, self.n_head)
        if not own and not isinstance(heads, Setting):
            raise InputError(
                f"recipe: key_heads {self.key_heads} does not fit architecture {kind}\n"
                f"its query heads do not share keys, and n_head is {self.n_head}\n"
                "leave key_heads out, or choose another architecture, such as llama"
            )

    def _check_repeats(self) -> None:
        mix, spans = self.repeat_mix, self.repeat_spans
        if len(mix) != 3 or min(mix) < 0 or abs(sum(mix) - 1) > 1e-6:
            raise InputError(
                "recipe: repeat_mix needs three shares that add up to 1\n"
                f"received {list(mix)}\n"
                "give those of uniform tokens, of tokens by frequency, and of passages"
            )
        if not self.repeat_share:
            return
        if len(spans) != 2 or not 2 <= spans[0] <= min(spans[1], self.block // 2):
            raise InputError(
                f"recipe: repeat_spans {list(spans)} do not fit block {self.block}\n"
                "expected the fewest and the most tokens; the fewest must fit twice into a row\n"
                f"give for example repeat_spans=[2,{self.block // 2}]"
            )
        if not 0 < self.text_rows < self.batch_size:
            raise InputError(
                f"recipe: repeat_share {self.repeat_share} is {self.repeated_rows} of the "
                f"{self.batch_size} rows of a batch\n"
                "expected rows of both kinds, text and repeats\nchange it, or raise batch_size"
            )

    @property
    def repeated_rows(self) -> int:
        """Rows of a batch that hold repeated spans."""
        return round(self.repeat_share * self.batch_size)

    @property
    def text_rows(self) -> int:
        """Rows of a batch that hold text."""
        return self.batch_size - self.repeated_rows

    @property
    def step_of_windows(self) -> int:
        """Tokens between two windows of an evaluation."""
        return self.stride or self.block // 2

    def for_rows(self, rows: int, width: int) -> "LanguageModelRecipe":
        """The recipe with what it leaves open filled in: steps, their rate, and evaluations.

        Args:
            rows: Rows of an epoch.
            width: E of the model.
        """
        steps = self.steps or max(1, round(self.epochs * rows / self.text_rows))
        return dataclasses.replace(
            self,
            steps=steps,
            learning_rate=self.learning_rate or (0.1 if self.model else 0.2) / width,
            warmup_steps=self.warmup_steps or round(self.warmup_share * steps),
            evaluate_every=self.evaluate_every or -(-steps // self.evaluations),
        )

    def check_model(self, config: GPT2Config | DecoderConfig) -> None:
        """Refuse settings that a given model contradicts.

        Args:
            config: Config of the model that the run continues from.

        Raises:
            InputError: `block` is over its context, or its shape was asked to be another one.
        """
        limit = config.max_position_embeddings
        if self.block > limit:
            raise InputError(
                f"recipe: block {self.block} does not fit the model\n"
                f"{self.model} reads up to {limit} tokens\n"
                f"lower it: --set block={limit}"
            )
        defaults = self.defaults()
        shape: dict[str, Any] = {
            "architecture": config.model_type,
            "n_layer": config.num_hidden_layers,
            "n_head": config.num_attention_heads,
            "n_embd": config.hidden_size,
            "key_heads": config.key_heads,
        }
        for name, has in shape.items():
            requested = getattr(self, name)
            if requested not in (defaults[name], has):
                raise InputError(
                    f"recipe: {name} {requested} contradicts model {self.model!r}\n"
                    f"it has {name} {has}, and keeps its shape\n"
                    f"leave {name} out, or train a new model without --model"
                )


_EVEN = 8  # batches have a multiple of so many rows where they can, for devices to share


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationRecipe(Recipe):
    """Training an encoder-decoder on parallel text; the defaults suit 30,000 short sentences.

    `batch_size` is not looked at: `batch_tokens` says how many rows a batch has.

    Attributes:
        source: Language that is read: a key of JSONL's `translation`, a column of a table.
        target: Language that is written.
        model_type: "transformer" (Vaswani et al. 2017), or "rnn", the bidirectional GRU encoder
            with additive attention (Bahdanau et al. 2015).
        vocab_size: Tokens of a vocabulary learnt from the data; of each of both, if separate.
        split_digits: Every digit is a token.
        shared_vocabulary: One vocabulary and one embedding for both languages.
        tie_word_embeddings: The output layer is the target embedding.
        d_model: E, width of the Transformer.
        encoder_layers: L of the encoder.
        decoder_layers: L of the decoder.
        encoder_attention_heads: H of the encoder.
        decoder_attention_heads: H of the decoder.
        encoder_ffn_dim: F of the encoder.
        decoder_ffn_dim: F of the decoder.
        activation_function: Activation of the feed-forward layers.
        positions: "sinusoidal" or "learned".
        norm_first: Pre-LN instead of post-LN; such a model opens in flaxattn only.
        dropout: Dropout on embeddings and on sub-layer outputs.
        attention_dropout: Dropout on attention weights.
        activation_dropout: Dropout on feed-forward activations.
        init_std: Standard deviation of the initial weights; 0 for 1 / sqrt(E).
        max_position_embeddings: Longest source and target that the model can be given.
        embedding_size: Width of the embeddings of an RNN; these five and `dropout` are its whole
            shape.
        hidden_size: Width of an RNN's states.
        attention: Whether an RNN's decoder looks at the source; otherwise it is handed one vector
            of it, as in Cho et al. 2014.
        attention_size: Width of the layer in an RNN that scores alignments.
        readout_size: Width of the maxout layer before an RNN's output.
        max_length: Most tokens of a sentence of the training data; longer ones are bad rows.
        batch_tokens: Most positions of a batch on either side, padding included.
        buckets: Lengths that batches are padded to, on both sides alike, up to `max_length`.
        epochs: Passes over the pairs; sets `steps` where that is 0.
        steps: Updates in all; 0 lets `epochs` decide.
        evaluations: Largest number of evaluations; sets `evaluate_every` where that is 0.
        learning_rate: The peak; with schedule "noam" a factor on the published rate, whose peak is
            1 / sqrt(E warmup_steps).
        label_smoothing: Share of the probability spread evenly over the vocabulary.
        heldout_pairs: Kept for evaluation, chosen by their hash, where no dev set is given; never
            more than a tenth.
        bleu_sentences: First ones of the dev set that are translated in an evaluation, greedily; 0
            for none.
        watch: Measure that chooses the best parameters: "bleu", or "loss" of the dev set.
        average_checkpoints: The result is the mean of the parameters of so many last evaluations;
            1 for the best evaluation instead.
    """

    least = Recipe.least | at_least(
        1, "vocab_size max_length batch_tokens evaluations average_checkpoints"
    )
    shares = ("label_smoothing", "dropout", "attention_dropout", "activation_dropout")

    source: str = ""
    target: str = ""
    model_type: Literal["transformer", "rnn"] = "transformer"
    vocab_size: int = 8000
    split_digits: bool = False
    shared_vocabulary: bool = True
    tie_word_embeddings: bool = True
    d_model: int = 256
    encoder_layers: int = 3
    decoder_layers: int = 3
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 512
    decoder_ffn_dim: int = 512
    activation_function: str = "relu"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    norm_first: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init_std: float = 0.0
    max_position_embeddings: int = 512
    embedding_size: int = 256
    hidden_size: int = 512
    attention: bool = True
    attention_size: int = 512
    readout_size: int = 256
    max_length: int = 128
    batch_tokens: int = 4096
    buckets: tuple[int, ...] = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    epochs: float = 20.0
    steps: int = 0
    warmup_steps: int = 2000
    evaluations: int = MOST_EVALUATIONS
    evaluate_every: int = 0
    checkpoint_every: int = 0
    learning_rate: float = 1.0
    schedule: Literal["bert", "linear", "polynomial", "constant", "inverse-sqrt", "noam"] = "noam"
    optimizer: Literal["adamw", "lamb", "adam"] = "adam"
    adam_b2: float = 0.98
    adam_eps: float = 1e-9
    weight_decay: float = 0.0
    label_smoothing: float = 0.1
    heldout_pairs: int = 1000
    bleu_sentences: int = 200
    watch: Literal["bleu", "loss"] = "bleu"
    average_checkpoints: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.buckets or max(self.buckets) < self.max_length:
            raise InputError(
                f"recipe: no bucket holds max_length {self.max_length}\n"
                f"the longest of buckets is {max(self.buckets, default=0)}\n"
                f"add {self.max_length} to buckets, or lower max_length"
            )
        if self.watch == "bleu" and self.bleu_sentences < 1:
            raise InputError(
                "recipe: watch 'bleu' needs sentences to translate\n"
                f"bleu_sentences is {self.bleu_sentences}\nraise it, or set watch to loss"
            )
        if self.batch_tokens < self.max_length:
            raise InputError(
                f"recipe: batch_tokens {self.batch_tokens} does not hold one sentence\n"
                f"max_length is {self.max_length}\nraise batch_tokens, or lower max_length"
            )
        if self.max_position_embeddings <= self.max_length:
            raise InputError(
                f"recipe: max_length {self.max_length} does not fit the model\n"
                f"max_position_embeddings is {self.max_position_embeddings}\n"
                "raise max_position_embeddings, or lower max_length"
            )

    @property
    def peak(self) -> float:
        """The highest learning rate, at the end of the warm-up."""
        if self.schedule == "noam":
            return self.learning_rate * (self.d_model * max(self.warmup_steps, 1)) ** -0.5
        return self.learning_rate

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths that batches are padded to, ascending; none above `max_length`."""
        return tuple(sorted({min(length, self.max_length) for length in self.buckets}))

    def rows(self, length: int) -> int:
        """B, rows of a batch of that length."""
        most = self.batch_tokens // length
        return most - most % _EVEN or most

    def for_batches(self, per_epoch: int) -> "TranslationRecipe":
        """The recipe with `steps` and `evaluate_every` filled in.

        Args:
            per_epoch: Batches of an epoch.
        """
        steps = self.steps or max(1, round(self.epochs * per_epoch))
        every = self.evaluate_every or -(-steps // self.evaluations)
        return dataclasses.replace(self, steps=steps, evaluate_every=every)
