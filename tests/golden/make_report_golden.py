# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Write `reports.npz`: every number of the reports on heads, as `report_cases.py` lists them.

`python tests/golden/make_report_golden.py` after a change that is meant to change a number.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import report_cases

from flaxattn import cli


def main():
    """Run every command in a temporary folder and store what its report says."""
    target, arrays = Path(__file__).resolve().parent / "reports.npz", {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        report_cases.write_inputs(folder)
        report_cases.write_models(folder)
        for store, words in report_cases.STORES.items():
            if cli.main(["extract", *words, "--out", store]):
                sys.exit(f"extract {store} failed")
        for case, words in report_cases.CASES.items():
            if cli.main([*words, "--out", case]):
                sys.exit(f"{case} failed")
            names, values = report_cases.stored(report_cases.numbers_of(folder / case))
            arrays[f"{case}/names"] = np.frombuffer(names.encode(), np.uint8)
            arrays[f"{case}/values"] = values.astype(np.float32)
    np.savez_compressed(target, **arrays)
    print(f"{target}: {target.stat().st_size:,} bytes, {len(report_cases.CASES)} reports")


if __name__ == "__main__":
    main()
