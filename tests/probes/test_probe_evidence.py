# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn probe` tells which sentences show its best heads: most is on the right words."""

import json

import numpy as np
import pytest
from page_payload import payload_of

from flaxattn import cli
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.probes.governor_probe import Watched, arc_weights
from flaxattn.probes.word_records import word_maps
from flaxattn.views.page import Page

FORMS = "a b c the cat is very sad , .".split()


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("probe")
    bert.save_pretrained(folder / "model")
    blocks = []
    for number in range(12):
        lines = [f"# sent_id = s{number}"]
        for place in range(1, int(rng.integers(4, 8))):
            relation = "root" if place == 1 else str(rng.choice(["nsubj", "obj:x"]))
            governor = int(rng.integers(1, place)) if place > 1 else 0
            form = rng.choice(FORMS)
            lines.append(f"{place}\t{form}\t_\tX\t_\t_\t{governor}\t{relation}\t_\t_")
        blocks.append("\n".join(lines) + "\n\n")
    (folder / "a.conllu").write_text("".join(blocks), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def maps(bert, folder):
    return list(word_maps(bert, read_sentences([folder / "a.conllu"], BadRows())))


def means(words, relation, layer, head):
    """Attention along arcs, one after the other."""
    places = [
        p
        for p, name in enumerate(words.relations)
        if words.governors[p] >= 0 and relation in ("any", name, name.split(":")[0])
    ]
    weights = words.weights[layer, head]
    found = [(weights[p, words.governors[p]], weights[words.governors[p], p]) for p in places]
    return np.mean(found, 0) if found else None


@pytest.mark.parametrize("relation", ["any", "nsubj", "obj", "obj:x"])
def test_weights_along_arcs(maps, relation):
    for words in maps:
        found = arc_weights(words)
        for layer, head in np.ndindex(2, 2):
            expected = means(words, relation, layer, head)
            if expected is None:
                assert ("to governor", relation) not in found
                continue
            ours = [found[f"{way} governor", relation][layer, head] for way in ("to", "from")]
            np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_sentences_are_watched_on_their_way(maps):
    watched = Watched(2)
    assert list(watched(maps)) == maps
    scores = [means(words, "any", 1, 0)[0] for words in maps]
    best = np.argsort(-np.array(scores), kind="stable")[:2].tolist()
    assert [t.text for t in watched.evidence.of(("to governor", "any"), 1, 0)] == best
    assert watched.names.keys() == watched.evidence.texts()


@pytest.mark.slow
def test_the_report_leads_to_sentences(folder, maps, tmp_path, capsys):
    words = ("probe", folder / "a.conllu", "--model", folder / "model", "-o", tmp_path / "r")
    assert cli.main([str(word) for word in (*words, "--evidence", 3)]) == 0, capsys.readouterr().err
    facts = json.loads((tmp_path / "r" / "probe.json").read_text(encoding="utf-8"))
    for one, claim in zip(facts["relations"], facts["evidence"]["claims"], strict=True):
        assert (one["relation"], one["layer"], one["head"]) == tuple(
            claim[n] for n in ("name", "layer", "head")
        )
        way = one["direction"] == "from governor"
        scores = {
            number: means(words, one["relation"], one["layer"], one["head"])
            for number, words in enumerate(maps)
        }
        best = sorted((-s[int(way)], n) for n, s in scores.items() if s is not None)[:3]
        assert [text["text"] for text in claim["texts"]] == [number for _, number in best]
    numbers = facts["evidence"]["texts"]
    assert all(text["id"] == f"s{number}" for number, text in numbers.items())
    page = (tmp_path / "r" / "probe.html").read_text(encoding="utf-8")
    assert "Heads that find governors" in page
    assert '"levels":["claims","model","head","text"]' in page
    held = payload_of(Page("", page, ""))
    claimed = {claim["name"] for claim in held["report"]["claims"]}
    pairs = [shaped["sides"][0].get("pairs", []) for shaped in held["inputs"]]
    assert {one["name"] for some in pairs for one in some} == claimed, (
        "each relation has gold pairs in some text"
    )
