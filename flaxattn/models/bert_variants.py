# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The encoders that are a BERT by configuration: which model type sets which switch.

One row of `BERT_VARIANTS` per `model_type` of a `config.json`. Nothing here computes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

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
