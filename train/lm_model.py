# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The decoder of a run, new or from a checkpoint: its rows of tokens, loss, and evaluation.

Documents are cut and packed into rows for next-word prediction, and dealt out by number. Documents
share rows and do not see each other: each has a segment of its own and counts its positions from 0.
Each token has a label, the token that it has to predict: for the last token of a document the end
of the text, for the last token of a chunk the token that follows it. No token predicts anything of
another document.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float32, Int, Int32, Int64
from tokenizers import decoders

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import CheckpointError, InputError
from flaxattn.files import write_text
from flaxattn.kernels.contract import NOTHING
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.decoder_types import Setting, switches
from flaxattn.models.outputs import ModelOutput
from flaxattn.pretrained import hub, model_directory
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import END
from flaxattn.train import loop
from flaxattn.train.corpus import TokenCorpus, read_texts
from flaxattn.train.objectives import Metrics, Totals, token_loss
from flaxattn.train.pretraining_data import AnyArray, packing_of, places_of, row_table, spread
from flaxattn.train.recipe import GPT2, LanguageModelRecipe
from flaxattn.train.report import RowChain, read_metrics
from flaxattn.train.state import LossFunction, Params, gather, place_batch

_WINDOW = 2**15  # chunks that rows are made of together


class TextBatch(NamedTuple):
    """B rows of S tokens; a row holds documents, or chunks of them, one after the other.

    Attributes:
        input_ids: Tokens.
        attention_mask: 1 on tokens, 0 on padding.
        position_ids: Place within the chunk.
        segment_ids: Number of the chunk in its row, from 1; 0 on padding.
        labels: The token that follows each in its document; after the last one the end of the text.
        label_mask: 1 where a prediction counts.
    """

    input_ids: Int32[AnyArray, "B S"]
    attention_mask: Int32[AnyArray, "B S"]
    position_ids: Int32[AnyArray, "B S"]
    segment_ids: Int32[AnyArray, "B S"]
    labels: Int32[AnyArray, "B S"]
    label_mask: Float32[AnyArray, "B S"]


class Chunks(NamedTuple):
    """n stretches of tokens of a corpus, each of one document.

    Attributes:
        start: First token in the corpus.
        size: Number of tokens.
        skipped: Number of first tokens that only give context: their predictions count elsewhere.
        last: Whether the document ends with it.
    """

    start: Int64[np.ndarray, " n"]
    size: Int64[np.ndarray, " n"]
    skipped: Int64[np.ndarray, " n"]
    last: Bool[np.ndarray, " n"]

    def first(self, tokens: int) -> "Chunks":
        """The first chunks, as many as it takes for so many predictions; 0 for all."""
        counted = np.cumsum(self.size - self.skipped)
        stop = int(np.searchsorted(counted, tokens)) + 1 if tokens else len(counted)
        return Chunks(*(column[:stop] for column in self))


def read_plain(
    files: Sequence[Path], recipe: LanguageModelRecipe, bad: BadRows
) -> Iterator[list[str]]:
    """Documents as they are to be learnt, each a list of one text."""
    separator = "\n" if recipe.reflow else "\n\n"
    for text in read_texts(files, recipe, bad, as_written=not recipe.reflow):
        if text:
            yield [separator.join(text)]


def cut_chunks(corpus: TokenCorpus, block: int, stride: int) -> Chunks:
    """Windows of documents that predict each token after the first of a document exactly once."""
    starts = corpus.sentences[corpus.documents]
    begin, end = starts[corpus.members], starts[corpus.members + 1]
    length = end - begin
    windows = 1 + np.maximum(0, -((block - length) // stride))
    number = np.arange(windows.sum()) - np.repeat(np.cumsum(windows) - windows, windows)
    offset = number * stride
    left = np.repeat(length, windows) - offset
    return Chunks(
        start=np.repeat(begin, windows) + offset,
        size=np.minimum(block, left),
        skipped=np.where(number > 0, block - stride, 0),
        last=left <= block,
    )


class TokenRows:
    """Chunks of a corpus in rows of S tokens, any of which come as a batch.

    Memory: 48 bytes per chunk; the tokens stay on disk.
    """

    def __init__(
        self, corpus: TokenCorpus, chunks: Chunks, block: int, most: int, end_id: int
    ) -> None:
        """Pack."""
        self.block, self.chunks = block, chunks
        self._corpus, self._most, self._end = corpus, most, end_id
        order, counts = [], [np.zeros(1, np.int64)]
        for first in range(0, len(chunks.size), _WINDOW):
            table = row_table(chunks.size[first : first + _WINDOW], block, most)
            order.append(table[table >= 0] + first)
            counts.append((table >= 0).sum(1))
        self._order, self._firsts = np.concatenate(order), np.cumsum(np.concatenate(counts))

    def __len__(self) -> int:
        return len(self._firsts) - 1

    def batch(self, numbers: Int[np.ndarray, " b"], count: int | None = None) -> TextBatch:
        """Some rows."""
        rows = len(numbers) if count is None else count
        row, number, chunk = self._of(numbers)
        found = Chunks(*(column[chunk] for column in self.chunks))
        sizes, place = found.size.astype(np.int32), np.arange(self.block)
        places = places_of(row, number, sizes)
        index = np.minimum(found.start[:, None] + place, len(self._corpus.tokens) - 1)
        ids = self._corpus.tokens[index].astype(np.int32)
        after = np.minimum(found.start + found.size, len(self._corpus.tokens) - 1)
        labels = np.roll(ids, -1, axis=1)
        closing = np.where(found.last, self._end, self._corpus.tokens[after])
        labels[np.arange(len(sizes)), sizes - 1] = closing
        scored = (place >= found.skipped[:, None]).astype(np.int32)
        packing = packing_of(sizes, places, (rows, self.block, self._most))
        ids, labels, scored = (spread(x, sizes, places, rows) for x in (ids, labels, scored))
        return TextBatch(
            ids,
            (np.asarray(packing.segment_ids) > 0).astype(np.int32),
            packing.position_ids,
            packing.segment_ids,
            labels,
            scored.astype(np.float32),
        )

    def names(self, numbers: Int[np.ndarray, " b"]) -> list[str]:
        """Sources of some rows, for a person to find them."""
        chunk = self._of(numbers)[2]
        starts = self._corpus.sentences[self._corpus.documents]
        found = []
        for start, size in zip(self.chunks.start[chunk], self.chunks.size[chunk], strict=True):
            document = int(np.searchsorted(starts, start, side="right")) - 1
            first = start - starts[document]
            found.append(f"document {document}, tokens {first} to {first + size - 1}")
        return found

    def _of(
        self, numbers: Int[np.ndarray, " b"]
    ) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Row, number in the row, and number of each chunk of some rows."""
        firsts = self._firsts[numbers]
        counts = self._firsts[np.asarray(numbers) + 1] - firsts
        row = np.repeat(np.arange(len(numbers)), counts)
        number = np.arange(len(row)) - np.searchsorted(row, row)
        return row, number, self._order[firsts[row] + number]


def bytes_per_token(tokenizer: Tokenizer) -> Int64[np.ndarray, " V"]:
    """Number of UTF-8 bytes of each token of a vocabulary; special ones have none.

    Exact for byte-level chunks; of other tokenizers, what decoding each chunk by itself gives.
    """
    backend = tokenizer.backend
    added = backend.get_added_tokens_decoder()
    exact = isinstance(backend.decoder, decoders.ByteLevel)
    sizes = np.zeros(tokenizer.vocab_size, np.int64)
    for chunk, number in backend.get_vocab().items():
        if number in added:
            sizes[number] = 0 if added[number].special else len(chunk.encode())
        else:  # a byte-level chunk has a letter for each byte
            sizes[number] = len(chunk) if exact else len(backend.decode([number]).encode())
    return sizes


LanguageModelConfig = GPT2Config | DecoderConfig
_MULTIPLE = 8  # of the width of a feed-forward layer with a gate
_GPT2_DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop")
_DROPOUTS = ("attention_dropout", "residual_dropout", "embedding_dropout")
_ANY = "a"  # any text will do to see what a tokenizer puts around it
_RESIDUAL = ("attention/output/kernel", "feed_forward/down/kernel")  # what adds to the stream


def load_base(recipe: LanguageModelRecipe) -> PretrainedDecoder | None:
    """The model that a run continues from; None for a new one."""
    if not recipe.model:
        return None
    found = model_directory.read_config(hub.find(recipe.model))
    if not isinstance(found, LanguageModelConfig):
        raise InputError(
            f"recipe: model {recipe.model!r} is not a decoder, but a {found.architectures[0]}\n"
            "next-word prediction continues from a model that has learnt it\n"
            "name a decoder with --model, such as a GPT-2 or a Llama"
        )
    recipe.check_model(found)
    base = from_pretrained(recipe.model, head=found.language_model)
    assert isinstance(base, PretrainedDecoder)
    return base


def choose_config(
    recipe: LanguageModelRecipe, tokenizer: Tokenizer, base: PretrainedDecoder | None
) -> LanguageModelConfig:
    """The config of the model that is trained; it names the token that ends a text."""
    if base is None and recipe.architecture != GPT2:
        return new_config(recipe, tokenizer)
    if base is None:
        end = end_of_text(tokenizer)
        return GPT2Config(
            vocab_size=tokenizer.vocab_size,
            n_positions=recipe.block,
            n_embd=recipe.n_embd,
            n_layer=recipe.n_layer,
            n_head=recipe.n_head,
            embd_pdrop=recipe.dropout,
            attn_pdrop=recipe.dropout,
            resid_pdrop=recipe.dropout,
            initializer_range=recipe.initializer_range,
            bos_token_id=end,
            eos_token_id=end,
        )
    config = base.config
    if tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"the tokenizer does not fit the model {recipe.model!r}\n"
            f"it has {tokenizer.vocab_size} tokens, the model's embedding {config.vocab_size}\n"
            "leave --tokenizer out to use the model's own"
        )
    if not config.end_ids or config.end_ids[0] >= tokenizer.vocab_size:
        config = dataclasses.replace(config, eos_token_id=end_of_text(tokenizer))
    return config if recipe.model_dropout is None else _redropped(config, recipe.model_dropout)


def _redropped(config: LanguageModelConfig, dropout: float) -> LanguageModelConfig:
    """The config with another dropout wherever its type has a setting of it."""
    names = _GPT2_DROPOUTS
    if isinstance(config, DecoderConfig):
        row = switches(config.model_type)
        names = tuple(name for name in _DROPOUTS if isinstance(row.get(name), Setting))
    return dataclasses.replace(config, **dict.fromkeys(names, dropout))


def new_config(recipe: LanguageModelRecipe, tokenizer: Tokenizer) -> DecoderConfig:
    """The config of a new decoder with rotary positions.

    The feed-forward layer is 4 E wide, or 8/3 E where it has a gate, which makes about as many
    parameters (Shazeer 2020). Fields that the recipe does not set are those of its `architecture`.
    """
    kind, width = recipe.architecture, recipe.n_embd
    row, end, begin = switches(kind), end_of_text(tokenizer), begin_of_text(tokenizer)
    inner = -(-8 * width // (3 * _MULTIPLE)) * _MULTIPLE if row.get("gated", True) else 4 * width
    values = {
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": recipe.n_layer,
        "num_attention_heads": recipe.n_head,
        "num_key_value_heads": recipe.key_heads or recipe.n_head,
        "head_dim": width // recipe.n_head,
        "query_pre_attn_scalar": width // recipe.n_head,
        "max_position_embeddings": recipe.block,
        "initializer_range": recipe.initializer_range,
        "attention_dropout": recipe.dropout,
        "residual_dropout": recipe.dropout,
        "embedding_dropout": recipe.dropout,
        "bos_token_id": end if begin is None else begin,
        "eos_token_id": end,
        "pad_token_id": end,
    }
    named = {row[name].key: v for name, v in values.items() if isinstance(row.get(name), Setting)}
    config = DecoderConfig.from_hf({"model_type": kind, **named})
    rotated = int(config.head_size * config.rotary.partial_rotary_factor)
    if rotated % 2:
        raise InputError(
            f"recipe: n_embd {width} over n_head {recipe.n_head} does not fit architecture {kind}\n"
            f"it rotates pairs of dimensions, here {rotated} of {config.head_size} of each head\n"
            f"choose n_embd so that a head has a multiple of {_pair(config)} dimensions"
        )
    return config


def _pair(config: DecoderConfig) -> int:
    """Dimensions of a head of which one pair is rotated."""
    return round(2 / config.rotary.partial_rotary_factor)


def begin_of_text(tokenizer: Tokenizer) -> int | None:
    """Id of the token that the tokenizer puts before a text; None where it puts none."""
    (plain,) = tokenizer.ids([_ANY])
    first = int(tokenizer.encode(_ANY).input_ids[0, 0])
    return None if plain[:1] == [first] else first


def end_of_text(tokenizer: Tokenizer) -> int:
    """Id of the token that ends a text."""
    named = tokenizer.settings.get("eos_token") or END
    token = named["content"] if isinstance(named, dict) else named
    number = tokenizer.backend.token_to_id(token)
    if number is None:
        raise InputError(
            "the tokenizer has no end of a text\n"
            f"expected {token} among its {tokenizer.vocab_size} tokens\n"
            "name its eos_token in tokenizer_config.json, or leave --tokenizer out to learn one"
        )
    return number


def build_module(config: LanguageModelConfig, recipe: LanguageModelRecipe) -> DecoderLM:
    """The model; attention records nothing while it trains."""
    return DecoderLM(
        dataclasses.replace(config, architectures=(config.language_model,)),
        dtype=jnp.dtype(recipe.dtype),
        capture=NOTHING,
        remat=recipe.remat,
        unroll=recipe.unroll or 1,
    )


def initial_parameters(module: DecoderLM, seed: int) -> Params:
    """The parameters that a new model starts from, on the host.

    As published for GPT-2 (Radford et al. 2019 §2.3, and their code): normal, of
    `initializer_range` and half of it for learned positions, where what a layer adds to the
    residual stream is scaled by 1 / sqrt(2 L); biases 0; norms multiply by 1.
    """
    config, random = module.config, np.random.default_rng(seed)
    plus_one = config.norm == "rms_plus_one"
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]

    def draw(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        name = "/".join(str(part.key) for part in path)
        if name.endswith(("scale", "bias")):
            return np.full(leaf.shape, float(name.endswith("scale") and not plus_one), np.float32)
        scale = np.float32(config.initializer_range)
        if "positions" in name:
            scale /= 2
        if name.endswith(_RESIDUAL):
            scale /= np.float32(2 * config.num_hidden_layers) ** 0.5
        return np.float32(scale) * random.standard_normal(leaf.shape, np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def loss_function(module: DecoderLM) -> LossFunction:
    """Loss of the module on a batch, in the form the loop takes."""

    def loss(
        params: Params, batch: TextBatch, dropout: Array | None, totals: Totals
    ) -> tuple[Array, Metrics]:
        out = module.apply(
            {"params": params},
            batch.input_ids,
            batch.attention_mask,
            batch.position_ids,
            segment_ids=batch.segment_ids,
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )
        assert isinstance(out, ModelOutput)
        assert out.logits is not None
        return token_loss(out.logits, batch.labels, batch.label_mask, totals)

    return loss


def batch_totals(batch: TextBatch) -> Totals:
    """Denominators of a batch's losses."""
    return {"words": jnp.asarray(batch.label_mask, jnp.float32).sum()}


_BEGINNINGS, _WORDS = 3, 8  # held-out documents that are continued, and tokens given of each
_UNSEALED = b'{"step"'  # how a file of earlier versions begins
_LARGEST = 100.0  # nats; the exponential of more is no news


class LanguageModelEvaluation:
    """Metrics on held-out rows, as `loop.Task` wants them."""

    def __init__(
        self,
        loss: LossFunction,
        rows: TokenRows,
        tokenizer: Tokenizer,
        recipe: LanguageModelRecipe,
        mesh: Mesh,
        samples: "Samples | None" = None,
    ) -> None:
        """Prepare."""
        self._rows, self._recipe, self._mesh, self._samples = rows, recipe, mesh, samples
        self._bytes = bytes_per_token(tokenizer)
        one = {"words": jnp.ones(())}
        self._sums = jax.jit(lambda params, batch: loss(params, batch, None, one)[1])

    def __call__(self, params: Params, step: int) -> dict[str, float]:
        """Held-out metrics after `step` updates; samples are logged and kept."""
        sums, words, length = [], 0.0, 0
        size = self._recipe.batch_size
        part, parts = jax.process_index(), jax.process_count()
        mine = slice(part * size // parts, (part + 1) * size // parts)
        for first in range(0, len(self._rows), size):
            numbers = np.arange(first, min(first + size, len(self._rows)))
            batch = self._rows.batch(numbers, size)
            real = np.asarray(batch.label_mask) > 0
            words += int(real.sum())
            length += int(self._bytes[np.asarray(batch.labels)[real]].sum())
            local = type(batch)(*(array[mine] for array in batch))
            sums.append(self._sums(params, place_batch(local, self._mesh)))
        loop.fetch(sums)
        found = {name: sum(row[name] for row in sums) / words for name in sums[0]}
        if self._samples is not None:
            self._samples(params, step)
        return {
            **found,
            "perplexity": math.exp(min(found["nll"], _LARGEST)),
            "bits_per_byte": found["nll"] * words / math.log(2) / max(length, 1),
        }


class Samples:
    """Continuations of the same prompts at each evaluation, on standard error and in a file."""

    def __init__(
        self,
        module: DecoderLM,
        tokenizer: Tokenizer,
        recipe: LanguageModelRecipe,
        heldout: TokenCorpus,
        path: Path,
    ) -> None:
        """Prepare."""
        self._module, self._tokenizer, self._recipe, self._path = module, tokenizer, recipe, path
        self._prompts = list(recipe.prompts) or beginnings(heldout, tokenizer)
        longest = max(tokenizer.count(self._prompts), default=0)
        self._room = min(recipe.sample_tokens, module.config.longest - longest)
        if self._room < 1:
            raise InputError(
                "recipe: one of the prompts leaves no room for an answer\n"
                f"it has {longest} tokens, the model reads up to {module.config.longest}\n"
                "shorten it, or raise block"
            )

    def __call__(self, params: Params, step: int) -> list[str]:
        """Write, tell and keep a continuation of each prompt; the same for the same parameters."""
        local = jax.tree.map(jnp.asarray, gather(params))
        if jax.process_index():
            return []
        texts = self._write(local)
        rows = [
            {"prompt": prompt, "text": text, "step": step}
            for prompt, text in zip(self._prompts, texts, strict=True)
        ]
        chain = RowChain()
        lines = (chain.line(row, escape=False) for row in [*self._before(step), *rows])
        write_text(self._path, "".join(lines))
        for row in rows:
            message = " ".join(f"{row['prompt']}|{row['text']}".split())
            print(f"step {step}  {message}", file=sys.stderr, flush=True)
        return texts

    def _before(self, step: int) -> list[dict[str, Any]]:
        """Read what an earlier start of the run wrote, up to the present step."""
        if not step or not self._path.is_file():
            return []
        return [row for row in read_samples(self._path) if row["step"] < step]

    def _write(self, params: Params) -> list[str]:
        recipe, module = self._recipe, self._module
        model = PretrainedDecoder(module, params, self._tokenizer, module.config, "in training")
        settings: dict[str, Any] = {"max_new_tokens": self._room}
        if recipe.sample_temperature:
            settings |= {"do_sample": True, "temperature": recipe.sample_temperature}
        generated = model.generate(self._prompts, seed=recipe.seed, **settings)
        return [
            text.removeprefix(given) for text, given in zip(generated, self._prompts, strict=True)
        ]


def read_samples(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of samples: `prompt`, `text` and `step`."""
    with path.open("rb") as file:
        sealed = file.read(len(_UNSEALED)) != _UNSEALED
    if sealed:
        return read_metrics(path)
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return [{name: row[name] for name in ("prompt", "text", "step")} for row in rows]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged: a line is not a sample\nexpected prompt, text and step in each\n"
            "copy the file again, or start the run again with --fresh"
        ) from error


def beginnings(corpus: TokenCorpus, tokenizer: Tokenizer) -> list[str]:
    """The first few tokens of the first few documents, as text."""
    found = (corpus.document(n)[:_WORDS] for n in range(min(_BEGINNINGS, len(corpus))))
    texts = (tokenizer.decode(ids.tolist()).rstrip("\ufffd \n") for ids in found)
    return [text for text in dict.fromkeys(texts) if text.strip()]
