# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every variant compiles for sm_90a and TPU v5e, keeps to registers and fits in fast memory.

The dearest ones do so for TPU v5p and v6e as well. The compilers come from wheels and need no
device (`make aot`). compile.py does the work, in one process per target; what the kernels compute
is tested in tests/kernels. How instructions are counted is tested in test_instructions.py.
"""

import contextlib
import json
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flaxattn.benchmarks import gpu_primitives, variants

SCRIPT = Path(__file__).with_name("compile.py")
SHARED_MEMORY = 232_448  # of a block on sm_90, in bytes
# Of a kernel on each chip, unless it asks for more; a compiler says so when it refuses one.
SCOPED_VMEM = {"v5e": 16 * 2**20, "v5p": 16 * 2**20, "v6e": 32 * 2**20}
PATIENCE = 300  # seconds for one variant; a compiler that hangs is a failure

DEAREST = ("plain", "statistics of today", "everything, depth 128 float32")
"""What every chip compiles: the plain call, and those that take most VMEM."""
CORE = ("plain", "statistics of today")
"""What continuous integration compiles; `make aot` compiles all of them."""
VARIANTS = [("cuda", each) for each in variants.HALF]
VARIANTS += [("v5e", each) for each in variants.HALF + variants.FLOAT32 if each.dtype != "float16"]
VARIANTS += [(chip, variants.variant(name)) for chip in ("v5p", "v6e") for name in DEAREST]


class Compiler:
    """A process that compiles for one target; `Compilers` starts another after a crash."""

    def __init__(self, target, log):
        self.log = log
        chip = ["--chip", target] if target in SCOPED_VMEM else []
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), "tpu" if chip else target, "-", "--json", *chip],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, name):
        """The report on a variant, as `compile.Report` has it; None when the process ended."""
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.start()
        try:
            print(name, file=self.process.stdin, flush=True)
            # Compilers write to the same place.
            found = (line for line in self.process.stdout if line.startswith("{"))
            return json.loads(next(found, "null"))
        except BrokenPipeError:
            return None
        finally:
            watchdog.cancel()

    def stop(self):
        """(exit status, last messages)."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=60), self.log.read_text()[-3000:]


class Compilers:
    """A compiler per target, for as long as tests run."""

    def __init__(self, folder):
        self.folder, self.running, self.absent = folder, {}, {}

    def ask(self, target, name):
        if target in self.absent:
            pytest.skip(self.absent[target])
        if target not in self.running:
            self.running[target] = Compiler(target, self.folder / target)
        report = self.running[target].ask(name)
        if report is None:
            status, message = self.running.pop(target).stop()
            assert status == 2, f"the compiler for {target} ended with {status}:\n{message}"
            self.absent[target] = message.splitlines()[-1]
            pytest.skip(self.absent[target])
        return report

    def stop(self):
        for compiler in self.running.values():
            compiler.stop()


# Bytes of registers that a thread keeps in memory, where a request has more than fit: every
# gradient at once of heads with 128 dimensions. All other kernels have none.
SPILLED = {("everything, depth 128", "attention_grad_keys"): 16}


@pytest.fixture(scope="session")
def compilers(tmp_path_factory):
    found = Compilers(tmp_path_factory.mktemp("aot"))
    yield found
    found.stop()


@pytest.mark.aot
@pytest.mark.parametrize(
    ("target", "variant"),
    [
        pytest.param(
            target,
            each,
            marks=[] if each.name in CORE and target in ("cuda", "v5e") else pytest.mark.slow,
            id=f"{target}, {each.name}",
        )
        for target, each in VARIANTS
    ],
)
def test_a_variant_compiles_and_fits(compilers, target, variant):
    report = compilers.ask(target, variant.name)
    assert not report["error"], report["error"][-6000:]
    # Forward, dq, and dk with dv are kernels of their own.
    assert report["calls"] >= (3 if variant.gradient else 1), "kernels are missing"
    for kernel in report["kernels"]:
        spilled = SPILLED.get((variant.name, kernel["name"].rstrip("_0123456789")), 0)
        assert kernel["spills"] <= spilled and kernel["stack"] <= spilled, kernel
        assert kernel["shared"] <= SHARED_MEMORY, kernel
        assert kernel["vmem"] <= SCOPED_VMEM.get(target, 0), kernel
    if not variant.capture.weights and not variant.capture.scores and not variant.case.bias:
        pairs = variant.case.queries * variant.case.queries
        if pairs > 2**24:
            # Less than one byte for each pair of positions of one head.
            assert report["temporary"] + report["output"] < pairs


def test_spills_and_shared_memory_are_read_from_the_compilers_log(tmp_path):
    (tmp_path / "forward_0.ptxas").write_text(
        "ptxas info    : Function properties for forward_mosaic_gpu_kernel\n"
        "    48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 16 barriers, 1 bytes smem\n"
    )
    (tmp_path / "forward_0.mlir-passes.log").write_text(
        "gpu.launch threads in (%a = %c384) dynamic_shared_memory_size %c51288_i32 {\n"
    )
    (kernel,) = runpy.run_path(str(SCRIPT))["kernels_of_cuda"](tmp_path)
    found = (kernel.name, kernel.registers, kernel.spills, kernel.stack, kernel.shared)
    assert found == ("forward_0", 168, 84, 48, 51_289)
    assert not list(tmp_path.iterdir()), "a kernel is reported once"


def test_fast_memory_and_bundles_are_read_from_what_is_compiled_for_tpu(tmp_path):
    """Bundles are lines after the heading; another kernel has files of its own."""
    table = "== CAPACITY:\nMXU, XLU\n4 3\n== UTILIZATION:\n0 1\n2 0\n4 0\n"
    for kernel in ("scores.3", "scores.33"):
        name = f"17-{kernel}-70-final_hlo-static-per-bundle-utilization.txt"
        (tmp_path / name).write_text(table)
    line = (
        '  %scores.3 = f32[2,4]{1,0} custom-call(%a), custom_call_target="tpu_custom_call", '
        'backend_config={"used_scoped_memory_configs":[{"memory_space":"1","offset":"0",'
        '"size":"196608"}],"retry_config":{}}'
    )
    (kernel,) = runpy.run_path(str(SCRIPT))["kernels_of_tpu"](f"HloModule x\n{line}\n", tmp_path)
    assert (kernel.name, kernel.vmem, kernel.bundles) == ("scores.3", 196_608, 3)


@pytest.mark.slow
@pytest.mark.aot
def test_a_step_of_a_tpu_kernel_takes_no_more_instructions():
    """BENCHMARKS.md has these counts; columns of one lane take 1.6 and 1.8 times as many."""
    counts = {"plain 16384, depth 64": 1842, "rows and sieves 16384, depth 64": 2589}
    command = [sys.executable, str(SCRIPT), "tpu", *counts, "--bundles", "--forward", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["name"] for report in reports] == list(counts), done.stderr[-3000:]
    for report in reports:
        (kernel,) = report["kernels"]
        assert 0 < kernel["bundles"] <= 1.03 * counts[report["name"]], kernel


@pytest.mark.slow
@pytest.mark.aot
def test_every_primitive_compiles_without_spilling(tmp_path):
    script = tmp_path / "primitives.py"
    script.write_text(
        "from flaxattn.benchmarks.gpu_primitives import PRIMITIVES\n"
        "import jax\n"
        "arrays = [each.arguments() for each in PRIMITIVES]\n"
        "ARGUMENTS = [jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)]\n"
        "def FUNCTION(arrays):\n"
        "    return [each.run(*own) for each, own in zip(PRIMITIVES, arrays, strict=True)]\n"
    )
    command = [sys.executable, str(SCRIPT), "cuda", "--json", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1, done.stderr[-3000:]
    report = json.loads(lines[0])
    assert not report["error"], report["error"][-6000:]
    assert len(report["kernels"]) == len(gpu_primitives.PRIMITIVES)
    for kernel in report["kernels"]:
        assert kernel["registers"] and kernel["spills"] == kernel["stack"] == 0, kernel
