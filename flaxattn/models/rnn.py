# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The recurrent encoder-decoder that attention was invented in (Bahdanau, Cho and Bengio 2015).

RNNsearch: a bidirectional GRU reads, a GRU writes, and before each word it looks at the source.
Without attention it is the baseline of that paper, whose decoder gets one vector of the source.
Formulas are those of the paper's appendix A. Here they differ in what the paper leaves open or
does by hand: every sum has a bias, initial weights are larger, the encoder's gates begin open for
its own words, and dropout is possible. Its additive attention computes scores with a small network
in place of q·k. Loading, saving and generating text are not done here.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import NOTHING, Capture, Intermediates, Labels
from flaxattn.models.layer_stack import Model
from flaxattn.models.layers import (
    Dense,
    DropoutLayer,
    Embedding,
    real_positions,
    record,
    recording,
    with_defaults,
)
from flaxattn.models.outputs import ModelOutput, Seq2SeqOutput
from flaxattn.models.seq2seq import shifted_right
from flaxattn.models.seq2seq_config import RnnConfig
from flaxattn.trace.record import AttentionRecord


class Look(NamedTuple):
    """Output of one query of additive attention; R queries, or [R, T, …] of T steps.

    Attributes:
        context: Weighted sum of the values.
        scores: Scores of the keys, -inf at padding; float32. None where they are not kept.
        query: As it was scored. None where it is not kept.
    """

    context: Float[Array, "R *T C"]
    scores: Float[Array, "R *T K"] | None
    query: Float[Array, "R *T A"] | None


class Alignment(NamedTuple):
    """A source that has been read, for states to look at. Pure functions, for the body of a scan.

    Attributes:
        query: W of the score.
        score: v of the score.
        keys: U h + b of every source position.
        values: h, the vectors that are averaged.
        mask: True at real source positions.
        implementation: Name of the attention kernel.
    """

    query: Float[Array, "N A"]
    score: Float[Array, " A"]
    keys: Float[Array, "B K A"]
    values: Float[Array, "B K C"]
    mask: Bool[Array, "B K"] | None
    implementation: str

    def look(self, states: Float[Array, "R N"]) -> Look:
        """Attend from one state of every sequence; R / B sequences in a row share a source."""
        batch, rows = self.keys.shape[0], states.shape[0]
        query = (states @ self.query).reshape(batch, -1, 1, self.query.shape[1])
        hidden = nn.tanh(query + self.keys[:, None])
        exact = jnp.float64 if hidden.dtype == jnp.float64 else jnp.float32
        scores = jnp.einsum("bqka,a->bqk", hidden, self.score, preferred_element_type=exact)
        if self.mask is not None:
            scores = jnp.where(self.mask[:, None], scores, -jnp.inf)
        context, _ = self.weigh(scores)
        return Look(*(part.reshape(rows, -1) for part in (context, scores, query)))

    def weigh(
        self, scores: Float[Array, "B Q K"], **requested: Any
    ) -> tuple[Float[Array, "B Q C"], Intermediates]:
        """Softmax and average. The scores are a bias to queries and keys that are zero."""
        values = self.values[:, :, None]
        zero = jnp.zeros((*scores.shape[:2], *values.shape[2:]), values.dtype)
        output, intermediates = attention(
            zero,
            jnp.zeros_like(values),
            values,
            bias=scores[:, None],
            implementation=self.implementation,
            **requested,
        )
        return output[:, :, 0], intermediates


class AdditiveAttention(nn.Module):
    """Attention by v·tanh(W s + U h + b) instead of q·k, one head (Bahdanau et al. 2015, A.1.2).

    For queries that come one after the other, each from a state that the step before has made: a
    call reads the source, the `Alignment` it returns is looked at step by step, and `keep` records
    what all steps saw. The kernel is "xla" unless another one is named, since no product of q and k
    is left for a fused one.

    Parameters: `query` W, `key` U and b, `score` v. With a `cache_length`, where the collection
    `cache` is mutable, the source is read only once.

    Attributes:
        features: A, width of the scoring layer.
        query_features: N, width of a state.
        dtype: Computation dtype.
        capture: What `keep` records, as `AttentionRecord`.
        implementation: Name of the kernel.
        cache_length: Above 0 for a cache.
    """

    features: int
    query_features: int
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    cache_length: int = 0

    @nn.compact
    def __call__(
        self, context: Float[Array, "B K C"], mask: Bool[Array, "B K"] | None = None
    ) -> Alignment:
        """Read the source."""
        init = nn.initializers.lecun_normal()
        query = self.param("query", init, (self.query_features, self.features))
        score = self.param("score", nn.initializers.normal(0.1), (self.features,))
        query, score = promote_dtype(query, score, dtype=self.dtype)
        caching = self.cache_length > 0 and self.is_mutable_collection("cache")
        caching = caching and not self.is_initializing()
        if caching and self.has_variable("cache", "key"):
            keys, values = (self.get_variable("cache", name) for name in ("key", "value"))
        else:
            values = context.astype(self.dtype)
            scale = context.shape[-1] ** -0.5
            keys = Dense(self.features, self.dtype, scale, name="key")(values)
            if caching:
                self.put_variable("cache", "key", keys)
                self.put_variable("cache", "value", values)
        return Alignment(query, score, keys, values, mask, self.implementation or "xla")

    def keep(self, source: Alignment, looks: Look, labels: Labels | None = None) -> None:
        """Record the attention of T steps, a row each.

        Whatever is captured, the scores of all steps are kept: 4 R T K bytes.
        """
        assert looks.scores is not None and looks.query is not None
        batch, length, _ = source.keys.shape
        scores = looks.scores.reshape(batch, -1, length)
        _, intermediates = source.weigh(scores, labels=labels, capture=self.capture)
        of_queries = {"query": looks.query, "head_output": looks.context}
        of_keys = {"key": source.keys, "value": source.values}
        projections = {n: array[:, :, None] for n, array in (of_queries | of_keys).items()}
        record(
            self, "attention_record", AttentionRecord.of(self.capture, intermediates, **projections)
        )


# The next state, from the state and from what a unit is given beside it.
Update = Callable[[Float[Array, "R N"], Float[Array, "R 3*N"]], Float[Array, "R N"]]


class GatedUnit(nn.Module):
    """The gated recurrent unit as first published (Cho et al. 2014).

    The reset gate acts on the state before its product with the recurrent kernel, and an open
    update gate lets the new state in; `nn.GRUCell`, torch and cuDNN do both the other way round.

    Parameters: `input`, a `Dense`, and `recurrent [N, 3 N]`: update gate, reset gate, candidate.

    Attributes:
        features: N, width of the state.
        dtype: Computation dtype.
        local: Whether the unit begins with gates that favour its own word over what it remembers
            (biases 1 and -1). An encoder's positions then stand for their words, and what
            attention looks at is where the word is, not a neighbour that remembers it.
    """

    features: int
    dtype: Dtype = jnp.float32
    local: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "B S M"]) -> tuple[Float[Array, "B S 3*N"], Update]:
        """Return the product of all inputs, and the function that a scan applies to it."""
        n = self.features
        bias = _local if self.local else nn.initializers.zeros
        given = Dense(3 * n, self.dtype, x.shape[-1] ** -0.5, bias, name="input")(x)
        recurrent = self.param("recurrent", _orthogonal, (n, 3 * n))
        (recurrent,) = promote_dtype(recurrent, dtype=self.dtype)
        gates, candidate = recurrent[:, : 2 * n], recurrent[:, 2 * n :]

        def update(state: Array, given: Array) -> Array:
            opened = nn.sigmoid(given[:, : 2 * n] + state @ gates)
            z, r = opened[:, :n], opened[:, n:]
            new = nn.tanh(given[:, 2 * n :] + (r * state) @ candidate)
            return (1 - z) * state + z * new

        return given, update


class Encoder(nn.Module):
    """Two units, one reading from either end (A.2.1).

    At padding the state is kept as it is, so each reads the real positions only.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
    """

    config: RnnConfig
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, words: Float[Array, "B S M"], mask: Bool[Array, "B S"] | None = None
    ) -> Float[Array, "B S 2*N"]:
        """The states of both directions at every position; 0 at padding."""
        forward = self._read("forward", words, mask)
        backward = self._read("backward", words, mask, reverse=True)
        states = jnp.concatenate([forward, backward], axis=-1)
        return states if mask is None else jnp.where(mask[:, :, None], states, 0)

    def _read(
        self, name: str, words: Array, mask: Array | None, reverse: bool = False
    ) -> Float[Array, "B S N"]:
        unit = GatedUnit(self.config.hidden_size, self.dtype, local=True, name=name)
        given, update = unit(words)

        def step(state: Array, at: tuple[Array, Array | None]) -> tuple[Array, Array]:
            state = _kept(state, update(state, at[0]), at[1])
            return state, state

        start = jnp.zeros((words.shape[0], self.config.hidden_size), given.dtype)
        return _over_time(step, start, (given, mask), reverse=reverse)[1]


class Summary(NamedTuple):
    """The source as one vector, the same at every step: the bottleneck without attention.

    Attributes:
        context: Last states of both directions.
    """

    context: Float[Array, "B C"]

    def look(self, states: Float[Array, "R N"]) -> Look:
        """Return the vector for every state; R / B sequences in a row share a source."""
        shared = jnp.repeat(self.context, states.shape[0] // self.context.shape[0], axis=0)
        return Look(shared, None, None)


class Decoder(nn.Module):
    """A unit that looks at the source before every step, and a maxout readout (A.2.2).

    In step i, the state s queries the source for a context c; s, y (the previous word) and c give
    the next state and go to the readout. Without attention, c is a `Summary` of the source, the
    same at every step.

    Parameters beside those of its parts: `context [2 N, 3 N]`.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype.
        capture: What attention records.
        implementation: Name of the attention kernel.
        remat: Whether the backward pass computes each step again instead of keeping B S A numbers
            of it.
        cache_length: Above 0 for a cache.
    """

    config: RnnConfig
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    remat: bool = False
    cache_length: int = 0

    @nn.compact
    def __call__(
        self,
        words: Float[Array, "R T M"],
        encoded: Float[Array, "B S 2*N"],
        *,
        mask: Bool[Array, "R T"] | None = None,
        context_mask: Bool[Array, "B S"] | None = None,
        labels: Labels | None = None,
    ) -> tuple[Float[Array, "R T O"], Float[Array, "R T N"]]:
        """Read the words.

        Returns:
            The readout, and the state that each row looked from.
        """
        attend = self._attention() if self.config.attention else self._summarised
        source = attend(encoded, context_mask)
        last, looks, states = self._steps(words, source, self._start(encoded, context_mask), mask)
        if self._caching():
            self.put_variable("cache", "state", last)
        if (
            isinstance(attend, AdditiveAttention)
            and isinstance(source, Alignment)
            and self._records_attention()
        ):
            attend.keep(source, looks, labels)
        features = jnp.concatenate([states, words.astype(self.dtype), looks.context], axis=-1)
        pairs = _dense(self.config.maxout_size, features, self.dtype, "readout")(features)
        return pairs.reshape(*pairs.shape[:-1], -1, 2).max(axis=-1), states

    def _steps(
        self, words: Array, source: Alignment | Summary, start: Array, mask: Array | None
    ) -> tuple[Array, Look, Array]:
        """The last state, and for every step the context and the state it began with."""
        n, requested = self.config.hidden_size, self._records_attention()
        given, update = GatedUnit(n, self.dtype, name="unit")(words)
        kernel = self.param("context", nn.initializers.lecun_normal(), (2 * n, 3 * n))
        (kernel,) = promote_dtype(kernel, dtype=self.dtype)

        def step(state: Array, at: tuple[Array, Array | None]) -> tuple[Array, Any]:
            look = source.look(state)
            new = update(state, at[0] + look.context @ kernel)
            kept = look if requested else look._replace(scores=None, query=None)
            return _kept(state, new, at[1]), (kept, state)

        # Inside a scan nothing can be merged across forward and backward: no barriers are needed.
        body = jax.checkpoint(step, prevent_cse=False) if self.remat else step
        last, (looks, states) = _over_time(body, start, (given, mask))
        return last, looks, states

    def _start(self, encoded: Array, mask: Array | None) -> Float[Array, "R N"]:
        """The state before the first word: from the backward state that has read all, or cached."""
        if self._caching() and self.has_variable("cache", "state"):
            return self.get_variable("cache", "state")
        n = self.config.hidden_size
        backward = last_states(encoded, mask)[:, n:]
        return nn.tanh(_dense(n, backward, self.dtype, "start")(backward))

    def _summarised(self, encoded: Array, mask: Array | None) -> Summary:
        """The source as one vector: of what was encoded, or cached."""
        if self._caching() and self.has_variable("cache", "summary"):
            return Summary(self.get_variable("cache", "summary"))
        summary = last_states(encoded, mask)
        if self._caching():
            self.put_variable("cache", "summary", summary)
        return Summary(summary)

    def _attention(self) -> AdditiveAttention:
        return AdditiveAttention(
            self.config.attention_size,
            self.config.hidden_size,
            dtype=self.dtype,
            capture=self.capture,
            implementation=self.implementation,
            cache_length=self.cache_length,
            name="cross_attention",
        )

    def _records_attention(self) -> bool:
        return recording(self) and self.capture != NOTHING

    def _caching(self) -> bool:
        mutable = self.is_mutable_collection("cache") and not self.is_initializing()
        return mutable and self.cache_length > 0


class RnnLM(Model):
    """RNNsearch (Bahdanau et al. 2015): a recurrent encoder-decoder with attention.

    The interface is that of `Seq2SeqLM`; its trace has `cross` only, one layer with one head.
    Without `config.attention` there is nothing to trace.

    Attributes:
        cache_length: Above 0 for a cache; however long the text, its size is that of one state.
    """

    config: RnnConfig
    cache_length: int = 0

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.words = Embedding(c.vocab_size, c.embedding_size, self.dtype)
        self.decoder_words = Embedding(c.target_size, c.embedding_size, self.dtype)
        self.encoder = Encoder(c, self.dtype)
        self.decoder = Decoder(
            c,
            self.dtype,
            capture=_without_layers(self.capture),
            implementation=self.implementation,
            remat=self.remat,
            cache_length=self.cache_length,
        )
        self.output = Dense(c.target_size, self.dtype, c.readout_size**-0.5)
        self.dropout = DropoutLayer(c.dropout)

    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        decoder_input_ids: Int[Array, "B T"] | None = None,
        decoder_attention_mask: Int[Array, "B T"] | None = None,
        *,
        labels: Mapping[str, Labels] | None = None,
        deterministic: bool = True,
    ) -> Seq2SeqOutput:
        """Run the model."""
        if decoder_input_ids is None:
            decoder_input_ids = shifted_right(input_ids, self.config)
        words, encoded = self._encoded(input_ids, attention_mask, deterministic)
        read, states, x = self._decoded(
            decoder_input_ids,
            encoded,
            attention_mask,
            decoder_attention_mask,
            labels=labels,
            deterministic=deterministic,
        )
        return Seq2SeqOutput(
            last_hidden_state=x,
            encoder_last_hidden_state=encoded,
            logits=self.scores(x),
            encoder_hidden_states=(words, encoded) if self.keep_hidden else None,
            decoder_hidden_states=(read, states, x) if self.keep_hidden else None,
        )

    def encode(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B S 2*N"]:
        """The encoder's states; arguments as for a call."""
        return self._encoded(input_ids, attention_mask, deterministic)[1]

    def decode(self, *inputs: Array, **options: Any) -> Float[Array, "R T V"]:
        """Scores of the tokens after those given; arguments as for `Seq2Seq.decode`.

        With `cache` mutable, later calls continue where the one before has ended. From then on
        `encoded` is not looked at, and several sequences in a row may share one source.
        """
        return self.scores(self._decoded(*inputs, **options)[-1])

    def generation_context(self, input_ids: Array, attention_mask: Array) -> tuple[Array, Array]:
        """Return what stays the same during generation: the encoder's states, and their mask."""
        return self.encode(input_ids, attention_mask), attention_mask

    def decode_step(
        self, ids: Array, context: tuple[Array, Array], position_ids: Array | None, visible: None
    ) -> Float[Array, "R V"]:
        """Scores of the token after the last of `ids`; arguments as for `Seq2SeqLM.decode_step`."""
        del position_ids, visible  # all that was read is in the state
        return self.scores(self._decoded(ids, *context)[-1][:, -1])

    def scores(self, x: Float[Array, "*tokens O"]) -> Float[Array, "*tokens V"]:
        """Scores over the target vocabulary."""
        return self.output(x)

    def _encoded(
        self, ids: Array, mask: Array | None, deterministic: bool
    ) -> tuple[Float[Array, "B S M"], Float[Array, "B S 2*N"]]:
        words = self.dropout(self.words(ids), deterministic)
        return words, self.encoder(words, real_positions(mask))

    def _decoded(
        self,
        decoder_input_ids: Int[Array, "R T"],
        encoded: Float[Array, "B S 2*N"],
        attention_mask: Int[Array, "B S"] | None = None,
        decoder_attention_mask: Int[Array, "R T"] | None = None,
        position_ids: Int[Array, "R T"] | None = None,
        *,
        labels: Mapping[str, Labels] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "R T M"], Float[Array, "R T N"], Float[Array, "R T O"]]:
        """Embedded words, states and readout; positions only say where in a mask the tokens are."""
        mask, length = real_positions(decoder_attention_mask), decoder_input_ids.shape[1]
        if mask is not None and mask.shape[1] != length:
            known = position_ids is not None
            mask = jnp.take_along_axis(mask, position_ids, 1) if known else mask[:, :length]
        words = self.dropout(self.decoder_words(decoder_input_ids), deterministic)
        x, states = self.decoder(
            words,
            encoded,
            mask=mask,
            context_mask=real_positions(attention_mask),
            labels=with_defaults(labels, "cross", query_mask=mask),
        )
        return words, states, self.dropout(x, deterministic)


def last_states(
    encoded: Float[Array, "B S 2*N"], mask: Bool[Array, "B S"] | None
) -> Float[Array, "B 2*N"]:
    """The state of each direction that has read the whole source."""
    n, rows = encoded.shape[-1] // 2, jnp.arange(encoded.shape[0])
    if mask is None:
        return jnp.concatenate([encoded[:, -1, :n], encoded[:, 0, n:]], axis=-1)
    first = mask.argmax(axis=1)
    last = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    return jnp.concatenate([encoded[rows, last, :n], encoded[rows, first, n:]], axis=-1)


def _over_time(
    step: Callable[[Any, Any], Any], start: Array, inputs: Any, reverse: bool = False
) -> tuple[Array, Any]:
    """Scan over the second axis: inputs `[B, S, …]`, results `[B, S, …]`."""
    inputs = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), inputs)
    last, out = jax.lax.scan(step, start, inputs, reverse=reverse)
    return last, jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), out)


def _kept(old: Array, new: Array, real: Array | None) -> Array:
    """The new state where a token is real, the old one at padding."""
    return new if real is None else jnp.where(real[:, None], new, old)


def _dense(features: int, x: Array, dtype: Dtype, name: str) -> Dense:
    """Begins with outputs as large as the inputs; the paper's 0.01 learns a small task slowly."""
    return Dense(features, dtype, x.shape[-1] ** -0.5, name=name)


def _orthogonal(key: Array, shape: tuple[int, int]) -> Float[Array, "N 3*N"]:
    """An orthogonal matrix for each gate and one for the candidate, as in the paper."""
    n, init = shape[0], nn.initializers.orthogonal()
    keys = jax.random.split(key, shape[1] // n)
    return jnp.concatenate([init(k, (n, n)) for k in keys], axis=1)


def _local(key: Array, shape: tuple[int]) -> Float[Array, " 3*N"]:
    """Biases of an open update gate, a closed reset gate and the candidate."""
    del key
    return jnp.repeat(jnp.array([1.0, -1.0, 0.0]), shape[0] // 3)


def _without_layers(capture: Capture) -> Capture:
    """The request, once it is clear that it is for the one layer there is, and of attention."""
    if capture.hidden:
        raise InputError(
            "capture.hidden asks for outputs of layers, which recurrent models do not record.\n"
            "Leave it out; the module's output has them: keep_hidden=True."
        )
    if capture.layers not in (None, (0,)):
        raise ValueError(
            f"capture.layers names {list(capture.layers)}, but the model has layer 0 only.\n"
            "Layers are counted from 0."
        )
    return dataclasses.replace(capture, layers=None)


class RnnForSequenceClassification(Model):
    """Bidirectional GRU that reads a text, with one label (or one number) for it."""

    config: RnnConfig

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.words = Embedding(c.vocab_size, c.embedding_size, self.dtype)
        self.encoder = Encoder(c, self.dtype)
        self.classifier = Dense(c.num_labels, self.dtype, c.encoded_size**-0.5)
        self.dropout = DropoutLayer(c.dropout)

    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *,
        deterministic: bool = True,
    ) -> ModelOutput:
        """Run the model."""
        mask = real_positions(attention_mask)
        words = self.dropout(self.words(input_ids), deterministic)
        states = self.encoder(words, mask)
        last = self.dropout(last_states(states, mask), deterministic)
        return ModelOutput(
            logits=self.classifier(last),
            last_hidden_state=states,
            hidden_states=(words, states) if self.keep_hidden else None,
        )


ARCHITECTURES: Mapping[str, type[nn.Module]] = {
    "RnnLM": RnnLM,
    "RnnForSequenceClassification": RnnForSequenceClassification,
}
