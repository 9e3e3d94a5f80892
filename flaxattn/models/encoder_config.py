# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations of encoders: BERT with its variants, and ModernBERT.

They are frozen and validated, and have Hugging Face's field names. One row of `BERT_VARIANTS` per
`model_type` of a `config.json` says which switches it sets. ModernBERT is read from the files of
transformers 4.48 and of 5. This file knows neither parameters nor modules.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from flaxattn.errors import CheckpointError, check_arguments
from flaxattn.models.config_base import (
    FULL,
    SLIDING,
    HFConfig,
    check_integer,
    check_layer_types,
    check_pruned,
    check_supported,
    pruned_from_hf,
    shown,
)
from flaxattn.models.positions import Rotary, rotary_of, rotary_to_hf

HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
QUESTIONS = "ForQuestionAnswering"
_ENCODER = {"is_decoder": False, "add_cross_attention": False}
_ABSOLUTE = {"position_embedding_type": "absolute"}
_DISTIL_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "seq_classif_dropout",
}


@dataclasses.dataclass(frozen=True)
class BertVariant:
    """Differences of an encoder from BERT.

    Attributes:
        prefix: What Hugging Face's class names of the family begin with.
        heads: The rest of these names.
        defaults: Settings that a `config.json` may leave out, where the default is not BERT's.
        keys: Name in `config.json` by field of `BertConfig`, where it is another; None where the
            family has no such setting.
        further: Fields of `BertConfig` that this family has and BERT does not have.
        supported: Settings with the one value, or the values, that are implemented.
        positions_from_ids: Whether positions are counted over ids that are not padding, from
            `pad_token_id` + 1.
        token_types: Whether there are embeddings of token types.
        tokenized_types: Whether the family's tokenizers tell a first text from a second.
        projection: When embeddings are projected to the width of the layers.
        pre_norm: Whether normalisation stands before attention and feed-forward, and after all.
        classifier_act: Activation of a dense layer before the classifier of a sequence, which
            reads the first position; None where it reads the pooled sequence.
        mlm_act: Activation of the masked-LM head; None for that of the layers.
        detects: Whether the pre-trained model finds replaced tokens.
        pooler: Whether the model without head has a pooler.
        relative: Whether a bias by distance is added to the scores.
        shared: Whether all layers have the same parameters.
        contacts: Whether checkpoints hold a regression from attention to contacts of residues.
        pruned_form: Whether checkpoints can say that heads are missing.
    """

    prefix: str
    heads: tuple[str, ...] = (*HEADS, QUESTIONS)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    keys: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    further: tuple[str, ...] = ()
    supported: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    positions_from_ids: bool = False
    token_types: bool = True
    tokenized_types: bool = True
    projection: Literal["never", "narrower", "always"] = "never"
    pre_norm: bool = False
    classifier_act: str | None = None
    mlm_act: str | None = None
    detects: bool = False
    pooler: bool = True
    relative: bool = False
    shared: bool = False
    contacts: bool = False
    pruned_form: bool = True

    @property
    def architectures(self) -> tuple[str, ...]:
        """Names of Hugging Face's classes, the one without head first."""
        return tuple(self.prefix + head for head in self.heads)


def _roberta(prefix: str, **defaults: Any) -> BertVariant:
    return BertVariant(
        prefix,
        defaults={"pad_token_id": 1, **defaults},
        supported=_ENCODER | _ABSOLUTE,
        positions_from_ids=True,
        tokenized_types=False,
        classifier_act="tanh",
        mlm_act="gelu",
    )


BERT_VARIANTS: Mapping[str, BertVariant] = {
    "bert": BertVariant(
        "Bert",
        ("Model", "ForPreTraining", *HEADS[1:], "ForNextSentencePrediction", QUESTIONS),
        supported=_ENCODER | _ABSOLUTE,
    ),
    "roberta": _roberta("Roberta", vocab_size=50265),
    "xlm-roberta": _roberta("XLMRoberta"),
    "camembert": _roberta("Camembert"),
    "distilbert": BertVariant(
        "DistilBert",
        defaults={"num_hidden_layers": 6, "classifier_dropout": 0.2},
        keys={**_DISTIL_NAMES, "layer_norm_eps": None, "type_vocab_size": None},
        token_types=False,
        tokenized_types=False,
        pooler=False,
        classifier_act="relu",
    ),
    "electra": BertVariant(
        "Electra",
        (*HEADS, QUESTIONS, "ForPreTraining"),
        defaults={
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        further=("embedding_size",),
        supported=_ENCODER | _ABSOLUTE,
        projection="narrower",
        pooler=False,
        detects=True,
        classifier_act="gelu",
        mlm_act="gelu",
    ),
    "albert": BertVariant(
        "Albert",
        (*HEADS, QUESTIONS, "ForPreTraining"),
        defaults={
            "vocab_size": 30000,
            "embedding_size": 128,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout": 0.1,
        },
        keys={"classifier_dropout": "classifier_dropout_prob"},
        further=("embedding_size", "num_hidden_groups"),
        supported={**_ABSOLUTE, "num_hidden_groups": 1, "inner_group_num": 1},
        projection="always",
        shared=True,
        pruned_form=False,
    ),
    "mpnet": BertVariant(
        "MPNet",
        defaults={"vocab_size": 30527, "pad_token_id": 1, "relative_attention_num_buckets": 32},
        keys={"type_vocab_size": None, "classifier_dropout": None},
        further=("relative_attention_num_buckets",),
        supported={"relative_attention_num_buckets": 32, "pad_token_id": 1},
        positions_from_ids=True,
        token_types=False,
        tokenized_types=False,
        relative=True,
        classifier_act="tanh",
        mlm_act="gelu",
        pruned_form=False,
    ),
    "esm": BertVariant(
        "Esm",
        HEADS,
        defaults={"max_position_embeddings": 1026},
        keys={"type_vocab_size": None, "classifier_dropout": None, "hidden_act": None},
        further=(
            "position_embedding_type",
            "rope_theta",
            "emb_layer_norm_before",
            "token_dropout",
            "mask_token_id",
        ),
        supported={
            **_ENCODER,
            "is_folding_model": False,
            "position_embedding_type": ("absolute", "rotary"),
        },
        positions_from_ids=True,
        token_types=False,
        tokenized_types=False,
        pre_norm=True,
        contacts=True,
        classifier_act="tanh",
        mlm_act="gelu",
        pruned_form=False,
    ),
}


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
        self.check_sizes(_MODERNBERT_SIZES)
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


_MODERNBERT_SIZES = (
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
