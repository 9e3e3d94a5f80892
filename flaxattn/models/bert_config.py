# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Model configurations: frozen, validated, with Hugging Face's field names.

This file knows `config.json`; it knows neither parameters nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from flaxattn.errors import check_arguments
from flaxattn.models.config_base import HFConfig, check_pruned, check_supported, pruned_from_hf

# Hugging Face settings that would change the arithmetic, with the one value we implement.
_ONLY_SUPPORTED: Mapping[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class BertConfig(HFConfig):
    """Shape and settings of a BERT (Devlin et al. 2019); the defaults are BERT-base.

    Attributes:
        vocab_size: V, number of word pieces.
        hidden_size: E, width of the residual stream.
        num_hidden_layers: L.
        num_attention_heads: H; must divide `hidden_size`.
        intermediate_size: F, width of the feed-forward layer.
        hidden_act: Name of the feed-forward activation, as in `layers.ACTIVATIONS`.
        hidden_dropout_prob: Dropout on embeddings and on both sublayer outputs.
        attention_probs_dropout_prob: Dropout on the attention weights.
        max_position_embeddings: Longest input, in word pieces.
        type_vocab_size: Number of segment types; 2 for sentence A and B.
        initializer_range: Standard deviation of the initial weights.
        layer_norm_eps: Added to the variance in every LayerNorm.
        pad_token_id: Id of the padding piece.
        classifier_dropout: Dropout before a classifier; None means `hidden_dropout_prob`.
        tie_word_embeddings: Whether the masked-LM output layer is the word embedding.
        problem_type: Hugging Face's hint for the loss of a sequence classifier, kept as it is.
        labels: Class names of a classifier, in id order.
        architectures: Hugging Face class names; the first one says which head a checkpoint has.
        pruned_heads: Numbers of the heads that each layer lacks; empty if none lacks any.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | None = None
    tie_word_embeddings: bool = True
    problem_type: str | None = None
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    architectures: tuple[str, ...] = ("BertModel",)
    pruned_heads: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        self.check_sizes(_SIZES)
        self.check_heads("hidden_size", "num_attention_heads")
        self.check_floats()
        check_pruned(self.pruned_heads, self.num_hidden_layers, self.num_attention_heads)

    @property
    def head_size(self) -> int:
        """D, the depth of one head."""
        return self.hidden_size // self.num_attention_heads

    def attention_size(self, layer: int) -> int:
        """Width of a layer's queries, keys and values: D for each head that it has."""
        lacking = len(self.pruned_heads[layer]) if self.pruned_heads else 0
        return self.head_size * (self.num_attention_heads - lacking)

    @property
    def num_labels(self) -> int:
        """Number of classes of a classifier."""
        return len(self.labels)

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """The shape of the built-in model: 4 layers, 4 heads, width 256."""
        sizes = dict(
            hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
        )
        return cls.sized(sizes, changes)

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """BERT-large: 24 layers, 16 heads, width 1024."""
        sizes = dict(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
        )
        return cls.sized(sizes, changes)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Read the content of a Hugging Face `config.json`.

        Keys that do not concern the arithmetic are ignored.

        Args:
            settings: The parsed JSON object.

        Raises:
            CheckpointError: For another model type, or a setting that BERT here does not implement.
        """
        check_supported("BERT", settings, _ONLY_SUPPORTED)
        values = cls.fields_of(settings)
        count = values.get("num_hidden_layers", cls.num_hidden_layers)
        return cls(**values, pruned_heads=pruned_from_hf(settings.get("pruned_heads"), count))

    def to_hf(self) -> dict[str, Any]:
        """The content of a Hugging Face `config.json`; `from_hf` reads it back unchanged."""
        return self.settings("bert")


_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
