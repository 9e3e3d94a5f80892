# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A module, its parameters and its tokenizer together: what every `Pretrained` has.

Its arguments differ from family to family: `pretrained_encoders`, `pretrained_seq2seq`. For
`jax.grad`, `vmap` or a mesh, take `module` and `params` and call `module.apply`.

A call with labels has their loss in its output. Inside a compiled program a wrong label gives a
wrong loss without a word; here it gives an error. Heads that are pruned are removed for good;
numbers of heads stay those of the whole model (`flaxattn.attribution.ablation` finds the heads to
remove).
"""

import abc
import dataclasses
import functools
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.core import Tracer
from jaxtyping import Array, Int

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import GPT2Config
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.layer_stack import UnstackedLayers, masks_of_heads, unstacked
from flaxattn.models.outputs import (
    IGNORED,
    LABEL_NAMES,
    PAIR_LABELS,
    ModelOutput,
    Seq2SeqOutput,
    check_names,
    head_loss,
    problem_of,
)
from flaxattn.models.seq2seq_config import EncoderDecoderConfig, T5Config
from flaxattn.pretrained import hub, model_directory, model_inputs
from flaxattn.pretrained.model_inputs import TokenizedTexts, joined
from flaxattn.pretrained.model_types import ModelConfig
from flaxattn.pretrained.name_tables import CheckpointMatch
from flaxattn.pretrained.nonfinite_error import check_dtype, first_nonfinite, nonfinite_error
from flaxattn.pretrained.sentence_modules import SentenceModules
from flaxattn.text.text_lists import text_list
from flaxattn.text.tokens import Reader, words_read
from flaxattn.trace.record import count_nonfinite, with_lse, without_added_lse
from flaxattn.trace.trace import Trace

Heads = Mapping[int, Iterable[int]] | Iterable[tuple[int, int]]
"""Heads by number: lists by layer, as Hugging Face has them, or pairs (layer, head)."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Pretrained(abc.ABC):
    """A model ready to use.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> model.limit, model.counts()
    (256, (4, 6))
    >>> model.trace("The captain said").decoder.weights.shape  # [L, B, H, Q, K]
    (4, 1, 6, 3, 3)

    Attributes:
        module: Linen module of the architecture.
        params: Its parameters, in the dtype that they were loaded in.
        tokenizer: None where the directory had none; `trace` needs one.
        config: Shape and settings.
        name: What it was loaded as.
        report: Comparison of the checkpoint with the model.
        sentence_modules: How `embed` makes one vector of a text, where the directory says so.
    """

    module: nn.Module
    params: Any
    tokenizer: Reader | None
    config: ModelConfig
    name: str = ""
    report: CheckpointMatch = dataclasses.field(default_factory=CheckpointMatch)
    sentence_modules: SentenceModules | None = dataclasses.field(default=None, kw_only=True)
    _unstacked: UnstackedLayers = dataclasses.field(default_factory=UnstackedLayers, init=False)

    @property
    def target_reader(self) -> Reader | None:
        """The tokenizer of the tokens that are predicted: the target's, where it has its own."""
        return getattr(self, "target_tokenizer", None) or self.tokenizer

    @property
    def target_size(self) -> int:
        """Size of the vocabulary of the tokens that are predicted."""
        return getattr(self.config, "target_size", None) or self.config.vocab_size

    @property
    def unstacked_params(self) -> Any:
        """Parameters with the layers of every stack apart, kept for the next call.

        Memory: the parameters of all layers a second time, from the first generated text on.
        """
        return self._unstacked.of(self.params)

    @abc.abstractmethod
    def __call__(self, *arrays: Any, **options: Any) -> Any:
        """Run the model, with the argument and field names of Hugging Face, without dropout."""

    @abc.abstractmethod
    def trace(self, *texts: Any, **options: Any) -> Trace:
        """Read texts and return their attention."""

    @abc.abstractmethod
    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize texts into inputs of the model and the text fields of a trace.

        Neither the module nor the parameters are used, so a copy without them does too.

        Args:
            text: A text, or B texts.
            text_b: The second text, or the target, of each.
            truncate: Whether a text over the model's limit is cut, which `truncated` records;
                otherwise it is an error.

        Raises:
            InputError: For a model without tokenizer, an empty text, or one over the limit.
        """

    @property
    @abc.abstractmethod
    def limit(self) -> int:
        """Most positions of a sequence."""

    @abc.abstractmethod
    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer, of the side that has more of them."""

    def packs(self, capture: Capture) -> bool:
        """Return whether texts may share a row, separated by `segment_ids`, for this request.

        Args:
            capture: What is asked.
        """
        del capture
        return False

    @property
    def writes(self) -> bool:
        """True where the model has the scores of a next token."""
        return isinstance(self.module, DecoderLM)

    @property
    def biased_scores(self) -> bool:
        """True where scores have a bias by position, so that products alone do not tell them."""
        return False

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Arguments of a call that mask heads, and of how many layers and heads each does."""
        return {}

    def prune(self, heads: Heads) -> Self:
        """A copy without some of the heads: fewer parameters, the outputs of a head mask.

        The heads that are left keep their numbers: in `capture.heads`, in `head_mask` and in
        traces, where a removed head attends to nothing. Layers whose heads differ are laid out one
        by one. A checkpoint has `pruned_heads` in its config.json, which opens here and in torch
        transformers before 5.0; later versions do not know it.

        Args:
            heads: Pairs (layer, head), or lists of heads by layer as Hugging Face has them,
                counted from 0.

        Returns:
            A model of its own; what is not of attention is shared with this one.

        Raises:
            InputError: For a head that there is not, a layer without heads, or a model of another
                family than BERT and GPT-2, for which checkpoints have no such form.
        """
        config = self.config
        form = isinstance(config, GPT2Config) or (
            isinstance(config, BertConfig) and config.variant.pruned_form
        )
        if not isinstance(config, BertConfig | GPT2Config) or not form:
            raise InputError(
                f"{self.name!r} is a {config.architectures[0]}, whose checkpoints cannot say that "
                "heads are missing.\nSilence heads with masks: "
                f"{', '.join(self.masks()) or 'this model has none'}."
            )
        (layers, count), *_ = self.masks().values()
        gone = chosen_heads(heads, layers, count)
        pruned = pruned_config(config.pruned_heads, gone, count)
        changed = dataclasses.replace(config, pruned_heads=pruned)
        params = pruned_parameters(self.params, config, changed)
        module = self.module.clone(config=changed)
        return dataclasses.replace(self, module=module, params=params, config=changed)

    def _masked(self, **given: Any) -> dict[str, Any]:
        """Masks of heads as a module takes them; those that are None are left out."""
        found = {name: value for name, value in given.items() if value is not None}
        for name, value in found.items():
            if name not in self.masks():
                raise InputError(
                    f"{name}: {self.name!r} has no heads that can be masked.\nLeave it out."
                )
            found[name] = masks_of_heads(
                model_inputs.numbers(name, value), *self.masks()[name], name
            )
        return found

    def trace_tokens(
        self, reading: TokenizedTexts, capture: Capture, *, allow_nonfinite: bool = False
    ) -> Trace:
        """Run the model on tokenized texts and trace its attention.

        Args:
            reading: From `read`, with targets where the model is an encoder-decoder.
            capture: What to keep.
            allow_nonfinite: Whether NaN and infinity are kept; otherwise they are an error.

        Returns:
            The trace of B texts, padded to the longest of them.

        Raises:
            InputError: For an unknown layer or head, a window beyond the text, or attention that
                is NaN or infinite.
        """
        model_inputs.check_capture(capture, *self.counts())
        model_inputs.check_window(capture, min(reading.lengths))
        check_dtype(capture, allow_nonfinite)
        module = self.module.clone(capture=with_lse(capture), keep_hidden=False)
        given = reading.padded(self.limit)
        whole = Trace.from_variables(record_only(module, self.params, given)).sides
        if not allow_nonfinite:
            for side, record in whole.items():  # in the order in which they are computed
                found = first_nonfinite(_count(record, side, given))
                if found is not None:
                    raise nonfinite_error(self.name, self.params, found, side, f"text {found.row}")
        sides = {side: without_added_lse(record, capture) for side, record in whole.items()}
        return joined(reading.metadata, sides, reading.lengths)

    def save_pretrained(self, directory: str | Path, dtype: str | None = None) -> None:
        """Write a directory that `from_pretrained` and torch transformers open.

        Args:
            directory: Made where absent.
            dtype: `float32`, `float16` or `bfloat16` on disk; default as the parameters are.

        Raises:
            CheckpointError: If it cannot be written; then it is as it was before.
        """
        model_directory.save(directory, self.module, self.params, dtype=dtype, **self._beside())

    def push_to_hub(
        self,
        repo_id: str,
        *,
        dtype: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a model with flaxattn",
    ) -> str:
        """Upload what `save_pretrained` writes to the Hugging Face Hub, in one commit.

        Args:
            repo_id: Such as `me/my-model`; the repository is made where absent.
            dtype: `float32`, `float16` or `bfloat16` in the files; default as the parameters are.
            private: Whether a new repository is private; default as its owner's settings say.
            token: Access token; default that of `hf auth login` or `HF_TOKEN`.
            revision: Branch; default the main one.
            commit_message: Title of the commit.

        Returns:
            The address of the commit.

        Raises:
            CheckpointError: If the id is not valid, or the files cannot be written.
            UnavailableError: If the Hub cannot be reached, or refuses.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(Path(folder) / "model", dtype)
            return hub.upload(
                Path(folder) / "model",
                repo_id,
                private=private,
                token=token,
                revision=revision,
                commit_message=commit_message,
            )

    def _beside(self) -> dict[str, Any]:
        """Return the arguments of `model_directory.save` beside the weights."""
        further = {} if self.sentence_modules is None else self.sentence_modules.files
        return {"tokenizer": self.tokenizer, "further": further}

    def __repr__(self) -> str:
        count = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return (
            f"Pretrained({self.name!r}: {self.config.architectures[0]}, "
            f"{self._size()}, "
            f"{count:,} parameters)"
        )

    @abc.abstractmethod
    def _size(self) -> str:
        """Layers and heads in words."""

    def _reader(self) -> Reader:
        """The tokenizer."""
        if self.tokenizer is None:
            raise InputError(
                f"The model {self.name!r} came without a tokenizer, so it cannot read text.\n"
                "Call it with input_ids, or put tokenizer.json or vocab.txt into its directory."
            )
        return self.tokenizer


_count = functools.partial(jax.jit, static_argnames=("side",))(count_nonfinite)


@functools.partial(jax.jit, static_argnames=("module", "record"))
def run(module: nn.Module, params: Any, given: dict[str, Any], record: bool) -> Any:
    """The output and the intermediates; compiled once for each shape."""
    if not record:
        return module.apply({"params": params}, **given), {}
    return module.apply({"params": params}, **given, mutable=["intermediates"])


@functools.partial(jax.jit, static_argnames=("module",))
def record_only(module: nn.Module, params: Any, given: dict[str, Any]) -> Any:
    """The intermediates only: pooler, heads and the end of the last layer are not computed."""
    return module.apply({"params": params}, **given, mutable=["intermediates"])[1]


class SourceReader(Pretrained):
    """A model whose encoder reads texts by themselves; its parts are described at `Pretrained`."""

    config: EncoderDecoderConfig

    @property
    def limit(self) -> int:
        """Most positions of a source, and of a target."""
        return self.config.max_position_embeddings

    @property
    def biased_scores(self) -> bool:
        """True where scores have a bias by position, as in T5."""
        return isinstance(self.config, T5Config)

    def _sources(self, texts: Any, ids: Any, mask: Any, truncate: bool) -> TokenizedTexts:
        """Checked arguments of the encoder, and the metadata of the texts."""
        if (texts is None) == (ids is None):
            raise InputError("give either texts or input_ids")
        if texts is None:
            given = self._source(ids, mask)
            metadata: dict[str, Any] = {"tokens": tokens_of(self.tokenizer, given["input_ids"])}
        else:
            texts = text_list(texts)
            encoded = self._reader().encode(texts, max_length=self.limit, truncate=truncate)
            given = self._source(encoded.input_ids, encoded.attention_mask)
            rows = [(text,) for text in texts]
            parts = zip(rows, encoded.offsets, encoded.special, strict=True)
            metadata = {
                "tokens": encoded.tokens,
                "words": [words_read(row[0], places, added) for row, places, added in parts],
                "special": encoded.special,
                "texts": rows,
                "truncated": encoded.truncated,
                "spans": encoded.spans(),
            }
        return TokenizedTexts(
            given, Trace(**metadata, mask=given["attention_mask"] == 1, model=self.name)
        )

    def _alone(self, text: Any, text_b: Any, truncate: bool) -> TokenizedTexts:
        """Texts of an encoder without a decoder, which takes no second ones."""
        if text_b is not None:
            raise InputError(
                f"The model {self.name!r} is a {self.config.architectures[0]}, which reads no "
                "pairs.\nLeave out the second texts."
            )
        return self._sources(text, None, None, truncate)

    def _source(self, ids: Any, mask: Any) -> dict[str, Any]:
        """Checked arguments of the encoder; the mask is filled in, for one program to serve all."""
        c = self.config
        ranges = {"input_ids": (c.vocab_size, "vocab_size"), "attention_mask": model_inputs.MASK}
        given = {"input_ids": ids, "attention_mask": mask}
        arrays = model_inputs.checked(given, ranges, c.max_position_embeddings)
        return {"attention_mask": np.ones(arrays["input_ids"].shape, np.int32)} | arrays


def tokens_of(reader: Reader | None, ids: Int[np.ndarray, "B T"]) -> list[list[str]]:
    """Readable tokens; the ids themselves where there is no tokenizer."""
    if reader is None:
        return [[str(number) for number in row] for row in ids.tolist()]
    return [reader.readable_tokens(row) for row in ids.tolist()]


def chosen_heads(heads: Heads, layers: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Heads by layer."""
    given = cast(Any, heads)
    by_layer = given.items() if isinstance(heads, Mapping) else [(n, (h,)) for n, h in given]
    pairs = {(int(layer), int(head)) for layer, several in by_layer for head in several}
    for layer, head in sorted(pairs):
        if not (0 <= layer < layers and 0 <= head < count):
            raise InputError(
                f"There is no head {head} in layer {layer}.\nThe model has layers 0 to "
                f"{layers - 1} with heads 0 to {count - 1} each."
            )
    return tuple(tuple(sorted(h for n, h in pairs if n == layer)) for layer in range(layers))


def pruned_config(
    known: tuple[tuple[int, ...], ...], more: tuple[tuple[int, ...], ...], count: int
) -> tuple[tuple[int, ...], ...]:
    """Heads that layers lack when further ones are removed."""
    before = known or ((),) * len(more)
    lacking = tuple(tuple(sorted({*old, *new})) for old, new in zip(before, more, strict=True))
    for layer, heads in enumerate(lacking):
        if len(heads) == count:
            raise InputError(
                f"Layer {layer} would have none of its {count} heads left.\n"
                "Keep one of them, or silence them with head_mask."
            )
    return lacking if any(lacking) else ()


def pruned_parameters(
    params: Any, before: BertConfig | GPT2Config, after: BertConfig | GPT2Config
) -> Any:
    """The parameters of a model that has fewer heads, cut out of those of one that has more."""
    if before.pruned_heads == after.pruned_heads:
        return params
    count = _heads(before)
    lacking = before.pruned_heads or ((),) * len(after.pruned_heads)
    kept = [
        np.array([h not in gone for h in range(count) if h not in had])
        for had, gone in zip(lacking, after.pruned_heads, strict=True)
    ]

    def cut(tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        return {name: _layers(p, kept) if name == "layers" else cut(p) for name, p in tree.items()}

    return cut(unstacked(params))


def _layers(layers: tuple[Any, ...], kept: list[np.ndarray]) -> tuple[Any, ...]:
    return tuple(
        {**layer, "attention": _attention(layer["attention"], one)}
        for layer, one in zip(layers, kept, strict=True)
    )


def _attention(params: Mapping[str, Any], kept: np.ndarray) -> dict[str, Any]:
    """One layer's attention, with the heads for which `kept` is true."""

    def columns(array: Array) -> Array:
        width = array.shape[-1]
        by_head = array.reshape(*array.shape[:-1], len(kept), -1)[..., kept, :]
        return by_head.reshape(*array.shape[:-1], width // len(kept) * int(kept.sum()))

    found = {
        name: {part: columns(jnp.asarray(array)) for part, array in params[name].items()}
        for name in ("query", "key", "value")
    }
    output = params["output"]
    return {**found, "output": {**output, "kernel": columns(jnp.asarray(output["kernel"]).T).T}}


def _heads(config: BertConfig | GPT2Config) -> int:
    return config.num_attention_heads if isinstance(config, BertConfig) else config.n_head


_compiled = functools.partial(jax.jit, static_argnames=("architecture", "config"))(head_loss)


def check_label_names(labels: Mapping[str, Any]) -> None:
    """Check that further keywords of a call are labels of some head."""
    if unknown := set(labels) - set(LABEL_NAMES):
        raise TypeError(f"a call got an unexpected keyword argument {min(unknown)!r}")


def answered(
    config: Any,
    out: ModelOutput | Seq2SeqOutput,
    labels: Mapping[str, Any],
    return_dict: bool | None = None,
) -> Any:
    """Add the loss of labels to an output, and return it in the form that was requested."""
    architecture = config.architectures[0]
    given = {name: value for name, value in labels.items() if value is not None}
    if given:
        check_names(architecture, given)
        shapes = {name: value.shape for name, value in out.fields().items() if "logits" in name}
        checked = {n: _checked(architecture, n, v, shapes, config) for n, v in given.items()}
        loss = _compiled(architecture=architecture, out=out, labels=checked, config=config)
        out = out.replace(loss=loss)
    return out.to_tuple() if return_dict is False else out


def _checked(
    architecture: str, name: str, value: Any, shapes: Mapping[str, tuple[int, ...]], config: Any
) -> Any:
    """Labels as an array of the shape and range that the loss takes."""
    array = value if isinstance(value, Tracer) else _array(name, value)
    scores = shapes.get("logits", shapes.get("prediction_logits", ()))
    if name in ("start_positions", "end_positions"):
        return _whole(name, array, (shapes["start_logits"][0],), None)
    if name != "labels":
        return _whole(name, array, shapes[PAIR_LABELS[architecture][1]][:-1], 2)
    if architecture.endswith("ForSequenceClassification"):
        problem = problem_of(config, array)
        if problem != "single_label_classification":
            wide = scores if problem.startswith("multi") or scores[-1] > 1 else scores[:1]
            return _shaped(name, array, wide).astype(np.float32)
    return _whole(name, array, scores[:-1], scores[-1])


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: this is not an array: {error}.") from error
    if array.dtype.kind not in "iubf":
        raise InputError(f"{name}: expected numbers, received dtype {array.dtype}.")
    return array


def _shaped(name: str, array: Any, shape: tuple[int, ...]) -> Any:
    if array.shape not in (shape, (*shape, 1)):
        raise InputError(
            f"{name}: expected shape {list(shape)}, received {list(array.shape)}.\n"
            "Give labels for every row of input_ids, in the same order."
        )
    return array


def _whole(name: str, array: Any, shape: tuple[int, ...], classes: int | None) -> Any:
    """Class numbers, each in its range or `IGNORED`."""
    array = _shaped(name, array, shape)
    if isinstance(array, Tracer):
        return array
    if array.dtype.kind not in "iu":
        raise InputError(f"{name}: expected integers, received dtype {array.dtype}.")
    wrong = array[(array != IGNORED) & ((array < 0) | (array >= (classes or np.inf)))]
    if wrong.size and classes is not None:
        raise InputError(
            f"{name}: expected numbers from 0 to {classes - 1}, or {IGNORED} where there is no "
            f"label, received {wrong.flat[0]}.\nCount classes from 0, as config.json does."
        )
    return array.astype(np.int32)
