# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Interventions in every family: what must change nothing, and what must give the clean run.

One compiled program of each family replaces every site; `where` says which ones in a run of it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import make_family_golden as golden
import numpy as np
import pytest
from intervention_models import around_one
from small_models import drawn

import flaxattn as fa
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder import CausalDecoder
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.interventions import SITES, Intervention, site_values, with_interventions
from flaxattn.trace.trace import Trace

pytestmark = pytest.mark.few("many-heads-left")
# XLM-RoBERTa and CamemBERT are RoBERTa, mT5 is Flan-T5; GPT-2 and Marian have tests with NumPy.
STORED = {
    "bert": "many-heads-left",
    "encoders": "roberta distilbert electra albert mpnet esm2",
    "decoders": "llama-left mistral neox neox-serial qwen2 qwen3-left gemma gemma2 gemma3 phi3 "
    "smollm3 olmo2 starcoder2",
    "marian": "bart",
    "modernbert": "base-left",
    "t5": "t5 flan umt5 t5-encoder",
}
FAMILIES = [(family, name) for family, names in STORED.items() for name in names.split()]
FAMILIES += [("random", "sinks")]
MAPS = ("scores", "weights")
NOT_OF_CROSS = ("layer_input", "feed_forward_output", "layer_output")
# Arguments that mask the heads of a side.
MASKS_OF_HEADS = {"decoder": "decoder_head_mask", "cross": "cross_attn_head_mask"}
Values = Mapping[tuple[str, str], np.ndarray]


class Model(NamedTuple):
    """A model, with a text, another of the same lengths, and what it computes on either.

    Values are by side and site, with a leading axis L.
    """

    module: Any
    params: Any
    given: dict[str, np.ndarray]
    other: dict[str, np.ndarray]
    replaced: Callable[..., np.ndarray]
    values: Values
    other_values: Values

    def plain(self, **changes: Any) -> np.ndarray:
        """Output without interventions."""
        given = self.given | changes
        out = jax.jit(self.module.apply)({"params": self.params}, **given)
        return np.asarray(out.last_hidden_state)

    def of_site(self, side: str, site: str, layers: Any = slice(None)) -> dict[Any, np.ndarray]:
        """A switch that replaces one site in some layers."""
        switch = np.zeros(len(self.values[side, site]), bool)
        switch[layers] = True
        return {(side, site): switch}

    @property
    def sides(self) -> list[str]:
        return sorted({side for side, _ in self.values})


@pytest.fixture(scope="module", params=FAMILIES, ids=["-".join(case) for case in FAMILIES])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    if request.param[0] == "random":
        module, params, given = with_sinks()
    else:
        module, params, given = stored(*request.param, tmp_path_factory.mktemp("model"))
    rng = np.random.default_rng(0)

    def changed(name: str, ids: np.ndarray) -> np.ndarray:
        if not name.endswith("input_ids"):
            return ids
        mask = given[name.replace("input_ids", "attention_mask")] == 1
        return np.where(mask & (ids > 4), rng.integers(5, 50, ids.shape), ids)

    other = {name: changed(name, ids) for name, ids in given.items()}
    record = jax.jit(lambda given: recorded(module, params, given))
    values, other_values = record(given), record(other)

    @jax.jit
    def replaced(given: Any, switches: Any, values: Any) -> Any:
        edits = [
            Intervention(
                site,
                values[side, site],
                side=side,
                where=switch.reshape(-1, *(1,) * (values[side, site].ndim - 2 + (site in MAPS))),
            )
            for (side, site), switch in switches.items()
        ]
        return module.apply(with_interventions(params, edits), **given).last_hidden_state

    off = {place: np.zeros(len(array), bool) for place, array in values.items()}
    return Model(
        module,
        params,
        given,
        other,
        lambda given, switches, by=values: np.asarray(replaced(given, off | switches, by)),
        values,
        other_values,
    )


def stored(family: str, name: str, folder: Path) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """A model whose numbers torch has checked, of two short texts."""
    case = golden.read(family)[name]
    loaded = fa.from_pretrained(case.write(folder / "model"))
    return loaded.module, loaded.params, case.inputs()


def with_sinks() -> tuple[Any, Any, dict[str, np.ndarray]]:
    """A model that no stored case has: sinks beside windows."""
    ids = np.random.default_rng(1).integers(5, 50, (2, 7)).astype(np.int32)
    given = {"input_ids": ids, "attention_mask": np.array([[1] * 7, [1] * 5 + [0] * 2], np.int32)}
    sizes = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, sinks=True, sliding_window=3)
    kinds = ("sliding_attention", "full_attention")
    module = CausalDecoder(DecoderConfig("mistral", 50, **sizes, **heads, layer_types=kinds))
    params = jax.tree_util.tree_map_with_path(around_one, drawn(module, *given.values()))
    return module, params, given


def recorded(module: Any, params: Any, given: Any) -> Values:
    """All that a run without changes computes, by side and site."""
    sides = ["encoder", "decoder", "cross"]
    tree = params.get("model", params)
    stacks = [side for side in sides if side in tree or side in tree.get("bert", {})]
    sides = sides if len(stacks) == 2 else stacks
    edits = [
        Intervention(site, operation="record", side=side)
        for side in sides
        for site in SITES
        if site not in MAPS and not (side == "cross" and site in NOT_OF_CROSS)
    ]
    asking = module.clone(capture=Capture(weights=True, scores=True))
    _, state = asking.apply(
        with_interventions(params, edits), **given, mutable=["sites", "intermediates"]
    )
    values = {
        (side, site): array
        for side, sites in site_values(state).items()
        for site, array in sites.items()
    }
    trace = Trace.from_variables(state)
    for side in sides:
        record = getattr(trace, side)
        values |= {(side, "scores"): record.scores, (side, "weights"): record.weights}
    return values


def close(array: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(array, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def far(array: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(array - other).max() > 1e-3 * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.few("many-heads-left")
def test_all_sites_are_recorded(model: Model) -> None:
    expected = [
        (side, site)
        for side in model.sides
        for site in SITES
        if not (side == "cross" and site in NOT_OF_CROSS)
    ]
    assert sorted(model.values) == sorted(expected)


@pytest.mark.slow
def test_no_intervention_is_the_plain_model_bit_by_bit(model: Model) -> None:
    variables = with_interventions(model.params, [])
    out = jax.jit(model.module.apply)(variables, **model.given)
    np.testing.assert_array_equal(out.last_hidden_state, model.plain())


@pytest.mark.slow
def test_recording_changes_no_bit(model: Model) -> None:
    edits = [Intervention("head_output", operation="record", side=side) for side in model.sides]
    variables = with_interventions(model.params, edits)
    out = jax.jit(model.module.apply)(variables, **model.given)
    np.testing.assert_array_equal(out.last_hidden_state, model.plain())


@pytest.mark.slow
def test_its_own_values_change_nothing(model: Model) -> None:
    """At each site by itself, and at all of them."""
    plain, every = model.plain(), {}
    for place in model.values:
        close(model.replaced(model.given, model.of_site(*place)), plain)
        every |= model.of_site(*place)
    close(model.replaced(model.given, every), plain)


def test_values_of_another_text_change_the_output_at_every_site(model: Model) -> None:
    plain = model.plain()
    for place in model.values:
        patched = model.replaced(model.given, model.of_site(*place), model.other_values)
        assert far(patched, plain), place


def test_the_values_of_the_clean_run_give_the_clean_output(model: Model) -> None:
    """Inputs of all layers, or of the first with all that is added to the residual stream."""
    plain = model.plain()
    assert far(model.plain(**model.other), plain)
    inputs, added = {}, {}
    for side in model.sides:
        added |= model.of_site(side, "head_output")
        if side != "cross":
            inputs |= model.of_site(side, "layer_input")
            added |= model.of_site(side, "layer_input", 0)
            added |= model.of_site(side, "feed_forward_output")
    for switches in (inputs, added):
        close(model.replaced(model.other, switches), plain)


@pytest.mark.slow
def test_a_head_of_zeros_is_a_masked_head(model: Model) -> None:
    for side in model.sides:
        layers, _, _, heads, _ = model.values[side, "head_output"].shape
        name = MASKS_OF_HEADS.get(side, "head_mask") if len(model.sides) > 1 else "head_mask"
        mask = np.ones((layers, heads), np.float32)
        mask[0, 1] = mask[layers - 1, heads - 1] = 0
        zeros = {place: np.zeros_like(array) for place, array in model.values.items()}
        edit = Intervention(
            "head_output", zeros[side, "head_output"], where=(mask == 0)[:, None, None], side=side
        )
        variables = with_interventions(model.params, edit)
        out = jax.jit(model.module.apply)(variables, **model.given)
        masked = model.plain(**{name: mask})
        close(np.asarray(out.last_hidden_state), masked)
        assert far(masked, model.plain())


@pytest.mark.slow
def test_scores_of_minus_infinity_are_a_mask(model: Model) -> None:
    """A key that no query sees; ESM scales embeddings by the mask, too, and is left out."""
    if getattr(model.module.config, "model_type", None) == "esm":
        return
    key = int(np.flatnonzero(model.given["attention_mask"].all(0))[1])
    edits = [
        Intervention("scores", -np.inf, where=np.arange(array.shape[-1]) == key, side=side)
        for (side, site), array in model.values.items()
        if site == "scores" and (side != "decoder" or len(model.sides) == 1)
    ]
    mask = np.array(model.given["attention_mask"])
    mask[:, key] = 0
    masked = model.plain(attention_mask=mask)
    out = jax.jit(model.module.apply)(with_interventions(model.params, edits), **model.given)
    close(np.asarray(out.last_hidden_state), masked)
    assert far(masked, model.plain())
