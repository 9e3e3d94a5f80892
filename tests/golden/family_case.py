# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One tiny model of a family and its inputs, drawn with NumPy alone.

Weights and inputs are not stored: they come from NumPy's frozen `RandomState`, by name and shape,
drawn so that attention is peaked and every term matters. Cases are in `cases_*.py`.
"""

import dataclasses
import zlib
from typing import Any

import numpy as np

QUERIES_AND_KEYS = ["query", "key", "q_proj", "k_proj", "q_lin", "k_lin", "qkv", "c_attn"]
QUERIES_AND_KEYS += [".q.", ".k.", "wqkv"]  # of MPNet and T5, of ModernBERT
EMBEDDINGS = ("emb", "shared.", "wte", "wpe", "relative_attention_bias")


@dataclasses.dataclass(frozen=True)
class FamilyCase:
    """One model and one batch.

    Attributes:
        name: Unique within the family's file.
        architecture: Class of Hugging Face.
        model_type: Of its config.json.
        settings: Of its configuration; what is absent is upstream's default.
        lengths: Real positions of each text.
        left: Whether padding stands before a text.
        kind: `encoder`, `decoder` or `seq2seq`.
        limit: Most positions of a text, for the tests with live torch.
        second: Whether the halves of a text have two token types.
        masked: Whether a mask is given.
        positions: Whether positions are given.
        special: Ids that some positions of a text get, such as that of a mask.
        unused: Tensors that upstream saves and no output depends on.
        changed: Settings that we write differently, to the same effect.
        sharpness: Scale of queries and keys; larger gives more peaked attention.
        first_id: Smallest id of a text; those below are special.
        last_id: Id of the last token of every text; None for any.
    """

    name: str
    architecture: str
    model_type: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    lengths: tuple[int, ...] = (11, 6)
    left: bool = False
    kind: str = "encoder"
    limit: int = 32
    second: bool = False
    masked: bool = True
    positions: bool = False
    special: tuple[int, ...] = ()
    unused: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    sharpness: float = 1.4
    first_id: int = 5
    last_id: int | None = None

    def __post_init__(self) -> None:
        assert self.kind in ("encoder", "decoder", "seq2seq"), self.kind


def random_of(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def drawn(name: str, shape: tuple[int, ...], base: float, sharpness: float) -> np.ndarray:
    """One tensor; a vector varies around `base`, which is 1 for most norms and 0 for biases."""
    noise = random_of(f"{name} {shape}").standard_normal(shape)
    if len(shape) < 2:
        noise = base + 0.2 * noise
    elif any(part in name.lower() for part in EMBEDDINGS):
        noise *= 0.5
    elif any(part in name.lower() for part in QUERIES_AND_KEYS):
        noise *= sharpness / shape[1] ** 0.5
    else:
        noise *= 0.8 / shape[-1] ** 0.5
    return noise.astype(np.float32)


def batch(
    case: FamilyCase,
    pad_id: int,
    vocabulary: int,
    lengths: tuple[int, ...] | None = None,
    left: bool | None = None,
    name: str = "inputs",
) -> tuple[np.ndarray, np.ndarray]:
    """Ids `[B, S]` with the padding that a tokenizer writes, and their mask."""
    lengths = case.lengths if lengths is None else lengths
    size = (len(lengths), max(lengths))
    places = np.arange(size[1])[None] * np.ones((size[0], 1), int)
    if case.left if left is None else left:
        places = places - (size[1] - np.array(lengths)[:, None])
    real = (places >= 0) & (places < np.array(lengths)[:, None])
    random = random_of(f"{name} {size}")
    ids = random.randint(case.first_id, vocabulary, size)
    for special in case.special:  # a text of masks alone has no numbers in ESM
        ids = np.where((random.uniform(size=size) < 0.15) & (places > 0), special, ids)
    if case.last_id is not None:
        last = places == np.array(lengths)[:, None] - 1
        ids = np.where(last, case.last_id, ids)
    return np.where(real, ids, pad_id), real.astype(int)


def inputs(
    case: FamilyCase,
    settings: dict[str, Any],
    lengths: tuple[int, ...] | None = None,
    left: bool | None = None,
) -> dict[str, np.ndarray]:
    """Arguments of the model.

    Args:
        case: The case.
        settings: Its whole config.json.
        lengths: In place of those of the case.
        left: In place of that of the case.
    """
    pad, size = settings.get("pad_token_id") or 0, settings["vocab_size"]
    ids, mask = batch(case, pad, size, lengths, left)
    given = {"input_ids": ids} | ({"attention_mask": mask} if case.masked else {})
    if case.positions:
        given["position_ids"] = np.maximum(np.cumsum(mask, 1) - 1, 0)
    if case.second:
        given["token_type_ids"] = (np.cumsum(mask, 1) > mask.sum(1)[:, None] // 2) * mask
    if case.kind == "seq2seq":
        shorter = tuple(max(1, n - 2) for n in (case.lengths if lengths is None else lengths))
        size = settings.get("decoder_vocab_size") or size
        ids, mask = batch(case, pad, size, shorter[::-1], False, "targets")
        ids[:, 0] = settings.get("decoder_start_token_id") or 0
        given |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
    return given


def labels(
    case: FamilyCase, settings: dict[str, Any], given: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Further arguments that make a head of upstream return its loss; empty where it has none."""
    ids = given["input_ids"]
    mask = given.get("attention_mask", np.ones_like(ids)) == 1
    random, head = random_of("labels"), case.architecture.partition("For")[2]
    classes = len(settings.get("id2label") or (0, 1))
    if head == "SequenceClassification":
        return {"labels": np.arange(len(ids)) % classes}
    if head == "TokenClassification":
        return {"labels": np.where(mask, random.randint(0, classes, ids.shape), -100)}
    if head == "QuestionAnswering":
        first = mask.argmax(1)
        return {"start_positions": first, "end_positions": first + mask.sum(1) - 1}
    if head == "MaskedLM":
        chosen = mask & (random.uniform(size=ids.shape) < 0.4)
        chosen |= mask & (np.cumsum(mask, 1) == 1)
        return {"labels": np.where(chosen, np.roll(ids, 1, 1), -100)}
    if head == "PreTraining" and settings["model_type"] == "electra":
        return {"labels": random.randint(0, 2, ids.shape)}
    if head == "CausalLM" or case.architecture.endswith("LMHeadModel"):
        return {"labels": np.where(mask, ids, -100)}
    if head == "ConditionalGeneration":
        attended = given["decoder_attention_mask"] == 1
        return {"labels": np.where(attended, np.roll(given["decoder_input_ids"], -1, 1), -100)}
    return {}
