# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of BERT's tensors in Hugging Face checkpoints, old and new."""

from collections.abc import Iterable, Mapping

from flaxattn.models.bert_config import BertConfig
from flaxattn.pretrained.name_tables import Family, table

# Hugging Face name                                shape ours                          T: transposed
_ROWS = table("""
embeddings.word_embeddings.weight                  VE    embeddings/word/embedding              =
embeddings.position_embeddings.weight              PE    embeddings/position/embedding          =
embeddings.token_type_embeddings.weight            TE    embeddings/token_type/embedding        =
embeddings.LayerNorm.weight                        E     embeddings/norm/scale                  =
embeddings.LayerNorm.bias                          E     embeddings/norm/bias                   =
encoder.layer.*.attention.self.query.weight        AE    encoder/layers/attention/query/kernel  T
encoder.layer.*.attention.self.query.bias          A     encoder/layers/attention/query/bias    =
encoder.layer.*.attention.self.key.weight          AE    encoder/layers/attention/key/kernel    T
encoder.layer.*.attention.self.key.bias            A     encoder/layers/attention/key/bias      =
encoder.layer.*.attention.self.value.weight        AE    encoder/layers/attention/value/kernel  T
encoder.layer.*.attention.self.value.bias          A     encoder/layers/attention/value/bias    =
encoder.layer.*.attention.output.dense.weight      EA    encoder/layers/attention/output/kernel T
encoder.layer.*.attention.output.dense.bias        E     encoder/layers/attention/output/bias   =
encoder.layer.*.attention.output.LayerNorm.weight  E     encoder/layers/attention_norm/scale    =
encoder.layer.*.attention.output.LayerNorm.bias    E     encoder/layers/attention_norm/bias     =
encoder.layer.*.intermediate.dense.weight          FE    encoder/layers/feed_forward/up/kernel  T
encoder.layer.*.intermediate.dense.bias            F     encoder/layers/feed_forward/up/bias    =
encoder.layer.*.output.dense.weight                EF    encoder/layers/feed_forward/down/kernel T
encoder.layer.*.output.dense.bias                  E     encoder/layers/feed_forward/down/bias  =
encoder.layer.*.output.LayerNorm.weight            E     encoder/layers/feed_forward_norm/scale =
encoder.layer.*.output.LayerNorm.bias              E     encoder/layers/feed_forward_norm/bias  =
pooler.dense.weight                                EE    pooler/dense/kernel                    T
pooler.dense.bias                                  E     pooler/dense/bias                      =
cls.predictions.transform.dense.weight             EE    mlm_head/dense/kernel                  T
cls.predictions.transform.dense.bias               E     mlm_head/dense/bias                    =
cls.predictions.transform.LayerNorm.weight         E     mlm_head/norm/scale                    =
cls.predictions.transform.LayerNorm.bias           E     mlm_head/norm/bias                     =
cls.predictions.bias                               V     mlm_head/bias                          =
cls.predictions.decoder.weight                     VE    mlm_head/decoder/kernel                T
cls.seq_relationship.weight                        2E    nsp_head/kernel                        T
cls.seq_relationship.bias                          2     nsp_head/bias                          =
classifier.weight                                  CE    classifier/kernel                      T
classifier.bias                                    C     classifier/bias                        =
""")
_WORDS = "embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
DECODER_BIAS, BIAS = "cls.predictions.decoder.bias", "cls.predictions.bias"


def _aliases(names: dict[str, str], config: BertConfig) -> dict[str, str]:
    """If the masked-LM decoder is untied, transformers gives it the bias that counts."""
    if DECODER_BIAS in names and (not config.tie_word_embeddings or BIAS not in names):
        names[BIAS] = names.pop(DECODER_BIAS)
    return names


def _idle(config: BertConfig, paths: Iterable[str]) -> Mapping[str, str | None]:
    if "mlm_head/bias" not in paths:
        return {}
    return {DECODER_BIAS: None} | ({DECODER: _WORDS} if config.tie_word_embeddings else {})


BERT = Family(
    name="BERT",
    rows=_ROWS,
    prefix=("bert.", "bert/"),
    layers={"encoder.layer.": "num_hidden_layers"},
    sizes={
        "V": "vocab_size",
        "P": "max_position_embeddings",
        "T": "type_vocab_size",
        "E": "hidden_size",
        "F": "intermediate_size",
        "C": "num_labels",
        "A": "attention_size",
    },
    core=("embeddings.", "encoder."),
    buffers=frozenset({"embeddings.position_ids", "embeddings.token_type_ids"}),
    others=frozenset({DECODER_BIAS}),
    renamed=(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
    aliases=_aliases,
    idle=_idle,
    written={DECODER_BIAS: (BIAS, DECODER)},
)
