# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""No forward kernel takes more instructions per score than the table in BENCHMARKS.md says.

The table stands in for timings: it is counted in machine code that never ran.
"""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from flaxattn.benchmarks import variants

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "BENCHMARKS.md"
TITLE = "### Instructions per score, counted and not measured\n"
SLACK = 1.03
WHOLE = ("all", "every branch")
PATIENCE = 900  # seconds for all of them
counting = runpy.run_path(str(HERE / "instructions.py"))

# A loop of six instructions that begin 64 x 32 scores, as the assembler lays it out: a wait that
# takes long is behind the end of the kernel and jumps back into the loop.
LISTING = """
.text.attention_forward_mosaic_gpu_kernel:
   -:-:-:Y:01        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
   -:-:-:Y:01        /*0010*/                   SYNCS.PHASECHK.TRANS64 P1, [R3+URZ], R2 ;
   -:-:-:Y:01        /*0020*/              @!P1 BRA `(.L_x_3) ;
.L_x_2:
   -:-:-:Y:01        /*0030*/                   HGMMA.64x32x16.F32.BF16 R24, gdesc[UR24], RZ, !UPT ;
   -:-:-:Y:01        /*0040*/               @P2 MUFU.EX2 R4, R5 ;
   -:-:-:Y:01        /*0050*/                   HGMMA.64x64x16.F32.BF16 R56, R44, gdesc[UR8], R56 ;
   -:-:-:Y:01        /*0060*/               @P3 BRA `(.L_x_1) ;
   -:-:-:Y:05        /*0070*/                   EXIT ;
.L_x_3:
   -:-:-:Y:05        /*0080*/                   NANOSLEEP.SYNCS 0x989680 ;
   -:-:-:Y:05        /*0090*/               @P1 BRA `(.L_x_2) ;
   -:-:-:Y:05        /*00a0*/                   BRA `(.L_x_2) ;
.L_x_4:
   -:-:-:Y:00        /*00b0*/                   BRA `(.L_x_4) ;
"""


def rows():
    """The table in BENCHMARKS.md: instructions per score by name, and its lines."""
    lines = BENCHMARKS.read_text(encoding="utf-8").partition(TITLE)[2].splitlines()
    lines = [line for line in lines[: lines.index("", 6)] if line.startswith("|")]
    names, *numbers = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    values = {row[0]: map(float, row[1:-1]) for row in numbers[1:]}
    return {key: dict(zip(names[1:-1], row, strict=True)) for key, row in values.items()}, lines


def test_instructions_of_a_loop_are_counted_by_class():
    (loop,) = counting["loops_over_keys"](LISTING)
    assert (loop.scores, loop.opcodes.total()) == (64 * 32, 6)
    counts = counting["instructions_per_score"](LISTING)
    each = 128 / (64 * 32)
    assert counts["exp and log"] == each
    assert counts["products"] == 2 * each
    assert counts["other"] == 3 * each
    assert counts["all"] == 6 * each


def test_stretches_of_a_sweep_are_alternatives_and_other_sweeps_are_added():
    scores = "HGMMA.64x32x16.F32.BF16 R24, gdesc[UR24], RZ, !UPT"
    values = "HGMMA.64x64x16.F32.BF16 R56, R44, gdesc[UR8], R56"

    def loop(name, *more):
        lines = "".join(f"/*0000*/  {line} ;\n" for line in (scores, *more))
        return f".L_{name}:\n{lines}/*0000*/  @P1 BRA `(.L_{name}) ;\n"

    edge = loop("edge", values, "FADD R1, R2, R3", "MUFU.EX2 R1, R2")
    whole, maps = loop("whole", values, "FADD R1, R2, R3"), loop("maps", "FMUL R1, R2, R3")
    kernel = f"{edge}{whole}{maps}/*0000*/  EXIT ;\n"
    assert [each.opcodes.total() for each in counting["loops_over_keys"](kernel)] == [5, 4, 3]
    counts, each = counting["instructions_per_score"](kernel), 128 / (64 * 32)
    assert (counts["all"], counts["float"], counts["exp and log"]) == (8 * each, 2 * each, each)


def test_a_branch_that_some_tiles_take_is_counted_apart():
    scores = "HGMMA.64x32x16.F32.BF16 R24, gdesc[UR24], RZ, !UPT"
    lines = (scores, "@P2 BRA `(.L_skip)", "FADD R1, R2, R3", "FMUL R1, R2, R3")
    body = "".join(f"/*0000*/  {line} ;\n" for line in lines)
    end = ".L_skip:\n/*0000*/  MUFU.EX2 R1, R2 ;\n/*0000*/  @P1 BRA `(.L_loop) ;\n"
    kernel = f".L_loop:\n{body}{end}/*0000*/  EXIT ;\n"
    counts, each = counting["instructions_per_score"](kernel), 128 / (64 * 32)
    assert (counts["all"], counts["every branch"], counts["float"]) == (4 * each, 6 * each, 0)
    assert counts["exp and log"] == each


def test_a_listing_without_products_counts_nothing():
    assert counting["instructions_per_score"](LISTING.replace("HGMMA", "IMMA")) == {}


def test_the_most_of_the_plain_time_is_that_of_the_scarcest_unit():
    none = dict.fromkeys(counting["CLASSES"], 0.0)
    plain = none | {"all": 8.0, "exp and log": 1.0, "max": 1.0}
    assert counting["most_of"](plain, plain) == 1
    assert counting["most_of"](plain | {"all": 10.0}, plain) == 1.25
    assert counting["most_of"](plain | {"all": 10.0, "exp and log": 2.0}, plain) == 2
    assert counting["most_of"](plain | {"all": 10.0, "select": 9.0}, plain) == 2.5


def test_the_table_names_every_counted_call_and_adds_up():
    counts, lines = rows()
    assert list(counts) == [each.name.removeprefix("forward, ") for each in variants.COUNTED]
    for name, row in counts.items():
        parts = sum(count for key, count in row.items() if key not in WHOLE)
        assert parts == pytest.approx(row["all"], abs=0.05), name
    assert counting["table"](counts).splitlines() == lines


@pytest.mark.aot
def test_no_forward_kernel_takes_more_instructions_than_the_table_says():
    # One process of its own: a kernel that was compiled before is not listed again.
    command = [sys.executable, str(HERE / "compile.py"), "counts", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode == 2:
        pytest.skip(done.stderr.splitlines()[-1])
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1, done.stderr[-3000:]
    found, (allowed, _) = json.loads(lines[0]), rows()
    assert list(found) == list(allowed)
    counts = {
        f"{name}, {key}": (row[key], allowed[name][key])
        for name, row in found.items()
        for key in WHOLE
    }
    dearer = {name: pair for name, pair in counts.items() if pair[0] > SLACK * pair[1]}
    assert not dearer, f"instructions per score, counted and in BENCHMARKS.md: {dearer}"
