# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Write `reports.npz`: every number of the reports on heads, and how far rounding may move it.

`python tests/golden/make_report_golden.py` after a change that is meant to change a number.

Processors sum float32 numbers in different orders, which acts on a result as small changes of the
parameters do. So every report is also made with parameters that differ by up to 2**-20 of their
size, about ten times their rounding, and the largest change of a number is stored beside it: its
tolerance. A number that jumps with such a change, for it depends on a tie, has a large one.
"""

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import report_cases

import flaxattn as fa
from flaxattn import cli

DRAWS, RELATIVE = 6, 2.0**-20


def changed(params, seed):
    """Parameters with small relative changes, drawn anew for every number."""
    rng = np.random.default_rng(seed)

    def one(array):
        factors = 1 + RELATIVE * rng.uniform(-1, 1, np.shape(array))
        return (np.asarray(array) * factors).astype(np.float32)

    return jax.tree.map(one, params)


def write_models(folder, seed):
    """The built-in models and the two random ones, with changed parameters."""
    report_cases.write_models(folder)
    for name in ("tiny-bert", "tiny-gpt2", "tiny-dates", "small", "other"):
        model = fa.from_pretrained(name if name.startswith("tiny") else folder / name)
        dataclasses.replace(model, params=changed(model.params, seed)).save_pretrained(
            folder / name
        )


def with_models(words, folder):
    """A command that reads the models of a folder in place of the built-in ones."""
    words = list(words)
    if "--model" in words:
        place = words.index("--model") + 1
        words[place] = str(folder / words[place])
    elif words[0] != "compare" and words[1] not in report_cases.STORES:
        words += ["--model", str(folder / "tiny-bert")]
    return words


def numbers(seed=None):
    """The numbers of every case; with a seed, of models whose parameters are changed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        report_cases.write_inputs(folder)
        if seed is None:
            report_cases.write_models(folder)
        else:
            write_models(folder, seed)
        found = {}
        for case, words in (report_cases.EXTRACTIONS | report_cases.CASES).items():
            if cli.main([*(words if seed is None else with_models(words, folder)), "--out", case]):
                sys.exit(f"{case} failed")
            if case in report_cases.CASES:
                found[case] = report_cases.numbers_of(folder / case)
        os.chdir("/")
    return found


def main():
    """Run every command with the models and with changed ones; store what the reports say."""
    target, arrays = Path(__file__).resolve().parent / "reports.npz", {}
    plain, others = numbers(), [numbers(seed) for seed in range(DRAWS)]
    for case, found in plain.items():
        kept = {name: v for name, v in found.items() if all(name in o[case] for o in others)}
        names, values = report_cases.stored(kept)
        drawn = np.stack([report_cases.stored({n: o[case][n] for n in kept})[1] for o in others])
        arrays[f"{case}/names"] = np.frombuffer(names.encode(), np.uint8)
        arrays[f"{case}/values"] = values.astype(np.float32)
        spread = np.nan_to_num(np.abs(drawn - values), nan=0.0).max(0)
        arrays[f"{case}/tolerances"] = report_cases.rounded_up(spread)
        print(f"{case}: {len(kept)} numbers, largest tolerance {spread.max():.1e}")
    np.savez_compressed(target, **arrays)
    print(f"{target}: {target.stat().st_size:,} bytes, {len(report_cases.CASES)} reports")


if __name__ == "__main__":
    main()
