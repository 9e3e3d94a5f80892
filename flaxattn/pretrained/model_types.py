# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Model types of `config.json`: the configuration and the table of tensor names of each.

A new family has a row here, a file of modules and a file of names.
"""

from collections.abc import Mapping

from flaxattn.models import decoder_types
from flaxattn.models.bert_config import BertConfig
from flaxattn.models.bert_variants import BERT_VARIANTS
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.models.modernbert_config import ModernBertConfig
from flaxattn.models.rnn_config import RNN, RnnConfig
from flaxattn.models.seq2seq_config import OWN, Seq2SeqConfig
from flaxattn.models.t5_config import KINDS, T5Config
from flaxattn.pretrained.decoder_names import decoder_names
from flaxattn.pretrained.encoder_names import ENCODERS
from flaxattn.pretrained.gpt2_names import GPT2_NAMES
from flaxattn.pretrained.modernbert_names import MODERNBERT
from flaxattn.pretrained.name_tables import Family
from flaxattn.pretrained.rnn_names import RNN_NAMES
from flaxattn.pretrained.seq2seq_names import SEQ2SEQ
from flaxattn.pretrained.t5_names import T5_NAMES

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

_FAMILIES: Mapping[type[ModelConfig], Family] = {
    ModernBertConfig: MODERNBERT,
    GPT2Config: GPT2_NAMES,
    Seq2SeqConfig: SEQ2SEQ,
    T5Config: T5_NAMES,
    RnnConfig: RNN_NAMES,
}


def family_of(config: ModelConfig) -> Family:
    """The table of names of a model's tensors.

    Args:
        config: Of the model.
    """
    if isinstance(config, BertConfig):
        return ENCODERS[config.model_type]
    if isinstance(config, DecoderConfig):
        return decoder_names(config)
    return _FAMILIES[type(config)]
