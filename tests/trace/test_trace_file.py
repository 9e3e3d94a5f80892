# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A saved trace is the trace, bit by bit; a file that was touched, cut or mixed up is refused."""

import dataclasses

import numpy as np
import pytest
import safetensors
import store_cases

from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace


def one(kind, dtype="float32"):
    return store_cases.trace(np.random.default_rng(3), kind, dtype)


@pytest.mark.parametrize("kind", store_cases.KINDS)
def test_what_is_read_is_what_was_saved(kind, tmp_path):
    trace = one(kind)
    assert trace.save(tmp_path / "a.safetensors") == tmp_path / "a.safetensors"
    store_cases.same(trace, Trace.load(tmp_path / "a.safetensors"))


@pytest.mark.parametrize("dtype", store_cases.DTYPES)
def test_every_dtype_comes_back(dtype, tmp_path):
    trace = one("encoder", dtype)
    trace.save(tmp_path / "a.safetensors")
    found = Trace.load(tmp_path / "a.safetensors").encoder.weights
    assert found.dtype == trace.encoder.weights.dtype
    assert found.tobytes() == trace.encoder.weights.tobytes()


def test_a_batch_with_padding_and_jax_arrays_comes_back(tmp_path):
    trace = Trace.from_arrays(
        np.full((1, 2, 1, 3, 3), 1 / 3, np.float32),
        [list("abc"), ["d", "e", "[PAD]"]],
        mask=np.array([[1, 1, 1], [1, 1, 0]], bool),
        words=[[0, None, 1], [0, 1, None]],
        truncated=np.array([0, 2]),
    )
    trace.save(tmp_path / "a.safetensors")
    found = Trace.load(tmp_path / "a.safetensors")
    assert found.tokens == trace.tokens and found.words == trace.words
    assert found.truncated == [0, 2]
    np.testing.assert_array_equal(found[1].encoder.weights, trace[1].encoder.weights)


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        one("seq2seq").save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_readers_open_it(tmp_path):
    trace = one("encoder")
    with safetensors.safe_open(trace.save(tmp_path / "a.safetensors"), "np") as file:
        np.testing.assert_array_equal(file.get_tensor("encoder.weights"), trace.encoder.weights)


def test_any_touched_byte_is_noticed(tmp_path):
    path = one("seq2seq").save(tmp_path / "a.safetensors")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(8, len(whole), 150).tolist():
        data = bytearray(whole)
        data[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            Trace.load(path)
        assert len(str(caught.value).splitlines()) <= 3
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_a_file_that_was_cut_is_refused(tmp_path, size):
    path = one("encoder").save(tmp_path / "a.safetensors")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match=r"is damaged: .*\nCopy or save it again\.$"):
        Trace.load(path)


def test_what_is_no_trace_is_reported(tmp_path):
    with pytest.raises(InputError) as caught:
        Trace.load(tmp_path / "none")
    assert str(caught.value) == (
        f"There is no trace file '{tmp_path / 'none'}'.\n"
        f"Write one: trace.save('{tmp_path / 'none'}')."
    )
    (tmp_path / "model").write_bytes(safetensors.numpy.save({"w": np.zeros(2)}))
    with pytest.raises(InputError, match=r"holds tensors, but no trace: its header has no"):
        Trace.load(tmp_path / "model")
    with pytest.raises(InputError, match=r"holds no attention, so there is nothing to save"):
        Trace().save(tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


def test_another_format_is_refused(tmp_path, monkeypatch):
    path = one("encoder").save(tmp_path / "a.safetensors")
    monkeypatch.setattr("flaxattn.trace.trace.FORMAT", 2)
    with pytest.raises(InputError, match=r"is a trace of format 1; this flaxattn reads format 2"):
        Trace.load(path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = one("encoder").save(tmp_path / "a.safetensors")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    changed = dataclasses.replace(one("decoder"), model="other")
    with pytest.raises(OSError, match="No space left"):
        changed.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
