# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Corpus search by head in two calls: `index_heads` and `search_heads`.

Vectors are made in `build_token_index`, and compared in `nearest_tokens`; the commands
`flaxattn search build` and `flaxattn search query` do the same.
"""

import os
from collections.abc import Sequence

from flaxattn.errors import check_arguments
from flaxattn.measures.build_token_index import Wanted, build_head_index, token_vector
from flaxattn.measures.head_roles import Texts, text_source
from flaxattn.measures.nearest_tokens import Hit, nearest
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.token_index import HeadIndex, open_head_index


@check_arguments()
def index_heads(
    model: Pretrained,
    texts: Texts,
    out: str | os.PathLike[str],
    layers: Sequence[int],
    kind: str = "head_output",
    *,
    reading: ReadingOptions = DEFAULTS,
) -> HeadIndex:
    """Write an index with a vector of every token of a corpus, by head.

    Cost: one forward pass over the texts. On disk 2 L E + 4 L H bytes per token, and the texts.

    >>> import tempfile
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> index = fa.index_heads(model, ["The cat is sad."], tempfile.mkdtemp(), layers=[1])
    >>> hits = fa.search_heads(model, index, "The dog is sad.", "dog", 1, 0, top=1)
    >>> [hit.token.token for hit in hits]
    ['cat']

    Args:
        model: An encoder or a decoder with its tokenizer.
        texts: See `flaxattn.head_stats`; those with a tree give tokens a part of speech and a
            relation.
        out: Folder that is not there yet, or is empty.
        layers: Numbers of the layers, from 0.
        kind: `head_output`, the output of each head before the output projection; or `hidden`,
            the output of the layer.
        reading: How texts are read.

    Returns:
        The index, opened.

    Raises:
        InputError: For a model of another family, an unknown kind or layer, a folder that holds
            files, pairs of texts, or no text that can be used.
        CheckpointError: If it cannot be written.
    """
    each = text_source(texts).read(reading.problems)
    build_head_index(model, each, str(out), Wanted(kind, tuple(layers)), reading)
    return open_head_index(str(out))


@check_arguments()
def search_heads(
    model: Pretrained,
    index: HeadIndex | str | os.PathLike[str],
    text: str,
    token: int | str,
    layer: int,
    head: int | None = None,
    *,
    top: int = 20,
    one_per_text: bool = False,
) -> list[Hit]:
    """Find the contexts of a corpus in which a head does most nearly what it does in a text.

    After exBERT (Hoover et al. 2020), exactly: every token of the index is compared by cosine.

    >>> import tempfile
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> texts = ["The cat is sad.", "He saw the dog."]
    >>> index = fa.index_heads(model, texts, tempfile.mkdtemp(), layers=[1])
    >>> fa.search_heads(model, index, "The dog is sad.", "dog", 1, 0)[0].strongest.token
    'the'

    Args:
        model: The one that the index was made with.
        index: From `index_heads`, or its folder.
        text: Text with the token to search for.
        token: Position of the token, special tokens counted; or a word of the text, of which the
            first token counts.
        layer: Number of the layer.
        head: Number of the head; in an index of hidden states it may be left out.
        top: Number of contexts.
        one_per_text: Whether only the most similar token of each text counts.

    Returns:
        The most similar first: `similarity`, `text`, `token` with its part of speech and relation
        where there are trees, and `strongest`, the token that it attends to most.

    Raises:
        InputError: For another model than that of the index, a token that is not there, or a layer
            or head that is not in the index.
        StoreError: If what is read of the index is damaged.
    """
    opened = index if isinstance(index, HeadIndex) else open_head_index(str(index))
    vector = token_vector(model, opened, text, token, layer, head)[2]
    return nearest(opened, vector, layer, head, top=top, one_per_text=one_per_text)
