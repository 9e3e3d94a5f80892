# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Traces of an encoder-decoder know the words of both texts, and models their positions."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import flaxattn as fa
from flaxattn.cli import main
from flaxattn.errors import InputError
from flaxattn.measures.word_alignment import pharaoh, word_alignment
from flaxattn.models.positions import UNUSED_ROWS, sinusoids
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.text.tokenizer import Tokenizer

SOURCES = ["ein Haus am See.", "der Hund, der bellt"]
TARGETS = ["a lakehouse", "the dog that barks loudly"]


def handle(**settings: Any) -> PretrainedSeq2Seq:
    """A small random model with a vocabulary learnt from a few words."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=60, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False
    )
    backend.train_from_iterator(SOURCES + TARGETS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    config = fa.Seq2SeqConfig(
        vocab_size=60,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=40,
        **settings,
    )
    module = Seq2SeqLM(config)
    ids = np.ones((1, 2), np.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), ids, ids, ids)["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda s: rng.normal(0, 0.5, s.shape).astype(np.float32), shapes)
    tokenizer = Tokenizer(backend, {"pad_token": "<pad>"})
    return PretrainedSeq2Seq(module, params, tokenizer, config, "small")


@pytest.fixture(scope="module")
def model() -> PretrainedSeq2Seq:
    return handle()


def words(pieces: Any, numbers: Any) -> list[str]:
    """Words put together from their pieces."""
    found = [""] * (1 + max(number for number in numbers if number is not None))
    for piece, number in zip(pieces, numbers, strict=True):
        if number is not None:
            found[number] += piece.strip()
    return found


@pytest.mark.slow
def test_tokens_of_both_texts_know_their_words(model: PretrainedSeq2Seq) -> None:
    for source, target in zip(SOURCES, TARGETS, strict=True):
        one = model.trace(source, target)
        assert words(one.tokens[0], one.words[0]) == source.split()
        assert words(one.written[0], one.decoder_words[0]) == target.split()
        assert one.written[0][-1] == one.tokens[0][-1] == "</s>"
        assert one.decoder_words[0][-1] is one.words[0][-1] is None
        assert one.decoder_special[0].tolist() == [True] + [False] * (len(one.written[0]) - 1)


@pytest.mark.slow
def test_the_alignment_is_that_of_its_words(model: PretrainedSeq2Seq) -> None:
    for source, target in zip(SOURCES, TARGETS, strict=True):
        (pairs,) = word_alignment(model.trace(source, target))
        assert [word for _, word in pairs] == list(range(len(target.split())))
        assert all(0 <= word < len(source.split()) for word, _ in pairs)
        assert len(pharaoh(pairs).split()) == len(target.split())


@pytest.mark.slow
def test_words_of_a_text_it_wrote_are_those_of_the_text(model: PretrainedSeq2Seq) -> None:
    texts, trace = model.generate(SOURCES, max_new_tokens=12, trace=True)
    for b, text in enumerate(texts):
        assert max(n for n in trace.decoder_words[b] if n is not None) == len(text.split()) - 1


@pytest.mark.slow
def test_ids_alone_give_a_trace_that_can_be_cut(model: PretrainedSeq2Seq) -> None:
    given = {"input_ids": [[5, 6, 1, 0], [7, 8, 9, 1]], "attention_mask": [[1, 1, 1, 0], [1] * 4]}
    _, trace = model.generate(**given, max_new_tokens=5, trace=True)
    one = trace[0]
    assert one.cross.weights.shape[-1] == len(one.tokens[0]) == 3


@pytest.mark.slow
def test_the_command_shows_a_source_and_its_target(
    model: PretrainedSeq2Seq, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "model")
    page = tmp_path / "page.html"
    words = ["view", SOURCES[0], TARGETS[0], "--model", str(tmp_path / "model"), "-o", str(page)]
    assert main([*words, "--side", "all", "--heads", "1,3"]) == 0
    text = page.read_text(encoding="utf-8")
    assert '"side":"all"' in text and '"heads":[1,3]' in text


def test_tables_of_positions_are_those_that_are_added(model: PretrainedSeq2Seq) -> None:
    np.testing.assert_array_equal(model.positions(), sinusoids(40, 16))
    learned = handle(positions="learned")
    for side in ("encoder", "decoder"):
        stored = learned.params["model"][f"{side}_inputs"]["position"]["embedding"]
        np.testing.assert_array_equal(learned.positions(side), stored[UNUSED_ROWS:])
    with pytest.raises(InputError, match="There is no 'source' with positions"):
        learned.positions("source")


def test_a_bert_hands_out_its_positions() -> None:
    model = fa.from_pretrained("tiny-bert")
    table = model.positions()
    stored = jax.tree_util.tree_leaves_with_path(model.params)
    (found,) = [leaf for path, leaf in stored if "'position'" in jax.tree_util.keystr(path)]
    np.testing.assert_array_equal(table, found)
    assert table.shape == (model.config.max_position_embeddings, model.config.hidden_size)
