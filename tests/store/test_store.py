# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is written to a store is read from it bit by bit, also by plain zarr and pyarrow."""

import dataclasses
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import store_cases as cases
import zarr

import flaxattn as fa
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, StoreError
from flaxattn.store.commit_shards import write_shard
from flaxattn.trace.trace import Trace


@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_a_trace_comes_back_bit_by_bit(tmp_path: Path, kind: str, dtype: str) -> None:
    if kind == "projections" and dtype == "uint8":
        dtype = "float16"
    texts = cases.traces(kind, 7, dtype)
    store = fa.open_store(cases.write(tmp_path / "store", texts))
    assert len(store) == 7 and store.complete and store.examples == list(range(7))
    for text, read in zip(texts, store, strict=True):
        cases.same(text, read)
    for example in (6, 0, -1):
        cases.same(texts[example], store[example])


def test_the_scale_of_scores_is_kept_and_may_be_unknown(tmp_path: Path) -> None:
    plain = cases.traces("projections", 2)
    scaled = [
        dataclasses.replace(text, encoder=dataclasses.replace(text.encoder, scale=0.3))
        for text in plain
    ]
    for name, texts, expected in (("plain", plain, None), ("scaled", scaled, 0.3)):
        store = fa.open_store(cases.write(tmp_path / name, texts))
        assert [text.encoder.scale for text in store] == [expected, expected]
        sides = store.shard(0).sides["encoder"]
        assert ("scale" in sides) == (expected is not None), "stores of older versions have none"


def test_a_trace_of_anybodys_arrays_comes_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = np.stack([cases.maps(rng, 4, 4)[:, 0] for _ in range(2)], axis=1)
    whole = Trace.from_arrays(weights, [list("abcd"), list("efgh")], model="mine")
    store = fa.open_store(cases.write(tmp_path, list(whole)))
    assert np.array_equal(store.weights(1), weights[:, 1])
    assert store[1].tokens == [list("efgh")] and store[1].layers == (0, 1)
    assert store[1].mask is None and store[1].texts == ()


@pytest.fixture(scope="module")
def texts() -> list[Trace]:
    return cases.traces("seq2seq", 8, "float16", seed=3)


@pytest.fixture(scope="module")
def path(texts: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.write(tmp_path_factory.mktemp("read") / "store", texts)


def test_chosen_layers_and_heads_are_those_of_the_whole(path: Path, texts: list[Trace]) -> None:
    store = fa.open_store(path)
    for example, text in enumerate(texts):
        for side in ("encoder", "decoder", "cross"):
            whole = getattr(text, side).weights[:, 0].astype(np.float32)
            assert np.array_equal(store.weights(example, side=side), whole)
            for (i, layer), (j, head) in itertools.product(
                enumerate(cases.LAYERS), enumerate(cases.HEADS)
            ):
                one = store.weights(example, layer=layer, head=head, side=side)
                assert one.dtype == np.float32 and np.array_equal(one, whole[i, j])
            assert np.array_equal(store.weights(example, [3, 0], 2, side=side), whole[::-1, 1])


def test_small_dtypes_are_read_as_shares(tmp_path: Path) -> None:
    for dtype in cases.DTYPES:
        (text,) = cases.traces("decoder", 1, dtype)
        store = fa.open_store(cases.write(tmp_path / dtype, [text]))
        kept = text.decoder.weights[:, 0]
        expected = kept.astype(np.float32) / np.float32(255 if dtype == "uint8" else 1)
        assert np.array_equal(store.weights(0), expected)
        raw = store.weights(0, raw=True)
        assert raw.dtype == kept.dtype and np.array_equal(raw, kept)


def test_statistics_of_a_text_and_their_means(path: Path, texts: list[Trace]) -> None:
    store = fa.open_store(path)
    table = store.stats().to_pylist()
    rows = {(r["example"], r["side"], r["layer"], r["head"]): r for r in table}
    assert len(rows) == 8 * 3 * 4
    for example, text in enumerate(texts):
        for side in ("encoder", "decoder", "cross"):
            stats = getattr(text, side).stats
            for name, values in stats.items():
                found = store.array(f"{side}.{name}", example)
                assert found.dtype == values.dtype and np.array_equal(found, values[:, 0])
            row = rows[example, side, 3, 1]
            assert row["entropy"] == np.float32(stats["entropy"][1, 0, 0].mean(dtype=np.float64))
            exact = stats["topk_weights"][1, 0, 0].mean(0, dtype=np.float64)
            assert np.array_equal(row["topk_weights"], exact.astype(np.float32))
            assert not {"argmax", "topk_indices", "received"} & set(row)


def test_plain_zarr_and_pyarrow_read_everything(path: Path, texts: list[Trace]) -> None:
    """The lines of README.md, on every text."""
    count = 0
    for shard in sorted((path / "shards").iterdir()):
        table = pq.read_table(shard / "texts.parquet", page_checksum_verification=True)
        maps = zarr.open(shard / "maps.zarr", mode="r")
        tokens = pq.read_table(shard / "tokens.parquet", page_checksum_verification=True)
        for text in table.to_pylist():
            for side in ("encoder", "decoder", "cross"):
                q, k, start = (text[f"{side}_{name}"] for name in ("queries", "keys", "offset"))
                z = maps[f"{side}.weights"][:, :, start : start + q * k]
                expected = getattr(texts[text["example"]], side).weights[:, 0]
                assert np.array_equal(z.reshape(2, 2, q, k), expected)
            own = tokens.filter(pa.compute.equal(tokens["example"], text["example"]))
            source = own.filter(pa.compute.equal(own["side"], "source"))
            assert source["token"].to_pylist() == texts[text["example"]].tokens[0]
            entropy = np.stack(source["encoder.entropy"].to_numpy()).reshape(-1, 2, 2)
            expected = texts[text["example"]].encoder.stats["entropy"][:, 0]
            assert np.array_equal(np.moveaxis(entropy, 0, 2), expected)
            assert source["cross.entropy"].null_count == len(source)
            count += 1
    assert count == len(texts)


def test_bfloat16_is_declared_to_plain_zarr(tmp_path: Path) -> None:
    (text,) = cases.traces("decoder", 1, "bfloat16")
    path = cases.write(tmp_path, [text]) / "shards/00000/maps.zarr"
    z = zarr.open(path, mode="r")["decoder.weights"]
    assert z.dtype == np.uint16 and z.attrs["dtype"] == "bfloat16"
    read = z[:].view(ml_dtypes.bfloat16).reshape(text.decoder.weights[:, 0].shape)
    assert np.array_equal(read, text.decoder.weights[:, 0])


def test_long_maps_span_chunks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = [(150, 150), (1, 1), (90, 260), (128, 128)]
    texts = []
    for q, k in sizes:
        tokens = [[str(i) for i in range(n)] for n in (k, q)]
        texts.append(
            Trace.from_arrays(
                cross_weights=cases.maps(rng, q, k), tokens=tokens[:1], decoder_tokens=tokens[1:]
            )
        )
    store = fa.open_store(cases.write(tmp_path, texts, per_shard=4))
    for example, text in enumerate(texts):
        assert np.array_equal(store.weights(example), np.asarray(text.cross.weights)[:, 0])


def test_batches_and_xarray(path: Path, texts: list[Trace]) -> None:
    store = fa.open_store(path)
    rows = pa.Table.from_batches(store.batches("texts"))
    assert rows["example"].to_pylist() == list(range(8))
    assert rows["id"].to_pylist() == [f"corpus.txt:{n + 1}" for n in range(8)]
    count = sum(len(t.tokens[0]) + len(t.written[0]) for t in texts)
    assert sum(len(batch) for batch in store.batches()) == count
    data = store.to_xarray(2)
    kept = texts[2].cross.weights[1, 0, 0]
    chosen = data["cross.weights"].sel(cross_layer=3, cross_head=1)
    assert chosen.dims == ("target", "source_key") and np.array_equal(chosen, kept)
    assert data["source_token"].values.tolist() == list(texts[2].tokens[0])
    assert data["encoder.received"].dims == ("encoder_layer", "encoder_head", "source")


@pytest.mark.parametrize("kind", ["windows", "projections"])
def test_xarray_of_windows_and_projections(tmp_path: Path, kind: str) -> None:
    texts = cases.traces(kind, 2)
    data = fa.open_store(cases.write(tmp_path, texts)).to_xarray(1)
    for name, array in data.data_vars.items():
        kept = getattr(texts[1].encoder, name.partition(".")[2])
        assert array.size == kept.size
    if kind == "windows":
        assert data["encoder_query"].values.tolist() == list(range(*texts[1].encoder.query_window))


def test_many_threads_read_alike(path: Path, texts: list[Trace]) -> None:
    store, start = fa.open_store(path), threading.Barrier(8)

    def read(number: int) -> bool:
        start.wait(60)
        found = [store.weights(example, side="cross") for example in range(8)]
        return all(
            np.array_equal(f, t.cross.weights[:, 0]) for f, t in zip(found, texts, strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))


def test_reductions_of_shards_are_those_of_the_corpus(tmp_path: Path) -> None:
    """Chan's merge against the plain mean and variance of all observations."""
    rng = np.random.default_rng(0)
    texts, values = cases.traces("statistics", 6), [rng.normal(5, 3, n) for n in (1, 40, 700)]
    shards, sha256 = cases.plan(tmp_path, 6, 2)
    for number, (shard, value) in enumerate(zip(shards, values, strict=True)):
        moments = [(5, None, len(value), value.mean(), ((value - value.mean()) ** 2).sum())]
        moments += [(5, -2 * number, 3, 1.0 * number, 0.5)]
        head, offset, count, mean, m2 = zip(*moments, strict=True)
        table = pa.table(
            {
                "side": ["encoder"] * 2,
                "statistic": ["entropy", "weight"],
                "layer": pa.array([0, 0], pa.int32()),
                "head": pa.array(head, pa.int32()),
                "offset": pa.array(offset, pa.int32()),
                "count": pa.array(count, pa.int64()),
                "mean": mean,
                "m2": m2,
            }
        )
        own = cases.items(texts[shard["start"] : shard["stop"]], shard["start"])
        write_shard(tmp_path, sha256, number, shard, own, table)
    rows = fa.open_store(tmp_path).reductions().to_pylist()
    every = np.concatenate(values)
    assert rows[0]["count"] == 741 and rows[0]["offset"] is None
    np.testing.assert_allclose(rows[0]["mean"], every.mean(), rtol=1e-14)
    np.testing.assert_allclose(rows[0]["m2"], every.var() * 741, rtol=1e-13)
    means = {row["offset"]: (row["count"], row["mean"]) for row in rows[1:]}
    assert means == {0: (3, 0.0), -2: (3, 1.0), -4: (3, 2.0)}


def test_what_is_absent_is_named(tmp_path: Path) -> None:
    store = fa.open_store(cases.write(tmp_path, cases.traces("encoder", 7), only=[0, 2]))
    assert store.missing == [1] and not store.complete and len(store) == 7
    assert store.examples == [0, 1, 2, 6]
    message = (
        f"{tmp_path} does not hold shard 00001 yet, with examples 3 to 5\n"
        "2 of its 3 shards are there\n"
        "run the same `flaxattn extract` again; it makes what is missing"
    )
    for read in (lambda: store.weights(4), lambda: store[4], lambda: iter(store)):
        with pytest.raises(StoreError) as error:
            read()
        assert str(error.value) == message
    with pytest.raises(InputError, match=r"has examples 0 to 6; there is no 7$"):
        store.weights(7)
    with pytest.raises(InputError, match=r"of layer 1 was not captured\nthere are layers 0, 3$"):
        store.weights(0, layer=1)
    with pytest.raises(InputError, match=r"holds no cross.weights\nit holds encoder.weights, enc"):
        store.weights(0, side="cross")
    with pytest.raises(InputError, match="it has texts, tokens, heads"):
        next(store.batches("words"))
    with pytest.raises(InputError, match=r"holds no reductions\nextract again with reductions"):
        store.reductions()
    with pytest.raises(StoreError, match=r"is not a store of attention: plan.json cannot be read"):
        fa.open_store(tmp_path / "nowhere")


def test_a_shard_takes_its_own_texts_only(tmp_path: Path) -> None:
    texts = cases.traces("encoder", 4)
    shards, sha256 = cases.plan(tmp_path, 4, 4)
    own = cases.items(texts)
    other = cases.traces("statistics", 1)[0]
    padded = Trace.from_arrays(
        cases.maps(np.random.default_rng(0), 2, 2), [["a", "b"]], mask=np.array([[True, False]])
    )
    odd = (own[2][0], fa.Trace(**{**vars(texts[2]), "tokens": [["too", "few"]]}))
    for wrong, message in [
        (own[:3], r"a shard of examples 0 to 3 was given 3 texts: \[0, 1, 2\]\ngive each"),
        ([own[1], own[0], *own[2:]], "was given 4 texts"),
        ([*own[:3], own[2]], "was given 4 texts"),
        ([*own[:3], (Text(3, "x", ""), other)], r"example 3 \('x'\) cannot be stored: it was cap"),
        ([*own[:3], (Text(3, "x", ""), padded)], "it holds padding"),
        ([*own[:2], odd, own[3]], "beside 2 tokens of its source"),
    ]:
        with pytest.raises(InputError, match=message):
            write_shard(tmp_path, sha256, 0, shards[0], wrong)
    assert not (tmp_path / "shards").exists()
    doubles = fa.Trace.from_arrays(np.ones((1, 1, 1, 1, 1)), [["a"]])
    object.__setattr__(doubles.encoder, "weights", np.ones((1, 1, 1, 1, 1)))
    with pytest.raises(InputError, match=r"encoder.weights is float64; a store takes float32, "):
        write_shard(tmp_path, sha256, 0, {"start": 0, "stop": 1}, cases.items([doubles]))


def test_names_that_are_no_unicode_are_kept(tmp_path: Path) -> None:
    shards, sha256 = cases.plan(tmp_path, 1, 1)
    item = cases.items(cases.traces("decoder", 1))[0]
    write_shard(
        tmp_path,
        sha256,
        0,
        shards[0],
        [(replace(item[0], file="a\udcff.txt", id="../\0é"), item[1])],
    )
    (row,) = pa.Table.from_batches(fa.open_store(tmp_path).batches("texts")).to_pylist()
    assert row["file"] == "a\\udcff.txt" and row["id"] == "../\0é"
