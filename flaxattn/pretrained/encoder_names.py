# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The table of names of every encoder that is a BERT by configuration, by model type."""

from collections.abc import Mapping

from flaxattn.pretrained.albert_names import ALBERT
from flaxattn.pretrained.bert_names import BERT
from flaxattn.pretrained.distilbert_names import DISTILBERT
from flaxattn.pretrained.electra_names import ELECTRA
from flaxattn.pretrained.esm_names import ESM
from flaxattn.pretrained.mpnet_names import MPNET
from flaxattn.pretrained.name_tables import Family
from flaxattn.pretrained.roberta_names import ROBERTA

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
