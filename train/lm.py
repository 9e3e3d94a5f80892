# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Train a decoder to write like some text: from files to a model that opens.

    flaxattn train lm --data book.txt --out RUN --set architecture=llama
    flaxattn train lm --data book.txt --out RUN --model tiny-gpt2

Everything happens in one go: documents are cut and packed into rows, a vocabulary is learnt for a
new model, the model is trained with `flaxattn.train.loop`, judged on held-out documents by
perplexity and bits per byte, and written to RUN/model as a Hugging Face directory.
RUN/samples.jsonl has texts that it generated during training. A killed run continues where its last
checkpoint stands when the same command is given again.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int, Int32

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.pretrained import decoding_settings, model_directory
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import train_byte_bpe
from flaxattn.train import loop
from flaxattn.train.corpus import (
    TokenCorpus,
    build_corpus,
    check_files,
    count_tokens,
    learn_once,
    tokenizer_digest,
    unigram_loss,
)
from flaxattn.train.lm_model import (
    LanguageModelConfig,
    LanguageModelEvaluation,
    Samples,
    TextBatch,
    TokenRows,
    batch_totals,
    begin_of_text,
    build_module,
    choose_config,
    cut_chunks,
    initial_parameters,
    load_base,
    loss_function,
    read_plain,
)
from flaxattn.train.optimizers import optimizer
from flaxattn.train.recipe import GPT2, LanguageModelRecipe
from flaxattn.train.report import decoder_flops
from flaxattn.train.results import best_metrics, parameters_digest, run_summary, write_results
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import Params, check_rows, gather, make_mesh


class PreparedText(NamedTuple):
    """Data, model and starting point of a run."""

    training: TokenCorpus
    heldout: TokenCorpus
    tokenizer: Tokenizer
    config: LanguageModelConfig
    base: PretrainedDecoder | None
    identity: Mapping[str, str]


def train_lm(
    files: Sequence[Path],
    folder: RunFolder,
    recipe: LanguageModelRecipe,
    heldout_files: Sequence[Path] = (),
    *,
    tokenizer: Path | None = None,
    command: str = "flaxattn train lm",
) -> dict[str, Any]:
    """Run everything from text files to a Hugging Face directory.

    Args:
        files: Text, JSONL or Parquet; the recipe's `documents` says how text is cut.
        folder: Folder of the run; gets `tokenizer/`, `corpus/`, metrics, samples, checkpoints, and
            at the end `model/`, `curves.png` and `summary.json`.
        recipe: Every number of the run, and the model to continue from.
        heldout_files: Text to judge by; default a part of the documents of `files`.
        tokenizer: Directory of an existing one; None for the model's own, or to learn one.
        command: Command that was typed, for the model card.

    Returns:
        The content of `summary.json`.

    Raises:
        InputError: The text is missing, unreadable or too little, the tokenizer does not fit the
            model, or settings contradict it; the loss became NaN.
        CheckpointError: If there is no such model, or what an earlier run left does not fit.
        StopRequestedError: SIGTERM came; the state is saved.
    """
    check_files([*files, *heldout_files] if files else ())
    with folder.held():
        bad = BadRows(recipe.on_error, folder.path)
        data = prepare(files, heldout_files, folder, recipe, bad, tokenizer)
        end = data.config.end_ids[0]
        chunks = cut_chunks(data.training, recipe.block, recipe.block)
        rows = TokenRows(data.training, chunks, recipe.block, recipe.pack, end)
        recipe = recipe.for_rows(len(rows), data.config.hidden_size)
        folder.claim(recipe, data.identity)
        module = build_module(data.config, recipe)
        start = initial_parameters(module, recipe.seed) if data.base is None else data.base.params
        task = build_task(module, recipe, data, rows, folder.path / "samples.jsonl")
        task = task._replace(update_bytes=decoder_update_bytes(module.config, recipe, start))
        done = loop.run(task, start, recipe, folder)
        trained = gather(done.state.params)
        size = data.tokenizer.vocab_size
        summary = {
            **run_summary(done, trained, recipe, data.identity, folder),
            "training_tokens": int(count_tokens(data.training, size).sum()),
            "heldout_tokens": int(count_tokens(data.heldout, size).sum()),
            "rows": data.training.index["rows"],
            "unigram_loss": unigram_loss(data.training, data.heldout, size),
            "rows_of_tokens": len(rows),
            "filled": round(float(chunks.size.sum()) / (len(rows) * recipe.block), 4),
        }
        summary["result"] = best_metrics(summary)
        if jax.process_index() == 0:
            model_directory.save(
                folder.path / "model",
                module,
                trained,
                dtype=recipe.save_dtype,
                tokenizer=data.tokenizer,
                further=decoding_settings.files(data.base and data.base.generation),
            )
            kind = "GPT-2" if recipe.architecture == GPT2 else f"decoder ({recipe.architecture})"
            fine_tuned = f"{recipe.model} fine-tuned on text" if recipe.model else ""
            title = fine_tuned or f"A {kind} trained on text"
            write_results(folder, title, command, recipe, summary)
    return summary


def prepare(
    files: Sequence[Path],
    heldout_files: Sequence[Path],
    folder: RunFolder,
    recipe: LanguageModelRecipe,
    bad: BadRows,
    given: Path | None = None,
) -> PreparedText:
    """Load the model to continue from, find or learn a tokenizer, and tokenise the text once."""
    base = load_base(recipe)
    tokenizer = _tokenizer(files, folder, recipe, given, base)
    config = choose_config(recipe, tokenizer, base)
    rebuild = folder.fresh or folder.allow_changes
    begin = begin_of_text(tokenizer)
    begin = begin if begin == config.bos_token_id else None

    def store(name: str, files: Sequence[Path], fewest: int) -> TokenCorpus:
        with ProgressReporter() as progress:
            progress("reading text", 0)
            return build_corpus(
                files,
                tokenizer,
                recipe,
                folder.path / name,
                read=read_plain,
                fewest=fewest,
                begin=begin,
                bad=bad,
                rebuild=rebuild,
                note=functools.partial(progress, "reading text", 0),
            )

    if heldout_files:
        training, heldout = store("corpus", files, 1), store("heldout", heldout_files, 1)
    else:
        training, heldout = store("corpus", files, 4).split(recipe.heldout_fraction)
    tokens = int(count_tokens(training, tokenizer.vocab_size).sum())
    if tokens < recipe.block:
        raise InputError(
            f"too little text for one block: {tokens} tokens to learn from\n"
            f"a row takes block {recipe.block} of them\n"
            "add text, or lower block"
        )
    identity = {
        "data": training.digest,
        "heldout_data": heldout.digest,
        "tokenizer": tokenizer_digest(tokenizer),
        "start": "" if base is None else parameters_digest(base.params),
    }
    return PreparedText(training, heldout, tokenizer, config, base, identity)


def build_task(
    module: DecoderLM,
    recipe: LanguageModelRecipe,
    data: PreparedText,
    rows: TokenRows,
    samples: Path,
) -> loop.Task:
    """Build the task of the loop: loss, optimiser, batches and evaluation."""
    loss, block = loss_function(module), recipe.block
    chunks = cut_chunks(data.heldout, block, recipe.step_of_windows)
    heldout = TokenRows(
        data.heldout,
        chunks.first(recipe.evaluate_tokens),
        block,
        recipe.pack,
        data.config.end_ids[0],
    )
    writing = None
    if recipe.sample_tokens:
        writing = Samples(module, data.tokenizer, recipe, data.heldout, samples)

    def flops(batch: TextBatch) -> float:
        return decoder_flops(module.config, *batch.input_ids.shape)

    repeats = None
    if recipe.repeated_rows:
        size = data.tokenizer.vocab_size
        repeats = RepeatedRows(data.training, recipe, size, data.config.end_ids[0])
    mesh = make_mesh(recipe)
    check_rows(recipe.batch_size, mesh, recipe.accumulate)
    return loop.Task(
        loss=loss,
        totals=batch_totals,
        optimizer=optimizer(recipe),
        feed=TextFeed(rows, recipe, jax.process_index(), jax.process_count(), repeats=repeats),
        evaluate=LanguageModelEvaluation(loss, heldout, data.tokenizer, recipe, mesh, writing),
        watch="nll",
        keep_best=True,
        flops=flops,
    )


def _tokenizer(
    files: Sequence[Path],
    folder: RunFolder,
    recipe: LanguageModelRecipe,
    given: Path | None,
    base: PretrainedDecoder | None,
) -> Tokenizer:
    if given is not None:
        return Tokenizer.from_dir(given)
    if base is not None:
        if not isinstance(base.tokenizer, Tokenizer):
            raise InputError(
                f"the model {recipe.model!r} came without a tokenizer, so it cannot read text\n"
                "expected tokenizer.json in its directory\n"
                "put it there, or name the tokenizer's directory with --tokenizer"
            )
        return base.tokenizer
    bad = BadRows("fail" if recipe.on_error == "fail" else "skip")
    texts = (text for document in read_plain(files, recipe, bad) for text in document)
    return learn_once(folder, lambda: train_byte_bpe(texts, recipe.vocab_size, recipe.block))


_STREAM = 0x5E9EA7  # sets these draws apart from those of the order of rows, which have one seed


class RepeatedText(NamedTuple):
    """One span, twice.

    Attributes:
        ids: Its tokens; may begin with the end of a text.
        labels: The token that follows each; 0 after the last one.
        counted: 1 where a prediction counts.
    """

    ids: Int32[np.ndarray, " m"]
    labels: Int32[np.ndarray, " m"]
    counted: Float32[np.ndarray, " m"]


class RepeatedRows:
    """Rows by number: each depends on the seed, its number and the corpus alone."""

    def __init__(
        self, corpus: TokenCorpus, recipe: LanguageModelRecipe, vocabulary: int, end_id: int
    ) -> None:
        """Take the text that spans and frequencies come from."""
        starts = corpus.sentences[corpus.documents]
        self._begins, self._ends = starts[corpus.members], starts[corpus.members + 1]
        self._before = np.cumsum(self._ends - self._begins) - (self._ends - self._begins)
        self._total = int((self._ends - self._begins).sum())
        self._tokens, self._recipe = corpus.tokens, recipe
        self._known = np.delete(np.arange(vocabulary), end_id)
        self._end = end_id

    def __getitem__(self, number: int) -> TextBatch:
        """The row of a number, from 0, as a batch without B; there is no last one."""
        random = np.random.default_rng([self._recipe.seed, _STREAM, number])
        shortest, longest = self._recipe.repeat_spans
        block = self._recipe.block
        ids, mask, places, segments, labels = np.zeros((5, block), np.int32)
        counted = np.zeros(block, np.float32)
        place, text = 0, 0
        while (room := (block - place) // 2) >= shortest:
            length = int(random.integers(shortest, min(longest, room) + 1))
            one = self._text(random, length, 2 * length < block - place)
            stop, text = place + len(one.ids), text + 1
            ids[place:stop], labels[place:stop], counted[place:stop] = one
            places[place:stop], segments[place:stop] = np.arange(len(one.ids)), text
            mask[place:stop], place = 1, stop
        return TextBatch(ids, mask, places, segments, labels, counted)

    def _text(self, random: np.random.Generator, length: int, may_begin: bool) -> RepeatedText:
        """A span of at most `length` tokens, twice; half of those that have room begin a text."""
        kind = KINDS[random.choice(len(KINDS), p=self._recipe.repeat_mix)]
        span = self._span(random, kind, length)
        begin = int(may_begin and random.random() < 0.5)
        ids = np.concatenate([np.full(begin, self._end), span, span]).astype(np.int32)
        target = np.arange(1, len(ids) + 1)
        second = begin + len(span)
        counted = (target > second) & (target < len(ids))
        if kind == PASSAGE:
            counted |= (target > begin) & (target < second)
        return RepeatedText(ids, np.append(ids[1:], 0), counted.astype(np.float32))

    def _span(
        self, random: np.random.Generator, kind: str, length: int
    ) -> Int[np.ndarray, " length"]:
        """The tokens of a span; a passage is shorter where its document is."""
        if kind == UNIFORM:
            return random.choice(self._known, length)
        if kind == FREQUENT:
            return self._tokens[self._places(random.integers(self._total, size=length))[0]]
        (start,), (document,) = self._places(random.integers(self._total, size=1))
        start = max(self._begins[document], min(start, self._ends[document] - length))
        return self._tokens[start : min(start + length, self._ends[document])]

    def _places(
        self, numbers: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Find the n-th tokens of this side of the corpus, and the documents that they are in."""
        documents = np.searchsorted(self._before, numbers, side="right") - 1
        return self._begins[documents] + numbers - self._before[documents], documents


class TextFeed:
    """Batches by number, as `loop.Feed` wants them.

    Rows of text are shuffled anew in every epoch, by (seed, epoch) alone; a batch may hold the last
    rows of one and the first of the next. Behind them stand the rows of repeated spans, if the
    recipe has any.
    """

    def __init__(
        self,
        rows: TokenRows,
        recipe: LanguageModelRecipe,
        part: int = 0,
        parts: int = 1,
        *,
        repeats: RepeatedRows | None = None,
    ) -> None:
        """Take the rows of all hosts, of which this one gets a part of each batch."""
        self._rows, self._recipe, self._part, self._parts = rows, recipe, part, parts
        self._repeats = repeats
        self._orders: dict[int, Int[np.ndarray, " R"]] = {}

    def __len__(self) -> int:
        return self._recipe.steps

    def __getitem__(self, step: int) -> TextBatch:
        size, text = self._recipe.batch_size, self._recipe.text_rows
        first, stop = self._part * size // self._parts, (self._part + 1) * size // self._parts
        batch = self._rows.batch(self._numbers(step)[first:stop], stop - first)
        if self._repeats is not None:
            begin = step * self._recipe.repeated_rows
            for place in range(max(first, text), stop):
                row = self._repeats[begin + place - text]
                for column, values in zip(batch, row, strict=True):
                    np.asarray(column)[place - first] = values
        return batch

    def names(self, step: int) -> list[str]:
        """Document and tokens of every chunk of the batch, and numbers of its repeated rows."""
        count = self._recipe.repeated_rows
        repeats = [f"repeated row {n}" for n in range(step * count, (step + 1) * count)]
        return self._rows.names(self._numbers(step)) + repeats

    def _numbers(self, step: int) -> Int[np.ndarray, " B"]:
        size = self._recipe.text_rows
        epochs, places = np.divmod(np.arange(step * size, (step + 1) * size), len(self._rows))
        known = self._orders
        self._orders = {e: known[e] if e in known else self._order(e) for e in set(epochs.tolist())}
        found = [self._orders[epoch][place] for epoch, place in zip(epochs, places, strict=True)]
        return np.array(found)

    def _order(self, epoch: int) -> Int[np.ndarray, " R"]:
        return np.random.default_rng([self._recipe.seed, epoch]).permutation(len(self._rows))


_FLOAT = 4
_OF_PARAMETERS = 5  # gradients, a checkpoint with two moments, and the copy that writes samples
_OF_LOGITS = 3  # scores, their logarithms and their gradient, all float32
_OF_MAPS = 2  # weights of attention, and those that dropout left
_OF_STATES = 4  # what a layer keeps at the width of the model: inputs and outputs of its parts
_OF_QUERIES = 2  # queries, and what their heads put out
_OF_KEYS = 2  # keys and values


def decoder_update_bytes(
    config: GPT2Config | DecoderConfig, recipe: LanguageModelRecipe, params: Params
) -> int:
    """Bytes of an update, beside the parameters and moments that are there before it."""
    rows, length = -(-recipe.batch_size // recipe.accumulate), recipe.block
    item = jnp.dtype(recipe.dtype).itemsize
    maps = _OF_MAPS * config.num_attention_heads * length * length
    inner = (4 if config.gated else 2) * config.inner_size  # before and after the activation
    heads = _OF_QUERIES * config.query_size + _OF_KEYS * config.key_size
    states = length * (_OF_STATES * config.hidden_size + heads + inner)
    layers = 1 if recipe.remat else config.num_hidden_layers
    kept = config.num_hidden_layers * length * config.hidden_size  # the input of every layer
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    logits = _OF_LOGITS * _FLOAT * rows * length * config.vocab_size
    return (
        logits
        + item * rows * (layers * (maps + states) + kept)
        + _OF_PARAMETERS * _FLOAT * parameters
    )


UNIFORM, FREQUENT, PASSAGE = KINDS = ("uniform", "frequent", "passage")
"""Contents of spans, in the order of the recipe's `repeat_mix`."""
