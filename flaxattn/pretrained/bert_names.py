# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The names of BERT's tensors in Hugging Face checkpoints, old and new, and what variants share.

Tables of the variants are in files of their own; `encoder_names` lists them by model type.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from flaxattn.models.bert_config import BertConfig
from flaxattn.pretrained.name_tables import Family, NameRow, table

# Hugging Face name                                shape ours                          T: transposed
EMBEDDINGS = """
embeddings.word_embeddings.weight                  VW    embeddings/word/embedding              =
embeddings.position_embeddings.weight              PW    embeddings/position/embedding          =
embeddings.token_type_embeddings.weight            TW    embeddings/token_type/embedding        =
embeddings.LayerNorm.weight                        W     embeddings/norm/scale                  =
embeddings.LayerNorm.bias                          W     embeddings/norm/bias                   =
"""
LAYERS = """
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
"""
POOLER = """
pooler.dense.weight                                EE    pooler/dense/kernel                    T
pooler.dense.bias                                  E     pooler/dense/bias                      =
"""
QUESTIONS = """
qa_outputs.weight                                  2E    qa_head/kernel                         T
qa_outputs.bias                                    2     qa_head/bias                           =
"""
# A classifier of one dense layer, and one of two, for sequences.
CLASSIFIER = """
classifier.weight                                  CE    classifier/kernel                      T
classifier.bias                                    C     classifier/bias                        =
"""
DENSE_CLASSIFIER = """
classifier.dense.weight                            EE    classifier_dense/kernel                T
classifier.dense.bias                              E     classifier_dense/bias                  =
classifier.out_proj.weight                         CE    classifier/kernel                      T
classifier.out_proj.bias                           C     classifier/bias                        =
"""
_ROWS = """
cls.predictions.transform.dense.weight             EE    mlm_head/dense/kernel                  T
cls.predictions.transform.dense.bias               E     mlm_head/dense/bias                    =
cls.predictions.transform.LayerNorm.weight         E     mlm_head/norm/scale                    =
cls.predictions.transform.LayerNorm.bias           E     mlm_head/norm/bias                     =
cls.predictions.bias                               V     mlm_head/bias                          =
cls.predictions.decoder.weight                     VE    mlm_head/decoder/kernel                T
cls.seq_relationship.weight                        2E    nsp_head/kernel                        T
cls.seq_relationship.bias                          2     nsp_head/bias                          =
"""
WORDS = "embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
DECODER_BIAS, BIAS = "cls.predictions.decoder.bias", "cls.predictions.bias"
SIZES = {
    "V": "vocab_size",
    "P": "max_position_embeddings",
    "T": "type_vocab_size",
    "W": "embedding_size",
    "E": "hidden_size",
    "F": "intermediate_size",
    "C": "num_labels",
    "A": "attention_size",
}


_OLD_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


def tied_decoder(decoder: str, bias: str, copy: str | None = None) -> dict[str, Any]:
    """Arguments of `Family` for a masked-LM head whose output layer may be the word embedding."""

    def aliases(names: dict[str, str], config: BertConfig) -> dict[str, str]:
        """If the decoder is untied, transformers gives it the bias that counts."""
        if copy in names and (not config.tie_word_embeddings or bias not in names):
            names[bias] = names.pop(copy)
        return names

    def idle(config: BertConfig, paths: Iterable[str]) -> Mapping[str, str | None]:
        if "mlm_head/bias" not in paths:
            return {}
        found: dict[str, str | None] = {} if copy is None else {copy: None}
        return found | ({decoder: WORDS} if config.tie_word_embeddings else {})

    found: dict[str, Any] = {"aliases": aliases, "idle": idle}
    if copy is not None:
        found |= {"others": frozenset({copy}), "written": {copy: (bias, decoder)}}
    return found


def for_its_head(row: NameRow, config: BertConfig) -> bool:
    """Return whether a row of a classifier is of the head that a configuration names."""
    if row.ours not in ("classifier/kernel", "classifier/bias"):
        return True
    of_sequences = config.architectures[0].endswith("ForSequenceClassification")
    return row.theirs.startswith("classifier.out_proj.") == of_sequences


def family(name: str, prefix: str, *tables: str, **fields: Any) -> Family:
    """A variant of BERT whose encoder has BERT's names."""
    return Family(
        **{
            "name": name,
            "rows": table("".join(text.strip() + "\n" for text in tables)),
            "prefix": (f"{prefix}.", "bert/"),
            "layers": {"encoder.layer.": "num_hidden_layers"},
            "sizes": SIZES,
            "core": ("embeddings.", "encoder."),
            "buffers": frozenset({"embeddings.position_ids", "embeddings.token_type_ids"}),
            "renamed": (
                ("LayerNorm.gamma", "LayerNorm.weight"),
                ("LayerNorm.beta", "LayerNorm.bias"),
            ),
            **fields,
        }
    )


BERT = family(
    "BERT",
    "bert",
    EMBEDDINGS,
    LAYERS,
    POOLER,
    _ROWS,
    CLASSIFIER,
    QUESTIONS,
    sizes=SIZES | {"W": "hidden_size"},
    **tied_decoder(DECODER, BIAS, DECODER_BIAS),
)
