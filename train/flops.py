# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Operations of an update, and peak operations of a device: the two parts of MFU.

Only matrix multiplications count, as in the literature (Chowdhery et al. 2022, appendix B): a
recomputed layer counts once, an addition never.
"""

import jax

from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.models.modernbert_config import EncoderConfig, ModernBertConfig

# Dense bfloat16 operations per second of one device as jax.devices() lists them, as their makers
# state them without sparsity. jax lists a TPU v4 or later by chip.
PEAKS = {
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA GH200": 989e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}


def peak_flops() -> float | None:
    """Operations per second of one device of this process; None where nobody states them."""
    kind = jax.devices()[0].device_kind
    names = sorted((name for name in PEAKS if kind.startswith(name)), key=len)
    return PEAKS[names[-1]] if names else None


def bert_flops(config: EncoderConfig, rows: int, length: int, scored: int) -> float:
    """Operations of one update of BERT: three times those of the forward pass."""
    width, inner = config.hidden_size, config.intermediate_size
    if isinstance(config, ModernBertConfig):  # gated: three products in place of two
        inner += inner // 2
    layer = 4 * width * width + 2 * width * inner + 2 * length * width
    head = scored * (width * width + width * config.vocab_size)
    return 6.0 * rows * (length * config.num_hidden_layers * layer + head + width * width)


def decoder_flops(config: GPT2Config | DecoderConfig, rows: int, length: int) -> float:
    """Operations of one update of a decoder, which scores every position."""
    width = config.hidden_size
    projections = 2 * width * (config.query_size + config.key_size)
    feed_forward = (2 + config.gated) * width * config.inner_size
    keys = sum(min(length, window or length) for window in config.windows)
    layers = config.num_hidden_layers * (projections + feed_forward) + 2 * keys * config.query_size
    return 6.0 * rows * length * (layers + width * config.vocab_size)
