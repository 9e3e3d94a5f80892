# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of tensor names in Hugging Face checkpoints: decoders related to Llama, and GPT-2.

A parameter that has several rows has one for each way to keep it; the configuration says which.
"""

from collections.abc import Callable, Iterable, Mapping

from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.decoder_types import TYPES
from flaxattn.pretrained.name_tables import Family, table

# Hugging Face name                           shape ours                    T: transposed, 0/AKK:
#                                                                 first of parts with these sizes
_ATTENTION = """
layers.*.self_attn.q_proj.weight              AE decoder/layers/attention/query/kernel    T
layers.*.self_attn.q_proj.bias                A  decoder/layers/attention/query/bias      =
layers.*.self_attn.k_proj.weight              KE decoder/layers/attention/key/kernel      T
layers.*.self_attn.k_proj.bias                K  decoder/layers/attention/key/bias        =
layers.*.self_attn.v_proj.weight              KE decoder/layers/attention/value/kernel    T
layers.*.self_attn.v_proj.bias                K  decoder/layers/attention/value/bias      =
"""
_FUSED_ATTENTION = """
layers.*.self_attn.qkv_proj.weight            QE decoder/layers/attention/query/kernel    T0/AKK
layers.*.self_attn.qkv_proj.weight            QE decoder/layers/attention/key/kernel      T1/AKK
layers.*.self_attn.qkv_proj.weight            QE decoder/layers/attention/value/kernel    T2/AKK
"""
_GATED = """
layers.*.mlp.gate_proj.weight                 FE decoder/layers/feed_forward/gate/kernel  T
layers.*.mlp.gate_proj.bias                   F  decoder/layers/feed_forward/gate/bias    =
layers.*.mlp.up_proj.weight                   FE decoder/layers/feed_forward/up/kernel    T
layers.*.mlp.up_proj.bias                     F  decoder/layers/feed_forward/up/bias      =
layers.*.mlp.down_proj.weight                 EF decoder/layers/feed_forward/down/kernel  T
layers.*.mlp.down_proj.bias                   E  decoder/layers/feed_forward/down/bias    =
"""
_FUSED_GATED = """
layers.*.mlp.gate_up_proj.weight              UE decoder/layers/feed_forward/gate/kernel  T0/FF
layers.*.mlp.gate_up_proj.weight              UE decoder/layers/feed_forward/up/kernel    T1/FF
layers.*.mlp.down_proj.weight                 EF decoder/layers/feed_forward/down/kernel  T
"""
_PLAIN = """
layers.*.mlp.c_fc.weight                      FE decoder/layers/feed_forward/up/kernel    T
layers.*.mlp.c_fc.bias                        F  decoder/layers/feed_forward/up/bias      =
layers.*.mlp.c_proj.weight                    EF decoder/layers/feed_forward/down/kernel  T
layers.*.mlp.c_proj.bias                      E  decoder/layers/feed_forward/down/bias    =
"""
_SHARED = """
embed_tokens.weight                           VE words/embedding                          =
layers.*.self_attn.o_proj.weight              EA decoder/layers/attention/output/kernel   T
layers.*.self_attn.o_proj.bias                E  decoder/layers/attention/output/bias     =
layers.*.self_attn.sinks                      H  decoder/layers/attention/sinks           =
norm.weight                                   E  norm/scale                               =
norm.bias                                     E  norm/bias                                =
lm_head.weight                                VE output                                   T
score.weight                                  CE score                                    T
score.weight                                  CE token_score/kernel                       T
score.bias                                    C  token_score/bias                         =
qa_outputs.weight                             2E qa_head/kernel                           T
qa_outputs.bias                               2  qa_head/bias                             =
"""
_EACH_HEAD = """
layers.*.self_attn.q_norm.weight              D  decoder/layers/attention/query_norm/scale =
layers.*.self_attn.k_norm.weight              D  decoder/layers/attention/key_norm/scale  =
"""
_ALL_HEADS = """
layers.*.self_attn.q_norm.weight              A  decoder/layers/attention/query_norm/scale =
layers.*.self_attn.k_norm.weight              K  decoder/layers/attention/key_norm/scale  =
"""
_BEFORE = """
layers.*.input_layernorm.weight               E  decoder/layers/attention_norm/scale      =
layers.*.input_layernorm.bias                 E  decoder/layers/attention_norm/bias       =
layers.*.post_attention_layernorm.weight      E  decoder/layers/feed_forward_norm/scale   =
layers.*.post_attention_layernorm.bias        E  decoder/layers/feed_forward_norm/bias    =
"""
_AFTER = """
layers.*.post_attention_layernorm.weight      E  decoder/layers/attention_post_norm/scale =
layers.*.post_feedforward_layernorm.weight    E  decoder/layers/feed_forward_post_norm/scale =
"""
_BOTH = """
layers.*.input_layernorm.weight               E  decoder/layers/attention_norm/scale      =
layers.*.pre_feedforward_layernorm.weight     E  decoder/layers/feed_forward_norm/scale   =
"""
_NEOX = """
embed_in.weight                               VE words/embedding                          =
layers.*.input_layernorm.weight               E  decoder/layers/attention_norm/scale      =
layers.*.input_layernorm.bias                 E  decoder/layers/attention_norm/bias       =
layers.*.post_attention_layernorm.weight      E  decoder/layers/feed_forward_norm/scale   =
layers.*.post_attention_layernorm.bias        E  decoder/layers/feed_forward_norm/bias    =
layers.*.attention.query_key_value.weight     QE decoder/layers/attention/query/kernel    T0/H3
layers.*.attention.query_key_value.weight     QE decoder/layers/attention/key/kernel      T1/H3
layers.*.attention.query_key_value.weight     QE decoder/layers/attention/value/kernel    T2/H3
layers.*.attention.query_key_value.bias       Q  decoder/layers/attention/query/bias      0/H3
layers.*.attention.query_key_value.bias       Q  decoder/layers/attention/key/bias        1/H3
layers.*.attention.query_key_value.bias       Q  decoder/layers/attention/value/bias      2/H3
layers.*.attention.dense.weight               EA decoder/layers/attention/output/kernel   T
layers.*.attention.dense.bias                 E  decoder/layers/attention/output/bias     =
layers.*.mlp.dense_h_to_4h.weight             FE decoder/layers/feed_forward/up/kernel    T
layers.*.mlp.dense_h_to_4h.bias               F  decoder/layers/feed_forward/up/bias      =
layers.*.mlp.dense_4h_to_h.weight             EF decoder/layers/feed_forward/down/kernel  T
layers.*.mlp.dense_4h_to_h.bias               E  decoder/layers/feed_forward/down/bias    =
final_layer_norm.weight                       E  norm/scale                               =
final_layer_norm.bias                         E  norm/bias                                =
embed_out.weight                              VE output                                   T
score.weight                                  CE score                                    T
classifier.weight                             CE token_score/kernel                       T
classifier.bias                               C  token_score/bias                         =
qa_outputs.weight                             2E qa_head/kernel                           T
qa_outputs.bias                               2  qa_head/bias                             =
"""
_PROJECTIONS = {
    "llama": _ATTENTION + _GATED,
    "phi3": _FUSED_ATTENTION + _FUSED_GATED,
    "starcoder2": _ATTENTION + _PLAIN,
}
_NORMS = {"before": _BEFORE, "after": _AFTER, "both": _AFTER + _BOTH}
_SIZES = {
    "V": "vocab_size",
    "E": "hidden_size",
    "F": "intermediate_size",
    "A": "query_size",
    "K": "key_size",
    "Q": "fused_size",
    "U": "fused_inner_size",
    "H": "num_attention_heads",
    "D": "head_size",
    "C": "num_labels",
}


def decoder_names(config: DecoderConfig) -> Family:
    """Tensor names of one model type's checkpoints."""
    kind = TYPES[config.model_type]
    neox = kind.names == "gpt_neox"
    heads = _EACH_HEAD if config.head_norm == "each" else _ALL_HEADS
    text = _NEOX if neox else _SHARED + _PROJECTIONS[kind.names] + _NORMS[config.norm_places]
    embedding, output = "embed_in.weight", "embed_out.weight"
    if not neox:
        embedding, output = "embed_tokens.weight", "lm_head.weight"
    return Family(
        name=kind.stem,
        rows=table(text if neox else text + heads),
        prefix=("gpt_neox." if neox else _prefix(config), "model/"),
        renamed=() if neox else (("model.", ""), ("transformer.", "")),
        layers={"layers.": "num_hidden_layers"},
        sizes=_SIZES,
        core=(embedding, "layers.", "norm.", "final_layer_norm."),
        buffers=frozenset(_BUFFERS),
        idle=_tied(output, embedding),
    )


def _prefix(config: DecoderConfig) -> str:
    """Prefix of the names of the backbone; under another head it can be another one."""
    answers = config.architectures[0].endswith("ForQuestionAnswering")
    return TYPES[config.model_type].answers_below if answers else "model."


def _tied(output: str, embedding: str) -> Callable[..., Mapping[str, str | None]]:
    """The copy of the embedding that some versions write for the output layer."""

    def idle(config: DecoderConfig | GPT2Config, paths: Iterable[str]) -> Mapping[str, str | None]:
        del paths
        return {output: embedding} if config.tie_word_embeddings else {}

    return idle


_BUFFERS = (
    "layers.*.self_attn.rotary_emb.inv_freq",
    "layers.*.attention.rotary_emb.inv_freq",
    "layers.*.attention.bias",
    "layers.*.attention.masked_bias",
    "rotary_emb.inv_freq",
)


# Hugging Face name       shape ours                            T: transposed, 0/3: first third
# Weights are `[in, out]` on disk, as ours are, with queries, keys and values in one tensor.
_GPT2_ROWS = table("""
wte.weight                VE    words/embedding                          =
wpe.weight                PE    positions/embedding                      =
h.*.ln_1.weight           E     decoder/layers/attention_norm/scale      =
h.*.ln_1.bias             E     decoder/layers/attention_norm/bias       =
h.*.attn.c_attn.weight    EA    decoder/layers/attention/query/kernel    0/3
h.*.attn.c_attn.weight    EA    decoder/layers/attention/key/kernel      1/3
h.*.attn.c_attn.weight    EA    decoder/layers/attention/value/kernel    2/3
h.*.attn.c_attn.bias      A     decoder/layers/attention/query/bias      0/3
h.*.attn.c_attn.bias      A     decoder/layers/attention/key/bias        1/3
h.*.attn.c_attn.bias      A     decoder/layers/attention/value/bias      2/3
h.*.attn.c_proj.weight    IE    decoder/layers/attention/output/kernel   =
h.*.attn.c_proj.bias      E     decoder/layers/attention/output/bias     =
h.*.ln_2.weight           E     decoder/layers/feed_forward_norm/scale   =
h.*.ln_2.bias             E     decoder/layers/feed_forward_norm/bias    =
h.*.mlp.c_fc.weight       EF    decoder/layers/feed_forward/up/kernel    =
h.*.mlp.c_fc.bias         F     decoder/layers/feed_forward/up/bias      =
h.*.mlp.c_proj.weight     FE    decoder/layers/feed_forward/down/kernel  =
h.*.mlp.c_proj.bias       E     decoder/layers/feed_forward/down/bias    =
ln_f.weight               E     norm/scale                               =
ln_f.bias                 E     norm/bias                                =
lm_head.weight            VE    output                                   T
score.weight              CE    score                                    T
""")
GPT2_NAMES = Family(
    name="GPT-2",
    rows=_GPT2_ROWS,
    prefix=("transformer.", "model/"),
    layers={"h.": "n_layer"},
    sizes={
        "V": "vocab_size",
        "P": "n_positions",
        "E": "n_embd",
        "F": "inner_size",
        "A": "fused_size",
        "I": "attention_size",
        "C": "num_labels",
    },
    core=("wte.", "wpe.", "h.", "ln_f."),
    buffers=frozenset({"h.*.attn.bias", "h.*.attn.masked_bias"}),
    idle=_tied("lm_head.weight", "wte.weight"),
)
