# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of the tensors of T5, T5 v1.1, mT5 and UMT5 in Hugging Face checkpoints.

The number before a name is that of the sub-layer: self-attention, then in the decoder attention to
the source, then feed-forward.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from flaxattn.models.t5_config import T5Config
from flaxattn.pretrained.name_tables import Family, NameRow, table
from flaxattn.trace.tensor_file import TensorFiles

# Hugging Face name, shape, ours, T: transposed; @ is the side, # the number of its feed-forward
_BOTH = """
@.block.*.layer.0.SelfAttention.q.weight     IE @/layers/attention/query/kernel   T
@.block.*.layer.0.SelfAttention.k.weight     IE @/layers/attention/key/kernel     T
@.block.*.layer.0.SelfAttention.v.weight     IE @/layers/attention/value/kernel   T
@.block.*.layer.0.SelfAttention.o.weight     EI @/layers/attention/output/kernel  T
@.block.*.layer.0.layer_norm.weight          E  @/layers/attention_norm/scale     =
@.block.*.layer.#.DenseReluDense.wi.weight   FE @/layers/feed_forward/up/kernel   T
@.block.*.layer.#.DenseReluDense.wi_0.weight FE @/layers/feed_forward/gate/kernel T
@.block.*.layer.#.DenseReluDense.wi_1.weight FE @/layers/feed_forward/up/kernel   T
@.block.*.layer.#.DenseReluDense.wo.weight   EF @/layers/feed_forward/down/kernel T
@.block.*.layer.#.layer_norm.weight          E  @/layers/feed_forward_norm/scale  =
@.final_layer_norm.weight                    E  @_norm/scale                      =
"""
_BIASES = """
@.block.0.layer.0.SelfAttention.relative_attention_bias.weight RH @_bias/embedding =
@.block.*.layer.0.SelfAttention.relative_attention_bias.weight RH @_bias/embedding =
"""
_REST = """
shared.weight                                    VE words/embedding                              =
decoder.block.*.layer.1.EncDecAttention.q.weight IE decoder/layers/cross_attention/query/kernel  T
decoder.block.*.layer.1.EncDecAttention.k.weight IE decoder/layers/cross_attention/key/kernel    T
decoder.block.*.layer.1.EncDecAttention.v.weight IE decoder/layers/cross_attention/value/kernel  T
decoder.block.*.layer.1.EncDecAttention.o.weight EI decoder/layers/cross_attention/output/kernel T
decoder.block.*.layer.1.layer_norm.weight        E  decoder/layers/cross_attention_norm/scale    =
lm_head.weight                                   VE output                                       T
classification_head.dense.weight                 EE score_dense/kernel                           T
classification_head.dense.bias                   E  score_dense/bias                             =
classification_head.out_proj.weight              CE score/kernel                                 T
classification_head.out_proj.bias                C  score/bias                                   =
classifier.weight                                CE token_score/kernel                           T
classifier.bias                                  C  token_score/bias                             =
qa_outputs.weight                                2E qa_head/kernel                               T
qa_outputs.bias                                  2  qa_head/bias                                 =
"""
_SHARED, _OUTPUT = "shared.weight", "lm_head.weight"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# The first checkpoints have a bias of cross-attention that the model never adds.
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def _of_side(side: str, last: str) -> str:
    return (_BOTH + _BIASES.lstrip()).replace("@", side).replace("#", last)


def _chosen(row: NameRow, config: T5Config) -> bool:
    """Gated and other feed-forwards, shared and other biases have names of their own."""
    if ".wi." in row.theirs or ".wi_1." in row.theirs:
        return config.gated == (".wi_1." in row.theirs)
    if "relative_attention_bias" in row.theirs:
        return config.bias_by_layer == ("*" in row.theirs)
    return True


def _aliases(names: dict[str, str], config: T5Config) -> dict[str, str]:
    """Checkpoints of an encoder may name its word embedding only."""
    del config
    found = next((names[copy] for copy in _COPIES if copy in names), None)
    return names if found is None else {_SHARED: found, **names}


def _idle(config: T5Config, paths: Iterable[str]) -> Mapping[str, str | None]:
    """Copies that many checkpoints have."""
    del paths
    names: dict[str, str | None] = dict.fromkeys(_COPIES, _SHARED)
    if config.tie_word_embeddings:
        names[_OUTPUT] = _SHARED
    return names | {_UNUSED: None}


def ties_output(files: TensorFiles) -> bool:
    """Return whether the output layer of a checkpoint is its word embedding."""
    words = next((name for name in (_SHARED, *_COPIES) if name in files.shapes), None)
    if words is None or _OUTPUT not in files.shapes:
        return True
    return np.array_equal(files.read(_OUTPUT), files.read(words), equal_nan=True)


def t5_names(config: T5Config) -> Family:
    """Tensor names of a T5's checkpoints; those of a classifier have a prefix."""
    classifies = config.architectures[0].endswith("Classification")
    return dataclasses.replace(_NAMES, prefix=("transformer." if classifies else "", "model/"))


_NAMES = Family(
    name="T5",
    rows=table(_of_side("encoder", "1") + _of_side("decoder", "2").strip("\n") + _REST),
    prefix=("", "model/"),
    layers={"encoder.block.": "encoder_layers", "decoder.block.": "decoder_layers"},
    sizes={
        "V": "vocab_size",
        "E": "d_model",
        "F": "d_ff",
        "I": "inner_size",
        "R": "relative_attention_num_buckets",
        "H": "num_heads",
        "C": "num_labels",
    },
    renamed=(("transformer.", ""),),
    core=("shared.", "encoder.", "decoder."),
    others=frozenset({_UNUSED.replace(".0.layer", ".*.layer")}),
    aliases=_aliases,
    idle=_idle,
    chosen=_chosen,
)
