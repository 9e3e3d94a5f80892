# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Norms of a model as linear maps: what can be folded into the matrices before and behind them.

LayerNorm is `x C / s * scale + bias`, where C = I - 1 1^T / E takes the mean away and s is the
standard deviation; RMSNorm has no C and no bias. All but the division by s, one positive number for
each position, is linear.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.models.decoder_config import DecoderConfig


class Norm(NamedTuple):
    """Parameters of a norm, in float64.

    Attributes:
        centred: Whether the mean is taken away, as LayerNorm does.
        scale: Factors; of a norm with 1 + parameter, these.
        bias: 0 where there is none.
        epsilon: Added to the variance or the mean square.
    """

    centred: bool
    scale: Float[np.ndarray, " E"]
    bias: Float[np.ndarray, " E"]
    epsilon: float

    def pulled_back(
        self, direction: Float[np.ndarray, "B T E"], x: Float[np.ndarray, "B T E"]
    ) -> Float[np.ndarray, "B T E"]:
        """The direction before the norm of `x` whose product with a vector is that behind it."""
        scaled = direction * self.scale
        if self.centred:
            scaled = scaled - scaled.mean(-1, keepdims=True)
            x = x - x.mean(-1, keepdims=True)
        return scaled / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)

    def applied(self, x: Float[np.ndarray, "*rows E"]) -> Float[np.ndarray, "*rows E"]:
        """The norm of vectors."""
        x = x - x.mean(-1, keepdims=True) if self.centred else x
        normal = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)
        return normal * self.scale + self.bias

    def before(self, matrix: Float[np.ndarray, "*heads E D"]) -> Float[np.ndarray, "*heads E D"]:
        """`C diag(scale) matrix`: a matrix that reads what the norm gives, with the norm in it."""
        scaled = self.scale[:, None] * matrix
        return scaled - scaled.mean(-2, keepdims=True) if self.centred else scaled

    def behind(self, matrix: Float[np.ndarray, "*heads D E"]) -> Float[np.ndarray, "*heads D E"]:
        """`matrix C diag(scale)`: a matrix whose output the norm reads, with the norm in it."""
        moved = matrix - matrix.mean(-1, keepdims=True) if self.centred else matrix
        return moved * self.scale


def norm_of(config: Any, params: Any) -> Norm:
    """A norm of a model."""
    scale = np.asarray(params["scale"], np.float64)
    bias = np.asarray(params["bias"], np.float64) if "bias" in params else np.zeros_like(scale)
    centred = not getattr(config, "root_mean_square", False)
    if isinstance(config, DecoderConfig):
        centred = config.norm == "layer"
        scale = 1 + scale if config.norm == "rms_plus_one" else scale
    names = ("layer_norm_epsilon", "layer_norm_eps", "norm_eps")
    epsilon = next(getattr(config, name) for name in names if hasattr(config, name))
    return Norm(centred, scale, bias, epsilon)
