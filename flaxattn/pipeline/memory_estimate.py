# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that a job will take, as its command says before it begins.

A job knows the sizes of its own arrays; here are added the process as it is, and the compiler.
"""

import resource
import sys
from collections.abc import Mapping
from typing import Any

import jax

from flaxattn.files import readable_size
from flaxattn.kernels.contract import Capture
from flaxattn.models.rnn_config import EncoderDecoderConfig
from flaxattn.pipeline.text_sizes import TextSize, raw_bytes, sides
from flaxattn.pretrained.pretrained_model import Pretrained

# Programs of a job and the compiler, while it works: 350 to 550 MB for the built-in models.
_PROGRAMS = 450_000_000
# Requests whose traces are estimated.
TRACES: Mapping[str, Capture] = {
    "trace of the longest text with weights": Capture(weights=True),
    "trace of the longest text with statistics": Capture(stats=("lse", "entropy", "max", "argmax")),
}
_STATES = 8  # arrays as wide as the hidden states or the feed-forward layer, while a block runs
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of what getrusage counts


def memory_needed(arrays: int) -> int:
    """Bytes that this process will take at most, within about half as much again."""
    present = _UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return present + _PROGRAMS + arrays


def memory_sentence(arrays: int) -> str:
    """Say how much memory a job needs."""
    return f"about {readable_size(memory_needed(arrays))} of memory"


def parameter_bytes(params: Any) -> int:
    """Bytes of parameters, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))


def model_memory(model: Pretrained) -> dict[str, int]:
    """Bytes of the arrays of a model: its parameters, and with them each of `TRACES`.

    A trace is of one text as long as the model takes, and of a target as long. It is held twice for
    a moment, when the padding is cut off.
    """
    parameters, config = parameter_bytes(model.params), model.config
    target = isinstance(config, EncoderDecoderConfig) and config.decoder_layers > 0
    size = TextSize(model.limit, model.limit if target else 0, 0, 0, model.limit)
    states = _STATES * 4 * config.hidden_size * model.limit
    found = {"parameters": parameters}
    for name, capture in TRACES.items():
        found[name] = parameters + states + 2 * raw_bytes(capture, sides(config), size)
    return found
