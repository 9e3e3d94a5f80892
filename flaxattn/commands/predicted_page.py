# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Next-token probabilities on the pages of `flaxattn view` and `flaxattn generate --view`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.trace.trace import Trace

ALTERNATIVES = 5
"""Number of likeliest tokens that a page names after each token."""


def requested_predictions(model: "Pretrained") -> dict[str, Any]:
    """Return the options of a traced pass that request predictions, where the model has them."""
    if not model.writes:
        return {}
    return {"predictions": min(ALTERNATIVES, model.target_size)}


def with_contributions(model: "Pretrained", trace: "Trace") -> "Trace":
    """The trace with contributions to the logits, where the model is a decoder by itself."""
    from flaxattn.attribution.logit_contributions import logit_contributions
    from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

    if trace.predictions is None or not isinstance(model, PretrainedDecoder):
        return trace
    return logit_contributions(model, trace)
