# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of tensor names in Hugging Face checkpoints: BERT, its variants, ESM and ModernBERT."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from flaxattn.errors import CheckpointError
from flaxattn.models.encoder_config import BertConfig, ModernBertConfig
from flaxattn.models.positions import rates
from flaxattn.pretrained.name_tables import Family, NameRow, table
from flaxattn.trace.tensor_file import TensorFiles

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
_BERT_ROWS = """
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
        """Read the bias of an untied decoder from `copy`, as transformers does."""
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
    _BERT_ROWS,
    CLASSIFIER,
    QUESTIONS,
    sizes=SIZES | {"W": "hidden_size"},
    **tied_decoder(DECODER, BIAS, DECODER_BIAS),
)


LM_HEAD = """
lm_head.dense.weight                               EE    mlm_head/dense/kernel                  T
lm_head.dense.bias                                 E     mlm_head/dense/bias                    =
lm_head.layer_norm.weight                          E     mlm_head/norm/scale                    =
lm_head.layer_norm.bias                            E     mlm_head/norm/bias                     =
lm_head.bias                                       V     mlm_head/bias                          =
lm_head.decoder.weight                             VE    mlm_head/decoder/kernel                T
"""
ROBERTA = family(
    "RoBERTa",
    "roberta",
    EMBEDDINGS,
    LAYERS,
    POOLER,
    LM_HEAD,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    QUESTIONS,
    sizes=SIZES | {"W": "hidden_size"},
    chosen=for_its_head,
    **tied_decoder("lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias"),
)


_DISTILBERT_ROWS = """
transformer.layer.*.attention.q_lin.weight   AE encoder/layers/attention/query/kernel   T
transformer.layer.*.attention.q_lin.bias     A  encoder/layers/attention/query/bias     =
transformer.layer.*.attention.k_lin.weight   AE encoder/layers/attention/key/kernel     T
transformer.layer.*.attention.k_lin.bias     A  encoder/layers/attention/key/bias       =
transformer.layer.*.attention.v_lin.weight   AE encoder/layers/attention/value/kernel   T
transformer.layer.*.attention.v_lin.bias     A  encoder/layers/attention/value/bias     =
transformer.layer.*.attention.out_lin.weight EA encoder/layers/attention/output/kernel  T
transformer.layer.*.attention.out_lin.bias   E  encoder/layers/attention/output/bias    =
transformer.layer.*.sa_layer_norm.weight     E  encoder/layers/attention_norm/scale     =
transformer.layer.*.sa_layer_norm.bias       E  encoder/layers/attention_norm/bias      =
transformer.layer.*.ffn.lin1.weight          FE encoder/layers/feed_forward/up/kernel   T
transformer.layer.*.ffn.lin1.bias            F  encoder/layers/feed_forward/up/bias     =
transformer.layer.*.ffn.lin2.weight          EF encoder/layers/feed_forward/down/kernel T
transformer.layer.*.ffn.lin2.bias            E  encoder/layers/feed_forward/down/bias   =
transformer.layer.*.output_layer_norm.weight E  encoder/layers/feed_forward_norm/scale  =
transformer.layer.*.output_layer_norm.bias   E  encoder/layers/feed_forward_norm/bias   =
vocab_transform.weight                       EE mlm_head/dense/kernel                   T
vocab_transform.bias                         E  mlm_head/dense/bias                     =
vocab_layer_norm.weight                      E  mlm_head/norm/scale                     =
vocab_layer_norm.bias                        E  mlm_head/norm/bias                      =
vocab_projector.weight                       VE mlm_head/decoder/kernel                 T
vocab_projector.bias                         V  mlm_head/bias                           =
pre_classifier.weight                        EE classifier_dense/kernel                 T
pre_classifier.bias                          E  classifier_dense/bias                   =
"""
DISTILBERT = family(
    "DistilBERT",
    "distilbert",
    EMBEDDINGS,
    _DISTILBERT_ROWS,
    CLASSIFIER,
    QUESTIONS,
    layers={"transformer.layer.": "num_hidden_layers"},
    sizes=SIZES | {"W": "hidden_size"},
    core=("embeddings.", "transformer."),
    **tied_decoder("vocab_projector.weight", "vocab_projector.bias"),
)


_ELECTRA_ROWS = """
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
    _ELECTRA_ROWS,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    QUESTIONS,
    core=("embeddings.", "embeddings_project.", "encoder."),
    chosen=for_its_head,
    **tied_decoder("generator_lm_head.weight", "generator_lm_head.bias"),
)


# The layers of a group share their parameters; a stack of them has one set, counted as a layer.
_ALBERT_ROWS = """
LAYER.attention.query.weight               AE encoder/layers/attention/query/kernel   T
LAYER.attention.query.bias                 A  encoder/layers/attention/query/bias     =
LAYER.attention.key.weight                 AE encoder/layers/attention/key/kernel     T
LAYER.attention.key.bias                   A  encoder/layers/attention/key/bias       =
LAYER.attention.value.weight               AE encoder/layers/attention/value/kernel   T
LAYER.attention.value.bias                 A  encoder/layers/attention/value/bias     =
LAYER.attention.dense.weight               EA encoder/layers/attention/output/kernel  T
LAYER.attention.dense.bias                 E  encoder/layers/attention/output/bias    =
LAYER.attention.LayerNorm.weight           E  encoder/layers/attention_norm/scale     =
LAYER.attention.LayerNorm.bias             E  encoder/layers/attention_norm/bias      =
LAYER.ffn.weight                           FE encoder/layers/feed_forward/up/kernel   T
LAYER.ffn.bias                             F  encoder/layers/feed_forward/up/bias     =
LAYER.ffn_output.weight                    EF encoder/layers/feed_forward/down/kernel T
LAYER.ffn_output.bias                      E  encoder/layers/feed_forward/down/bias   =
LAYER.full_layer_layer_norm.weight         E  encoder/layers/feed_forward_norm/scale  =
LAYER.full_layer_layer_norm.bias           E  encoder/layers/feed_forward_norm/bias   =
encoder.embedding_hidden_mapping_in.weight EW embedding_projection/kernel             T
encoder.embedding_hidden_mapping_in.bias   E  embedding_projection/bias               =
pooler.weight                              EE pooler/dense/kernel                     T
pooler.bias                                E  pooler/dense/bias                       =
predictions.dense.weight                   WE mlm_head/dense/kernel                   T
predictions.dense.bias                     W  mlm_head/dense/bias                     =
predictions.LayerNorm.weight               W  mlm_head/norm/scale                     =
predictions.LayerNorm.bias                 W  mlm_head/norm/bias                      =
predictions.bias                           V  mlm_head/bias                           =
predictions.decoder.weight                 VW mlm_head/decoder/kernel                 T
sop_classifier.classifier.weight           CE nsp_head/kernel                         T
sop_classifier.classifier.bias             C  nsp_head/bias                           =
""".replace("LAYER.", "encoder.albert_layer_groups.*.albert_layers.0.")
ALBERT = family(
    "ALBERT",
    "albert",
    EMBEDDINGS,
    _ALBERT_ROWS,
    CLASSIFIER,
    QUESTIONS,
    layers={"encoder.albert_layer_groups.": "num_hidden_groups"},
    **tied_decoder("predictions.decoder.weight", "predictions.bias", "predictions.decoder.bias"),
)


_MPNET_ROWS = """
encoder.layer.*.attention.attn.q.weight    AE encoder/layers/attention/query/kernel   T
encoder.layer.*.attention.attn.q.bias      A  encoder/layers/attention/query/bias     =
encoder.layer.*.attention.attn.k.weight    AE encoder/layers/attention/key/kernel     T
encoder.layer.*.attention.attn.k.bias      A  encoder/layers/attention/key/bias       =
encoder.layer.*.attention.attn.v.weight    AE encoder/layers/attention/value/kernel   T
encoder.layer.*.attention.attn.v.bias      A  encoder/layers/attention/value/bias     =
encoder.layer.*.attention.attn.o.weight    EA encoder/layers/attention/output/kernel  T
encoder.layer.*.attention.attn.o.bias      E  encoder/layers/attention/output/bias    =
encoder.layer.*.attention.LayerNorm.weight E  encoder/layers/attention_norm/scale     =
encoder.layer.*.attention.LayerNorm.bias   E  encoder/layers/attention_norm/bias      =
encoder.layer.*.intermediate.dense.weight  FE encoder/layers/feed_forward/up/kernel   T
encoder.layer.*.intermediate.dense.bias    F  encoder/layers/feed_forward/up/bias     =
encoder.layer.*.output.dense.weight        EF encoder/layers/feed_forward/down/kernel T
encoder.layer.*.output.dense.bias          E  encoder/layers/feed_forward/down/bias   =
encoder.layer.*.output.LayerNorm.weight    E  encoder/layers/feed_forward_norm/scale  =
encoder.layer.*.output.LayerNorm.bias      E  encoder/layers/feed_forward_norm/bias   =
encoder.relative_attention_bias.weight     RH relative_bias/embedding                 =
"""
MPNET = family(
    "MPNet",
    "mpnet",
    EMBEDDINGS,
    _MPNET_ROWS,
    POOLER,
    LM_HEAD,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    QUESTIONS,
    sizes=SIZES
    | {"W": "hidden_size", "R": "relative_attention_num_buckets", "H": "num_attention_heads"},
    chosen=for_its_head,
    **tied_decoder("lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias"),
)


_ESM_ROWS = """
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
_ESM_LAYER_BUFFERS = f"encoder.layer.*.attention.self.{FREQUENCIES}"


def _esm_buffers(config: BertConfig) -> dict[str, np.ndarray]:
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
    _ESM_ROWS,
    POOLER,
    LM_HEAD,
    CLASSIFIER,
    DENSE_CLASSIFIER,
    sizes=SIZES | {"W": "hidden_size", "X": "contact_inputs"},
    buffers=frozenset({"embeddings.position_ids", FREQUENCIES, _ESM_LAYER_BUFFERS}),
    constants=_esm_buffers,
    chosen=for_its_head,
    **tied_decoder("lm_head.decoder.weight", "lm_head.bias"),
)


_WORDS, _DECODER = "embeddings.tok_embeddings.weight", "decoder.weight"
# Hugging Face name               shape ours                                 T: transposed
# Queries, keys and values are one tensor on disk, and so are both inner layers of the feed-forward
# layer, the one with the activation first. The first layer has no LayerNorm before attention.
_MODERNBERT_ROWS = table(f"""
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


def _modernbert_idle(config: ModernBertConfig, paths: Iterable[str]) -> Mapping[str, str | None]:
    scores_words = any(path.startswith(("decoder/", "head/")) for path in paths)
    return {_DECODER: _WORDS} if config.tie_word_embeddings and scores_words else {}


MODERNBERT = Family(
    name="ModernBERT",
    rows=_MODERNBERT_ROWS,
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
    idle=_modernbert_idle,
)


ENCODERS: Mapping[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "albert": ALBERT,
    "mpnet": MPNET,
    "esm": ESM,
}
