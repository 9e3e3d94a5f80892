# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A decoder ready to use: called with ids, continuing texts, and traced while it reads them.

Batches of prompts are padded on the left. A token of a byte-level vocabulary may end within a
character, and one may hold the end of a stop string and more: which part of a growing text stays,
and where it is to stop, follows from the text alone. A text ends before the stop string that is
complete first, of two that end together before the longer one. Hugging Face leaves the string in;
here it is taken as a mark, no part of the text.
"""

import bisect
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.models import positions
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.positions import next_change
from flaxattn.pretrained import decoding_settings, model_inputs
from flaxattn.pretrained.decoding_settings import Decoding, settled
from flaxattn.pretrained.generation import generate_rows, lengths, stages, tokens_so_far
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.nonfinite_error import check_written
from flaxattn.pretrained.pretrained_model import Pretrained, answered, check_label_names, run
from flaxattn.pretrained.token_probabilities import predicted
from flaxattn.text.text_lists import text_list
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import FILE, Chat, chats_of, rendered, shortened, special_tokens
from flaxattn.text.tokens import decoded_spans, words_decoded, words_read
from flaxattn.trace.trace import Trace

# Bits of the key classes that `trace` hands to sieves: Sieve("x", key_class=FIRST).
SPECIAL, FIRST = range(2)
_WEIGHTS = Capture(weights=True)
Prompts = str | Sequence[str] | Chat | Sequence[Chat]


class ChatModel(Pretrained):
    """Base of decoders; the parts are described at `Pretrained`."""

    config: GPT2Config | DecoderConfig
    tokenizer: Tokenizer | None

    def chat_prompt(self, messages: Chat | Sequence[Chat]) -> Any:
        """The text that the model continues with its reply, by its chat template.

        Args:
            messages: Each with `role` ("system", "user", "assistant") and `content`; a last one of
                the assistant is continued. Or a list of such lists.

        Returns:
            A text with its special tokens written out; for several chats, a list.

        Raises:
            InputError: For messages that the template does not take, or a model without one.
        """
        chats = chats_of(messages)
        if chats is None:
            raise InputError(
                f"expected a list of messages, received {type(messages).__name__}\n"
                'give a list such as [{"role": "user", "content": "Hello"}]'
            )
        texts = self._rendered(chats)
        return texts[0] if isinstance(messages[0], Mapping) else texts

    def _tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        self._reader()
        assert self.tokenizer is not None
        return self.tokenizer

    def _rendered(self, chats: Sequence[Chat]) -> list[str]:
        """Chats as the model's template writes them."""
        tokenizer, c = self._tokenizer(), self.config
        if (template := tokenizer.chat_template) is None:
            raise InputError(
                f"the model {self.name!r} has no chat template, so it cannot read messages\n"
                f"expected {FILE}, or chat_template in tokenizer_config.json\n"
                "name a model that was trained on chats, or give the prompt as one text"
            )
        ids = {"bos_token": c.bos_token_id, "eos_token": next(iter(c.end_ids), None)}
        usual = {
            name: None if i is None else tokenizer.convert_ids_to_tokens([i])[0]
            for name, i in ids.items()
        }
        special = special_tokens(tokenizer.settings, usual)
        return [rendered(chat, template, special) for chat in chats]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PretrainedDecoder(ChatModel):
    """A GPT-2 or another decoder; its other parts are described at `Pretrained`.

    Attributes:
        generation: Settings that the checkpoint wants text written with, as Hugging Face has them.
    """

    config: GPT2Config | DecoderConfig
    tokenizer: Tokenizer | None
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
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
            position_ids: Default 0, 1, …, also for texts padded on the left, as published. Rotary
                positions that depend on the length of a text take that of the longest one here.
            head_mask: Factors on the outputs of heads, `[H]` for all layers or `[L, H]`: 0
                silences a head, 1 leaves it. `attentions` are those before it.
            labels: The texts themselves, -100 where a token is not to be predicted, or classes of
                a classifier; their mean loss is returned as `loss`.
            output_attentions: Whether to return `attentions`: per layer float32 `[B, H, Q, K]`,
                NumPy arrays that torch's functions and BertViz take too.
            output_hidden_states: Whether to return `hidden_states`: the embeddings and each
                layer's output, the last one normalised.
            return_dict: False for a tuple instead of a `ModelOutput`.
            **of_heads: `start_positions` and `end_positions`, the first and the last token of each
                answer, for question answering.

        Returns:
            The fields that the architecture has.

        Raises:
            InputError: For a wrong shape or dtype, an id out of range, a length over the limit.
        """
        check_label_names(of_heads)
        given = self._checked(input_ids, attention_mask, position_ids)
        given |= self._longest(given) | self._masked(head_mask=head_mask)
        capture = Capture(weights=output_attentions)
        module = self.module.clone(capture=capture, keep_hidden=output_hidden_states)
        out, variables = run(module, self.params, given, output_attentions)
        if output_attentions:
            out = out.replace(attentions=Trace.from_variables(variables).attentions)
        return answered(self.config, out, {"labels": labels, **of_heads}, return_dict)

    def generate(
        self,
        texts: Prompts | None = None,
        *,
        input_ids: Int[Any, "B P"] | None = None,
        attention_mask: Int[Any, "B P"] | None = None,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        scores: bool = False,
        trace: bool = False,
        capture: Capture = _WEIGHTS,
        predictions: int = 0,
        **settings: Any,
    ) -> Any:
        """Continue every text.

        Args:
            texts: Prompts; or give `input_ids`. Messages of a chat, such as
                `[{"role": "user", "content": "Hello"}]`, or several chats, where the model has a
                chat template; their replies are returned alone.
            input_ids: Tokens of the prompts, padded on the left.
            attention_mask: 1 at real positions of the prompts.
            seed: With `do_sample`, of the draws. A text depends on it, its prompt and its number
                among those of one prompt, and on nothing else in the batch.
            stop: Strings before the first of which a text ends; the prompt is not searched. Ids
                and the trace go as far as the token that completes it. Beams are compared with
                what they wrote behind it.
            scores: Whether to return the log-probability of what was written too, `[B R]`; with
                beams it is under the length penalty. Not together with `stop`.
            trace: Whether to return a trace too: of the best text of each prompt, from one pass
                over the finished texts, which sees what the steps saw.
            capture: What the trace keeps.
            predictions: Number of likeliest next tokens that the trace keeps for each position.
            **settings: Fields of `flaxattn.pretrained.decoding_settings.Decoding`; what is left out
                is as the checkpoint's `generation_config.json` says.

        Returns:
            Prompts with what follows them, texts for texts; for chats their replies; for ids an
            array `[B R, T]` with the prompts and their padding, as Hugging Face returns;
            R = `num_return_sequences`. With `scores`, a pair of that and the scores; with `trace`,
            a pair of all that and the trace.

        Raises:
            InputError: For a prompt or a setting that cannot be used.
        """
        stops = stop_strings(stop)
        if stops and scores:
            raise InputError(
                "scores are of all generated tokens, which stop cuts\nleave out one of the two"
            )
        if texts is not None and chats_of(texts) is None:
            texts = text_list(texts, "prompt")
        mask, given, prompt, decoding = self._begun(texts, input_ids, attention_mask, settings)
        enough = functools.partial(self._stopped, stops) if stops else None
        written = generate_rows(
            self.module, self.params, self.unstacked_params, given, prompt, decoding, seed, enough
        )
        check_written(self.name, self.params, written.scores)
        start = mask.shape[1]
        ids = np.asarray(written.ids)[..., prompt.shape[1] - start :]
        flat = ids.reshape(-1, ids.shape[-1])
        sizes = lengths(flat, start, decoding)
        if stops:
            rows = (row[start:size].tolist() for row, size in zip(flat, sizes, strict=True))
            decode = self._reader().decode
            sizes = start + np.array([tokens_needed(r, decode, stops) for r in rows])
            flat = np.where(np.arange(flat.shape[1]) < sizes[:, None], flat, decoding.pad)
        result: Any = flat[:, : sizes.max()]
        if texts is not None:
            result = self._continued(texts, flat, start, sizes, stops)
        if scores:
            result = result, np.asarray(written.scores).reshape(-1)
        if not trace:
            return result
        best = slice(None, None, ids.shape[1])
        return result, self._reread(flat[best], sizes[best], mask, capture, predictions)

    def stream(
        self,
        text: str | Chat,
        *,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        **settings: Any,
    ) -> Iterator[str]:
        """Continue a text, and yield it while it is generated.

        Args:
            text: The prompt, or the messages of a chat, which are not returned.
            seed: As for `generate`, like what follows.
            stop: Strings before the first of which the text ends.
            **settings: Fields of `flaxattn.pretrained.decoding_settings.Decoding`, but for beams
                and several texts.

        Returns:
            The prompt, then the text that each token adds. A character is returned when it is
            complete, and the beginning of a stop string when it is not one. Joined they are what
            `generate` returns.

        Raises:
            InputError: For a prompt or a setting that cannot be used.
        """
        stops = stop_strings(stop)
        chats = chats_of(text)
        if not isinstance(text, str) and (chats is None or len(chats) > 1):
            raise InputError(
                f"stream continues one text, received {type(text).__name__}\ngenerate takes several"
            )
        _, given, prompt, decoding = self._begun(text, None, None, settings)
        if decoding.num_beams > 1 or decoding.num_return_sequences > 1:
            raise InputError(
                "stream returns one text as it is generated, the best of several is known at the "
                f"end\nnum_beams is {decoding.num_beams}, num_return_sequences "
                f"{decoding.num_return_sequences}\nset both to 1, or call generate"
            )
        texts = self._growing(given, prompt, decoding, seed)
        first = [text] if isinstance(text, str) else []
        return itertools.chain(first, grown(texts, stops))

    def decoding(self, prompt: int, settings: Mapping[str, Any]) -> Decoding:
        """The settings of generation, those of the checkpoint in place of those left out.

        Args:
            prompt: Length of the longest prompt.
            settings: Fields of `Decoding`.

        Raises:
            InputError: For a setting that there is not, or more tokens than the model has room for.
        """
        c = self.config
        limit = c.longest - prompt
        if limit < 1:
            raise InputError(
                f"a prompt has {prompt} tokens, the model has room for {c.longest} in all\n"
                "shorten it, so that something can follow"
            )
        pad = next((i for i in (c.pad_token_id, *c.end_ids) if i is not None), 0)
        defaults = {"max_new_tokens": 64, "eos": c.end_ids, "pad": pad}
        return settled(defaults, self.generation, settings, prompt, limit)

    @check_arguments(0)
    def trace(
        self,
        text: Prompts,
        text_b: None = None,
        *,
        capture: Capture = _WEIGHTS,
        predictions: int = 0,
        truncate: bool = False,
        allow_nonfinite: bool = False,
    ) -> Trace:
        """Trace attention while reading texts.

        Args:
            text: A text, or B of them; or messages, as for `generate`.
            text_b: Not taken: a decoder reads single texts.
            capture: What to keep, of which layers and heads.
            predictions: As for `generate`.
            truncate: Whether a text over the model's limit is cut, which the trace records in
                `truncated`; otherwise it is an error.
            allow_nonfinite: Whether attention that is NaN or infinite is kept; otherwise it is an
                error.

        Returns:
            The trace of B texts; self-attention is its `decoder`.

        Raises:
            InputError: For an unknown layer or head, a model without tokenizer, an empty text, or
                one over the limit, or a second text.
        """
        reading = self.read(text, text_b, truncate=truncate)
        trace = self.trace_tokens(reading, capture, allow_nonfinite=allow_nonfinite)
        return predicted(self, reading, trace, predictions, allow_nonfinite=allow_nonfinite)

    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize texts; see `Pretrained.read`. There is no second text."""
        if text_b is not None:
            raise InputError(
                f"{self.name!r} reads single texts, received pairs\n"
                "join each pair into one text, as the model saw them in training"
            )
        chats, tokenizer = chats_of(text), self._tokenizer()
        texts = text_list(text) if chats is None else self._rendered(chats)
        encoded = tokenizer.encode(
            texts, max_length=self.limit, truncate=truncate, special=chats is None
        )
        special = self._special(encoded.input_ids, encoded.attention_mask) | encoded.special
        spans = encoded.spans()
        rows = zip(texts, spans, special, strict=True)
        metadata = {
            "tokens": encoded.tokens,
            "words": [words_read(*row) for row in rows],
            "texts": [(text,) for text in texts],
            "spans": spans,
            "truncated": encoded.truncated,
        }
        return self._reading(encoded.input_ids, encoded.attention_mask, special, metadata)

    @property
    def limit(self) -> int:
        """Most positions of a sequence."""
        return self.config.longest

    def packs(self, capture: Capture) -> bool:
        """Return whether texts may share a row.

        They may not with a window, where segments matter, or where positions depend on lengths.
        """
        segments = any(sieve.same_segment is not None for sieve in capture.sieves)
        return not (capture.windowed or segments or self._length_matters)

    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer."""
        return self.config.num_hidden_layers, self.config.num_attention_heads

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Arguments of a call that mask heads, and of how many layers and heads each does."""
        return {"head_mask": self.counts()}

    def positions(self) -> Float[np.ndarray, "P E"]:
        """The learned table of positions, for `flaxattn.plot_positions`."""
        table = positions.learned(self.params, "positions")
        if table is None:
            raise InputError(
                f"{self.name!r} has no table of positions: it turns queries and keys by an angle.\n"
                "Compare heads by distance instead: fa.head_stats."
            )
        return table

    def _beside(self) -> dict[str, Any]:
        found = super()._beside()
        return found | {"further": found["further"] | decoding_settings.files(self.generation)}

    def _size(self) -> str:
        return "{} layers, {} heads".format(*self.counts())

    def _checked(self, ids: Any, mask: Any, places: Any) -> dict[str, Any]:
        """Arguments of a call, with the defaults filled in: a program for some serves all."""
        c = self.config
        longest = "n_positions" if isinstance(c, GPT2Config) else "max_position_embeddings"
        ranges = {
            "input_ids": (c.vocab_size, "vocab_size"),
            "attention_mask": model_inputs.MASK,
            "position_ids": (c.longest, longest),
        }
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": places}
        arrays = model_inputs.checked(given, ranges, c.longest)
        shape = arrays["input_ids"].shape
        return {
            "attention_mask": np.ones(shape, np.int32),
            "position_ids": np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape),
        } | arrays

    @property
    def _length_matters(self) -> bool:
        """True if rotary positions depend on the length of the text."""
        return next_change(self.config, 1) is not None

    def _longest(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Length of the longest text, for every text, as upstream computes rotary positions.

        Nothing where they do not depend on it. `trace` and extraction read each text as if alone.
        """
        if not self._length_matters:
            return {}
        real = jnp.asarray(given["attention_mask"]) != 0
        longest = jnp.where(real, given["position_ids"], 0).max() + 1
        return {"text_lengths": jnp.full(len(real), longest)}

    def _begun(
        self, texts: Any, ids: Any, mask: Any, settings: Mapping[str, Any]
    ) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, Decoding]:
        """Mask of the prompts, and the inputs, prompts and settings of the compiled program."""
        if not isinstance(self.module, DecoderLM):
            writer = self.config.language_model
            raise InputError(
                f"the model {self.name!r} is a {self.config.architectures[0]}, which writes no "
                f'text\nname a {writer}, or load this one with head="{writer}"'
            )
        ids, mask = self._prompts(texts, ids, mask)
        decoding = self.decoding(int(mask.sum(1).max()), settings)
        wide = model_inputs.padded_left({"input_ids": ids, "attention_mask": mask})
        return mask, {"attention_mask": wide["attention_mask"]}, wide["input_ids"], decoding

    def _prompts(self, texts: Any, ids: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        """Ids and mask of prompts, padded on the left."""
        if (texts is None) == (ids is None):
            raise InputError("give either texts or input_ids")
        if texts is not None:
            c, chats = self.config, chats_of(texts)
            first = next(iter(c.end_ids), None)
            texts = texts if chats is None else self._rendered(chats)
            ids, mask = encoded(texts, self._tokenizer(), c.longest, first, special=chats is None)
        given = self._checked(ids, mask, None)
        mask = np.asarray(given["attention_mask"] != 0, np.int32)
        check_left(mask)
        return np.asarray(given["input_ids"]), mask

    def _growing(
        self, given: dict[str, np.ndarray], prompt: np.ndarray, decoding: Decoding, seed: int
    ) -> Iterator[str]:
        """Yield the generated text after a prompt, whenever a token was added."""
        decode, start = self._reader().decode, prompt.shape[1]
        for now in stages(
            self.module, self.params, self.unstacked_params, given, prompt, decoding, seed, 1
        ):
            check_written(self.name, self.params, now.text.scores)
            yield decode(tokens_so_far(now, start)[0].tolist())

    def _stopped(
        self, stops: Sequence[str], ids: Int[np.ndarray, "R T"], ended: Bool[np.ndarray, " R"]
    ) -> bool:
        """Return whether every text is at its end, or has a stop string."""
        decode, open_ones = self._reader().decode, ids[~ended].tolist()
        return all(certain(decode(row), stops)[1] for row in open_ones)

    def _continued(
        self, texts: Any, ids: np.ndarray, start: int, sizes: np.ndarray, stops: Sequence[str]
    ) -> list[str]:
        """Prompts with their continuations; of chats the replies alone."""
        texts = [texts] if isinstance(texts, str) else texts
        if (chats := chats_of(texts)) is not None:
            texts = [""] * len(chats)
        per, decode = len(ids) // len(texts), self._reader().decode
        return [
            texts[row // per] + cut(decode(ids[row, start:size].tolist()), stops)
            for row, size in enumerate(sizes)
        ]

    def _reread(
        self, ids: np.ndarray, sizes: np.ndarray, mask: np.ndarray, capture: Capture, count: int
    ) -> Trace:
        """The trace of prompts and their continuations; prompts are segment 0."""
        prompts_end = (mask != 0).sum(1)
        moved, real = moved_left(ids, sizes, mask)
        mask = real.astype(np.int32)
        special = self._special(moved, mask)
        reading = self._reading(moved, mask, special, self._decoded(moved, mask, special))
        written = np.arange(real.shape[1])[None] >= prompts_end[:, None]
        trace = predicted(self, reading, self.trace_tokens(reading, capture), count)
        return dataclasses.replace(trace, segments=written.astype(np.int32))

    def _special(
        self, ids: Int[np.ndarray, "B S"], mask: Int[np.ndarray, "B S"]
    ) -> Bool[np.ndarray, "B S"]:
        """Padding, and tokens that begin or end a text."""
        c = self.config
        added = [i for i in (c.bos_token_id, *c.end_ids) if i is not None]
        return np.isin(ids, added) | (mask == 0)

    def _reading(
        self,
        ids: Int[np.ndarray, "B S"],
        mask: Int[np.ndarray, "B S"],
        special: Bool[np.ndarray, "B S"],
        metadata: Mapping[str, Any],
    ) -> TokenizedTexts:
        """Texts of ids padded on the right."""
        classes = (special & (mask == 1)).astype(np.int32) << SPECIAL
        classes[:, 0] |= 1 << FIRST
        given = {"input_ids": ids, "attention_mask": mask, "key_classes": classes}
        trace = Trace(**metadata, mask=mask == 1, special=special, model=self.name)
        return TokenizedTexts(given, trace)

    def _decoded(self, ids: np.ndarray, mask: np.ndarray, special: np.ndarray) -> dict[str, Any]:
        """Tokens, words and texts of ids; their numbers where there is no tokenizer."""
        if self.tokenizer is None:
            return {"tokens": [[str(i) for i in row] for row in ids.tolist()]}
        tokens = [self.tokenizer.readable_tokens(row) for row in ids.tolist()]
        rows = [row[real == 1].tolist() for row, real in zip(ids, mask, strict=True)]
        texts = [self.tokenizer.decode(row, skip_special_tokens=False) for row in rows]
        spans = [decoded_spans(*row) for row in zip(texts, tokens, special, strict=True)]
        return {
            "tokens": tokens,
            "words": [
                words_decoded(*row) for row in zip(texts, tokens, spans, special, strict=True)
            ],
            "texts": [(text,) for text in texts],
            "spans": spans,
        }


Batch = tuple[Int[np.ndarray, "B P"], Int[np.ndarray, "B P"]]


def encoded(
    texts: str | Sequence[str],
    reader: Tokenizer,
    limit: int,
    first: int | None,
    special: bool = True,
) -> Batch:
    """Tokens of prompts."""
    items = text_list(texts, "prompt")
    for number, text in enumerate(items):
        if isinstance(text, str) and not text.strip():
            mark = (
                ""
                if first is None
                else f", or {reader.readable_tokens([first])[0]!r} to begin a text"
            )
            raise InputError(
                f"prompt {number} is empty\nreceived {text!r}, after which nothing can follow\n"
                f"give it at least one word{mark}"
            )
    batch = reader.encode(items, max_length=sys.maxsize, special=special)
    sizes = batch.attention_mask.sum(1)
    if (sizes >= limit).any():
        number = int((sizes >= limit).argmax())
        raise InputError(
            f"prompt {number} is too long: {sizes[number]} tokens, this model has room for {limit} "
            f"with those that follow\nreceived: {shortened(items[number])}\nshorten it"
        )
    width = batch.input_ids.shape[1]
    order = (np.arange(width)[None] + sizes[:, None]) % width
    ids, mask = (
        np.take_along_axis(array, order, axis=1)
        for array in (batch.input_ids, batch.attention_mask)
    )
    return ids, mask


def moved_left(
    ids: Int[np.ndarray, "B T"], sizes: Int[np.ndarray, " B"], mask: Int[np.ndarray, "B P"]
) -> tuple[Int[np.ndarray, "B S"], Bool[np.ndarray, "B S"]]:
    """Texts without the padding before their prompts, and which of their positions are real."""
    starts = (mask == 0).sum(1)
    places = starts[:, None] + np.arange((sizes - starts).max())[None]
    real = places < sizes[:, None]
    moved = np.take_along_axis(ids, np.minimum(places, ids.shape[1] - 1), axis=1)
    return np.where(real, moved, 0), real


def check_left(mask: Int[np.ndarray, "B P"]) -> None:
    """Check that prompts are padded on the left."""
    if (np.diff(mask, axis=1) < 0).any() or not mask[:, -1].all():
        raise InputError(
            "attention_mask: a prompt ends in padding, after which nothing can be written\n"
            "pad prompts on the left"
        )


_UNREADABLE = "\ufffd"  # what decoders make of bytes that are not a character
_MOST_BYTES = 3  # of a character of UTF-8 that is not complete


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """One stop string or several, checked."""
    found = (stop,) if isinstance(stop, str) else tuple(stop)
    for number, one in enumerate(found):
        if not isinstance(one, str) or not one:
            raise InputError(
                f"stop string {number} is {'empty' if one == '' else 'not a string'}\n"
                f"received {one!r}, at which no text can stop\n"
                "leave it out, or give at least one character"
            )
    return found


def end(text: str, stops: Sequence[str]) -> int | None:
    """Length of a text without its stop string and what follows that; None where it has none."""
    starts = ((text.find(stop), len(stop)) for stop in stops)
    found = [(start + size, start) for start, size in starts if start >= 0]
    return min(found)[1] if found else None


def cut(text: str, stops: Sequence[str]) -> str:
    """A finished text up to its stop string; arguments as for `end`."""
    return text[: end(text, stops)]


def certain(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The part of an unfinished text that stays whatever follows, and whether it is all of it.

    It holds back characters whose bytes are not complete, and text that may begin a stop string.
    """
    unread = len(text) - len(text.rstrip(_UNREADABLE))
    text = text[: len(text) - min(unread, _MOST_BYTES)]
    if (place := end(text, stops)) is not None:
        return text[:place], True
    longest = max(map(len, stops), default=1)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return text[:-size], False
    return text, False


def grown(texts: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """Yield what each state of a growing text adds to the one before."""
    shown, text, ended = 0, "", False
    for text in texts:
        sure, ended = certain(text, stops)
        if len(sure) > shown:
            yield sure[shown:]
            shown = len(sure)
        if ended:
            return
    if rest := cut(text, stops)[shown:]:
        yield rest


def tokens_needed(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str], stops: Sequence[str]
) -> int:
    """Number of generated tokens up to the one that completes a stop string."""

    def ended(count: int) -> bool:
        return certain(decode(ids[:count]), stops)[1]

    return bisect.bisect_left(range(len(ids)), True, key=ended)
