# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every command on every built-in model succeeds, or refuses in at most three plain lines.

None of them loads transformers or torch.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import report_cases

from flaxattn import cli

pytestmark = pytest.mark.usefixtures("one_device")

MODELS = ("tiny-bert", "tiny-gpt2", "tiny-dates")
FEW = ("--limit", "2")
# Words of each command; {m} is the model, {s} a store of it, and [] what goes to standard input.
COMMANDS = {
    "view text": "view 12.07.2003 --model {m} --out page.html",
    "view pair": "view 12.07.2003 2003-07-12 --model {m} --out page.html",
    "view stdin": "view - --model {m} --out page.html",
    "view all": "view 12.07.2003 --view all --model {m} --out page.html",
    "view store": "view {s} --out page.html",
    "extract": "extract trees.txt --model {m} --out again",
    "store info": "store info {s}",
    "store verify": "store verify {s}",
    "store export": "store export {s} --format npz --out exported",
    "search build": "search build trees.txt --layer 1 --model {m} --out index",
    "generate": "generate 12.07 --max-new-tokens 3 --model {m}",
    "translate": "translate dates.txt --model {m}",
    "demo": "demo --model {m} --out demo",
    "stats": "stats trees.conllu --limit 2 --model {m} --out report",
    "stats store": "stats {s} --limit 2 --out report",
    "roles": "roles trees.conllu --limit 2 --drawings 1 --repeats 2 --model {m} --out report",
    "roles store": "roles {s} --limit 2 --out report",
    "probe": "probe trees.conllu --model {m} --out report",
    "probe pronouns": "probe gap.tsv --pronouns gap --model {m} --out report",
    "compare": "compare {m} {m} trees.txt --limit 2 --out report",
    "ablate": "ablate trees.txt --limit 2 --model {m} --out report",
    "weights": "weights trees.txt --limit 2 --model {m} --out report",
    "doctor": "doctor",
}
REFUSED = {
    ("view pair", "tiny-gpt2"),
    ("search build", "tiny-dates"),
    ("generate", "tiny-bert"),
    ("generate", "tiny-dates"),
    ("translate", "tiny-bert"),
    ("translate", "tiny-gpt2"),
    ("probe", "tiny-gpt2"),
    ("probe", "tiny-dates"),
    ("probe pronouns", "tiny-gpt2"),
    ("probe pronouns", "tiny-dates"),
    ("compare", "tiny-dates"),
    ("ablate", "tiny-dates"),
}
QUICK = ("view text", "view pair", "view stdin", "view store", "store info", "generate")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    report_cases.write_inputs(folder)
    dates = "".join(f"{date}\n" for date, _ in report_cases.DATES)
    (folder / "dates.txt").write_text(dates, encoding="utf-8")
    return folder


def cases() -> list:
    return [
        pytest.param(name, model, marks=() if name in QUICK else pytest.mark.slow)
        for model in MODELS
        for name in COMMANDS
    ]


@pytest.mark.parametrize(("name", "model"), cases())
def test_it_succeeds_or_is_refused(
    name: str,
    model: str,
    folder: Path,
    tmp_path: Path,
    typed: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = folder / f"store-{model}"
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "transformers", None)  # so that importing it fails
    loaded = set(sys.modules)
    if "{s}" in COMMANDS[name] and not store.exists():
        assert cli.main(["extract", "trees.txt", "--model", model, "--out", str(store)]) == 0
    words = COMMANDS[name].format(m=model, s=store).split()
    if "--out" in words:
        words[words.index("--out") + 1] = str(tmp_path / words[words.index("--out") + 1])
    if "-" in words:
        text = (folder / "dates.txt").read_text(encoding="utf-8")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, out, err = typed(*words)
    assert "torch" not in sys.modules.keys() - loaded
    if (name, model) in REFUSED:
        assert code == 2 and not out
        assert err.startswith("error: ") and len(err.strip().splitlines()) <= 3
    else:
        assert code == 0, err
        assert "Traceback" not in err
