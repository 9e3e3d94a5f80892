# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Corpus search by head: `index_heads` and `search_heads`.

After exBERT (Hoover et al. 2020), exactly: the contexts in which a head does most nearly what it
does here; every token of an index is compared, none is skipped. `flaxattn.store.token_index`
defines the files of an index.
"""

import collections
import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn import __version__
from flaxattn.corpus.dependency_trees import NO_GOVERNOR
from flaxattn.corpus.input_files import kept_inputs, shared_mode
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, check_arguments
from flaxattn.files import written_whole
from flaxattn.kernels.contract import Capture
from flaxattn.measures.head_roles import Texts, text_source
from flaxattn.pipeline.embed import states_of
from flaxattn.pipeline.memory_estimate import sides
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.run import Arguments, ModelRunner, mesh_of, run_program
from flaxattn.pipeline.tokenize_texts import TOGETHER, groups_of, in_background, tokenize_each
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_encoders import PretrainedBert, PretrainedT5Encoder
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.model_fingerprint import mark
from flaxattn.store.token_index import (
    INDEX,
    KINDS,
    TEXTS,
    TOKENS,
    Contents,
    HeadIndex,
    HeadIndexWriter,
    open_head_index,
)
from flaxattn.text.token_spans import positions_of_words
from flaxattn.trace.trace import Trace

_POSITIONS = 32_768  # of a shard
_LONGEST = 1 << 30
_MARKS = ("architecture", "dtype", "parameters", "config", "tokenizer")


class Wanted(NamedTuple):
    """Kind and layers of the vectors to index.

    Attributes:
        kind: `head_output`, what each head wrote, before the output projection; or `hidden`, the
            output of the layer.
        layers: From 0.
    """

    kind: str
    layers: tuple[int, ...]

    @property
    def capture(self) -> Capture:
        """The request."""
        whole = self.kind == "head_output"
        return Capture(head_output=whole, stats=("argmax",), layers=self.layers)


class TokenizedText(NamedTuple):
    """A text as the model takes it, and characters of each of its tokens."""

    text: Text
    reading: TokenizedTexts
    offsets: Sequence[tuple[int, int]]

    @property
    def special(self) -> np.ndarray:
        """True at the tokens that the model added."""
        special = self.reading.metadata.special
        assert special is not None
        return np.asarray(special)[0, : self.reading.lengths[0]]


def build_head_index(
    model: Pretrained,
    texts: Iterable[Text],
    out: str | Path,
    wanted: Wanted,
    reading: ReadingOptions = DEFAULTS,
    *,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Write an index of the tokens of texts: whole, or nothing of it.

    Memory: the vectors of 32,768 positions and of one text more, 2 L E bytes each. On disk 2 L E
    + 4 L H bytes per token, and the texts.
    """
    check_family(model)
    wanted = Wanted(wanted.kind, tuple(sorted(set(wanted.layers))))
    check_wanted(wanted, Path(out))
    model_inputs.check_capture(wanted.capture, *model.counts())
    bad = reading.problems
    engine = _VectorEngine(model, wanted, reading)
    texts = itertools.islice(texts, reading.limit)
    count, annotated = 0, False
    mode = shared_mode(kept_inputs(Path(out)))  # the index holds the texts
    with written_whole(out, INDEX, mode=mode) as folder:
        writer = HeadIndexWriter(folder)
        for window in _windows(_read(model, texts, reading)):
            writer.add(engine.contents(window))
            count += len(window)
            annotated |= any(read.text.sentence is not None for read in window)
        if not count:
            raise InputError("there is no text to index\nname files that hold some")
        facts = {
            "flaxattn": __version__,
            "kind": wanted.kind,
            "layers": list(wanted.layers),
            "heads": list(engine.heads),
            "annotated": annotated,
            "model": dataclasses.asdict(mark(model)),
            "left_out": dict(sorted(bad.counts.items())),
        }
        writer.finish(facts | dict(settings or {}))
    return count


def bytes_per_token(model: Pretrained, wanted: Wanted) -> int:
    """Number of bytes that an index holds for each token, beside the text."""
    check_family(model)
    size = sides(model.config)[0]
    # All heads together may be wider than hidden states.
    width = model.config.hidden_size if wanted.kind == "hidden" else size.heads * size.depth
    return len(set(wanted.layers)) * (2 * width + 4 * size.heads)


def token_vector(
    model: Pretrained, index: HeadIndex, text: str, token: int | str, layer: int, head: int | None
) -> tuple[int, str, Float[np.ndarray, " D"]]:
    """The vector of a token of any text, to search for in an index.

    Returns:
        Position and text of the token, and its vector, of norm one.
    """
    check_family(model)
    _check_model(model, index)
    if layer not in index.layers or (head is not None and head not in index.heads):
        index.vectors(0, layer, index.heads[0] if head is None else head)  # says what there is
    if head is None and index.kind != "hidden":
        raise InputError(f"{index.path} has a vector per head\nname a head, such as {layer}.0")
    (read,) = _read(model, [Text(0, "text", text)], DEFAULTS)
    place = _place(read, token)
    wanted = Wanted(index.kind, (layer,))
    module = model.module.clone(capture=wanted.capture, keep_hidden=index.kind == "hidden")
    program, given = TokenVectors(wanted, "float32"), read.reading.padded(model.limit)
    vectors, _ = run_program(module, program, model.params, given, {})
    number = 0 if head is None or index.kind == "hidden" else index.heads.index(head)
    return place, read.reading.metadata.tokens[0][place], np.asarray(vectors)[0, 0, number, place]


@dataclasses.dataclass(frozen=True)
class TokenVectors:
    """Program of the vectors of tokens, of norm one, and the keys they attend to most.

    Attributes:
        wanted: Kind and layers of the vectors.
        dtype: Dtype of the vectors.
    """

    wanted: Wanted
    dtype: str = "float16"

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> tuple[Float[Array, "L B H S D"], Array]:
        """Return the vectors, and the key `[L, B, H, S]` of each."""
        out, state = module.apply({"params": params}, **given, mutable=["intermediates"])
        trace = Trace.from_variables(state)
        record = trace.encoder if trace.decoder is None else trace.decoder
        assert record is not None
        if self.wanted.kind == "hidden":
            states = states_of(out)
            found = jnp.stack([states[layer + 1] for layer in self.wanted.layers])[:, :, None]
        else:
            assert record.head_output is not None
            found = record.head_output.swapaxes(2, 3)
        found = found.astype(jnp.float32)
        norms = jnp.linalg.norm(found, axis=-1, keepdims=True)
        return (found / jnp.where(norms > 0, norms, 1)).astype(self.dtype), record.stats["argmax"]

    def label(self, number: int) -> str:
        """Name the vectors of a layer."""
        kind = "hidden states" if self.wanted.kind == "hidden" else "head outputs"
        return f"{kind} of layer {self.wanted.layers[number]}"


class _VectorEngine:
    """A model, and what is done with the texts of a shard."""

    def __init__(self, model: Pretrained, wanted: Wanted, reading: ReadingOptions) -> None:
        self._runner = ModelRunner(
            [model],
            TokenVectors(wanted),
            wanted.capture,
            keep_hidden=wanted.kind == "hidden",
            mesh=mesh_of(),
            batch_tokens=reading.batch_tokens,
            allow_nonfinite=reading.allow_nonfinite,
            watch=reading.watch,
            stage="texts",
        )
        self._widths: tuple[int, ...] = ()  # those of the first shard serve all
        self.heads = tuple(range(model.counts()[1]))

    def contents(self, window: Sequence[TokenizedText]) -> Contents:
        """Return the vectors and tables to store for some texts."""
        rows = [read.reading for read in window]
        batches = self._runner.batches(rows, self._widths)
        self._widths = self._widths or tuple(sorted({batch.widths[0] for batch in batches}))
        found: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0), np.zeros(0))] * len(window)

        def trim(text: int, output: Any) -> Any:
            plain = np.flatnonzero(~window[text].special)
            return tuple(array[:, :, :, plain] for array in output)

        texts = [read.text for read in window]
        for text, _, (output,) in self._runner.run(rows, texts, batches=batches, trim=trim):
            vectors, keys = output
            found[text] = vectors[:, 0], keys[:, 0]
        vectors, keys = (np.concatenate(arrays, 2) for arrays in zip(*found, strict=True))
        return Contents(*_tables(window), vectors, keys)


def _tables(window: Sequence[TokenizedText]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Columns of the tables of texts and of tokens."""
    texts: dict[str, list[Any]] = {name: [] for name in TEXTS.names}
    tokens: dict[str, list[Any]] = {name: [] for name in TOKENS.names}
    for number, (text, reading, offsets) in enumerate(window):
        cells = (text.id, text.text, text.file, text.line, len(tokens["text"]))
        for column, value in zip(texts.values(), cells, strict=True):
            column.append(value)
        special = window[number].special.tolist()
        kinds = _word_columns(text, offsets, special)
        readable = reading.metadata.tokens[0][: len(special)]
        for place, added in enumerate(special):
            row = (number, place, readable[place], *offsets[place], added, *kinds[place])
            for column, value in zip(tokens.values(), row, strict=True):
                column.append(value)
    return texts, tokens


def _word_columns(
    text: Text, offsets: Sequence[tuple[int, int]], special: Sequence[bool]
) -> list[tuple[str | None, str | None, int | None]]:
    """Part of speech, relation and way to the governor of the word that each token is part of.

    A token over several words is of the first of them.
    """
    found: list[tuple[str | None, str | None, int | None]] = [(None, None, None)] * len(special)
    if text.sentence is None:
        return found
    words = text.sentence.words
    places = positions_of_words([(word.start, word.stop) for word in words], offsets, special)
    for number in reversed(range(len(words))):
        word = words[number]
        way = None if word.governor == NO_GOVERNOR else word.governor - number
        for place in places[number]:
            found[place] = (word.tag, word.relation, way)
    return found


def _read(
    model: Pretrained, texts: Iterable[Text], options: ReadingOptions
) -> Iterator[TokenizedText]:
    """Texts as the model takes them; those that it cannot read are reported."""
    reader = model.tokenizer
    if reader is None:
        model.read("a")  # says that a tokenizer is missing
    assert reader is not None
    low, high = options.lengths or (0, _LONGEST)

    def read(group: Sequence[Text]) -> Iterator[TokenizedText]:
        for text, reading in tokenize_each(model, group, options.truncate, options.problems):
            if text.text_b is not None:
                raise InputError(
                    f"text {text.id!r} is a pair, and search reads single texts\n"
                    "give a file or a column with one text in each row"
                )
            size = reading.lengths[0]
            if not low <= size <= high:
                continue
            offsets = reader.encode(text.text, max_length=_LONGEST).offsets[0][:size]
            yield TokenizedText(text, reading, offsets)

    groups = in_background(lambda group: [*read(group)], groups_of(texts, TOGETHER))
    yield from itertools.chain.from_iterable(groups)


def _windows(reads: Iterable[TokenizedText]) -> Iterator[list[TokenizedText]]:
    """Texts of a shard: so many positions, and those of the last text."""
    window: list[TokenizedText] = []
    positions = 0
    for read in reads:
        window.append(read)
        positions += read.reading.lengths[0]
        if positions >= _POSITIONS:
            yield window
            window, positions = [], 0
    if window:
        yield window


def _place(read: TokenizedText, token: int | str) -> int:
    """The position of a token in its text."""
    tokens, size = read.reading.metadata.tokens[0], read.reading.lengths[0]
    if isinstance(token, int):
        if 0 <= token < size:
            return token
        message = f"there is no token {token}: the text has 0 to {size - 1}"
    else:
        pattern = rf"(?<!\w){re.escape(token)}(?!\w)"
        found = re.search(pattern, read.text.text) if token else None
        if found is not None:
            (places,) = positions_of_words([found.span()], read.offsets, read.special.tolist())
            if places:
                return places[0]
        message = f"there is no word {token!r} in the text"
    shown = " ".join(f"{n}:{name}" for n, name in enumerate(tokens[: min(size, 12)]))
    more = " …" if size > 12 else ""
    raise InputError(f"{message}\nits tokens are {shown}{more}\ngive a number or a word of it")


def check_family(model: Pretrained) -> None:
    """Check that tokens of a model can be searched for."""
    if not isinstance(model, PretrainedBert | PretrainedDecoder | PretrainedT5Encoder):
        raise InputError(
            f"search reads one text, with one stack of heads; {model.name!r} has several\n"
            "name a BERT or a GPT-2"
        )


def check_wanted(wanted: Wanted, out: Path) -> None:
    """Refuse what can be refused before texts are read and a model is loaded."""
    if wanted.kind not in KINDS:
        raise InputError(f"kind {wanted.kind!r} is unknown\nchoose one of {', '.join(KINDS)}")
    if not wanted.layers:
        raise InputError("no layer was named\nname one or several, counted from 0")
    if out.is_file() or (out.is_dir() and {*out.iterdir()} - {*kept_inputs(out)}):
        raise InputError(f"{out} is there already\nname a new folder, or remove it")


def _check_model(model: Pretrained, index: HeadIndex) -> None:
    found, facts = dataclasses.asdict(mark(model)), index.facts["model"]
    for name in _MARKS:
        if found[name] != facts[name]:
            raise InputError(
                f"{index.path} was made with another model than {model.name!r}\n"
                f"its {name} differ; it was made with {facts['name']!r}\n"
                "search with that model, or build an index with this one"
            )


_BLOCK = 16_384  # vectors that are compared together
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
        text: The text.
        file: File of the text.
        line: In that file, from 1.
        token: The token.
        strongest: The token that it attends to most; None where no head was named.
    """

    similarity: float
    id: str
    text: str
    file: str
    line: int
    token: Token
    strongest: Token | None


def nearest(
    index: HeadIndex,
    vector: Float[np.ndarray, " D"],
    layer: int,
    head: int | None = None,
    *,
    top: int = 20,
    one_per_text: bool = False,
) -> list[Hit]:
    """The tokens of an index whose vectors are most similar to one.

    Cost: one product of every vector of the head, P D multiplications, from the disk. Memory: a
    block of 16,384 vectors, the cosines and the tables of one shard.
    """
    if head is None and index.kind != "hidden":
        raise InputError(f"{index.path} has a vector per head\nname a head, such as {layer}.0")
    if top < 1:
        raise InputError(f"top is {top}, expected at least 1")
    chosen = index.heads[0] if head is None else head
    wanted = np.asarray(vector, np.float32)
    norm = float(np.linalg.norm(wanted))
    if not math.isfinite(norm) or norm == 0:
        raise InputError(
            f"the vector that is searched for has norm {norm}\nthis head says nothing of this token"
        )
    wanted = wanted / norm
    best = np.zeros((0, 3))  # similarity, shard, place among its vectors
    for shard in range(index.shards):
        stored = index.vectors(shard, layer, chosen)
        if stored.shape[1:] != wanted.shape:
            raise InputError(
                f"the vector has {wanted.shape}, those of the index have {stored.shape[1:]}"
            )
        blocks = (stored[i : i + _BLOCK] for i in range(0, len(stored) or 1, _BLOCK))
        values = np.concatenate([block.astype(np.float32) @ wanted for block in blocks])
        order = np.argsort(-values, kind="stable")
        if one_per_text:
            tokens = index.table(shard, "tokens")
            texts = tokens["text"].to_numpy()[~tokens["special"].to_numpy()]
            order = order[np.sort(np.unique(texts[order], return_index=True)[1])]
        order = order[:top]
        found = np.column_stack([values[order], np.full(len(order), shard), order])
        best = np.concatenate([best, found])
        best = best[np.argsort(-best[:, 0], kind="stable")[:top]]
    return _hits(index, best, layer, head)


def _hits(
    index: HeadIndex, best: Float[np.ndarray, "N 3"], layer: int, head: int | None
) -> list[Hit]:
    """Look up the tokens at places of vectors, shard by shard, in the given order."""
    found: dict[int, Hit] = {}
    for shard in np.unique(best[:, 1]).astype(int).tolist():
        tokens, texts = index.table(shard, "tokens"), index.table(shard, "texts")
        plain = np.flatnonzero(~tokens["special"].to_numpy())
        strongest = None if head is None else index.strongest(shard, layer, head)
        for number in np.flatnonzero(best[:, 1] == shard).tolist():
            place = int(best[number, 2])
            row = int(plain[place])
            text = texts.slice(tokens["text"][row].as_py(), 1).to_pylist()[0]
            other = None
            if strongest is not None:
                other = _token(tokens, text["first"] + int(strongest[place]))
            found[number] = Hit(
                min(float(best[number, 0]), 1.0),
                text["id"],
                text["text"],
                text["file"],
                text["line"],
                _token(tokens, row),
                other,
            )
    return [found[number] for number in range(len(best))]


def _token(tokens: pa.Table, row: int) -> Token:
    facts = tokens.slice(row, 1).to_pylist()[0]
    return Token(*(facts[name] for name in Token._fields))


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


@check_arguments()
def index_heads(
    model: Pretrained,
    texts: Texts,
    out: str | os.PathLike[str],
    layers: Sequence[int],
    kind: str = "head_output",
    *,
    reading: ReadingOptions = DEFAULTS,
) -> HeadIndex:
    """Write an index with a vector of every token of a corpus, by head.

    Cost: one forward pass over the texts. On disk 2 L E + 4 L H bytes per token, and the texts.

    >>> import tempfile
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> index = fa.index_heads(model, ["The cat is sad."], tempfile.mkdtemp(), layers=[1])
    >>> hits = fa.search_heads(model, index, "The dog is sad.", "dog", 1, 0, top=1)
    >>> [hit.token.token for hit in hits]
    ['cat']

    Args:
        model: An encoder or a decoder with its tokenizer.
        texts: See `flaxattn.head_stats`; those with a tree give tokens a part of speech and a
            relation.
        out: Folder that is not there yet, or is empty.
        layers: Numbers of the layers, from 0.
        kind: `head_output`, the output of each head before the output projection; or `hidden`,
            the output of the layer.
        reading: How texts are read.

    Returns:
        The index, opened.

    Raises:
        InputError: For a model of another family, an unknown kind or layer, a folder that holds
            files, pairs of texts, or no text that can be used.
        CheckpointError: If it cannot be written.
    """
    each = text_source(texts).read(reading.problems)
    build_head_index(model, each, str(out), Wanted(kind, tuple(layers)), reading)
    return open_head_index(str(out))


@check_arguments()
def search_heads(
    model: Pretrained,
    index: HeadIndex | str | os.PathLike[str],
    text: str,
    token: int | str,
    layer: int,
    head: int | None = None,
    *,
    top: int = 20,
    one_per_text: bool = False,
) -> list[Hit]:
    """Find the contexts of a corpus in which a head does most nearly what it does in a text.

    After exBERT (Hoover et al. 2020), exactly: every token of the index is compared by cosine.

    >>> import tempfile
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> texts = ["The cat is sad.", "He saw the dog."]
    >>> index = fa.index_heads(model, texts, tempfile.mkdtemp(), layers=[1])
    >>> fa.search_heads(model, index, "The dog is sad.", "dog", 1, 0)[0].strongest.token
    'the'

    Args:
        model: The one that the index was made with.
        index: From `index_heads`, or its folder.
        text: Text with the token to search for.
        token: Position of the token, special tokens counted; or a word of the text, of which the
            first token counts.
        layer: Number of the layer.
        head: Number of the head; in an index of hidden states it may be left out.
        top: Number of contexts.
        one_per_text: Whether only the most similar token of each text counts.

    Returns:
        The most similar first: `similarity`, `text`, `token` with its part of speech and relation
        where there are trees, and `strongest`, the token that it attends to most.

    Raises:
        InputError: For another model than that of the index, a token that is not there, or a layer
            or head that is not in the index.
        StoreError: If what is read of the index is damaged.
    """
    opened = index if isinstance(index, HeadIndex) else open_head_index(str(index))
    vector = token_vector(model, opened, text, token, layer, head)[2]
    return nearest(opened, vector, layer, head, top=top, one_per_text=one_per_text)
