# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The wheel holds exactly the files of the folders, under one name, and nothing is shadowed.

The mapping of `kernels/` and `train/` into the package makes each of these worth a check: a file
that is not listed works from a checkout and is silently absent from the wheel.
"""

import ast
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

FOLDERS = {
    "flaxattn": "flaxattn",
    "kernels": "flaxattn/kernels",
    "train": "flaxattn/train",
    "benchmarks/attention": "flaxattn/benchmarks",
}
BUILT_IN = {"tiny-bert": 16, "tiny-dates": 8, "tiny-gpt2": 12}  # most megabytes of each
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the tree, so that no build folder is left in it."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, copy)
    for name in FOLDERS:
        shutil.copytree(repository / name, copy / name, ignore=unwanted)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out", "."]
    run = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return zipfile.ZipFile(next((copy / "out").glob("*.whl")))


def unwanted(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__" or name.startswith(".")]


@pytest.mark.slow
def test_the_wheel_has_one_top_level_name(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"flaxattn"}


@pytest.mark.slow
def test_the_wheel_holds_the_files_of_the_folders(wheel: zipfile.ZipFile, repository: Path) -> None:
    expected = set()
    for folder, target in FOLDERS.items():
        for path in (repository / folder).rglob("*"):
            inside = path.relative_to(repository / folder)
            if path.is_file() and not unwanted("", list(inside.parts)):
                expected.add(f"{target}/{inside.as_posix()}")
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == expected


@pytest.mark.parametrize("model", BUILT_IN)
def test_built_in_models_are_in_the_wheel_and_small(wheel: zipfile.ZipFile, model: str) -> None:
    folder = f"flaxattn/pretrained/{model}/"
    entries = [entry for entry in wheel.infolist() if entry.filename.startswith(folder)]
    names = {entry.filename.removeprefix(folder) for entry in entries}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert sum(entry.file_size for entry in entries) <= BUILT_IN[model] * MEGABYTE


def test_the_wheel_carries_licence_types_and_command(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "flaxattn/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    points = next(name for name in names if name.endswith("entry_points.txt"))
    assert "flaxattn = flaxattn.cli:main" in wheel.read(points).decode()


def run_python(script: str, folder: Path) -> str:
    """What a script prints in a new interpreter that starts in `folder`."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", script]
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_an_installed_flaxattn_exposes_no_kernels_or_train(
    tmp_path: Path, repository: Path
) -> None:
    script = "from importlib.util import find_spec\nprint(find_spec('kernels'), find_spec('train'))"
    assert str(repository) not in run_python(script, tmp_path)


def test_tests_do_not_see_the_folders_as_packages(repository: Path) -> None:
    assert str(repository) not in sys.path and "" not in sys.path, (
        "run pytest, not python -m pytest"
    )


def test_every_public_name_is_declared_lazy_and_for_type_checkers(repository: Path) -> None:
    tree = ast.parse((repository / "flaxattn/__init__.py").read_text(encoding="utf-8"))
    checking = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {alias.asname for node in ast.walk(checking) for alias in getattr(node, "names", [])}
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert declared == set(values["_HOMES"]) == set(values["__all__"]) - {"__version__"}


def test_every_public_name_loads() -> None:
    import flaxattn

    for name in flaxattn.__all__:
        assert getattr(flaxattn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        _ = flaxattn.atention  # pyright: ignore[reportAttributeAccessIssue]  # the mistake tested


def test_the_listed_packages_are_the_folders(repository: Path) -> None:
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    inits = [
        path.parent for folder in FOLDERS for path in (repository / folder).rglob("__init__.py")
    ]
    found = {path.relative_to(repository).as_posix() for path in inits}
    mapped = {FOLDERS.get(name, name).replace("/", ".") for name in found}
    assert mapped == set(settings["tool"]["setuptools"]["packages"])


def test_make_all_knows_every_room_and_its_stages_can_run(repository: Path) -> None:
    """`.ci/all` runs the tests of each folder once, and depends on files that exist."""
    every = runpy.run_path(str(repository / ".ci/all"))
    levels = runpy.run_path(str(repository / "tests/test_layering.py"))["LEVELS"]
    rooms = [{name.removeprefix("flaxattn.") for name in level} for level in levels]
    assert [set(level) for level in every["ROOMS"]] == [
        kept
        for level in rooms
        if (kept := {r for r in level if (repository / "tests" / r).is_dir()})
    ]
    stages = every["stages"]()
    assert len({stage.name for stage in stages}) == len(stages)
    for stage in stages:
        assert isinstance(stage.command, str) and set(stage.rooms) <= set(every["EVERY"]), stage
        for path in stage.depends_on():
            name = path.removeprefix(":(glob)")
            assert list(repository.glob(name)), f"{stage.name}: {path}"
    tested = {f"tests/{path.name}" for path in (repository / "tests").iterdir() if path.is_dir()}
    commands = " ".join(stage.command for stage in stages)
    for folder in tested - {"tests/fixtures", "tests/golden", "tests/downstream", "tests/aot"}:
        assert folder.endswith("__pycache__") or folder in commands, folder
