# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""CoNLL-U by the standard's rules, and every kind of bad annotation named with its place."""

import json

import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import is_annotated, read_sentences
from flaxattn.errors import InputError
from flaxattn.text.tokens import positions_of_words


def row(number, form, head, relation, tag="X", misc="_"):
    return "\t".join((str(number), form, "_", tag, "_", "_", str(head), relation, "_", misc)) + "\n"


def surface(number, form, misc="_"):
    return "\t".join((number, form, *["_"] * 7, misc)) + "\n"


PLAIN = (
    "# sent_id = s1\n# text = The cat sleeps.\n"
    + row(1, "The", 2, "det", "DET")
    + row(2, "cat", 3, "nsubj", "NOUN")
    + row(3, "sleeps", 0, "root", "VERB", "SpaceAfter=No")
    + row(4, ".", 3, "punct", "PUNCT")
    + "\n"
)


def read(folder, text, policy="fail"):
    path = folder / "a.conllu"
    path.write_text(text, encoding="utf-8")
    bad = BadRows(policy, folder)
    return list(read_sentences([path], bad)), bad


def test_words_tags_and_tree(tmp_path):
    ((sentence,), bad) = read(tmp_path, PLAIN)
    assert (sentence.id, sentence.text, sentence.line) == ("s1", "The cat sleeps.", 1)
    assert [word.form for word in sentence.words] == ["The", "cat", "sleeps", "."]
    assert [word.governor for word in sentence.words] == [1, 2, -1, 2]
    assert [word.tag for word in sentence.words] == ["DET", "NOUN", "VERB", "PUNCT"]
    spans = [sentence.text[word.start : word.stop] for word in sentence.words]
    assert spans == ["The", "cat", "sleeps", "."]
    assert sentence.words[2].line == 5
    assert bad.summary() == {"rows": 1, "kept": 1, "bad": {}}


def test_without_a_text_spaces_follow_the_words(tmp_path):
    lines = [line for line in PLAIN.splitlines(keepends=True) if not line.startswith("#")]
    ((sentence,), _) = read(tmp_path, "".join(lines))
    assert sentence.text == "The cat sleeps."
    assert sentence.id == "a.conllu:1"


def test_words_of_a_multi_word_token(tmp_path):
    """Forms that make up the token get their part of it; others share it. Empty nodes are out."""
    text = (
        "# text = I don't go zum Arzt\n"
        + row(1, "I", 4, "nsubj")
        + surface("2-3", "don't")
        + row(2, "do", 4, "aux")
        + row(3, "n't", 4, "advmod")
        + row(4, "go", 0, "root")
        + surface("4.1", "went")
        + surface("5-6", "zum")
        + row(5, "zu", 7, "case")
        + row(6, "dem", 7, "det")
        + row(7, "Arzt", 4, "obl")
        + "\n"
    )
    ((sentence,), _) = read(tmp_path, text)
    spans = [sentence.text[word.start : word.stop] for word in sentence.words]
    assert spans == ["I", "do", "n't", "go", "zum", "zum", "Arzt"]
    assert len(sentence.words) == 7


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "2\tcat\t_\tNOUN\t_\t_\t3",
            "2\tcat\t_\tNOUN\t_\t_\t1",
            "line 3: sentence 's1', word 1 'The': its governors are a cycle: 1 -> 2 -> 1",
        ),
        (
            "2\tcat\t_\tNOUN\t_\t_\t3",
            "2\tcat\t_\tNOUN\t_\t_\t0",
            "line 5: sentence 's1', word 3 'sleeps': a second root beside word 2",
        ),
        (
            "2\tcat\t_\tNOUN\t_\t_\t3",
            "2\tcat\t_\tNOUN\t_\t_\t9",
            "line 4: sentence 's1', word 2 'cat': its governor is 9, the words are 1 to 4",
        ),
        (
            "2\tcat\t_\tNOUN\t_\t_\t3",
            "2\tcat\t_\tNOUN\t_\t_\t_",
            "word 2 'cat': its governor is None",
        ),
        (
            "3\tsleeps\t_\tVERB\t_\t_\t0",
            "3\tsleeps\t_\tVERB\t_\t_\t3",
            "word 3 'sleeps': its governors are a cycle: 3 -> 3",
        ),
        ("4\t.", "5\t.", "line 6: sentence 's1', word 5 '.': its number should be 4"),
        (
            "text = The cat",
            "text = The big cat",
            "line 4: sentence 's1': the word 'cat' is not what follows in its text",
        ),
        ("cat sleeps.", "cat sleeps. Well", "line 6: sentence 's1': no word stands for the end"),
        ("\tDET\t", "\t", "line 3: expected 10 fields in the line, received 9"),
        ("1\tThe", "one\tThe", "line 3: this is not a line of CoNLL-U"),
        ("\t2\tdet", "\ttwo\tdet", "line 3: this is not a line of CoNLL-U"),
        (
            "1\tThe",
            "1-9\tx\t_\t_\t_\t_\t_\t_\t_\t_\n1\tThe",
            "the multi-word token 1-9 'x' does not stand before its words",
        ),
    ],
)
def test_bad_trees_are_named(tmp_path, old, new, message):
    assert old in PLAIN
    with pytest.raises(InputError) as error:
        read(tmp_path, PLAIN.replace(old, new))
    assert message in str(error.value)
    assert "a.conllu, line" in str(error.value)
    assert len(str(error.value).splitlines()) <= 3
    good, bad = read(tmp_path, PLAIN.replace(old, new) + PLAIN.replace("s1", "s2"), "quarantine")
    assert [sentence.id for sentence in good] == ["s2"]
    assert (bad.rows_read, bad.lost) == (2, 1)
    listed = json.loads((tmp_path / "errors.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert message.split(": ")[-1] in listed["message"] or message in listed["message"]


def test_a_sentence_without_words_and_a_byte_that_is_no_text(tmp_path):
    with pytest.raises(InputError, match="has no words"):
        read(tmp_path, surface("1.1", "x") + "\n")
    path = tmp_path / "b.conllu"
    path.write_bytes(PLAIN.encode().replace(b"cat\t", b"c\xffat\t", 1))
    with pytest.raises(InputError, match="line 4: byte 0xff"):
        list(read_sentences([path], BadRows()))
    with pytest.raises(InputError, match="there is no such file"):
        list(read_sentences([tmp_path / "none.conllu"], BadRows()))


def test_hostile_names_stay_on_one_line(tmp_path):
    text = PLAIN.replace("s1", "s\x1b[31m").replace("\t3\tnsubj", "\t9\tnsubj")
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert "\x1b" not in str(error.value)


def test_compressed_files_count(tmp_path):
    import gzip

    path = tmp_path / "a.conllu.gz"
    path.write_bytes(gzip.compress(PLAIN.encode()))
    assert is_annotated(path)
    assert not is_annotated(tmp_path / "a.txt")
    (sentence,) = read_sentences([path], BadRows())
    assert sentence.id == "s1"


def test_tokens_of_words_overlap_their_characters():
    words = [(0, 2), (2, 5), (6, 9), (6, 9), (10, 12)]
    offsets = [(0, 0), (0, 1), (1, 4), (4, 5), (6, 9), (0, 0)]
    special = [True, False, False, False, False, True]
    assert positions_of_words(words, offsets, special) == [[1, 2], [2, 3], [4], [4], []]
