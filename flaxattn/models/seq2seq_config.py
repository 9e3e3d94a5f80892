# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of an encoder-decoder, with the field names of Hugging Face's Marian and BART.

This file knows `config.json`; it knows neither parameters nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from flaxattn.errors import CheckpointError, check_arguments
from flaxattn.models.config_base import CAUSAL, HFConfig, check_supported

OWN = "flaxattn-seq2seq"
# Settings of old files that would change the arithmetic, with the one value such a model has.
_ONLY_SUPPORTED: Mapping[str, Mapping[str, Any]] = {
    "bart": {
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    },
    "marian": {
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
}


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig(HFConfig):
    """Shape and settings of an encoder-decoder; the defaults are Transformer-base.

    Vaswani et al. 2017 table 3, with positions laid out as Marian has them: sines in the first
    half of the features, cosines in the second, where the paper interleaves them.

    >>> import flaxattn as fa
    >>> config = fa.Seq2SeqConfig(d_model=256, encoder_layers=3, decoder_layers=3)
    >>> config.to_hf()["model_type"], config.encoder_ffn_dim
    ('marian', 2048)

    Attributes:
        vocab_size: V, number of source tokens; of target tokens too unless given apart.
        decoder_vocab_size: Number of target tokens; None means `vocab_size`.
        d_model: E, width of the residual stream.
        encoder_layers: L of the encoder.
        decoder_layers: L of the decoder.
        encoder_attention_heads: H of the encoder; must divide `d_model`.
        decoder_attention_heads: H of the decoder and of cross-attention.
        encoder_ffn_dim: F of the encoder.
        decoder_ffn_dim: F of the decoder.
        activation_function: Name of the feed-forward activation, as in `layers.ACTIVATIONS`.
        positions: "sinusoidal", or "learned" with BART's two unused rows at the start.
        norm_first: Whether a sub-layer normalises its input (pre-LN) instead of its output plus
            input (post-LN); such a stack ends with a LayerNorm of its own.
        normalize_embedding: Whether embeddings go through a LayerNorm, as in BART.
        scale_embedding: Whether word embeddings are multiplied by sqrt(E).
        share_encoder_decoder_embeddings: Whether source and target share the word embedding.
        tie_word_embeddings: Whether the output layer is the target word embedding.
        dropout: On embeddings and on sub-layer outputs.
        attention_dropout: On attention weights.
        activation_dropout: On the feed-forward activations.
        max_position_embeddings: Longest source and longest target.
        init_std: Standard deviation of the initial weights.
        layer_norm_eps: Added to the variance in every LayerNorm.
        pad_token_id: Id of the padding token.
        bos_token_id: Id of the token that begins a text, where there is one.
        eos_token_id: Id of the token that ends a text.
        decoder_start_token_id: Id that the decoder reads first.
        forced_bos_token_id: Id that generation writes first, where given.
        forced_eos_token_id: Id that generation writes last at its limit, where given.
        architectures: Hugging Face class names; the first one says which head a checkpoint has.
        further_settings: JSON of the settings in `config.json` that are not fields, which `to_hf`
            writes back.
    """

    activation_key: ClassVar[str] = "activation_function"

    vocab_size: int = 37000
    decoder_vocab_size: int | None = None
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    activation_function: str = "relu"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    norm_first: bool = False
    normalize_embedding: bool = False
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    max_position_embeddings: int = 512
    init_std: float = 0.02
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 0
    bos_token_id: int | None = None
    eos_token_id: int = 1
    decoder_start_token_id: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    architectures: tuple[str, ...] = ("MarianMTModel",)

    # What `seq2seq` has settings for that only a `T5Config` sets.
    root_mean_square = False
    use_bias = True
    gated = False
    head_dim = None
    score_scale = None
    output_scale = 1.0

    def __post_init__(self) -> None:
        self.check_sizes(_SIZES)
        for side in ("encoder", "decoder"):
            self.check_heads("d_model", f"{side}_attention_heads")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise CheckpointError(
                f"d_model {self.d_model} is odd: half of the features are sines, half cosines.\n"
                "Make it even, or choose learned positions."
            )
        if self.share_encoder_decoder_embeddings and self.target_size != self.vocab_size:
            raise CheckpointError(
                f"decoder_vocab_size {self.target_size} is not vocab_size {self.vocab_size}, but "
                "both sides share one embedding.\n"
                "Set share_encoder_decoder_embeddings to false, or make the sizes equal."
            )
        self.check_floats()
        self.check_ids(("decoder_start_token_id",), self.target_size)

    @property
    def target_size(self) -> int:
        """Number of target tokens."""
        return self.vocab_size if self.decoder_vocab_size is None else self.decoder_vocab_size

    @property
    def hidden_size(self) -> int:
        """E, width of the residual stream."""
        return self.d_model

    @property
    def num_hidden_layers(self) -> int:
        """L of the encoder, as Hugging Face has it."""
        return self.encoder_layers

    @property
    def num_attention_heads(self) -> int:
        """H of the encoder, as Hugging Face has it."""
        return self.encoder_attention_heads

    @property
    def hidden_act(self) -> str:
        """Name of the feed-forward activation."""
        return self.activation_function

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """Transformer-tiny, right for Multi30k (Wu et al. 2021): 4 layers, 4 heads, width 128."""
        sizes = dict(
            d_model=128,
            encoder_layers=4,
            decoder_layers=4,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=256,
            decoder_ffn_dim=256,
        )
        return cls.sized(sizes, changes)

    @classmethod
    def big(cls, **changes: Any) -> Self:
        """Transformer-big (Vaswani et al. 2017 table 3): 16 heads, width 1024, dropout 0.3."""
        sizes = dict(
            d_model=1024,
            encoder_attention_heads=16,
            decoder_attention_heads=16,
            encoder_ffn_dim=4096,
            decoder_ffn_dim=4096,
            dropout=0.3,
        )
        return cls.sized(sizes, changes)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Read the content of the `config.json` of a Marian, a BART, or one of our own.

        Keys that do not concern the arithmetic are ignored.

        Args:
            settings: The parsed JSON object.

        Raises:
            CheckpointError: For a setting that is not implemented here.
        """
        kind = settings.get("model_type", OWN)
        check_supported(kind, settings, {**CAUSAL, **_ONLY_SUPPORTED.get(kind, {})})
        values = {
            **_HF_DEFAULTS.get(kind, {}),
            **cls.fields_of(settings),
            **_HF_FIXED.get(kind, {}),
        }
        if kind != OWN:  # untied, transformers keeps source and target words apart too
            tied = values.get("tie_word_embeddings", True)
            shared = values.get("share_encoder_decoder_embeddings", True)
            values["share_encoder_decoder_embeddings"] = tied and shared
        if values.get("decoder_vocab_size") == values.get("vocab_size"):
            values["decoder_vocab_size"] = None
        return cls(**values)

    def to_hf(self) -> dict[str, Any]:
        """The content of a `config.json`; `from_hf` reads it back unchanged.

        A model that is a Marian or a BART says so, and opens in torch transformers; transformers
        has no class for other combinations, such as sinusoidal positions with pre-LN.
        """
        settings = {**self.settings(self.kind), "is_encoder_decoder": True}
        settings["decoder_vocab_size"] = self.target_size
        for name in _HF_FIXED.get(self.kind, {}):
            settings.pop(name)
        return settings

    @property
    def kind(self) -> str:
        """Hugging Face's `model_type`: "marian", "bart", or our own for all other combinations."""
        tied, shared = self.tie_word_embeddings, self.share_encoder_decoder_embeddings
        possible = {"marian": tied or not shared, "bart": tied == shared}
        for kind, fixed in _HF_FIXED.items():
            fits = all(getattr(self, name) == value for name, value in fixed.items())
            if fits and possible[kind]:
                return kind
        return OWN


# What transformers assumes where config.json is silent.
_HF_TRANSFORMER: Mapping[str, Any] = {
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "activation_function": "gelu",
    "scale_embedding": False,
    "max_position_embeddings": 1024,
}
_HF_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "marian": _HF_TRANSFORMER
    | {
        "vocab_size": 58101,
        "pad_token_id": 58100,
        "eos_token_id": 0,
        "decoder_start_token_id": 58100,
        "forced_eos_token_id": 0,
    },
    "bart": _HF_TRANSFORMER
    | {
        "vocab_size": 50265,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
}
# What makes a model one of these.
_HF_FIXED: Mapping[str, Mapping[str, Any]] = {
    "marian": {
        "positions": "sinusoidal",
        "norm_first": False,
        "normalize_embedding": False,
        "layer_norm_eps": 1e-5,
    },
    "bart": {
        "positions": "learned",
        "norm_first": False,
        "normalize_embedding": True,
        "layer_norm_eps": 1e-5,
    },
}
_SIZES = (
    "vocab_size",
    "target_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "max_position_embeddings",
)
