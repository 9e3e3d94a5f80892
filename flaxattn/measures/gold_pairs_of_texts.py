# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs of texts as a model reads them."""

import dataclasses
from collections.abc import Iterable, Sequence

from flaxattn.corpus.texts import Text
from flaxattn.measures.gold_pairs import GoldPair, gold_pairs
from flaxattn.pipeline.labelled_texts import label_texts
from flaxattn.pipeline.reading_options import DEFAULTS
from flaxattn.pretrained.pretrained_model import Pretrained


def pairs_of_texts(
    model: Pretrained,
    texts: Sequence[Text],
    claims: Iterable[str],
    relations: Sequence[str],
    *,
    causal: bool,
) -> list[dict[str, list[GoldPair]]]:
    """Find the pairs of claims in some texts as a model reads them.

    Args:
        model: With its tokenizer.
        texts: The texts, with trees where claims are about these; cut to the model's limit.
        claims: Names of claims.
        relations: What `any` stands for.
        causal: As for `gold_pairs`.

    Returns:
        Pairs by claim for each text; only of claims that have any.
    """
    if not texts:
        return []
    options = dataclasses.replace(DEFAULTS, truncate=True).again
    layouts = {one.text.id: one.layout for one in label_texts(model, texts, options)}
    names = list(dict.fromkeys(claims))

    def pairs(text: Text) -> dict[str, list[GoldPair]]:
        layout = layouts.get(text.id)
        if layout is None:
            return {}
        found = {name: gold_pairs(layout, name, relations, causal=causal) for name in names}
        return {name: some for name, some in found.items() if some}

    return [pairs(text) for text in texts]
