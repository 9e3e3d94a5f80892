# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What every test runs under: eight fake CPU devices, strict promotion, and no silent skip.

This file is not a place for helpers of a single test file. Warnings are errors and the shape
checks of `flaxattn.kernels` are on; both are switched in `pyproject.toml`.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Read by XLA and matplotlib when they are first imported, so set before any test module is.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Threads of XLA on the CPU: those of an interpreted GPU kernel wait for each other.
os.environ.setdefault("NPROC", "32")
os.environ.setdefault("MPLBACKEND", "Agg")

# A job that was begun in the background ignores Ctrl-C, and so would each process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis
import jax
import pytest

pytest_plugins = ["small_models", "small_checkpoints", "headless_chromium"]  # for several folders

# Tests keep what they compiled, and walking through all of it again and again finds little garbage.
gc.set_threshold(20_000, 20, 50)

# The same examples in every run, few of them in `make test` and all in `make all`; the first
# example of a test pays for compilation.
hypothesis.settings.register_profile(
    "flaxattn",
    deadline=None,
    derandomize=True,
    max_examples=100 if os.environ.get("FLAXATTN_TRIALS") == "full" else 20,
)
hypothesis.settings.load_profile("flaxattn")

Command = Callable[..., tuple[int, str, str]]
REPOSITORY = Path(__file__).resolve().parent.parent
# Optimisers count steps in int32 and optax multiplies that count with floats.
MIXED_DTYPES = REPOSITORY / "tests" / "train"
# Markers named here (space-separated) may not skip: continuous integration sets it.
MUST_RUN = os.environ.get("FLAXATTN_MUST_RUN", "").split()
MAPPED_REGIONS = Path("/proc/self/maps")
MOST_REGIONS = 50_000  # after a file of tests; one file adds up to about 10,000


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the cases that `@pytest.mark.few("name", …)` does not name.

    `make test` runs the cases whose id contains one of the names, `make all` every case. Those
    marked `float16` are skipped where XLA cannot convert to it.
    """
    named, found = set(), set()
    for item in items:
        function, _, case = item.nodeid.partition("[")
        if case and (mark := item.get_closest_marker("few")):
            matching = {(function, name) for name in mark.args if name in case}
            named |= {(function, name) for name in mark.args}
            found |= matching
            if not matching:
                item.add_marker(pytest.mark.slow)
    if named - found and not any("[" in word for word in sys.argv):
        raise pytest.UsageError(f"marks `few` that name no case: {sorted(named - found)}")
    converting = [item for item in items if item.get_closest_marker("float16")]
    if converting and not float16_works():
        skip = pytest.mark.skip(reason="XLA cannot convert to float16 on this CPU")
        for item in converting:
            item.add_marker(skip)


def float16_works() -> bool:
    """Whether XLA can convert to float16: on a CPU it needs the instructions of F16C."""
    try:
        jax.numpy.ones(1).astype("float16").block_until_ready()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def pytest_collection_finish() -> None:
    """Leave the modules out of every collection of garbage that follows."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Set jax for a test and its fixtures: no implicit promotion of dtypes and ranks, one device.

    Programs for one device compile faster. Tests marked `devices` see all eight.
    """
    mixed = item.path.is_relative_to(MIXED_DTYPES)
    device = None if item.get_closest_marker("devices") else jax.devices()[0]
    jax.config.update("jax_default_device", device)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "standard" if mixed else "strict")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn a skip into a failure where the marker of the test is in FLAXATTN_MUST_RUN.

    Real data stays optional: its skips say which FLAXATTN_ variable would name it.
    """
    report = yield
    names = [name for name in MUST_RUN if item.get_closest_marker(name)]
    optional = "Skipped: FLAXATTN_" in str(report.longrepr)
    if report.skipped and names and not optional and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but {names[0]} tests must run here: {report.longrepr}"
    return report


@pytest.fixture(scope="module", autouse=True)
def programs_fit_the_process() -> Iterator[None]:
    """Drop compiled programs before Linux refuses the process another mapped region.

    XLA maps several regions for each program and ends in a segmentation fault beyond 65,530,
    the kernel's default of `vm.max_map_count`.
    """
    yield
    if MAPPED_REGIONS.exists() and MAPPED_REGIONS.read_bytes().count(b"\n") > MOST_REGIONS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(autouse=True)
def no_figure_stays() -> Iterator[None]:
    """Close what a test drew: pyplot keeps it, and warns whoever draws the 21st."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def coarse_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures of commands and reports with few pixels and a simple layout, which is fast.

    The tests of `flaxattn.views` save figures as users do.
    """
    if request.path.parent.name not in ("commands", "reports"):
        return
    from matplotlib.figure import Figure

    save = Figure.savefig

    def savefig(figure: Figure, *args: Any, **options: Any) -> None:
        figure.set_layout_engine("none")
        save(figure, *args, **options | {"dpi": 20})

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep progress out of what commands print, however slow the machine is."""
    monkeypatch.setattr("flaxattn.pipeline.progress_reporter.DELAY", 1e6)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Command:
    """Types a command: its exit code, and what it printed on either stream."""
    from flaxattn import cli

    def typed(*words: Any) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        return code, *capsys.readouterr()

    return typed


@pytest.fixture
def run(typed: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Types a command in the `folder` of a test file; its report goes to a fresh one."""

    def run(*words: Any, out: str = "report") -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        return typed(*words, "--out", tmp_path / out)

    return run


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def sources() -> dict[str, Path]:
    """Import name -> file of every module in the package, wherever its folder lies."""
    roots = {
        "flaxattn": "flaxattn",
        "kernels": "flaxattn.kernels",
        "train": "flaxattn.train",
        "benchmarks/attention": "flaxattn.benchmarks",
    }
    found = {}
    for folder, package in roots.items():
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


class Reciter(NamedTuple):
    """A GPT-2 that knows one text by heart, each byte being a piece of its vocabulary.

    After n bytes of whatever prompt, the byte of the text at n is the likeliest one; attention is
    random. The text is followed by the piece that ends texts.
    """

    folder: Path
    text: str


@pytest.fixture(scope="session")
def reciter(tmp_path_factory: pytest.TempPathFactory) -> Reciter:
    """The directory of a model that makes every piece of a text predictable."""
    import jax.numpy as jnp
    import numpy as np
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    from flaxattn.models.decoder import DecoderLM
    from flaxattn.models.decoder_config import GPT2Config
    from flaxattn.pretrained import model_directory
    from flaxattn.text.tokenizer import Tokenizer

    text, mark = (
        "Plain words; é, ü, a 😀, 漢字.\n\nA second part: stop here, or go on.",
        "<|endoftext|>",
    )
    tokens = [mark, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = tokenizers.Tokenizer(models.BPE({piece: n for n, piece in enumerate(tokens)}, []))
    backend.add_special_tokens([tokenizers.AddedToken(mark, special=True)])
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = Tokenizer(backend, {"eos_token": mark})
    config = GPT2Config.tiny(
        vocab_size=len(tokens),
        n_embd=64,
        n_layer=1,
        n_head=2,
        n_positions=128,
        bos_token_id=0,
        eos_token_id=0,
    )
    module, noise = DecoderLM(config), np.random.default_rng(3)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 4), jnp.int32))["params"]
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)["model"]
    layers, words = params["decoder"]["layers"], params["words"]["embedding"]
    params["norm"]["scale"] += 1
    layers["attention_norm"]["scale"] += 1
    for name in ("query", "key"):
        kernel = layers["attention"][name]["kernel"]
        kernel += 0.3 * noise.standard_normal(kernel.shape, np.float32)
    words += noise.standard_normal(words.shape, np.float32)
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    ids = [*tokenizer.ids([text])[0], 0]
    params["positions"]["embedding"][: len(ids) - 1] = 4 * words[ids[1:]]
    folder = tmp_path_factory.mktemp("reciter")
    model_directory.save(folder, module, {"model": params}, tokenizer=tokenizer)
    return Reciter(folder, text)


@pytest.fixture(scope="session")
def flaxattn_data() -> Path:
    """The folder of real data that FLAXATTN_DATA names; tests that need it skip without."""
    folder = os.environ.get("FLAXATTN_DATA")
    if not folder:
        pytest.skip("FLAXATTN_DATA is not set")
    return Path(folder)
