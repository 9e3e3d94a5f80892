# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports on heads say the numbers that are stored, for every built-in model, side and source."""

from pathlib import Path

import numpy as np
import pytest
import report_cases

from flaxattn import cli

# Statistics of tests are left out: they divide by deviations, which may be mere rounding.
TESTED = ("/t", "/p", "/p_corrected", "/p_beyond")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    report_cases.write_inputs(folder)
    return folder


def prepared(folder: Path, words: tuple[str, ...]) -> None:
    """What a command reads beside the files, made where it is not there yet."""
    if words[0] == "compare" and not (folder / "small").exists():
        report_cases.write_models(folder)
    store = words[1]
    if store in report_cases.STORES and not (folder / store).exists():
        assert cli.main([*report_cases.EXTRACTIONS[store], "--out", store]) == 0


@pytest.mark.few("stats-dates-cross")
@pytest.mark.parametrize("case", report_cases.CASES)
def test_a_report_says_the_stored_numbers(
    case: str, folder: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    prepared(folder, report_cases.CASES[case])
    out = tmp_path / "report"
    assert cli.main([*report_cases.CASES[case], "--out", str(out)]) == 0
    found = report_cases.numbers_of(out)
    with np.load(repository / "tests/golden/reports.npz") as golden:
        names = bytes(golden[f"{case}/names"]).decode().split("\n")
        values = golden[f"{case}/values"].astype(np.float64)
        # Stored is the largest of six changes by rounding, on average 1.3 standard deviations.
        # Five times as much is more than six, which none of 90,000 numbers reaches by chance.
        # Sums that no parameter changes depend on their order, by up to 80 roundings of float32.
        tolerances = 5 * 2.0 ** golden[f"{case}/tolerances"] + 1e-5 * np.maximum(1, abs(values))
    assert not set(names) - found.keys()
    kept = [place for place, name in enumerate(names) if not name.endswith(TESTED)]
    assert len(kept) > 100
    numbers = np.array([found[name] for name in names])
    np.testing.assert_array_equal(np.isnan(numbers[kept]), np.isnan(values[kept]))
    assert not [
        f"{names[place]}: {numbers[place]}, stored {values[place]} ± {tolerances[place]:.1e}"
        for place in kept
        if abs(numbers[place] - values[place]) > tolerances[place]
    ]
