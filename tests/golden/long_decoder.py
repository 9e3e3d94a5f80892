# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Statistics of a long text in the first layer of a Llama of 135 M parameters, and their memory.

    PYTHONPATH=tests/golden:tests/fixtures python tests/golden/long_decoder.py 32768

Prints JSON: tokens, bytes of the most memory that the process had, seconds with compilation, and by
how much entropies of the first queries differ from those of weights in float64.
"""

import json
import sys
import time
from typing import Any

import jax
import numpy as np
from peak_memory import highest
from small_decoders import beginning_with_bos

from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

FEW = 1024  # queries whose weights are computed


def one_layer(length: int) -> PretrainedDecoder:
    """SmolLM-135M with one layer, random parameters and a longer context.

    Args:
        length: Of the context.
    """
    config = DecoderConfig(
        model_type="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=1,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=length,
        tie_word_embeddings=True,
    )
    module = DecoderLM(config)
    params = jax.jit(module.init)(jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    attention = params["model"]["decoder"]["layers"]["attention"]
    for name in ("query", "key"):  # so that heads choose
        attention[name]["kernel"] = 8 * attention[name]["kernel"]
    return PretrainedDecoder(module, params, beginning_with_bos(), config, "long")


def measured(length: int) -> dict[str, Any]:
    """Trace a text of as many tokens.

    Args:
        length: Of the text.
    """
    model = one_layer(length)
    letters = np.random.default_rng(0).choice(list("abcdefgh "), 3 * length)
    stats = Capture(stats=("entropy", "max", "argmax", "distance"))
    began = time.monotonic()
    trace = model.trace("".join(letters), capture=stats, truncate=True)
    record = trace.decoder
    assert record is not None and len(trace.tokens[0]) == length
    entropy = np.asarray(record.stats["entropy"], np.float64)[0, 0, :, :FEW]
    seconds, peak = time.monotonic() - began, highest()
    few = one_layer(min(FEW, length)).trace("".join(letters), truncate=True).decoder
    assert few is not None
    weights = np.asarray(few.weights, np.float64)[0, 0]
    exact = -(weights * np.log(np.maximum(weights, 1e-300))).sum(-1)
    return {
        "tokens": length,
        "bytes": peak,
        "seconds": round(seconds, 1),
        "error": float(np.abs(entropy - exact).max()),
        "entropy": round(float(exact.mean()), 2),
    }


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
