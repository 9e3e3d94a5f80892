# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The same models as Flax NNX modules, for programs written in NNX.

A thin adapter: the parameters and the arithmetic are those of the Linen modules, and what attention
saw appears in the module's `Intermediate` state.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from flaxattn.models.interventions import Intervention, with_interventions
from flaxattn.trace.trace import Trace


def to_nnx(module: nn.Module, params: Mapping[str, Any]) -> nnx.Module:
    """Wrap a Linen model and its parameters.

    Call it as the Linen module is called; add `mutable=["intermediates"]` to record attention, and
    read it with `pop_trace`.

    Args:
        module: For example `fa.from_pretrained("tiny-bert").module`.
        params: Its parameters.

    Returns:
        An NNX module whose parameters are `nnx.Param`.
    """
    wrapped = nnx.bridge.ToNNX(module, nnx.Rngs(0))
    nnx.bridge.lazy_init(wrapped, jnp.zeros((1, 1), jnp.int32))
    nnx.update(wrapped, jax.tree.map(nnx.Param, dict(params)))
    return wrapped


def pop_trace(module: nnx.Module, **text: Any) -> Trace:
    """Take the attention records out of an NNX module; a second call finds nothing.

    State left on the module would be kept alive, and be seen by the next call as its own.

    Args:
        module: Made by `to_nnx`, called with `mutable=["intermediates"]`.
        **text: Other fields of the trace, such as `tokens`.

    Returns:
        The trace of the last call.

    Raises:
        InputError: If nothing was recorded since the last call.
    """
    state = nnx.pop(module, nnx.Intermediate)
    return Trace.from_variables(nnx.to_pure_dict(state), **text)


def apply_interventions(
    module: nnx.Module,
    interventions: Intervention | Sequence[Intervention],
    *inputs: Any,
    **options: Any,
) -> Any:
    """Run an NNX module that is changed while it runs, with the parameters that it has now.

    Works inside `nnx.jit` and `nnx.grad`; the module itself stays as it is.

    Args:
        module: Made by `to_nnx`.
        interventions: As for `flaxattn.with_interventions`.
        *inputs: As for a call of the module.
        **options: As for `apply` of the Linen module, such as `mutable` and `rngs`.

    Returns:
        The output, as of the Linen module; with `mutable` the collections, too.

    Raises:
        InputError: As `flaxattn.with_interventions`, and for an intervention that does not fit.
    """
    params = nnx.to_pure_dict(nnx.state(module, nnx.Param))
    variables = with_interventions(params, interventions)
    linen: Any = vars(module)["to_nnx__module"]
    return linen.apply(variables, *inputs, **options)
