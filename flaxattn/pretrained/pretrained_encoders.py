# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Encoders with their tokenizers: BERT and its kin, the encoder of a T5, a recurrent classifier.

They take token ids or texts, and are traced.
"""

import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.models import positions
from flaxattn.models.bert import default_positions
from flaxattn.models.encoder_config import EncoderConfig
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import (
    Pretrained,
    SourceReader,
    answered,
    check_label_names,
    run,
)
from flaxattn.text.text_lists import text_list
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokens import TokenBatch
from flaxattn.trace.trace import Trace

# Bits of the key classes that `trace` hands to sieves: Sieve("x", key_class=SEPARATOR).
SPECIAL, FIRST, SEPARATOR, PUNCTUATION = range(4)
_WEIGHTS = Capture(weights=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PretrainedBert(Pretrained):
    """A BERT or a variant ready to use; its parts are described at `Pretrained`."""

    config: EncoderConfig
    tokenizer: Tokenizer | None

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        token_type_ids: Int[Any, "B S"] | None = None,
        position_ids: Int[Any, "B S"] | None = None,
        head_mask: Float[Any, "..."] | None = None,
        *,
        labels: Any = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
        **of_heads: Int[Any, " B"] | None,
    ) -> Any:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each shape.

        Args:
            input_ids: Tokens; NumPy, JAX or nested lists, like the other arrays.
            attention_mask: 1 at real positions, 0 at padding; default 1.
            token_type_ids: 0 for sentence A, 1 for sentence B; default 0.
            position_ids: Default 0, 1, …, also for sequences padded on the left, as published.
            head_mask: Factors on the outputs of heads, `[H]` for all layers or `[L, H]`: 0
                silences a head, 1 leaves it. `attentions` are those before it.
            labels: Labels of the head, whose mean loss is returned as `loss`: tokens or classes per
                position, -100 where there is none; of a sequence classifier classes `[B]`, or
                numbers as `config.problem_type` says.
            output_attentions: Whether to return `attentions`: per layer float32 `[B, H, Q, K]`,
                NumPy arrays that torch's functions and BertViz take too.
            output_hidden_states: Whether to return `hidden_states`: the embeddings and each
                layer's output.
            return_dict: False for a tuple instead of a `ModelOutput`.
            **of_heads: Further labels: `next_sentence_label` of a BertForPreTraining, 1 where the
                second text is random; `sentence_order_label` of an AlbertForPreTraining, 1 where
                the texts are swapped; `start_positions` and `end_positions`, the first and the last
                token of each answer, for question answering.

        Returns:
            The fields that the architecture has.

        Raises:
            InputError: For a wrong shape or dtype, an id out of range, a length over the limit, or
                labels that the head does not take.
        """
        check_label_names(of_heads)
        given = self._checked(
            {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "token_type_ids": token_type_ids,
                "position_ids": position_ids,
            }
        ) | self._masked(head_mask=head_mask)
        module = self.module.clone(
            capture=Capture(weights=output_attentions), keep_hidden=output_hidden_states
        )
        out, variables = run(module, self.params, given, output_attentions)
        if output_attentions:
            out = out.replace(attentions=Trace.from_variables(variables).attentions)
        return answered(self.config, out, {"labels": labels, **of_heads}, return_dict)

    @check_arguments(0)
    def trace(
        self,
        text: str | Sequence[str],
        text_b: str | Sequence[str] | None = None,
        *,
        capture: Capture = _WEIGHTS,
        truncate: bool = False,
        allow_nonfinite: bool = False,
    ) -> Trace:
        """Read a text, a pair of texts, or several, and return their attention.

        Inputs are padded to one of a few lengths, so that other texts seldom compile again; the
        trace is cut back to the longest text. Sieves may use the key classes `SPECIAL` (any token
        the tokenizer adds), `FIRST` ([CLS]), `SEPARATOR` ([SEP]) and `PUNCTUATION` of this module.

        Args:
            text: A text, or B texts.
            text_b: The second text of each pair.
            capture: What to keep, of which layers and heads.
            truncate: Whether a text over the model's limit is cut, which the trace records in
                `truncated`; otherwise it is an error.
            allow_nonfinite: Whether attention that is NaN or infinite is kept; otherwise it is an
                error.

        Returns:
            The trace of B sequences.

        Raises:
            InputError: For an unknown layer or head, a window beyond the text, a model without
                tokenizer, an empty text, or one over the limit.
        """
        model_inputs.check_capture(capture, *self.counts())
        reading = self.read(text, text_b, truncate=truncate)
        return self.trace_tokens(reading, capture, allow_nonfinite=allow_nonfinite)

    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize texts or pairs of them; see `Pretrained.read`."""
        text, text_b = text_list(text), None if text_b is None else text_list(text_b, "text_b")
        return self._reading(self._encode(text, text_b, truncate), _texts(text, text_b))

    def read_windows(
        self, question: str, context: str, *, max_length: int, stride: int
    ) -> TokenizedTexts:
        """Tokenize a question with overlapping windows of a context, each window a pair with it.

        Args:
            question: The first text of every pair.
            context: The second, which may be longer than the model's limit.
            max_length: Largest number of tokens of a pair.
            stride: Number of tokens that neighbouring windows share.

        Returns:
            A row per window; spans of tokens count characters of the whole context.

        Raises:
            InputError: For a model without tokenizer, an empty text, or a question that leaves no
                room for the context.
        """
        tokenizer = self._reader()
        assert isinstance(tokenizer, Tokenizer)  # an encoder has no other
        length = min(max_length, self.limit, tokenizer.max_length or self.limit)
        encoded = tokenizer.windows(question, context, max_length=length, stride=stride)
        return self._reading(encoded, [(question, context)] * len(encoded.tokens))

    def _reading(self, encoded: TokenBatch, texts: list[tuple[str, ...]]) -> TokenizedTexts:
        """Inputs of the model and text fields of a trace, from tokens."""
        config = self.config
        has_segments = config.variant.tokenized_types or config.type_vocab_size == 1
        kinds = encoded.token_type_ids if has_segments else np.zeros_like(encoded.token_type_ids)
        given = {
            "input_ids": encoded.input_ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": kinds if config.variant.token_types else encoded.token_type_ids,
            "key_classes": self._key_classes(encoded),
        }
        if config.first_position:
            given["position_ids"] = default_positions(config, encoded.input_ids)
        metadata = Trace(
            tokens=encoded.tokens,
            mask=encoded.attention_mask == 1,
            segments=encoded.token_type_ids,
            words=encoded.word_ids,
            special=encoded.special,
            texts=texts,
            truncated=encoded.truncated,
            spans=encoded.spans(),
            model=self.name,
        )
        return TokenizedTexts(given, metadata)

    def packs(self, capture: Capture) -> bool:
        """Return whether texts may share a row: not where a window of each row is asked.

        Nor where embeddings are scaled by the share of masks in a row, as an ESM-2 does.
        """
        return not capture.windowed and not self.config.token_dropout

    @property
    def limit(self) -> int:
        """Most positions of a sequence."""
        return self.config.max_position_embeddings - self.config.first_position

    @property
    def first_position(self) -> int:
        """`position_ids` of the first token of a text."""
        return self.config.first_position

    @property
    def biased_scores(self) -> bool:
        """True where scores have a bias by position, as in MPNet."""
        return self.config.variant.relative

    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer."""
        return self.config.num_hidden_layers, self.config.num_attention_heads

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Arguments of a call that mask heads, and of how many layers and heads each does."""
        return {"head_mask": self.counts()}

    def positions(self) -> Float[np.ndarray, "P E"]:
        """The learned table of positions, for `flaxattn.plot_positions`.

        Raises:
            InputError: If the model has none.
        """
        table = positions.learned(self.params, "embeddings/position")
        if table is None:
            raise InputError(
                f"{self.name!r} has no table of positions: it rotates queries and keys.\n"
                "Choose a model whose positions are embedded."
            )
        return table[self.config.first_position :]

    def segments(self) -> Float[np.ndarray, "T E"]:
        """The learned table of segments, the token types, for `flaxattn.plot_positions`.

        Raises:
            InputError: If the model has none.
        """
        table = positions.learned(self.params, "embeddings/token_type")
        if table is None:
            raise InputError(
                f"{self.name!r} has no table of segments: it does not tell texts of a pair apart.\n"
                "Choose a model with token types, such as a BERT."
            )
        return table

    def _size(self) -> str:
        return f"{self.config.num_hidden_layers} layers, {self.config.num_attention_heads} heads"

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Arguments of a call, with the defaults filled in: a program for some serves all."""
        c = self.config
        kinds = max(2, c.type_vocab_size) if not c.variant.token_types else c.type_vocab_size
        ranges = {
            "input_ids": (c.vocab_size, "vocab_size"),
            "attention_mask": model_inputs.MASK,
            "token_type_ids": (kinds, "type_vocab_size"),
            "position_ids": (c.max_position_embeddings, "max_position_embeddings"),
        }
        arrays = model_inputs.checked(given, ranges, self.limit)
        shape = arrays["input_ids"].shape
        return {
            "attention_mask": np.ones(shape, np.int32),
            "token_type_ids": np.zeros(shape, np.int32),
            "position_ids": default_positions(c, arrays["input_ids"]),
        } | arrays

    def _encode(
        self, text: str | Sequence[str], text_b: str | Sequence[str] | None, truncate: bool
    ) -> TokenBatch:
        tokenizer = self._reader()
        assert isinstance(tokenizer, Tokenizer)  # an encoder has no other
        limit = min(self.limit, tokenizer.max_length or self.limit)
        return tokenizer.encode(text, text_b, max_length=limit, truncate=truncate)

    def _key_classes(self, encoded: TokenBatch) -> Int[np.ndarray, "B S"]:
        assert self.tokenizer is not None
        real = encoded.attention_mask == 1
        punctuation = [[_is_punctuation(token) for token in row] for row in encoded.tokens]
        classes = {
            SPECIAL: encoded.special & real,
            FIRST: encoded.input_ids == self.tokenizer.cls_id,
            SEPARATOR: encoded.input_ids == self.tokenizer.sep_id,
            PUNCTUATION: np.array(punctuation) & ~encoded.special,
        }
        bits = [member.astype(np.int32) << bit for bit, member in classes.items()]
        return np.bitwise_or.reduce(bits)


def _texts(text: Sequence[str], text_b: Sequence[str] | None) -> list[tuple[str, ...]]:
    if text_b is None:
        return [(one,) for one in text]
    return list(zip(text, text_b, strict=True))


def _is_punctuation(token: str) -> bool:
    marks = token.strip(" ▁")
    return bool(marks) and all(unicodedata.category(mark)[0] == "P" for mark in marks)


class PretrainedT5Encoder(SourceReader):
    """The encoder of a T5 ready to use; its parts are described at `Pretrained`."""

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        head_mask: Float[Any, "..."] | None = None,
        *,
        labels: Int[Any, "B S"] | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
    ) -> Any:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each shape.
        """
        given = self._source(input_ids, attention_mask) | self._masked(head_mask=head_mask)
        capture = Capture(weights=output_attentions)
        module = self.module.clone(capture=capture, keep_hidden=output_hidden_states)
        out, variables = run(module, self.params, given, output_attentions)
        out = (
            out.replace(attentions=Trace.from_variables(variables).attentions) if variables else out
        )
        return answered(self.config, out, {"labels": labels}, return_dict)

    @check_arguments(0)
    def trace(
        self,
        text: str | Sequence[str],
        text_b: None = None,
        *,
        capture: Capture = _WEIGHTS,
        truncate: bool = False,
        allow_nonfinite: bool = False,
    ) -> Trace:
        """Read a text, or several, and return their attention."""
        model_inputs.check_capture(capture, *self.counts())
        reading = self.read(text, text_b, truncate=truncate)
        return self.trace_tokens(reading, capture, allow_nonfinite=allow_nonfinite)

    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize texts; see `Pretrained.read`."""
        return self._alone(text, text_b, truncate)

    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer."""
        return self.config.encoder_layers, self.config.encoder_attention_heads

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Arguments of a call that mask heads, and of how many layers and heads each does."""
        return {"head_mask": self.counts()}

    def _size(self) -> str:
        return f"{self.config.encoder_layers} layers, {self.config.encoder_attention_heads} heads"


class PretrainedRnnClassifier(SourceReader):
    """A recurrent text classifier ready to use; its parts are described at `Pretrained`."""

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        *,
        labels: Any = None,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
    ) -> Any:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each shape.
        """
        module = self.module.clone(capture=NOTHING, keep_hidden=output_hidden_states)
        out, _ = run(module, self.params, self._source(input_ids, attention_mask), False)
        return answered(self.config, out, {"labels": labels}, return_dict)

    def trace(self, *texts: Any, **options: Any) -> NoReturn:
        """Refuse: there is no attention."""
        model_inputs.check_capture(NOTHING, *self.counts())
        raise AssertionError("a model without heads is refused")

    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize texts; see `Pretrained.read`."""
        return self._alone(text, text_b, truncate)

    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer: none."""
        return self.config.encoder_layers, self.config.encoder_attention_heads

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Return nothing: there are no heads to mask."""
        return {}

    def _size(self) -> str:
        return "1 layer, no heads"
