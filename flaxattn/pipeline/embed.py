# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Vectors of sentences: `embed`, the hidden states of a text put into one.

One vector per text, in memory. Vectors of single tokens, on disk, are stores: `measures.search`.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.pipeline.batches import Batch, stacked
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pipeline.run import Arguments, ModelRunner, mesh_of
from flaxattn.pipeline.tokenize_texts import TOGETHER, TextError, groups_of, in_background, tokenize
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.pretrained.sentence_modules import SentenceRecipe, unit
from flaxattn.text.text_lists import some_texts
from flaxattn.text.tokenizer import Tokenizer


def state_number(model: Pretrained, layer: int) -> int:
    """The place of a hidden state among all of a model, or of the encoder where there is one."""
    last = getattr(model.config, "encoder_layers", model.counts()[0])
    if not -last - 1 <= layer <= last:
        raise InputError(
            f"layer is {layer}, {model.name!r} has {last} of them\n"
            f"give 0 for the embeddings, 1 to {last} for the output of a layer, -1 for the last"
        )
    return layer % (last + 1)


def states_of(out: Any) -> tuple[Float[Array, "B S E"], ...]:
    """Embeddings and outputs of layers, of the encoder where there is one."""
    found = getattr(out, "encoder_hidden_states", None)
    return out.hidden_states if found is None else found


def last_of(out: Any) -> Float[Array, "B S E"]:
    """The last of them, which any module returns."""
    found = getattr(out, "encoder_last_hidden_state", None)
    return out.last_hidden_state if found is None else found


def arguments(
    model: Pretrained, rows: Sequence[TokenizedTexts], batch: Batch
) -> dict[str, np.ndarray | Array]:
    """Arguments of the module; a decoder that is not needed reads one token."""
    given: dict[str, Any] = stacked(rows, batch)
    if isinstance(model, PretrainedSeq2Seq):
        given["decoder_input_ids"] = np.full(
            (batch.rows, 1), model.config.decoder_start_token_id, np.int32
        )
    return given


MEANS = ("mean", "mean-all", "mean-sqrt", "mean-weighted")
POOLINGS = (*MEANS, "cls", "last", "last-all", "max")
_SHARES = "shares"  # argument of the program: of each position in each pooling
_WINDOW = 4096  # texts that are sorted by length together


@check_arguments()
def embed(
    model: Pretrained,
    texts: Sequence[str],
    pooling: str | None = None,
    layer: int = -1,
    normalize: bool | None = None,
    *,
    prompt_name: str | None = None,
    token_weights: Float[np.ndarray, " V"] | None = None,
    truncate: bool = False,
    batch_tokens: int | None = None,
    allow_nonfinite: bool = False,
    watch: Watch = show_progress,
) -> Float[np.ndarray, "N E"]:
    """One vector per text, of the hidden states of a model; of the encoder's in a seq2seq model.

    Raw vectors of a pretrained model are good for probing what it knows, and as input of a
    classifier that is trained on them. They are not good for ranking sentences by meaning: they
    lie in a narrow cone, where a few large dimensions and frequent tokens decide, so that any two
    sentences have a high cosine, and on semantic similarity they are behind averaged word vectors
    (Reimers & Gurevych 2019). `cls` without fine-tuning is the worst of them. For search by
    meaning take a model that was trained for it.

    Cost: one forward pass without attention maps; texts are put into batches of like length.
    Memory: the vectors, and 4,096 texts as they are read.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> fa.embed(model, ["The cat is sad.", "It could not find food."]).shape
    (2, 256)

    Args:
        model: A BERT, a GPT-2 or an encoder-decoder, with its tokenizer.
        texts: N texts, at least one.
        pooling: `mean`, the mean over all tokens but special ones and padding; `mean-all`, over
            special ones too; `mean-sqrt`, the sum divided by the root of their number, and
            `mean-weighted`, weighted by 1, 2, 3, …; `cls`, the first position of an encoder;
            `last`, the last token that is not special, which in a GPT-2 is the one that has seen
            the others; `last-all`, the last one; `max`, the largest number of each dimension,
            special tokens counted. The default is the vector of sentence-transformers where the
            model's directory has its `modules.json` (poolings, dense layers, normalisation,
            lower case, prompts, and texts cut at `max_seq_length`), otherwise `mean`.
        layer: Hidden state, as in Hugging Face's `hidden_states`: 0 for the embeddings, n for the
            output of the n-th layer, negative from the end.
        normalize: Whether vectors have norm one, so that `a @ b.T` are their cosines; a vector of
            zeros stays one. The default is that of the same directory, otherwise False.
        prompt_name: Name of the prompt of the directory that is put before each text; the default
            is the one that the directory names, if any.
        token_weights: Weight of each token of the vocabulary in a mean, 0 or above: such as
            a / (a + p) of its frequency p (Arora et al. 2017). Default all alike.
        truncate: Whether a text over the model's limit is cut; otherwise it is an error.
        batch_tokens: Positions of a batch, padding counted.
        allow_nonfinite: Whether vectors that hold NaN or infinity are returned; otherwise they are
            an error.
        watch: Receives progress; the default shows it in notebooks.

    Returns:
        float32, in the order of the texts. The same text has the same vector in any company, but
        for rounding, as the compiler orders sums by shape.

    Raises:
        InputError: For an unknown pooling or layer, `cls` of a model without, weights of tokens
            that do not fit, or a text that cannot be read, has special tokens only, or only tokens
            of weight 0 (`TextError`, which names it).
    """
    texts = _checked(model, texts, pooling)
    state, last = state_number(model, layer), state_number(model, -1)
    recipe = _recipe(model, pooling, normalize, state == last)
    weights = (
        None if token_weights is None else _checked_weights(model, token_weights, recipe.poolings)
    )
    runner = ModelRunner(
        [model],
        _Pooled(state, state == last, tuple(name == "max" for name in recipe.poolings)),
        keep_hidden=state != last,
        mesh=mesh_of(),
        notes=(_SHARES,),
        batch_tokens=batch_tokens,
        allow_nonfinite=allow_nonfinite,
        watch=watch,
        stage="embedding",
    )
    reader, prepare, unpooled = _prepared(model, recipe, prompt_name)
    cut_short = 0
    found: list[np.ndarray] = []
    numbered = plain_texts(texts, None)
    cuts = truncate or recipe.prepares
    groups = groups_of(map(prepare, numbered), TOGETHER)
    every = in_background(lambda group: tokenize(reader, group, cuts), groups)
    for rows in groups_of(itertools.chain.from_iterable(every), _WINDOW):
        some = numbered[len(found) : len(found) + len(rows)]
        cut_short += sum(any(row.metadata.truncated) for row in rows)
        shares = [
            np.stack([_shares(row, n, text.index, weights, unpooled) for n in recipe.poolings])
            for text, row in zip(some, rows, strict=True)
        ]

        def inputs(
            batch: Batch,
            rows: Sequence[TokenizedTexts] = rows,
            shares: Sequence[np.ndarray] = shares,
        ) -> dict[str, Any]:
            return {**arguments(model, rows, batch), _SHARES: _laid_out(shares, batch)}

        window: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for text, _, (pooled,) in runner.run(rows, some, inputs=inputs):
            window[text] = pooled.reshape(-1).copy()
        found += window
    if cut_short and not truncate:
        longest = min(recipe.max_length or model.limit, model.limit)
        warnings.warn(
            f"{cut_short} of {len(texts)} texts were cut at {longest} tokens, as in "
            "sentence-transformers.\nName a pooling for vectors of whole texts.",
            UserWarning,
            stacklevel=3,
        )
    vectors = np.stack(found).astype(np.float32)
    for change in recipe.layers:
        vectors = change(vectors)
    return vectors


@dataclasses.dataclass(frozen=True)
class _Pooled:
    """Program of weighted sums of a hidden state; heads of tasks and the decoder are not computed.

    Attributes:
        state: Number of the hidden state.
        last: Whether that is the last one, which any module returns.
        largest: For each pooling, whether it is the largest numbers of positions with a share.
    """

    state: int
    last: bool
    largest: tuple[bool, ...]

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> Float[Array, "N B E"]:
        out = module.apply({"params": params}, **given)
        hidden, shares = last_of(out) if self.last else states_of(out)[self.state], notes[_SHARES]
        return jnp.stack(
            [_one_pooled(hidden, shares[:, n], each) for n, each in enumerate(self.largest)]
        )

    def label(self, number: int) -> str:
        return f"hidden states of layer {self.state}"


def _one_pooled(
    hidden: Float[Array, "B S E"], shares: Float[Array, "B S"], largest: bool
) -> Float[Array, "B E"]:
    if largest:
        floor = jnp.where(shares[..., None] > 0, hidden.astype(jnp.float32), -jnp.inf)
        return jnp.where(shares.any(1)[:, None], floor.max(1), 0)
    # NaN at padding must not reach the sum, so the products are not left to zeros.
    hidden = jnp.where(shares[..., None] > 0, hidden.astype(jnp.float32), 0)
    return jnp.einsum("bs,bse->be", shares, hidden, precision=jax.lax.Precision.HIGHEST)


def _recipe(
    model: Pretrained, pooling: str | None, normalize: bool | None, of_last: bool
) -> SentenceRecipe:
    """Return the pooling: as requested, else as the model's directory says, else the mean."""
    modules = model.sentence_modules
    if pooling is None:
        recipe = SentenceRecipe() if modules is None else modules.recipe()
        if not of_last:  # other modules were trained on the last layer
            recipe = recipe._replace(layers=tuple(each for each in recipe.layers if each is unit))
    else:
        normalizes = modules is not None and modules.only_normalizes(pooling)
        recipe = SentenceRecipe((pooling,), (unit,) if normalizes else ())
    if normalize is None:
        return recipe
    others = tuple(each for each in recipe.layers if each is not unit)
    return recipe._replace(layers=(*others, *((unit,) if normalize else ())))


def _prepared(
    model: Pretrained, recipe: SentenceRecipe, prompt_name: str | None
) -> tuple[Pretrained, Callable[[Text], Text], int]:
    """The model that reads texts, what is done to a text first, and tokens that are not pooled."""
    name = recipe.default_prompt if prompt_name is None else prompt_name
    if name is not None and name not in recipe.prompts:
        raise InputError(
            f"prompt_name {name!r} is unknown\nthe directory of the model has "
            f"{', '.join(map(repr, recipe.prompts)) or 'no prompts'}"
        )
    prompt, unpooled = "" if name is None else recipe.prompts[name], 0
    if prompt and not recipe.pools_prompt:
        (row,) = model.read([prompt.strip()]).rows()  # as sentence-transformers counts them
        special = row.metadata.special
        assert special is not None
        unpooled = row.lengths[0] - bool(special[0, row.lengths[0] - 1])

    def prepare(text: Text) -> Text:
        words = prompt + text.text
        words = words.strip() if recipe.prepares else words
        return dataclasses.replace(text, text=words.lower() if recipe.lower_case else words)

    if recipe.max_length is None or recipe.max_length >= model.limit:
        return model, prepare, unpooled
    assert isinstance(model.tokenizer, Tokenizer)
    short = dataclasses.replace(model.tokenizer, longest=recipe.max_length)
    return dataclasses.replace(model, tokenizer=short), prepare, unpooled


def _checked(model: Pretrained, texts: Sequence[str], pooling: str | None) -> list[str]:
    """The texts as a list, if they and the pooling can be used."""
    if pooling is not None and pooling not in POOLINGS:
        raise InputError(f"pooling {pooling!r} is unknown\nchoose one of {', '.join(POOLINGS)}")
    if pooling == "cls" and not isinstance(model, PretrainedBert):
        raise InputError(
            f'pooling "cls" is of encoders; {model.name!r} has no [CLS]\nchoose "mean" or "last"'
        )
    return some_texts(texts)[0]


def _checked_weights(
    model: Pretrained, weights: Float[np.ndarray, " V"], poolings: Sequence[str]
) -> Float[np.ndarray, " V"]:
    """Weights of tokens as float64."""
    for pooling in set(poolings) - {*MEANS}:
        raise InputError(
            f'token_weights are of a mean, and pooling is "{pooling}"\nchoose pooling="mean"'
        )
    array, size = np.asarray(weights, np.float64), model.config.vocab_size
    if array.shape != (size,) or not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(
            f"token_weights: expected {size} finite numbers of 0 or above, one for each token, "
            f"received shape {array.shape}\nindex them by token id"
        )
    return array


def _shares(
    row: TokenizedTexts,
    pooling: str,
    number: int,
    weights: Float[np.ndarray, " V"] | None = None,
    unpooled: int = 0,
) -> Float[np.ndarray, " S"]:
    """The share of each position in the vector of a text, but for `unpooled` ones at its start."""
    size = row.lengths[0]
    shares = np.zeros(size, np.float32)
    if pooling == "cls":
        shares[0] = 1
        return shares
    special = row.metadata.special
    assert special is not None
    real = np.arange(size) >= unpooled
    if pooling in ("mean", "last"):
        real &= ~np.asarray(special)[0, :size]
    places = np.flatnonzero(real)
    if not len(places):
        message = 'text has special tokens only\nleave it out, or choose pooling="cls" of a BERT'
        raise TextError(number, message)
    if pooling.startswith("last"):
        places = places[-1:]
    shares[places] = places + 1 if pooling == "mean-weighted" else 1
    shares = _weighted(shares, row, weights, number)
    return shares * np.sqrt(len(places)) if pooling == "mean-sqrt" else shares


def _weighted(
    shares: Float[np.ndarray, " S"],
    row: TokenizedTexts,
    weights: Float[np.ndarray, " V"] | None,
    number: int,
) -> Float[np.ndarray, " S"]:
    """Shares in proportion to the weights of their tokens; their sum is 1."""
    if weights is not None:
        shares = (shares * weights[row.given["input_ids"][0, : len(shares)]]).astype(np.float32)
        if not shares.sum() > 0:
            raise TextError(number, "all tokens of the text have weight 0\nraise token_weights")
    return shares / shares.sum()


def _laid_out(shares: Sequence[np.ndarray], batch: Batch) -> Float[np.ndarray, "B N S"]:
    found = np.zeros((batch.rows, len(shares[0]), batch.widths[0]), np.float32)
    for place in batch.places:
        found[place.row, :, : shares[place.text].shape[1]] = shares[place.text]
    return found
