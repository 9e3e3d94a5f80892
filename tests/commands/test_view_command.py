# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn view` of trace files and stores: the same page as from Python, figures beside it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import store_cases
from page_payload import payload_of

import flaxattn as fa
from flaxattn import cli, compare_view, contributions, head_view
from flaxattn.commands.view import VIEWS
from flaxattn.store.open_store import open_store
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page


def run(capsys, *words):
    """Exit code, standard output and standard error."""
    code = cli.main(list(map(str, words)))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder with a store of seven texts and a file with two of them."""
    folder = tmp_path_factory.mktemp("view")
    store_cases.write(folder / "store", store_cases.traces("encoder"))
    Trace.from_arrays(np.full((2, 2, 2, 3, 3), 1 / 3, np.float32), [list("abc"), list("def")]).save(
        folder / "two.safetensors"
    )
    return folder


def test_a_trace_file_becomes_the_page_that_python_makes(capsys, places, tmp_path):
    page = tmp_path / "a.html"
    code, out, _ = run(capsys, "view", places / "two.safetensors", "-o", page)
    assert code == 0 and str(page) in out
    trace = Trace.load(places / "two.safetensors")
    assert page.read_text(encoding="utf-8") == head_view(trace).html
    words = ("--example", 1, "--layers", "1", "--heads", "0-1", "-o", page)
    assert run(capsys, "view", places / "two.safetensors", *words)[0] == 0
    expected = head_view(trace[1], include_layers=[1], heads=[0, 1]).html
    assert page.read_text(encoding="utf-8") == expected


@pytest.mark.slow
def test_texts_of_a_store_by_number_and_by_id(capsys, places, tmp_path):
    store = open_store(places / "store")
    page = tmp_path / "a.html"
    assert run(capsys, "view", places / "store", "-o", page)[0] == 0
    assert page.read_text(encoding="utf-8") == head_view(store[0]).html
    words = ("--example", -1, "--id", "corpus.txt:3", "--layer", 3, "-o", page)
    code, out, _ = run(capsys, "view", places / "store", *words)
    assert code == 0 and out.count("wrote ") == 2
    for number in (6, 2):
        text = (tmp_path / f"a-{number}.html").read_text(encoding="utf-8")
        assert text == head_view(store[number], layer=3).html


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_a_figure_is_written_beside_the_page(capsys, places, tmp_path, kind):
    figure = tmp_path / f"a.{kind}"
    words = ("--layer", 0, "--heads", "1", "--save-figure", figure, "-o", tmp_path / "a.html")
    code, out, _ = run(capsys, "view", places / "two.safetensors", *words)
    assert code == 0 and out.count("wrote ") == 2
    start = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[kind]
    assert figure.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.safetensors"], "There is no trace file 'none.safetensors'."),
        (["store", "--id", "no"], "has the id 'no'"),
        (["store", "--example", "7"], "has examples 0 to 6; there is no 7"),
        (["two.safetensors", "--example", "2"], "has sequences 0 to 1; there is no 2"),
        (["two.safetensors", "--id", "a"], "it goes with a store; the source is a file."),
        (["two.safetensors", "b"], "it goes with a text; the source is a file."),
        (["two.safetensors", "--serve"], "it goes with a store; the source is a file."),
        (["a text", "--example", "1"], "with a store or a trace file; the source is a text."),
        (["store/shards"], "is not a store of attention: plan.json cannot be read"),
        (["store/plan.json"], "is not a trace. To read the text in it: flaxattn view - < FILE"),
        (["two.safetensors", "--layers", "0,x"], "'0,x' is not a list of numbers"),
        (["two.safetensors", "--layers", "5"], "There is no layer 5."),
        (
            ["a text", "--weights", "flow"],
            "'flow' is not one of norm, rollout, effective, relevance, ",
        ),
        (["store", "--weights", "norm"], "norm needs the model that read a text; the source is a"),
        (["store", "--weights", "rollout", "--serve"], "it goes with one page, not with --serve."),
        (["store", "store", "--weights", "rollout"], "it goes with one source, received two."),
        (["store", "store", "--save-figure", "a.png"], "of two stores, name a text: --example 0."),
        (["two.safetensors", "two.safetensors", "--id", "a"], "it goes with stores; these are"),
        (["two.safetensors", "--save-figure", "a.jpg"], "'a.jpg' is not one of .svg, .pdf, .png."),
        (["two.safetensors", "--save-figure", "no/a.svg"], "in a folder that does not exist"),
        (["store", "--serve", "--port", "70000"], "Port 70000 of 127.0.0.1 cannot be used"),
    ],
)
def test_wrong_use_is_refused_in_three_lines(capsys, places, monkeypatch, words, message):
    monkeypatch.chdir(places)
    code, _, err = run(capsys, "view", *words, "-o", "page.html")
    assert code == 2 and message in err
    assert len(err.splitlines()) <= 3 and err.startswith("error: ")


def test_the_text_level_has_a_page_and_no_figure(capsys, tmp_path):
    page, figure = tmp_path / "a.html", tmp_path / "a.png"
    assert run(capsys, "view", "Straße", "--view", "text", "-o", page)[0] == 0
    assert '"level":"text"' in page.read_text(encoding="utf-8")
    code, _, err = run(
        capsys, "view", "Straße", "--view", "text", "-o", page, "--save-figure", figure
    )
    assert code == 2 and "plot_state draws no running text" in err and not figure.exists()


@pytest.mark.slow
@pytest.mark.few("all")
@pytest.mark.parametrize("view", [view for view in VIEWS if view != "text"])
def test_every_view_of_a_text_has_a_page_and_a_figure(capsys, tmp_path, view):
    page, figure = tmp_path / "a.html", tmp_path / "a.png"
    words = ("--view", view, "--layer", 1, "-o", page, "--save-figure", figure)
    assert run(capsys, "view", "The cat is very sad.", *words)[0] == 0
    text = page.read_text(encoding="utf-8")
    level = "atlas" if view == "all" else view
    assert re.search(rf'"level":"{level}"', text) and figure.read_bytes().startswith(b"\x89PNG")
    levels = ["atlas", "model", "head", "text", *(["neuron"] if view in ("neuron", "all") else [])]
    assert f'"levels":{json.dumps(levels, separators=(",", ":"))}' in text


@pytest.mark.slow
def test_pages_of_language_models_say_what_was_predicted(capsys, tmp_path):
    page = tmp_path / "a.html"
    assert run(capsys, "view", "It was late.", "--model", "tiny-gpt2", "-o", page)[0] == 0
    model = fa.from_pretrained("tiny-gpt2")
    trace = fa.logit_contributions(model, model.trace("It was late.", predictions=5))
    assert page.read_text(encoding="utf-8") == head_view(trace).html
    assert run(capsys, "view", "march 5", "2000-03-05", "--model", "tiny-dates", "-o", page)[0] == 0
    trace = fa.from_pretrained("tiny-dates").trace("march 5", "2000-03-05", predictions=5)
    assert page.read_text(encoding="utf-8") == head_view(trace).html
    assert run(capsys, "view", "The cat is sad.", "-o", page)[0] == 0
    assert '"predictions"' not in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_other_weights_of_a_text_and_of_a_file_are_computed(capsys, places, tmp_path):
    page, figure = tmp_path / "a.html", tmp_path / "a.png"
    words = ("--weights", "norm,rollout,effective", "-o", page, "--save-figure", figure)
    assert run(capsys, "view", "The cat is sad.", *words)[0] == 0
    text = page.read_text(encoding="utf-8")
    for part in ('"weights":"norm"', '"label":"rollout"', '"label":"effective attention"'):
        assert part in text
    assert "neuron" not in payload_of(Page("", text, ""))["levels"]
    assert figure.read_bytes().startswith(b"\x89PNG")
    words = ("--weights", "rollout", "-o", page)
    assert run(capsys, "view", places / "two.safetensors", *words)[0] == 0
    trace = Trace.load(places / "two.safetensors")
    expected = head_view(trace, weights=contributions(trace), state={"weights": "rollout"}).html
    assert page.read_text(encoding="utf-8") == expected


@pytest.mark.slow
def test_relevance_of_a_text_is_shown_beside_norms(capsys, tmp_path):
    page = tmp_path / "a.html"
    words = ("--weights", "chefer,norm,relevance", "-o", page)
    assert run(capsys, "view", "The cat is sad.", *words)[0] == 0
    text = page.read_text(encoding="utf-8")
    for part in ('"weights":"chefer"', '"label":"relevance (AttnLRP)"', '"norm":{"label":'):
        assert part in text


@pytest.mark.slow
def test_the_effect_of_ablation_is_measured_on_the_text(capsys, tmp_path):
    page, figure = tmp_path / "a.html", tmp_path / "a.png"
    words = ("--weights", "ablation", "--view", "atlas", "-o", page, "--save-figure", figure)
    assert run(capsys, "view", "The cat is sad.", *words)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert '"measure":"ablation"' in text and "mean over 1 text, whose loss is" in text
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_two_files_and_two_stores_are_compared(capsys, places, tmp_path):
    page, figure = tmp_path / "a.html", tmp_path / "a.svg"
    other = np.random.default_rng(0).dirichlet(np.ones(3), (2, 2, 2, 3)).astype(np.float32)
    after = Trace.from_arrays(other, [list("abc"), list("def")])
    after.save(tmp_path / "after.safetensors")
    before = Trace.load(places / "two.safetensors")
    paths = (places / "two.safetensors", tmp_path / "after.safetensors")
    assert run(capsys, "view", *paths, "-o", page, "--save-figure", figure)[0] == 0
    names = ("two.safetensors", "after.safetensors")
    assert page.read_text(encoding="utf-8") == compare_view(before, after, names).html
    assert figure.read_bytes().startswith(b"<?xml")
    pair = [store_cases.write(tmp_path / n, store_cases.traces("encoder")) for n in ("a", "b")]
    stores = [open_store(path) for path in pair]
    assert run(capsys, "view", *pair, "-o", page, "--layer", 3)[0] == 0
    assert page.read_text(encoding="utf-8") == compare_view(*stores, ("a", "b"), layer=3).html
    assert run(capsys, "view", *pair, "-o", page, "--example", -1)[0] == 0
    expected = compare_view(stores[0][-1], stores[1][-1], ("a", "b")).html
    assert page.read_text(encoding="utf-8") == expected


@pytest.mark.slow
def test_a_store_is_served_until_somebody_stops_it(places):
    words = [sys.executable, "-m", "flaxattn", "view", str(places / "store"), "--serve"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipe = {"stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([*words, "--port", "0"], **pipe) as process:
        try:
            line = process.stdout.readline()
            address = r"7 texts at http://127\.0\.0\.1:(\d+)(/[\w-]{20,}/)"
            port, path = re.search(address, line).groups()
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
            connection.request("GET", path)
            assert 'href="text/6"' in connection.getresponse().read().decode()
            connection.close()
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == "stopped\n"
            assert process.wait(20) == 0
        finally:
            process.kill()
