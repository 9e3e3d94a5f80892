# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of MPNet's tensors in Hugging Face checkpoints."""

from flaxattn.pretrained.bert_names import (
    CLASSIFIER,
    DENSE_CLASSIFIER,
    EMBEDDINGS,
    POOLER,
    QUESTIONS,
    SIZES,
    family,
    for_its_head,
    tied_decoder,
)
from flaxattn.pretrained.roberta_names import LM_HEAD

_ROWS = """
encoder.layer.*.attention.attn.q.weight    AE encoder/layers/attention/query/kernel   T
encoder.layer.*.attention.attn.q.bias      A  encoder/layers/attention/query/bias     =
encoder.layer.*.attention.attn.k.weight    AE encoder/layers/attention/key/kernel     T
encoder.layer.*.attention.attn.k.bias      A  encoder/layers/attention/key/bias       =
encoder.layer.*.attention.attn.v.weight    AE encoder/layers/attention/value/kernel   T
encoder.layer.*.attention.attn.v.bias      A  encoder/layers/attention/value/bias     =
encoder.layer.*.attention.attn.o.weight    EA encoder/layers/attention/output/kernel  T
encoder.layer.*.attention.attn.o.bias      E  encoder/layers/attention/output/bias    =
encoder.layer.*.attention.LayerNorm.weight E  encoder/layers/attention_norm/scale     =
encoder.layer.*.attention.LayerNorm.bias   E  encoder/layers/attention_norm/bias      =
encoder.layer.*.intermediate.dense.weight  FE encoder/layers/feed_forward/up/kernel   T
encoder.layer.*.intermediate.dense.bias    F  encoder/layers/feed_forward/up/bias     =
encoder.layer.*.output.dense.weight        EF encoder/layers/feed_forward/down/kernel T
encoder.layer.*.output.dense.bias          E  encoder/layers/feed_forward/down/bias   =
encoder.layer.*.output.LayerNorm.weight    E  encoder/layers/feed_forward_norm/scale  =
encoder.layer.*.output.LayerNorm.bias      E  encoder/layers/feed_forward_norm/bias   =
encoder.relative_attention_bias.weight     RH relative_bias/embedding                 =
"""
MPNET = family(
    "MPNet",
    "mpnet",
    EMBEDDINGS,
    _ROWS,
    POOLER,
    LM_HEAD,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    QUESTIONS,
    sizes=SIZES
    | {"W": "hidden_size", "R": "relative_attention_num_buckets", "H": "num_attention_heads"},
    chosen=for_its_head,
    **tied_decoder("lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias"),
)
