# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations of decoders: GPT-2, and Llama with its many relatives.

`decoder_types` lists what a `model_type` means for each field; this file reads and writes
`config.json` by that table and checks the result. It knows neither parameters nor modules.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar, Literal, Self

from flaxattn.errors import CheckpointError, check_arguments
from flaxattn.models.config_base import (
    CAUSAL,
    FULL,
    SLIDING,
    HFConfig,
    check_integer,
    check_layer_types,
    check_pruned,
    check_supported,
    class_names,
    pruned_from_hf,
    shown,
)
from flaxattn.models.decoder_types import OWN, TYPES, Setting, has_rotary, switches
from flaxattn.models.positions import ROTARY_KEYS, Rotary, rotary_from_hf, rotary_to_hf

_PLAIN = Rotary()
_LAYERS_KEYS = {"no_rope_layers", "no_rope_layer_interval"}
_WINDOW_KEYS = {
    "layer_types",
    "max_window_layers",
    "sliding_window",
    "sliding_window_pattern",
    "use_sliding_window",
}
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "norm": ("rms", "rms_plus_one", "layer"),
    "norm_places": ("before", "after", "both"),
    "head_norm": (None, "each", "all"),
}


@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class DecoderConfig(HFConfig):
    """Shape and settings of a decoder; the defaults are Llama 2 with 7 billion parameters.

    >>> import flaxattn as fa
    >>> config = fa.DecoderConfig(hidden_size=512, num_attention_heads=8, num_key_value_heads=2)
    >>> config.head_size, config.key_heads
    (64, 2)

    Attributes:
        model_type: Hugging Face's name of the architecture; see `decoder_types.TYPES`.
        vocab_size: V, number of tokens.
        hidden_size: E, width of the residual stream.
        intermediate_size: F, width of the feed-forward layer.
        num_hidden_layers: L.
        num_attention_heads: H.
        num_key_value_heads: G, heads of keys and values; None for H, of which it is a divisor.
        head_dim: D, depth of a head; None for E / H.
        hidden_act: Name of the feed-forward activation, as in `layers.ACTIVATIONS`.
        max_position_embeddings: Longest text, in tokens.
        initializer_range: Standard deviation of the initial weights.
        norm: "rms", "rms_plus_one" (the scale is 1 + the parameter, as in Gemma) or "layer".
        norm_eps: Added to the mean square or variance in every norm.
        norm_places: Whether sub-layers are normalised "before", "after" or "both".
        parallel_residual: Whether attention and feed-forward layer read the same input.
        gated: Whether the feed-forward layer has a gate.
        input_bias: Whether queries, keys and values have a bias.
        output_bias: Whether the output of attention has a bias.
        mlp_bias: Whether the feed-forward layers have a bias.
        head_norm: RMS normalisation of queries and keys: "each" head by itself, "all" of them
            together, or None.
        rotary: Frequencies of the rotary positions.
        local_rotary: Those of layers with a window; None for the same.
        rotary_layers: For each layer whether it has rotary positions; empty if all have.
        sliding_window: Positions that a layer with a window sees, the query's own included.
        layer_types: For each layer "sliding_attention" or "full_attention"; empty if all are of one
            kind, which `sliding_window` sets.
        query_pre_attn_scalar: Scores are divided by its square root; None for D.
        attn_logit_softcapping: Soft cap of scores; None for none.
        final_logit_softcapping: Soft cap of the logits; None for none.
        sinks: Whether each head has a learned logit in the softmax.
        scale_embedding: Whether embeddings are multiplied by the square root of E.
        tie_word_embeddings: Whether the output layer is the word embedding.
        attention_dropout: Dropout on the attention weights.
        residual_dropout: Dropout on both sub-layer outputs.
        embedding_dropout: Dropout on the embeddings.
        bos_token_id: Id that a text begins with where it has no prompt.
        eos_token_id: Id that ends a text, or several.
        pad_token_id: Id of padding, where there is one.
        problem_type: Hugging Face's hint for the loss of a classifier, kept as it is.
        labels: Class names of a classifier, in id order.
        architectures: Hugging Face class names; the first one says which head a checkpoint has.
        further_settings: The whole `config.json` that it was read from; keys that are not fields
            are written back as they are.
    """

    learned_positions: ClassVar[bool] = False
    pruned_heads: ClassVar[tuple[tuple[int, ...], ...]] = ()

    model_type: str = "llama"
    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    norm: Literal["rms", "rms_plus_one", "layer"] = "rms"
    norm_eps: float = 1e-6
    norm_places: Literal["before", "after", "both"] = "before"
    parallel_residual: bool = False
    gated: bool = True
    input_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_norm: Literal["each", "all"] | None = None
    rotary: Rotary = _PLAIN
    local_rotary: Rotary | None = None
    rotary_layers: tuple[bool, ...] = ()
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()
    query_pre_attn_scalar: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    sinks: bool = False
    scale_embedding: bool = False
    tie_word_embeddings: bool = False
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    bos_token_id: int | None = 1
    eos_token_id: int | tuple[int, ...] | None = 2
    pad_token_id: int | None = None
    problem_type: str | None = None
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    architectures: tuple[str, ...] = ("LlamaForCausalLM",)

    def __post_init__(self) -> None:
        if self.model_type not in TYPES:
            raise CheckpointError(
                f"model_type is {shown(self.model_type)}; decoders are {', '.join(TYPES)}.\n"
                "Choose one of these."
            )
        self.check_sizes(_SIZES)
        self.check_floats()
        self._check_heads()
        self._check_layers()

    def _check_heads(self) -> None:
        if self.head_dim is None:
            self.check_heads("hidden_size", "num_attention_heads")
        check_integer("num_key_value_heads", self.key_heads, 1, self.num_attention_heads)
        if self.num_attention_heads % self.key_heads:
            raise CheckpointError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads {self.key_heads}.\n"
                "Every head of keys serves the same number of query heads; change one of them."
            )
        check_integer("head_dim", self.head_size, 1, 2**16)
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise CheckpointError(
                    f"{name} is {shown(getattr(self, name))}, expected one of "
                    f"{', '.join(map(str, known))}."
                )

    def _check_layers(self) -> None:
        if self.layer_types:
            check_layer_types(self.layer_types, self.num_hidden_layers)
        if self.rotary_layers and len(self.rotary_layers) != self.num_hidden_layers:
            raise CheckpointError(
                f"rotary_layers names {len(self.rotary_layers)} layers, num_hidden_layers is "
                f"{self.num_hidden_layers}.\nName every layer."
            )
        if self.sliding_window is not None:
            check_integer("sliding_window", self.sliding_window, 1, 2**31 - 1)

    @property
    def key_heads(self) -> int:
        """G, heads of keys and values."""
        known = self.num_key_value_heads
        return self.num_attention_heads if known is None else known

    @property
    def head_size(self) -> int:
        """D, the depth of one head."""
        return self.hidden_size // self.num_attention_heads if not self.head_dim else self.head_dim

    @property
    def query_size(self) -> int:
        """Width of the queries of all heads."""
        return self.num_attention_heads * self.head_size

    @property
    def key_size(self) -> int:
        """Width of the keys of all heads, and of the values."""
        return self.key_heads * self.head_size

    @property
    def fused_size(self) -> int:
        """Width of queries, keys and values together, for checkpoints with one tensor of them."""
        return self.query_size + 2 * self.key_size

    @property
    def fused_inner_size(self) -> int:
        """Width of gate and inner layer together, for checkpoints with one tensor of both."""
        return 2 * self.intermediate_size

    @property
    def inner_size(self) -> int:
        """F, width of the feed-forward layer."""
        return self.intermediate_size

    @property
    def language_model(self) -> str:
        """Hugging Face's class name of the model that scores the next token."""
        return f"{TYPES[self.model_type].stem}ForCausalLM"

    @property
    def num_labels(self) -> int:
        """Number of classes of a classifier."""
        return len(self.labels)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a text."""
        ends = self.eos_token_id
        return ends if isinstance(ends, tuple) else () if ends is None else (ends,)

    @property
    def longest(self) -> int:
        """Most positions of a text; rotary positions that grow with the text allow for more."""
        grows = self.rotary.rope_type == "dynamic"
        return int(self.max_position_embeddings * (self.rotary.factor or 1 if grows else 1))

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Window of each layer; None where it sees everything before a query."""
        types = self.layer_types or (SLIDING,) * self.num_hidden_layers
        return tuple(self.sliding_window if kind == SLIDING else None for kind in types)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Read the content of a Hugging Face `config.json`.

        Args:
            settings: The parsed JSON object.

        Raises:
            CheckpointError: For a setting that is not implemented here.
        """
        kind = settings["model_type"]
        check_supported(kind, settings, {**CAUSAL, "use_bidirectional_attention": False})
        if kind == OWN:
            return cls._from_own(settings)
        values = {
            field: settings.get(value.key, value.default) if isinstance(value, Setting) else value
            for field, value in switches(kind).items()
        }
        if isinstance(values["eos_token_id"], list):
            values["eos_token_id"] = tuple(values["eos_token_id"])
        if kind == "gemma" and values["hidden_act"] in ("gelu", None):
            values["hidden_act"] = "gelu_pytorch_tanh"  # what its first releases meant by it
        layers = check_layers(values["num_hidden_layers"])
        values["rotary"], values["local_rotary"] = rotary_from_hf(settings)
        if kind == "smollm3":
            named = settings.get("no_rope_layers")
            if named is not None and len(named) < layers:
                raise CheckpointError(
                    f"config.json: no_rope_layers names {len(named)} layers, num_hidden_layers is "
                    f"{layers}.\nCompare it with the original."
                )
            values["rotary_layers"] = tuple(has_rotary(settings, n) for n in range(layers))
        values |= cls._windows_from_hf(settings, kind, layers, values.get("sliding_window"))
        if names := class_names(settings):
            values["labels"] = names
        return cls(
            **values,
            model_type=kind,
            problem_type=settings.get("problem_type"),
            architectures=tuple(
                settings.get("architectures") or (f"{TYPES[kind].stem}ForCausalLM",)
            ),
            further_settings=json.dumps(settings, sort_keys=True),
        )

    @staticmethod
    def _windows_from_hf(
        settings: Mapping[str, Any], kind: str, layers: int, window: int | None
    ) -> dict[str, Any]:
        """The window, and which layers have it: None and no layer where none has."""
        if "sliding_window" not in switches(kind) or window is None:
            return {"sliding_window": None}
        switch, types = TYPES[kind].window_switch, settings.get("layer_types")
        if switch is not None and not settings.get(switch, False):
            return {"sliding_window": None}
        if types is None:
            windowed = TYPES[kind].windowed
            types = [SLIDING if windowed(settings, n) else FULL for n in range(layers)]
        if set(types) == {SLIDING}:
            return {"sliding_window": window}
        if set(types) == {FULL}:
            return {"sliding_window": None}
        return {"sliding_window": window, "layer_types": tuple(types)}

    @classmethod
    def _from_own(cls, settings: Mapping[str, Any]) -> Self:
        values = cls.fields_of(settings)
        values["eos_token_id"] = settings.get("eos_token_id")  # also where there are several
        for name in ("rotary", "local_rotary"):
            if values.get(name) is not None:
                values[name] = Rotary(**_frozen(values[name]))
        return cls(**_frozen(values))

    def to_hf(self) -> dict[str, Any]:
        """The content of a Hugging Face `config.json`; `from_hf` reads it back unchanged.

        Raises:
            CheckpointError: If the model type has no way to say one of the switches.
        """
        if self.model_type == OWN:
            return self.settings(OWN)
        stored = json.loads(self.further_settings)
        before = type(self).from_hf(stored) if stored else None
        written = {**stored, "model_type": self.model_type}
        for field, value in switches(self.model_type).items():
            own = getattr(self, field)
            if isinstance(value, Setting):
                if before is None or own != getattr(before, field):
                    written[value.key] = list(own) if isinstance(own, tuple) else own
            elif own != value:
                raise self._unwritable(field, own)
        written["architectures"] = list(self.architectures)
        if before is None or self.labels != before.labels:
            written["id2label"] = {str(i): name for i, name in enumerate(self.labels)}
            written["label2id"] = {name: i for i, name in enumerate(self.labels)}
        if self.problem_type is not None:
            written["problem_type"] = self.problem_type
        for fields, keys, to_hf in self._derived():
            if before is None or any(getattr(self, f) != getattr(before, f) for f in fields):
                written = {n: v for n, v in written.items() if n not in keys} | to_hf()
        again = type(self).from_hf(written)
        for field in dataclasses.fields(self):
            own = getattr(self, field.name)
            if field.name != "further_settings" and getattr(again, field.name) != own:
                raise self._unwritable(field.name, own)
        return written

    def _derived(self) -> Iterator[tuple[Sequence[str], Set[str], Callable[[], dict[str, Any]]]]:
        """Fields that several keys of a `config.json` express: fields, keys, writer."""
        yield ("rotary", "local_rotary"), ROTARY_KEYS, lambda: rotary_to_hf(self)
        yield ("rotary_layers",), _LAYERS_KEYS, self._rotary_layers_to_hf
        if "sliding_window" in switches(self.model_type):
            fields = ("sliding_window", "layer_types", "num_hidden_layers")
            yield fields, _WINDOW_KEYS, self._windows_to_hf

    def _rotary_layers_to_hf(self) -> dict[str, Any]:
        on = [int(on) for on in self.rotary_layers]
        return {"no_rope_layers": on} if on else {}

    def _windows_to_hf(self) -> dict[str, Any]:
        windowed = self.sliding_window is not None
        types = self.layer_types or (SLIDING if windowed else FULL,) * self.num_hidden_layers
        return {
            "sliding_window": self.sliding_window,
            "use_sliding_window": windowed,
            "layer_types": list(types),
        }

    def _unwritable(self, field: str, value: Any) -> CheckpointError:
        return CheckpointError(
            f"{field}={shown(value)}: a config.json of a {self.model_type} cannot say that.\n"
            f'Choose model_type="{OWN}", which opens in flaxattn alone, or change {field}.'
        )


def check_layers(count: Any) -> int:
    """Check the number of layers before anything is made for each of them."""
    check_integer("num_hidden_layers", count, 1, 2**20)
    return count


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of a JSON object as tuples."""
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}


_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
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
