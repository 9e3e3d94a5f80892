# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of the recurrent encoder-decoder; Hugging Face has no such model.

This file knows `config.json`; it knows neither parameters nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from flaxattn.errors import check_arguments
from flaxattn.models.config_base import HFConfig
from flaxattn.models.seq2seq_config import Seq2SeqConfig
from flaxattn.models.t5_config import T5Config

RNN = "flaxattn-rnn"


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class RnnConfig(HFConfig):
    """Shape and settings of RNNsearch; the default sizes are those of the paper.

    Bahdanau et al. 2015, A.2.3. Fields that a Transformer has too are named as in `Seq2SeqConfig`.

    >>> import flaxattn as fa
    >>> config = fa.RnnConfig(hidden_size=256, attention_size=128)
    >>> config.encoded_size  # features of a source position, forwards and backwards
    512

    Attributes:
        vocab_size: V, number of source tokens; of target tokens too unless given apart.
        decoder_vocab_size: Number of target tokens; None means `vocab_size`.
        embedding_size: m, width of the word embeddings.
        hidden_size: n, width of the state of each GRU; a source position has 2 n features.
        attention: Whether the decoder looks at the source before every step. Otherwise it is handed
            one vector of the source at every step, the last states of both directions, as in Cho et
            al. 2014: a baseline, without heads to trace.
        attention_size: Width of the layer that scores alignments.
        readout_size: l, width of the maxout layer before the output.
        dropout: On embeddings and on the readout; the paper has none.
        max_position_embeddings: Longest source and longest target that are taken; no parameter
            depends on it.
        pad_token_id: Id of the padding token.
        bos_token_id: Id of the token that begins a text, where there is one.
        eos_token_id: Id of the token that ends a text.
        decoder_start_token_id: Id that the decoder reads first.
        forced_bos_token_id: Id that generation writes first, where given.
        forced_eos_token_id: Id that generation writes last at its limit, where given.
        labels: Names of the classes of a classifier.
        problem_type: What a classifier solves, as Hugging Face names it; None to tell from labels.
        architectures: Name of the class.
        further_settings: JSON of the settings in `config.json` that are not fields, which `to_hf`
            writes back.
    """

    vocab_size: int = 30000
    decoder_vocab_size: int | None = None
    embedding_size: int = 620
    hidden_size: int = 1000
    attention: bool = True
    attention_size: int = 1000
    readout_size: int = 500
    dropout: float = 0.0
    max_position_embeddings: int = 512
    pad_token_id: int = 0
    bos_token_id: int | None = None
    eos_token_id: int = 1
    decoder_start_token_id: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    problem_type: str | None = None
    architectures: tuple[str, ...] = ("RnnLM",)

    # One GRU on either side; only the decoder may attend, and to the encoder alone.
    encoder_layers = 1
    encoder_attention_heads = 0
    num_hidden_layers = 1

    def __post_init__(self) -> None:
        self.check_sizes(_SIZES)
        self.check_floats()
        self.check_ids(("decoder_start_token_id",), self.target_size)

    @property
    def decoder_layers(self) -> int:
        """Layers of the decoder: one, or none in a classifier."""
        return int(not self.architectures[0].endswith("Classification"))

    @property
    def decoder_attention_heads(self) -> int:
        """Heads of attention to the source: one or none."""
        return int(self.attention and self.decoder_layers > 0)

    @property
    def num_attention_heads(self) -> int:
        """Heads of the model: one or none."""
        return self.decoder_attention_heads

    @property
    def target_size(self) -> int:
        """Number of target tokens."""
        return self.vocab_size if self.decoder_vocab_size is None else self.decoder_vocab_size

    @property
    def encoded_size(self) -> int:
        """Features of a source position: the states of both directions."""
        return 2 * self.hidden_size

    @property
    def gates_size(self) -> int:
        """Both gates and the candidate of a unit."""
        return 3 * self.hidden_size

    @property
    def maxout_size(self) -> int:
        """Pairs of numbers, of which the readout keeps the larger."""
        return 2 * self.readout_size

    @property
    def read_size(self) -> int:
        """Width of the readout's input: state, word and context."""
        return self.hidden_size + self.embedding_size + self.encoded_size

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """For tasks made of a few symbols: width 128."""
        sizes = dict(embedding_size=64, hidden_size=128, attention_size=128, readout_size=64)
        return cls.sized(sizes, changes)

    @classmethod
    def small(cls, **changes: Any) -> Self:
        """For Multi30k: embeddings of 256, states of 512, dropout 0.5."""
        sizes = dict(embedding_size=256, hidden_size=512, attention_size=512, readout_size=256)
        return cls.sized({**sizes, "dropout": 0.5}, changes)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Read the content of a `config.json`; keys that do not concern the model are ignored.

        Args:
            settings: The parsed JSON object.
        """
        values = cls.fields_of(settings)
        if values.get("decoder_vocab_size") == values.get("vocab_size"):
            values["decoder_vocab_size"] = None
        return cls(**values)

    def to_hf(self) -> dict[str, Any]:
        """The content of a `config.json`; `from_hf` reads it back unchanged."""
        sizes = {"is_encoder_decoder": True, "decoder_vocab_size": self.target_size}
        return {**self.settings(RNN), **sizes}


# What text is written with: fields of all are read where it does not matter which one it is.
EncoderDecoderConfig = Seq2SeqConfig | T5Config | RnnConfig

_SIZES = (
    "vocab_size",
    "target_size",
    "embedding_size",
    "hidden_size",
    "attention_size",
    "readout_size",
    "max_position_embeddings",
)
