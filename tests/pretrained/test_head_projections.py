# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Projections of heads: with them and hidden states, NumPy finds what attention recorded."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError

QKV = fa.Capture(query=True, key=True, value=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-bert", "random biases"])
def test_projections_make_the_queries_keys_and_values_of_a_trace(name: str) -> None:
    model = fa.from_pretrained("tiny-bert")
    if name == "random biases":
        import dataclasses

        import jax

        rng = np.random.default_rng(0)
        params = jax.tree.map(
            lambda a: a + rng.normal(0, 0.3, a.shape).astype(a.dtype), model.params
        )
        model = dataclasses.replace(model, params=params)
    encoded = model.tokenizer.encode(["The king gave his son a horse."], max_length=16)
    # One program gives both: another program rounds the hidden states differently.
    module = model.module.clone(capture=QKV, keep_hidden=True)
    variables = {"params": model.params}
    out, state = module.apply(variables, encoded.input_ids, mutable=["intermediates"])
    record = fa.Trace.from_variables(state).encoder
    projections = fa.head_projections(model)["encoder"]
    for layer, state in enumerate(out.hidden_states[:-1]):
        x = np.asarray(state, np.float64)[0]
        for kind in ("query", "key", "value"):
            kernel, bias = (getattr(projections, name) for name in (kind, f"{kind}_bias"))
            expected = np.einsum("se,hed->shd", x, kernel[layer]) + bias[layer]
            recorded = np.asarray(getattr(record, kind))[layer, 0]
            np.testing.assert_allclose(recorded, expected, rtol=0, atol=2e-5 * abs(expected).max())


def test_a_model_is_requested_by_name() -> None:
    with pytest.raises(InputError, match="head_projections cannot use this model"):
        fa.head_projections("tiny-bert")
