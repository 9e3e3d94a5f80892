# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Modules are joined in the order of their imports, and what cannot be joined is refused."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flaxattn.views.page import link

HEADER = "// A licence.\n// What it is.\n\n"


def joined(**files: str) -> str:
    """What a page gets of some modules; `main` is the first."""

    def read(name: str) -> str:
        try:
            return HEADER + files[name.removesuffix(".js")]
        except KeyError:
            raise FileNotFoundError(name) from None

    return link("main.js", read)


def test_a_module_follows_those_it_imports():
    imports = 'import {\n  two,\n  three,\n} from "./b.js";\nimport { one } from "./a.js";\n'
    text = joined(
        main=f"{imports}start(one, two);\n",
        a="export const one = 1;\n",
        b='import { one } from "./a.js";\n\n/** Two. */\nexport function two() {}\n'
        "export class three {}\n",
    )
    assert text == (
        '"use strict";\nconst one = 1;\n\nfunction two() {}\nclass three {}\n\nstart(one, two);\n'
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"main": 'import { a } from "./x.js";\n'}, r"^main.js imports x.js: no such file\.$"),
        (
            {"main": 'import { a } from "./x.js";\n', "x": "const a = 1;\n"},
            r"^main.js imports a from x.js, which does not export it\.$",
        ),
        (
            {"main": 'import { a } from "./x.js";\nlet b;\n', "x": "export let a;\nclass b {}\n"},
            r"^main.js declares b, which x.js declares too\.$",
        ),
        (
            {"main": 'import { a } from "./x.js";\n', "x": 'import { b } from "./main.js";\n'},
            r"^main.js imports x.js imports main.js: modules import in a circle\.$",
        ),
        ({"main": "export default 3;\n"}, r"'export default 3;' is not understood here"),
        ({"main": 'import * as a from "./a.js";\n'}, r"is not understood here"),
        ({"main": "const { a } = b;\n"}, r"is not understood here"),
        ({"main": "export const { a } = b;\n"}, r"is not understood here"),
    ],
)
def test_what_cannot_be_joined_is_refused(files, message):
    with pytest.raises(ValueError, match=message):
        joined(**files)


def test_every_asset_is_in_a_page_that_needs_it(repository: Path):
    folder = repository / "flaxattn/views/assets"
    modules = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.js")}
    parts = {part: part for part in ("neuron", "claims", "predictions")} | {"compare": "together"}
    both = ("compare_claims", "neuron_predictions")
    entries = ("main.js", *(f"main_{name}.js" for name in (*parts, *both)))
    requested: dict[str, list[str]] = {entry: [] for entry in entries}
    for entry, names in requested.items():
        link(entry, lambda name, names=names: names.append(name) or modules[name])
    assert set().union(*requested.values()) == set(modules) - {"types.js"}
    for name, part in parts.items():
        for other in (entry for entry in entries if name not in entry):
            assert {module for module in modules if part in module}.isdisjoint(requested[other])


def test_python_and_the_page_know_the_same_settings(repository: Path):
    from flaxattn.views.payloads.page_encoding import SETTINGS

    text = (repository / "flaxattn/views/assets/settings.js").read_text(encoding="utf-8")
    (table,) = re.findall(r"^export const SETTINGS = \{\n(.*?)^\};", text, re.M | re.S)
    rows = dict(re.findall(r"^  (\w+): \[(.*)\],$", table, re.M))
    (pairs,) = re.findall(r"^export const ATTENTION = \[\n(.*?)^\];", text, re.M | re.S)
    found = {name: tuple(json.loads(f"[{row}]")) for name, row in rows.items()}
    found["attention"] = tuple(re.findall(r'^  \["(\w+)"', pairs, re.M))
    assert found == SETTINGS


def test_types_of_the_browser_code_hold(repository: Path):
    program = shutil.which("tsc", path=str(repository / "tests/views/node_modules/.bin"))
    if program is None:
        pytest.skip("typescript is not installed: make lint does it where npm is")
    run = subprocess.run(
        [program, "-p", str(repository / "tests/views/jsconfig.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
