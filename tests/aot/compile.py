# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels ahead of time for hardware that is not here, and reports what they take.

For a Hopper GPU (sm_90a) it needs the wheels jax-cuda12-plugin and jax-cuda12-pjrt, for TPU v5e,
v5p and v6e the wheel libtpu; `wheels` prints them with the versions of the installed jax, and those
of the assembler and the disassembler, with which instructions are counted. No driver, no device.
One process serves one platform. Nothing runs here: numbers are tested in tests/kernels.

    python tests/aot/compile.py wheels
    python tests/aot/compile.py cuda "rows" "everything, depth 128"
    python tests/aot/compile.py tpu "topk" --forward --depth 128 --length 384
    python tests/aot/compile.py tpu "plain" --chip v6e --bundles
    python tests/aot/compile.py cuda --script mine.py    # FUNCTION(*ARGUMENTS) of a file
    python tests/aot/compile.py counts                   # the table of instructions per score
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

# Instruction counts are compared between machines: one assembler for all of them.
ASSEMBLERS = ("nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-nvdisasm==13.5.37")
MODULES = {"cuda": "jax_cuda12_plugin", "tpu": "libtpu"}
BACKENDS = {"cuda": "flaxattn.kernels.mosaic_gpu", "tpu": "flaxattn.kernels.tpu"}
CALLS = {"cuda": "mosaic_gpu", "tpu": "tpu_custom_call"}
CHIPS = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
# What a Hopper GPU has; only the limits that compilers ask for matter.
HOPPER = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448 registers_per_core_limit: 65536
  registers_per_block_limit: 65536 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98
  device_memory_size: 149000000000 cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H200"
"""


# A script knows no modules beside it where Python is told not to look there.
COUNTING = runpy.run_path(str(Path(__file__).with_name("instructions.py")))


@dataclass
class Kernel:
    """What one compiled kernel takes; what a platform does not have stays 0.

    `spills` counts bytes stored and loaded, `shared` and `vmem` are bytes. `instructions` are
    those of a forward kernel for each score, by class (see instructions.py); empty without the
    disassembler. `bundles` counts the instruction words of a TPU kernel, those of its first, middle
    and last steps together; 0 unless requested.
    """

    name: str
    registers: int = 0
    spills: int = 0
    stack: int = 0
    shared: int = 0
    vmem: int = 0
    bundles: int = 0
    instructions: dict[str, float] = field(default_factory=dict)


@dataclass
class Report:
    """The outcome of one compilation. Kernels compiled before in the same process are left out.

    `temporary` is the memory that the whole call needs beside arguments and results, in bytes;
    `calls` counts its calls of kernels.
    """

    name: str
    error: str = ""
    seconds: float = 0
    temporary: int = 0
    output: int = 0
    calls: int = 0
    kernels: list[Kernel] = field(default_factory=list)


def missing(platform: str) -> str:
    """Why nothing can be compiled for a platform here, empty when it can."""
    name = MODULES[platform]
    return "" if importlib.util.find_spec(name) else f"the package {name} is not installed"


def wheels() -> Iterator[str]:
    """Requirements of the wheels, as the installed jax pins them."""
    version = importlib.metadata.version("jax")
    yield f"jax-cuda12-plugin=={version}"
    yield f"jax-cuda12-pjrt=={version}"
    yield from ASSEMBLERS
    for line in importlib.metadata.requires("jax") or ():
        if line.startswith("libtpu") and "tpu" in line.split(";")[-1]:
            yield line.split(";")[0].strip()


def assemblers() -> Path | None:
    """The folder of the wheels with ptxas and nvdisasm, when they are installed."""
    try:
        module = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        return None
    folders = [Path(place) for place in (module and module.submodule_search_locations) or ()]
    tools = ("ptxas", "nvdisasm")
    return next((x for x in folders if all((x / "bin" / tool).exists() for tool in tools)), None)


class Compiler:
    """Compiles for one platform; make at most one per process, before jax is used."""

    def __init__(self, platform: str, chip: str = "v5e", bundles: bool = False):
        self.platform, self.bundles = platform, bundles
        self.dump = Path(tempfile.mkdtemp(prefix="flaxattn-aot-"))
        os.environ |= {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._prepare()
        import jax
        import numpy as np
        from jax.experimental import topologies

        if platform == "cuda":
            topology = topologies.get_topology_desc(
                platform="cuda", target_config=HOPPER, topology="1x1x1"
            )
        else:
            topology = topologies.get_topology_desc(platform="tpu", topology_name=CHIPS[chip])
        device = np.array(topology.devices[:1])
        self.mesh = jax.sharding.Mesh(device, ("x",))
        self.sharding = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())

    def _prepare(self) -> None:
        """Environment variables that compilers read when they are loaded."""
        if self.platform == "cuda":
            os.environ["MOSAIC_GPU_DUMP_PTXAS"] = "1"
            os.environ["MOSAIC_GPU_DUMP_TO"] = str(self.dump)
            if tools := assemblers():
                os.environ["CUDA_ROOT"] = str(tools)
                os.environ["PATH"] = f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"
            return
        library = importlib.util.find_spec("libtpu")
        if library is None or library.origin is None:
            raise SystemExit(missing("tpu"))
        os.environ |= {
            "TPU_LIBRARY_PATH": str(Path(library.origin).with_name("libtpu.so")),
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-4",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }
        if self.bundles:
            flags = f"--xla_jf_dump_to={self.dump} --xla_jf_dump_llo_text=true"
            os.environ["LIBTPU_INIT_ARGS"] = flags

    def compile(self, name: str, function: Callable[..., Any], *arguments: Any) -> Report:
        """Compiles ``function`` for arguments with shape and dtype; never raises."""
        import jax

        def place(x: Any) -> Any:
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.sharding)

        report, start = Report(name), time.monotonic()
        try:
            placed = jax.tree.map(place, arguments)
            with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):
                compiled = jax.jit(function).lower(*placed).compile()
        except Exception as problem:
            report.error = f"{type(problem).__name__}: {problem}"
        else:
            memory = compiled.memory_analysis()
            report.temporary = memory.temp_size_in_bytes
            report.output = memory.output_size_in_bytes
            text = compiled.as_text()
            report.calls = len(re.findall(f'custom_call_target="{CALLS[self.platform]}', text))
            if self.platform == "tpu":
                report.kernels = list(kernels_of_tpu(text, self.dump))
        if self.platform == "cuda":
            report.kernels = list(kernels_of_cuda(self.dump))
        report.seconds = round(time.monotonic() - start, 1)
        return report

    def close(self) -> None:
        """Removes what the compilers wrote."""
        for path in self.dump.iterdir():
            path.unlink()
        self.dump.rmdir()


def kernels_of_tpu(text: str, folder: Path) -> Iterator[Kernel]:
    """The Mosaic kernels in a compiled module, with the VMEM each was given.

    The folder has what the compiler wrote of them, nothing unless it was asked to.
    """
    for line in text.splitlines():
        if 'custom_call_target="tpu_custom_call"' in line:
            name = line.split(" = ")[0].strip().removeprefix("ROOT ").lstrip("%")
            used = line.partition('"used_scoped_memory_configs":')[2]
            sizes = re.findall(r'"memory_space":"1","offset":"\d+","size":"(\d+)"', used)
            # A line of numbers for each bundle, how often it uses each unit.
            lists = folder.glob(f"*-{name}-*-final_hlo-static-per-bundle-utilization.txt")
            lines = [line for path in lists for line in path.read_text().split("UTILIZATION:")[1:]]
            bundles = sum(len(each.strip().splitlines()) for each in lines)
            yield Kernel(name, vmem=sum(map(int, sizes)), bundles=bundles)
    for path in folder.iterdir():
        path.unlink()


def kernels_of_cuda(folder: Path) -> Iterator[Kernel]:
    """What ptxas said of each kernel that was compiled since the last look."""
    per_score = COUNTING["instructions_per_score"]
    reports = sorted(folder.glob("*.ptxas"), key=lambda path: path.stat().st_mtime_ns)
    for path in reports:
        text = path.read_text(encoding="utf-8")

        def number(pattern: str, text: str = text) -> int:
            return sum(int(found) for found in re.findall(pattern, text))

        log, listing = path.with_suffix(".mlir-passes.log"), path.with_suffix(".sass_ctrl")
        forward = path.stem.startswith("attention_forward") and listing.exists()
        yield Kernel(
            path.stem,
            registers=number(r"Used (\d+) registers"),
            spills=number(r"(\d+) bytes spill"),
            stack=number(r"(\d+) bytes stack frame"),
            shared=dynamic_shared_memory(log) + number(r"(\d+) bytes smem"),
            instructions=per_score(listing.read_text(encoding="utf-8")) if forward else {},
        )
    for path in folder.iterdir():
        path.unlink()


def dynamic_shared_memory(log: Path) -> int:
    """Bytes that a launch asks for, from the first mention in a long log."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = re.search(r"dynamic_shared_memory_size %c(\d+)_i32", line)
            if found:
                return int(found[1])
    return 0


def show(report: Report) -> None:
    """Prints a report for people."""
    verdict = "FAILED" if report.error else "ok"
    print(
        f"{verdict:6} {report.name}  ({report.seconds} s, temporary {report.temporary:,} B, "
        f"output {report.output:,} B)"
    )
    for kernel in report.kernels:
        sizes = {key: size for key, size in asdict(kernel).items() if size}
        name, counts = sizes.pop("name"), sizes.pop("instructions", {})
        print("       ", name, " ".join(f"{key}={size:,}" for key, size in sizes.items()))
        if counts:
            parts = (f"{key} {count:.1f}" for key, count in counts.items())
            print("         instructions per score:", ", ".join(parts))
    if report.error:
        print("        " + report.error[:4000].replace("\n", "\n        "))


def changed(variant: Any, options: argparse.Namespace) -> Any:
    """A variant with what the command line changes."""
    case = variant.case
    for name, value in (("depth", options.depth), ("batch", options.batch)):
        case = replace(case, **{name: value}) if value else case
    if options.length:
        case = replace(case, queries=options.length, keys=options.length)
    changes = {"case": case, "gradient": variant.gradient and not options.forward}
    return replace(variant, **changes, dtype=options.dtype or variant.dtype)


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """What the command line asks for: name, function, arguments."""
    if options.script:
        given = runpy.run_path(options.script)
        yield options.script, given["FUNCTION"], tuple(given["ARGUMENTS"])
        return
    from flaxattn.benchmarks import variants

    backend = importlib.import_module(BACKENDS[options.platform])
    everything = variants.HALF
    if options.platform == "tpu":
        everything = (each for each in variants.HALF + variants.FLOAT32 if each.dtype != "float16")
    names = options.names or [each.name for each in everything]
    for name in (line.strip() for line in sys.stdin) if names == ["-"] else names:
        variant = changed(variants.variant(name), options)
        yield name, variant.function(backend.attend), (variant.arguments(),)


def counts(compiler: Compiler) -> dict[str, dict[str, float]]:
    """Instructions per score of `variants.COUNTED`, by name and class, to two decimals."""
    from flaxattn.benchmarks import variants
    from flaxattn.kernels import mosaic_gpu

    found: dict[str, dict[str, float]] = {}
    for variant in variants.COUNTED:
        function = variant.function(mosaic_gpu.attend)
        report = compiler.compile(variant.name, function, variant.arguments())
        if report.error:
            raise SystemExit(f"{variant.name}: {report.error}")
        # Without a kernel of its own, a call takes that of the plain one, compiled before it.
        own = [kernel.instructions for kernel in report.kernels] or [found["plain"]]
        if len(own) != report.calls or not all(own):
            raise SystemExit(f"{variant.name}: {report.calls} kernels, {len(own)} of them listed")
        name = variant.name.removeprefix("forward, ")
        found[name] = {key: round(sum(each[key] for each in own), 2) for key in own[0]}
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found.add_argument("platform", choices=["cuda", "tpu", "wheels", "list", "counts"])
    found.add_argument("names", nargs="*", help="variants, all when none; - reads them from stdin")
    found.add_argument("--script", help="a Python file that sets FUNCTION and ARGUMENTS")
    found.add_argument("--forward", action="store_true", help="no gradients")
    found.add_argument("--json", action="store_true", help="one JSON object per line")
    found.add_argument("--chip", choices=CHIPS, default="v5e", help="TPU to compile for")
    found.add_argument("--bundles", action="store_true", help="count instructions of TPU kernels")
    found.add_argument("--dtype", help="of q, k, v and bias")
    for name in ("depth", "length", "batch"):
        found.add_argument(f"--{name}", type=int)
    return found


def main() -> int:
    """Compile what was requested; the exit status says whether all of it compiled."""
    options = parser().parse_args()
    if options.platform == "wheels":
        print(*wheels())
        return 0
    if options.platform == "list":
        from flaxattn.benchmarks import variants

        print(*(each.name for each in variants.HALF + variants.FLOAT32), sep="\n")
        return 0
    platform = "cuda" if options.platform == "counts" else options.platform
    reason = missing(platform)
    if options.platform == "counts" and not assemblers():
        reason = f"the packages {' and '.join(ASSEMBLERS)} are not installed"
    if reason:
        print(f"Nothing can be compiled for {platform}: {reason}.", file=sys.stderr)
        return 2
    compiler, failed = Compiler(platform, options.chip, options.bundles), False
    try:
        if options.platform == "counts":
            found = counts(compiler)
            print(json.dumps(found) if options.json else COUNTING["table"](found))
            return 0
        for name, function, arguments in jobs(options):
            report = compiler.compile(name, function, *arguments)
            failed |= bool(report.error)
            print(json.dumps(asdict(report)), flush=True) if options.json else show(report)
    finally:
        compiler.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
