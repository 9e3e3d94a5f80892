# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of tensor names in Hugging Face checkpoints: Marian, BART, T5 and our recurrent model.

Marian and BART have no final norms; those of a pre-norm model are named as in mBART.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from flaxattn.models.positions import UNUSED_ROWS
from flaxattn.models.seq2seq_config import Seq2SeqConfig, T5Config
from flaxattn.pretrained.name_tables import Family, NameRow, table
from flaxattn.trace.tensor_file import TensorFiles

# Hugging Face name, shape, ours, T: transposed, 1: without the first axis
_SEQ2SEQ_ROWS = table("""
shared.weight                                    VE  words/embedding                              =
encoder.embed_tokens.weight                      VE  words/embedding                              =
decoder.embed_tokens.weight                      WE  decoder_words/embedding                      =
encoder.embed_positions.weight                   PE  encoder_inputs/position/embedding            =
encoder.layernorm_embedding.weight               E   encoder_inputs/norm/scale                    =
encoder.layernorm_embedding.bias                 E   encoder_inputs/norm/bias                     =
encoder.layers.*.self_attn.q_proj.weight         EE  encoder/layers/attention/query/kernel        T
encoder.layers.*.self_attn.q_proj.bias           E   encoder/layers/attention/query/bias          =
encoder.layers.*.self_attn.k_proj.weight         EE  encoder/layers/attention/key/kernel          T
encoder.layers.*.self_attn.k_proj.bias           E   encoder/layers/attention/key/bias            =
encoder.layers.*.self_attn.v_proj.weight         EE  encoder/layers/attention/value/kernel        T
encoder.layers.*.self_attn.v_proj.bias           E   encoder/layers/attention/value/bias          =
encoder.layers.*.self_attn.out_proj.weight       EE  encoder/layers/attention/output/kernel       T
encoder.layers.*.self_attn.out_proj.bias         E   encoder/layers/attention/output/bias         =
encoder.layers.*.self_attn_layer_norm.weight     E   encoder/layers/attention_norm/scale          =
encoder.layers.*.self_attn_layer_norm.bias       E   encoder/layers/attention_norm/bias           =
encoder.layers.*.fc1.weight                      FE  encoder/layers/feed_forward/up/kernel        T
encoder.layers.*.fc1.bias                        F   encoder/layers/feed_forward/up/bias          =
encoder.layers.*.fc2.weight                      EF  encoder/layers/feed_forward/down/kernel      T
encoder.layers.*.fc2.bias                        E   encoder/layers/feed_forward/down/bias        =
encoder.layers.*.final_layer_norm.weight         E   encoder/layers/feed_forward_norm/scale       =
encoder.layers.*.final_layer_norm.bias           E   encoder/layers/feed_forward_norm/bias        =
encoder.layer_norm.weight                        E   encoder_norm/scale                           =
encoder.layer_norm.bias                          E   encoder_norm/bias                            =
decoder.embed_positions.weight                   PE  decoder_inputs/position/embedding            =
decoder.layernorm_embedding.weight               E   decoder_inputs/norm/scale                    =
decoder.layernorm_embedding.bias                 E   decoder_inputs/norm/bias                     =
decoder.layers.*.self_attn.q_proj.weight         EE  decoder/layers/attention/query/kernel        T
decoder.layers.*.self_attn.q_proj.bias           E   decoder/layers/attention/query/bias          =
decoder.layers.*.self_attn.k_proj.weight         EE  decoder/layers/attention/key/kernel          T
decoder.layers.*.self_attn.k_proj.bias           E   decoder/layers/attention/key/bias            =
decoder.layers.*.self_attn.v_proj.weight         EE  decoder/layers/attention/value/kernel        T
decoder.layers.*.self_attn.v_proj.bias           E   decoder/layers/attention/value/bias          =
decoder.layers.*.self_attn.out_proj.weight       EE  decoder/layers/attention/output/kernel       T
decoder.layers.*.self_attn.out_proj.bias         E   decoder/layers/attention/output/bias         =
decoder.layers.*.self_attn_layer_norm.weight     E   decoder/layers/attention_norm/scale          =
decoder.layers.*.self_attn_layer_norm.bias       E   decoder/layers/attention_norm/bias           =
decoder.layers.*.encoder_attn.q_proj.weight      EE  decoder/layers/cross_attention/query/kernel  T
decoder.layers.*.encoder_attn.q_proj.bias        E   decoder/layers/cross_attention/query/bias    =
decoder.layers.*.encoder_attn.k_proj.weight      EE  decoder/layers/cross_attention/key/kernel    T
decoder.layers.*.encoder_attn.k_proj.bias        E   decoder/layers/cross_attention/key/bias      =
decoder.layers.*.encoder_attn.v_proj.weight      EE  decoder/layers/cross_attention/value/kernel  T
decoder.layers.*.encoder_attn.v_proj.bias        E   decoder/layers/cross_attention/value/bias    =
decoder.layers.*.encoder_attn.out_proj.weight    EE  decoder/layers/cross_attention/output/kernel T
decoder.layers.*.encoder_attn.out_proj.bias      E   decoder/layers/cross_attention/output/bias   =
decoder.layers.*.encoder_attn_layer_norm.weight  E   decoder/layers/cross_attention_norm/scale    =
decoder.layers.*.encoder_attn_layer_norm.bias    E   decoder/layers/cross_attention_norm/bias     =
decoder.layers.*.fc1.weight                      GE  decoder/layers/feed_forward/up/kernel        T
decoder.layers.*.fc1.bias                        G   decoder/layers/feed_forward/up/bias          =
decoder.layers.*.fc2.weight                      EG  decoder/layers/feed_forward/down/kernel      T
decoder.layers.*.fc2.bias                        E   decoder/layers/feed_forward/down/bias        =
decoder.layers.*.final_layer_norm.weight         E   decoder/layers/feed_forward_norm/scale       =
decoder.layers.*.final_layer_norm.bias           E   decoder/layers/feed_forward_norm/bias        =
decoder.layer_norm.weight                        E   decoder_norm/scale                           =
decoder.layer_norm.bias                          E   decoder_norm/bias                            =
final_logits_bias                                1W  logits_bias                                  1
lm_head.weight                                   WE  output                                       T
""")
_SHARED, _SOURCE, _TARGET = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
)
_OUTPUT, _BIAS = "lm_head.weight", "final_logits_bias"


def _chosen(row: NameRow, config: Seq2SeqConfig) -> bool:
    """The source words are named by whether the target shares them."""
    unused = _SOURCE if config.share_encoder_decoder_embeddings else _SHARED
    return row.theirs != unused


def _aliases(names: dict[str, str], config: Seq2SeqConfig) -> dict[str, str]:
    """Older versions wrote one tensor for embeddings that the configuration does not tie."""
    if not config.share_encoder_decoder_embeddings and _SHARED in names:
        names = {_SOURCE: names[_SHARED], _TARGET: names[_SHARED], **names}
    return names


def _idle(config: Seq2SeqConfig, paths: Iterable[str]) -> Mapping[str, str | None]:
    """Copies that older versions wrote, and position tables that follow from a formula."""
    del paths
    shared = config.share_encoder_decoder_embeddings
    names: dict[str, str | None] = {_SHARED: None}
    if shared:
        names = {_SOURCE: _SHARED, _TARGET: _SHARED}
    if config.tie_word_embeddings:
        names[_OUTPUT] = _SHARED if shared else _TARGET
    if config.positions == "sinusoidal":
        names |= {f"{side}.embed_positions.weight": None for side in ("encoder", "decoder")}
    return names


SEQ2SEQ = Family(
    name="Marian or BART",
    rows=_SEQ2SEQ_ROWS,
    prefix=("model.", "model/"),
    layers={"encoder.layers.": "encoder_layers", "decoder.layers.": "decoder_layers"},
    sizes={
        "V": "vocab_size",
        "W": "target_size",
        "P": "max_position_embeddings",
        "E": "d_model",
        "F": "encoder_ffn_dim",
        "G": "decoder_ffn_dim",
    },
    core=("shared.", "encoder.", "decoder."),
    silent=frozenset({_BIAS}),
    aliases=_aliases,
    idle=_idle,
    chosen=_chosen,
    extra={"P": UNUSED_ROWS},
)


# Name, shape, ours, T: transposed
# No other library has this model: the names are ours. Kernels are `[out, in]`, as everywhere on
# disk.
_RNN_ROWS = table("""
encoder.words.weight                    VM  words/embedding                        =
encoder.forward.input.weight            GM  encoder/forward/input/kernel           T
encoder.forward.input.bias              G   encoder/forward/input/bias             =
encoder.forward.recurrent.weight        GN  encoder/forward/recurrent              T
encoder.backward.input.weight           GM  encoder/backward/input/kernel          T
encoder.backward.input.bias             G   encoder/backward/input/bias            =
encoder.backward.recurrent.weight       GN  encoder/backward/recurrent             T
decoder.words.weight                    WM  decoder_words/embedding                =
decoder.start.weight                    NN  decoder/start/kernel                   T
decoder.start.bias                      N   decoder/start/bias                     =
decoder.unit.input.weight               GM  decoder/unit/input/kernel              T
decoder.unit.input.bias                 G   decoder/unit/input/bias                =
decoder.unit.recurrent.weight           GN  decoder/unit/recurrent                 T
decoder.unit.context.weight             GC  decoder/context                        T
decoder.cross_attention.query.weight    AN  decoder/cross_attention/query          T
decoder.cross_attention.key.weight      AC  decoder/cross_attention/key/kernel     T
decoder.cross_attention.key.bias        A   decoder/cross_attention/key/bias       =
decoder.cross_attention.score.weight    A   decoder/cross_attention/score          =
decoder.readout.weight                  OR  decoder/readout/kernel                 T
decoder.readout.bias                    O   decoder/readout/bias                   =
output.weight                           WL  output/kernel                          T
output.bias                             W   output/bias                            =
classifier.weight                       KC  classifier/kernel                      T
classifier.bias                         K   classifier/bias                        =
""")

RNN_NAMES = Family(
    name="flaxattn RNN",
    rows=_RNN_ROWS,
    prefix=("", ""),
    layers={},
    sizes={
        "V": "vocab_size",
        "W": "target_size",
        "M": "embedding_size",
        "N": "hidden_size",
        "G": "gates_size",
        "C": "encoded_size",
        "A": "attention_size",
        "R": "read_size",
        "O": "maxout_size",
        "L": "readout_size",
        "K": "num_labels",
    },
    core=("encoder.", "decoder.", "output."),
)


# Hugging Face name, shape, ours, T: transposed; @ is the side, # the number of its feed-forward
_T5_BOTH = """
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
_T5_BIASES = """
@.block.0.layer.0.SelfAttention.relative_attention_bias.weight RH @_bias/embedding =
@.block.*.layer.0.SelfAttention.relative_attention_bias.weight RH @_bias/embedding =
"""
_T5_REST = """
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
_T5_SHARED, _T5_OUTPUT = "shared.weight", "lm_head.weight"
_T5_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# The first checkpoints have a bias of cross-attention that the model never adds.
_T5_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def _t5_of_side(side: str, last: str) -> str:
    return (_T5_BOTH + _T5_BIASES.lstrip()).replace("@", side).replace("#", last)


def _t5_chosen(row: NameRow, config: T5Config) -> bool:
    """Gated and other feed-forwards, shared and other biases have names of their own."""
    if ".wi." in row.theirs or ".wi_1." in row.theirs:
        return config.gated == (".wi_1." in row.theirs)
    if "relative_attention_bias" in row.theirs:
        return config.bias_by_layer == ("*" in row.theirs)
    return True


def _t5_aliases(names: dict[str, str], config: T5Config) -> dict[str, str]:
    """Checkpoints of an encoder may name its word embedding only."""
    del config
    found = next((names[copy] for copy in _T5_COPIES if copy in names), None)
    return names if found is None else {_T5_SHARED: found, **names}


def _t5_idle(config: T5Config, paths: Iterable[str]) -> Mapping[str, str | None]:
    """Copies that many checkpoints have."""
    del paths
    names: dict[str, str | None] = dict.fromkeys(_T5_COPIES, _T5_SHARED)
    if config.tie_word_embeddings:
        names[_T5_OUTPUT] = _T5_SHARED
    return names | {_T5_UNUSED: None}


def ties_output(files: TensorFiles) -> bool:
    """Return whether the output layer of a checkpoint is its word embedding."""
    words = next((name for name in (_T5_SHARED, *_T5_COPIES) if name in files.shapes), None)
    if words is None or _T5_OUTPUT not in files.shapes:
        return True
    return np.array_equal(files.read(_T5_OUTPUT), files.read(words), equal_nan=True)


def t5_names(config: T5Config) -> Family:
    """Tensor names of a T5's checkpoints; those of a classifier have a prefix."""
    classifies = config.architectures[0].endswith("Classification")
    return dataclasses.replace(_T5_NAMES, prefix=("transformer." if classifies else "", "model/"))


_T5_NAMES = Family(
    name="T5",
    rows=table(_t5_of_side("encoder", "1") + _t5_of_side("decoder", "2").strip("\n") + _T5_REST),
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
    others=frozenset({_T5_UNUSED.replace(".0.layer", ".*.layer")}),
    aliases=_t5_aliases,
    idle=_t5_idle,
    chosen=_t5_chosen,
)
