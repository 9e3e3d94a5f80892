# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of the tensors of Marian and BART in Hugging Face checkpoints.

The final norms of a pre-LN model, which neither of them has, are named as in mBART.
"""

from collections.abc import Iterable, Mapping

from flaxattn.models.position_tables import UNUSED_ROWS
from flaxattn.models.seq2seq_config import Seq2SeqConfig
from flaxattn.pretrained.name_tables import Family, NameRow, table

# Hugging Face name, shape, ours, T: transposed, 1: without the first axis
_ROWS = table("""
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
    rows=_ROWS,
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
