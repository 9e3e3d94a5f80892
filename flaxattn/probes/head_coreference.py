# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Coreference by single heads: `head_coreference`, and pronouns (GAP, WinoBias, Winogender).

A head judges what a mention means: the candidate with more attention wins. A pronoun has people it
may mean, a mention of a document all mentions before it. Attention is read both ways, from the
mention and to it. Documents have candidates, right ones and three baselines, whose words are
English. Texts that show how a head resolves mentions are kept while they stream, with their gold
pairs.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np
from jaxtyping import Float, Int

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.mentions import (
    PRONOUN,
    Document,
    Mention,
    Pronoun,
    read_documents,
    read_pronouns,
)
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.claims import Evidence
from flaxattn.measures.gold_pairs import HIT, MISS, UNJUDGED, GoldPair, GoldPairs, runs_of
from flaxattn.pipeline.tokenize_texts import DEFAULTS, LabelledText, ReadingOptions
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.governor_probe import HeadCounts
from flaxattn.probes.word_records import between_words, whole_maps
from flaxattn.text.tokens import positions_of_words
from flaxattn.trace.record import layer_weights

FROM_MENTION = "from mention"
"""Attention from the mention to each candidate."""
TO_MENTION = "to mention"
"""Attention from each candidate to the mention."""
NEAREST, FIRST = "nearest", "first"
POOLINGS = ("sum", "max")


class MentionScores(NamedTuple):
    """Scores of the heads for one mention with C candidates.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        scores: Attention between it and each candidate, by direction.
        right: Numbers of the right candidates; none if none is.
        simple: Number of the candidate that each baseline takes; None if it takes none.
        group: What results are split by.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    scores: Mapping[str, Float[np.ndarray, "C L H"]]
    right: tuple[int, ...]
    simple: Mapping[str, int | None]
    group: str = ""


def pronoun_scores(
    weights: Float[np.ndarray, "L H N N"],
    pronoun: Sequence[int],
    candidates: Sequence[Sequence[int]],
    right: int | None,
    *,
    group: str = "",
    layers: tuple[int, ...] | None = None,
    heads: tuple[int, ...] | None = None,
    pooling: str = "sum",
) -> MentionScores:
    """Attention between a pronoun and those whom it may mean."""
    if pooling not in POOLINGS:
        raise InputError(f"pooling {pooling!r} is unknown\nchoose one of {', '.join(POOLINGS)}")
    if not pronoun or len(candidates) < 2 or not all(candidates):
        raise InputError(
            f"A pronoun of {len(pronoun)} tokens and candidates of {[*map(len, candidates)]} "
            "cannot be judged.\nGive a pronoun and at least two candidates, each with a token."
        )
    weights = np.asarray(weights, np.float32)

    def between(queries: Sequence[int], keys: Sequence[int]) -> np.ndarray:
        block = weights[:, :, list(queries)][..., list(keys)]
        return block.max((2, 3)) if pooling == "max" else block.sum(3).mean(2)

    away = [min(abs(i - j) for i in pronoun for j in positions) for positions in candidates]
    first = int(np.argmin([positions[0] for positions in candidates]))
    return MentionScores(
        tuple(range(weights.shape[0])) if layers is None else layers,
        tuple(range(weights.shape[1])) if heads is None else heads,
        {
            FROM_MENTION: np.stack([between(pronoun, positions) for positions in candidates]),
            TO_MENTION: np.stack([between(positions, pronoun) for positions in candidates]),
        },
        () if right is None else (right,),
        {NEAREST: int(np.argmin(away)), FIRST: first},
        group,
    )


class Resolver(NamedTuple):
    """The head that resolves mentions best.

    Attributes:
        group: Group of the mentions; empty for all.
        direction: Side from which attention is read.
        layer: Number of its layer.
        head: Its number.
        mentions: Number of mentions.
        accuracy: Share of them for which it is right.
        baseline: The best one.
        baseline_accuracy: Its share.
    """

    group: str
    direction: str
    layer: int
    head: int
    mentions: int
    accuracy: float
    baseline: str
    baseline_accuracy: float

    @property
    def lift(self) -> float:
        """Percentage points above the baseline."""
        return 100 * (self.accuracy - self.baseline_accuracy)


class Coreference(HeadCounts[MentionScores]):
    """Counts of right answers of each head; added up mention by mention, in any order.

    Attributes:
        hits: Mentions for which each head is right, by group and direction; a tie of C candidates
            counts for the share of them that is right. The empty group is all of them.
        simple: Mentions for which a baseline is right, by group and name.
        counts: Number of mentions, by group.
        neither: Number of mentions without a right candidate; they count nowhere else.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hits: dict[tuple[str, str], Float[np.ndarray, "L H"]] = {}
        self.simple: dict[tuple[str, str], int] = {}
        self.counts: dict[str, int] = {}
        self.neither = 0

    def add(self, item: MentionScores) -> None:
        """Add a mention."""
        self.of_heads(item.layers, item.heads)
        if not item.right:
            self.neither += 1
            return
        for group in dict.fromkeys(("", item.group)):
            self.counts[group] = self.counts.get(group, 0) + 1
            for name, answer in item.simple.items():
                right = int(answer in item.right)
                self.simple[group, name] = self.simple.get((group, name), 0) + right
            for direction, scores in item.scores.items():
                top = scores == scores.max(0)
                tied = np.where(top.any(0), top.sum(0), np.nan)  # none where scores are nan
                share = top[list(item.right)].sum(0) / tied
                self.hits[group, direction] = self.hits.get((group, direction), 0) + share

    def accuracy(self, direction: str, group: str = "") -> Float[np.ndarray, "L H"]:
        """Share of mentions for which each head is right."""
        return self.hits[group, direction] / self.counts[group]

    def baseline(self, group: str = "") -> tuple[str, float]:
        """The best baseline, and how often it is right."""
        shares = self.baselines(group)
        name = max(shares, key=lambda one: shares[one])
        return name, shares[name]

    def baselines(self, group: str = "") -> dict[str, float]:
        """Accuracy of each baseline, by its name."""
        found = [(name, right) for (part, name), right in self.simple.items() if part == group]
        return {name: right / self.counts[group] for name, right in found}

    def best(self, chosen_on: Self | None = None) -> list[Resolver]:
        """The best head, for all mentions and each group of them."""
        other = self if chosen_on is None else chosen_on
        if not (self.counts and other.counts):
            raise InputError(
                f"No head can be chosen: none of {self.neither + other.neither} mentions means a "
                "candidate.\nGive texts in which what they mean is marked."
            )
        known = {
            way: np.nan_to_num(other.accuracy(way), nan=-1) for way in (FROM_MENTION, TO_MENTION)
        }
        direction = max(known, key=lambda way: known[way].max())
        chosen = known[direction]
        at = np.unravel_index(int(chosen.argmax()), chosen.shape)
        where = direction, self.layers[at[0]], self.heads[at[1]]
        return [
            Resolver(
                *(group, *where, self.counts[group]),
                float(self.accuracy(direction, group)[at]),
                *self.baseline(group),
            )
            for group in sorted(self.counts)
        ]


HEAD_WORD, RULES = "head word", "rules"
_Agreement = tuple[str | None, str | None, str | None]  # number, gender, person; None for any
_THIRD: _Agreement = (None, None, "3")
_PRONOUNS: dict[str, _Agreement] = {
    **dict.fromkeys(("i", "me", "my", "mine", "myself"), ("one", None, "1")),
    **dict.fromkeys(("we", "us", "our", "ours", "ourselves"), ("many", None, "1")),
    **dict.fromkeys(("you", "your", "yours", "yourself", "yourselves"), (None, None, "2")),
    **dict.fromkeys(("he", "him", "his", "himself"), ("one", "masculine", "3")),
    **dict.fromkeys(("she", "her", "hers", "herself"), ("one", "feminine", "3")),
    **dict.fromkeys(("it", "its", "itself"), ("one", "neuter", "3")),
    **dict.fromkeys(("they", "them", "their", "theirs", "themselves"), ("many", None, "3")),
}
_NUMBERS = {"NN": "one", "NNP": "one", "NNS": "many", "NNPS": "many"}


class Antecedents(NamedTuple):
    """A mention, the words before it that stand for mentions, and which of them are right.

    Attributes:
        mention: Number of the mention.
        candidates: Numbers of words: heads of mentions, in order.
        right: Places among these of the ones that mean the same entity.
        simple: Place of the one that each baseline takes; None if it takes none.
    """

    mention: Mention
    candidates: tuple[int, ...]
    right: tuple[int, ...]
    simple: dict[str, int | None]


def antecedents(document: Document) -> Iterator[Antecedents]:
    """The mentions of a document that have an antecedent.

    Candidates are the heads of all mentions that begin before the mention does, or with it and are
    longer, and whose head is before its own; mentions with one head are one candidate.

    Baselines: the nearest candidate; the nearest one with the same word as its head, else none;
    and the nearest one that the first of four rules takes: the same words, the same head word, the
    same number, gender and person as far as they are known, any. The paper (Clark et al. 2019)
    names these, and neither what the second does without such a word nor how agreement is known;
    both are ours.
    """
    known: set[tuple[str, int]] = set()
    for number, mention in enumerate(document.mentions):
        if (mention.entity, mention.head) in known:
            continue
        known.add((mention.entity, mention.head))
        before = [m for m in document.mentions[:number] if m.head < mention.head]
        heads = sorted({m.head for m in before})
        same = {m.head for m in before if m.entity == mention.entity}
        if same:
            right = tuple(place for place, head in enumerate(heads) if head in same)
            answers = _baselines(document, mention, before)
            simple = {n: None if a is None else heads.index(a) for n, a in answers.items()}
            yield Antecedents(mention, tuple(heads), right, simple)


def _baselines(
    document: Document, mention: Mention, before: Sequence[Mention]
) -> dict[str, int | None]:
    """The head word of the mention that each baseline takes."""
    near = sorted(before, key=lambda one: -one.head)

    def head(one: Mention) -> str:
        return document.words[one.head].form.lower()

    def words(one: Mention) -> list[str]:
        return [word.form.lower() for word in document.words[one.start : one.stop]]

    rules = [
        [one for one in near if words(one) == words(mention)],
        [one for one in near if head(one) == head(mention)],
        [one for one in near if _agree(_agreement(document, one), _agreement(document, mention))],
        near,
    ]
    first = next(taken[0] for taken in rules if taken)
    return {
        NEAREST: near[0].head,
        HEAD_WORD: rules[1][0].head if rules[1] else None,
        RULES: first.head,
    }


def _agreement(document: Document, mention: Mention) -> _Agreement:
    word = document.words[mention.head]
    if document.kind(mention) == PRONOUN:
        return _PRONOUNS.get(word.form.lower(), _THIRD)
    return _NUMBERS.get(word.tag), None, "3"


def _agree(one: _Agreement, other: _Agreement) -> bool:
    return all(a == b or a is None or b is None for a, b in zip(one, other, strict=True))


def antecedent_scores(
    document: Document,
    weights: Float[np.ndarray, "L H W W"],
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    *,
    among_words: bool = False,
) -> Iterator[MentionScores]:
    """Attention between the head of each mention with an antecedent and its candidates."""
    for one in antecedents(document):
        requested, places = one.mention.head, one.candidates
        right, simple = one.right, one.simple
        if among_words:
            others = [word for word in range(len(document.words)) if word != requested]
            right = tuple(others.index(places[number]) for number in right)
            simple = {
                name: None if answer is None else others.index(places[answer])
                for name, answer in simple.items()
            }
            places = tuple(others)
        row, column = weights[:, :, requested], weights[..., requested]
        yield MentionScores(
            layers,
            heads,
            {FROM_MENTION: _candidates(row, places), TO_MENTION: _candidates(column, places)},
            right,
            simple,
            document.kind(one.mention),
        )


def _candidates(
    shares: Float[np.ndarray, "L H W"], places: Sequence[int]
) -> Float[np.ndarray, "C L H"]:
    return np.moveaxis(shares[..., list(places)], 2, 0)


_ABOUT = {
    True: (
        "each mention and what it means",
        "the candidate that gets most of the mention's attention is a right one",
    ),
    False: (
        "what each mention means, and the mention",
        "the candidate that attends most to the mention is a right one",
    ),
}


class JudgedMention(NamedTuple):
    """A mention that heads were asked about, and where it stands.

    Attributes:
        number: Number of the text among those that were given.
        id: Id of the text.
        text: As the model read it.
        positions: Positions of the mention.
        right: Positions of each right candidate.
        scores: Scores of all heads.
    """

    number: int
    id: str
    text: str
    positions: Sequence[int]
    right: Sequence[Sequence[int]]
    scores: MentionScores


class _Kept(NamedTuple):
    """A mention of a text that is kept, without its scores."""

    group: str
    positions: Sequence[int]
    right: Sequence[Sequence[int]]
    hits: dict[str, Int[np.ndarray, "L H"]]


class MentionText(NamedTuple):
    """A text with mentions.

    Attributes:
        id: What it is called.
        text: As the model read it.
        mentions: In order.
    """

    id: str
    text: str
    mentions: Sequence[_Kept]


class WatchedMentions:
    """Mentions on their way to a count, of which the texts are kept that show heads best.

    A text shows a head by the mean, over its mentions of a group, of the largest attention between
    a mention and a right candidate. Memory: 2 L H bytes for each mention of a kept text.

    Args:
        keep: Number of texts of each group, direction and head.

    Attributes:
        evidence: By direction and group; the empty group is all mentions.
        texts: Those that are kept, by number.
    """

    def __init__(self, keep: int) -> None:
        self.evidence = Evidence(keep)
        self.texts: dict[int, MentionText] = {}

    def __call__(self, mentions: Iterable[JudgedMention]) -> Iterator[JudgedMention]:
        """Yield the same mentions."""
        for count, (number, group) in enumerate(groupby(mentions, lambda one: one.number), 1):
            of_text = list(group)
            self._take(number, [one for one in of_text if one.scores.right])
            if count % 256 == 0:
                self._forget()
            yield from of_text
        self._forget()

    def _take(self, number: int, judged: Sequence[JudgedMention]) -> None:
        weights: dict[tuple[str, str], list[np.ndarray]] = {}
        for one in judged:
            right = list(one.scores.right)
            for direction, scores in one.scores.scores.items():
                for group in dict.fromkeys(("", one.scores.group)):
                    weights.setdefault((direction, group), []).append(scores[right].max(0))
        for question, largest in weights.items():
            self.evidence.add(question, np.mean(largest, 0)[None], [number])
        if judged:
            kept = [_Kept(m.scores.group, m.positions, m.right, _hits(m.scores)) for m in judged]
            self.texts[number] = MentionText(judged[0].id, judged[0].text, kept)

    def _forget(self) -> None:
        kept = self.evidence.texts()
        self.texts = {number: text for number, text in self.texts.items() if number in kept}

    def gold_pairs(self, number: int, direction: str, group: str, name: str) -> GoldPairs:
        """Return the gold pairs of a group of mentions in a text, judged as heads are counted."""
        forward = direction == FROM_MENTION
        pairs: list[GoldPair] = []
        hits: list[np.ndarray] = []
        for one in self.texts[number].mentions:
            if group not in ("", one.group):
                continue
            between = [(one.positions, [k for keys in one.right for k in keys])]
            if not forward:
                between = [(keys, one.positions) for keys in one.right]
            pairs += [GoldPair((min(q), max(q)), runs_of(keys)) for q, keys in between]
            hits += [one.hits[direction]] * len(between)
        about, rule = _ABOUT[forward]
        judged = np.stack(hits, -1) if hits else np.zeros((0, 0, 0), np.int8)
        return GoldPairs(name, about, rule, pairs, judged)


def _hits(scores: MentionScores) -> dict[str, Int[np.ndarray, "L H"]]:
    """Judgements of every head by direction; of equal candidates the first one is taken."""
    hits = {}
    for direction, shares in scores.scores.items():
        known = np.isfinite(shares).all(0)
        taken = np.nan_to_num(shares, nan=-1).argmax(0)
        right = np.where(np.isin(taken, scores.right), HIT, MISS)
        hits[direction] = np.where(known, right, UNJUDGED).astype(np.int8)
    return hits


DOCUMENTS = "documents"
_Kind = TypeVar("_Kind", Pronoun, Document)
Texts = str | os.PathLike[str] | Iterable[Pronoun | Document | str | os.PathLike[str]]
"""A file, or several files, pronouns or documents."""


class HeadCoreference(NamedTuple):
    """Results of single heads in resolving mentions.

    Attributes:
        found: Frequency with which each head is right.
        best: The best head, for all mentions and each group of them.
        among_words: For documents, how often each head is right if every other word is a candidate;
            None of pronouns.
        best_among_words: The best head there; none of pronouns.
    """

    found: Coreference
    best: list[Resolver]
    among_words: Coreference | None
    best_among_words: list[Resolver]


@check_arguments()
def head_coreference(
    model: Pretrained,
    texts: Texts,
    form: str = DOCUMENTS,
    chosen_on: Texts | None = None,
    *,
    pooling: str = "sum",
    reading: ReadingOptions = DEFAULTS,
    passing: Callable[[Iterable[JudgedMention]], Iterable[JudgedMention]] = iter,
) -> HeadCoreference:
    """Ask every head whom pronouns mean, or which mention another one of a document repeats.

    A head is right about a mention of a document if its head word attends most to the head word of
    one of its antecedents (or the other way: `to mention`), among head words of mentions before it.
    Documents are cut to 128 positions. Clark et al. (2019) do so too, but do not say what the
    candidates are, so that results with every other word as one are reported too.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.mentions import Pronoun
    >>> text = "Mary met John before she left."
    >>> pronoun = Pronoun("one", text, (21, 24), ((0, 4), (9, 13)), 0, "all", "", 1)
    >>> result = fa.head_coreference(fa.from_pretrained("tiny-bert"), [pronoun], "gap")
    >>> len(result.best) >= 1
    True

    Args:
        model: A BERT with its tokenizer.
        texts: Files, or what `read_pronouns` or `read_documents` give.
        form: `documents` (CoNLL-2012, or CoNLL-U by its name), `gap`, `winobias` or `winogender`.
        chosen_on: Other texts, on which head and direction are chosen; default the same, which
            flatters.
        pooling: Pooling of pronouns: see `pronoun_scores`.
        reading: How texts are read. `truncate` is for pronouns.
        passing: Looks at the mentions of `texts` on their way, such as
            `watched_mentions.WatchedMentions`.

    Returns:
        How often each head is right, and the best heads. Counts of mentions; accuracies are shares
        between 0 and 1.

    Raises:
        InputError: For a model that is not a BERT, an unknown form, a text that cannot be used, or
            none in which a mention has a right candidate.
    """
    other = None if chosen_on is None else _counted(model, chosen_on, form, pooling, reading)
    found = _counted(model, texts, form, pooling, reading, passing)
    best = found[0].best(other and other[0])
    if form != DOCUMENTS:
        return HeadCoreference(found[0], best, None, [])
    return HeadCoreference(found[0], best, found[1], found[1].best(other and other[1]))


def _counted(
    model: Pretrained,
    texts: Texts,
    form: str,
    pooling: str,
    reading: ReadingOptions,
    passing: Callable[[Iterable[JudgedMention]], Iterable[JudgedMention]] = iter,
) -> tuple[Coreference, Coreference]:
    """Counts among mentions, and among all words."""
    bad = reading.problems
    found, among_words = Coreference(), Coreference()
    if form != DOCUMENTS:
        pronouns = _pronouns(texts, form, bad)
        judged = pronoun_maps(model, pronouns, pooling=pooling, reading=reading)
    else:
        judged = _document_mentions(model, _documents(texts, bad), reading, among_words)
    for one in passing(judged):
        found.add(one.scores)
    return found, among_words


def _document_mentions(
    model: Pretrained,
    documents: Iterable[Document],
    reading: ReadingOptions,
    among_words: Coreference,
) -> Iterator[JudgedMention]:
    """Mentions of documents; what they get among all words is counted on the way."""
    for maps in document_maps(model, documents, reading=reading):
        for scores in antecedent_scores(*maps[:4], among_words=True):
            among_words.add(scores)
        yield from judged_mentions(maps)


def _each(texts: Texts) -> Iterator[Pronoun | Document | Path]:
    for one in [texts] if isinstance(texts, str | os.PathLike) else texts:
        yield Path(one) if isinstance(one, str | os.PathLike) else one


def _pronouns(texts: Texts, form: str, bad: BadRows) -> Iterator[Pronoun]:
    for one in _each(texts):
        if isinstance(one, Path):
            yield from read_pronouns([one], form, bad)
        else:
            yield _known(one, Pronoun, form)


def _documents(texts: Texts, bad: BadRows) -> Iterator[Document]:
    for one in _each(texts):
        if isinstance(one, Path):
            yield from read_documents([one], bad)
        else:
            yield _known(one, Document, DOCUMENTS)


def _known(one: Pronoun | Document, kind: type[_Kind], form: str) -> _Kind:
    if not isinstance(one, kind):
        raise InputError(
            f"form {form!r} reads a {kind.__name__}, received a {type(one).__name__}\n"
            "name the form of the texts"
        )
    return one


POSITIONS = 128
"""Most positions of a document, special tokens counted (Clark et al. 2019)."""
_LONGEST = 1 << 30


class DocumentMaps(NamedTuple):
    """Attention between the W words of the beginning of a document.

    Attributes:
        document: As far as it was read.
        weights: Share of attention that the word of a row gives to that of a column.
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        number: Number of the document among those that were given.
        positions: Positions of each word.
    """

    document: Document
    weights: Float[np.ndarray, "L H W W"]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    number: int
    positions: Sequence[Sequence[int]]


def document_maps(
    model: Pretrained,
    documents: Iterable[Document],
    *,
    positions: int = POSITIONS,
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[DocumentMaps]:
    """Attention between the words of documents, in order; each is read as far as there is room.

    Documents end at the last word that fits; mentions that reach beyond it are left out.

    Holds the maps of a document: 4 L H W² bytes.
    """
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is not an encoder\nname a BERT"
        )
    if positions < 4:
        raise InputError(f"{positions} positions hold no two words\ngive 4 or more, such as 128")
    waiting: dict[str, _Cut] = {}

    def texts() -> Iterator[Text]:
        for number, document in enumerate(documents):
            cut = _cut(model, number, document, min(positions, model.limit))
            if isinstance(cut, Problem):
                reading.problems.report(cut)
                continue
            name = f"{number} {document.id}"  # ids may repeat
            waiting[name] = cut
            yield Text(0, name, cut.document.text, None, document.file, document.line)

    for read, record in whole_maps(model, texts(), dataclasses.replace(reading, truncate=False)):
        cut = waiting.pop(read.text.id)
        weights = layer_weights(record, record.layers, allow_nan=True)
        between = between_words(np.asarray(weights, np.float32), cut.positions)[1]
        yield DocumentMaps(
            cut.document, between, record.layers, record.heads, cut.number, cut.positions
        )


@dataclasses.dataclass(frozen=True)
class _Cut:
    """The beginning of a document, and the tokens of each of its words."""

    number: int
    document: Document
    positions: list[list[int]]


def _cut(model: PretrainedBert, number: int, document: Document, room: int) -> _Cut | Problem:
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(document.text, max_length=_LONGEST)
    special = encoded.special[0].tolist()
    positions = positions_of_words(
        [word.span for word in document.words], encoded.offsets[0], special
    )
    count = 0
    for word, its in zip(document.words, positions, strict=True):
        if not its:
            message = (
                f"document {document.id!r}, word {word.form!r}: the tokenizer makes no token of it"
            )
            return Problem(document.file, word.line, "", "no-tokens", message)
        if its[-1] + 1 >= room:  # one more token ends the text
            break
        count += 1
    if not count:
        message = f"document {document.id!r}: its first word has more tokens than there is room for"
        return Problem(document.file, document.line, "", "no-tokens", message)
    return _Cut(number, document.until(count), positions[:count])


def judged_mentions(maps: DocumentMaps) -> Iterator[JudgedMention]:
    """Scores of the mentions of a document that have an antecedent, and where these stand."""
    document, weights, layers, heads, number, positions = maps
    scores = antecedent_scores(document, weights, layers, heads)
    for one, of_heads in zip(antecedents(document), scores, strict=True):
        right = [positions[one.candidates[place]] for place in one.right]
        requested = positions[one.mention.head]
        yield JudgedMention(number, document.id, document.text, requested, right, of_heads)


def pronoun_maps(
    model: Pretrained,
    pronouns: Iterable[Pronoun],
    *,
    pooling: str = "sum",
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[JudgedMention]:
    """Attention between pronouns and those whom they may mean, in order."""
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is not an encoder\nname a BERT"
        )
    waiting: dict[str, tuple[int, Pronoun]] = {}

    def texts() -> Iterator[Text]:
        for number, one in enumerate(pronouns):
            name = f"{number} {one.id}"  # ids may repeat
            waiting[name] = number, one
            yield Text(0, name, one.text, None, one.file, one.line)

    for read, record in whole_maps(model, texts(), reading):
        number, one = waiting.pop(read.text.id)
        pronoun, *candidates = _places(model, one, read)
        if not pronoun or not all(candidates):
            message = f"the tokenizer leaves nothing of the pronoun {one.id!r}, or of a candidate"
            reading.problems.report(Problem(one.file, one.line, "", "no-tokens", message))
            continue
        scores = pronoun_scores(
            layer_weights(record, record.layers, allow_nan=True),
            pronoun,
            candidates,
            one.right,
            group=one.group,
            layers=record.layers,
            heads=record.heads,
            pooling=pooling,
        )
        right = [] if one.right is None else [candidates[one.right]]
        yield JudgedMention(number, one.id, one.text, pronoun, right, scores)


def _places(model: PretrainedBert, one: Pronoun, read: LabelledText) -> list[list[int]]:
    """Positions of the pronoun and of each candidate."""
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(one.text, max_length=1 << 30)
    offsets = encoded.offsets[0][: len(read.layout)]
    special = read.layout.special.tolist()
    return positions_of_words([one.span, *one.candidates], offsets, special)
