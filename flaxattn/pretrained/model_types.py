# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Model types of `config.json`: the configuration, modules and tensor names of each.

A new family has a row here, a file of modules and a file of names.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flax import linen as nn

from flaxattn.models import decoder, decoder_types, rnn, seq2seq, task_heads
from flaxattn.models.decoder import DecoderForSequenceClassification
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.encoder_config import BERT_VARIANTS, BertConfig, ModernBertConfig
from flaxattn.models.seq2seq_config import KINDS, OWN, RNN, RnnConfig, Seq2SeqConfig, T5Config
from flaxattn.models.task_heads import (
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
)
from flaxattn.pretrained.decoder_names import GPT2_NAMES, decoder_names
from flaxattn.pretrained.encoder_names import ENCODERS, MODERNBERT
from flaxattn.pretrained.name_tables import Family
from flaxattn.pretrained.seq2seq_names import RNN_NAMES, SEQ2SEQ, t5_names

_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "olmoe", "phimoe", "dbrx", "llama4")
_LATENT = ("deepseek_v2", "deepseek_v3")
_SEEING = ("gemma3", "gemma3n", "qwen2_vl", "qwen2_5_vl", "llava", "mllama", "idefics3", "clip")
_WITHOUT = ("mamba", "mamba2", "rwkv")
ModelConfig = (
    BertConfig
    | ModernBertConfig
    | GPT2Config
    | DecoderConfig
    | Seq2SeqConfig
    | T5Config
    | RnnConfig
)
MASKED_LM = (BertForMaskedLM, BertForPreTraining, ModernBertForMaskedLM)
"""Modules that score the tokens behind masks."""
ENCODER_CLASSIFIERS = (BertForSequenceClassification, ModernBertForSequenceClassification)
"""Those with a label for each text that read it from the first position, or from all."""
CLASSIFIERS = (
    *ENCODER_CLASSIFIERS,
    DecoderForSequenceClassification,
    rnn.RnnForSequenceClassification,
)
"""Modules with a label for each text."""

CONFIGS: Mapping[str, type[ModelConfig]] = {
    "bert": BertConfig,
    "modernbert": ModernBertConfig,
    "gpt2": GPT2Config,
    **dict.fromkeys(decoder_types.TYPES, DecoderConfig),
    "bart": Seq2SeqConfig,
    "marian": Seq2SeqConfig,
    OWN: Seq2SeqConfig,
    **dict.fromkeys(KINDS, T5Config),
    RNN: RnnConfig,
    **dict.fromkeys(BERT_VARIANTS, BertConfig),
}
"""Configurations by Hugging Face's `model_type`; a config.json without one is an old BERT's."""

NOT_COVERED: Mapping[str, str] = {
    **dict.fromkeys(_EXPERTS, "a mixture of experts"),
    **dict.fromkeys(_LATENT, "a mixture of experts with latent attention"),
    **dict.fromkeys(_SEEING, "a model of texts and pictures"),
    **dict.fromkeys(_WITHOUT, "a model without attention"),
}
"""Reasons why well-known model types are not supported."""

_Modules = Mapping[str, type[nn.Module]]


class _ModelFamily(NamedTuple):
    """Tensor names and modules of all models with one kind of configuration.

    Attributes:
        names: The table of tensor names of a configuration.
        modules: Modules by architecture, the one without head first.
    """

    names: Callable[[Any], Family]
    modules: Callable[[Any], _Modules]


_FAMILIES: Mapping[type[ModelConfig], _ModelFamily] = {
    BertConfig: _ModelFamily(
        lambda config: ENCODERS[config.model_type], task_heads.architectures_of
    ),
    ModernBertConfig: _ModelFamily(lambda _: MODERNBERT, task_heads.architectures_of),
    GPT2Config: _ModelFamily(lambda _: GPT2_NAMES, decoder.architectures),
    DecoderConfig: _ModelFamily(decoder_names, decoder.architectures),
    Seq2SeqConfig: _ModelFamily(lambda _: SEQ2SEQ, lambda _: seq2seq.ARCHITECTURES),
    T5Config: _ModelFamily(t5_names, seq2seq.architectures),
    RnnConfig: _ModelFamily(lambda _: RNN_NAMES, lambda _: rnn.ARCHITECTURES),
}


def family_of(config: ModelConfig) -> Family:
    """The table of names of a model's tensors."""
    return _FAMILIES[type(config)].names(config)


def modules_of(config: ModelConfig) -> _Modules:
    """Modules by Hugging Face's class names, the one without head first."""
    return _FAMILIES[type(config)].modules(config)
