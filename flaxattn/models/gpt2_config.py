# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of a GPT-2, with Hugging Face's field names.

This file knows `config.json`; it knows neither parameters nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from flaxattn.errors import check_arguments
from flaxattn.models.config_base import (
    CAUSAL,
    HFConfig,
    check_pruned,
    check_supported,
    pruned_from_hf,
)

# Hugging Face settings that would change the arithmetic, with the one value we implement.
_ONLY_SUPPORTED: Mapping[str, Any] = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    **CAUSAL,
}


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class GPT2Config(HFConfig):
    """Shape and settings of a GPT-2 (Radford et al. 2019); the defaults are the smallest, `gpt2`.

    >>> import flaxattn as fa
    >>> config = fa.GPT2Config(n_embd=384, n_layer=6, n_head=6)
    >>> config.head_size, config.inner_size
    (64, 1536)

    Attributes:
        vocab_size: V, number of byte-level tokens.
        n_positions: Longest text, in tokens.
        n_embd: E, width of the residual stream.
        n_layer: L.
        n_head: H; must divide `n_embd`.
        n_inner: F, width of the feed-forward layer; None means 4 E.
        activation_function: Name of the feed-forward activation, as in `layers.ACTIVATIONS`.
        resid_pdrop: Dropout on both sub-layer outputs.
        embd_pdrop: Dropout on the embeddings.
        attn_pdrop: Dropout on the attention weights.
        layer_norm_epsilon: Added to the variance in every LayerNorm.
        initializer_range: Standard deviation of the initial weights.
        tie_word_embeddings: Whether the output layer is the word embedding.
        bos_token_id: Id that a text begins with where it has no prompt.
        eos_token_id: Id that ends a text.
        pad_token_id: Id of padding, where there is one.
        problem_type: Hugging Face's hint for the loss of a classifier, kept as it is.
        labels: Class names of a classifier, in id order.
        architectures: Hugging Face class names; the first one says which head a checkpoint has.
        pruned_heads: Numbers of the heads that each layer lacks; empty if none lacks any.
        further_settings: JSON of the settings in `config.json` that are not fields, which `to_hf`
            writes back.
    """

    activation_key: ClassVar[str] = "activation_function"
    # A GPT-2 as a decoder: the same switches as those of `DecoderConfig`.
    learned_positions: ClassVar[bool] = True
    norm: ClassVar[Literal["layer"]] = "layer"
    norm_places: ClassVar[Literal["before"]] = "before"
    parallel_residual: ClassVar[bool] = False
    gated: ClassVar[bool] = False
    input_bias: ClassVar[bool] = True
    output_bias: ClassVar[bool] = True
    mlp_bias: ClassVar[bool] = True
    head_norm: ClassVar[None] = None
    query_pre_attn_scalar: ClassVar[None] = None
    attn_logit_softcapping: ClassVar[None] = None
    final_logit_softcapping: ClassVar[None] = None
    sinks: ClassVar[bool] = False
    scale_embedding: ClassVar[bool] = False

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 50256
    eos_token_id: int | None = 50256
    pad_token_id: int | None = None
    problem_type: str | None = None
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    architectures: tuple[str, ...] = ("GPT2LMHeadModel",)
    pruned_heads: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        self.check_sizes(("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "inner_size"))
        self.check_heads("n_embd", "n_head")
        self.check_floats()
        check_pruned(self.pruned_heads, self.n_layer, self.n_head)

    @property
    def hidden_size(self) -> int:
        """E, width of the residual stream."""
        return self.n_embd

    @property
    def num_hidden_layers(self) -> int:
        """L."""
        return self.n_layer

    @property
    def num_attention_heads(self) -> int:
        """H."""
        return self.n_head

    @property
    def model_type(self) -> str:
        """Hugging Face's name of the architecture."""
        return "gpt2"

    @property
    def language_model(self) -> str:
        """Hugging Face's class name of the model that scores the next token."""
        return "GPT2LMHeadModel"

    @property
    def key_heads(self) -> int:
        """G, heads of keys and values: one for each query head."""
        return self.n_head

    @property
    def query_size(self) -> int:
        """Width of the queries of all heads."""
        return self.n_embd

    @property
    def key_size(self) -> int:
        """Width of the keys of all heads, and of the values."""
        return self.n_embd

    @property
    def norm_eps(self) -> float:
        """Added to the variance in every LayerNorm."""
        return self.layer_norm_epsilon

    @property
    def attention_dropout(self) -> float:
        """Dropout on the attention weights."""
        return self.attn_pdrop

    @property
    def residual_dropout(self) -> float:
        """Dropout on both sub-layer outputs."""
        return self.resid_pdrop

    @property
    def embedding_dropout(self) -> float:
        """Dropout on the embeddings."""
        return self.embd_pdrop

    @property
    def rotary(self) -> None:
        """None: positions are embedded."""

    @property
    def local_rotary(self) -> None:
        """None: no layer has rotary positions."""

    @property
    def rotary_layers(self) -> tuple[bool, ...]:
        """For each layer whether it has rotary positions: none has."""
        return (False,) * self.n_layer

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Window of each layer; None, because each sees everything before a query."""
        return (None,) * self.n_layer

    @property
    def max_position_embeddings(self) -> int:
        """Longest text, in tokens."""
        return self.n_positions

    @property
    def longest(self) -> int:
        """Most positions of a text."""
        return self.n_positions

    @property
    def head_size(self) -> int:
        """D, the depth of one head."""
        return self.n_embd // self.n_head

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a text."""
        return () if self.eos_token_id is None else (self.eos_token_id,)

    @property
    def inner_size(self) -> int:
        """F, width of the feed-forward layer."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner

    def attention_size(self, layer: int) -> int:
        """Width of a layer's queries, keys and values: D for each head that it has."""
        lacking = len(self.pruned_heads[layer]) if self.pruned_heads else 0
        return self.n_embd // self.n_head * (self.n_head - lacking)

    def fused_size(self, layer: int) -> int:
        """Width of queries, keys and values together: checkpoints keep them in one tensor."""
        return 3 * self.attention_size(layer)

    @property
    def hidden_act(self) -> str:
        """Name of the feed-forward activation."""
        return self.activation_function

    @property
    def num_labels(self) -> int:
        """Number of classes of a classifier."""
        return len(self.labels)

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """The shape of the built-in model: 4 layers, 6 heads, width 192."""
        return cls.sized(dict(n_positions=256, n_embd=192, n_layer=4, n_head=6), changes)

    @classmethod
    def medium(cls, **changes: Any) -> Self:
        """`gpt2-medium`: 24 layers, 16 heads, width 1024."""
        return cls.sized(dict(n_embd=1024, n_layer=24, n_head=16), changes)

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """`gpt2-large`: 36 layers, 20 heads, width 1280."""
        return cls.sized(dict(n_embd=1280, n_layer=36, n_head=20), changes)

    @classmethod
    def xl(cls, **changes: Any) -> Self:
        """`gpt2-xl`: 48 layers, 25 heads, width 1600."""
        return cls.sized(dict(n_embd=1600, n_layer=48, n_head=25), changes)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Read the content of a Hugging Face `config.json`.

        Keys that do not concern the arithmetic are ignored.

        Args:
            settings: The parsed JSON object.

        Raises:
            CheckpointError: For a setting that is not implemented here.
        """
        check_supported("GPT-2", settings, _ONLY_SUPPORTED)
        values = cls.fields_of(settings)
        count = values.get("n_layer", cls.n_layer)
        return cls(**values, pruned_heads=pruned_from_hf(settings.get("pruned_heads"), count))

    def to_hf(self) -> dict[str, Any]:
        """The content of a Hugging Face `config.json`; `from_hf` reads it back unchanged."""
        return self.settings("gpt2")
