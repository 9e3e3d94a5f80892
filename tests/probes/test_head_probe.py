# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hidden states of words are those of the model, and one call does what its parts do."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence, Word
from flaxattn.corpus.mentions import read_documents
from flaxattn.corpus.texts import annotated_text
from flaxattn.errors import InputError
from flaxattn.measures.head_roles import Test
from flaxattn.measures.role_tests import find_roles
from flaxattn.measures.score_source import head_scores
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import PAPER_RELATIONS, ScoreOptions
from flaxattn.pipeline.tokenize_texts import ReadingOptions, windows
from flaxattn.probes.governor_probe import Dependencies
from flaxattn.probes.head_probe import word_states
from flaxattn.probes.structural_probe import Fitting, structural_scores
from flaxattn.probes.word_records import word_maps

pytestmark = pytest.mark.slow

FORMS = "a b c d e f g h the cat is very".split()
DOCUMENTS = """#begin document (d)
d 0 0 a DT * (1
d 0 1 cat NN * 1)
d 0 2 is VBZ * -
d 0 3 b NN * (2)
d 0 4 , , * -
d 0 5 c PRP * (1)
d 0 6 d PRP * (2)
#end document
"""


def sentence(number, rng, count=6):
    """Words that hang each on the one before; the first is the root."""
    words, start = [], 0
    for place, form in enumerate(rng.choice(FORMS, count)):
        relation = "nsubj" if place else "root"
        words.append(
            Word(str(form), "NOUN", place - 1, relation, start, start + len(form), place + 1)
        )
        start += len(form) + 1
    return Sentence(f"s{number}", " ".join(word.form for word in words), tuple(words), "f", 1)


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(0)
    return [sentence(number, rng) for number in range(24)]


@pytest.mark.parametrize("family", ["bert", "gpt2", "seq2seq"])
def test_states_of_words_are_means_of_those_of_the_model(request, family, sentences):
    model = request.getfixturevalue(family)
    whole = sentences[0]
    parts = [*whole.words]
    # The third and the fourth word are written as one, and the fifth spans two pieces.
    parts[3] = parts[3]._replace(start=parts[2].start, stop=parts[2].stop)
    parts[4] = parts[4]._replace(stop=parts[5].stop)
    bent = whole._replace(words=tuple(parts[:5]), id="bent")
    counts = []
    found = list(
        word_states(
            model, [whole, bent], [0, -1], ReadingOptions(watch=lambda _, n: counts.append(n))
        )
    )
    last = model.config.encoder_layers if family == "seq2seq" else 2
    assert counts == [2] and [words.layers for words in found] == [(0, last)] * 2
    read = model.read([whole.text], None).rows()[0]
    given = {name: read.given[name] for name in ("input_ids", "attention_mask")}
    if family == "seq2seq":
        given["decoder_input_ids"] = np.zeros((1, 1), np.int32)
    out = model(**given, output_hidden_states=True)
    states = out.encoder_hidden_states if family == "seq2seq" else out.hidden_states
    first = int(family == "bert")
    for place, layer in enumerate((0, last)):
        vectors = np.asarray(states[layer])[0, first : first + 6]
        np.testing.assert_allclose(found[0].vectors[place], vectors, atol=1e-5)
        expected = [*vectors[:3], vectors[4:6].mean(0)]
        np.testing.assert_allclose(found[1].vectors[place], expected, atol=1e-5)
    assert found[0].tree.depths.tolist() == [0, 1, 2, 3, 4, 5]
    assert found[1].tree.depths.tolist() == [0, 1, 2, 4]
    assert found[1].tree.distances[0].tolist() == [0, 1, 2, 4]


def test_what_states_are_not_there(bert, sentences):
    with pytest.raises(InputError, match="layer is 3, 'b' has 2 of them"):
        list(word_states(bert, sentences[:1], [3]))


def test_one_call_does_what_its_parts_do(bert, sentences, tmp_path):
    train, test = sentences[8:], sentences[:8]
    lines = []
    reading = ReadingOptions(watch=lambda what, count: lines.append((what, count)))
    found = fa.head_probe(bert, test, train, reading=reading)
    assert lines == [("reading heads", 16), ("reading heads", 8), ("fitting a parser", 0)]
    texts = list(word_maps(bert, test))
    alone = Dependencies.of(texts)
    assert set(found.found.hits) == set(alone.hits)
    for question, hits in alone.hits.items():
        np.testing.assert_array_equal(found.found.hits[question], hits)
    applied = fa.apply_probe(bert, test, found.judged.probe)
    assert applied == found.judged.tree
    path = fa.save_probe(found.judged.probe, tmp_path / "p.safetensors")
    assert fa.apply_probe(bert, test, fa.load_probe(path).probe) == applied
    with pytest.raises(InputError, match="there is no parser\ngive train="):
        fa.head_probe(bert, test, untrained=True)
    with pytest.raises(InputError, match="no sentence to apply the probe to"):
        fa.apply_probe(bert, [], found.judged.probe)


def test_structural_probes_of_a_model(bert, sentences, tmp_path):
    train, test = sentences[8:], sentences[:8]
    lines = []
    reading = ReadingOptions(watch=lambda what, count: lines.append(what))
    fitting = Fitting(rank=4, epochs=2, batch=8)
    judged = fa.structural_probe(
        bert, test, train, fitting=fitting, untrained=True, reading=reading
    )
    assert [probe.layer for probe in judged.probes] == [0, 1, 2]
    assert judged.untrained is not None and judged.untrained.edges == 40
    assert lines.count("fitting") == 3 * 4 and lines.count("reading hidden states") == 4
    states = list(word_states(bert, test))
    for probe, scores in zip(judged.probes, judged.scores, strict=True):
        assert structural_scores(probe.metric, states) == pytest.approx(scores)
    path = fa.save_probe(judged.probe, tmp_path / "p.safetensors")
    applied = fa.apply_probe(bert, test, fa.load_probe(path).probe)
    assert applied == pytest.approx(judged.scores[judged.best])


def test_roles_and_statistics_of_a_model(bert, sentences, tmp_path):
    options = ScoreOptions(PAPER_RELATIONS, True, 3)
    tally = ScoreAccumulator.of(*head_scores(bert, map(annotated_text, sentences[:6]), options))
    found = fa.head_roles(bert, sentences[:6], test=Test(tau=1), seed=3)
    expected = find_roles(tally, options, Test(tau=1))
    assert list(found.roles) == list(expected.roles)
    for name, role in expected.roles.items():
        np.testing.assert_array_equal(found.roles[name].p, role.p)
    (tmp_path / "a.txt").write_text("\n".join(s.text for s in sentences[:3]) + "\n")
    one = fa.head_stats(bert, [s.text for s in sentences[:3]])
    other = fa.head_stats(bert, tmp_path / "a.txt")
    for column, moments in one.moments.items():
        np.testing.assert_array_equal(moments[1], other.moments[column][1])
    with pytest.raises(InputError, match="text 1 has no tree, and others have one"):
        fa.head_stats(bert, [sentences[0], "a b"])
    with pytest.raises(InputError, match="there is no text to score heads on"):
        fa.head_stats(bert, [])


def test_coreference_of_documents(bert, tmp_path):
    path = tmp_path / "d.conll"
    path.write_text(DOCUMENTS, encoding="utf-8")
    found = fa.head_coreference(bert, path)
    weights = np.asarray(bert.trace("a cat is b , c d").encoder.weights)[:, 0][..., 1:-1, 1:-1]
    rights = [weights[:, :, 5, 1] > weights[:, :, 5, 3]]
    rights.append(weights[:, :, 6, [1, 3, 5]].argmax(-1) == 1)
    np.testing.assert_array_equal(found.found.accuracy("from mention"), np.mean(rights, 0))
    rights = [
        np.delete(weights[:, :, 5], 5, -1).argmax(-1) == 1,
        np.delete(weights[:, :, 6], 6, -1).argmax(-1) == 3,
    ]
    np.testing.assert_array_equal(found.among_words.accuracy("from mention"), np.mean(rights, 0))
    assert found.best[0].mentions == 2 and found.found.counts == {"": 2, "pronoun": 2}
    (document,) = read_documents([path], BadRows())
    again = fa.head_coreference(bert, [document], chosen_on=[document])
    assert again.best == found.best
    with pytest.raises(InputError, match="form 'gap' reads a Pronoun, received a Document"):
        fa.head_coreference(bert, [document], "gap")


def test_long_documents_are_cut_at_a_word(bert, tmp_path):
    path = tmp_path / "d.conll"
    words = [f"d 0 {n} cat NN * (1)\n" for n in range(60)]
    path.write_text("#begin document (d)\n" + "".join(words), encoding="utf-8")
    found = fa.head_coreference(bert, path)
    assert found.best[0].mentions == bert.limit - 3  # but for two special pieces and the first


def test_limits_and_lengths_of_reading_count_everywhere(bert) -> None:
    rng = np.random.default_rng(0)
    sentences = [sentence(number, rng, 3 + number % 4) for number in range(12)]
    whole = [len(read.layout) for w in windows(bert, map(annotated_text, sentences)) for read in w]
    lengths = (min(whole), sorted(whole)[len(whole) // 2])
    fitting = sum(lengths[0] <= size <= lengths[1] for size in whole)
    assert 0 < fitting < len(whole)
    for read in (word_maps, lambda *given: word_states(given[0], given[1], None, given[2])):
        assert len(list(read(bert, sentences, ReadingOptions(limit=2)))) == 2
        assert len(list(read(bert, sentences, ReadingOptions(lengths=lengths)))) == fitting
