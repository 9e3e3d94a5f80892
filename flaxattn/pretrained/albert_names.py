# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of ALBERT's tensors in Hugging Face checkpoints."""

from flaxattn.pretrained.bert_names import (
    CLASSIFIER,
    EMBEDDINGS,
    QUESTIONS,
    family,
    tied_decoder,
)

# The layers of a group share their parameters; a stack of them has one set, counted as a layer.
_ROWS = """
LAYER.attention.query.weight               AE encoder/layers/attention/query/kernel   T
LAYER.attention.query.bias                 A  encoder/layers/attention/query/bias     =
LAYER.attention.key.weight                 AE encoder/layers/attention/key/kernel     T
LAYER.attention.key.bias                   A  encoder/layers/attention/key/bias       =
LAYER.attention.value.weight               AE encoder/layers/attention/value/kernel   T
LAYER.attention.value.bias                 A  encoder/layers/attention/value/bias     =
LAYER.attention.dense.weight               EA encoder/layers/attention/output/kernel  T
LAYER.attention.dense.bias                 E  encoder/layers/attention/output/bias    =
LAYER.attention.LayerNorm.weight           E  encoder/layers/attention_norm/scale     =
LAYER.attention.LayerNorm.bias             E  encoder/layers/attention_norm/bias      =
LAYER.ffn.weight                           FE encoder/layers/feed_forward/up/kernel   T
LAYER.ffn.bias                             F  encoder/layers/feed_forward/up/bias     =
LAYER.ffn_output.weight                    EF encoder/layers/feed_forward/down/kernel T
LAYER.ffn_output.bias                      E  encoder/layers/feed_forward/down/bias   =
LAYER.full_layer_layer_norm.weight         E  encoder/layers/feed_forward_norm/scale  =
LAYER.full_layer_layer_norm.bias           E  encoder/layers/feed_forward_norm/bias   =
encoder.embedding_hidden_mapping_in.weight EW embedding_projection/kernel             T
encoder.embedding_hidden_mapping_in.bias   E  embedding_projection/bias               =
pooler.weight                              EE pooler/dense/kernel                     T
pooler.bias                                E  pooler/dense/bias                       =
predictions.dense.weight                   WE mlm_head/dense/kernel                   T
predictions.dense.bias                     W  mlm_head/dense/bias                     =
predictions.LayerNorm.weight               W  mlm_head/norm/scale                     =
predictions.LayerNorm.bias                 W  mlm_head/norm/bias                      =
predictions.bias                           V  mlm_head/bias                           =
predictions.decoder.weight                 VW mlm_head/decoder/kernel                 T
sop_classifier.classifier.weight           CE nsp_head/kernel                         T
sop_classifier.classifier.bias             C  nsp_head/bias                           =
""".replace("LAYER.", "encoder.albert_layer_groups.*.albert_layers.0.")
ALBERT = family(
    "ALBERT",
    "albert",
    EMBEDDINGS,
    _ROWS,
    CLASSIFIER,
    QUESTIONS,
    layers={"encoder.albert_layer_groups.": "num_hidden_groups"},
    **tied_decoder("predictions.decoder.weight", "predictions.bias", "predictions.decoder.bias"),
)
