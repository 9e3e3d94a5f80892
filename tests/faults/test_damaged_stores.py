# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""No damage of a store is silent. A few dozen trials; `make all` makes 300."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import store_cases as cases
import zarr

import flaxattn as fa
from flaxattn.errors import StoreError
from flaxattn.store.plan import write_sum
from flaxattn.store.seals import manifest_in
from flaxattn.store.shard import Shard
from flaxattn.store.verify_store import verify
from flaxattn.trace.trace import Trace

TRIALS = 300 if os.environ.get("FLAXATTN_TRIALS") == "full" else 35


@pytest.fixture(scope="module")
def texts() -> list[Trace]:
    return cases.traces("seq2seq", 5, "uint8", seed=5)


@pytest.fixture(scope="module")
def path(texts: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.write(tmp_path_factory.mktemp("damage") / "store", texts)


def test_any_damage_is_named_and_never_read_as_numbers(path: Path, tmp_path: Path) -> None:
    for trial in range(TRIALS):
        hurt = shutil.copytree(path, tmp_path / str(trial))
        file = cases.damage(hurt, trial)
        found = verify(hurt)
        assert file in [entry.file for entry in found.damage], (trial, file, found.damage)
        with pytest.raises(StoreError) as error:
            cases.read_everything(hurt)
        assert len(str(error.value).splitlines()) <= 3 and str(hurt) in str(error.value), trial
        shutil.rmtree(hurt)


@pytest.mark.slow
@pytest.mark.parametrize("trials", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_every_flipped_bit_of_every_file_is_named(path: Path, tmp_path: Path, trials: int) -> None:
    """Also of the files beside the shards; what is read of a hurt store is what was written."""
    store = shutil.copytree(path, tmp_path / "store")
    write_sum(store)
    assert not verify(store).damage
    right = [cases.plainly(trace) for trace in cases.read_everything(store)]
    files, rng = sorted(p for p in store.rglob("*") if p.is_file()), np.random.default_rng(trials)
    assert len(files) > 22
    for trial in range(trials):
        file = files[trial % len(files)]
        whole = file.read_bytes()
        hurt = bytearray(whole)
        hurt[int(rng.integers(len(whole)))] ^= 1 << int(rng.integers(8))
        file.write_bytes(hurt)
        name = file.relative_to(store).as_posix()
        damage = [" ".join(entry) for entry in verify(store).damage]
        assert any(name in line for line in damage), (trial, name, damage)
        try:
            found = [cases.plainly(trace) for trace in cases.read_everything(store)]
        except StoreError as error:
            assert len(str(error).splitlines()) <= 3
        else:
            assert "shards" not in name and name != "plan.json" and found == right, (trial, name)
        file.write_bytes(whole)


def test_what_is_not_damaged_is_read(path: Path, texts: list[Trace], tmp_path: Path) -> None:
    """Whatever is read of a hurt store is right, text by text and array by array."""
    read = refused = 0
    for trial in range(TRIALS // 3):
        hurt = shutil.copytree(path, tmp_path / str(trial))
        cases.damage(hurt, trial)
        for example in (0, 4):
            for side in ("encoder", "cross"):
                try:
                    found = fa.open_store(hurt).weights(example, side=side, raw=True)
                except StoreError:
                    refused += 1
                    continue
                read += 1
                assert np.array_equal(found, getattr(texts[example], side).weights[:, 0])
        shutil.rmtree(hurt)
    assert read > refused > 0


def test_swapped_chunks_pass_their_own_checksums_and_are_found(tmp_path: Path) -> None:
    """Two maps of one size, stored without compression, so that their files have one size."""
    rng = np.random.default_rng(0)
    weights = rng.permuted(np.arange(256, dtype=np.uint8).repeat(4)).reshape(1, 1, 1, 32, 32)
    both = np.concatenate([weights, weights[..., ::-1]], axis=2)
    trace = Trace.from_arrays(both, [[str(n) for n in range(32)]])
    path = cases.write(tmp_path, [trace])
    file = path / "shards/00000/maps.zarr/encoder.weights/c/0/0/0"
    data = bytearray(file.read_bytes())
    (a, size), (b, other) = np.frombuffer(bytes(data[-36:-4]), "<u8").reshape(2, 2).tolist()
    assert size == other
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    file.write_bytes(data)
    plain = zarr.open(path / "shards/00000/maps.zarr", mode="r")["encoder.weights"][:]
    assert np.array_equal(plain[0, 0].reshape(32, 32), both[0, 0, 1])  # nobody else notices
    with pytest.raises(StoreError, match=r"chunk 0 of layer 0, head 0, both counted in the file, "):
        fa.open_store(path).weights(0)
    (entry,) = verify(path).damage
    assert entry.what.endswith("(sha256): layer 0 head 0, layer 0 head 1")


def test_folders_that_changed_places_are_found(path: Path, tmp_path: Path) -> None:
    hurt = shutil.copytree(path, tmp_path / "hurt")
    (hurt / "shards/00000").rename(hurt / "shards/x")
    (hurt / "shards/00001").rename(hurt / "shards/00000")
    (hurt / "shards/x").rename(hurt / "shards/00001")
    assert [entry.what for entry in verify(hurt).damage] == [
        "it is the manifest of shard 00001",
        "it is the manifest of shard 00000",
    ]
    with pytest.raises(StoreError, match=r"manifest.json is damaged: it is the manifest of shard"):
        fa.open_store(hurt).weights(0)


def test_shards_of_another_plan_are_no_changed_plan(
    path: Path, texts: list[Trace], tmp_path: Path
) -> None:
    other = cases.write(tmp_path / "other", texts[:3], per_shard=3)
    mixed = shutil.copytree(path, tmp_path / "mixed")
    shutil.rmtree(mixed / "shards/00000")
    shutil.copytree(other / "shards/00000", mixed / "shards/00000")
    assert verify(mixed).damage == [
        ("shards/00000", "it was made under another plan.json (sha256)")
    ]
    with pytest.raises(StoreError, match=r"was made under another plan than .*plan.json\nit names"):
        fa.open_store(mixed).weights(0)
    changed = shutil.copytree(path, tmp_path / "changed")
    (changed / "plan.json").write_bytes((changed / "plan.json").read_bytes() + b"\n")
    assert verify(changed).damage == [
        ("plan.json", "all shards were made under another plan (sha256)")
    ]


def test_the_message_of_a_damaged_file(path: Path, tmp_path: Path) -> None:
    hurt = shutil.copytree(path, tmp_path / "hurt")
    file = hurt / "shards/00000/texts.parquet"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError) as error:
        fa.open_store(hurt).weights(0)
    assert str(error.value) == (
        f"{file} is damaged: its content is not what was written (sha256)\n"
        "nothing was read from it; `flaxattn store verify` lists all damage of a store\n"
        f"delete the folder {hurt / 'shards/00000'} and run the same `flaxattn extract` again"
    )


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["texts", "tokens", "heads"])
def test_a_table_that_changes_while_the_store_is_open_is_found(
    path: Path, tmp_path: Path, name: str, count: int
) -> None:
    """Its footer was read before; pages and their headers are compared when they are read."""
    hurt = shutil.copytree(path, tmp_path / "hurt")
    file = hurt / "shards/00000" / f"{name}.parquet"
    whole, rng, refused = file.read_bytes(), random.Random(0), 0
    shard = Shard(hurt, 0, manifest_in(file.parent).plan)
    right = shard.table(file.name)
    for trial in range(count):
        data, bit = bytearray(whole), rng.randrange(8 * len(whole))
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        try:
            assert shard.table(file.name).equals(right), trial
        except StoreError as error:
            assert str(file) in str(error)
            refused += 1
    assert refused > count / 5
