# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BLEU and chrF are sacrebleu's, with its signature; BLEU agrees with a count by hand."""

import math
import sys
from collections import Counter

import pytest
import sacrebleu

from flaxattn.errors import InputError, UnavailableError
from flaxattn.measures.translation_quality import bleu, chrf

HYPOTHESES = ["the cat sat on the mat today .", "A dog runs.", "nothing at all"]
RIGHT = ["the cat sat on the red mat .", "A dog is running.", "not a thing"]


def by_hand(hypotheses: list[str], right: list[str]) -> float:
    """Papineni et al. 2002 on texts whose words are parted by spaces, without smoothing."""
    logs = 0.0
    for n in range(1, 5):
        hits = total = 0
        for one, other in zip(hypotheses, right, strict=True):
            found, known = ngrams(one.split(), n), ngrams(other.split(), n)
            hits += sum((found & known).values())
            total += sum(found.values())
        logs += math.log(hits / total) / 4
    sizes = [sum(len(text.split()) for text in texts) for texts in (hypotheses, right)]
    return 100 * min(1.0, math.exp(1 - sizes[1] / sizes[0])) * math.exp(logs)


def ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def test_it_is_what_the_paper_defines() -> None:
    hypotheses, right = [HYPOTHESES[0], "a b c d e"], [RIGHT[0], "a b c d f g"]
    assert bleu(hypotheses, right).value == pytest.approx(by_hand(hypotheses, right))


def test_it_is_sacrebleu_with_its_signature() -> None:
    assert bleu(HYPOTHESES, RIGHT).value == sacrebleu.corpus_bleu(HYPOTHESES, [RIGHT]).score
    assert chrf(HYPOTHESES, RIGHT).value == sacrebleu.corpus_chrf(HYPOTHESES, [RIGHT]).score
    version = f"version:{sacrebleu.__version__}"
    assert (
        bleu(HYPOTHESES, RIGHT).signature
        == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    )
    assert chrf(HYPOTHESES, RIGHT).signature.endswith(version)


def test_case_and_tokeniser_are_in_the_signature() -> None:
    upper = [text.upper() for text in HYPOTHESES]
    found = bleu(upper, RIGHT, lowercase=True, tokenize="none")
    assert found.value == pytest.approx(
        bleu(HYPOTHESES, RIGHT, lowercase=True, tokenize="none").value
    )
    assert "case:lc" in found.signature
    assert "tok:none" in found.signature
    assert str(found) == f"{found.value:.2f} {found.signature}"


@pytest.mark.parametrize("score", [bleu, chrf])
def test_numbers_of_sentences_must_agree(score) -> None:
    with pytest.raises(InputError) as error:
        score(HYPOTHESES, RIGHT[:2])
    assert str(error.value).splitlines() == [
        "3 translations and 2 references",
        "line i of one must be the translation of the same sentence as line i of the other",
    ]
    with pytest.raises(InputError):
        score([], [])


def test_an_unknown_tokeniser() -> None:
    with pytest.raises(InputError, match="sacrebleu has no tokeniser 'moses'\nit has none, zh"):
        bleu(HYPOTHESES, RIGHT, tokenize="moses")


def test_without_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UnavailableError) as error:
        bleu(HYPOTHESES, RIGHT)
    assert str(error.value).splitlines() == [
        "BLEU and chrF need the package sacrebleu",
        "it is not installed",
        "pip install 'flaxattn[translation]'",
    ]
