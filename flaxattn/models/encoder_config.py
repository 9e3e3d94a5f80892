# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations of encoders: of every model that `PretrainedBert` serves."""

from flaxattn.models.bert_config import BertConfig
from flaxattn.models.modernbert_config import ModernBertConfig

EncoderConfig = BertConfig | ModernBertConfig
