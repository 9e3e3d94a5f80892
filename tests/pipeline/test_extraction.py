# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever the batches, devices and workers, a text's trace is the one it has by itself."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

import flaxattn as fa
from flaxattn.corpus.texts import plain_texts
from flaxattn.errors import InputError
from flaxattn.models.bert import Bert
from flaxattn.pipeline.batches import BatchBudget, Cost, planned, widths_alone, widths_shared
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.run import AttentionProgram, DeviceStep, batch_budget, run_program
from flaxattn.pipeline.tokenize_texts import TextError
from flaxattn.pretrained.pretrained_encoders import PUNCTUATION, SEPARATOR
from flaxattn.trace.trace import Trace

SIEVES = (
    fa.Sieve("to_separator", key_class=SEPARATOR),
    fa.Sieve("to_punctuation", key_class=PUNCTUATION),
    fa.Sieve("next", offsets=(1, 1)),
)
EVERYTHING = fa.Capture(
    weights=True,
    scores=True,
    query=True,
    key=True,
    value=True,
    head_output=True,
    hidden=True,
    stats=("entropy", "received", "topk(2)", "argmax", *SIEVES),
)
MAPS = fa.Capture(weights=True, stats=("entropy", "received", SIEVES[0]))
NARROW = {"num_attention_heads": 2, "intermediate_size": 97}
FIELDS = [
    "tokens",
    "words",
    "texts",
    "truncated",
    "model",
    "decoder_tokens",
    "written",
    "decoder_words",
]
ARRAYS = ["mask", "segments", "special", "decoder_mask", "decoder_special"]


def check_same(found: Trace, expected: Trace, tolerance: float = 1e-6) -> None:
    for name in FIELDS:
        assert _lists(getattr(found, name)) == _lists(getattr(expected, name)), name
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    ours, theirs = found.sides, expected.sides
    assert ours.keys() == theirs.keys()
    for side, record in ours.items():
        assert jax.tree.structure(record) == jax.tree.structure(theirs[side])
        for one, other in zip(jax.tree.leaves(record), jax.tree.leaves(theirs[side]), strict=True):
            assert isinstance(one, np.ndarray) and one.flags.owndata
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, np.asarray(other), rtol=tolerance, atol=tolerance)


def _lists(value: Any) -> Any:
    return [_lists(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def alone(bert, texts) -> list[Trace]:
    """The trace of each text by itself."""
    return [bert.trace(text, capture=MAPS) for text in texts]


def mesh() -> Any:
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


@pytest.mark.slow
def test_the_last_layer_ends_with_its_attention(monkeypatch) -> None:
    """Of three feed-forwards the program takes the parameters of two, and no stack of any."""
    module = Bert(fa.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=3, **NARROW))
    given = {"input_ids": np.ones((1, 4), np.int32)}
    params = module.init(jax.random.key(0), **given)["params"]
    calls, run = [], run_program
    monkeypatch.setattr(
        "flaxattn.pipeline.run.run_program", lambda *args: calls.append(args) or run(*args)
    )
    module = module.clone(capture=fa.Capture(weights=True))
    DeviceStep(module, [params], AttentionProgram()).begin(given)
    program = run.lower(*calls[0]).compile().as_text()
    entry = program[program.index("ENTRY") :]
    inner = sorted(re.findall(r"= f32\[([\d,]*\b97\b[\d,]*)\]\S* parameter", entry))
    assert inner == ["8,97"] * 2 + ["97"] * 2 + ["97,8"] * 2


@pytest.mark.slow
@pytest.mark.few("rows", "three")
@pytest.mark.parametrize(
    "how",
    [
        lambda: {"devices": jax.devices()[:1]},
        lambda: {"devices": jax.devices()[:1], "batch_tokens": 1},
        lambda: {"devices": jax.devices()[:3], "batch_tokens": 300},
        lambda: {},
        lambda: {"mesh": mesh(), "batch_tokens": 256},
        pytest.param(lambda: {"workers": 2, "devices": jax.devices()[:1]}, marks=pytest.mark.slow),
    ],
    ids=["one", "single rows", "three devices", "all devices", "mesh", "workers"],
)
def test_a_trace_does_not_depend_on_how_it_was_computed(
    bert, texts, alone, how: Callable[[], dict[str, Any]]
) -> None:
    found = fa.extract(bert, texts, capture=MAPS, **how())
    assert [trace.texts for trace in found] == [[(text,)] for text in texts]
    for one, other in zip(found, alone, strict=True):
        check_same(one, other)


@pytest.mark.slow
def test_the_order_of_texts_changes_nothing(bert, texts, alone) -> None:
    order = np.random.default_rng(0).permutation(len(texts))
    found = fa.extract(bert, [texts[i] for i in order], capture=MAPS, devices=jax.devices()[:1])
    for i, one in zip(order, found, strict=True):
        check_same(one, alone[i])


def test_windows_and_shards_are_put_together_in_order(bert, texts, alone, monkeypatch) -> None:
    monkeypatch.setattr("flaxattn.pipeline.extraction._WINDOW", 5)
    monkeypatch.setattr("flaxattn.pipeline.extraction.TOGETHER", 3)
    for one, other in zip(fa.extract(bert, texts, capture=MAPS), alone, strict=True):
        check_same(one, other)
    every = plain_texts(texts)
    shards = [every[:1], every[1:9], every[9:]]
    found = list(extract_shards([bert], iter(shards), Options(capture=MAPS)))
    assert [len(shard.traces) for (shard,) in found] == [1, 8, 5]
    for one, other in zip((t for (s,) in found for t in s.traces), alone, strict=True):
        check_same(one, other)


def test_a_shard_is_the_same_whatever_came_before_it(bert, texts) -> None:
    options = Options(capture=MAPS, devices=jax.devices()[:1])
    every = plain_texts(texts)
    (_, (after,)) = extract_shards([bert], [every[:9], every[9:]], options)
    ((before,),) = extract_shards([bert], [every[9:]], options)
    for ours, theirs in zip(after.traces, before.traces, strict=True):
        check_same(ours, theirs, tolerance=0)


@pytest.mark.slow
def test_every_field_and_a_choice_of_layers_and_heads(bert, texts) -> None:
    capture = dataclasses.replace(EVERYTHING, layers=(1,), heads=(1, 0), dtype="uint8")
    few = [*texts[:3], texts[3]]
    for text, one in zip(few, fa.extract(bert, few, capture=capture), strict=True):
        check_same(one, bert.trace(text, capture=capture))


@pytest.mark.slow
def test_pairs(bert, texts) -> None:
    firsts, seconds = ["a b c", "the", "cat is sad ."], ["d", "e f g h a b", "very"]
    found = fa.extract(bert, firsts, seconds, capture=MAPS)
    for text, text_b, one in zip(firsts, seconds, found, strict=True):
        check_same(one, bert.trace(text, text_b, capture=MAPS))
    assert found[1].segments is not None and found[1].segments.any()


@pytest.mark.slow
@pytest.mark.few("uint8")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_weights_come_in_the_requested_dtype(bert, texts, dtype) -> None:
    capture = fa.Capture(weights=True, dtype=dtype)
    found = fa.extract(bert, texts[:4], capture=capture, devices=jax.devices()[:1])
    for one, text in zip(found, texts, strict=False):
        assert one.encoder is not None and one.encoder.weights is not None
        whole = np.asarray(bert.trace(text, capture=MAPS).encoder.weights)
        assert one.encoder.weights.dtype.name == dtype
        one_unit = 255 if dtype == "uint8" else 1
        step = {"float16": 2**-11, "bfloat16": 2**-8, "uint8": 0.5 / 255}[dtype]
        values = np.asarray(one.encoder.weights, np.float32) / one_unit
        np.testing.assert_allclose(values, whole, atol=step + 1e-6)


@pytest.mark.slow
def test_gpt2(gpt2, texts) -> None:
    capture = fa.Capture(weights=True, stats=("entropy", fa.Sieve("first", key_class=1)))
    found = fa.extract(gpt2, texts, capture=capture)
    for text, one in zip(texts, found, strict=True):
        check_same(one, gpt2.trace(text, capture=capture))
    with pytest.raises(InputError, match="reads single texts, received pairs"):
        fa.extract(gpt2, ["a"], ["b"])


@pytest.mark.slow
def test_texts_that_share_rows_under_windows_of_attention(modern, texts) -> None:
    """The window of a layer goes by positions of the row, and no text sees its neighbour."""
    one = jax.devices()[:1]
    lengths = [(len(modern.read([text]).metadata.tokens[0]),) for text in texts]
    budget = batch_budget([modern], 1, 512)._replace(packs=True)
    assert any(batch.packed for batch in planned(lengths, modern.limit, budget))
    found = fa.extract(modern, texts, capture=MAPS, batch_tokens=512, devices=one)
    for text, trace in zip(texts, found, strict=True):
        check_same(trace, modern.trace(text, capture=MAPS), 2e-6)


@pytest.mark.slow
def test_sources_with_targets(seq2seq, texts) -> None:
    sources, targets = texts[:6], texts[6:12]
    capture = fa.Capture(weights=True, stats=("entropy", "received"))
    found = fa.extract(seq2seq, sources, targets, capture=capture, batch_tokens=200)
    for source, target, one in zip(sources, targets, found, strict=True):
        check_same(one, seq2seq.trace(source, target, capture=capture))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_new_tokens": 5, "num_beams": 2}, marks=pytest.mark.slow),
        pytest.param({}, marks=pytest.mark.slow),  # as long as each source allows
        pytest.param({"do_sample": True, "seed": 3}, marks=pytest.mark.slow),
    ],
    ids=["beams", "defaults", "drawn"],
)
def test_sources_for_which_the_model_writes(seq2seq, settings) -> None:
    sources = ["a b c d e", "the", "h"]
    found = fa.extract(seq2seq, sources, devices=jax.devices()[:1], **settings)
    for source, one in zip(sources, found, strict=True):
        check_same(one, seq2seq.trace(source, **settings))


def test_settings_of_writing_where_nothing_is_written(bert) -> None:
    with pytest.raises(InputError, match="num_beams: nothing is written here"):
        fa.extract(bert, ["a"], num_beams=2)


@pytest.mark.slow
def test_two_models_in_one_pass(bert, texts) -> None:
    noise = np.random.default_rng(5)
    other = dataclasses.replace(
        bert,
        params=jax.tree.map(
            lambda p: p + noise.normal(0, 0.05, p.shape).astype(np.float32), bert.params
        ),
        name="after",
    )
    found = fa.extract_models({"before": bert, "after": other}, texts, capture=MAPS)
    for name, model in {"before": bert, "after": other}.items():
        for one, expected in zip(found[name], fa.extract(model, texts, capture=MAPS), strict=True):
            check_same(one, expected)


def test_models_that_differ_cannot_run_as_one(bert, gpt2, seq2seq) -> None:
    with pytest.raises(InputError, match="differ in architecture or configuration") as caught:
        fa.extract_models({"b": bert, "g": gpt2}, ["a"])
    assert len(str(caught.value).splitlines()) <= 3
    other = dataclasses.replace(bert, tokenizer=gpt2.tokenizer, name="other")
    with pytest.raises(InputError, match=r"'other' and 'b' cannot run as one.*tokenizer"):
        fa.extract_models({"b": bert, "o": other}, ["a"])
    with pytest.raises(InputError, match="several models write different targets"):
        fa.extract_models({"s": seq2seq, "t": seq2seq}, ["a"])


@pytest.mark.slow
def test_few_shapes_are_compiled(bert) -> None:
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(["a", "b", "."], n)) for n in rng.integers(1, 30, 300)]
    capture, one = fa.Capture(stats=("max",)), jax.devices()[:1]
    before = run_program._cache_size()
    fa.extract(bert, texts, capture=capture, batch_tokens=512, devices=one)
    assert run_program._cache_size() - before <= 2  # of one width, and the last batch
    fa.extract(bert, texts[::-1], capture=capture, batch_tokens=512, devices=one)
    assert run_program._cache_size() - before <= 2


def drawn_lengths(count: int, longest: int = 512) -> list[tuple[int]]:
    rng = np.random.default_rng(0)
    return [(int(n),) for n in np.minimum(rng.geometric(0.05, count) + 2, longest)]


def test_batches_have_each_row_once_and_little_padding() -> None:
    lengths, cost = drawn_lengths(5000), Cost(compiling=500, attending=10**6)
    for packs, padding, shapes in ((False, 1.25, 30), (True, 1.03, 12)):
        batches = planned(lengths, 512, BatchBudget(2048, 4, cost, packs))
        assert sorted(place.text for b in batches for place in b.places) == list(range(5000))
        for batch in batches:
            used = np.zeros((batch.rows, batch.widths[0]), int)
            for text, row, start in batch.places:
                assert start + lengths[text][0] <= batch.widths[0]
                used[row, start : start + lengths[text][0]] += 1
            assert used.max() == 1  # nothing lies on another text
            assert batch.rows % 4 == 0 and batch.packed == packs
        computed = sum(b.rows * b.widths[0] for b in batches)
        assert computed < padding * sum(n for (n,) in lengths)
        assert len({(b.rows, b.widths) for b in batches}) < shapes


@pytest.mark.parametrize("length", [300, 40])
def test_rows_are_shared_only_where_that_costs_less(length: int) -> None:
    """Two texts of 300 tokens need a row of 600, in which each attends to twice as many keys."""
    budget = BatchBudget(1024, 1, Cost(compiling=500, attending=64), packs=True)
    (batch, *_) = planned([(length,)] * 40, 2048, budget)
    assert batch.packed == (length == 40) or batch.widths == (length,)
    assert not batch.packed or length == 40


def test_targets_longer_than_their_sources_have_room() -> None:
    rng = np.random.default_rng(2)
    lengths = [(int(a), int(b)) for a, b in rng.integers(1, 100, (300, 2))]
    for batch in planned(lengths, 128, BatchBudget(1024, 1, Cost(500, 64), packs=False)):
        for text, _, start in batch.places:
            assert not start
            assert all(n <= w for n, w in zip(lengths[text], batch.widths, strict=True))


def test_widths_are_the_cheapest_of_all_choices() -> None:
    lengths = drawn_lengths(200, 32)
    every = [n for (n,) in lengths]
    ladder = sorted({-(-n // 4) * 4 for n in every})

    def cost(widths: Sequence[int], compiling: int) -> float:
        rows = [min(w for w in widths if w >= n) for n in every]
        return sum(w * (1 + w / 48) for w in rows) + compiling * len(widths)

    for compiling in (0, 100, 400, 10**6):
        choices = [
            (*some, ladder[-1])
            for size in range(len(ladder))
            for some in itertools.combinations(ladder[:-1], size)
        ]
        best = min(cost(widths, compiling) for widths in choices)
        chosen = widths_alone(lengths, 32, Cost(compiling, 48))
        assert cost(chosen, compiling) == pytest.approx(best)


def test_widths_stay_within_the_limit() -> None:
    cost, free = Cost(9, 64), Cost(0, 64)
    assert widths_alone([(45,)], 48, cost) == (48,)
    assert widths_alone([(50,)], 50, cost) == (50,)
    assert widths_alone([(300,), (700,)], 1000, free) == (320, 768)
    assert widths_shared([5, 4], 512, free) == (12,)
    assert widths_shared([5] * 100, 512, free) == (64,)
    assert widths_shared([45] * 100, 50, free) == (50,)
    assert widths_shared([5] * 100 + [700], 1000, free) == (64, 768)
    assert widths_shared([5] * 100 + [700], 1000, Cost(10**6, 64)) == (768,)


@pytest.mark.slow
def test_out_of_memory_when_results_are_fetched(bert, texts, alone, monkeypatch) -> None:
    fetched, failed = DeviceStep._fetched, []

    def once(self: Any, results: Any, first: int) -> Any:
        if not failed:
            failed.append(first)
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while computing.")
        return fetched(self, results, first)

    monkeypatch.setattr(DeviceStep, "_fetched", once)
    found = fa.extract(bert, texts, capture=MAPS, batch_tokens=256, devices=jax.devices()[:2])
    for one, other in zip(found, alone, strict=True):
        check_same(one, other)
    assert failed


def test_other_failures_are_reported_as_they_are(bert, monkeypatch) -> None:
    def broken(self: Any, given: Any) -> Any:
        raise RuntimeError("INTERNAL: something else")

    monkeypatch.setattr(DeviceStep, "_run", broken)
    with pytest.raises(RuntimeError, match="INTERNAL: something else"):
        fa.extract(bert, ["a"])


LONG = " ".join(["the"] * 60)


@pytest.mark.slow
def test_a_text_over_the_limit_is_named_or_cut(bert, texts) -> None:
    given = [*texts[:3], LONG]
    with pytest.raises(TextError, match="text 3 is too long: 62 tokens, the limit is 48") as caught:
        fa.extract(bert, given)
    assert caught.value.number == 3
    found = fa.extract(bert, given, truncate=True, capture=MAPS)
    assert [trace.truncated for trace in found] == [[0], [0], [0], [14]]
    check_same(found[3], bert.trace(LONG, truncate=True, capture=MAPS))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a", "", "b"], "text 1 is empty"),
        (["a", "b", 5], "text 2 is not a string"),
        (["a\ud800"], "text 0 is not valid Unicode"),
        ("a b", "texts: received one text, expected a list"),
    ],
)
def test_bad_texts_are_named(bert, given: Sequence[Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        fa.extract(bert, given)
    assert len(str(caught.value).splitlines()) <= 3


def test_texts_are_numbered_over_shards_and_chunks(bert, monkeypatch) -> None:
    monkeypatch.setattr("flaxattn.pipeline.extraction.TOGETHER", 2)
    with pytest.raises(TextError, match="text 8 is empty"):
        fa.extract(bert, [*["a"] * 8, " ", "b"])
    with pytest.raises(TextError, match="second text 3 is empty"):
        fa.extract(bert, ["a"] * 4, ["a", "a", "a", ""])
    shards = iter([plain_texts(["a"] * 3), plain_texts(["a", " "], first=3)])
    with pytest.raises(TextError, match="text 4 is empty"):
        list(extract_shards([bert], shards, Options()))
    shards = iter([[], plain_texts(["a"]), []])
    found = [shard.traces for (shard,) in extract_shards([bert], shards, Options())]
    assert [len(traces) for traces in found] == [0, 1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capture": fa.Capture(weights=True, layers=(2,))}, "this model has layers 0 to 1"),
        ({"capture": fa.Capture()}, "capture asks for nothing"),
        ({"capture": fa.Capture(vector_dtype="float16")}, "capture asks for nothing"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
        ({"devices": []}, "devices is empty"),
        ({"text_b": ["a"]}, "2 texts and 1 second texts"),
        ({"capture": fa.Capture(weights=True, query_window=(2, 4))}, "text 0 is too short"),
    ],
)
def test_bad_requests(bert, options, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        fa.extract(bert, ["a", "b c d e"], **options)
    assert len(str(caught.value).splitlines()) <= 3


def test_a_mesh_needs_an_axis_for_batches(bert) -> None:
    alone = jax.make_mesh((2,), ("model",), axis_types=(AxisType.Auto,))
    with pytest.raises(InputError, match='no axis "data"'):
        fa.extract(bert, ["a"], mesh=alone)
    with pytest.raises(InputError, match="either mesh or devices"):
        fa.extract(bert, ["a"], mesh=mesh(), devices=jax.devices())


@pytest.mark.slow
def test_windows(bert, texts) -> None:
    capture = fa.Capture(weights=True, query_window=(1, 3), key_window=(0, 2), stats=("max",))
    some = [text for text in texts if len(text.split()) > 2]
    for text, one in zip(some, fa.extract(bert, some, capture=capture), strict=True):
        check_same(one, bert.trace(text, capture=capture))


def test_no_texts(bert) -> None:
    assert fa.extract(bert, []) == []
    assert fa.extract_models({"b": bert}, []) == {"b": []}


@pytest.mark.slow
def test_batches_are_as_exact_as_a_text_by_itself() -> None:
    """The bounds stated in `extract_to`: scores of tiny-bert reach 28, float32 rounds at 2e-6."""
    model = fa.from_pretrained("tiny-bert")
    texts = ["It was a very long time before they came.", "She said no.", "Why? " * 20, "So be it"]
    capture = fa.Capture(weights=True)
    stored = [
        trace.encoder.weights for trace in fa.extract(model, texts, devices=jax.devices()[:1])
    ]
    alone = [np.asarray(model.trace(text, capture=capture).encoder.weights) for text in texts]
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        module = model.module.clone(dtype=np.float64, capture=capture)
        params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.params)
        exact = []
        for text in texts:
            read = model.tokenizer.encode(text)
            given = {"attention_mask": np.ones_like(read.input_ids)}
            given |= {"token_type_ids": read.token_type_ids, "mutable": ["intermediates"]}
            state = module.apply({"params": params}, read.input_ids, **given)[1]
            exact.append(np.asarray(Trace.from_variables(state).encoder.weights, np.float64))
    off = [max(np.abs(a - b).max() for a, b in zip(m, exact, strict=True)) for m in (stored, alone)]
    assert off[0] < 5e-6 and off[1] < 5e-6 and off[0] < 4 * off[1]
    apart = max(np.abs(a - b).max() for a, b in zip(stored, alone, strict=True))
    assert 0 < apart < 5e-6
