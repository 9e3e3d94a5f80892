# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page of one head in the browser: its sentence, numbers, marked examples, links, keyboard."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hostile_texts import SHAPES, texts

from flaxattn.measures.claims import Claim, TopText
from flaxattn.measures.gold_pairs import STRONGEST, GoldPair, GoldPairs, PairExamples, judged_pairs
from flaxattn.text.tokens import token_spans
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.payloads.report_payload import HeadPages, MeasuredEffects

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FAMILY = "👩‍👩‍👧"
LONG = "far " * 40 + "Straße here" + " off" * 40
WRITTEN = {2: f"Straße {FAMILY} İstanbul.", 5: "قرأ الولد كتابا", 9: LONG}
READ = {
    2: ["[CLS]", "[UNK]", "[UNK]", "is", "##tan", "##bul", ".", "[SEP]"],
    5: ["[CLS]", "[UNK]", "[UNK]", "[UNK]", "[SEP]"],
    9: ["[CLS]", *LONG.replace("Straße", "[UNK]").split(), "[SEP]"],
}
PAIRS = {
    2: [GoldPair((1, 1), ((3, 5),)), GoldPair((2, 2), ((1, 1),)), GoldPair((4, 4), ((7, 7),))],
    5: [GoldPair((1, 1), ((2, 2),)), GoldPair((2, 2), ((2, 2),))],
    9: [GoldPair((41, 41), ((42, 42),))],
}
SHARES = {
    "previous": np.array([[0.93, 0.2], [0.1, np.nan]]),
    "sep": np.array([[0.01, 0.31], [0.5, np.nan]]),
    "entropy": np.full((2, 2), 3.0),
}
VALUES = {"subject": np.array([[5.0, 0.5], [1.0, np.nan]]), "entropy": np.full((2, 2), 0.004)}
CLAIMS = [
    Claim("subject", 0, 0, 5.0, "p 0.001", texts=(TopText(5, 9.0), TopText(2, 2.5))),
    Claim("subject", 1, 0, 1.0, "p 0.02", texts=(TopText(2, 6.25),)),
    Claim("entropy", 0, 0, 0.004, "the highest", texts=(TopText(2, 0.5),)),
]


def traced(number, seed=0, words=WRITTEN, read=READ):
    """One text with two layers of two heads, as a BERT reads it."""
    tokens = read[number]
    special = [token in ("[CLS]", "[SEP]") for token in tokens]
    spans = token_spans(words[number], tokens, special)
    random = np.random.default_rng(100 * seed + number)
    scores = 2 * random.normal(size=(2, 1, 2, len(tokens), len(tokens)))
    shares = np.exp(scores)
    return Trace.from_arrays(
        (shares / shares.sum(-1, keepdims=True)).astype(np.float32),
        [tokens],
        special=np.array([special]),
        texts=[(words[number],)],
        spans=[[None if added else s for s, added in zip(spans, special, strict=True)]],
        model="tiny",
    )


def profiles(claims, effects=None, command=""):
    return HeadPages(
        texts=150,
        shares=SHARES,
        intervals={("subject", 0, 0): (4.5, 5.5), ("subject", 1, 0): (np.nan, np.nan)},
        level="95 % interval",
        examples=PairExamples(claims),
        broken=np.array([[0, 0], [0, 3]]),
        effects=effects,
        command=command,
    )


def gold(number, one):
    pairs = PAIRS[number]
    hits = judged_pairs(pairs, one.encoder)
    return {"encoder": [GoldPairs("subject", "each word and its subject", STRONGEST, pairs, hits)]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    worth = np.array([[0.5, 0.1], [0, 0]])
    unknown = np.full((2, 2), np.nan)
    effects = MeasuredEffects(
        {
            "ablate: ablation": (worth, worth - 0.7, worth + 0.25),
            "circuits: copying": (worth / 100, unknown, unknown),
        },
        "Mean loss 2.",
    )
    heads = profiles(CLAIMS, effects)
    numbers = {"encoder": Numbers((0, 1), (0, 1), VALUES)}
    report = EvidenceReport("Roles", "tiny", "Texts.", numbers, "score", heads=heads)
    traces = {number: traced(number) for number in WRITTEN}
    page = evidence_page(report, CLAIMS, [*WRITTEN], traces.values(), gold)
    path = page.save(tmp_path_factory.mktemp("profile") / "roles.html")
    return SimpleNamespace(path=path, heads=heads, traces=traces)


def state(view):
    found = view.run("return page.state.json()")
    return [found[name] for name in ("level", "sequence", "layer", "heads", "gold", "query")]


def drawn(view, end, claim=0):
    """Each example as it is drawn: number, link, outcome, and its marks by kind."""
    return view.run(
        """const part = document.querySelectorAll(".profile-part.examples")[arguments[1]];
        const text = (item, name) => item.querySelector(name).textContent;
        const marks = (item) => [...item.querySelectorAll("mark")];
        return [...part.querySelectorAll(`.end.${arguments[0]} li`)].map((item) => [
          text(item, ".value"), text(item, "a"), text(item, ".outcome"),
          marks(item).map((mark) => [mark.className, mark.textContent])]);""",
        end,
        claim,
    )


# What each pair reads as, by text and place: its link, and its marks in the order of the text.
LOOKS = {
    (2, 0): ("Straße → İstanbul", [["query", "Straße"], ["key", "İstanbul"]]),
    (2, 1): (f"{FAMILY} → Straße", [["key", "Straße"], ["query", FAMILY]]),
    (2, 2): ("tan → [SEP]", [["query", "tan"], ["key", "[SEP]"]]),
    (5, 0): ("قرأ → الولد", [["query", "قرأ"], ["key", "الولد"]]),
    (5, 1): ("الولد → الولد", [["query key", "الولد"]]),
    (9, 0): ("Straße → here", [["query", "Straße"], ["key", "here"]]),
}


def test_a_head_of_the_map_and_of_a_claim_leads_to_its_page(view, made):
    view.open(made.path)
    assert view.texts("[role=tab]") == ["Claims", "Profile", "Model", "Head", "Text"]
    view.click("#level-claims [data-layer='1'][data-head='0']")
    assert state(view)[:4] == ["profile", 0, 1, [0]]
    assert view.run("return location.hash") == "#head=1.0"
    view.browser.back()
    view.until("page.state.level === 'claims'")
    view.click(".claims tbody th a")
    assert state(view)[:4] == ["profile", 0, 0, [0]]
    assert view.texts(".profile-title") == ["Layer 0, head 0"]
    view.open(made.path, "head=1.1")
    assert state(view)[:4] == ["profile", 0, 1, [1]] and view.run("return window.seen") == []
    shown = view.run("return [...page.root.querySelectorAll('header .sign')].map((e) => !e.hidden)")
    assert shown.count(False) == 2, "there is no picture to save"


def test_the_sentence_says_where_a_head_looks(view, made):
    sentences = {
        "0.0": "Head 0.0 looks at the previous token, 93 % of its attention "
        "on average over 150 texts.",
        "0.1": "Head 0.1 looks at no one place: the largest share, 31 %, is on the separators, "
        "on average over 150 texts.",
        "1.0": "Head 1.0 looks at the separators, 50 % of its attention on average over 150 texts.",
        "1.1": "Head 1.1: no share of its attention was measured.",
    }
    for head, sentence in sentences.items():
        view.open(made.path, f"head={head}")
        assert view.texts("#level-profile .reading") == [sentence.replace(" %", "\u00a0%")]
        nan = "In 3 texts its attention is NaN or infinite; they do not count."
        assert (nan in view.texts("#level-profile .hint")) == (head == "1.1")
        assert "NaN" not in "".join(view.texts("#level-profile")).replace(nan, "")


def test_examples_are_the_largest_and_the_smallest_weights_marked_as_written(view, made):
    view.open(made.path, "head=0.0")
    found = made.heads.examples.of(CLAIMS[0])
    assert (found.candidates, len(found.best), len(found.worst)) == (6, 6, 0)
    weights = {
        (n, p): made.traces[n].encoder.weights[0, 0, 0, pair.query[0], first : last + 1].sum()
        for n in PAIRS
        for p, pair in enumerate(PAIRS[n])
        for first, last in pair.keys
    }
    order = sorted(weights, key=lambda at: -weights[at])
    assert [(e.text, e.place) for e in found.best] == order
    strongest = {
        (n, p): made.traces[n].encoder.weights[0, 0, 0, pair.query[0]].argmax()
        for n in PAIRS
        for p, pair in enumerate(PAIRS[n])
    }
    expected = []
    for n, p in order:
        (first, last), *_ = PAIRS[n][p].keys
        outcome = "hit" if first <= strongest[n, p] <= last else "missed"
        weight = "<0.001" if weights[n, p] < 0.0005 else f"{weights[n, p]:.3f}"
        expected.append([weight, LOOKS[n, p][0], outcome, LOOKS[n, p][1]])
    assert drawn(view, "best") == expected
    assert view.texts(".end h4") == ["6 best", "No worst: all pairs are above"]
    hint = view.texts(".examples .hint")[0]
    assert "each word and its subject. They come from 3 texts of this page, 6 pairs in all." in hint
    assert "Best are the largest, worst the smallest of the others" in hint and STRONGEST in hint


def test_best_and_worst_share_no_pair(view, tmp_path):
    claims = CLAIMS[:1]
    heads = profiles(claims)
    heads.examples.shown = 2
    numbers = {"encoder": Numbers((0, 1), (0, 1), VALUES)}
    report = EvidenceReport("Roles", "tiny", "", numbers, "score", heads=heads)
    page = evidence_page(report, claims, [*WRITTEN], [traced(n) for n in WRITTEN], gold)
    view.open(page.save(tmp_path / "two.html"), "head=0.0")
    found = heads.examples.of(claims[0])
    every = {(e.text, e.place): e.weight for e in (*found.best, *found.worst)}
    order = sorted(every, key=lambda at: -every[at])
    assert len(order) == 4 and found.candidates == 6
    assert [link for _, link, *_ in drawn(view, "best")] == [LOOKS[at][0] for at in order[:2]]
    assert [link for _, link, *_ in drawn(view, "worst")] == [LOOKS[at][0] for at in order[:1:-1]]
    assert view.texts(".end h4") == ["2 best", "2 worst"]


def test_text_around_a_pair_is_cut_between_tokens_and_keeps_its_direction(view, made):
    view.open(made.path, "head=0.0")
    passages = view.run(
        "return [...document.querySelectorAll('.end .passage')].map((p) => [p.textContent,"
        " getComputedStyle(p).direction])"
    )
    for text, direction in passages:
        shown = text.removeprefix("… ").removesuffix(" …").removesuffix(" [SEP] ")
        assert any(shown in written for written in WRITTEN.values())
        assert direction == ("rtl" if "قرأ" in text else "ltr")
    (long,) = (text for text, _ in passages if "here" in text)
    assert re.fullmatch(r"… (far )+Straße here( off)+ …", long) and len(long) < 160
    joined = [text for text, _ in passages if FAMILY in text]
    assert len(joined) == 3 and all("İstanbul" in text for text in joined)


def test_an_example_leads_to_its_pair_in_its_text(view, made):
    view.open(made.path, "head=0.0&theme=dark")
    links = view.browser.find_elements("css selector", ".end.best li a")
    order = [(e.text, e.place) for e in made.heads.examples.of(CLAIMS[0]).best]
    place = order.index((2, 1))
    address = links[place].get_attribute("href").split("#")[1]
    links[place].click()
    assert state(view) == ["head", 0, 0, [0], "subject", 2]
    assert view.run("return page.state.theme") == "dark"
    gold_shown = "document.querySelectorAll('.gold-lines .gold-pair').length"
    assert view.run(f"return {gold_shown}") > 0
    row = "document.querySelector('#level-head .left [data-index=\"2\"]').getBoundingClientRect()"
    assert view.run(f"return {row}.top > 0 && {row}.bottom < innerHeight")
    view.browser.back()
    view.until("page.state.level === 'profile'")
    assert view.run("return location.hash").startswith("#head=0.0")
    view.open(made.path, address)
    assert state(view) == ["head", 0, 0, [0], "subject", 2]


def test_claims_have_their_intervals_and_numbers(view, made):
    view.open(made.path, "head=0.0")
    assert view.texts("#level-profile .roles tbody tr td") == [
        *("5.00", "4.50 to 5.50", "p 0.001"),
        *("0.004", "–", "the highest"),
    ]
    assert view.texts(".all-numbers .value") == ["5.00", "0.004"]
    other = view.texts(".examples")[1]
    assert "about no pairs of tokens" in other and "Straße" in other
    view.open(made.path, "head=1.0")
    assert view.texts("#level-profile .roles tbody tr td")[1] == "–"
    view.open(made.path, "head=1.1")
    assert "There are no claims about it." in view.texts(".roles")[0]
    assert view.texts(".all-numbers .value") == ["–", "0.004"]
    view.click("#level-profile .roles button")
    assert state(view)[:4] == ["head", 0, 1, [1]]


def test_nearest_heads_are_links(view, made):
    view.open(made.path, "head=0.1")
    texts = [made.traces[n].encoder.weights[:, 0] for n in WRITTEN]
    flat = [w.reshape(4, *w.shape[2:]).astype(float) for w in texts]

    def far(i, j):
        def nats(p):
            return -(p * np.log(p)).sum(-1)

        each = [nats((w[i] + w[j]) / 2) - (nats(w[i]) + nats(w[j])) / 2 for w in flat]
        return np.sqrt(np.mean([one.mean() / np.log(2) for one in each]))

    others = sorted((far(1, j), f"{j // 2}.{j % 2}") for j in (0, 2, 3))
    assert view.texts(".nearest a") == [name for _, name in others]
    shown = [float(text) for text in view.texts(".nearest .value")]
    np.testing.assert_allclose(shown, [distance for distance, _ in others], atol=1e-3)
    assert "Jensen–Shannon distance over 3 texts" in "".join(view.texts(".profile .panel"))
    view.click(".nearest a")
    assert view.texts(".profile-title") == [
        "Layer {}, head {}".format(*others[0][1].split(".")),
    ]


def test_effects_where_they_were_measured_and_the_command_where_not(view, made, tmp_path):
    view.open(made.path, "head=0.0")
    assert view.texts(".effects .value") == ["0.50 (−0.20 to 0.75)", "0.0050"]
    assert view.texts(".effects .role") == ["ablate: ablation", "circuits: copying"]
    assert "Mean loss 2." in view.texts(".profile .panel")[0]
    command = "flaxattn ablate TEXTS --model 'a b' --out report-ablate"
    numbers = {"encoder": Numbers((0, 1), (0, 1), VALUES)}
    heads = profiles(CLAIMS, command=command)
    report = EvidenceReport("Roles", "tiny", "", numbers, "score", heads=heads)
    view.open(evidence_page(report, CLAIMS, (), ()).save(tmp_path / "none.html"), "head=0.0")
    assert view.texts(".profile .panel code") == [command, "--facts report-ablate"]
    assert "No distance to another head is known." in view.texts(".profile .panel")[0]
    assert view.browser.find_elements("css selector", ".profile .end") == []
    assert view.run("return window.seen") == []


def test_the_keyboard_reaches_every_head_and_every_example(view, made):
    view.open(made.path)
    view.run("document.querySelector('#level-claims button.cell').focus()")
    view.press("ARROW_RIGHT", "ENTER")
    assert state(view)[:4] == ["profile", 0, 0, [1]]
    view.press("[")
    assert view.texts(".profile-title") == ["Layer 0, head 0"]
    view.press("ARROW_RIGHT")
    assert view.texts(".profile-title") == ["Layer 1, head 0"]
    view.press("1", "2")
    assert state(view)[0] == "profile"
    view.run("document.querySelector('.end.best li a').focus()")
    view.press("ENTER")
    assert state(view)[0] == "head"


def test_nothing_is_wider_than_the_window(view, made):
    try:
        for width in (500, 800, 1440):
            view.browser.set_window_size(width, 900)
            view.open(made.path, "head=0.0")
            assert view.run("return document.documentElement.scrollWidth <= innerWidth"), width
    finally:
        view.browser.set_window_size(1200, 900)


@pytest.mark.parametrize("kind", SHAPES)
def test_hostile_texts_are_text(view, tmp_path, kind):
    every = [text for text in texts(kind) if text.strip()]
    names = {n: f"a {text} b" for n, text in enumerate(every)}
    read = {n: ["[CLS]", "a", text, "b", "[SEP]"] for n, text in enumerate(every)}
    claims = [Claim(every[0], 0, 0, 1.0, every[0], texts=[TopText(n, 1.0) for n in names])]
    pairs = [GoldPair((2, 2), ((1, 1),))]

    def pairs_of(number, one):
        hits = judged_pairs(pairs, one.encoder)
        return {"encoder": [GoldPairs(every[0], every[0], every[0], pairs, hits)]}

    def trace_of(number):
        plain = traced(5)
        weights = plain.encoder.weights
        special = np.array([[True, False, False, False, True]])
        return Trace.from_arrays(weights, [read[number]], special=special, model="tiny")

    heads = profiles(claims, command=every[0])
    heads.examples.shown = len(every)
    numbers = {"encoder": Numbers((0, 1), (0, 1), {every[0]: np.ones((2, 2))})}
    report = EvidenceReport("Roles", "tiny", "", numbers, "score", heads=heads)
    page = evidence_page(report, claims, [*names], map(trace_of, names), pairs_of)
    view.open(page.save(tmp_path / "page.html"), "head=0.0")
    shown = sorted(mark for *_, marks in drawn(view, "best") for k, mark in marks if k == "query")
    assert shown == sorted(visible(text) for text in every)
    assert view.run("return window.seen") == []
    assert view.run("return document.querySelectorAll('img, object, embed, base').length") == 0
