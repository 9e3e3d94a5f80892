# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers that transformers reads, on SentencePiece models and vocabularies learnt here."""

import io
import json
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import sentencepiece
import transformers

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.pretrained import model_directory
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.transformers_tokenizer import open_tokenizer

SOURCES = ["The old man reads a book.", "A small dog runs, and the cat sleeps!", "Is it so?"]
TARGETS = ["Der alte Mann liest ein Buch.", "Ein kleiner Hund rennt, die Katze schläft!", "So?"]
TEXTS = [*SOURCES, "  Two   spaces and a tab\there ", "Unknown: ж漢", "ﬁne ligatures, ½"]


def both(folder: Path) -> tuple[Any, Any]:
    """The tokenizers of the source and of the target."""
    return open_tokenizer(folder), open_tokenizer(folder, "target_")


def learnt(sentences: list[str], size: int) -> bytes:
    """A small unigram model over pieces of some sentences, in random order."""
    rng, model = random.Random(0), io.BytesIO()
    words = " ".join(sentences).split()
    lines = [" ".join(rng.choices(words, k=9)) for _ in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def models() -> tuple[bytes, bytes]:
    return learnt(SOURCES, 60), learnt(TARGETS, 70)


def write(folder: Path, models: tuple[bytes, bytes], **settings: Any) -> Path:
    """A directory as Marian's converter makes it, ids in an order of their own."""
    tokens = []
    for name, model in zip(("source", "target"), models, strict=True):
        (folder / f"{name}.spm").write_bytes(model)
        reader = sentencepiece.SentencePieceProcessor(model_proto=model)
        tokens.append([reader.id_to_piece(i) for i in range(reader.get_piece_size())])
    apart = settings.get("separate_vocabs", False)
    both = [tokens[0], tokens[1]] if apart else [tokens[0] + tokens[1]] * 2
    for name, held in zip(("vocab.json", "target_vocab.json"), both, strict=True):
        kept = sorted({*held} - {"<s>", "</s>", "<unk>"})
        order = ["</s>", "<unk>", *kept, ">>deu<<", ">>nld<<", "<pad>"]
        if apart or name == "vocab.json":
            vocabulary = {piece: number for number, piece in enumerate(order)}
            (folder / name).write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("apart", [False, True])
def test_ids_are_those_of_the_tokens(
    tmp_path: Path, models: tuple[bytes, bytes], apart: bool
) -> None:
    folder = write(tmp_path, models, separate_vocabs=apart)
    names = ("vocab.json", "target_vocab.json" if apart else "vocab.json")
    for reader, file, model in zip(both(folder), names, models, strict=True):
        vocabulary = json.loads((folder / file).read_text(encoding="utf-8"))
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        found = reader.encode(TEXTS)
        assert reader.count(TEXTS) == found.attention_mask.sum(1).tolist()
        for row, text in enumerate(TEXTS):
            tokens = processor.encode(text, out_type=str)
            expected = [vocabulary.get(piece, vocabulary["<unk>"]) for piece in tokens]
            assert found.input_ids[row, : len(expected) + 1].tolist() == [*expected, 0]
            assert (found.input_ids[row, len(expected) + 1 :] == vocabulary["<pad>"]).all()
            assert found.attention_mask[row].sum() == len(expected) + 1
        assert reader.vocab_size == len(vocabulary)


def test_texts_come_back_and_words_are_distinguished(
    tmp_path: Path, models: tuple[bytes, bytes]
) -> None:
    source, _ = both(write(tmp_path, models))
    found = source.encode(SOURCES)
    for row, text in enumerate(SOURCES):
        assert source.decode(found.input_ids[row]) == text
        words = [word for word in found.word_ids[row] if word is not None]
        assert sorted(set(words)) == list(range(len(text.split())))
        for word, (begin, end) in zip(found.word_ids[row], found.offsets[row], strict=True):
            assert word is None or text[begin:end].strip() in text.split()[word]
        joined = "".join(found.tokens[row][: len(words)])
        assert joined == f" {text}"


def test_a_language_is_named_before_the_text(tmp_path: Path, models: tuple[bytes, bytes]) -> None:
    source, _ = both(write(tmp_path, models))
    plain, tagged = source.encode(SOURCES[0]), source.encode(f">>nld<<{SOURCES[0]}")
    assert tagged.input_ids[0, 1:].tolist() == plain.input_ids[0].tolist()
    assert tagged.tokens[0][0] == ">>nld<<" and tagged.special[0, 0]
    with pytest.raises(InputError) as error:
        source.encode(["fine", ">>xyz<< a text"])
    assert str(error.value).splitlines() == [
        "text 1 begins with >>xyz<<, a language this model does not know",
        "its vocabulary has >>deu<<, >>nld<<",
        "begin the text with one of these, or with none",
    ]


def test_long_texts_are_refused_or_cut(tmp_path: Path, models: tuple[bytes, bytes]) -> None:
    source, _ = both(write(tmp_path, models))
    with pytest.raises(InputError, match=r"text 1 is too long: \d+ tokens, the limit is 5"):
        source.encode(["man", SOURCES[1]], max_length=5)
    found = source.encode(SOURCES[1], max_length=5, truncate=True)
    assert found.input_ids.shape == (1, 5) and found.input_ids[0, -1] == 0
    assert found.truncated[0] > 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "target.spm").unlink(), "no target.spm in"),
        (lambda folder: (folder / "source.spm").write_bytes(b"x" * 99), "source.spm"),
        (lambda folder: (folder / "vocab.json").write_text("[]"), "must be in the vocab"),
        (lambda folder: (folder / "vocab.json").write_text('{"a": "b"}'), "must be in the vocab"),
        (lambda folder: (folder / "vocab.json").write_text('{"<unk>": 0.5}'), "has no vocabulary"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, models: tuple[bytes, bytes], damage: Any, message: str
) -> None:
    folder = write(tmp_path, models)
    damage(folder)
    with pytest.raises(CheckpointError) as error:
        both(folder)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_a_model_keeps_its_tokenizers(
    tmp_path: Path, models: tuple[bytes, bytes], apart: bool
) -> None:
    folder = write(tmp_path, models, separate_vocabs=apart)
    source, target = both(folder)
    sizes = {"vocab_size": source.vocab_size, "decoder_vocab_size": target.vocab_size}
    config = fa.Seq2SeqConfig.tiny(
        **sizes,
        share_encoder_decoder_embeddings=not apart,
        tie_word_embeddings=not apart,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        pad_token_id=source.vocab_size - 1,
        eos_token_id=0,
        decoder_start_token_id=target.vocab_size - 1,
    )
    module = Seq2SeqLM(config)
    params = jax.jit(module.init)(jax.random.key(0), np.ones((1, 1), int))["params"]
    model_directory.save(folder, module, params, tokenizer=source, target_tokenizer=target)
    model = fa.from_pretrained(folder)
    model.save_pretrained(tmp_path / "again")
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        again = (tmp_path / "again" / name).read_bytes()
        if name.endswith("json"):  # transformers adds to the settings
            assert json.loads(again).items() >= json.loads((folder / name).read_bytes()).items()
        else:
            assert again == (folder / name).read_bytes()
    trace = model.trace(SOURCES[0], TARGETS[0])
    assert "".join(trace[0].written[0][:-1]) == f" {TARGETS[0]}"
    (text,) = model.generate(SOURCES[0], max_new_tokens=4)
    assert isinstance(text, str)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("apart", [False, True])
def test_transformers_reads_the_same(
    tmp_path: Path, models: tuple[bytes, bytes], apart: bool
) -> None:
    folder = write(tmp_path, models, separate_vocabs=apart)
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    source, target = both(folder)
    for text in [*TEXTS, f">>deu<< {SOURCES[1]}"]:
        assert source.encode(text).input_ids[0].tolist() == theirs(text)["input_ids"]
        ids = theirs(text_target=text)["input_ids"]
        assert target.encode(text).input_ids[0].tolist() == ids
        assert target.decode(ids) == theirs.decode(
            ids, skip_special_tokens=True, use_source_tokenizer=False
        )


def words_of(batch: Any, text: str) -> list[str]:
    """What the offsets of the tokens of a text stand for."""
    kept = zip(batch.offsets[0], batch.special[0], strict=True)
    return [text[start:end] for (start, end), special in kept if not special]


def test_a_byte_level_vocabulary_without_tokenizer_json(tmp_path: Path) -> None:
    tokens = ["<|endoftext|>", "a", "b", "Ġ", "ab", "Ġa"]
    (tmp_path / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ a\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    tokenizer = open_tokenizer(tmp_path)
    assert isinstance(tokenizer, Tokenizer)
    batch = tokenizer.encode("ab a")
    assert batch.input_ids.tolist() == [[4, 5]] and words_of(batch, "ab a") == ["ab", " a"]
    tokenizer.save(tmp_path / "again")
    assert (tmp_path / "again" / "tokenizer.json").is_file()
    again = open_tokenizer(tmp_path / "again")
    assert again is not None and again.encode("ab a").input_ids.tolist() == [[4, 5]]


def test_a_sentencepiece_model_alone(tmp_path: Path, models: tuple[bytes, bytes]) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(models[0])
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    tokenizer = open_tokenizer(tmp_path)
    assert isinstance(tokenizer, Tokenizer)
    text = SOURCES[0]
    batch = tokenizer.encode(text)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert batch.input_ids[0].tolist() == theirs(text)["input_ids"]
    assert "".join(batch.tokens[0][1:-1]) == f" {text}"
    words = [word for word in batch.word_ids[0] if word is not None]
    assert sorted(set(words)) == list(range(len(text.split())))


def test_a_directory_without_vocabulary_has_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert open_tokenizer(tmp_path) is None and open_tokenizer(tmp_path, "target_") is None
