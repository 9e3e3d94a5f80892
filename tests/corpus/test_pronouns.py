# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""GAP, WinoBias and Winogender: pronoun and people where they stand, and bad rows."""

import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.mentions import read_pronouns
from flaxattn.errors import InputError

HEAD = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
GAP = (
    "d-1\tAnna saw Berta's dog and she smiled.\tshe\t25\tAnna\t0\tTRUE\tBerta\t9\tFALSE\tu\n",
    "d-2\tCarl met Emil; his dog barked.\this\t15\tCarl\t0\tFALSE\tEmil\t9\tFALSE\tu\n",
)
BIAS = (
    "1 [The baker] thanked the farmer because [she] was hungry.\n"
    "2 The baker thanked [the farmer] because [he] had corn in [his] bag.\n"
)
GENDER = (
    "sentid\tsentence\n"
    "baker.guest.1.neutral.txt\tThe baker told the guest that they could sit.\n"
    "baker.someone.0.male.txt\tSomeone asked the baker if he had bread.\n"
)


def read(folder, name, text, form, policy="fail"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    bad = BadRows(policy, folder)
    return list(read_pronouns([path], form, bad)), bad


def shown(one):
    """The pronoun, the people, and the one that is meant."""
    people = [one.text[slice(*span)] for span in one.candidates]
    return one.text[slice(*one.span)], people, one.right


def test_gap(tmp_path):
    found, bad = read(tmp_path, "g.tsv", HEAD + "".join(GAP), "gap")
    assert [shown(one) for one in found] == [
        ("she", ["Anna", "Berta"], 0),
        ("his", ["Carl", "Emil"], None),
    ]
    assert [(one.id, one.group, one.line) for one in found] == [
        ("d-1", "feminine", 2),
        ("d-2", "masculine", 3),
    ]
    assert bad.summary()["kept"] == 2


def test_winobias_takes_the_second_person_from_the_partner(tmp_path):
    found, _ = read(tmp_path, "pro.txt.dev", BIAS, "winobias")
    assert [shown(one) for one in found] == [
        ("she", ["The baker", "the farmer"], 0),
        ("he", ["The baker", "the farmer"], 1),
    ]
    assert found[1].text == "The baker thanked the farmer because he had corn in his bag."
    assert [one.group for one in found] == ["pro.txt.dev, feminine", "pro.txt.dev, masculine"]


def test_winogender(tmp_path):
    found, _ = read(tmp_path, "w.tsv", GENDER, "winogender")
    assert [shown(one) for one in found] == [
        ("they", ["baker", "guest"], 1),
        ("he", ["baker", "Someone"], 0),
    ]
    assert [one.group for one in found] == ["neutral", "male"]


@pytest.mark.parametrize(
    ("form", "text", "line", "expected"),
    [
        ("gap", HEAD + GAP[0].replace("25", "24"), 2, "does not have 'she' at character 24"),
        ("gap", HEAD + GAP[0].replace("25", "-1"), 2, "at character -1"),
        ("gap", HEAD + GAP[0].replace("FALSE", "TRUE"), 2, "expected TRUE for A, for B, or for"),
        ("gap", HEAD + GAP[0].replace("FALSE", "no"), 2, "expected TRUE for A, for B, or for"),
        ("gap", HEAD.replace("Pronoun-offset", "at") + GAP[0], 1, "Pronoun-offset"),
        ("winobias", BIAS.replace("2 The", "3 The"), 1, "sentence 1 has no partner"),
        ("winobias", BIAS.splitlines()[1], 1, "sentence 2 has no partner"),
        ("winobias", BIAS.replace("1 [", "["), 1, "does not begin with its number"),
        ("winobias", BIAS.replace("[she]", "she"), 1, "expected brackets around one person"),
        ("winobias", BIAS.replace("thanked the f", "thanked a f"), 1, "not have 'the farmer'"),
        ("winogender", GENDER.replace(".1.", "."), 2, "expected occupation.participant.answer"),
        ("winogender", GENDER.replace("the guest", "him"), 2, "does not have guest"),
        ("winogender", GENDER.replace("they could", "to"), 2, "does not have a pronoun"),
    ],
)
def test_bad_rows_are_named_and_the_others_read(tmp_path, form, text, line, expected):
    name = "bad.txt" if form == "winobias" else "bad.tsv"
    with pytest.raises(InputError) as raised:
        read(tmp_path, name, text, form)
    message = str(raised.value)
    assert expected in message and name in message and len(message.splitlines()) <= 3, message
    assert line == 1 or f"line {line}" in message
    found, bad = read(tmp_path, name, text, form, "skip")
    assert sum(bad.counts.values()) >= 1
    good = {"gap": GAP, "winobias": BIAS.splitlines(), "winogender": GENDER.splitlines()[1:]}
    assert len(found) < len(good[form])


def test_an_unknown_form(tmp_path):
    with pytest.raises(InputError, match="choose one of gap, winobias, winogender"):
        read(tmp_path, "a.tsv", HEAD, "ontonotes")


def test_all_rows_of_the_real_files_are_read(flaxattn_data):
    folder = flaxattn_data / "coref"
    for names, form, count in (
        (["gap-validation.tsv"], "gap", 454),
        (["winogender/all_sentences.tsv"], "winogender", 720),
        ([f"winobias/pro_stereotyped_type{n}.txt.dev" for n in (1, 2)], "winobias", 792),
    ):
        bad = BadRows("skip")
        found = list(read_pronouns([folder / name for name in names], form, bad))
        assert len(found) + sum(bad.counts.values()) >= count
        assert len(found) > 0.95 * count, bad.counts
