# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every number of a translation run: the shape of the model, its data, and how it is judged.

Settings that every run has are in `recipe`; nothing here reads a file or builds a model.
"""

import dataclasses
from typing import Literal

from flaxattn.errors import InputError
from flaxattn.train.recipe import MOST_EVALUATIONS, Recipe, at_least

_EVEN = 8  # batches have a multiple of so many rows where they can, for devices to share


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationRecipe(Recipe):
    """Training an encoder-decoder on parallel text; the defaults suit 30,000 short sentences.

    `batch_size` is not looked at: `batch_tokens` says how many rows a batch has.

    Attributes:
        source: language that is read: a key of JSONL's `translation`, a column of a table.
        target: language that is written.
        model_type: "transformer" (Vaswani et al. 2017), or "rnn", the bidirectional GRU encoder
            with additive attention (Bahdanau et al. 2015).
        vocab_size: tokens of a vocabulary learnt from the data; of each of both, if separate.
        split_digits: every digit is a token.
        shared_vocabulary: one vocabulary and one embedding for both languages.
        tie_word_embeddings: the output layer is the target embedding.
        d_model: E, width of the Transformer.
        encoder_layers: L of the encoder.
        decoder_layers: L of the decoder.
        encoder_attention_heads: H of the encoder.
        decoder_attention_heads: H of the decoder.
        encoder_ffn_dim: F of the encoder.
        decoder_ffn_dim: F of the decoder.
        activation_function: of the feed-forward layers.
        positions: "sinusoidal" or "learned".
        norm_first: pre-LN instead of post-LN; such a model opens in flaxattn only.
        dropout: on embeddings and on sub-layer outputs.
        attention_dropout: on attention weights.
        activation_dropout: on feed-forward activations.
        init_std: standard deviation of the initial weights; 0 for 1 / sqrt(E).
        max_position_embeddings: longest source and target that the model can be given.
        embedding_size: of the words of an RNN; these five and `dropout` are its whole shape.
        hidden_size: of an RNN's states.
        attention: whether an RNN's decoder looks at the source; otherwise it is handed one vector
            of it, as in Cho et al. 2014.
        attention_size: of the layer in an RNN that scores alignments.
        readout_size: of the maxout layer before an RNN's output.
        max_length: most tokens of a sentence of the training data; longer ones are bad rows.
        batch_tokens: most positions of a batch on either side, padding included.
        buckets: lengths that batches are padded to, on both sides alike, up to `max_length`.
        epochs: passes over the pairs; sets `steps` where that is 0.
        steps: updates in all; 0 lets `epochs` decide.
        evaluations: at most so many in all; sets `evaluate_every` where that is 0.
        learning_rate: the peak; with schedule "noam" a factor on the published rate, whose peak is
            1 / sqrt(E warmup_steps).
        label_smoothing: share of the probability spread evenly over the vocabulary.
        heldout_pairs: kept for evaluation, chosen by their hash, where no dev set is given; never
            more than a tenth.
        bleu_sentences: first ones of the dev set that are translated in an evaluation, greedily; 0
            for none.
        watch: what says which parameters are best: "bleu", or "loss" of the dev set.
        average_checkpoints: the result is the mean of the parameters of so many last evaluations;
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
            per_epoch: batches of an epoch.
        """
        steps = self.steps or max(1, round(self.epochs * per_epoch))
        every = self.evaluate_every or -(-steps // self.evaluations)
        return dataclasses.replace(self, steps=steps, evaluate_every=every)
