# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of DistilBERT's tensors in Hugging Face checkpoints."""

from flaxattn.pretrained.bert_names import (
    CLASSIFIER,
    EMBEDDINGS,
    QUESTIONS,
    SIZES,
    family,
    tied_decoder,
)

_ROWS = """
transformer.layer.*.attention.q_lin.weight   AE encoder/layers/attention/query/kernel   T
transformer.layer.*.attention.q_lin.bias     A  encoder/layers/attention/query/bias     =
transformer.layer.*.attention.k_lin.weight   AE encoder/layers/attention/key/kernel     T
transformer.layer.*.attention.k_lin.bias     A  encoder/layers/attention/key/bias       =
transformer.layer.*.attention.v_lin.weight   AE encoder/layers/attention/value/kernel   T
transformer.layer.*.attention.v_lin.bias     A  encoder/layers/attention/value/bias     =
transformer.layer.*.attention.out_lin.weight EA encoder/layers/attention/output/kernel  T
transformer.layer.*.attention.out_lin.bias   E  encoder/layers/attention/output/bias    =
transformer.layer.*.sa_layer_norm.weight     E  encoder/layers/attention_norm/scale     =
transformer.layer.*.sa_layer_norm.bias       E  encoder/layers/attention_norm/bias      =
transformer.layer.*.ffn.lin1.weight          FE encoder/layers/feed_forward/up/kernel   T
transformer.layer.*.ffn.lin1.bias            F  encoder/layers/feed_forward/up/bias     =
transformer.layer.*.ffn.lin2.weight          EF encoder/layers/feed_forward/down/kernel T
transformer.layer.*.ffn.lin2.bias            E  encoder/layers/feed_forward/down/bias   =
transformer.layer.*.output_layer_norm.weight E  encoder/layers/feed_forward_norm/scale  =
transformer.layer.*.output_layer_norm.bias   E  encoder/layers/feed_forward_norm/bias   =
vocab_transform.weight                       EE mlm_head/dense/kernel                   T
vocab_transform.bias                         E  mlm_head/dense/bias                     =
vocab_layer_norm.weight                      E  mlm_head/norm/scale                     =
vocab_layer_norm.bias                        E  mlm_head/norm/bias                      =
vocab_projector.weight                       VE mlm_head/decoder/kernel                 T
vocab_projector.bias                         V  mlm_head/bias                           =
pre_classifier.weight                        EE classifier_dense/kernel                 T
pre_classifier.bias                          E  classifier_dense/bias                   =
"""
DISTILBERT = family(
    "DistilBERT",
    "distilbert",
    EMBEDDINGS,
    _ROWS,
    CLASSIFIER,
    QUESTIONS,
    layers={"transformer.layer.": "num_hidden_layers"},
    sizes=SIZES | {"W": "hidden_size"},
    core=("embeddings.", "transformer."),
    **tied_decoder("vocab_projector.weight", "vocab_projector.bias"),
)
