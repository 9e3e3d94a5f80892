# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations of encoder-decoders: Marian, BART, T5 and the recurrent model.

They are frozen and validated, and have Hugging Face's field names. This file knows `config.json`;
it knows neither parameters nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from flaxattn.errors import CheckpointError, check_arguments
from flaxattn.models.config_base import CAUSAL, HFConfig, check_integer, check_supported, shown

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
        self.check_sizes(_T5_SIZES)
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


_T5_SIZES = (
    "vocab_size",
    "d_model",
    "d_kv",
    "d_ff",
    "num_layers",
    "num_heads",
    "max_position_embeddings",
)


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
        self.check_sizes(_RNN_SIZES)
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

_RNN_SIZES = (
    "vocab_size",
    "target_size",
    "embedding_size",
    "hidden_size",
    "attention_size",
    "readout_size",
    "max_position_embeddings",
)
