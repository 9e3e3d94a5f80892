# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of T5, T5 v1.1 (Flan-T5), mT5 and UMT5, with Hugging Face's field names.

The modules of `seq2seq` read it through the names of `Seq2SeqConfig`, which are properties here.
This file knows `config.json`; it knows neither parameters nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from flaxattn.errors import CheckpointError, check_arguments
from flaxattn.models.config_base import CAUSAL, HFConfig, check_integer, check_supported, shown

LONGEST = 32_768  # tokens of a text where config.json names no limit
# What transformers assumes where config.json is silent.
_MULTILINGUAL: Mapping[str, Any] = {
    "vocab_size": 250112,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}
KINDS: Mapping[str, Mapping[str, Any]] = {"t5": {}, "mt5": _MULTILINGUAL, "umt5": _MULTILINGUAL}


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class T5Config(HFConfig):
    """Shape and settings of a T5 (Raffel et al. 2020); the defaults are T5-small.

    A T5 has no table of positions, so no parameter limits the length of a text. The limit is
    `max_position_embeddings` or `n_positions` of config.json, which is 512 for the first
    checkpoints, and 32,768 where it names neither; write another number there to read longer texts.

    >>> import flaxattn as fa
    >>> config = fa.T5Config(d_model=256, num_layers=4, num_heads=4)
    >>> config.decoder_layers, config.head_dim
    (4, 64)

    Attributes:
        kind: Hugging Face's `model_type`. In a UMT5 every layer has relative biases of its own, in
            the others all layers of a side share them.
        vocab_size: V.
        d_model: E, width of the residual stream.
        d_kv: D, depth of a head.
        d_ff: F.
        num_layers: L of the encoder.
        num_decoder_layers: L of the decoder; None for that of the encoder.
        num_heads: H.
        relative_attention_num_buckets: Ranges of relative positions with a bias of their own.
        relative_attention_max_distance: Distance from which on all share one.
        feed_forward_proj: An activation, as in `layers.ACTIVATIONS`, after "gated-" where the
            feed-forward is gated; "gated-gelu" is by tanh.
        tie_word_embeddings: Whether the output layer is the word embedding.
        scale_decoder_outputs: Whether outputs are divided by sqrt(E) before the output layer; None
            where that follows from `kind` and `tie_word_embeddings`.
        dropout_rate: On embeddings, sub-layer outputs, weights and feed-forward activations.
        layer_norm_epsilon: Added to the mean square in every norm.
        initializer_factor: Factor on the initial weights.
        n_positions: Longest source and longest target.
        pad_token_id: Id of the padding token.
        bos_token_id: Id of the token that begins a text, where there is one.
        eos_token_id: Id of the token that ends a text.
        decoder_start_token_id: Id that the decoder reads first, by default that of padding.
        classifier_dropout: On the input of a classifier.
        problem_type: Hugging Face's hint for the loss of a classifier, kept as it is.
        labels: Class names of a classifier, in id order.
        architectures: Hugging Face class names; the first one says which head a checkpoint has.
        further_settings: JSON of the settings in `config.json` that are not fields, which `to_hf`
            writes back.
    """

    activation_key: ClassVar[str] = "feed_forward_proj"

    kind: Literal["t5", "mt5", "umt5"] = "t5"
    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    initializer_factor: float = 1.0
    n_positions: int | None = None
    pad_token_id: int = 0
    bos_token_id: int | None = None
    eos_token_id: int = 1
    decoder_start_token_id: int = 0
    classifier_dropout: float = 0.0
    problem_type: str | None = None
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    architectures: tuple[str, ...] = ("T5ForConditionalGeneration",)

    # What `seq2seq` has settings for that no T5 differs in.
    decoder_vocab_size = None
    positions = "relative"
    norm_first = True
    root_mean_square = True
    normalize_embedding = False
    scale_embedding = False
    share_encoder_decoder_embeddings = True
    use_bias = False
    score_scale = 1.0
    forced_bos_token_id = None
    forced_eos_token_id = None

    def __post_init__(self) -> None:
        self.check_sizes(_SIZES)
        if self.num_decoder_layers is not None:
            self.check_sizes(("num_decoder_layers",))
        self.check_floats()
        self.check_ids(("pad_token_id", "decoder_start_token_id"), self.vocab_size)
        buckets, far = self.relative_attention_num_buckets, self.relative_attention_max_distance
        check_integer("relative_attention_num_buckets", buckets, 4, 2**20)
        check_integer("relative_attention_max_distance", far, buckets // 2 + 1, 2**20)
        gate, _, _ = self.feed_forward_proj.rpartition("-")
        if gate not in ("", "gated"):
            raise CheckpointError(
                f"feed_forward_proj is {shown(self.feed_forward_proj)}, expected the name of an "
                'activation, or "gated-" and that name.\nCompare config.json with the original.'
            )

    @property
    def target_size(self) -> int:
        """Number of target tokens."""
        return self.vocab_size

    @property
    def hidden_size(self) -> int:
        """E, width of the residual stream."""
        return self.d_model

    @property
    def num_hidden_layers(self) -> int:
        """L of the encoder, as Hugging Face has it."""
        return self.num_layers

    @property
    def num_attention_heads(self) -> int:
        """H, as Hugging Face has it."""
        return self.num_heads

    @property
    def encoder_layers(self) -> int:
        """L of the encoder."""
        return self.num_layers

    @property
    def decoder_layers(self) -> int:
        """L of the decoder, 0 for an encoder alone."""
        if self.architectures[0].endswith(("EncoderModel", "ForTokenClassification")):
            return 0
        return self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers

    @property
    def encoder_attention_heads(self) -> int:
        """H of the encoder."""
        return self.num_heads

    @property
    def decoder_attention_heads(self) -> int:
        """H of the decoder and of cross-attention."""
        return self.num_heads

    @property
    def head_dim(self) -> int:
        """D."""
        return self.d_kv

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.d_kv

    @property
    def encoder_ffn_dim(self) -> int:
        """F of the encoder."""
        return self.d_ff

    @property
    def decoder_ffn_dim(self) -> int:
        """F of the decoder."""
        return self.d_ff

    @property
    def gated(self) -> bool:
        """True where the feed-forward is gated."""
        return self.feed_forward_proj.startswith("gated-")

    @property
    def hidden_act(self) -> str:
        """Name of the feed-forward activation."""
        name = self.feed_forward_proj.removeprefix("gated-")
        return "gelu_new" if self.gated and name == "gelu" else name

    @property
    def activation_function(self) -> str:
        """Name of the feed-forward activation."""
        return self.hidden_act

    @property
    def bias_by_layer(self) -> bool:
        """True where every layer has relative biases of its own."""
        return self.kind == "umt5"

    @property
    def output_scale(self) -> float:
        """Factor on the decoder's output before the output layer."""
        if self.kind == "mt5":
            return 1.0
        scaled = self.scale_decoder_outputs
        scaled = self.tie_word_embeddings if scaled is None else scaled
        return self.d_model**-0.5 if scaled else 1.0

    @property
    def max_position_embeddings(self) -> int:
        """Longest source and longest target."""
        return LONGEST if self.n_positions is None else self.n_positions

    @property
    def dropout(self) -> float:
        """Dropout on embeddings and on sub-layer outputs."""
        return self.dropout_rate

    @property
    def attention_dropout(self) -> float:
        """Dropout on attention weights."""
        return self.dropout_rate

    @property
    def activation_dropout(self) -> float:
        """Dropout on the feed-forward activations."""
        return self.dropout_rate

    @property
    def layer_norm_eps(self) -> float:
        """Added to the mean square in every norm."""
        return self.layer_norm_epsilon

    @property
    def init_std(self) -> float:
        """Standard deviation of the initial weights."""
        return self.initializer_factor * self.d_model**-0.5

    def untied(self) -> Self:
        """A configuration with an untied output layer, whose input is scaled as before."""
        scaled = self.output_scale != 1
        return dataclasses.replace(self, tie_word_embeddings=False, scale_decoder_outputs=scaled)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Read the content of the `config.json` of a T5, mT5 or UMT5.

        Keys that do not concern the arithmetic are ignored.

        Args:
            settings: The parsed JSON object.

        Raises:
            CheckpointError: For a setting that is not implemented here.
        """
        kind = settings.get("model_type", "t5")
        check_supported(kind, settings, CAUSAL)
        values = {**KINDS[kind], **cls.fields_of(settings), "kind": kind}
        values["n_positions"] = settings.get("max_position_embeddings", settings.get("n_positions"))
        if values.get("architectures") == ("T5WithLMHeadModel",):  # of the largest first T5
            values["architectures"] = ("T5ForConditionalGeneration",)
        if values.get("decoder_start_token_id") is None:
            values["decoder_start_token_id"] = values.get("pad_token_id", 0)
        return cls(**values)

    def to_hf(self) -> dict[str, Any]:
        """The content of a `config.json`; `from_hf` reads it back unchanged."""
        settings = {"is_encoder_decoder": True, **self.settings(self.kind)}
        optional = ("num_decoder_layers", "n_positions", "scale_decoder_outputs", "problem_type")
        silent = {"kind"} | {name for name in optional if settings[name] is None}
        return {name: value for name, value in settings.items() if name not in silent}


_SIZES = (
    "vocab_size",
    "d_model",
    "d_kv",
    "d_ff",
    "num_layers",
    "num_heads",
    "max_position_embeddings",
)
