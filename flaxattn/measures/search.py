# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Corpus search by head: `index_heads` and `search_heads`.

After exBERT (Hoover et al. 2020): the tokens of a corpus whose vectors are most similar to that of
a given token. Every token is compared. An index is a store that holds outputs of heads, or hidden
states of layers.
"""

import collections
import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError, check_arguments, keywords_of
from flaxattn.kernels.contract import Capture
from flaxattn.measures.head_roles import Texts, text_source
from flaxattn.pipeline.extraction import Options
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_encoders import PretrainedBert, PretrainedT5Encoder
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.commit_shards import write_texts
from flaxattn.store.extract_to import OPTIONS, extract_to
from flaxattn.store.open_store import Store, as_float32, open_store
from flaxattn.store.plan import model_fingerprint
from flaxattn.store.shard import Shard
from flaxattn.store.store_layout import OF_LAYERS, TEXTS, TOKENS
from flaxattn.text.text_lists import text_list
from flaxattn.text.tokens import positions_of_words
from flaxattn.trace.trace import Trace

# Hidden states of large models and of T5 exceed the range of float16.
_DTYPES = {"head_output": "float16", "hidden": "bfloat16"}
_SIDES = ("encoder", "decoder")
_IN_MEMORY = ("allow_nonfinite", "batch_tokens", "devices", "mesh", "truncate", "workers")
_BLOCK = 16_384  # vectors that are compared together
_MARKS = ("architecture", "dtype", "parameters", "config", "tokenizer")
SPECIAL = "special"
ROOT = "root"


class Token(NamedTuple):
    """A token in its text.

    Attributes:
        token: As a person reads it.
        position: In its text, from 0, special tokens counted.
        start: First character.
        stop: The one after the last.
        special: Whether the model added it.
        tag: Universal part of speech of its word; None without a tree.
        relation: Relation of its word to its governor.
        governor: Words from its word to the governor; None for a root, and without a tree.
    """

    token: str
    position: int
    start: int
    stop: int
    special: bool
    tag: str | None
    relation: str | None
    governor: int | None


class Hit(NamedTuple):
    """A token that was found.

    Attributes:
        similarity: Cosine.
        id: Id of its text.
        text: The text; of a pair, the one that the token stands in.
        file: File of the text.
        line: In that file, from 1.
        token: The token.
        strongest: The token that it attends to most; None where no head was named, or where the
            store holds neither `argmax` nor whole weights.
    """

    similarity: float
    id: str
    text: str
    file: str
    line: int
    token: Token
    strongest: Token | None


class StoredVectors(NamedTuple):
    """The vectors of a store that belong to a head, or to a layer.

    Attributes:
        side: `encoder` or `decoder`.
        kind: `head_output` or `hidden`.
        layer: Index of the layer among those of the store.
        head: Index of the head; None where no head was named.
    """

    side: str
    kind: str
    layer: int
    head: int | None

    @property
    def heads(self) -> list[int]:
        """Places on the axis of heads of the stored array."""
        return [0] if self.head is None or self.kind in OF_LAYERS else [self.head]


def index_capture(kind: str, layers: int | Sequence[int]) -> Capture:
    """Return what an index captures: vectors, and the key that each position attends to most."""
    if kind not in _DTYPES:
        raise InputError(f"kind {kind!r} is unknown\nchoose one of {', '.join(_DTYPES)}")
    chosen = sorted({int(number) for number in np.atleast_1d(layers)})
    if not chosen or chosen[0] < 0:
        raise InputError(
            f"layers: expected one or several numbers counted from 0, received {layers!r}"
        )
    wanted: dict[str, Any] = {kind: True, "vector_dtype": _DTYPES[kind]}
    return Capture(**wanted, stats=("argmax",), layers=tuple(chosen))


@check_arguments(1, (*OPTIONS, *keywords_of(extract_to)[3:]))
def index_heads(
    model: Pretrained,
    texts: Texts,
    out: str | os.PathLike[str],
    layers: int | Sequence[int],
    kind: str = "head_output",
    **options: Any,
) -> Store:
    """Extract a vector of every token of a corpus into a store, by head.

    Texts in files go through `fa.extract_to`, so the job can be stopped, continued, and run on
    several machines. Any store with `head_output` or `hidden` can be searched, not only this one.

    Cost: one forward pass over the texts. On disk 2 L E + 4 L H bytes per token before compression,
    the tokens and the texts.

    >>> import tempfile
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> store = fa.index_heads(model, ["The cat is sad."], tempfile.mkdtemp(), layers=[1])
    >>> hits = fa.search_heads(model, store, "The dog is sad.", "dog", 1, 0, top=1)
    >>> [hit.token.token for hit in hits]
    ['cat']

    Args:
        model: An encoder or a decoder with its tokenizer.
        texts: As for `flaxattn.head_stats`. Tokens of sentences with trees are stored with the
            part of speech and the relation of their word.
        out: Folder of the store; texts in memory need a new or empty one.
        layers: Number of the layer, from 0, or several.
        kind: `head_output`, the output of each head before the output projection; or `hidden`,
            the output of the layer.
        **options: Where all texts are files, those of `fa.extract_to`, such as `on_error` and
            `limit`; otherwise `truncate`, `batch_tokens`, `allow_nonfinite`, `mesh`, `devices` and
            `workers`.

    Returns:
        The store, opened.

    Raises:
        InputError: For a model of another family, an unknown kind or layer, a folder that holds
            other files, pairs of texts, or no text that can be used.
        StoreError: If it cannot be written.
    """
    check_family(model)
    capture, folder = index_capture(kind, layers), Path(out)
    given = [texts] if isinstance(texts, os.PathLike) else text_list(texts)
    if isinstance(texts, str):  # the path of a file
        given = [Path(texts)]
    if given and all(isinstance(one, os.PathLike) for one in given):
        extract_to(folder, model, given, capture=capture, **options)
        return open_store(folder)
    read = list(text_source(given).read(BadRows()))
    numbered = [dataclasses.replace(text, index=number) for number, text in enumerate(read)]
    if not numbered:
        raise InputError("there is no text to index\ngive at least one")
    if others := sorted(options.keys() - _IN_MEMORY):
        raise InputError(
            f"{others[0]} is an option for texts in files, and these are in memory\n"
            f"texts in memory take {', '.join(_IN_MEMORY)}"
        )
    for text in numbered:
        if text.text_b is not None:
            raise InputError(
                f"text {text.id!r} is a pair, and search reads single texts\ngive single texts"
            )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already\nname a new folder, or remove it")
    write_texts(folder, model, numbered, Options(capture=capture, **options))
    return open_store(folder)


@check_arguments(2)
def search_heads(
    model: Pretrained,
    store: Store | str | os.PathLike[str],
    text: str,
    token: int | str,
    layer: int,
    head: int | None = None,
    *,
    top: int = 20,
    one_per_text: bool = False,
) -> list[Hit]:
    """Find the tokens of a corpus whose head output is most similar to that of a token.

    After exBERT (Hoover et al. 2020). Every token of the store is compared by cosine. Where the
    store holds hidden states, those of the layer are compared.

    Cost: one product of every vector of the head, P D multiplications, from the disk. Memory: a
    block of 16,384 vectors, the cosines and the tokens of one shard.

    >>> import tempfile
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> texts = ["The cat is sad.", "He saw the dog."]
    >>> store = fa.index_heads(model, texts, tempfile.mkdtemp(), layers=[1])
    >>> fa.search_heads(model, store, "The dog is sad.", "dog", 1, 0)[0].strongest.token
    'the'

    Args:
        model: The one that the store was made with.
        store: From `index_heads`, or any store with `head_output` or `hidden` of the layer; or its
            folder.
        text: Text with the token to search for.
        token: Position of the token, special tokens counted; or a word of the text, of which the
            first token counts.
        layer: Number of the layer.
        head: Number of the head; where the store holds hidden states it may be left out.
        top: Number of contexts.
        one_per_text: Whether only the most similar token of each text counts.

    Returns:
        The most similar first: `similarity`, `text`, `token` with its part of speech and relation
        where there are trees, and `strongest`, the token that it attends to most.

    Raises:
        InputError: For another model than that of the store, a token that is not there, or a layer
            or head that is not in the store.
        StoreError: If what is read of the store is damaged.
    """
    opened = store if isinstance(store, Store) else open_store(str(store))
    vector = token_vector(model, opened, text, token, layer, head)[2]
    return nearest(opened, vector, layer, head, top=top, one_per_text=one_per_text)[0]


def check_family(model: Pretrained) -> None:
    """Check that tokens of a model can be searched for."""
    if not isinstance(model, PretrainedBert | PretrainedDecoder | PretrainedT5Encoder):
        raise InputError(
            f"search reads one text, with one stack of heads; {model.name!r} has several\n"
            "name a BERT or a GPT-2"
        )


def stored_layers(store: Store) -> tuple[int, ...]:
    """Numbers of the layers that can be searched."""
    return tuple(_side_of(store)[1]["layers"])


def token_vector(
    model: Pretrained, store: Store, text: str, token: int | str, layer: int, head: int | None
) -> tuple[int, str, Float[np.ndarray, " D"]]:
    """The vector of a token of any text, to search for in a store.

    Returns:
        Position and text of the token, and its vector, of norm one.
    """
    check_family(model)
    _check_model(model, store)
    kind = stored_vectors(store, layer, head).kind
    wanted: dict[str, Any] = {kind: True}
    trace = model.trace(text, capture=Capture(**wanted, layers=(layer,)))
    (record,) = trace.sides.values()
    position = _position(trace, token)
    array = np.asarray(getattr(record, kind), np.float32)[0, 0, position]
    vector = array if kind in OF_LAYERS else array[record.heads.index(int(head or 0))]
    norm = np.linalg.norm(vector)
    return position, trace.tokens[0][position], vector / norm if norm > 0 else vector


def nearest(
    store: Store,
    vector: Float[np.ndarray, " D"],
    layer: int,
    head: int | None = None,
    *,
    top: int = 20,
    one_per_text: bool = False,
) -> tuple[list[Hit], int]:
    """Return the tokens whose vectors are most similar to one, and the number of tokens searched.

    Special tokens, and vectors that are not finite, are not searched.
    """
    if top < 1:
        raise InputError(f"top is {top}, expected at least 1")
    wanted = stored_vectors(store, layer, head)
    unit = np.asarray(vector, np.float32)
    norm = float(np.linalg.norm(unit))
    if not np.isfinite(norm) or norm == 0:
        raise InputError(
            f"the vector of this token has norm {norm}\nchoose another token, or another head"
        )
    unit, searched = unit / norm, 0
    best = np.zeros((0, 3))  # similarity, number of the text, row of the table of tokens
    for shard in map(store.shard, store.shards):
        if shard.manifest.stop == shard.manifest.start:
            continue
        tokens = shard.table(TOKENS, ["example", "special"])
        special = tokens["special"].fill_null(False).to_numpy()
        cosines = np.where(special, -np.inf, _cosines(shard, wanted, unit, store.path))
        searched += int(np.isfinite(cosines).sum())
        order = np.argsort(-cosines, kind="stable")
        order = order[np.isfinite(cosines[order])]
        texts = tokens["example"].to_numpy()
        if one_per_text:
            order = order[np.sort(np.unique(texts[order], return_index=True)[1])]
        order = order[:top]
        best = np.concatenate([best, np.column_stack([cosines[order], texts[order], order])])
        best = best[np.argsort(-best[:, 0], kind="stable")[:top]]
    rows = best.tolist()
    hits = [_hit(store, wanted, cosine, int(text), int(row)) for cosine, text, row in rows]
    return hits, searched


def _side_of(store: Store) -> tuple[str, Any]:
    """The side whose vectors are searched, and its layers, heads and arrays."""
    shard = store.first_shard()
    sides = {} if shard is None else shard.sides
    for side in _SIDES:
        if side in sides and _DTYPES.keys() & sides[side]["arrays"].keys():
            return side, sides[side]
    raise InputError(
        f"{store.path} holds neither outputs of heads nor hidden states\n"
        "make a store with `flaxattn search build`, or extract with --capture head_output"
    )


def stored_vectors(store: Store, layer: int, head: int | None) -> StoredVectors:
    """The vectors of a store that belong to a layer and a head, which it must hold."""
    side, facts = _side_of(store)
    for what, number in (("layer", layer), ("head", head)):
        known = facts[f"{what}s"]
        if number is not None and number not in known:
            raise InputError(
                f"{store.path} has no {what} {number}\n"
                f"it has {what}s {', '.join(map(str, known))}, counted from 0\n"
                "choose one of them, or extract it into another store"
            )
    kinds = [kind for kind in _DTYPES if kind in facts["arrays"]]
    if head is None and "hidden" not in kinds:
        raise InputError(f"{store.path} has a vector per head\nname a head, such as {layer}.0")
    kind = kinds[-1] if head is None else kinds[0]
    place = None if head is None else facts["heads"].index(head)
    return StoredVectors(side, kind, facts["layers"].index(layer), place)


def _cosines(
    shard: Shard, wanted: StoredVectors, unit: Float[np.ndarray, " D"], path: Path
) -> Float[np.ndarray, " P"]:
    """Cosine of each row of a shard's table of tokens; -inf for vectors that are not finite."""
    array = shard.array(f"{wanted.side}.{wanted.kind}")
    if array.shape[3:] != unit.shape:
        raise InputError(f"the vector has {unit.shape}, those of {path} have {array.shape[3:]}")
    cosines = np.zeros(array.shape[2], np.float32)
    for start in range(0, len(cosines), _BLOCK):
        stop = min(start + _BLOCK, len(cosines))
        stored = array.read([wanted.layer], wanted.heads, start, stop)[0, 0]
        block = as_float32(stored, wanted.kind)
        norms = np.linalg.norm(block, axis=-1)
        cosines[start:stop] = block @ unit / np.where(norms > 0, norms, 1)
    return np.where(np.isfinite(cosines), np.minimum(cosines, 1), -np.inf)


def _hit(store: Store, wanted: StoredVectors, cosine: float, example: int, row: int) -> Hit:
    """Look up a text and a row of its shard's table of tokens."""
    shard = store.shard_of(example)[1]
    place = example - shard.manifest.start
    columns = ["id", "text", "text_b", "file", "line"]
    (text,) = shard.table(TEXTS, columns, (place, place + 1)).to_pylist()
    rows = shard.tokens(example)
    position = row - shard.row(example)["source_offset"]
    tokens = rows["source"].to_pylist()
    strongest = None if wanted.head is None else _strongest(shard, wanted, example, position, rows)
    return Hit(
        cosine,
        text["id"],
        text["text_b" if tokens[position]["segment"] == 1 and text["text_b"] else "text"],
        text["file"],
        text["line"],
        _token(tokens[position]),
        None if strongest is None else _token(tokens[strongest]),
    )


def _strongest(
    shard: Shard, wanted: StoredVectors, example: int, position: int, rows: Any
) -> int | None:
    """The position that a position attends to most; None where the store does not say."""
    assert wanted.head is not None
    facts = shard.sides[wanted.side]
    if "argmax" in facts["stats"]:
        found = shard.statistic(rows, wanted.side, "argmax")[wanted.layer, wanted.head, position]
    elif "weights" in facts["arrays"] and facts["windows"] == [False, False]:
        place = [wanted.layer], [wanted.head]
        weights = shard.values(f"{wanted.side}.weights", example, *place)[0, 0, position]
        found = weights.argmax() if weights.any() else -1
    else:
        return None
    return int(found) if found >= 0 else None


def _token(row: dict[str, Any]) -> Token:
    """A row of the table of tokens."""
    facts: dict[str, Any] = {name: row.get(name) for name in Token._fields}
    facts |= {end: facts[end] or 0 for end in ("start", "stop")}
    return Token(**facts)


def _position(trace: Trace, token: int | str) -> int:
    """The position of a token in the text of a trace."""
    tokens = trace.tokens[0]
    if isinstance(token, int):
        if 0 <= token < len(tokens):
            return token
        message = f"there is no token {token}: the text has 0 to {len(tokens) - 1}"
    else:
        pattern = rf"(?<!\w){re.escape(token)}(?!\w)"
        found = re.search(pattern, trace.texts[0][0]) if token else None
        if found is not None:
            spans = [span or (0, 0) for span in trace.spans[0]]
            added = [span is None for span in trace.spans[0]]
            (places,) = positions_of_words([found.span()], spans, added)
            if places:
                return places[0]
        message = f"there is no word {token!r} in the text"
    shown = " ".join(f"{n}:{name}" for n, name in enumerate(tokens[:12]))
    more = " …" if len(tokens) > 12 else ""
    raise InputError(f"{message}\nits tokens are {shown}{more}\ngive a number or a word of it")


def _check_model(model: Pretrained, store: Store) -> None:
    found, facts = dataclasses.asdict(model_fingerprint(model)), store.plan["model"]
    for name in _MARKS:
        if found[name] != facts[name]:
            raise InputError(
                f"{store.path} was made with another model than {model.name!r}\n"
                f"its {name} differ; it was made with {facts['name']!r}\n"
                "search with that model, or make a store with this one"
            )


def histograms(hits: Sequence[Hit]) -> dict[str, dict[str, dict[str, int]]]:
    """Count properties of the tokens found, and of those that they attend to most."""
    pairs = [(hit.token, hit.strongest) for hit in hits]
    others = [(one, other) for one, other in pairs if other is not None]
    found = {"found": _kinds([one for one, _ in pairs])}
    if others:
        offsets = [f"{other.position - one.position:+d}" for one, other in others]
        found["strongest"] = _kinds([other for _, other in others]) | {"offset": _counts(offsets)}
    return found


def _kinds(tokens: Sequence[Token]) -> dict[str, dict[str, int]]:
    kinds = [("tag", lambda token: token.tag), ("relation", lambda token: token.relation)]
    kinds.append(("governor", _way))
    return {
        name: _counts([SPECIAL if token.special else kind(token) for token in tokens])
        for name, kind in kinds
    }


def _way(token: Token) -> str | None:
    if token.governor is None:
        return None if token.relation is None else ROOT
    return f"{token.governor:+d}"


def _counts(values: Sequence[str | None]) -> dict[str, int]:
    """Count each value; among equally frequent ones the first in the alphabet comes first."""
    counts = collections.Counter(value for value in values if value is not None)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
