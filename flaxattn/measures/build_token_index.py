# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Vectors of the tokens of a corpus, by head or of a layer, into an index; and of one token.

How an index lies on disk is in `flaxattn.store.token_index`, what is found in it in
`flaxattn.measures.nearest_tokens`.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn import __version__
from flaxattn.corpus.dependency_trees import NO_GOVERNOR
from flaxattn.corpus.input_files import kept_inputs, shared_mode
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.files import written_whole
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.device_step import Arguments, run_program
from flaxattn.pipeline.hidden_states import states_of
from flaxattn.pipeline.prefetch import in_background
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.run import ModelRunner, mesh_of
from flaxattn.pipeline.text_sizes import sides
from flaxattn.pipeline.tokenize_texts import TOGETHER, groups_of, tokenize_each
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_t5_encoder import PretrainedT5Encoder
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.store.model_fingerprint import mark
from flaxattn.store.token_index import (
    INDEX,
    KINDS,
    TEXTS,
    TOKENS,
    Contents,
    HeadIndex,
    HeadIndexWriter,
)
from flaxattn.text.words import positions_of_words
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
        dtype: Of the vectors.
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
        kinds = _kinds(text, offsets, special)
        readable = reading.metadata.tokens[0][: len(special)]
        for place, added in enumerate(special):
            row = (number, place, readable[place], *offsets[place], added, *kinds[place])
            for column, value in zip(tokens.values(), row, strict=True):
                column.append(value)
    return texts, tokens


def _kinds(
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
