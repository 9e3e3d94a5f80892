# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of GPT-2's tensors in Hugging Face checkpoints.

Its layers keep weights as `[in, out]`, as ours do, with queries, keys and values in one tensor.
"""

from collections.abc import Iterable, Mapping

from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.pretrained.name_tables import Family, table

# Hugging Face name       shape ours                            T: transposed, 0/3: first third
_ROWS = table("""
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
_OUTPUT, _WORDS = "lm_head.weight", "wte.weight"


def _idle(config: GPT2Config, paths: Iterable[str]) -> Mapping[str, str | None]:
    """The copy of the words that some versions write for the output layer."""
    del paths
    return {_OUTPUT: _WORDS} if config.tie_word_embeddings else {}


GPT2_NAMES = Family(
    name="GPT-2",
    rows=_ROWS,
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
    idle=_idle,
)
