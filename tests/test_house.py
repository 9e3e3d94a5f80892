# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a machine can check: sizes, docstrings, headers, the ledger."""

import ast
import functools
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS = 800, 120, 12
Function = ast.FunctionDef | ast.AsyncFunctionDef
SKIPPING = {"skip", "skipif", "xfail", "importorskip", "skipTest"}


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


# Parameters of a command are its options, typed one by one and by name.
COMMANDS = {"cli", "commands"}


def parameters(function: Function) -> list[ast.arg]:
    spec = function.args
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    return [argument for argument in every if argument.arg not in ("self", "cls")]


def public(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Public functions, classes and methods, by dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | Function) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{prefix}{child.name}.")


def python_files(repository: Path) -> list[Path]:
    folders = ("flaxattn", "kernels", "train", "tests")
    return [path for folder in folders for path in sorted((repository / folder).rglob("*.py"))]


def test_no_file_is_long(sources: dict[str, Path]) -> None:
    for path in sources.values():
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        code = [line for line in lines if line and not line.startswith("#")]
        assert len(code) <= MAX_FILE, f"{path.name}: {len(code)} lines of code"


def test_no_function_is_long_or_takes_many_arguments(sources: dict[str, Path]) -> None:
    for path in sources.values():
        for node in ast.walk(parse(path)):
            if isinstance(node, Function):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                where = f"{path.name}:{node.lineno} {node.name}"
                assert size <= MAX_FUNCTION, f"{where}: {size} lines"
                count = len(parameters(node))
                # The documented function on arrays: its options are its interface.
                door = path.parent.name == "kernels" and node.name == "attention"
                if path.stem not in COMMANDS and path.parent.name != "commands" and not door:
                    assert count <= MAX_PARAMETERS, f"{where}: {count} parameters"


def test_every_file_opens_with_its_licence_and_says_what_it_is(repository: Path) -> None:
    for path in python_files(repository):
        text = path.read_text(encoding="utf-8")
        header = r"(#!.*\n)?# SPDX-FileCopyrightText: .+\n# SPDX-License-Id\S+: \S+\n"
        assert re.match(header, text), f"{path}: the two SPDX lines"
        assert re.match(header + r'(#.*\n)*\n*r?"{3}', text), f"{path}: module docstring"


def test_public_names_are_documented(sources: dict[str, Path]) -> None:
    documented, missing = 0, []
    for module, path in sources.items():
        for name, node in public(parse(path)):
            if ast.get_docstring(node):
                documented += 1
            else:
                missing.append(f"{module}.{name}")
    share = documented / max(1, documented + len(missing))
    assert share >= 0.95, f"{share:.1%} have a docstring; without: {missing}"


def test_public_arguments_are_annotated(sources: dict[str, Path]) -> None:
    bare = [
        f"{module}.{name}({argument.arg})"
        for module, path in sources.items()
        for name, node in public(parse(path))
        if isinstance(node, Function)
        for argument in parameters(node)
        if argument.annotation is None
    ]
    assert not bare


def test_suppressions_are_few_and_give_a_reason(sources: dict[str, Path]) -> None:
    found, lines = [], 0
    for path in sources.values():
        text = path.read_text(encoding="utf-8")
        lines += sum(bool(line.strip()) for line in text.splitlines())
        for match in re.finditer(r"#\s*(?:type:\s*ignore|pyright:\s*ignore|noqa)(.*)", text):
            found.append(f"{path.name}: {match.group(0)}")
            assert re.search(r"[#-]\s+\w+ \w+", match.group(1)), f"no reason given: {found[-1]}"
    assert len(found) <= max(2, lines * 2 / 1000), found


def test_no_loose_ends_and_no_path_of_a_machine(repository: Path) -> None:
    ends = re.compile(
        r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b"
    )
    machine = re.compile(r"(?<![\w.])/(?:tmp|work|farm|home|root|Users)/\w")
    files = [*python_files(repository), *repository.glob("*.md"), *repository.glob("*.toml")]
    files += [*(repository / "flaxattn/views/assets").iterdir(), repository / "Makefile"]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not ends.search(text), f"{path}: {ends.search(text)}"
        assert not machine.search(text), f"{path}: {machine.search(text)}"


def skips(node: ast.AST, scope: str = "") -> Iterator[str]:
    """The name of the function around each skip in a test file, empty for the module itself."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute) and child.attr in SKIPPING:
            yield scope
        inner = scope
        if isinstance(child, Function | ast.ClassDef):
            inner = f"{scope}.{child.name}".removeprefix(".")
        yield from skips(child, inner)


def test_the_ledger_lists_every_skip_and_no_other(repository: Path) -> None:
    ledger = (repository / "tests/QUARANTINE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", ledger, flags=re.MULTILINE)
    found = set()
    for path in sorted((repository / "tests").rglob("*.py")):
        if not any(word in path.read_text(encoding="utf-8") for word in SKIPPING):
            continue  # parsing takes time
        name = path.relative_to(repository).as_posix()
        found |= {f"{name}::{scope}" if scope else name for scope in skips(parse(path))}
    listed = {where for where, _, _ in rows}
    assert not found - listed, "a skip without a row in tests/QUARANTINE.md"
    assert not listed - found, "a row in tests/QUARANTINE.md without a skip"


@pytest.mark.parametrize("name", ["kernels", "train"])
def test_the_typings_links_lead_to_the_folders(repository: Path, name: str) -> None:
    link = repository / "typings/flaxattn" / name
    assert link.resolve() == repository / name
    assert not link.readlink().is_absolute()


def test_mapped_folders_stay_flat(repository: Path) -> None:
    for name in ("kernels", "train"):
        folders = [path for path in (repository / name).iterdir() if path.is_dir()]
        assert not [path.name for path in folders if path.name != "__pycache__"]


def test_tests_that_import_an_oracle_are_marked_for_make_parity(repository: Path) -> None:
    for path in sorted((repository / "tests").rglob("test_*.py")):
        if "importorskip" not in path.read_text(encoding="utf-8"):
            continue
        for node in parse(path).body:
            if isinstance(node, Function) and re.search(r"\bimportorskip\(", ast.unparse(node)):
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                assert "pytest.mark.parity" in marks, f"{path.name}:{node.lineno} {node.name}"


def test_no_test_chooses_how_programs_are_compiled(repository: Path) -> None:
    """`make test` compiles in haste; a file that sets the option back slows those after it."""
    option = "jax_disable_most_" + "optimizations"
    for path in sorted((repository / "tests").rglob("*.py")):
        assert option not in path.read_text(encoding="utf-8"), path.name


def test_no_local_name_hides_an_import(sources: dict[str, Path]) -> None:
    hidden = []
    for path in sources.values():
        imports = [
            node for node in parse(path).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        imported = {(alias.asname or alias.name) for node in imports for alias in node.names}
        for function in (node for node in ast.walk(parse(path)) if isinstance(node, Function)):
            local = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
            local |= {
                node.id
                for node in ast.walk(function)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            hidden += [f"{path.name}:{function.lineno} {name}" for name in local & imported]
    assert not hidden


def test_names_of_the_package_that_tests_use_exist() -> None:
    """A renamed function is noticed here, and not first in a slow test that replaces it."""
    absent = []
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        tree, modules = parse(path), dict[str, ModuleType]()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flaxattn."):
                package = importlib.import_module(node.module or "")
                for alias in node.names if hasattr(package, "__path__") else ():
                    if importlib.util.find_spec(f"{node.module}.{alias.name}"):
                        module = importlib.import_module(f"{node.module}.{alias.name}")
                        modules[alias.asname or alias.name] = module
        for node in ast.walk(tree):
            owner, name = None, ""
            if isinstance(node, ast.Attribute):
                owner, name = node.value, node.attr
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
                owner, name = node.args[0], getattr(node.args[1], "value", "")
            module = modules.get(owner.id) if isinstance(owner, ast.Name) else None
            if module and name and isinstance(name, str) and not hasattr(module, name):
                absent.append(f"{path.name}:{node.lineno} {module.__name__}.{name}")
    assert not absent
