# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of ModernBERT's tensors in Hugging Face checkpoints.

Queries, keys and values are one tensor there, and so are both inner layers of the feed-forward
layer, the one with the activation first. The first layer has no LayerNorm before attention.
"""

from collections.abc import Iterable, Mapping

from flaxattn.models.modernbert_config import ModernBertConfig
from flaxattn.pretrained.name_tables import Family, table

_WORDS, _DECODER = "embeddings.tok_embeddings.weight", "decoder.weight"
# Hugging Face name               shape ours                                 T: transposed
_ROWS = table(f"""
{_WORDS}                           VE   embeddings/word/embedding              =
embeddings.norm.weight             E    embeddings/norm/scale                  =
embeddings.norm.bias               E    embeddings/norm/bias                   =
layers.*.attn_norm.weight          E    attention_norms/scale                  1+
layers.*.attn_norm.bias            E    attention_norms/bias                   1+
layers.*.attn.Wqkv.weight          AE   encoder/layers/attention/query/kernel  T0/3
layers.*.attn.Wqkv.weight          AE   encoder/layers/attention/key/kernel    T1/3
layers.*.attn.Wqkv.weight          AE   encoder/layers/attention/value/kernel  T2/3
layers.*.attn.Wqkv.bias            A    encoder/layers/attention/query/bias    0/3
layers.*.attn.Wqkv.bias            A    encoder/layers/attention/key/bias      1/3
layers.*.attn.Wqkv.bias            A    encoder/layers/attention/value/bias    2/3
layers.*.attn.Wo.weight            EE   encoder/layers/attention/output/kernel T
layers.*.attn.Wo.bias              E    encoder/layers/attention/output/bias   =
layers.*.mlp_norm.weight           E    encoder/layers/feed_forward_norm/scale =
layers.*.mlp_norm.bias             E    encoder/layers/feed_forward_norm/bias  =
layers.*.mlp.Wi.weight             GE   encoder/layers/feed_forward/gate/kernel T0/2
layers.*.mlp.Wi.weight             GE   encoder/layers/feed_forward/up/kernel  T1/2
layers.*.mlp.Wi.bias               G    encoder/layers/feed_forward/gate/bias  0/2
layers.*.mlp.Wi.bias               G    encoder/layers/feed_forward/up/bias    1/2
layers.*.mlp.Wo.weight             EF   encoder/layers/feed_forward/down/kernel T
layers.*.mlp.Wo.bias               E    encoder/layers/feed_forward/down/bias  =
final_norm.weight                  E    norm/scale                             =
final_norm.bias                    E    norm/bias                              =
head.dense.weight                  EE   head/dense/kernel                      T
head.dense.bias                    E    head/dense/bias                        =
head.norm.weight                   E    head/norm/scale                        =
head.norm.bias                     E    head/norm/bias                         =
{_DECODER}                         VE   decoder/kernel                         T
decoder.bias                       V    decoder/bias                           =
classifier.weight                  CE   classifier/kernel                      T
classifier.bias                    C    classifier/bias                        =
""")


def _idle(config: ModernBertConfig, paths: Iterable[str]) -> Mapping[str, str | None]:
    scores_words = any(path.startswith(("decoder/", "head/")) for path in paths)
    return {_DECODER: _WORDS} if config.tie_word_embeddings and scores_words else {}


MODERNBERT = Family(
    name="ModernBERT",
    rows=_ROWS,
    prefix=("model.", "model/"),
    layers={"layers.": "num_hidden_layers"},
    sizes={
        "V": "vocab_size",
        "E": "hidden_size",
        "F": "intermediate_size",
        "C": "num_labels",
        "A": "fused_attention_size",
        "G": "fused_feed_forward_size",
    },
    core=("embeddings.", "layers.", "final_norm."),
    idle=_idle,
)
