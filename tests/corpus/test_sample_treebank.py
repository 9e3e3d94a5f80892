# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The sample treebank is read back as sentences with trees, all different, the same every time."""

from collections import Counter
from pathlib import Path

import pytest

import flaxattn as fa
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.sample_files import _TEMPLATES
from flaxattn.errors import InputError


def test_sentences_are_trees_over_their_text(tmp_path: Path) -> None:
    path = tmp_path / "sample.conllu"
    path.write_text(fa.sample_treebank(300), encoding="utf-8")
    bad = BadRows("fail", tmp_path)
    sentences = [*read_sentences([path], bad)]
    assert len(sentences) == 300 and not bad.counts
    assert len({sentence.text for sentence in sentences}) == 300
    relations = Counter(word.relation for sentence in sentences for word in sentence.words)
    for name in ("nsubj", "obj", "amod", "advmod", "acl:relcl"):
        assert relations[name] > 20
    for sentence in sentences:
        rebuilt = " ".join(word.form for word in sentence.words)
        assert rebuilt.replace(" ,", ",").replace(" .", ".") == sentence.text


def test_governors_of_the_templates_are_of_the_right_class() -> None:
    """An adjective depends on a noun, a subject on a verb, an article on a noun."""
    classes = {"det": "man house", "amod": "man house", "nsubj": "saw slept", "obj": "saw"}
    for template in _TEMPLATES:
        rows = [row.rsplit("/", 2) for row in template.split()]
        assert [int(governor) for _, governor, _ in rows].count(0) == 1
        for _, governor, relation in rows:
            if relation in classes:
                assert rows[int(governor) - 1][0] in classes[relation].split(), template


def test_the_same_seed_makes_the_same_text() -> None:
    assert fa.sample_treebank(20, seed=3) == fa.sample_treebank(20, seed=3)
    assert fa.sample_treebank(20, seed=3) != fa.sample_treebank(20, seed=4)


@pytest.mark.parametrize("count", [0, 10_001])
def test_a_number_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(InputError, match=rf"asked for {count} sentences\n.*1 to 10,000"):
        fa.sample_treebank(count)
