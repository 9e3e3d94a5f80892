# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a run writes down: rows, event files, model FLOP utilisation, curves and the model card."""

import json
import struct
import sys
import zlib
from pathlib import Path

import jax
import pytest

from flaxattn.errors import CheckpointError, UnavailableError, WriteError
from flaxattn.models.encoder_config import BertConfig
from flaxattn.train import report
from flaxattn.train.recipe import Recipe
from flaxattn.train.report import Reporter, read_metrics
from flaxattn.train.results import draw_curves, write_card
from flaxattn.train.run_folder import RunFolder

METRICS = {"loss": 2.0, "accuracy": 0.25, "grad_norm": 1.5, "tokens": 90.0}


def write(folder: Path, first: int = 0, **options) -> None:
    recipe = Recipe(steps=10, log_seconds=0)
    with Reporter(RunFolder(folder, **options), recipe, first, lambda batch: 1e6) as reporter:
        reporter.count(None)
        reporter.training(first + 1, METRICS, 90, 1.0)
        reporter.heldout(first + 1, {"loss": 1.0, "accuracy": 0.5})


def test_rows_hold_everything_but_time(tmp_path: Path) -> None:
    write(tmp_path)
    training, heldout = read_metrics(tmp_path / "metrics.jsonl")
    assert training == {"step": 1, "kind": "training", **METRICS, "tokens": 90}
    assert heldout == {"step": 1, "kind": "heldout", "loss": 1.0, "accuracy": 0.5}
    (timing,) = read_metrics(tmp_path / "timing.jsonl")
    assert set(timing) == {"step", "seconds", "tokens_per_second", "mfu"}
    assert timing["mfu"] is None  # nobody states what a CPU could do


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, 1)
    write(tmp_path, 1)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 1, 2, 2]


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_a_run_with_a_removed_row_is_not_resumed(tmp_path: Path, name: str) -> None:
    for step in range(4):
        write(tmp_path, step)  # each resumes the run
    path = tmp_path / name
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == len(read_metrics(path)) >= 4
    for gone in range(len(lines) - 1):
        path.write_text("".join(lines[:gone] + lines[gone + 1 :]), encoding="utf-8")
        with pytest.raises(CheckpointError, match=f"{name} is damaged: line {gone + 1} is not"):
            write(tmp_path, 4)
    path.write_text("".join(lines[:-1]) + lines[-1][:9], encoding="utf-8")  # as a kill leaves it
    write(tmp_path, 4)
    assert read_metrics(path)[-1]["step"] == 5


def test_a_run_of_an_earlier_version_continues(tmp_path: Path) -> None:
    path, row = tmp_path / "metrics.jsonl", '{"step": 1, "kind": "training", "loss": 2.0}'
    for line in (row, row[:-1] + f', "crc32": "{zlib.crc32(row.encode()):08x}"}}'):
        path.write_text(line + "\n", encoding="utf-8")
        write(tmp_path, 1)
        assert [found["step"] for found in read_metrics(path)] == [1, 2, 2]
        assert all('"chain"' in line for line in path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_a_full_disk_is_reported_with_the_name_of_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/full takes no byte."""
    write(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(WriteError) as error:
        write(tmp_path, 1)
    first, second, third = str(error.value).splitlines()
    assert first.startswith(f"Could not write {tmp_path / name}: No space left on device (")
    assert "bytes are free" in first and "as it was" in second and "Free some space" in third


def test_tensorboard_gets_every_metric(tmp_path: Path) -> None:
    write(tmp_path, tensorboard=True)
    (events,) = (tmp_path / "tensorboard").iterdir()
    data, names, place = events.read_bytes(), [], 0
    while place < len(data):  # records: length, its checksum, content, its checksum
        (size,) = struct.unpack_from("<Q", data, place)
        names.append(data[place + 12 : place + 12 + size])
        place += 16 + size
    for kind in ("training", "heldout"):
        for metric in ("loss", "accuracy"):
            assert any(f"{kind}/{metric}".encode() in record for record in names)


def test_without_tensorboardx_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UnavailableError) as error:
        write(tmp_path, tensorboard=True)
    assert "pip install 'flaxattn[tensorboard]'" in str(error.value)


def test_utilisation_is_of_the_stated_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "peak_flops", lambda: 1e3)
    write(tmp_path)
    (timing,) = read_metrics(tmp_path / "timing.jsonl")
    rate = timing["tokens_per_second"] / 90 * 1e6 / (1e3 * jax.device_count())
    assert timing["mfu"] == pytest.approx(rate, rel=1e-2)
    assert "  MFU " in capfd.readouterr().err


def test_a_resumed_run_says_what_is_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 8)
    output, peak, training, heldout = capfd.readouterr().err.splitlines()
    assert output == (
        f"2 of 10 steps to train, evaluated every 1,000, saved every 500 to {tmp_path}"
    )
    assert "warmup_steps is 1,000, steps is 10" in peak
    assert training.startswith("training: 9 of 10 steps, loss 2.000  accuracy 25.0%  ")
    assert training.endswith(" left")
    assert heldout == "step 9/10  held-out: loss 1.000  accuracy 50.0%"


def test_operations_of_bert_base() -> None:
    """85.0 M weights of layers and, at 20 positions, 24.0 M of the head; and attention."""
    found = report.bert_flops(BertConfig(), rows=1, length=128, scored=20)
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    attention = 12 * 2 * 128 * 768
    head = 768**2 + 768 * 30522
    assert found == 6 * (128 * (weights + attention) + 20 * head + 768**2)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5p", 459e12),
        ("cpu", None),
    ],
)
def test_rates_by_kind_of_device(
    kind: str, peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Device:
        device_kind = kind

    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    assert report.peak_flops() == peak


def test_curves_are_a_picture_of_any_metrics(tmp_path: Path) -> None:
    rows = [{"step": n, "kind": "training", "loss": 1 / n} for n in range(1, 30)]
    rows += [{"step": 29, "kind": "heldout", "loss": 0.1, "f1": 0.5}]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw_curves(tmp_path / "m.jsonl", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_card_says_where_a_model_comes_from(tmp_path: Path) -> None:
    heldout = [{"kind": "heldout", "step": n, "loss": 1.0 / (n + 1)} for n in (0, 5, 10)]
    write_card(tmp_path, "A model", "flaxattn train x", Recipe(seed=3), {"data": "abc"}, heldout)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    for part in (
        "# A model",
        "`flaxattn train x`",
        "| data | abc |",
        "| 10 | 0.09091 |",
        "seed: 3",
    ):
        assert part in text
    assert "| 5 |" not in text  # the first and the last are enough
