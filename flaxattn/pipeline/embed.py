# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Vectors of sentences: `embed`, the hidden states of a text put into one.

One vector per text, in memory. Vectors of single tokens, on disk, are in `build_token_index`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.corpus.texts import plain_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import NOTHING
from flaxattn.pipeline.batch_loop import each_batch
from flaxattn.pipeline.batches import Batch, planned
from flaxattn.pipeline.extraction import room_for
from flaxattn.pipeline.finite_batches import check_vectors
from flaxattn.pipeline.hidden_states import arguments, fetched, last_of, state_number, states_of
from flaxattn.pipeline.progress_reporter import Watch, watch_in_notebooks
from flaxattn.pipeline.tokenize_texts import TOGETHER, TextError, groups_of, tokenize
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.pretrained.sentence_pooling import SentencePooling

POOLINGS = ("mean", "mean-all", "cls", "last", "max")
_WINDOW = 4096  # texts that are sorted by length together


@check_arguments()
def embed(
    model: Pretrained,
    texts: Sequence[str],
    pooling: str | None = None,
    layer: int = -1,
    normalize: bool | None = None,
    *,
    token_weights: Float[np.ndarray, " V"] | None = None,
    truncate: bool = False,
    batch_tokens: int | None = None,
    allow_nonfinite: bool = False,
    watch: Watch = watch_in_notebooks,
) -> Float[np.ndarray, "N E"]:
    """One vector per text, of the hidden states of a model; of the encoder's in a seq2seq model.

    Raw vectors of a pretrained model are good for probing what it knows, and as input of a
    classifier that is trained on them. They are not good for ranking sentences by meaning: they
    lie in a narrow cone, where a few large dimensions and frequent pieces decide, so that any two
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
            special ones too; `cls`, the first position of an encoder; `last`, the last token that
            is not special, which in a GPT-2 is the one that has seen the others; `max`, the
            largest number of each dimension, special tokens counted. The default is that of
            sentence-transformers where the model's directory has its `1_Pooling/config.json`,
            otherwise `mean`.
        layer: Hidden state, as in Hugging Face's `hidden_states`: 0 for the embeddings, n for the
            output of the n-th layer, negative from the end.
        normalize: Whether vectors have norm one, so that `a @ b.T` are their cosines; a vector of
            zeros stays one. The default is that of the same directory, otherwise False.
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
            that do not fit, or a text that cannot be read, has special pieces only, or only tokens
            of weight 0 (`TextError`, which names it).
    """
    state = state_number(model, layer)
    pooling, normalize = _chosen(model, pooling, normalize)
    _check(model, texts, pooling)
    weights = None if token_weights is None else _checked_weights(model, token_weights, pooling)
    keep = state != state_number(model, -1)
    module = model.module.clone(capture=NOTHING, keep_hidden=keep)
    run = functools.partial(
        _pooled, module, model.params, state=state if keep else None, largest=pooling == "max"
    )
    room = room_for([model], NOTHING, 1, batch_tokens)._replace(packs=False)
    found: list[np.ndarray] = []
    for start in range(0, len(texts), _WINDOW):
        numbered = plain_texts(texts[start : start + _WINDOW], None, start)
        some = groups_of(numbered, TOGETHER)
        rows = [row for group in some for row in tokenize(model, group, truncate)]
        shares = [_shares(row, pooling, start + i, weights) for i, row in enumerate(rows)]
        batches = planned([row.lengths for row in rows], model.limit, room)

        def begin(
            batch: Batch,
            rows: Sequence[TokenizedTexts] = rows,
            shares: Sequence[np.ndarray] = shares,
        ) -> Array:
            return run(arguments(model, rows, batch), _laid_out(shares, batch))

        window: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for batch, vectors in each_batch(batches, begin, fetched):
            for place in batch.places:
                window[place.text] = vectors[place.row]
                if not allow_nonfinite:
                    what = f"hidden states of layer {state}"
                    check_vectors(model, vectors[place.row], numbered[place.text], what)
            watch("embedding", len(batch.places))
        found += window
    vectors = np.stack(found).astype(np.float32)
    return unit(vectors) if normalize else vectors


def unit(vectors: Float[np.ndarray, "*N E"]) -> Float[np.ndarray, "*N E"]:
    """Vectors of norm one, float32; those of zeros stay as they are.

    Args:
        vectors: float32.
    """
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


@functools.partial(jax.jit, static_argnames=("module", "state", "largest"))
def _pooled(
    module: nn.Module,
    params: Any,
    given: Any,
    shares: Float[Array, "B S"],
    state: int | None,
    largest: bool = False,
) -> Float[Array, "B E"]:
    """Weighted sums of a hidden state; heads of tasks and the decoder are not computed.

    With `largest`, the largest numbers of all positions that have a share.
    """
    out = module.apply({"params": params}, **given)
    hidden = last_of(out) if state is None else states_of(out)[state]
    if largest:
        floor = jnp.where(shares[..., None] > 0, hidden.astype(jnp.float32), -jnp.inf)
        return jnp.where(shares.any(1)[:, None], floor.max(1), 0)
    # What is no number at padding shall not reach the sum, so the products are not left to zeros.
    hidden = jnp.where(shares[..., None] > 0, hidden.astype(jnp.float32), 0)
    return jnp.einsum("bs,bse->be", shares, hidden, precision=jax.lax.Precision.HIGHEST)


def _chosen(model: Pretrained, pooling: str | None, normalize: bool | None) -> tuple[str, bool]:
    """The pooling and whether to normalise: as asked, as the model's directory says, or usual."""
    own = model.pooling if isinstance(model, PretrainedBert) else None
    own = SentencePooling("mean", False) if own is None else own
    # The directory's normalisation belongs to its pooling.
    usual = own.normalize and pooling in (None, own.pooling)
    return pooling or own.pooling, usual if normalize is None else normalize


def _check(model: Pretrained, texts: Sequence[str], pooling: str) -> None:
    if pooling not in POOLINGS:
        raise InputError(f"pooling {pooling!r} is unknown\nchoose one of {', '.join(POOLINGS)}")
    if pooling == "cls" and not isinstance(model, PretrainedBert):
        raise InputError(
            f'pooling "cls" is of encoders; {model.name!r} has no [CLS]\nchoose "mean" or "last"'
        )
    if isinstance(texts, str) or not len(texts):
        received = "a string" if isinstance(texts, str) else "no text"
        raise InputError(f"texts is a list of at least one text, received {received}")


def _checked_weights(
    model: Pretrained, weights: Float[np.ndarray, " V"], pooling: str
) -> Float[np.ndarray, " V"]:
    """Weights of tokens as float64.

    Raises:
        InputError: If there is not one for each token, one is negative or not finite, or the
            pooling is no mean.
    """
    if not pooling.startswith("mean"):
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
) -> Float[np.ndarray, " S"]:
    """The share of each position in the vector of a text."""
    size = row.lengths[0]
    shares = np.zeros(size, np.float32)
    if pooling == "cls":
        shares[0] = 1
        return shares
    if pooling in ("mean-all", "max"):
        return _weighted(np.ones(size, np.float32), row, weights, number)
    special = row.metadata.special
    assert special is not None
    plain = np.flatnonzero(~np.asarray(special)[0, :size])
    if not len(plain):
        told = 'text has special pieces only\nleave it out, or choose pooling="cls" of a BERT'
        raise TextError(number, told)
    shares[plain if pooling == "mean" else plain[-1]] = 1
    return _weighted(shares, row, weights, number)


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


def _laid_out(shares: Sequence[np.ndarray], batch: Batch) -> Float[np.ndarray, "B S"]:
    found = np.zeros((batch.rows, batch.widths[0]), np.float32)
    for place in batch.places:
        found[place.row, : len(shares[place.text])] = shares[place.text]
    return found
