# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Probes in one call, from a model and sentences with trees: `head_probe`, `structural_probe`.

Sentences are read, and the model runs over them; what is measured then is in `flaxattn.measures`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence, Trees, each_sentence
from flaxattn.errors import InputError
from flaxattn.pipeline.reading_options import ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.untrained import untrained as without_training
from flaxattn.probes.extract_word_maps import word_maps
from flaxattn.probes.extract_word_states import word_states
from flaxattn.probes.governor_probe import Classifier, Dependencies
from flaxattn.probes.parsing_probe import ParsingProbe
from flaxattn.probes.selectivity import Attachment, ParserScores, attachment, judge_parsing
from flaxattn.probes.structural_probe import Fitting, StructuralProbe
from flaxattn.probes.structural_scores import (
    StructuralJudged,
    StructuralScores,
    judge_structural,
    structural_scores,
)
from flaxattn.probes.word_maps import WordMaps
from flaxattn.probes.word_states import WordStates


class TreeReading(ReadingOptions):
    """Options for reading sentences with trees."""

    def sentences(self, trees: Trees) -> Iterator[Sentence]:
        """Sentences one by one.

        Args:
            trees: Files or sentences.
        """
        return each_sentence(trees, BadRows() if self.bad is None else self.bad)

    def maps(self, model: Pretrained, trees: Trees) -> Iterator[WordMaps]:
        """Attention between words.

        Args:
            model: A BERT.
            trees: Files or sentences.
        """
        return word_maps(
            model,
            self.sentences(trees),
            truncate=self.truncate,
            bad=self.bad,
            batch_tokens=self.batch_tokens,
            watch=lambda count: self.watch("reading heads", count),
        )

    def states(
        self, model: Pretrained, trees: Trees, layers: Sequence[int] | None = None
    ) -> Iterator[WordStates]:
        """Hidden states of words.

        Args:
            model: Any.
            trees: Files or sentences.
            layers: See `word_states`.
        """
        return word_states(
            model,
            self.sentences(trees),
            layers,
            truncate=self.truncate,
            bad=self.bad,
            batch_tokens=self.batch_tokens,
            watch=lambda count: self.watch("reading hidden states", count),
        )


class HeadProbe(NamedTuple):
    """Results of single heads, and of all of them together, in finding governors.

    Attributes:
        found: How often each head finds each relation.
        best: The best head for every relation, commonest relations first.
        judged: A parser of all heads, and what it is worth; None without sentences to fit it to.
    """

    found: Dependencies
    best: list[Classifier]
    judged: ParserScores | None


def head_probe(
    model: Pretrained,
    trees: Trees,
    train: Trees | None = None,
    *,
    untrained: bool = False,
    penalty: float = 1e-4,
    seed: int = 0,
    reading: TreeReading | None = None,
    passing: Callable[[Iterable[WordMaps]], Iterable[WordMaps]] = iter,
) -> HeadProbe:
    """Ask every head for the governors of words, and all heads together for trees.

    Cost: one pass over the sentences with attention weights. Memory: those of 256 sentences; with
    `train`, 4 L H W² bytes for every sentence of W words.

    Args:
        model: A BERT with its tokenizer.
        trees: Sentences to judge heads on: CoNLL-U files, or what `read_sentences` gives.
        train: Others, on which heads and offsets are chosen, and to which a parser is fitted.
            Without, heads are chosen on the same sentences, which flatters.
        untrained: Whether a parser is fitted to the model with random parameters too.
        penalty: On the parser's coefficients squared.
        seed: Of the control task and of random parameters.
        reading: How sentences are read.
        passing: Looks at the sentences of `trees` on their way, such as `arc_weights.Watched`.

    Raises:
        InputError: For a model that is no BERT, a sentence that cannot be used, no sentence with a
            relation, or `untrained` without `train`.
    """
    reading = reading or TreeReading()
    if train is None:
        if untrained:
            raise InputError(
                "untrained=True compares parsers, and there is none\ngive train=, other sentences"
            )
        found = Dependencies.of(passing(reading.maps(model, trees)))
        return HeadProbe(found, _some(found.best()), None)
    kinds = [[*reading.sentences(some)] for some in (train, trees)]
    others, texts = [*reading.maps(model, kinds[0])], [*passing(reading.maps(model, kinds[1]))]
    random = None
    if untrained:
        blind = without_training(model, seed)
        random = [*reading.again.maps(blind, kinds[0])], [*reading.again.maps(blind, kinds[1])]
    judged = judge_parsing(others, texts, untrained=random, penalty=penalty, seed=seed)
    found = Dependencies.of(texts)
    return HeadProbe(found, _some(found.best(Dependencies.of(others))), judged)


def _some(best: list[Classifier]) -> list[Classifier]:
    if not best:
        raise InputError("no sentence has a relation to probe\nname files that hold sentences")
    return best


def structural_probe(
    model: Pretrained,
    trees: Trees,
    train: Trees,
    layers: Sequence[int] | None = None,
    *,
    fitting: Fitting | None = None,
    untrained: bool = False,
    reading: TreeReading | None = None,
) -> StructuralJudged:
    """Fit structural probes to hidden states (Hewitt & Manning 2019), and judge them.

    Cost: one pass over the sentences without attention weights, and the fitting: see
    `fit_structural_probes`. Memory: 4 L W E bytes for every sentence of W words; name `layers` of
    large models.

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

    Raises:
        InputError: For a layer that the model has not, or a sentence that cannot be used.
    """
    reading, fitting = reading or TreeReading(), fitting or Fitting()
    kinds = [[*reading.sentences(some)] for some in (train, trees)]
    others, texts = ([*reading.states(model, some, layers)] for some in kinds)

    def blind(layer: int) -> tuple[list[WordStates], list[WordStates]]:
        other = without_training(model, fitting.seed)
        one, two = ([*reading.again.states(other, some, [layer])] for some in kinds)
        return one, two

    return judge_structural(
        others,
        texts,
        fitting,
        untrained=blind if untrained else None,
        watch=lambda count: reading.watch("fitting", count),
    )


def apply_probe(
    model: Pretrained,
    trees: Trees,
    probe: ParsingProbe | StructuralProbe,
    *,
    reading: TreeReading | None = None,
) -> Attachment | StructuralScores:
    """Evaluate a fitted probe on other sentences.

    Args:
        model: The one that it was fitted to.
        trees: CoNLL-U files, or sentences.
        probe: As `load_probe` gives it.
        reading: How sentences are read.

    Returns:
        Attachment of a parser of all heads, or scores of a structural probe.

    Raises:
        InputError: If the model has other heads or hidden states, or there is no sentence.
    """
    reading = reading or TreeReading()
    if isinstance(probe, StructuralProbe):
        scores = structural_scores(probe.metric, [*reading.states(model, trees, [probe.layer])])
        if not scores.sentences:
            raise InputError("no sentence to apply the probe to\nname files that hold sentences")
        return scores
    found = attachment(probe.governors, reading.maps(model, trees))
    if not found.words:
        raise InputError("no sentence to apply the probe to\nname files that hold sentences")
    return found
