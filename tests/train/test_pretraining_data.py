# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches: their layout, and that corpus, recipe and step alone decide what is in them."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grain
import jax
import numpy as np
import pytest
from absl import flags

from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.train import pretraining_data
from flaxattn.train.corpus import TokenCorpus, build_corpus
from flaxattn.train.pretraining_data import (
    Batches,
    HeldoutBatches,
    PretrainingBatch,
    PretrainingFeed,
    heldout_batches,
)
from flaxattn.train.recipe import PretrainRecipe

RECIPE = PretrainRecipe(steps=100, batch_size=8, lengths=(32,), evaluate_batches=3)
PHASES = dataclasses.replace(RECIPE, lengths=(16, 32), length_shares=(0.6, 0.4), steps=30)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(["a few words for a small vocabulary of pieces"] * 3, 60, True)


@pytest.fixture(scope="module")
def documents(tokenizer: Tokenizer) -> list[list[list[int]]]:
    rng, most = random.Random(1), tokenizer.vocab_size - 1
    return [
        [[rng.randint(5, most) for _ in range(rng.randint(3, 12))] for _ in range(30)]
        for _ in range(20)
    ]


@pytest.fixture
def corpus(
    store: Callable[[Sequence], TokenCorpus], documents: list[list[list[int]]]
) -> TokenCorpus:
    """A fresh folder for every test: what is kept in it is part of the subject."""
    return store(documents)


Make = Callable[..., PretrainingFeed]


@pytest.fixture
def feed(corpus: TokenCorpus, tokenizer: Tokenizer) -> Make:
    def make(recipe: PretrainRecipe = RECIPE, **options: int) -> PretrainingFeed:
        return PretrainingFeed(corpus, tokenizer, recipe, **options)

    return make


def same(one: PretrainingBatch, other: PretrainingBatch) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


def joined(batches: Sequence[PretrainingBatch]) -> PretrainingBatch:
    """All their rows."""
    return jax.tree.map(lambda *columns: np.concatenate(columns), *batches)


def unmasked(batch: PretrainingBatch) -> np.ndarray:
    """The ids before anything was hidden."""
    ids = np.array(batch.input_ids)
    real = np.array(batch.masked_weights) > 0
    rows = np.nonzero(real)[0]
    ids[rows, np.array(batch.masked_positions)[real]] = np.array(batch.masked_ids)[real]
    return ids


def test_a_batch_has_the_published_layout(
    feed: Make, tokenizer: Tokenizer, corpus: TokenCorpus
) -> None:
    now = feed()
    batch, pairs = now[0], now.batches.rows(32, 0, 0)[:, 0]
    assert [column.dtype for column in jax.tree.leaves(batch)] == [np.int32] * 5 + [
        np.float32,
        np.int32,
    ]
    assert batch.input_ids.shape == (8, 32)
    assert batch.masked_positions.shape == (8, 5)
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    for row, (one, two, first, second, is_random) in enumerate(pairs.tolist()):
        a, b = corpus.tokens[one : one + first], corpus.tokens[two : two + second]
        expected = [cls, *a.tolist(), sep, *b.tolist(), sep]
        size = len(expected)
        assert unmasked(batch)[row].tolist() == expected + [pad] * (32 - size)
        assert batch.attention_mask[row].tolist() == [1] * size + [0] * (32 - size)
        types = [0] * (first + 2) + [1] * (second + 1)
        assert batch.token_type_ids[row].tolist() == types + [0] * (32 - size)
        assert batch.next_sentence_label[row] == is_random
        count = min(5, max(1, round(0.15 * size)))
        assert batch.masked_weights[row].tolist() == [1] * count + [0] * (5 - count)
        places = batch.masked_positions[row].tolist()
        assert places[count:] == [0] * (5 - count)
        assert places[:count] == sorted(set(places[:count]))
        assert not {0, first + 1, size - 1} & set(places[:count])


def test_at_least_one_token_is_predicted(feed: Make) -> None:
    batch = feed(dataclasses.replace(RECIPE, masked_lm_prob=0.01))[0]
    assert (np.sum(batch.masked_weights, 1) == 1).all()


@pytest.mark.parametrize("pack", [1, 3])
def test_parts_of_hosts_make_up_the_whole_batch(feed: Make, pack: int) -> None:
    recipe = dataclasses.replace(RECIPE, pack=pack)
    for step in (0, 13, 99):
        whole = feed(recipe)[step]
        for parts in (2, 4, 8):
            shares = [feed(recipe, part=part, parts=parts)[step] for part in range(parts)]
            assert same(joined(shares), whole)


def test_a_batch_without_equal_parts(feed: Make) -> None:
    with pytest.raises(InputError) as error:
        feed(part=0, parts=3)
    assert str(error.value) == (
        "recipe: a batch of 8 sequences of length 32 has no 3 equal parts\n"
        "there are 3 hosts\nchange batch_size"
    )


def test_a_restart_finds_the_same_batches_in_any_order(feed: Make) -> None:
    steps = list(range(len(feed(PHASES))))
    one = feed(PHASES)
    expected = [one[step] for step in steps]
    again = feed(PHASES)
    for step in random.Random(0).sample(steps, len(steps)):
        assert same(again[step], expected[step])
    assert same(feed(PHASES)[29], expected[29])
    with pytest.raises(IndexError):
        again[30]


def test_without_the_kept_plans_too(feed: Make, corpus: TokenCorpus) -> None:
    expected = feed()[99]
    for path in (corpus.folder / "plans").iterdir():
        path.unlink()
    assert same(feed()[99], expected)


def test_a_restart_makes_no_plan_but_its_own(feed: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    now = feed()
    last = now.find(99)
    assert last.epoch > 1
    for step in range(100):
        now[step]
    calls = []
    monkeypatch.setattr(pretraining_data, "write_plan", lambda *arguments: calls.append(arguments))
    assert feed().find(99) == last
    feed()[99]
    assert not calls


def test_each_pair_comes_once_in_a_pass(feed: Make) -> None:
    now = feed()
    first = now.find(0)
    seen = [
        pair
        for step in range(first.start, first.stop)
        for pair in now.batches.rows(32, 0, step)[:, 0].tolist()
    ]
    plan = now.batches.plans.rows(32, 0)[:, 0]
    assert 0 <= len(plan) - len(seen) < 8
    assert seen == plan[: len(seen)].tolist()
    assert now.find(first.stop).epoch == 1


def test_a_new_pass_begins_with_every_phase(feed: Make) -> None:
    now = feed(PHASES)
    found = [now.find(step) for step in range(30)]
    assert [p.length for p in found] == [16] * 18 + [32] * 12
    assert [now[step].input_ids.shape for step in (17, 18)] == [(16, 16), (8, 32)]
    passes = sorted(set(found))
    assert [p.epoch for p in passes] == list(range(len(passes)))
    assert [p.start for p in passes[1:]] == [p.stop for p in passes[:-1]]
    assert 18 in {p.start for p in passes}


def test_seed_label_and_pass_change_the_batches(
    feed: Make, corpus: TokenCorpus, tokenizer: Tokenizer
) -> None:
    here = feed()
    other = feed(dataclasses.replace(RECIPE, seed=1))
    held = PretrainingFeed(corpus, tokenizer, RECIPE, label="heldout")
    texts = [unmasked(batch).tolist() for batch in (here[0], other[0], held[0])]
    texts.append(unmasked(here[here.find(0).stop]).tolist())
    assert len({str(text) for text in texts}) == 4


def test_masks_differ_from_pass_to_pass_for_the_same_pairs(
    corpus: TokenCorpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(corpus, tokenizer, RECIPE, "train", 0, 1)
    rows = batches.rows(32, 0, 0)
    monkeypatch.setattr(batches, "rows", lambda *_: rows)
    one, again, other = (batches.batch(32, epoch, 0) for epoch in (0, 0, 1))
    assert (unmasked(one) == unmasked(other)).all()
    assert same(one, again)
    assert (one.masked_positions != other.masked_positions).any(1).all()


def test_whole_words_are_hidden_or_not_at_all(feed: Make, tokenizer: Tokenizer) -> None:
    now = feed(dataclasses.replace(RECIPE, whole_word_masking=True, masked_lm_prob=0.3))
    continues = now.batches.vocabulary.continues
    assert 5 < continues.sum() < tokenizer.vocab_size - 5
    split = 0
    for step in range(10):
        batch = now[step]
        ids, length = unmasked(batch), 32
        for row in range(8):
            count = int(np.sum(batch.masked_weights[row]))
            chosen = set(np.array(batch.masked_positions)[row, :count].tolist())
            for place in range(1, length - 1):
                opened = ids[row, place - 1] not in (tokenizer.cls_id, tokenizer.sep_id)
                if continues[ids[row, place]] and opened:
                    assert (place in chosen) == (place - 1 in chosen)
                    split += place in chosen
    assert split > 20


def test_old_plans_are_removed_and_counts_stay(feed: Make, corpus: TokenCorpus) -> None:
    now = feed()
    for step in range(100):
        now[step]
    names = sorted(path.stem for path in (corpus.folder / "plans").glob("*.npy"))
    last = now.find(99).epoch
    assert [int(name.rsplit("-", 1)[1]) for name in names] == [last - 1, last]


def test_a_damaged_plan_is_made_again(feed: Make, corpus: TokenCorpus) -> None:
    expected = [feed()[step] for step in range(20)]
    (path,) = (corpus.folder / "plans").glob("*.npy")
    content = bytearray(path.read_bytes())
    content[-25 * 200] ^= 1  # a pair takes 25 bytes; this one is in the first batches
    path.write_bytes(content)
    again = feed()
    assert all(same(again[step], expected[step]) for step in range(20))


def test_several_at_once_make_one_plan(
    corpus: TokenCorpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, write = [], pretraining_data.write_plan

    def counted(*arguments: object) -> int:
        made.append(arguments)
        return write(*arguments)  # pyright: ignore[reportArgumentType] - handed on unchanged

    monkeypatch.setattr(pretraining_data, "write_plan", counted)

    def first(_: int) -> PretrainingBatch:
        return PretrainingFeed(corpus, tokenizer, RECIPE)[0]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(first, range(4)))
    assert len(made) == 1
    assert all(same(found[0], batch) for batch in found)


def test_a_plan_that_fails_leaves_nothing(
    feed: Make, corpus: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = pretraining_data.write_plan

    def killed(path: Path, *arguments: object) -> int:
        write(path, *arguments)  # pyright: ignore[reportArgumentType] - handed on unchanged
        raise KeyboardInterrupt

    monkeypatch.setattr(pretraining_data, "write_plan", killed)
    with pytest.raises(KeyboardInterrupt):
        feed()[0]
    assert [path.name for path in (corpus.folder / "plans").iterdir()] == [".lock"]
    monkeypatch.undo()
    assert len(feed()[0].input_ids) == 8


def test_a_long_wait_for_a_plan_is_announced(
    feed: Make,
    corpus: TokenCorpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("flaxattn.train.pretraining_data._SAID_FROM", len(corpus.tokens))
    feed()[0]
    line = f"planning pass 1 at length 32 (train): {len(corpus.tokens):,} tokens\n"
    assert line in capsys.readouterr().err


def test_too_few_rows_for_a_batch(feed: Make) -> None:
    with pytest.raises(InputError) as error:
        feed(PretrainRecipe(batch_size=999))[0]
    text = str(error.value)
    assert text.startswith("too little text for one train batch\nit takes 999 rows, an epoch has")
    assert text.endswith("\nadd text, or lower batch_size")


def test_heldout_batches_are_always_the_same(corpus: TokenCorpus, tokenizer: Tokenizer) -> None:
    def make(**options: int) -> HeldoutBatches:
        return heldout_batches(corpus, tokenizer, RECIPE, 32, **options)

    one, again = list(make()), list(make())
    assert len(one) == len(make()) == 3
    assert all(same(a, b) for a, b in zip(one, again, strict=True))
    assert not same(one[0], one[1])
    half = make(part=1, parts=2)[2]
    assert (half.input_ids == one[2].input_ids[4:]).all()
    assert not same(one[0], PretrainingFeed(corpus, tokenizer, RECIPE)[0])


def test_a_small_heldout_side_is_gone_through_again(
    corpus: TokenCorpus, tokenizer: Tokenizer
) -> None:
    recipe = dataclasses.replace(RECIPE, evaluate_batches=60)
    found = list(heldout_batches(corpus, tokenizer, recipe, 32))
    assert len(found) == 60
    assert len({batch.input_ids.tobytes() for batch in found}) == 60
    assert len(list((corpus.folder / "plans").glob("heldout-*.npy"))) == 3  # for the next time


def test_names_tell_where_a_row_comes_from(feed: Make, corpus: TokenCorpus) -> None:
    now = feed(part=1, parts=2)
    names, pairs = now.names(2), now.batches.rows(32, 0, 2, whole=True)[:, 0]
    assert len(names) == 8
    edges = corpus.sentences[corpus.documents]
    one, other = (int((edges <= pairs[5][side]).sum()) - 1 for side in ("first", "second"))
    assert names[5] == f"epoch 0, row 21: documents {one} and {other}"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_worker_processes_change_nothing(feed: Make, workers: int) -> None:
    data = grain.MapDataset.source(feed(PHASES)).slice(slice(7, 30)).to_iter_dataset()
    if workers:
        flags.FLAGS.mark_as_parsed()  # grain reads them
        data = data.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    here = feed(PHASES)
    steps = 7
    for batch in data:
        assert same(batch, here[steps])
        steps += 1
    assert steps == 30


@pytest.fixture(scope="module")
def books(flaxattn_data: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenCorpus:
    tokenizer = Tokenizer.from_dir(BUILT_IN)
    files = sorted((flaxattn_data / "text/books").glob("*.txt"))
    return build_corpus(files, tokenizer, PretrainRecipe(), tmp_path_factory.mktemp("books") / "c")


BUILT_IN = Path(__file__).resolve().parents[2] / "flaxattn/pretrained/tiny-bert"


@pytest.mark.slow
def test_shares_on_the_books(books: TokenCorpus) -> None:
    """One pass over the training side at length 128, as many batches of 256 as it has."""
    tokenizer = Tokenizer.from_dir(BUILT_IN)
    training, heldout = books.split(0.02)
    assert len(training) + len(heldout) == len(books)
    now = PretrainingFeed(training, tokenizer, PretrainRecipe(batch_size=256, warmup_steps=0))
    whole = now.find(0)
    made = [now[step] for step in range(whole.stop)]
    batch = joined(made)
    sizes = batch.attention_mask.sum(1)
    ids, real = unmasked(batch), batch.masked_weights > 0
    special = np.isin(ids, [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id])
    assert (special.sum(1) == 3 + 128 - sizes).all()
    assert (real.sum(1) == np.clip(np.rint(sizes * 0.15), 1, 20)).all()
    assert abs(real.sum() / sizes.sum() - 0.15) < 0.004  # rounding, and at most 20
    chosen = np.zeros(ids.shape, bool)
    chosen[np.nonzero(real)[0], batch.masked_positions[real]] = True
    assert not (chosen & special).any()
    assert (batch.input_ids == ids)[~chosen].all()
    after, before = batch.input_ids[chosen], ids[chosen]
    count = real.sum()
    vocabulary = tokenizer.vocab_size  # a random id may be the mask, or what stood there
    for found, share in (
        ((after == tokenizer.mask_id).sum(), 0.8 + 0.1 / vocabulary),
        ((after == before).sum(), 0.1 + 0.1 / vocabulary),
    ):
        assert abs(found - count * share) < 4 * (count * share * (1 - share)) ** 0.5
    share = batch.next_sentence_label.mean()
    assert 0.5 < share < 0.6
    assert (batch.token_type_ids.max(1) == 1).all()
    assert (sizes[sizes < 100].size / sizes.size) < 0.25  # most sequences are full
