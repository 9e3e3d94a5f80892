# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Imports point down only, there is one attention, and nothing runs what it should not.

Read from the source with `ast`; the two subprocess tests check what really gets loaded.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Rooms from the bottom up: a module may import its own level and those below.
LEVELS = [
    {"flaxattn.kernels"},
    {"trace", "text", "corpus", "errors", "files"},
    {"models"},
    {"pretrained", "nnx"},
    {"pipeline"},
    {"store"},
    {"measures"},
    {"views", "attribution", "probes"},
    {"reports"},
    {"flaxattn.benchmarks", "commands", "cli", "__main__"},
    {"flaxattn.train"},
]
# What turns text or ids into attention: views read its traces, never itself.
MODELS = {"models", "pretrained", "pipeline"}
TOP_FILES = 6
NUMERICAL = {"jax", "jaxtyping", "numpy"}
ATTENTION = re.compile(r"def .*dot_product|def attention\(|class \w*Attention\b")
ATTENTION_HOMES = {
    "flaxattn.models.rnn",
    "flaxattn.kernels.attention",
    "flaxattn.kernels.reference",
    "flaxattn.models.multi_head_attention",
}
LAZY = "flaxattn"


def short(module: str) -> str:
    """The room of a module, as `LEVELS` names it."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[1] in ("kernels", "train", "benchmarks") else parts[1]


def level(module: str) -> int:
    for number, names in enumerate(LEVELS):
        if short(module) in names:
            return number
    raise AssertionError(f"{module} is in no room that LEVELS in {Path(__file__).name} knows")


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, known: set[str], *, lazy: bool = True) -> Iterator[str]:
    """Every module that a file imports, also inside functions unless `lazy` is false."""
    tree = parse(path)
    for node in ast.walk(tree) if lazy else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else str(node.module) for name in whole)


@pytest.fixture(scope="module")
def internal(sources: dict[str, Path]) -> dict[str, set[str]]:
    """Module -> the flaxattn modules it imports, without the lazy package file itself."""
    return {
        module: {name for name in imports(path, set(sources)) if name.startswith("flaxattn.")}
        for module, path in sources.items()
        if module != LAZY
    }


def test_imports_point_down(internal: dict[str, set[str]]) -> None:
    allowed = {("flaxattn.cli", "flaxattn.train")}  # the command loads training when it is asked to
    upward = [
        f"{module} imports {name}"
        for module, names in internal.items()
        for name in sorted(names)
        if level(name) > level(module) and (module, short(name)) not in allowed
    ]
    assert not upward


def test_training_is_loaded_by_the_command_only_when_requested(sources: dict[str, Path]) -> None:
    for module, path in sources.items():
        if not module.startswith("flaxattn.train"):
            at_once = list(imports(path, set(sources), lazy=False))
            assert not [name for name in at_once if name.startswith("flaxattn.train")], module


def test_only_training_and_the_entry_point_know_the_command(internal: dict[str, set[str]]) -> None:
    for module, names in internal.items():
        if short(module) not in LEVELS[-1] | LEVELS[-2]:
            assert "flaxattn.cli" not in names, module


def test_few_files_stand_outside_of_rooms(sources: dict[str, Path]) -> None:
    top = [path.name for path in sources.values() if path.parent.name == "flaxattn"]
    assert len(top) <= TOP_FILES, sorted(top)


def test_rooms_of_a_level_import_each_other_without_circles(internal: dict[str, set[str]]) -> None:
    rooms: dict[str, set[str]] = {}
    for module, names in internal.items():
        rooms.setdefault(short(module), set()).update(short(name) for name in names)
    for names in LEVELS:
        pairs = {(one, other) for one in names for other in rooms.get(one, ()) if other in names}
        assert not {(a, b) for a, b in pairs if a != b and (b, a) in pairs}


def test_pages_and_figures_share_payloads_and_nothing_else(internal: dict[str, set[str]]) -> None:
    figures, payloads = "flaxattn.views.figures", "flaxattn.views.payloads"
    for module, imported in internal.items():
        views = {name for name in imported if name.startswith("flaxattn.views.")}
        if module.startswith(figures):
            assert all(name.startswith((figures, payloads)) for name in views), module
        elif module.startswith(payloads):
            assert all(name.startswith(payloads) for name in views), module


def test_views_import_no_model(internal: dict[str, set[str]]) -> None:
    for module, names in internal.items():
        if short(module) == "views":
            assert not {short(name) for name in names} & MODELS, module


def test_kernels_import_numerical_libraries_only(sources: dict[str, Path]) -> None:
    for module, path in sources.items():
        if module.startswith("flaxattn.kernels"):
            tops = {name.split(".")[0] for name in imports(path, set(sources))}
            foreign = tops - NUMERICAL - sys.stdlib_module_names - {"flaxattn"}
            assert not foreign, f"{module} imports {foreign}"


def test_modules_import_each_other_and_not_the_lazy_names(sources: dict[str, Path]) -> None:
    # The command prints the version; plans, reports and what training writes carry it.
    carry = {"store", "measures"}.union(*LEVELS[-3:])
    for module, path in sources.items():
        if module != LAZY and short(module) not in carry:
            assert LAZY not in imports(path, set(sources)), module


def test_nothing_imports_the_tests(sources: dict[str, Path]) -> None:
    for module, path in sources.items():
        names = {name.split(".")[0] for name in imports(path, set(sources))}
        assert not names & {"tests", "conftest", "pytest", "hypothesis"}, module


def test_there_is_one_attention(sources: dict[str, Path]) -> None:
    found = {
        module
        for module, path in sources.items()
        if ATTENTION.search(path.read_text(encoding="utf-8"))
    }
    assert found == ATTENTION_HOMES


SOFTMAX_HOMES = ("flaxattn.kernels.", "flaxattn.models.rnn", "flaxattn.benchmarks.")
PRODUCTS = {"einsum", "matmul", "dot", "tensordot", "inner", "vdot", "dot_general"}


def second_softmax(function: ast.AST) -> bool:
    """Whether a function takes a softmax, or an exponential of a product that it makes."""
    calls = {
        call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
    }
    products = calls & PRODUCTS or any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        for node in ast.walk(function)
    )
    softmax = any(name.removeprefix("_") == "softmax" for name in calls)
    return softmax or bool(calls & {"exp", "exp2"} and products)


def test_there_is_no_second_softmax(sources: dict[str, Path]) -> None:
    found = [
        f"{module}.{node.name}"
        for module, path in sources.items()
        if not module.startswith(SOFTMAX_HOMES)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef) and second_softmax(node)
    ]
    assert not found


def test_a_softmax_is_seen_however_it_is_written() -> None:
    for code in (
        "def f(q, k, lse): return jnp.exp(jnp.einsum('qd,kd->qk', q, k) - lse)",
        "def f(q, k):\n    s = q @ k.T\n    return np.exp(s) / np.exp(s).sum()",
        "def f(s): return jax.nn.softmax(s)",
    ):
        assert second_softmax(ast.parse(code).body[0])
    assert not second_softmax(ast.parse("def f(x): return np.exp(x)").body[0])


def test_nothing_unpickles_or_evaluates(sources: dict[str, Path]) -> None:
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    for module, path in sources.items():
        assert not {name.split(".")[0] for name in imports(path, set(sources))} & unsafe, module
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), module
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, module


def test_browser_code_names_no_address_and_evaluates_nothing(repository: Path) -> None:
    assets = [path for path in (repository / "flaxattn/views/assets").iterdir() if path.is_file()]
    assert assets
    for path in assets:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?:|\bfetch\s*\(|XMLHttpRequest|@import", text), path
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)  # types are imported in comments
        assert not re.search(r"\bimport\s*\(", code), path
        assert not re.search(r"\beval\s*\(|new Function|document\.write|\.innerHTML\b", text), path


def loaded_by(statement: str, folder: Path) -> set[str]:
    """The names in sys.modules after a statement in a new interpreter, away from the repository."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_flaxattn_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_by("import flaxattn", tmp_path)
    assert not loaded & {"jax", "numpy", "flax", "matplotlib", "tokenizers", "typer", "rich"}


def test_importing_a_kernel_loads_no_model(tmp_path: Path) -> None:
    loaded = loaded_by("import flaxattn.kernels.reference", tmp_path)
    ours = {name for name in loaded if name.startswith("flaxattn.")}
    assert {name for name in ours if not name.startswith("flaxattn.kernels")} == set()
    assert not loaded & {"flax", "optax", "torch", "tokenizers", "matplotlib"}
