# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Operations of an update, and peak operations of a device: the two parts of MFU.

Only matrix multiplications count, as in the literature (Chowdhery et al. 2022, appendix B): a
recomputed layer counts once, an addition never.
"""

import jax

from flaxattn.models.encoder_config import EncoderConfig
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.models.modernbert_config import ModernBertConfig

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
    """Operations of one update of BERT: three times those of the forward pass.

    Args:
        config: shape of the model.
        rows: B, sequences.
        length: S, positions of a sequence, padding included.
        scored: positions of a sequence that get a score for every word; 0 for a classifier.
    """
    width, inner = config.hidden_size, config.intermediate_size
    if isinstance(config, ModernBertConfig):  # gated: three products in place of two
        inner += inner // 2
    layers = config.num_hidden_layers * _layer(width, inner, length)
    head = scored * (width * width + width * config.vocab_size)
    return 6.0 * rows * (length * layers + head + width * width)


def gpt2_flops(config: GPT2Config, rows: int, length: int) -> float:
    """Operations of one update of GPT-2, which scores every position.

    Args:
        config: shape of the model.
        rows: B.
        length: S; attention counts as if it looked ahead too, as in the literature.
    """
    layers = config.n_layer * _layer(config.n_embd, config.inner_size, length)
    return 6.0 * rows * length * (layers + config.n_embd * config.vocab_size)


def _layer(width: int, inner: int, length: int) -> int:
    """Multiplications of a position in a layer."""
    return 4 * width * width + 2 * width * inner + 2 * length * width
