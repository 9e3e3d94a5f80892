# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BLEU and chrF of translations, by sacrebleu, each with the signature that makes it comparable.

It takes texts and runs no model. `pip install 'flaxattn[translation]'` brings sacrebleu.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from flaxattn.errors import InputError, UnavailableError


class Score(NamedTuple):
    """A score with its signature, which says what it is comparable with (Post 2018).

    Attributes:
        value: Score from 0 to 100.
        signature: Signature of sacrebleu: number of references, case, tokenizer, smoothing and
            version.
    """

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} {self.signature}"


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Score:
    """Corpus BLEU (Papineni et al. 2002) on detokenised texts."""
    metrics = check_bleu(hypotheses, references, tokenize)
    return _score(metrics.BLEU(lowercase=lowercase, tokenize=tokenize), hypotheses, references)


def check_bleu(sentences: Sequence[str], references: Sequence[str], tokenize: str) -> Any:
    """Refuse texts that `bleu` cannot score; may be called with sources before translation."""
    _check(sentences, references)
    metrics = sacrebleu_metrics()
    known = metrics.BLEU.TOKENIZERS
    if tokenize not in known:
        raise InputError(f"sacrebleu has no tokeniser {tokenize!r}\nit has {', '.join(known)}")
    return metrics


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 (Popović 2015); arguments and errors as for `bleu`."""
    _check(hypotheses, references)
    return _score(sacrebleu_metrics().CHRF(), hypotheses, references)


def sacrebleu_metrics() -> Any:
    """The module `sacrebleu.metrics`."""
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise UnavailableError(
            "BLEU and chrF need the package sacrebleu\n"
            "it is not installed\n"
            "pip install 'flaxattn[translation]'"
        ) from error
    return metrics


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(float(found.score), str(metric.get_signature()))


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        raise InputError(
            f"{len(hypotheses)} translations and {len(references)} references\n"
            "line i of one must be the translation of the same sentence as line i of the other"
        )
