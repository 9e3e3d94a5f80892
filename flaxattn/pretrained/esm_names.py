# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of ESM's tensors in Hugging Face checkpoints."""

import dataclasses

import numpy as np

from flaxattn.errors import CheckpointError
from flaxattn.models.bert_config import BertConfig
from flaxattn.models.rotary import rates
from flaxattn.pretrained.bert_names import (
    CLASSIFIER,
    DENSE_CLASSIFIER,
    POOLER,
    SIZES,
    family,
    for_its_head,
    tied_decoder,
)
from flaxattn.pretrained.roberta_names import LM_HEAD
from flaxattn.trace.tensor_file import TensorFiles

_ROWS = """
embeddings.word_embeddings.weight             VW embeddings/word/embedding               =
embeddings.position_embeddings.weight         PW embeddings/position/embedding           =
embeddings.layer_norm.weight                  W  embeddings/norm/scale                   =
embeddings.layer_norm.bias                    W  embeddings/norm/bias                    =
encoder.layer.*.attention.self.query.weight   AE encoder/layers/attention/query/kernel   T
encoder.layer.*.attention.self.query.bias     A  encoder/layers/attention/query/bias     =
encoder.layer.*.attention.self.key.weight     AE encoder/layers/attention/key/kernel     T
encoder.layer.*.attention.self.key.bias       A  encoder/layers/attention/key/bias       =
encoder.layer.*.attention.self.value.weight   AE encoder/layers/attention/value/kernel   T
encoder.layer.*.attention.self.value.bias     A  encoder/layers/attention/value/bias     =
encoder.layer.*.attention.output.dense.weight EA encoder/layers/attention/output/kernel  T
encoder.layer.*.attention.output.dense.bias   E  encoder/layers/attention/output/bias    =
encoder.layer.*.attention.LayerNorm.weight    E  encoder/layers/attention_norm/scale     =
encoder.layer.*.attention.LayerNorm.bias      E  encoder/layers/attention_norm/bias      =
encoder.layer.*.intermediate.dense.weight     FE encoder/layers/feed_forward/up/kernel   T
encoder.layer.*.intermediate.dense.bias       F  encoder/layers/feed_forward/up/bias     =
encoder.layer.*.output.dense.weight           EF encoder/layers/feed_forward/down/kernel T
encoder.layer.*.output.dense.bias             E  encoder/layers/feed_forward/down/bias   =
encoder.layer.*.LayerNorm.weight              E  encoder/layers/feed_forward_norm/scale  =
encoder.layer.*.LayerNorm.bias                E  encoder/layers/feed_forward_norm/bias   =
encoder.emb_layer_norm_after.weight           E  final_norm/scale                        =
encoder.emb_layer_norm_after.bias             E  final_norm/bias                         =
contact_head.regression.weight                1X contact_head/kernel                     T
contact_head.regression.bias                  1  contact_head/bias                       =
"""
FREQUENCIES = "rotary_embeddings.inv_freq"
_OF_LAYER = f"encoder.layer.*.attention.self.{FREQUENCIES}"


def _constants(config: BertConfig) -> dict[str, np.ndarray]:
    """Frequencies of rotary positions, which published checkpoints hold rounded to 16 bits."""
    if config.rotary is None:
        return {}
    prefix = "" if config.architectures[0] == "EsmModel" else "esm."
    return {prefix + FREQUENCIES: rates(config.rotary, config.head_size)}


def with_frequencies(config: BertConfig, files: TensorFiles) -> BertConfig:
    """The configuration with the frequencies that a checkpoint holds, if it holds any."""
    held = sorted(name for name in files.shapes if name.endswith(FREQUENCIES))
    if not held or config.rotary is None:
        return config
    expected = rates(config.rotary, config.head_size)
    if files.shapes[held[0]] != expected.shape:
        raise CheckpointError(
            f"{files.directory}: {held[0]} has shape {list(files.shapes[held[0]])}, expected "
            f"{list(expected.shape)} for heads of {config.head_size} dimensions.\n"
            "Take config.json and the weights from the same model."
        )
    found = tuple(map(float, files.read(held[0]).astype(np.float32)))
    if found == tuple(map(float, expected)):
        return config
    return dataclasses.replace(config, rotary_frequencies=found)


ESM = family(
    "ESM",
    "esm",
    _ROWS,
    POOLER,
    LM_HEAD,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    sizes=SIZES | {"W": "hidden_size", "X": "contact_inputs"},
    buffers=frozenset({"embeddings.position_ids", FREQUENCIES, _OF_LAYER}),
    constants=_constants,
    chosen=for_its_head,
    **tied_decoder("lm_head.decoder.weight", "lm_head.bias"),
)
