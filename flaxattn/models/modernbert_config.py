# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of ModernBERT: frozen, validated, with Hugging Face's field names.

This file knows `config.json`, that of transformers 4.48 and that of 5; it knows neither parameters
nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from flaxattn.errors import CheckpointError, check_arguments
from flaxattn.models.bert_config import BertConfig, BertVariant
from flaxattn.models.config_base import (
    FULL,
    SLIDING,
    HFConfig,
    check_integer,
    check_layer_types,
    check_supported,
    shown,
)
from flaxattn.models.rotary import Rotary, rotary_of, rotary_to_hf

_EVERY = 3  # layers per global one, where a config.json does not say
_THETAS: Mapping[str, tuple[str, float]] = {
    FULL: ("global_rope_theta", 160_000.0),
    SLIDING: ("local_rope_theta", 10_000.0),
}
_VARIANT = BertVariant("ModernBert", token_types=False, pooler=False, pruned_form=False)
_ROTARY, _LOCAL_ROTARY = (Rotary(theta) for _, theta in _THETAS.values())


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class ModernBertConfig(HFConfig):
    """Shape and settings of a ModernBERT (Warner et al. 2024); the defaults are ModernBERT-base.

    Attributes:
        vocab_size: V, number of tokens.
        hidden_size: E, width of the residual stream.
        intermediate_size: F, width of the gated feed-forward layer.
        num_hidden_layers: L.
        num_attention_heads: H; must divide `hidden_size`.
        hidden_activation: Name of the feed-forward activation, as in `layers.ACTIVATIONS`.
        max_position_embeddings: Longest input, in tokens.
        initializer_range: Standard deviation of the initial weights.
        norm_eps: Added to the variance in every LayerNorm.
        norm_bias: Whether LayerNorms have a bias.
        pad_token_id: Id of the padding token.
        attention_bias: Whether the projections of attention have a bias.
        attention_dropout: Dropout on the attention weights and on the output of attention.
        layer_types: For each layer `full_attention` or `sliding_attention`; empty fills in a global
            layer first and after every two local ones.
        rotary: Rotary positions of global layers.
        local_rotary: Rotary positions of local layers.
        local_attention: Width of the window of local layers: half of it on either side of a query.
        embedding_dropout: Dropout on the embeddings.
        mlp_bias: Whether the feed-forward layers have a bias.
        mlp_dropout: Dropout inside the feed-forward layer.
        decoder_bias: Whether the masked-LM output layer has a bias.
        classifier_pooling: `cls`, the first position, or `mean`, the mean over real positions.
        classifier_dropout: Dropout before a classifier.
        classifier_bias: Whether the dense layer of a task head has a bias.
        classifier_activation: Activation after that layer.
        tie_word_embeddings: Whether the masked-LM output layer is the word embedding.
        problem_type: Hugging Face's hint for the loss of a sequence classifier, kept as it is.
        labels: Class names of a classifier, in id order.
        architectures: Hugging Face class names; the first one says which head a checkpoint has.
    """

    activation_key: ClassVar[str] = "hidden_activation"

    vocab_size: int = 50368
    hidden_size: int = 768
    intermediate_size: int = 1152
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    hidden_activation: str = "gelu"
    max_position_embeddings: int = 8192
    initializer_range: float = 0.02
    norm_eps: float = 1e-5
    norm_bias: bool = False
    pad_token_id: int | None = 50283
    attention_bias: bool = False
    attention_dropout: float = 0.0
    layer_types: tuple[str, ...] = ()
    rotary: Rotary = _ROTARY
    local_rotary: Rotary = _LOCAL_ROTARY
    local_attention: int = 128
    embedding_dropout: float = 0.0
    mlp_bias: bool = False
    mlp_dropout: float = 0.0
    decoder_bias: bool = True
    classifier_pooling: Literal["cls", "mean"] = "cls"
    classifier_dropout: float = 0.0
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    tie_word_embeddings: bool = True
    problem_type: str | None = None
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    architectures: tuple[str, ...] = ("ModernBertModel",)

    def __post_init__(self) -> None:
        self.check_sizes(_SIZES)
        self.check_heads("hidden_size", "num_attention_heads")
        self.check_floats()
        if not self.layer_types:
            object.__setattr__(self, "layer_types", _alternating(self.num_hidden_layers, _EVERY))
        self._check_choices()

    def _check_choices(self) -> None:
        check_layer_types(self.layer_types, self.num_hidden_layers)
        if self.classifier_pooling not in ("cls", "mean"):
            raise CheckpointError(
                f"classifier_pooling is {shown(self.classifier_pooling)}, expected cls or mean.\n"
                "Compare config.json with the original."
            )
        if self.head_size % 2:
            raise CheckpointError(
                f"Heads of {self.head_size} dimensions cannot have rotary positions.\n"
                "hidden_size / num_attention_heads must be even."
            )

    @property
    def head_size(self) -> int:
        """D, the depth of one head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def hidden_act(self) -> str:
        """Name of the feed-forward activation, under the name that other families have for it."""
        return self.hidden_activation

    @property
    def type_vocab_size(self) -> int:
        """Number of segment types that statistics can tell apart; embeddings know none."""
        return 2

    @property
    def variant(self) -> BertVariant:
        """Traits of the family among encoders, as far as texts and heads are concerned."""
        return _VARIANT

    @property
    def first_position(self) -> int:
        """`position_ids` of the first token of a text."""
        return 0

    @property
    def position_embedding_type(self) -> str:
        """Kind of positions: these turn queries and keys."""
        return "rotary"

    @property
    def token_dropout(self) -> bool:
        """False: embeddings are not scaled by the share of masks, as those of an ESM-2 are."""
        return False

    @property
    def num_labels(self) -> int:
        """Number of classes of a classifier."""
        return len(self.labels)

    @property
    def windows(self) -> tuple[tuple[int, int] | None, ...]:
        """For each layer the positions before and behind a query that it sees; None for all."""
        side = self.local_attention // 2
        return tuple((side, side) if kind == SLIDING else None for kind in self.layer_types)

    @property
    def fused_attention_size(self) -> int:
        """Width of queries, keys and values in one tensor, as checkpoints have them."""
        return 3 * self.hidden_size

    @property
    def fused_feed_forward_size(self) -> int:
        """Width of both inner layers of the feed-forward layer in one tensor."""
        return 2 * self.intermediate_size

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """A shape for tests: 4 layers, 4 heads, width 64, windows of 16 positions."""
        sizes = dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=4,
            num_attention_heads=4,
            local_attention=16,
            pad_token_id=0,
        )
        return cls.sized(sizes, changes)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Read the content of a Hugging Face `config.json`, of transformers 4.48 or later.

        Keys that do not concern the arithmetic are kept as they are.
        """
        check_supported("ModernBERT", settings, {"position_embedding_type": "rope"})
        given = {name: value for name, value in settings.items() if name not in _WRITTEN}
        values = cls.fields_of(given)
        count = values.get("num_hidden_layers", cls.num_hidden_layers)
        every = settings.get("global_attn_every_n_layers", _EVERY)
        check_integer("num_hidden_layers", count, 1, 2**20)
        check_integer("global_attn_every_n_layers", every, 1, 2**31 - 1)
        values["layer_types"] = tuple(values.get("layer_types") or _alternating(count, every))
        rotary, local = (_rotary(settings, kind) for kind in (FULL, SLIDING))
        return cls(**values, rotary=rotary, local_rotary=local)

    def to_hf(self) -> dict[str, Any]:
        """The content of a Hugging Face `config.json`; `from_hf` reads it back unchanged.

        Both spellings of rotary positions and of the order of layers are written: transformers 5
        reads one of them, 4.48 the other.
        """
        found = self.settings("modernbert")
        rotary, local = self.rotary, self.local_rotary
        del found["rotary"], found["local_rotary"]
        found["layer_types"] = list(self.layer_types)
        found |= rotary_to_hf(self)
        for stated in found["rope_parameters"].values():  # transformers turns whole heads here
            del stated["partial_rotary_factor"]
        found["global_rope_theta"], found["local_rope_theta"] = rotary.rope_theta, local.rope_theta
        every = self.layer_types[1:].index(FULL) + 1 if FULL in self.layer_types[1:] else None
        every = every or self.num_hidden_layers
        if self.layer_types == _alternating(self.num_hidden_layers, every):
            found["global_attn_every_n_layers"] = every
        return found


def _alternating(layers: int, every: int) -> tuple[str, ...]:
    return tuple(SLIDING if number % every else FULL for number in range(layers))


def _rotary(settings: Mapping[str, Any], kind: str) -> Rotary:
    """Rotary positions of one kind of layer, by `rope_parameters` or by the older settings."""
    key, theta = _THETAS[kind]
    theta = settings.get(key, theta)
    stated = (settings.get("rope_parameters") or {}).get(kind) or {}
    stated = {**stated, **(settings.get("rope_scaling") or {})}
    rotary = rotary_of(stated, theta, settings)
    if rotary.partial_rotary_factor != 1:
        raise CheckpointError(
            f"partial_rotary_factor is {rotary.partial_rotary_factor}; flaxattn's ModernBERT "
            "implements 1.\nChoose a checkpoint of that kind."
        )
    theta = rotary.rope_theta
    if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0 < theta < 1e30:
        raise CheckpointError(
            f"{key} is {shown(theta)}, expected a number above 0.\n"
            "Compare config.json with the original."
        )
    return rotary


_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "local_attention",
)
# Settings that fields say in another form; `to_hf` writes them.
_WRITTEN = {
    "rope_parameters",
    "rope_scaling",
    "global_rope_theta",
    "local_rope_theta",
    "global_attn_every_n_layers",
}


EncoderConfig = BertConfig | ModernBertConfig
