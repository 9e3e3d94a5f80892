# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn search`: an index against traces, the nearest against brute force, and the errors."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.corpus.texts import Text
from flaxattn.errors import CheckpointError, InputError, StoreError
from flaxattn.measures import search
from flaxattn.measures.search import (
    Hit,
    Token,
    Wanted,
    build_head_index,
    bytes_per_token,
    histograms,
    nearest,
    token_vector,
)
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.store.token_index import INDEX, open_head_index

TREE = """# sent_id = s{number}
1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\t_\tNOUN\t_\t_\t4\tnsubj\t_\t_
3\tis\t_\tAUX\t_\t_\t4\tcop\t_\t_
4\t{word}\t_\tADJ\t_\t_\t0\troot\t_\t_

"""
# Vectors are stored as float16, of norm one: each number is right to 2^-11 of itself.
HALF = 1e-3


@pytest.fixture(scope="module")
def corpus(texts):
    return [Text(n, f"t{n}", text, file="a.txt", line=n + 1) for n, text in enumerate(texts)]


def built(model, corpus, out, kind="head_output", layers=(0, 1), **options):
    build_head_index(model, corpus, out, Wanted(kind, layers), **options)
    return open_head_index(out)


@pytest.fixture(scope="module")
def index(bert, corpus, tmp_path_factory):
    """Outputs of heads of both layers, in shards of about 40 positions."""
    before, search._POSITIONS = search._POSITIONS, 40
    found = built(bert, corpus, tmp_path_factory.mktemp("index") / "i")
    search._POSITIONS = before
    return found


def truth(model, texts, layer, head):
    """Text, position and unit vector of every plain token, and what each attends to most."""
    places, vectors, strongest = [], [], []
    for number, text in enumerate(texts):
        trace = model.trace(text, capture=fa.Capture(head_output=True, weights=True))
        seen = trace.encoder or trace.decoder
        for place in np.flatnonzero(~np.asarray(trace.special)[0]):
            vector = np.asarray(seen.head_output)[layer, 0, place, head]
            places.append((f"t{number}", int(place)))
            vectors.append(vector / np.linalg.norm(vector))
            strongest.append(int(np.asarray(seen.weights)[layer, 0, head, place].argmax()))
    return places, np.array(vectors), strongest


@pytest.mark.few("1-1")
@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 1)])
def test_the_nearest_are_those_of_brute_force(bert, index, texts, layer, head):
    assert index.shards > 3 and index.texts == len(texts)
    places, vectors, strongest = truth(bert, texts, layer, head)
    assert len(index) == len(places)
    position, piece, vector = token_vector(bert, index, "the cat is sad", "cat", layer, head)
    assert (position, piece) == (2, "cat")
    hits = nearest(index, 3 * vector, layer, head, top=25)
    exact = vectors @ vector
    told = dict(zip(places, zip(exact, strongest, strict=True), strict=True))
    for hit in hits:
        cosine, key = told[hit.id, hit.token.position]
        assert hit.similarity == pytest.approx(cosine, abs=HALF)
        assert hit.strongest is not None and hit.strongest.position == key
        assert hit.text == texts[int(hit.id[1:])] and hit.line == int(hit.id[1:]) + 1
        assert hit.text[hit.token.start : hit.token.stop] == hit.token.token
    found = [hit.similarity for hit in hits]
    assert found == sorted(found, reverse=True)
    np.testing.assert_allclose(found, np.sort(exact)[::-1][:25], atol=HALF)
    assert len({(hit.id, hit.token.position) for hit in hits}) == 25
    for sign in (1, -1):
        few = [hit.similarity for hit in nearest(index, sign * vector, layer, head, top=2)]
        np.testing.assert_allclose(few, np.sort(sign * exact)[::-1][:2], atol=HALF)
        best = {t: max(sign * told[p][0] for p in places if p[0] == t) for t, _ in places}
        for top in (1, 2, 3, 5, 9):
            singles = nearest(index, sign * vector, layer, head, top=top, one_per_text=True)
            found = [hit.similarity for hit in singles]
            np.testing.assert_allclose(found, sorted(best.values())[::-1][:top], atol=HALF)
            assert len({hit.id for hit in singles}) == top


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["head_output", "hidden"])
def test_heads_whose_vectors_together_are_wider_than_hidden_states(
    kind: str, tmp_path: Path
) -> None:
    gemma = fa.from_pretrained(write_decoder(tmp_path / "gemma"))
    assert isinstance(gemma.config, DecoderConfig)
    assert (gemma.config.hidden_size, gemma.config.head_size) == (16, 8)  # of 4 heads
    some = [Text(n, f"t{n}", text) for n, text in enumerate(["the cat sat", "a dog"])]
    index = built(gemma, some, tmp_path / "index", kind, (0, 2))
    each = 2 * (2 * (32 if kind == "head_output" else 16) + 4 * 4)
    assert bytes_per_token(gemma, Wanted(kind, (0, 2))) == each
    if kind == "head_output":
        _, vectors, _ = truth(gemma, [text.text for text in some], 2, 3)
        np.testing.assert_allclose(index.vectors(0, 2, 3), vectors, atol=HALF)
    stored = sum(file.stat().st_size for file in (tmp_path / "index").glob("*.npy"))
    assert each * len(index) <= stored < each * len(index) + 1000


@pytest.mark.slow
def test_a_causal_model_and_hidden_states(gpt2, texts, corpus, tmp_path):
    _, vectors, _ = truth(gpt2, texts[:6], 1, 0)
    index = built(gpt2, corpus[:6], tmp_path / "a", layers=(1,))
    np.testing.assert_allclose(index.vectors(0, 1, 0), vectors, atol=HALF)
    index = built(gpt2, corpus[:6], tmp_path / "b", "hidden", (0,))
    _, _, vector = token_vector(gpt2, index, texts[3], 2, 0, None)
    hits = nearest(index, vector, 0, top=3)
    assert hits[0].similarity == pytest.approx(1, abs=HALF)
    assert (hits[0].id, hits[0].token.position, hits[0].strongest) == ("t3", 2, None)
    with_head = nearest(index, vector, 0, 1, top=3)
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
    subjects = [Text(0, "t0", "a"), Text(1, "t1", "a")]
    index = built(model, subjects, tmp_path / "i", "hidden", (0,))
    assert (len(index), index.texts) == (0, 2)
    assert nearest(index, np.ones(16), 0, one_per_text=True) == []


@pytest.mark.slow
def test_repeated_sentences_find_each_other_in_order(bert, tmp_path):
    lines = ["a b c", "the cat is sad", "a b c", "d e", "a b c"]
    subjects = [Text(n, f"t{n}", text) for n, text in enumerate(lines)]
    index = built(bert, subjects, tmp_path / "i", "hidden")
    _, _, vector = token_vector(bert, index, "a b c", "b", 1, 1)
    hits = nearest(index, vector, 1, 1, top=3)
    assert [(hit.id, hit.token.token, hit.token.position) for hit in hits] == [
        ("t0", "b", 2),
        ("t2", "b", 2),
        ("t4", "b", 2),
    ]
    assert len(nearest(index, vector, 1, 1, top=99)) == len(index) == 15


def test_two_calls_do_what_the_parts_do(bert, texts, corpus, tmp_path):
    index = fa.index_heads(bert, list(texts), tmp_path / "a", layers=[0, 1])
    other = built(bert, corpus, tmp_path / "b")
    assert len(index) == len(other) and index.texts == other.texts
    vector = token_vector(bert, other, texts[0], 1, 1, 0)[2]
    expected = nearest(other, vector, 1, 0, top=5)
    for opened in (index, tmp_path / "a"):
        hits = fa.search_heads(bert, opened, texts[0], 1, 1, 0, top=5)
        assert [(hit.similarity, hit.text, hit.token) for hit in hits] == [
            (hit.similarity, hit.text, hit.token) for hit in expected
        ]
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
    code, said, error = typed("search", "build", tmp_path / "a.conllu", *words)
    assert code == 0 and "with 3 texts" in said, error
    code, said, _ = typed(
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
    found = json.loads(said)
    assert code == 0 and found["query"]["position"] == 2 and found["searched"] == 12
    best = found["hits"][0]
    assert (best["id"], best["line"], best["token"]["token"]) == ("s0", 1, "cat")
    assert (best["token"]["tag"], best["token"]["relation"]) == ("NOUN", "nsubj")
    assert best["token"]["governor"] == 2 and best["similarity"] > 1 - HALF
    tags = [hit["token"]["tag"] for hit in found["hits"]]
    assert found["histograms"]["found"]["tag"] == {
        t: tags.count(t) for t in sorted(set(tags), key=lambda tag: (-tags.count(tag), tag))
    }
    offset = best["strongest"]["position"] - 2
    assert f"{offset:+d}" in found["histograms"]["strongest"]["offset"]
    code, said, _ = typed("search", "query", out, "the cat is sad", "--token", 2, "--head", "1.0")
    assert code == 0 and "nearest of 12 tokens" in said and "found, tag: " in said
    code, said, _ = typed(
        "search", "query", out, "the cat", "--token", 2, "--json", "--one-per-text"
    )
    found = json.loads(said)
    assert code == 0 and [found["layer"], found["head"]] == [1, None] and len(found["hits"]) == 3
    assert list(found["histograms"]) == ["found"]
    code, _, error = typed("search", "query", out, "the cat", "--token", 2, "--head", "one")
    assert code == 2 and "'one' is not a head such as 1.0" in error
    (tmp_path / "b.txt").write_text("a b\n" + "a " * 60 + "\n", encoding="utf-8")
    words = ("--model", tmp_path / "model", "--layers", 0, "--out", tmp_path / "b")
    code, _, error = typed("search", "build", tmp_path / "b.txt", *words)
    assert code == 2 and "line 2" in error and len(error.splitlines()) <= 3
    code, said, error = typed("search", "build", tmp_path / "b.txt", *words, "--on-error", "skip")
    assert code == 0 and "with 1 texts" in said and "left out 1 texts: too-many-tokens" in error


def test_damage_is_found_and_nothing_is_half_written(bert, corpus, tmp_path, monkeypatch):
    index = built(bert, corpus[:3], tmp_path / "i")
    vector = np.array(index.vectors(0, 0, 0)[0], np.float32)
    for name in ("00000.vectors.npy", "00000.strongest.npy", "00000.tokens.parquet", INDEX):
        path = index.path / name
        whole = path.read_bytes()
        # The last bytes of an array are those of the last head.
        for data in (whole[:-9], whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]):
            path.write_bytes(data)
            with pytest.raises(StoreError, match="is damaged") as told:
                nearest(open_head_index(index.path), np.ones(8), 1, 1, top=999)
            assert name in str(told.value) and len(str(told.value).splitlines()) == 3
        path.write_bytes(whole)
    assert nearest(index, vector, 0, 0, top=1)[0].token.position == 1
    (index.path / "00000.texts.parquet").unlink()
    with pytest.raises(StoreError, match="No such file"):
        nearest(open_head_index(index.path), vector, 0, 0)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(search.HeadIndexWriter, "finish", full)
    with pytest.raises(CheckpointError, match="No space left"):
        built(bert, corpus[:2], tmp_path / "j")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["i"]


@pytest.mark.parametrize(
    ("text", "token", "layer", "head", "told"),
    [
        ("a b", 1, 2, 0, "has no layer 2"),
        ("a b", 1, 1, 2, "has no head 2"),
        ("a b", 1, 1, None, "a vector per head"),
        ("a b", 4, 0, 0, "there is no token 4: the text has 0 to 3"),
        ("a b", "c", 0, 0, "there is no word 'c' in the text\nits tokens are 0:[CLS] 1:a 2:b"),
        ("a " * 60, 1, 0, 0, "too long"),
    ],
)
def test_what_a_query_cannot_ask(bert, index, text, token, layer, head, told):
    with pytest.raises(InputError) as error:
        token_vector(bert, index, text, token, layer, head)
    assert told in str(error.value) and len(str(error.value).splitlines()) <= 3


def test_an_index_of_another_model_is_refused(bert, index):
    params = jax.tree.map(lambda leaf: leaf + 1, bert.params)
    with pytest.raises(InputError, match="made with another model") as told:
        token_vector(dataclasses.replace(bert, params=params), index, "a b", 1, 0, 0)
    assert "parameters" in str(told.value) and len(str(told.value).splitlines()) == 3


def test_what_cannot_be_indexed(bert, seq2seq, corpus, index, tmp_path):
    out = tmp_path / "x"
    for model, given, folder, wanted, told in (
        (seq2seq, corpus, out, Wanted("hidden", (0,)), "name a BERT or a GPT-2"),
        (bert, corpus, out, Wanted("value", (0,)), "kind 'value' is unknown"),
        (bert, corpus, out, Wanted("hidden", (2,)), "layers 0 to 1"),
        (bert, corpus, out, Wanted("hidden", ()), "no layer was named"),
        (bert, corpus, index.path, Wanted("hidden", (0,)), "is there already"),
        (bert, [], out, Wanted("hidden", (0,)), "there is no text to index"),
        (bert, [Text(0, "p", "a", "b")], out, Wanted("hidden", (0,)), "'p' is a pair"),
        (bert, [Text(0, "p", "a " * 60, file="f", line=7)], out, Wanted("hidden", (0,)), "line 7"),
    ):
        with pytest.raises(InputError) as error:
            build_head_index(model, given, folder, wanted)
        assert told in str(error.value) and len(str(error.value).splitlines()) <= 3, error.value
        assert not out.exists()
    with pytest.raises(InputError, match=r"not an index of tokens: it has no index\.json"):
        open_head_index(tmp_path)
    with pytest.raises(InputError, match="norm 0"):
        nearest(index, np.zeros(8), 0, 0)
