# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations of BERT and its variants: frozen, validated, with Hugging Face's field names.

This file knows `config.json`; it knows neither parameters nor modules. `bert_variants` has the
table of what differs from model type to model type.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from flaxattn.errors import CheckpointError, check_arguments
from flaxattn.models.bert_variants import BERT_VARIANTS, BertVariant
from flaxattn.models.config_base import HFConfig, check_pruned, check_supported, pruned_from_hf
from flaxattn.models.rotary import Rotary

_WITHOUT_HEAD = ("BertModel",)


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class BertConfig(HFConfig):
    """Shape and settings of a BERT (Devlin et al. 2019) or a variant; the defaults are BERT-base.

    >>> import flaxattn as fa
    >>> config = fa.BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4)
    >>> config.num_hidden_layers, config.head_size
    (4, 64)

    Attributes:
        vocab_size: V, number of tokens.
        hidden_size: E, width of the residual stream.
        num_hidden_layers: L.
        num_attention_heads: H; must divide `hidden_size`.
        intermediate_size: F, width of the feed-forward layer.
        hidden_act: Name of the feed-forward activation, as in `layers.ACTIVATIONS`.
        hidden_dropout_prob: Dropout on embeddings and on both sublayer outputs.
        attention_probs_dropout_prob: Dropout on the attention weights.
        max_position_embeddings: Longest input, in tokens.
        type_vocab_size: Number of segment types; 2 for sentence A and B.
        initializer_range: Standard deviation of the initial weights.
        layer_norm_eps: Added to the variance in every LayerNorm.
        pad_token_id: Id of the padding token.
        classifier_dropout: Dropout before a classifier; None means `hidden_dropout_prob`.
        tie_word_embeddings: Whether the masked-LM output layer is the word embedding.
        problem_type: Hugging Face's hint for the loss of a sequence classifier, kept as it is.
        labels: Class names of a classifier, in id order.
        architectures: Hugging Face class names; the first one says which head a checkpoint has.
        pruned_heads: Numbers of the heads that each layer lacks; empty if none lacks any.
        model_type: A key of `BERT_VARIANTS`, which says what differs from BERT.
        embedding_size: Width of the embeddings of ELECTRA and ALBERT; `hidden_size` for the others.
        num_hidden_groups: Sets of parameters that the layers of ALBERT share.
        relative_attention_num_buckets: Ranges of distances with a bias of their own, in MPNet.
        position_embedding_type: "absolute" for a learned table; ESM may have "rotary".
        rope_theta: Base of the wavelengths of rotary positions.
        emb_layer_norm_before: Whether the embeddings of ESM are normalised.
        token_dropout: Whether ESM sets masked tokens to zero and scales the others up instead.
        rotary_frequencies: Angle per position of each pair of dimensions, where a checkpoint holds
            rounded ones; empty for those that follow from `rope_theta`.
        mask_token_id: Id of the mask, where `token_dropout` needs it.
        further_settings: JSON of the settings in `config.json` that are not fields, which `to_hf`
            writes back.
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
    architectures: tuple[str, ...] = _WITHOUT_HEAD
    pruned_heads: tuple[tuple[int, ...], ...] = ()
    model_type: str = "bert"
    embedding_size: int | None = None
    num_hidden_groups: int = 1
    relative_attention_num_buckets: int = 32
    position_embedding_type: str = "absolute"
    rope_theta: float = 10000.0
    emb_layer_norm_before: bool | None = None
    token_dropout: bool | None = False
    mask_token_id: int | None = None
    rotary_frequencies: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.model_type not in BERT_VARIANTS:
            raise CheckpointError(
                f"model_type {self.model_type!r} is not a variant of BERT.\n"
                f"Choose one of {', '.join(BERT_VARIANTS)}."
            )
        if self.embedding_size is None:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        if self.architectures == _WITHOUT_HEAD:
            object.__setattr__(self, "architectures", self.variant.architectures[:1])
        self.check_sizes(_SIZES)
        self.check_heads("hidden_size", "num_attention_heads")
        self.check_floats()
        check_pruned(self.pruned_heads, self.num_hidden_layers, self.num_attention_heads)

    @property
    def variant(self) -> BertVariant:
        """Differences of this model from BERT."""
        return BERT_VARIANTS[self.model_type]

    @property
    def first_position(self) -> int:
        """Row of the table of positions that the first token of a text has."""
        by_ids = self.variant.positions_from_ids and self.position_embedding_type == "absolute"
        return 1 + (self.pad_token_id or 0) if by_ids else 0

    @property
    def rotary(self) -> Rotary | None:
        """Rotary positions; None where positions are embedded."""
        if self.position_embedding_type != "rotary":
            return None
        return Rotary(self.rope_theta, frequencies=self.rotary_frequencies)

    @property
    def local_rotary(self) -> None:
        """None: no layer has a window."""
        return None

    @property
    def projects(self) -> bool:
        """Return whether embeddings are projected to the width of the layers."""
        narrower = self.embedding_size != self.hidden_size
        return {"never": False, "narrower": narrower, "always": True}[self.variant.projection]

    @property
    def contact_inputs(self) -> int:
        """Inputs of the regression from attention to contacts: heads of all layers, 0 without."""
        return self.num_hidden_layers * self.num_attention_heads * self.variant.contacts

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

        Keys that do not concern the arithmetic are kept as they are.

        Args:
            settings: The parsed JSON object.

        Raises:
            CheckpointError: For a setting that is not implemented.
        """
        kind = settings.get("model_type", "bert")
        variant = BERT_VARIANTS[kind]
        check_supported(variant.prefix, settings, variant.supported)
        lacking = {name for name in _FURTHER if name not in variant.further}
        theirs = {name: variant.keys.get(name, name) for name in _fields(cls) - lacking}
        read = {name: settings[key] for name, key in theirs.items() if key and key in settings}
        unread = settings.keys() - theirs.values() - _fields(cls)
        read |= {key: settings[key] for key in unread} | {"model_type": kind}
        values = {**variant.defaults, **cls.fields_of(read)}
        count = values.get("num_hidden_layers", cls.num_hidden_layers)
        return cls(**values, pruned_heads=pruned_from_hf(settings.get("pruned_heads"), count))

    def to_hf(self) -> dict[str, Any]:
        """The content of a Hugging Face `config.json`; `from_hf` reads it back unchanged."""
        keys, further = self.variant.keys, self.variant.further
        found = self.settings(self.model_type)
        kept = {n: v for n, v in found.items() if n not in _FURTHER or n in further}
        named = {keys.get(name, name): value for name, value in kept.items()}
        return {key: value for key, value in named.items() if key is not None}


_FURTHER = {name for variant in BERT_VARIANTS.values() for name in variant.further}
_FURTHER |= {"rotary_frequencies"}  # of the tensors


def _fields(cls: type[BertConfig]) -> set[str]:
    """Names of the fields, and of the settings that are read in another form."""
    return {field.name for field in dataclasses.fields(cls)} | {"id2label", "num_labels"}


_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "embedding_size",
    "num_hidden_groups",
    "relative_attention_num_buckets",
)
