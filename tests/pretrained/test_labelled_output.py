# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Calls as users of Hugging Face write them: labels and losses, mappings, tuples, tokenizers."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.models.outputs import classifier_loss, head_loss, mean_cross_entropy, next_token_loss

TEXTS = ["the cat is very sad , .", "a b c"]
IDS = np.array([[2, 5, 6, 7, 3], [2, 9, 8, 3, 0]], np.int32)
MASK = (IDS != 0).astype(np.int32)
WORDS = np.array([[-100, 5, -100, 7, 3], [-100, 9, -100, -100, -100]])
# Class, settings, and labels.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("BertForMaskedLM", {}, {"labels": WORDS}),
    ("BertForTokenClassification", {"num_labels": 4}, {"labels": WORDS % 4 - 100 * (WORDS < 0)}),
    ("BertForNextSentencePrediction", {}, {"labels": np.array([1, 0])}),
    ("BertForPreTraining", {}, {"labels": WORDS, "next_sentence_label": np.array([1, 0])}),
    ("BertForSequenceClassification", {"num_labels": 3}, {"labels": np.array([2, 0])}),
    ("BertForSequenceClassification", {"num_labels": 1}, {"labels": np.array([0.5, -2], "f4")}),
    (
        "BertForSequenceClassification",
        {"num_labels": 3},
        {"labels": np.array([[1, 0, 1], [0, 0, 1]], "f4")},
    ),
    (
        "BertForSequenceClassification",
        {"num_labels": 2, "problem_type": "regression"},
        {"labels": np.array([[1, 0.5], [-3, 1]], "f4")},
    ),
]


def model_of(checkpoint: Any, head: str, settings: dict[str, Any]) -> Any:
    labels = settings.get("num_labels")
    named = {"id2label": {str(i): f"L{i}" for i in range(labels)}} if labels else {}
    return fa.from_pretrained(checkpoint(head, **settings, **named))


def by_hand(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log-likelihood in double precision."""
    scores = scores.astype(np.float64).reshape(-1, scores.shape[-1])
    labels = labels.reshape(-1)
    shifted = scores - scores.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    rows = np.flatnonzero(labels != -100)
    return float(-logs[rows, labels[rows]].mean())


@pytest.mark.few("MaskedLM", "settings4", "TokenClass", "settings6")
@pytest.mark.parametrize(("head", "settings", "labels"), CASES)
def test_the_loss_of_every_head(
    checkpoint: Any, head: str, settings: dict[str, Any], labels: dict[str, Any]
) -> None:
    model = model_of(checkpoint, head, settings)
    plain = model(IDS, MASK)
    out = model(IDS, MASK, **labels)
    assert "loss" not in plain and next(iter(out)) == "loss"
    jax.tree.map(np.testing.assert_array_equal, out.replace(loss=None), plain)
    given = labels["labels"]
    if head == "BertForPreTraining":
        follows = by_hand(np.asarray(out.seq_relationship_logits), labels["next_sentence_label"])
        expected = by_hand(np.asarray(out.prediction_logits), given) + follows
    elif given.dtype != np.float32:
        expected = by_hand(np.asarray(out.logits), given)
    elif settings.get("problem_type") or settings["num_labels"] == 1:
        expected = np.mean((np.asarray(out.logits).reshape(given.shape) - given) ** 2)
    else:
        chance = 1 / (1 + np.exp(-np.asarray(out.logits, np.float64)))
        expected = -np.mean(given * np.log(chance) + (1 - given) * np.log(1 - chance))
    np.testing.assert_allclose(out["loss"], expected, rtol=1e-5)


@pytest.mark.few("MaskedLM", "settings4", "NextSentence")
@pytest.mark.parity
@pytest.mark.parametrize(("head", "settings", "labels"), CASES)
def test_losses_and_tuples_beside_torch(
    checkpoint: Any, head: str, settings: dict[str, Any], labels: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = model_of(checkpoint, head, settings)
    theirs = getattr(transformers, head).from_pretrained(
        checkpoint(head, folder="theirs", **settings), attn_implementation="eager"
    )
    given = {name: torch.tensor(array) for name, array in labels.items()}
    expected = theirs.eval()(
        torch.tensor(IDS, dtype=torch.long),
        attention_mask=torch.tensor(MASK),
        output_attentions=True,
        output_hidden_states=True,
        **given,
    )
    found = model(IDS, MASK, **labels, output_attentions=True, output_hidden_states=True)
    np.testing.assert_allclose(found.loss, expected.loss.detach(), rtol=2e-5)
    assert list(found) == list(expected.keys())
    for name, value in expected.items():
        parts = zip(
            *(v if isinstance(v, tuple) else (v,) for v in (found[name], value)), strict=True
        )
        for one, other in parts:
            np.testing.assert_allclose(one, other.detach(), atol=2e-5)


TARGET = np.array([[5, 6, 7, 1], [9, 8, 1, -100]])


def test_the_loss_of_an_encoder_decoder(seq2seq: Any) -> None:
    source = np.array([[4, 5, 6], [7, 8, 0]])
    out = seq2seq(source, source != 0, labels=TARGET)
    np.testing.assert_allclose(out.loss, by_hand(np.asarray(out.logits), TARGET), rtol=1e-5)
    read = np.roll(np.where(TARGET < 0, seq2seq.config.pad_token_id, TARGET), 1, axis=1)
    read[:, 0] = seq2seq.config.decoder_start_token_id
    both = seq2seq(source, source != 0, decoder_input_ids=read, labels=TARGET)
    assert np.array_equal(out.logits, both.logits), "what the decoder reads is taken as it is"
    assert list(out) == ["loss", "logits", "encoder_last_hidden_state"]
    assert out[1] is out["logits"] is out.logits


def test_the_loss_of_the_token_that_follows(gpt2: Any) -> None:
    out = gpt2(IDS)
    scores = out.last_hidden_state
    labels = np.where(IDS == 0, -100, IDS)
    expected = by_hand(np.asarray(scores)[:, :-1], labels[:, 1:])
    np.testing.assert_allclose(next_token_loss(scores, labels), expected, rtol=1e-5)


@pytest.mark.slow
def test_no_label_at_all_is_no_number() -> None:
    assert np.isnan(mean_cross_entropy(jnp.zeros((1, 2, 3)), np.full((1, 2), -100)))


@dataclasses.dataclass(frozen=True)
class Spans:
    architectures: tuple[str, ...] = ("BertForQuestionAnswering",)


@pytest.mark.slow
def test_places_of_an_answer_beyond_the_text_have_no_loss() -> None:
    rng = np.random.default_rng(0)
    logits = {f"{side}_logits": rng.normal(size=(3, 4)).astype("f4") for side in ("start", "end")}
    labels = {"start_positions": np.array([1, 9, 3]), "end_positions": np.array([2, 3, 4])}
    found = head_loss("BertForQuestionAnswering", logits, labels, Spans())  # type: ignore[arg-type]
    start = by_hand(logits["start_logits"], np.array([1, -100, 3]))
    end = by_hand(logits["end_logits"], np.array([2, 3, -100]))
    np.testing.assert_allclose(found, (start + end) / 2, rtol=1e-5)


@pytest.mark.slow
def test_the_order_of_the_texts_of_an_albert() -> None:
    rng = np.random.default_rng(0)
    words, order = rng.normal(size=(2, 5, 9)).astype("f4"), rng.normal(size=(2, 2)).astype("f4")
    labels = {"labels": WORDS % 9, "sentence_order_label": np.array([1, 0])}
    labels["labels"][WORDS < 0] = -100
    out: Any = {"prediction_logits": words, "sop_logits": order}
    expected = by_hand(words, labels["labels"]) + by_hand(order, np.array([1, 0]))
    np.testing.assert_allclose(
        head_loss("AlbertForPreTraining", out, labels, None), expected, rtol=1e-5
    )


def test_an_argument_that_no_model_takes(bert: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'output_attention'"):
        bert(IDS, output_attention=True)


@pytest.mark.slow
def test_the_loss_has_a_gradient() -> None:
    config = fa.BertConfig(labels=("a", "b", "c"))
    logits = jnp.array([[0.1, 2.0, -1.0]])
    slope = jax.grad(lambda x: classifier_loss(x, np.array([1]), config))(logits)
    np.testing.assert_allclose(slope, jax.nn.softmax(logits) - np.eye(3)[1:2], rtol=1e-5)


@pytest.mark.parametrize(
    ("head", "labels", "message"),
    [
        ("BertModel", {"labels": WORDS}, "BertModel takes no labels: it has no head; received lab"),
        ("BertForMaskedLM", {"labels": WORDS[:, 1:]}, "labels: expected shape [2, 5], received [2"),
        ("BertForMaskedLM", {"labels": WORDS * 1.5}, "labels: expected integers, received dtype f"),
        (
            "BertForNextSentencePrediction",
            {"labels": [2, 0]},
            "labels: expected numbers from 0 to 1",
        ),
        ("BertForMaskedLM", {"labels": [[1], [2, 3]]}, "labels: this is not an array: "),
        ("BertForPreTraining", {"labels": WORDS}, "BertForPreTraining takes labels and next_sent"),
        (
            "BertForSequenceClassification",
            {"labels": np.array([[1, 0, 0], [1, 0, 0]], "f4")},
            "labels: expected shape [2, 2], received [2, 3]",
        ),
    ],
)
def test_labels_that_cannot_be(
    checkpoint: Any, head: str, labels: dict[str, Any], message: str
) -> None:
    classes = {"num_labels": 2} if head.endswith("Classification") else {}
    model = model_of(checkpoint, head, classes)
    with pytest.raises(InputError) as caught:
        model(IDS, MASK, **labels)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_outputs_are_mappings_and_pytrees(bert: Any) -> None:
    out = bert(IDS, output_hidden_states=True)
    assert list(out) == ["last_hidden_state", "pooler_output", "hidden_states"] == [*out.keys()]
    assert out[0] is out["last_hidden_state"] is out.last_hidden_state
    assert out[-1] is out.hidden_states and len(out) == 3 and "attentions" not in out
    assert out[:2] == out.to_tuple()[:2] and out.get("logits") is None
    assert {**out}.keys() == out.keys() == dict(out.items()).keys()
    with pytest.raises(KeyError, match="'logits' is not in this output, which has last_hidden"):
        out["logits"]
    doubled = jax.jit(lambda o: jax.tree.map(lambda x: 2 * x, o))(out)
    assert type(doubled) is type(out) and list(doubled) == list(out)
    np.testing.assert_allclose(doubled[1], 2 * out[1])


@pytest.mark.slow
@pytest.mark.few("bert")
@pytest.mark.parametrize("family", ["bert", "seq2seq", "rnn"])
def test_a_tuple_instead_of_a_mapping(family: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(family)
    ids = IDS % 6 + 3
    options = {"output_attentions": family != "rnn", "output_hidden_states": family != "rnn"}
    plain, requested = model(ids, **options), model(ids, return_dict=False, **options)
    assert isinstance(requested, tuple) and len(requested) == len(plain) > 1
    jax.tree.map(np.testing.assert_array_equal, requested, plain.to_tuple())


@pytest.mark.slow
@pytest.mark.few("bert")
@pytest.mark.parametrize("family", ["bert", "gpt2", "seq2seq", "rnn"])
def test_a_tokenizer_feeds_its_model(family: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(family)
    texts = ["a b c d", "a b"] if family != "rnn" else ["a b c", "a"]
    encoded = model.tokenizer(texts, return_tensors="np", padding=True)
    assert ("token_type_ids" in encoded) == (family == "bert")
    assert encoded["input_ids"].shape == encoded["attention_mask"].shape
    assert model(**encoded)[0].shape[0] == 2


@pytest.mark.few("bert")
@pytest.mark.parametrize("family", ["bert", "gpt2", "seq2seq", "rnn"])
def test_configurations_have_the_usual_names(family: str, request: pytest.FixtureRequest) -> None:
    config = request.getfixturevalue(family).config
    classes = {"bert": 2, "gpt2": 2, "rnn": 2}.get(family, 0)
    assert config.num_labels == len(config.id2label) == len(config.label2id) == classes
    assert {config.label2id[name]: name for name in config.label2id} == config.id2label
    if family != "gpt2":
        sizes = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
        assert sizes == {"bert": (16, 2, 2)}.get(family, sizes) and min(sizes) >= 1
