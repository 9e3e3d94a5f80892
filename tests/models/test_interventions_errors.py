# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Interventions that a model cannot run: each is refused, in words that say what would fit."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from intervention_models import IDS, MASK, Tiny, tiny

from flaxattn.errors import InputError
from flaxattn.models.interventions import Intervention, site_values, with_interventions


def refused(function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    assert len(message.splitlines()) <= 3
    return message


def run(model: Tiny, *interventions: Intervention, **options: Any) -> Any:
    variables = with_interventions(model.params, interventions)
    return model.module.apply(variables, *model.given(), **options)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"site": "heads"},
            "There is no site 'heads' to intervene at.\nSites are layer_input, query, key, value, "
            "scores, weights, head_output, attention_output, feed_forward_output, layer_output.",
        ),
        (
            {"site": "layer_input", "heads": (1, 2)},
            "layer_input has no heads, received heads [1, 2].\n"
            "Leave heads out, or intervene at head_output.",
        ),
        (
            {"site": "query", "operation": "divide"},
            "There is no operation 'divide'.\n"
            "Give replace, add, multiply, record or a function of the array.",
        ),
        (
            {"site": "query", "side": "left"},
            "There is no side 'left'.\nSides are encoder, decoder, cross.",
        ),
        (
            {"site": "weights", "operation": "record"},
            "weights are recorded by a capture request, not by an intervention.\n"
            "Give the module capture=Capture(weights=True).",
        ),
        *(
            (
                {"site": "query", "operation": "record", **choice},
                "query is recorded of all layers, heads and positions.\n"
                "Leave layers, heads and positions out, and choose among the values.",
            )
            for choice in ({"layers": 0}, {"heads": 0}, {"positions": 0})
        ),
        *(
            (
                {"site": "query", name: numbers},
                f"{name} are {numbers!r}, expected numbers from 0 on.\n"
                "Leave them out for all of them.",
            )
            for name, numbers in (
                ("layers", (-1,)),
                ("layers", ()),
                ("heads", "01"),
                ("heads", 1.5),
                ("positions", (0, 1.0)),
                ("positions", True),
            )
        ),
    ],
)
def test_what_is_no_intervention(fields: dict[str, Any], message: str) -> None:
    assert refused(Intervention, **fields) == message


def test_numbers_are_whole_and_each_once() -> None:
    edit = Intervention("query", layers=np.int64(2), heads=np.array([3, 0, 3]), positions=range(2))
    assert (edit.layers, edit.heads, edit.positions) == ((2,), (3, 0), (0, 1))


@pytest.mark.parametrize(
    ("family", "edit", "message"),
    [
        (
            "gpt2",
            Intervention("query", layers=(0, 3)),
            "An intervention at query names layer 3; the model has layers 0 to 2.\n"
            "Layers are counted from 0.",
        ),
        (
            "gpt2",
            Intervention("query", heads=(4,)),
            "An intervention at query names heads 4; there are heads 0 to 3.\n"
            "Heads are counted from 0.",
        ),
        (
            "llama",
            Intervention("key", heads=(9, 0)),
            "An intervention at key names heads 9; there are heads 0 to 3.\n"
            "Heads are counted from 0.",
        ),
        (
            "bert",
            Intervention("layer_output", positions=(6, 0), layers=(1,)),
            "An intervention at layer_output names positions 6; there are positions 0 to 5.\n"
            "Positions are counted from 0.",
        ),
        (
            "bert",
            Intervention("weights", positions=6),
            "An intervention at weights names positions 6; there are positions 0 to 5.\n"
            "Positions are counted from 0.",
        ),
        (
            "gpt2",
            Intervention("query", np.zeros((2, 2, 6, 4, 4))),
            "The value at query has 2 layers, received for layers [0, 1, 2].\n"
            "Give it a leading axis of 3, or of 1.",
        ),
        (
            "gpt2",
            Intervention("query", layers=(0, 2), where=np.ones((3, 1, 1, 4), bool)),
            "The where at query has 3 layers, received for layers [0, 2].\n"
            "Give it a leading axis of 2, or of 1.",
        ),
        (
            "gpt2",
            Intervention("head_output", np.zeros((3, 2, 6, 4, 5))),
            "The value at head_output has shape [2, 6, 4, 5] in one layer, expected one that "
            "broadcasts to [B, S, H, D] = [2, 6, 4, 4].\n"
            "Every axis is that long or 1; a further one at the front is that of the layers.",
        ),
        (
            "gpt2",
            Intervention("layer_input", np.zeros((3, 1, 2, 6, 16))),
            "The value at layer_input has shape [1, 2, 6, 16] in one layer, expected one that "
            "broadcasts to [B, S, E] = [2, 6, 16].\n"
            "Every axis is that long or 1; a further one at the front is that of the layers.",
        ),
        (
            "gpt2",
            Intervention("scores", where=np.ones((6, 5), bool)),
            "The where at scores has shape [6, 5] in one layer, expected one that "
            "broadcasts to [B, H, Q, K] = [2, 4, 6, 6].\n"
            "Every axis is that long or 1; a further one at the front is that of the layers.",
        ),
        (
            "gpt2",
            Intervention("layer_input", where=np.ones((3, 6), bool)),
            "The where at layer_input has shape [3, 6] in one layer, expected one that "
            "broadcasts to [B, S] = [2, 6].\n"
            "Every axis is that long or 1; a further one at the front is that of the layers.",
        ),
        (
            "gpt2",
            Intervention("value", None),
            "An intervention at value has no value to replace by.\n"
            "Give value= a number or an array.",
        ),
        (
            "gpt2",
            Intervention("value", operation=lambda x: x[0]),
            "The function at value returned shape [6, 4, 4], expected [B, S, H, D] = [2, 6, 4, 4]."
            "\nReturn an array of the shape that it receives.",
        ),
        (
            "gpt2",
            Intervention("query", side="encoder"),
            "The model has the side decoder; the intervention at query names encoder.\nGive side=.",
        ),
        (
            "marian",
            Intervention("query"),
            "The model has the sides encoder, decoder, cross; the intervention at query names none."
            "\nGive side=.",
        ),
        *(
            (
                "marian",
                Intervention(site, side="cross"),
                f"{site} belongs to a layer of the decoder, received side cross.\n"
                "Give side='decoder'.",
            )
            for site in ("layer_input", "layer_output", "feed_forward_output")
        ),
    ],
)
def test_what_does_not_fit_the_model(family: str, edit: Intervention, message: str) -> None:
    assert refused(run, tiny(family), edit) == message


def test_a_value_of_more_texts_than_there_are_is_refused() -> None:
    """Broadcasting would make a batch of one a batch of three."""
    model = tiny("gpt2")
    edit = Intervention("layer_output", np.zeros((3, 1, 1)))
    variables = with_interventions(model.params, edit)
    message = refused(model.module.apply, variables, IDS[:1], MASK[:1])
    assert "broadcasts to [B, S, E] = [1, 6, 16]" in message


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(6, 3, 4), (6, 5, 4)])
def test_a_value_counts_pruned_heads(shape: tuple[int, ...]) -> None:
    """That of the heads that are left would be NaN for the last ones."""
    module = tiny("gpt2").module
    module = module.clone(
        config=dataclasses.replace(module.config, pruned_heads=((1,), (1,), (1,)))
    )
    params = module.init(np.array([0, 1], np.uint32), IDS)["params"]
    edit = Intervention("head_output", np.zeros(shape))
    message = refused(module.apply, with_interventions(params, edit), IDS)
    assert "[B, S, H, D] = [2, 6, 4, 4]" in message
    edit = Intervention("head_output", heads=(4,))
    message = refused(module.apply, with_interventions(params, edit), IDS)
    assert "names heads 4; there are heads 0 to 3" in message


@pytest.mark.few("edit0", "edit3")
@pytest.mark.parametrize(
    "edit",
    [
        Intervention("query", positions=(1,)),
        Intervention("query", np.zeros((6, 1, 1))),
        Intervention("layer_input", np.zeros((6, 1))),
        Intervention("layer_input", where=np.ones(6, bool)),
        Intervention("query", where=np.ones((3, 1, 6, 1), bool)),
        Intervention("weights", 0.5, operation="multiply"),
    ],
)
def test_positions_with_a_cache(edit: Intervention) -> None:
    model = tiny("gpt2")
    module = model.module.clone(cache_length=8)
    variables = with_interventions(model.params, edit)
    assert refused(module.apply, variables, IDS, mutable=["cache"]) == (
        f"An intervention at {edit.site} depends on positions, which a model with a cache counts "
        "anew at each call.\nLeave positions out, or run without a cache."
    )
    module.apply(variables, IDS)


@pytest.mark.slow
@pytest.mark.few("0")
@pytest.mark.parametrize(
    "edit",
    [
        Intervention("query", np.zeros((2, 1, 4, 4))),
        Intervention("layer_input", np.zeros((3, 1, 1, 16))),
        Intervention("layer_input", where=np.ones((2, 1), bool)),
        Intervention("query", where=np.ones((2, 1, 4), bool)),
    ],
)
def test_what_is_alike_at_all_positions_runs_with_a_cache(edit: Intervention) -> None:
    module = tiny("gpt2").module.clone(cache_length=8)
    module.apply(with_interventions(tiny("gpt2").params, edit), IDS, mutable=["cache"])


def test_a_recurrent_model_has_no_sites(rnn: Any) -> None:
    assert refused(with_interventions, rnn.params, Intervention("layer_input")) == (
        "The parameters have no stack of attention layers to intervene in.\n"
        "Give those of a model with multi-head attention; recurrent models have none."
    )


def test_what_is_passed_as_interventions() -> None:
    params = tiny("gpt2").params
    assert refused(with_interventions, params, [Intervention("query"), "key"]) == (
        "Interventions are of type Intervention, received str.\n"
        'Make one with fa.Intervention("head_output", 0.0, layers=(1,)).'
    )
    assert "received int" in refused(with_interventions, params, 5)


def test_no_sites_were_recorded() -> None:
    message = "No values of sites were recorded.\nRun the model with mutable=['sites'] and an "
    message += 'intervention whose operation is "record".'
    assert refused(site_values, {}) == message
