# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Documents of CoNLL-2012 and CoNLL-U: words, mentions, heads; and what is wrong with them."""

import gzip

import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.mentions import (
    NOMINAL,
    PRONOUN,
    PROPER,
    Bracket,
    brackets,
    read_documents,
)
from flaxattn.errors import InputError

COLUMNS = """#begin document (news/one); part 000
n 0 0 The DT * - - - - (1
n 0 1 owner NN * - - - - -
n 0 2 of IN * - - - - -
n 0 3 Anna NNP * - - - - (2|(3)
n 0 4 's POS * - - - - 2)
n 0 5 dog NN * - - - - 1)

n 0 0 She PRP * - - - - (2)
n 0 1 ran VBD * - - - - -
#end document
#begin document (news/two); part 001
n 1 0 It PRP * - - - - (1)
n 1 1 ran VBD * - - - - -
#end document
"""
TREES = """# newdoc id = d1
# global.Entity = eid-etype-head-other
# sent_id = a
# text = Anna's big dog ran.
1	Anna	_	PROPN	_	_	4	nmod	_	Entity=(e1-animal-4-x(e2-person-1)|SpaceAfter=No
2	's	_	PART	_	_	1	case	_	_
3	big	_	ADJ	_	_	4	amod	_	_
4	dog	_	NOUN	_	_	5	nsubj	_	Entity=e1)
5	ran	_	VERB	_	_	0	root	_	SpaceAfter=No
6	.	_	PUNCT	_	_	5	punct	_	_

# sent_id = b
# text = It saw her.
1	It	_	PRON	_	_	2	nsubj	_	Entity=(e1)
2	saw	_	VERB	_	_	0	root	_	_
3	her	_	PRON	_	_	2	obj	_	Entity=(e2)|SpaceAfter=No
4	.	_	PUNCT	_	_	2	punct	_	_

# newdoc id = d2
# sent_id = c
1	No	_	INTJ	_	_	0	root	_	_
"""


def read(path, text, policy="fail"):
    path.write_text(text, encoding="utf-8")
    bad = BadRows(policy, path.parent)
    return list(read_documents([path], bad)), bad


def shown(document):
    """Entity, its words and its head, of every mention; words are those of the text."""
    assert [document.text[slice(*word.span)] for word in document.words] == [
        word.form for word in document.words
    ]
    return [
        (m.entity, " ".join(w.form for w in document.words[m.start : m.stop]), m.head)
        for m in document.mentions
    ]


def test_columns(tmp_path):
    (one, two), bad = read(tmp_path / "a.conll", COLUMNS)
    assert (one.id, one.text) == ("(news/one); part 000", "The owner of Anna 's dog She ran")
    assert shown(one) == [
        ("1", "The owner of Anna 's dog", 1),
        ("2", "Anna 's", 3),
        ("3", "Anna", 3),
        ("2", "She", 6),
    ]
    assert [one.kind(m) for m in one.mentions] == [NOMINAL, PROPER, PROPER, PRONOUN]
    assert (two.line, shown(two)) == (12, [("1", "It", 0)])
    assert bad.summary() == {"rows": 2, "kept": 2, "bad": {}}
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(COLUMNS.encode()))
    again = list(read_documents([packed], BadRows()))
    assert [d._replace(file="") for d in again] == [d._replace(file="") for d in (one, two)]


def test_trees(tmp_path):
    (one, two), bad = read(tmp_path / "a.conllu", TREES)
    assert (one.id, one.text) == ("d1", "Anna's big dog ran. It saw her.")
    assert shown(one) == [
        ("e1", "Anna 's big dog", 3),
        ("e2", "Anna", 0),
        ("e1", "It", 6),
        ("e2", "her", 8),
    ]
    assert [one.kind(m) for m in one.mentions] == [NOMINAL, PROPER, PRONOUN, PRONOUN]
    assert (two.id, two.text, two.mentions, two.line) == ("d2", "No", (), 19)
    assert bad.summary()["rows"] == 2


def test_a_beginning_keeps_the_mentions_that_end_in_it(tmp_path):
    (one, _), _ = read(tmp_path / "a.conllu", TREES)
    cut = one.until(3)
    assert cut.text == "Anna's big" and shown(cut) == [("e2", "Anna", 0)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("(12)", [("12", True, True)]),
        ("(12|(3)|7)", [("12", True, False), ("3", True, True), ("7", False, True)]),
        ("(e1-x-2(e2[1/2]-y)e3)", [("e1", True, False), ("e2", True, True), ("e3", False, True)]),
        ("12", None),
        ("()", None),
        ("((1)", None),
        ("(1))", None),
        ("", None),
    ],
)
def test_brackets(column, expected):
    assert brackets(column) == (None if expected is None else [Bracket(*one) for one in expected])


@pytest.mark.parametrize(
    ("name", "old", "new", "line", "expected"),
    [
        ("a.conll", "- 1)", "- -", 2, "word 'The': a mention of '1' does not end"),
        (
            "a.conll",
            "(2)\nn 0 1 ran",
            "4)\nn 0 1 ran",
            9,
            "a mention of '4' ends that did not begin",
        ),
        ("a.conll", "(2|(3)", "(2|3", 5, "these are not brackets of mentions"),
        (
            "a.conll",
            "n 0 0 She PRP * - - - - (2)",
            "n 0 0 She PRP",
            9,
            "columns in the line, received 5",
        ),
        ("a.conllu", "Entity=e1)", "_", 5, "word 'Anna': a mention of 'e1' does not end"),
        ("a.conllu", "Entity=(e1)", "Entity=e9)", 14, "of 'e9' ends that did not begin"),
        (
            "a.conllu",
            "2\tsaw\t_\tVERB\t_\t_\t0",
            "2\tsaw\t_\tVERB\t_\t_\t7",
            15,
            "its governor is 7",
        ),
    ],
)
def test_bad_documents_are_named_and_the_others_read(tmp_path, name, old, new, line, expected):
    text = {"a.conll": COLUMNS, "a.conllu": TREES}[name]
    assert old in text
    with pytest.raises(InputError) as raised:
        read(tmp_path / name, text.replace(old, new, 1))
    message = str(raised.value)
    assert expected in message and f"line {line}" in message and name in message, message
    assert len(message.splitlines()) <= 3
    found, bad = read(tmp_path / name, text.replace(old, new, 1), "skip")
    assert [one.id for one in found] == [{"a.conll": "(news/two); part 001"}.get(name, "d2")]
    assert sum(bad.counts.values()) == 1 and bad.summary()["kept"] == 1


def test_files_that_are_not_there(tmp_path):
    for name in ("no.conll", "no.conllu"):
        with pytest.raises(InputError, match="there is no such file"):
            list(read_documents([tmp_path / name], BadRows()))
