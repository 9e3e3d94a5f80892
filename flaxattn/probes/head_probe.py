# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Probes from a model and sentences with trees: `head_probe` and others.

It runs the model over the sentences and extracts maps and hidden states by word; the scores are
computed in `flaxattn.measures`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.corpus.dependency_trees import Sentence, Trees, each_sentence
from flaxattn.corpus.texts import annotated_text
from flaxattn.errors import InputError, check_arguments
from flaxattn.pipeline.batches import Batch
from flaxattn.pipeline.embed import arguments, state_number, states_of
from flaxattn.pipeline.run import Arguments, ModelRunner, mesh_of
from flaxattn.pipeline.tokenize_texts import DEFAULTS, TOGETHER, ReadingOptions, windows
from flaxattn.pretrained.from_pretrained import untrained as without_training
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.governor_probe import Classifier, Dependencies
from flaxattn.probes.label_probe import (
    PENALTY,
    LabelAccuracy,
    LabelJudged,
    LabelProbe,
    judge_labels,
    label_accuracy,
    word_labels,
)
from flaxattn.probes.parsing_probe import (
    Attachment,
    ParserScores,
    ParsingProbe,
    attachment,
    judge_parsing,
)
from flaxattn.probes.structural_probe import (
    Fitting,
    StructuralJudged,
    StructuralProbe,
    StructuralScores,
    judge_structural,
    structural_scores,
)
from flaxattn.probes.word_records import (
    Kept,
    WordMaps,
    WordStates,
    kept_words,
    word_maps,
    word_states_of,
)


class HeadProbe(NamedTuple):
    """Results of single heads, and of all of them together, in finding governors.

    Attributes:
        found: Frequency with which each head finds each relation.
        best: The best head for every relation, commonest relations first.
        judged: A parser of all heads, and what it is worth; None without sentences to fit it to.
    """

    found: Dependencies
    best: list[Classifier]
    judged: ParserScores | None


@check_arguments()
def head_probe(
    model: Pretrained,
    trees: Trees,
    train: Trees | None = None,
    *,
    untrained: bool = False,
    penalty: float = 1e-4,
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
    passing: Callable[[Iterable[WordMaps]], Iterable[WordMaps]] = iter,
) -> HeadProbe:
    """Ask every head for the governors of words, and all heads together for trees.

    Cost: one pass over the sentences with attention weights. Memory: those of 256 sentences; with
    `train`, 4 L H W² bytes for every sentence of W words.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence("one", "Cats sleep", (cats, sleep), "", 1)]
    >>> probe = fa.head_probe(fa.from_pretrained("tiny-bert"), trees)
    >>> [best.relation for best in probe.best]
    ['any', 'nsubj']

    Args:
        model: A BERT with its tokenizer.
        trees: Sentences to judge heads on: CoNLL-U files, or what `read_sentences` gives.
        train: Others, on which heads and offsets are chosen, and to which a parser is fitted.
            Without, heads are chosen on the same sentences, which flatters.
        untrained: Whether a parser is fitted to the model with random parameters too.
        penalty: On the parser's coefficients squared.
        seed: Seed of the control task and of random parameters.
        reading: How sentences are read.
        passing: Looks at the sentences of `trees` on their way, such as `arc_weights.Watched`.

    Returns:
        How often each head finds each relation, shares between 0 and 1; the best head of each; and
        the fitted parser with its scores where there are sentences to fit it to.

    Raises:
        InputError: For a model that is not a BERT, a sentence that cannot be used, no sentence with
            a relation, or `untrained` without `train`.
    """
    if train is None:
        if untrained:
            raise InputError(
                "untrained=True compares parsers, and there is no parser\n"
                "give train=, other sentences"
            )
        found = Dependencies.of(
            passing(word_maps(model, each_sentence(trees, reading.problems), reading))
        )
        return HeadProbe(found, _some(found.best()), None)
    kinds = [[*each_sentence(some, reading.problems)] for some in (train, trees)]
    others = [*word_maps(model, kinds[0], reading)]
    texts = [*passing(word_maps(model, kinds[1], reading))]
    random = None
    if untrained:
        blind = without_training(model, seed)
        again = reading.again
        random = [*word_maps(blind, kinds[0], again)], [*word_maps(blind, kinds[1], again)]
    if any(np.isnan(words.weights).any() for words in (*others, *texts)):
        raise InputError(
            "a parser is fitted to the attention of all heads, and that of some is NaN\n"
            "probe the heads by themselves: leave train out"
        )
    reading.watch("fitting a parser", 0)
    judged = judge_parsing(others, texts, untrained=random, penalty=penalty, seed=seed)
    found = Dependencies.of(texts)
    return HeadProbe(found, _some(found.best(Dependencies.of(others))), judged)


def _some(best: list[Classifier]) -> list[Classifier]:
    if not best:
        raise InputError("no sentence has a relation to probe\nname files that hold sentences")
    return best


@check_arguments()
def structural_probe(
    model: Pretrained,
    trees: Trees,
    train: Trees,
    layers: Sequence[int] | None = None,
    *,
    fitting: Fitting | None = None,
    untrained: bool = False,
    reading: ReadingOptions = DEFAULTS,
) -> StructuralJudged:
    """Fit structural probes to hidden states (Hewitt & Manning 2019), and judge them.

    Cost: one pass over the sentences without attention weights, and the fitting: see
    `fit_structural_probes`. Memory: 4 L W E bytes for every sentence of W words; name `layers` of
    large models.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence(str(n), "Cats sleep", (cats, sleep), "", 1) for n in range(10)]
    >>> result = fa.structural_probe(fa.from_pretrained("tiny-bert"), trees, trees, layers=[2])
    >>> result.probes[result.best].layer
    2

    Args:
        model: A BERT, a GPT-2 or an encoder-decoder, with its tokenizer.
        trees: Sentences to judge probes on: CoNLL-U files, or what `read_sentences` gives.
        train: Others that probes are fitted to; each tenth of them says when to stop.
        layers: Hidden states: 0 for the embeddings, n for the output of the n-th layer, negative
            from the end. Default all of them.
        fitting: How; its seed is that of random parameters too.
        untrained: Whether a probe is fitted to the model with random parameters too, to its hidden
            state of the number that is best.
        reading: How sentences are read.

    Returns:
        A probe of each hidden state and its scores: shares and rank correlations between 0 and 1.

    Raises:
        InputError: For a layer that the model lacks, or a sentence that cannot be used.
    """
    fitting = fitting or Fitting()
    kinds = [[*each_sentence(some, reading.problems)] for some in (train, trees)]
    others, texts = ([*word_states(model, some, layers, reading)] for some in kinds)

    def blind(layer: int) -> tuple[list[WordStates], list[WordStates]]:
        other = without_training(model, fitting.seed)
        one, two = ([*word_states(other, some, [layer], reading.again)] for some in kinds)
        return one, two

    return judge_structural(
        others,
        texts,
        fitting,
        untrained=blind if untrained else None,
        watch=lambda count: reading.watch("fitting", count),
    )


@check_arguments()
def label_probe(
    model: Pretrained,
    trees: Trees,
    train: Trees,
    labels: str = "upos",
    layers: Sequence[int] | None = None,
    *,
    untrained: bool = False,
    penalty: float = PENALTY,
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
) -> LabelJudged:
    """Fit linear probes of labels to hidden states, with selectivity (Hewitt & Liang 2019).

    A probe of each hidden state predicts the label of a word from its vector, the mean over its
    tokens. Selectivity is its accuracy minus that of a probe of a control task, in which each word
    type has a random label. Intervals are bootstrapped over sentences, with 95% confidence.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence(str(n), "Cats sleep", (cats, sleep), "", 1) for n in range(10)]
    >>> judged = fa.label_probe(fa.from_pretrained("tiny-bert"), trees, trees, layers=[2])
    >>> judged.scores[judged.best].accuracy
    1.0

    Cost: one pass over the sentences without attention weights, and for each hidden state two
    logistic regressions, or three with `untrained`. Memory: 4 L W E bytes for every sentence of W
    words; name `layers` of large models.

    Args:
        model: Any with a tokenizer; of an encoder-decoder the encoder is probed.
        trees: Sentences to judge probes on: CoNLL-U files, or what `read_sentences` gives.
        train: Others that probes are fitted to; each tenth of them says which layer is best.
        labels: `upos`, `xpos`, or `feats.NAME` for a morphological feature.
        layers: Hidden states: 0 for the embeddings, n for the output of the n-th layer, negative
            from the end. Default all of them.
        untrained: Whether probes are fitted to the model with random parameters too.
        penalty: Half of it times the sum of squared coefficients is added to the mean
            cross-entropy.
        seed: Seed of the control task, of random parameters and of the bootstrap.
        reading: How sentences are read.

    Returns:
        Probes of all hidden states, their scores, and which is best.

    Raises:
        InputError: For unknown labels, a layer that the model lacks, a sentence that cannot be
            used, or sentences without two of the labels.
    """
    word_labels(labels)
    kinds = [[*each_sentence(some, reading.problems)] for some in (train, trees)]
    others, texts = ([*word_states(model, some, layers, reading)] for some in kinds)
    random = None
    if untrained:
        blind = without_training(model, seed)
        first, second = ([*word_states(blind, some, layers, reading.again)] for some in kinds)
        random = first, second
    return judge_labels(
        others,
        texts,
        labels,
        untrained=random,
        penalty=penalty,
        seed=seed,
        watch=lambda count: reading.watch("fitting", count),
    )


@check_arguments()
def apply_probe(
    model: Pretrained,
    trees: Trees,
    probe: ParsingProbe | StructuralProbe | LabelProbe,
    *,
    reading: ReadingOptions = DEFAULTS,
) -> Attachment | StructuralScores | LabelAccuracy:
    """Evaluate a fitted probe on other sentences.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> from flaxattn.probes.structural_probe import StructuralProbe
    >>> matrix = np.eye(4, 256, dtype=np.float32)
    >>> probe = StructuralProbe(2, matrix, matrix, (0.5, 0.5), (9, 9), 90)
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence("one", "Cats sleep", (cats, sleep), "", 1)]
    >>> fa.apply_probe(fa.from_pretrained("tiny-bert"), trees, probe).sentences
    1

    Args:
        model: The one that it was fitted to.
        trees: CoNLL-U files, or sentences.
        probe: As `load_probe` gives it.
        reading: How sentences are read.

    Returns:
        Attachment of a parser of all heads, scores of a structural probe, or accuracy of a probe of
        labels.

    Raises:
        InputError: If the model has other heads or hidden states, or there is no sentence.
    """
    sentences = each_sentence(trees, reading.problems)
    if isinstance(probe, StructuralProbe):
        states = [*word_states(model, sentences, [probe.layer], reading)]
        scores = structural_scores(probe.metric, states)
        if not scores.sentences:
            raise InputError("no sentence to apply the probe to\nname files that hold sentences")
        return scores
    if isinstance(probe, LabelProbe):
        states = [*word_states(model, sentences, [probe.layer], reading)]
        accuracy = label_accuracy(probe, states, word_labels(probe.what))
        if not accuracy.words:
            raise InputError(
                f"no word has a label of {probe.what}\nname files that hold sentences with them"
            )
        return accuracy
    found = attachment(probe.governors, word_maps(model, sentences, reading))
    if not found.words:
        raise InputError("no sentence to apply the probe to\nname files that hold sentences")
    return found


_SHARES = "shares"  # argument of the program: of each position in each word
_WINDOW = 16 * TOGETHER  # sentences that are sorted by length together


def word_states(
    model: Pretrained,
    sentences: Iterable[Sentence],
    layers: Sequence[int] | None = None,
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[WordStates]:
    """Hidden states of the words of sentences, in order; of the encoder in a seq2seq model.

    A word's vector is the mean of those of its tokens (Hewitt & Manning 2019). A word that has no
    token for itself, because an earlier one has all of them, is left out, though not of the tree.

    Memory: 4 L W E bytes for each of 1,024 sentences of W words, and what the caller keeps.
    """
    given = range(state_number(model, -1) + 1) if layers is None else layers
    chosen = tuple(sorted({state_number(model, layer) for layer in given}))
    runner = ModelRunner(
        [model],
        _WordMeans(chosen),
        keep_hidden=True,
        mesh=mesh_of(),
        notes=(_SHARES,),
        batch_tokens=reading.batch_tokens,
        allow_nonfinite=reading.allow_nonfinite,
        watch=reading.watch,
        stage="reading hidden states",
    )
    for read in windows(model, map(annotated_text, sentences), reading, _WINDOW):
        rows, kept = [one.reading for one in read], [kept_words(one.layout) for one in read]

        def inputs(
            batch: Batch, rows: Sequence[TokenizedTexts] = rows, kept: Sequence[Kept] = kept
        ) -> dict[str, Any]:
            return {**arguments(model, rows, batch), _SHARES: _laid_out(kept, batch)}

        def trim(text: int, vectors: np.ndarray, kept: Sequence[Kept] = kept) -> np.ndarray:
            return vectors[:, :, : len(kept[text].numbers)]

        found: list[np.ndarray] = [np.zeros(0)] * len(rows)
        texts = [one.text for one in read]
        for text, _, (vectors,) in runner.run(rows, texts, inputs=inputs, trim=trim):
            found[text] = vectors[:, 0].copy()
        for one, words, vectors in zip(read, kept, found, strict=True):
            assert one.text.sentence is not None
            sentence = one.text.sentence.words
            yield word_states_of(vectors, one.layout, words, chosen, sentence)


@dataclasses.dataclass(frozen=True)
class _WordMeans:
    """Program of means of hidden states over the tokens of words; nothing else is computed."""

    layers: tuple[int, ...]

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> Float[Array, "L B W E"]:
        states, shares = states_of(module.apply({"params": params}, **given)), notes[_SHARES]
        hidden = jnp.stack([states[layer] for layer in self.layers]).astype(jnp.float32)
        # NaN at padding must not reach a sum.
        hidden = jnp.where(shares.any(-1)[..., None], hidden, 0)
        return jnp.einsum("bsw,lbse->lbwe", shares, hidden, precision=jax.lax.Precision.HIGHEST)

    def label(self, number: int) -> str:
        return f"hidden states of layer {self.layers[number]}"


def _laid_out(kept: Sequence[Kept], batch: Batch) -> Float[np.ndarray, "B S W"]:
    """Shares of positions in words; there is room for a word at each position."""
    found = np.zeros((batch.rows, batch.widths[0], batch.widths[0]), np.float32)
    for place in batch.places:
        shares = kept[place.text].shares
        found[place.row, : shares.shape[0], : shares.shape[1]] = shares
    return found
