# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Projections of heads: with them and hidden states, NumPy finds what attention recorded."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError

ASKED = fa.Capture(query=True, key=True, value=True)


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
    states = model(encoded.input_ids, output_hidden_states=True).hidden_states
    seen = model.trace("The king gave his son a horse.", capture=ASKED).encoder
    projections = fa.head_projections(model)["encoder"]
    for layer, state in enumerate(states[:-1]):
        x = np.asarray(state, np.float64)[0]
        for kind in ("query", "key", "value"):
            kernel, bias = (getattr(projections, name) for name in (kind, f"{kind}_bias"))
            expected = np.einsum("se,hed->shd", x, kernel[layer]) + bias[layer]
            recorded = np.asarray(getattr(seen, kind))[layer, 0]
            np.testing.assert_allclose(recorded, expected, rtol=0, atol=2e-5 * abs(expected).max())


def test_a_model_is_asked_for_by_name() -> None:
    with pytest.raises(InputError, match="head_projections cannot use this model"):
        fa.head_projections("tiny-bert")
