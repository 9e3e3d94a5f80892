# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn search`: the nearest tokens of a store against brute force over traces, and errors."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.errors import InputError, StoreError
from flaxattn.measures.search import Hit, Token, histograms, nearest, token_vector
from flaxattn.models.decoder_config import DecoderConfig

TREE = """# sent_id = s{number}
1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\t_\tNOUN\t_\t_\t4\tnsubj\t_\t_
3\tis\t_\tAUX\t_\t_\t4\tcop\t_\t_
4\t{word}\t_\tADJ\t_\t_\t0\troot\t_\t_

"""
# Outputs of heads are stored as float16: each number is right to 2^-11 of itself.
HALF = 1e-3
BRAIN = 8e-3  # hidden states as bfloat16: to 2^-8


@pytest.fixture(scope="module")
def lines(texts, tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def index(bert, lines, tmp_path_factory):
    """Outputs of heads of both layers, in shards of three texts."""
    out = tmp_path_factory.mktemp("index") / "i"
    return fa.index_heads(bert, lines, out, layers=[0, 1], shard_texts=3)


def truth(model, texts, layer, head):
    """Text, position and unit vector of every plain token, and what each attends to most."""
    places, vectors, strongest = [], [], []
    for number, text in enumerate(texts):
        trace = model.trace(text, capture=fa.Capture(head_output=True, weights=True))
        record = trace.encoder or trace.decoder
        for place in np.flatnonzero(~np.asarray(trace.special)[0]):
            vector = np.asarray(record.head_output)[layer, 0, place, head]
            places.append((number + 1, int(place)))
            vectors.append(vector / np.linalg.norm(vector))
            strongest.append(int(np.asarray(record.weights)[layer, 0, head, place].argmax()))
    return places, np.array(vectors), strongest


@pytest.mark.float16
@pytest.mark.few("1-1")
@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 1)])
def test_the_nearest_are_those_of_brute_force(bert, index, texts, layer, head):
    assert len(index.shards) > 3 and len(index) == len(texts)
    places, vectors, strongest = truth(bert, texts, layer, head)
    position, token, vector = token_vector(bert, index, "the cat is sad", "cat", layer, head)
    assert (position, token) == (2, "cat")
    hits, searched = nearest(index, 3 * vector, layer, head, top=25)
    assert searched == len(places)
    exact = vectors @ vector
    expected = dict(zip(places, zip(exact, strongest, strict=True), strict=True))
    for hit in hits:
        cosine, key = expected[hit.line, hit.token.position]
        assert hit.similarity == pytest.approx(cosine, abs=HALF)
        assert hit.strongest is not None and hit.strongest.position == key
        assert hit.text == texts[hit.line - 1] and hit.id == f"a.txt:{hit.line}"
        assert hit.text[hit.token.start : hit.token.stop] == hit.token.token
    found = [hit.similarity for hit in hits]
    assert found == sorted(found, reverse=True)
    np.testing.assert_allclose(found, np.sort(exact)[::-1][:25], atol=HALF)
    assert len({(hit.line, hit.token.position) for hit in hits}) == 25
    for sign in (1, -1):
        few = [hit.similarity for hit in nearest(index, sign * vector, layer, head, top=2)[0]]
        np.testing.assert_allclose(few, np.sort(sign * exact)[::-1][:2], atol=HALF)
        best = {t: max(sign * expected[p][0] for p in places if p[0] == t) for t, _ in places}
        for top in (1, 2, 3, 5, 9):
            singles, _ = nearest(index, sign * vector, layer, head, top=top, one_per_text=True)
            found = [hit.similarity for hit in singles]
            np.testing.assert_allclose(found, sorted(best.values())[::-1][:top], atol=HALF)
            assert len({hit.line for hit in singles}) == top


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["head_output", "hidden"])
def test_heads_whose_vectors_together_are_wider_than_hidden_states(
    kind: str, tmp_path: Path
) -> None:
    gemma = fa.from_pretrained(write_decoder(tmp_path / "gemma"))
    assert isinstance(gemma.config, DecoderConfig)
    assert (gemma.config.hidden_size, gemma.config.head_size) == (16, 8)  # of 4 heads
    some = ["the cat sat", "a dog"]
    store = fa.index_heads(gemma, some, tmp_path / "index", layers=[0, 2], kind=kind)
    stored = np.concatenate([store.array(f"decoder.{kind}", n) for n in (0, 1)], axis=-2)
    tokens = sum(len(store[n].tokens[0]) for n in (0, 1))
    assert stored.shape == ((2, 4, tokens, 8) if kind == "head_output" else (2, tokens, 16))
    (hit,) = fa.search_heads(gemma, store, some[1], 1, 2, 3, top=1)
    assert (hit.text, hit.token.position) == (some[1], 1)
    assert hit.similarity == pytest.approx(1, abs=BRAIN)


def test_hidden_states_of_a_causal_model(gpt2, texts, tmp_path):
    some = list(texts[:6])
    store = fa.index_heads(gpt2, some, tmp_path / "b", [0], "hidden")
    _, _, vector = token_vector(gpt2, store, texts[3], 2, 0, None)
    hits, _ = nearest(store, vector, 0, top=3)
    assert hits[0].similarity == pytest.approx(1, abs=BRAIN)
    assert (hits[0].id, hits[0].token.position, hits[0].strongest) == ("3", 2, None)
    with_head, _ = nearest(store, vector, 0, 1, top=3)
    assert [hit[:6] for hit in with_head] == [hit[:6] for hit in hits]
    assert all(hit.strongest.position <= hit.token.position for hit in with_head)
    out = gpt2(
        **{n: a for n, a in gpt2.read([texts[3]]).given.items() if n != "key_classes"},
        output_hidden_states=True,
    )
    expected = np.asarray(out.hidden_states[1])[0, 2]
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), rtol=1e-4, atol=1e-6)


def test_texts_of_special_tokens_alone_are_searched_too(gpt2, tmp_path):
    special = dataclasses.replace(gpt2.config, bos_token_id=3)  # what "a" is read as
    model = dataclasses.replace(gpt2, config=special)
    store = fa.index_heads(model, ["a", "a"], tmp_path / "i", [0], "hidden")
    assert nearest(store, np.ones(16), 0, one_per_text=True) == ([], 0)


@pytest.mark.float16
@pytest.mark.parametrize("weights", [False, True])
def test_any_store_with_outputs_of_heads_can_be_searched(bert, lines, tmp_path, weights):
    """In float32, of one head; what a token attends to is read from weights, if these are there."""
    capture = fa.Capture(head_output=True, weights=weights, heads=(1,))
    fa.extract_to(tmp_path / "s", bert, lines, capture=capture)
    places, vectors, strongest = truth(
        bert, [text for text in lines.read_text().splitlines()], 1, 1
    )
    hits = fa.search_heads(bert, tmp_path / "s", "the cat is sad", "cat", 1, 1, top=5)
    query = token_vector(bert, fa.open_store(tmp_path / "s"), "the cat is sad", "cat", 1, 1)[2]
    exact = np.sort(vectors @ query)[::-1]
    np.testing.assert_allclose([hit.similarity for hit in hits], exact[:5], atol=1e-5)
    key = dict(zip(places, strongest, strict=True))
    for hit in hits:
        found = None if hit.strongest is None else hit.strongest.position
        assert found == (key[hit.line, hit.token.position] if weights else None)
    with pytest.raises(InputError, match="has no head 0"):
        fa.search_heads(bert, tmp_path / "s", "a b", 1, 1, 0)
    fa.extract_to(tmp_path / "maps", bert, lines)
    with pytest.raises(InputError, match="neither outputs of heads nor hidden states"):
        fa.search_heads(bert, tmp_path / "maps", "a b", 1, 1, 0)


def test_a_token_of_a_pair_comes_with_the_text_that_it_stands_in(bert, tmp_path):
    rows = [{"text": "the cat", "b": "h e is sad"}, {"text": "d e", "b": "very sad"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "pairs.jsonl").write_text(lines, encoding="utf-8")
    capture = fa.Capture(head_output=True)
    fa.extract_to(tmp_path / "s", bert, tmp_path / "pairs.jsonl", capture=capture, pair_column="b")
    hits = fa.search_heads(bert, tmp_path / "s", "a b", 1, 1, 1, top=99)
    assert len(hits) == 10 and {hit.text for hit in hits} == {v for r in rows for v in r.values()}
    for hit in hits:
        assert hit.text[hit.token.start : hit.token.stop] == hit.token.token


def test_tokens_of_trees_have_the_words_they_are_part_of(bert, tmp_path):
    trees = [TREE.format(number=n, word=word) for n, word in enumerate(["sad", "very"])]
    (tmp_path / "a.conllu").write_text("".join(trees), encoding="utf-8")
    store = fa.index_heads(bert, tmp_path / "a.conllu", tmp_path / "s", layers=0, kind="hidden")
    hits = fa.search_heads(bert, store, "the cat is sad", "cat", 0, 1, top=99)
    words = {(hit.token.token, *hit.token[5:]) for hit in hits}
    assert words == {
        ("the", "DET", "det", 1),
        ("cat", "NOUN", "nsubj", 2),
        ("is", "AUX", "cop", 1),
        ("sad", "ADJ", "root", None),
        ("very", "ADJ", "root", None),
    }
    with pytest.raises(InputError, match="of whole layers, not of heads"):
        store.array("encoder.hidden", 0, head=1)


@pytest.mark.float16
def test_texts_in_memory_and_in_files_give_the_same(bert, index, texts, lines, tmp_path):
    store = fa.index_heads(bert, list(texts), tmp_path / "a", layers=[0, 1])
    expected = fa.search_heads(bert, index, texts[0], 1, 1, 0, top=5)
    for opened in (store, tmp_path / "a"):
        hits = fa.search_heads(bert, opened, texts[0], 1, 1, 0, top=5)
        assert [(hit.text, hit.token) for hit in hits] == [(h.text, h.token) for h in expected]
    again = fa.index_heads(bert, lines, index.path, layers=[1, 0], shard_texts=3)  # resumes
    assert again.plan_sha256 == index.plan_sha256
    with pytest.raises(InputError, match="index_heads cannot use this model"):
        fa.index_heads("tiny-bert", list(texts), tmp_path / "c", layers=[0])


def test_histograms_counted_by_hand():
    def token(position, tag, relation, governor, special=False):
        return Token("x", position, 0, 1, special, tag, relation, governor)

    cls = token(0, None, None, None, special=True)
    root, noun = token(4, "VERB", "root", None), token(2, "NOUN", "nsubj", 2)
    pairs = [(noun, root), (noun, cls), (root, noun), (token(3, None, None, None), root)]
    hits = [Hit(1.0, "t", "…", "f", 1, one, other) for one, other in pairs]
    assert histograms(hits) == {
        "found": {
            "tag": {"NOUN": 2, "VERB": 1},
            "relation": {"nsubj": 2, "root": 1},
            "governor": {"+2": 2, "root": 1},
        },
        "strongest": {
            "tag": {"VERB": 2, "NOUN": 1, "special": 1},
            "relation": {"root": 2, "nsubj": 1, "special": 1},
            "governor": {"root": 2, "+2": 1, "special": 1},
            "offset": {"-2": 2, "+1": 1, "+2": 1},
        },
    }
    without = [Hit(1.0, "t", "…", "f", 1, token(1, None, None, None), cls)]
    assert histograms(without)["found"] == {"tag": {}, "relation": {}, "governor": {}}
    assert histograms(without)["strongest"]["tag"] == {"special": 1}
    assert histograms(without)["strongest"]["offset"] == {"-1": 1}


@pytest.mark.slow
def test_the_command_on_trees(bert, typed, tmp_path):
    bert.save_pretrained(tmp_path / "model")
    trees = [TREE.format(number=n, word=word) for n, word in enumerate(["sad", "very", "h"])]
    (tmp_path / "a.conllu").write_text("".join(trees), encoding="utf-8")
    out = tmp_path / "index"
    words = ("--model", tmp_path / "model", "--layers", 1, "--kind", "hidden", "--out", out)
    code, printed, error = typed("search", "build", tmp_path / "a.conllu", *words)
    assert code == 0 and "with 3 texts" in printed, error
    code, printed, _ = typed(
        "search",
        "query",
        out,
        "the cat is sad",
        "--token",
        "cat",
        "--head",
        "1.0",
        "--json",
        "--top",
        3,
    )
    found = json.loads(printed)
    assert code == 0 and found["query"]["position"] == 2 and found["searched"] == 12
    best = found["hits"][0]
    assert (best["id"], best["line"], best["token"]["token"]) == ("a.conllu:1", 1, "cat")
    assert (best["token"]["tag"], best["token"]["relation"]) == ("NOUN", "nsubj")
    assert best["token"]["governor"] == 2 and best["similarity"] > 1 - BRAIN
    tags = [hit["token"]["tag"] for hit in found["hits"]]
    assert found["histograms"]["found"]["tag"] == {
        t: tags.count(t) for t in sorted(set(tags), key=lambda tag: (-tags.count(tag), tag))
    }
    offset = best["strongest"]["position"] - 2
    assert f"{offset:+d}" in found["histograms"]["strongest"]["offset"]
    code, printed, _ = typed(
        "search", "query", out, "the cat is sad", "--token", 2, "--head", "1.0"
    )
    assert code == 0 and "nearest of 12 tokens" in printed and "found, tag: " in printed
    code, printed, _ = typed(
        "search", "query", out, "the cat", "--token", 2, "--json", "--one-per-text"
    )
    found = json.loads(printed)
    assert code == 0 and [found["layer"], found["head"]] == [1, None] and len(found["hits"]) == 3
    assert list(found["histograms"]) == ["found"]
    code, _, error = typed("search", "query", out, "the cat", "--token", 2, "--head", "one")
    assert code == 2 and "'one' is not a head; name one such as 1.0" in error
    (tmp_path / "b.txt").write_text("a b\n" + "a " * 60 + "\n", encoding="utf-8")
    words = ("--model", tmp_path / "model", "--layers", 0, "--out", tmp_path / "b")
    code, _, error = typed("search", "build", tmp_path / "b.txt", *words)
    assert code == 2 and "line 2" in error and len(error.splitlines()) <= 3
    code, printed, error = typed(
        "search", "build", tmp_path / "b.txt", *words, "--on-error", "skip"
    )
    assert (
        code == 0 and "with 1 texts" in printed and "texts left out: 1 (too-many-tokens)" in error
    )


@pytest.mark.float16
@pytest.mark.parametrize(
    ("text", "token", "layer", "head", "message"),
    [
        ("a b", 1, 2, 0, "has no layer 2"),
        ("a b", 1, 1, 2, "has no head 2"),
        ("a b", 1, 1, None, "a vector per head"),
        ("a b", 4, 0, 0, "there is no token 4: the text has 0 to 3"),
        ("a b", "c", 0, 0, "there is no word 'c' in the text\nits tokens are 0:[CLS] 1:a 2:b"),
        ("a " * 60, 1, 0, 0, "too long"),
    ],
)
def test_what_a_query_cannot_ask(bert, index, text, token, layer, head, message):
    with pytest.raises(InputError) as error:
        token_vector(bert, index, text, token, layer, head)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


@pytest.mark.float16
def test_a_store_of_another_model_is_refused(bert, index):
    params = jax.tree.map(lambda leaf: leaf + 1, bert.params)
    with pytest.raises(InputError, match="made with another model") as error:
        token_vector(dataclasses.replace(bert, params=params), index, "a b", 1, 0, 0)
    assert "parameters" in str(error.value) and len(str(error.value).splitlines()) == 3


@pytest.mark.float16
def test_what_cannot_be_indexed(bert, seq2seq, texts, index, tmp_path):
    out, some = tmp_path / "x", list(texts)
    for model, given, folder, layers, kind, message in (
        (seq2seq, some, out, (0,), "hidden", "name a BERT or a GPT-2"),
        (bert, some, out, (0,), "value", "kind 'value' is unknown"),
        (bert, some, out, (2,), "hidden", "layers 0 to 1"),
        (bert, some, out, (), "hidden", "expected one or several numbers"),
        (bert, some, out, -1, "hidden", "counted from 0, received -1"),
        (bert, [b"a"], out, 0, "hidden", "text 0 is a bytes"),
        (bert, some, index.path, (0,), "hidden", "is there already"),
        (bert, [], out, (0,), "hidden", "there is no text to index"),
        (bert, [("a", "b")], out, (0,), "hidden", "'0' is a pair"),
        (bert, ["a b", "a " * 60], out, (0,), "hidden", "text 1"),
    ):
        with pytest.raises(InputError) as error:
            fa.index_heads(model, given, folder, layers, kind)
        assert message in str(error.value) and len(str(error.value).splitlines()) <= 3, error.value
        assert not out.exists()
    with pytest.raises(StoreError, match="is not a store"):
        fa.search_heads(bert, tmp_path, "a b", 1, 0, 0)
    with pytest.raises(InputError, match="norm 0"):
        nearest(index, np.zeros(8), 0, 0)
