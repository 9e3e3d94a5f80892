# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of RoBERTa's, XLM-RoBERTa's and CamemBERT's tensors in Hugging Face checkpoints."""

from flaxattn.pretrained.bert_names import (
    CLASSIFIER,
    DENSE_CLASSIFIER,
    EMBEDDINGS,
    LAYERS,
    POOLER,
    QUESTIONS,
    SIZES,
    family,
    for_its_head,
    tied_decoder,
)

LM_HEAD = """
lm_head.dense.weight                               EE    mlm_head/dense/kernel                  T
lm_head.dense.bias                                 E     mlm_head/dense/bias                    =
lm_head.layer_norm.weight                          E     mlm_head/norm/scale                    =
lm_head.layer_norm.bias                            E     mlm_head/norm/bias                     =
lm_head.bias                                       V     mlm_head/bias                          =
lm_head.decoder.weight                             VE    mlm_head/decoder/kernel                T
"""
ROBERTA = family(
    "RoBERTa",
    "roberta",
    EMBEDDINGS,
    LAYERS,
    POOLER,
    LM_HEAD,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    QUESTIONS,
    sizes=SIZES | {"W": "hidden_size"},
    chosen=for_its_head,
    **tied_decoder("lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias"),
)
