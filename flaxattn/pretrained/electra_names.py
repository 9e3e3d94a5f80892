# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of ELECTRA's tensors in Hugging Face checkpoints."""

from flaxattn.pretrained.bert_names import (
    CLASSIFIER,
    DENSE_CLASSIFIER,
    EMBEDDINGS,
    LAYERS,
    QUESTIONS,
    family,
    for_its_head,
    tied_decoder,
)

_ROWS = """
embeddings_project.weight                          EW    embedding_projection/kernel            T
embeddings_project.bias                            E     embedding_projection/bias              =
generator_predictions.dense.weight                 WE    mlm_head/dense/kernel                  T
generator_predictions.dense.bias                   W     mlm_head/dense/bias                    =
generator_predictions.LayerNorm.weight             W     mlm_head/norm/scale                    =
generator_predictions.LayerNorm.bias               W     mlm_head/norm/bias                     =
generator_lm_head.weight                           VW    mlm_head/decoder/kernel                T
generator_lm_head.bias                             V     mlm_head/bias                          =
discriminator_predictions.dense.weight             EE    detector_dense/kernel                  T
discriminator_predictions.dense.bias               E     detector_dense/bias                    =
discriminator_predictions.dense_prediction.weight  1E    detector/kernel                        T
discriminator_predictions.dense_prediction.bias    1     detector/bias                          =
"""
ELECTRA = family(
    "ELECTRA",
    "electra",
    EMBEDDINGS,
    LAYERS,
    _ROWS,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    QUESTIONS,
    core=("embeddings.", "embeddings_project.", "encoder."),
    chosen=for_its_head,
    **tied_decoder("generator_lm_head.weight", "generator_lm_head.bias"),
)
