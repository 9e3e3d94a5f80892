# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters in the dtype that was requested, on one device or many, in the memory they need."""

import dataclasses
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jax.sharding import AxisType

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.measures.specs import ScoreSpec
from flaxattn.models.parameter_shardings import parameter_sharding
from flaxattn.pretrained.from_pretrained import untrained
from flaxattn.trace import tensor_file

FAMILIES = ("bert", "gpt2", "seq2seq", "rnn")
TEXTS = ["the cat is very sad , .", "a b c"]
MB = 10**6


@pytest.fixture(autouse=True)
def usual_promotion() -> Iterator[None]:
    """As users have it: norms multiply float32 with a scale of the parameters' dtype."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A saved model of each family."""
    found = {}
    for name in FAMILIES:
        found[name] = tmp_path_factory.mktemp(name) / "model"
        request.getfixturevalue(name).save_pretrained(found[name])
    return found


def load(*given: Any, **options: Any) -> Any:
    return fa.from_pretrained(*given, **options)


def leaves_of(model: fa.Pretrained) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(model.params)[0]
    return {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in leaves}


def arguments(family: str) -> dict[str, np.ndarray]:
    ids = np.arange(12, dtype=np.int32).reshape(2, 6) % 8 + 3
    target = {"decoder_input_ids": ids[:, :4]} if family in ("seq2seq", "rnn") else {}
    return {"input_ids": ids, **target}


def spread(folder: Path, count: int) -> None:
    """Spread the tensors of a directory over several files, one tensor after the other."""
    files = tensor_file.TensorFiles(folder)
    placed = {
        name: f"model-{number % count + 1:05}-of-{count:05}.safetensors"
        for number, name in enumerate(sorted(files.shapes))
    }
    for file in sorted(set(placed.values())):
        some = {name: files.read(name) for name, own in placed.items() if own == file}
        safetensors.numpy.save_file(some, folder / file)
    (folder / tensor_file.SINGLE).unlink()
    (folder / tensor_file.INDEX).write_text(json.dumps({"weight_map": placed}))


@pytest.mark.slow
@pytest.mark.few("bert-bfloat16")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_have_the_dtype_that_was_requested(
    folders: dict[str, Path], family: str, dtype: str
) -> None:
    whole = load(folders[family])
    half = load(folders[family], dtype=dtype)
    expected = leaves_of(whole)
    assert {leaf.dtype.name for leaf in expected.values()} == {"float32"}
    for path, leaf in leaves_of(half).items():
        assert leaf.dtype == jnp.dtype(dtype)
        rounded = np.asarray(expected[path]).astype(jnp.dtype(dtype))
        assert np.asarray(leaf).tobytes() == rounded.tobytes(), path
    near, far = (
        np.asarray(model(**arguments(family)).last_hidden_state, np.float32)
        for model in (half, whole)
    )
    assert half(**arguments(family)).last_hidden_state.dtype == jnp.dtype(dtype)
    assert np.abs(near - far).mean() < 0.1 * np.abs(far).mean()


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_comes_back_bit_by_bit(
    folders: dict[str, Path], family: str, tmp_path: Path
) -> None:
    half = load(folders[family], dtype="bfloat16")
    half.save_pretrained(tmp_path / "half")
    assert json.loads((tmp_path / "half/config.json").read_text())["dtype"] == "bfloat16"
    spread(tmp_path / "half", 3)
    again = load(tmp_path / "half", dtype="bfloat16")
    found = leaves_of(again)
    for path, leaf in leaves_of(half).items():
        assert np.asarray(found[path]).tobytes() == np.asarray(leaf).tobytes(), path
    again.save_pretrained(tmp_path / "again")
    half.save_pretrained(tmp_path / "one")
    name = tensor_file.SINGLE
    assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_norms_compute_in_float32(folders: dict[str, Path]) -> None:
    half = load(folders["bert"], dtype="bfloat16")
    run = jax.jit(lambda p, ids: half.module.apply({"params": p}, ids).last_hidden_state)
    program = run.lower(half.params, jnp.ones((1, 8), jnp.int32)).as_text()
    roots = re.findall(r"stablehlo.rsqrt .*: tensor<.*x(\w+)>", program)
    assert roots and set(roots) == {"f32"}


@pytest.mark.slow
def test_what_half_precision_runs(folders: dict[str, Path]) -> None:
    bert = load(folders["bert"], dtype="bfloat16")
    trace = bert.trace(TEXTS)
    np.testing.assert_allclose(np.asarray(trace.encoder.weights).sum(-1)[:, 0], 1, atol=2e-2)
    assert bert.prune([(0, 1)]).trace(TEXTS).encoder.weights.shape == trace.encoder.weights.shape
    assert {leaf.dtype.name for leaf in jax.tree.leaves(bert.prune([(0, 1)]).params)} == {
        "bfloat16"
    }
    assert np.isfinite(fa.embed(bert, TEXTS)).all()
    spec = ScoreSpec("mean", "next")
    assert np.isfinite(fa.measure(bert, ["mean next"], TEXTS)[spec].mean).all()
    for maps in fa.attention_norms(bert, TEXTS).values():
        assert all(np.isfinite(one).all() for one in maps)
    gpt2 = load(folders["gpt2"], dtype="bfloat16", head="GPT2LMHeadModel")
    assert len(gpt2.generate(TEXTS, max_new_tokens=4)) == 2
    assert untrained(bert).params is not bert.params


def test_a_new_head_has_the_dtype_too(folders: dict[str, Path]) -> None:
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = load(folders["bert"], "BertForSequenceClassification", "bfloat16", mesh=mesh_of(8))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(model.params)} == {"bfloat16"}
    assert len(model.params["classifier"]["kernel"].sharding.device_set) == 8


def test_numbers_beyond_float16_are_refused(folders: dict[str, Path], bert: Any) -> None:
    params = jax.tree.map(np.array, bert.params)
    params["embeddings"]["word"]["embedding"][2, 1] = 1e5
    folder = folders["bert"].parent / "large"
    dataclasses.replace(bert, params=params).save_pretrained(folder)
    with pytest.raises(InputError) as caught:
        load(folder, dtype="float16")
    assert str(caught.value).splitlines() == [
        "embeddings.word_embeddings.weight has values too large for float16: up to 1e+05.",
        "Choose bfloat16 or float32.",
    ]
    load(folder, dtype="bfloat16")


def mesh_of(data: int, model: int = 1, **options: Any) -> jax.sharding.Mesh:
    return jax.make_mesh((data, model), ("data", "model"), **options)


@pytest.mark.slow
@pytest.mark.few("bert-shape0")
@pytest.mark.parametrize("shape", [(8, 1), (4, 2), (1, 8)])
@pytest.mark.parametrize("family", FAMILIES)
def test_on_a_mesh_every_device_holds_its_part(
    folders: dict[str, Path], family: str, shape: tuple[int, int]
) -> None:
    alone = load(folders[family])
    placed = load(folders[family], mesh=mesh_of(*shape))
    expected = leaves_of(alone)
    cut = 0
    for path, leaf in leaves_of(placed).items():
        assert np.array_equal(leaf, expected[path]), path
        own = parameter_sharding(path, leaf.shape, leaf.sharding.mesh)
        assert leaf.sharding.is_equivalent_to(own, leaf.ndim), path
        cut += any(shard.data.size < leaf.size for shard in leaf.addressable_shards)
    assert cut > 4 or family == "rnn"  # whose sizes no mesh here divides
    one, other = (model(**arguments(family), output_attentions=True) for model in (alone, placed))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), one, other)


@pytest.mark.slow
def test_a_mesh_of_one_axis_or_explicit_axes_serves(folders: dict[str, Path]) -> None:
    expected = load(folders["gpt2"]).trace(TEXTS).decoder.weights
    for mesh in (
        jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,)),
        mesh_of(2, 2, axis_types=(AxisType.Explicit,) * 2),
    ):
        model = load(folders["gpt2"], mesh=mesh)
        np.testing.assert_allclose(model.trace(TEXTS).decoder.weights, expected, atol=1e-5)


def test_a_mesh_of_other_axes_is_refused(folders: dict[str, Path]) -> None:
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    with pytest.raises(InputError) as caught:
        load(folders["gpt2"], mesh=mesh)
    assert str(caught.value).splitlines() == [
        "mesh: parameters are cut along axes named data and model, this one has x.",
        'Name them so: jax.make_mesh((4, 2), ("data", "model")).',
    ]


def test_pruned_layers_on_a_mesh(bert: Any, tmp_path: Path) -> None:
    bert.prune([(0, 1)]).save_pretrained(tmp_path / "pruned")
    alone = load(tmp_path / "pruned")
    placed = load(tmp_path / "pruned", dtype="float32", mesh=mesh_of(4, 2))
    assert isinstance(placed.params["encoder"]["layers"], tuple)
    expected = leaves_of(alone)
    assert all(np.array_equal(leaf, expected[path]) for path, leaf in leaves_of(placed).items())


@pytest.mark.slow
def test_a_layer_of_its_own_may_be_the_only_one(gpt2: Any, tmp_path: Path) -> None:
    config = dataclasses.replace(gpt2.config, n_layer=1, pruned_heads=((1,),))
    module = gpt2.module.clone(config=config)
    params = jax.jit(module.init)(jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    model = dataclasses.replace(gpt2, module=module, params=params, config=config)
    model.save_pretrained(tmp_path / "one")
    expected = leaves_of(model)
    found = leaves_of(load(tmp_path / "one", head="base"))
    assert "decoder/layers/0/attention/query/kernel" in found
    assert all(np.array_equal(leaf, expected[path]) for path, leaf in found.items())


def test_a_tensor_in_the_wrong_shard_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    load(folders["gpt2"]).save_pretrained(tmp_path / "model")
    spread(tmp_path / "model", 4)
    index = tmp_path / "model" / tensor_file.INDEX
    placed = json.loads(index.read_text())["weight_map"]
    name = next(name for name in placed if name.endswith("ln_f.bias"))
    other = next(file for file in placed.values() if file != placed[name])
    index.write_text(json.dumps({"weight_map": placed | {name: other}}))
    with pytest.raises(CheckpointError, match=rf"lacks 1 tensors that .*: {re.escape(name)}\."):
        load(tmp_path / "model")
    (tmp_path / "model" / other).unlink()
    with pytest.raises(CheckpointError, match=f"names {other}, which is not there"):
        load(tmp_path / "model")


def test_a_file_cut_while_it_is_read_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    load(folders["gpt2"]).save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / tensor_file.SINGLE
    files = tensor_file.TensorFiles(tmp_path / "model")
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(CheckpointError) as caught:
        for name in files.shapes:
            files.read(name)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{path} became shorter while it was read: tensor ")
    assert second == "Copy or download the file again."


def benchmark(repository: Path) -> ModuleType:
    path = repository / "benchmarks" / "model_loading.py"
    spec = importlib.util.spec_from_file_location("model_loading", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_loading_takes_the_memory_of_the_parameters(repository: Path) -> None:
    row = benchmark(repository).run(layers=4, width=768, shards=3, vocabulary=5000)
    assert 60 * MB < row["bytes"] < 80 * MB
    assert row["peak_growth"] <= 1.15 * row["bytes"] + 20 * MB


@pytest.mark.slow
def test_a_billion_parameters_take_their_own_memory(repository: Path) -> None:
    row = benchmark(repository).run(layers=24, width=1792)
    assert row["parameters"] > 10**9
    assert row["peak_growth"] <= 1.15 * row["bytes"]
