# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`PretrainedSeq2Seq`: an encoder-decoder with its tokenizers; called, generating, or traced.

Many sentences are translated in batches of few shapes, sorted by length; results are in the order
of the inputs.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.models import positions
from flaxattn.models.outputs import IGNORED
from flaxattn.models.rnn import RnnLM
from flaxattn.models.seq2seq import Seq2SeqLM, T5ForSequenceClassification, shifted_right
from flaxattn.models.seq2seq_config import EncoderDecoderConfig, RnnConfig, T5Config
from flaxattn.pretrained import decoding_settings, model_inputs
from flaxattn.pretrained.decoding_settings import Decoding, settled
from flaxattn.pretrained.generation import generate_rows, lengths, shortened
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.nonfinite_error import check_written
from flaxattn.pretrained.pretrained_model import (
    SourceReader,
    answered,
    check_label_names,
    run,
    tokens_of,
)
from flaxattn.pretrained.token_probabilities import predicted
from flaxattn.text.tokens import Reader, words_written
from flaxattn.trace.record import SIDES
from flaxattn.trace.trace import Trace

_WEIGHTS = Capture(weights=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PretrainedSeq2Seq(SourceReader):
    """An encoder-decoder ready to use; its other parts are described at `Pretrained`.

    Attributes:
        target_tokenizer: Tokenizer of the target side, where it has one of its own.
        generation: Settings that the checkpoint wants text written with, as Hugging Face has them.
    """

    config: EncoderDecoderConfig
    target_tokenizer: Reader | None = None
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        decoder_input_ids: Int[Any, "B T"] | None = None,
        decoder_attention_mask: Int[Any, "B T"] | None = None,
        head_mask: Float[Any, "..."] | None = None,
        decoder_head_mask: Float[Any, "..."] | None = None,
        cross_attn_head_mask: Float[Any, "..."] | None = None,
        *,
        labels: Any = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
        **of_heads: Int[Any, " B"] | None,
    ) -> Any:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each pair of shapes.

        Args:
            input_ids: Source tokens; NumPy, JAX or nested lists, like the other arrays.
            attention_mask: 1 at real source positions, 0 at padding; default 1.
            decoder_input_ids: What the decoder reads, the start token first; default the source
                shifted by one position.
            decoder_attention_mask: 1 at real target positions; default 1.
            head_mask: Factors on the outputs of the encoder's heads, `[H]` for all layers or
                `[L, H]`: 0 silences a head, 1 leaves it. Attentions are returned as before it.
            decoder_head_mask: The same of the decoder's attention to what it wrote.
            cross_attn_head_mask: The same of its attention to the source.
            labels: What the decoder shall write, -100 is padding, or the classes of a classifier.
                Their mean loss is returned as `loss`. Where the decoder's input is not given, it is
                made of what it shall write.
            output_attentions: Whether to return `encoder_attentions`, `decoder_attentions` and
                `cross_attentions`: per layer float32 `[B, H, Q, K]`, NumPy arrays that torch's
                functions take too.
            output_hidden_states: Whether to return both sides' hidden states.
            return_dict: False for a tuple instead of a `Seq2SeqOutput`.
            **of_heads: `start_positions` and `end_positions`, the first and the last token of each
                answer, for question answering.

        Returns:
            The fields that the architecture has.

        Raises:
            InputError: For a wrong shape or dtype, an id out of range, a length over the limit, or
                labels for a model without output layer, a text without end for a classifier.
        """
        check_label_names(of_heads)
        given = self._source(input_ids, attention_mask)
        target = labels if self.writes else None
        given |= self._target(decoder_input_ids, decoder_attention_mask, target, given)
        if isinstance(self.module, T5ForSequenceClassification):
            model_inputs.check_ends(
                given["input_ids"], given["decoder_input_ids"], self.config.eos_token_id
            )
        given |= self._masked(
            head_mask=head_mask,
            decoder_head_mask=decoder_head_mask,
            cross_attn_head_mask=cross_attn_head_mask,
        )
        capture = Capture(weights=output_attentions)
        if output_attentions:
            model_inputs.check_capture(capture, *self.counts())
        module = self.module.clone(capture=capture, keep_hidden=output_hidden_states)
        out, variables = run(module, self.params, given, output_attentions)
        if output_attentions:
            trace = Trace.from_variables(variables)
            sides = [side for side in SIDES if getattr(trace, side)]
            out = out.replace(
                **{f"{side}_attentions": getattr(trace, f"{side}_attentions") for side in sides}
            )
        return answered(self.config, out, {"labels": labels, **of_heads}, return_dict)

    def generate(
        self,
        texts: str | Sequence[str] | None = None,
        *,
        input_ids: Int[Any, "B S"] | None = None,
        attention_mask: Int[Any, "B S"] | None = None,
        decoder_input_ids: Int[Any, "B P"] | None = None,
        truncate: bool = False,
        seed: int = 0,
        scores: bool = False,
        trace: bool = False,
        capture: Capture = _WEIGHTS,
        predictions: int = 0,
        allow_nonfinite: bool = False,
        **settings: Any,
    ) -> Any:
        """Write, for every source, the text that the model makes of it.

        Args:
            texts: Sources; or give `input_ids`.
            input_ids: Source tokens.
            attention_mask: 1 at real source positions.
            decoder_input_ids: What every text begins with, the start token first; default that
                token alone.
            truncate: Whether a source over the model's limit is cut.
            seed: With `do_sample`, of the draws. A text depends on it, its source and its number
                among those of one source, and on nothing else in the batch.
            scores: Whether to return the log-probability of every text too, `[B R]`; with beams
                it is under the length penalty.
            trace: Whether to return a trace too: of the best text of each source, from one pass
                over the finished texts, which sees what the steps saw.
            capture: What the trace keeps.
            predictions: Number of likeliest tokens that the trace keeps for each generated one,
                with its own probability; 0 for neither.
            allow_nonfinite: Whether scores and attention may be NaN; otherwise it is an error.
            **settings: Fields of `flaxattn.pretrained.decoding_settings.Decoding`; what is left out
                is as the checkpoint's `generation_config.json` says. Where that names no length,
                about 50 tokens more than the source has are written at most.

        Returns:
            Texts for texts; for ids an array `[B R, T]` with the start token, as Hugging Face
            returns; R = `num_return_sequences`. With `scores`, a pair of that and the scores; with
            `trace`, a pair of all that and the trace.

        Raises:
            InputError: For a source or a setting that cannot be used.
        """
        source = self._sources(texts, input_ids, attention_mask, truncate)
        prompt = decoder_input_ids
        if prompt is None:
            prompt = np.full((len(source.metadata), 1), self.config.decoder_start_token_id)
        prompt = self._target(prompt, None, None, source.given)["decoder_input_ids"]
        decoding = self.decoding(source.lengths[0], prompt.shape[1], settings)
        written = generate_rows(
            self.module, self.params, self.unstacked_params, source.given, prompt, decoding, seed
        )
        if not allow_nonfinite:
            check_written(self.name, self.params, written.scores, go_on=trace)
        ids = np.asarray(written.ids)
        flat = shortened(ids.reshape(-1, ids.shape[-1]), prompt.shape[1], decoding)
        result = flat if texts is None else [self._writer().decode(row) for row in flat]
        if scores:
            result = result, np.asarray(written.scores).reshape(-1)
        if not trace:
            return result
        reading = self._reread(source, ids[:, 0], prompt.shape[1], decoding)
        found = self.trace_tokens(reading, capture, allow_nonfinite=allow_nonfinite)
        return result, predicted(self, reading, found, predictions, allow_nonfinite=allow_nonfinite)

    def with_targets(
        self,
        sources: Sequence[TokenizedTexts],
        given: Mapping[str, Int[np.ndarray, "B S"]],
        decoding: Decoding,
        seed: int = 0,
    ) -> list[TokenizedTexts]:
        """Sources that were read, each with the best target that the model writes for it.

        Args:
            sources: One text each.
            given: Arguments of all of them, padded.
            decoding: From `decoding`.
            seed: As for `generate`.
        """
        prompt = np.full((len(given["input_ids"]), 1), self.config.decoder_start_token_id, np.int32)
        written = generate_rows(
            self.module, self.params, self.unstacked_params, given, prompt, decoding, seed
        )
        rows = zip(sources, np.asarray(written.ids)[:, :1], strict=False)
        return [self._reread(source, row, 1, decoding) for source, row in rows]

    def with_source_as_target(self, source: TokenizedTexts) -> TokenizedTexts:
        """Sources, each as its own target: what the decoder of a model without writing head reads.

        Args:
            source: One text each.
        """
        ids, mask = source.given["input_ids"], source.given["attention_mask"]
        read = np.asarray(shifted_right(jnp.asarray(ids), self.config))
        return self._paired(source, read, ids, mask)

    @property
    def writes(self) -> bool:
        """True where the model has the scores of a next token."""
        return isinstance(self.module, Seq2SeqLM | RnnLM)

    @check_arguments(0)
    def trace(
        self,
        text: str | Sequence[str],
        target: str | Sequence[str] | None = None,
        *,
        capture: Capture = _WEIGHTS,
        predictions: int = 0,
        truncate: bool = False,
        allow_nonfinite: bool = False,
        **settings: Any,
    ) -> Trace:
        """Read sources and their targets, and return their attention.

        Args:
            text: A source, or B of them.
            target: The target of each; default what the model writes, or the source itself, which
                the decoder of a classifier reads.
            capture: What to keep, of which layers and heads.
            predictions: As for `generate`.
            truncate: Whether a text over the model's limit is cut.
            allow_nonfinite: Whether attention that is NaN or infinite is kept; otherwise it is an
                error.
            **settings: As for `generate`, where there is no target.

        Returns:
            The trace of B pairs: `encoder`, `decoder` and `cross`.

        Raises:
            InputError: For an unknown layer or head, a model without tokenizer, an empty text, or
                one over the limit.
        """
        model_inputs.check_capture(capture, *self.counts())
        if target is None and (self.writes or settings):
            options = {"capture": capture, "allow_nonfinite": allow_nonfinite}
            options |= {"trace": True, "predictions": predictions, "truncate": truncate}
            return self.generate(text, **options, **settings)[1]
        reading = self.read(text, target, truncate=truncate)
        reading = reading if target is not None else self.with_source_as_target(reading)
        trace = self.trace_tokens(reading, capture, allow_nonfinite=allow_nonfinite)
        return predicted(self, reading, trace, predictions, allow_nonfinite=allow_nonfinite)

    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize sources, and targets if given; see `Pretrained.read`."""
        source = self._sources(text, None, None, truncate)
        if text_b is None:
            return source
        encoded = self._writer().encode(text_b, max_length=self.limit, truncate=truncate)
        if len(encoded.input_ids) != len(source.metadata):
            raise InputError(
                f"{len(source.metadata)} sources and {len(encoded.input_ids)} targets\n"
                "give every source its target"
            )
        ids, start = encoded.input_ids, self.config.decoder_start_token_id
        read = np.insert(ids[:, :-1], 0, start, axis=1)
        return self._paired(source, read, ids, encoded.attention_mask)

    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer, of the side that has more of them."""
        c = self.config
        layers = max(c.encoder_layers, c.decoder_layers)
        return layers, max(c.encoder_attention_heads, c.decoder_attention_heads)

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Arguments of a call that mask heads, and of how many layers and heads each does."""
        c = self.config
        if isinstance(c, RnnConfig):
            return {}
        encoder = (c.encoder_layers, c.encoder_attention_heads)
        decoder = (c.decoder_layers, c.decoder_attention_heads)
        return {
            "head_mask": encoder,
            "decoder_head_mask": decoder,
            "cross_attn_head_mask": decoder,
        }

    def decoding(self, source: int, prompt: int, settings: Mapping[str, Any]) -> Decoding:
        """The settings of generation, with the checkpoint's and the defaults in place of others.

        Args:
            source: Length of the longest source, on which the default of the longest text depends.
            prompt: Length of what every text begins with.
            settings: Fields of `Decoding`.

        Raises:
            InputError: For a setting that there is not, or more tokens than there is room for, or
                a model that writes no text.
        """
        c = self.config
        if not self.writes:
            raise InputError(
                f"the model {self.name!r} is a {c.architectures[0]}, which writes no text\n"
                "name a model for generation, or load this one with a head that writes"
            )
        room = self.limit - prompt
        metadata: dict[str, Any] = {
            "max_new_tokens": model_inputs.bucket(source + 50, room),
            "eos": (c.eos_token_id,),
            "pad": c.pad_token_id,
            "forced_first": c.forced_bos_token_id,
            "forced_last": c.forced_eos_token_id,
        }
        return settled(metadata, self.generation, settings, prompt, room)

    def positions(self, side: str = "encoder") -> Float[np.ndarray, "P E"]:
        """The table of positions, sinusoidal or learned, for `flaxattn.plot_positions`.

        Args:
            side: "encoder" or "decoder", which learn a table each.
        """
        c = self.config
        if isinstance(c, RnnConfig):
            raise InputError("A recurrent model has no table of positions.\nName a Transformer.")
        if isinstance(c, T5Config):
            raise InputError(
                "A T5 has no table of positions: its scores have a bias by distance.\n"
                "Name a BART or a Marian."
            )
        if c.positions == "sinusoidal":
            return positions.sinusoids(c.max_position_embeddings, c.d_model)
        table = positions.learned(self.params, f"{side}_inputs/position")
        if table is None:
            raise InputError(f'There is no {side!r} with positions.\nUse "encoder" or "decoder".')
        return table[positions.UNUSED_ROWS :]

    def _beside(self) -> dict[str, Any]:
        found = super()._beside()
        return found | {
            "target_tokenizer": self.target_tokenizer,
            "further": found["further"] | decoding_settings.files(self.generation),
        }

    def _writer(self) -> Reader:
        """The tokenizer of the target side."""
        return self._reader() if self.target_tokenizer is None else self.target_tokenizer

    def _size(self) -> str:
        c = self.config
        return (
            f"{c.encoder_layers} + {c.decoder_layers} layers, "
            f"{c.encoder_attention_heads} and {c.decoder_attention_heads} heads"
        )

    def _reread(
        self, source: TokenizedTexts, ids: Int[np.ndarray, "B T"], prompt: int, decoding: Decoding
    ) -> TokenizedTexts:
        """Sources with the targets that were written for them."""
        ids = shortened(ids, prompt, decoding)
        mask = (np.arange(ids.shape[1] - 1)[None] < lengths(ids, prompt, decoding)[:, None] - 1) + 0
        return self._paired(source, ids[:, :-1], ids[:, 1:], mask)

    def _paired(
        self,
        source: TokenizedTexts,
        read: Int[np.ndarray, "B T"],
        wrote: Int[np.ndarray, "B T"],
        mask: Int[np.ndarray, "B T"],
    ) -> TokenizedTexts:
        """Sources with targets: the decoder reads `read`, and writes `wrote`."""
        trace = dataclasses.replace(
            source.metadata,
            decoder_tokens=tokens_of(self.target_reader, read),
            **self._wrote(wrote, mask),
            decoder_mask=mask == 1,
            decoder_special=np.isin(read, self._added()) | (mask == 0),
        )
        target = {"decoder_input_ids": read, "decoder_attention_mask": mask}
        return TokenizedTexts({**source.given, **target}, trace, wrote)

    def _wrote(self, ids: Int[np.ndarray, "B T"], mask: Int[np.ndarray, "B T"]) -> dict[str, Any]:
        """Return the generated tokens, and the word that each belongs to."""
        reader = self.target_reader
        added = np.isin(ids, self._added()) | (mask == 0)

        def decode(row: Sequence[int]) -> str:
            return " ".join(map(str, row)) if reader is None else reader.decode(row)

        rows = zip(ids.tolist(), added, strict=True)
        words = [words_written(row, extra, decode) for row, extra in rows]
        return {"written": tokens_of(reader, ids), "decoder_words": words}

    def _added(self) -> list[int]:
        """Ids that stand for no text of a target."""
        c = self.config
        ids = (c.pad_token_id, c.bos_token_id, c.eos_token_id, c.decoder_start_token_id)
        forced = (c.forced_bos_token_id, c.forced_eos_token_id)
        return [i for i in (*ids, *forced) if i is not None]

    def _target(
        self, ids: Any, mask: Any, labels: Any, source: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Checked arguments of the decoder."""
        c = self.config
        meaning = (c.target_size, "size of the target vocabulary")
        if ids is None and labels is not None:
            ids = model_inputs.whole("labels", labels)
            ids = np.where(ids == IGNORED, c.pad_token_id, ids)
            model_inputs.checked({"labels": ids}, {"labels": meaning}, c.max_position_embeddings)
            ids = shifted_right(ids, c)
        if ids is None:
            ids = shifted_right(source["input_ids"], c)
        ranges = {"decoder_input_ids": meaning, "decoder_attention_mask": model_inputs.MASK}
        given = {"decoder_input_ids": ids, "decoder_attention_mask": mask}
        arrays = model_inputs.checked(given, ranges, c.max_position_embeddings)
        count, expected = len(arrays["decoder_input_ids"]), len(source["input_ids"])
        if count != expected:
            raise InputError(
                f"decoder_input_ids: expected {expected} sequences as input_ids has, received "
                f"{count}.\nEvery source needs its target."
            )
        ones = np.ones(arrays["decoder_input_ids"].shape, np.int32)
        return {"decoder_attention_mask": ones} | arrays


Row = Int[np.ndarray, " S"]
_TOGETHER = 1024  # texts per call of the tokenizer


class Hypothesis(NamedTuple):
    """Generated ids of a source, special ones included, and their log-probability.

    With beams the latter is under the length penalty.
    """

    ids: Int[np.ndarray, " T"]
    score: float


class Translation(NamedTuple):
    """Translation of a text by a model.

    Attributes:
        texts: Translations, the best first.
        scores: Log-probability of each, with beams under the length penalty.
    """

    texts: tuple[str, ...]
    scores: tuple[float, ...]


def translate(
    model: PretrainedSeq2Seq,
    texts: Sequence[str],
    *,
    batch: int = 32,
    truncate: bool = False,
    on_done: Callable[[int], object] = lambda count: None,
    **settings: Any,
) -> list[Translation]:
    """Translate texts."""
    count = settings.get("num_return_sequences", 1)
    found = [Translation(("",) * count, (0.0,) * count) for _ in texts]
    filled = [number for number, text in enumerate(texts) if text.strip()]
    on_done(len(texts) - len(filled))
    rows = encode(model, [texts[number] for number in filled], truncate, filled)
    generated = generate_targets(model, rows, batch=batch, on_done=on_done, **settings)
    for number, hypotheses in zip(filled, generated, strict=True):
        words = tuple(target_tokenizer(model).decode(h.ids.tolist()) for h in hypotheses)
        found[number] = Translation(words, tuple(h.score for h in hypotheses))
    return found


def encode(
    model: PretrainedSeq2Seq,
    texts: Sequence[str],
    truncate: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[Row]:
    """The ids that the encoder reads of each text."""
    limit, rows = model.config.max_position_embeddings, []
    for start in range(0, len(texts), _TOGETHER):
        some = texts[start : start + _TOGETHER]
        named = range(start, start + len(some)) if numbers is None else numbers[start:]
        try:
            encoded = _reader(model).encode(some, max_length=limit, truncate=True)
        except InputError as error:
            raise _which(model, some, named) or error from error
        for number, cut in zip(named, encoded.truncated, strict=False):
            if cut and not truncate:
                raise SourceError(
                    number,
                    f"has {limit + cut} tokens, this model reads at most {limit}\n"
                    "shorten it, or pass truncate=True to cut it at the limit",
                )
        real = encoded.attention_mask == 1
        rows += [ids[mask] for ids, mask in zip(encoded.input_ids, real, strict=True)]
    return rows


def _which(
    model: PretrainedSeq2Seq, texts: Sequence[str], numbers: Sequence[int]
) -> "SourceError | None":
    """The first text that the tokenizer refuses by itself."""
    for number, text in zip(numbers, texts, strict=False):
        try:
            _reader(model).encode([text], truncate=True)
        except InputError as error:
            return SourceError(number, str(error).removeprefix("text 0 "))
    return None


class SourceError(InputError):
    """A source that the model cannot read.

    Attributes:
        number: Number of the sentence, from 0.
        problem: What is wrong with it, a sentence without its subject.
    """

    def __init__(self, number: int, problem: str) -> None:
        self.number, self.problem = number, problem
        super().__init__(f"text {number} {problem}")


def generate_targets(
    model: PretrainedSeq2Seq,
    rows: Sequence[Row],
    *,
    batch: int = 32,
    on_done: Callable[[int], object] = lambda count: None,
    **settings: Any,
) -> list[list[Hypothesis]]:
    """Write a target for each source of ids.

    Sources are sorted by length; batches have one number of rows and lengths of `inputs.bucket`, so
    that few programs are compiled. A source's result does not depend on its batch.
    """
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    found: list[list[Hypothesis]] = [[] for _ in rows]
    for start in range(0, len(order), batch):
        members = order[start : start + batch]
        filled = [rows[number] for number in members] + [rows[members[-1]]] * (batch - len(members))
        width = model_inputs.bucket(len(filled[-1]), model.config.max_position_embeddings)
        ids, scores = model.generate(**_padded(filled, width, model), scores=True, **settings)
        each = len(ids) // batch
        for place, number in enumerate(members):
            mine = range(place * each, (place + 1) * each)
            found[number] = [Hypothesis(ids[i], float(scores[i])) for i in mine]
        on_done(len(members))
    return found


def traced(
    model: PretrainedSeq2Seq,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    batch: int = 32,
    truncate: bool = False,
    on_done: Callable[[int], object] = lambda count: None,
    **settings: Any,
) -> list[tuple[str, Trace]]:
    """Translations with their attention, one trace per text."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    found: list[tuple[str, Trace] | None] = [None] * len(texts)
    for start in range(0, len(order), batch):
        members = order[start : start + batch]
        some = [texts[number] for number in members]
        if targets is None:
            generated, trace = model.generate(some, trace=True, truncate=truncate, **settings)
        else:
            generated = [targets[number] for number in members]
            trace = model.trace(some, generated, truncate=truncate, **settings)
        for place, number in enumerate(members):
            found[number] = generated[place], trace[place]
        on_done(len(members))
    return [one for one in found if one is not None]


def target_tokenizer(model: PretrainedSeq2Seq) -> Reader:
    """The tokenizer of the target language, which may be that of the source."""
    return _reader(model) if model.target_tokenizer is None else model.target_tokenizer


def _reader(model: PretrainedSeq2Seq) -> Reader:
    if model.tokenizer is None:
        raise InputError(
            f"the model {model.name!r} came without a tokenizer, so it cannot read text\n"
            "put the tokenizer's files into its directory"
        )
    return model.tokenizer


def _padded(rows: Sequence[Row], width: int, model: PretrainedSeq2Seq) -> dict[str, np.ndarray]:
    ids = np.full((len(rows), width), model.config.pad_token_id, np.int32)
    mask = np.zeros((len(rows), width), np.int32)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}
