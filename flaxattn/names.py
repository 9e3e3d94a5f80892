# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The table of names: what a tensor is called in a Hugging Face BERT, and where it is in ours.

Only names and axes; nothing here reads a file or touches a number.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from flaxattn.errors import CheckpointError


class Row(NamedTuple):
    """One line of the table of names.

    Attributes:
        theirs: Tensor name in a Hugging Face checkpoint; `*` is the number of the layer.
        shape: Its axes there, in dimension letters; C is the number of labels.
        ours: Path in our parameter tree; with `*`, all layers are stacked on a leading axis.
        transposed: Whether ours has the two axes the other way round: torch keeps `[out, in]`.
    """

    theirs: str
    shape: str
    ours: str
    transposed: bool


def _table(text: str) -> tuple[Row, ...]:
    rows = (line.split() for line in text.strip().splitlines())
    return tuple(Row(theirs, shape, ours, how == "T") for theirs, shape, ours, how in rows)


# Hugging Face name                                shape ours                          T: transposed
BACKBONE = _table("""
embeddings.word_embeddings.weight                  VE    embeddings/word/embedding              =
embeddings.position_embeddings.weight              PE    embeddings/position/embedding          =
embeddings.token_type_embeddings.weight            TE    embeddings/token_type/embedding        =
embeddings.LayerNorm.weight                        E     embeddings/norm/scale                  =
embeddings.LayerNorm.bias                          E     embeddings/norm/bias                   =
encoder.layer.*.attention.self.query.weight        EE    encoder/layers/attention/query/kernel  T
encoder.layer.*.attention.self.query.bias          E     encoder/layers/attention/query/bias    =
encoder.layer.*.attention.self.key.weight          EE    encoder/layers/attention/key/kernel    T
encoder.layer.*.attention.self.key.bias            E     encoder/layers/attention/key/bias      =
encoder.layer.*.attention.self.value.weight        EE    encoder/layers/attention/value/kernel  T
encoder.layer.*.attention.self.value.bias          E     encoder/layers/attention/value/bias    =
encoder.layer.*.attention.output.dense.weight      EE    encoder/layers/attention/output/kernel T
encoder.layer.*.attention.output.dense.bias        E     encoder/layers/attention/output/bias   =
encoder.layer.*.attention.output.LayerNorm.weight  E     encoder/layers/attention_norm/scale    =
encoder.layer.*.attention.output.LayerNorm.bias    E     encoder/layers/attention_norm/bias     =
encoder.layer.*.intermediate.dense.weight          FE    encoder/layers/feed_forward/up/kernel  T
encoder.layer.*.intermediate.dense.bias            F     encoder/layers/feed_forward/up/bias    =
encoder.layer.*.output.dense.weight                EF    encoder/layers/feed_forward/down/kernel T
encoder.layer.*.output.dense.bias                  E     encoder/layers/feed_forward/down/bias  =
encoder.layer.*.output.LayerNorm.weight            E     encoder/layers/feed_forward_norm/scale =
encoder.layer.*.output.LayerNorm.bias              E     encoder/layers/feed_forward_norm/bias  =
pooler.dense.weight                                EE    pooler/dense/kernel                    T
pooler.dense.bias                                  E     pooler/dense/bias                      =
""")
HEADS = _table("""
cls.predictions.transform.dense.weight             EE    mlm_head/dense/kernel                  T
cls.predictions.transform.dense.bias               E     mlm_head/dense/bias                    =
cls.predictions.transform.LayerNorm.weight         E     mlm_head/norm/scale                    =
cls.predictions.transform.LayerNorm.bias           E     mlm_head/norm/bias                     =
cls.predictions.bias                               V     mlm_head/bias                          =
cls.predictions.decoder.weight                     VE    mlm_head/decoder/kernel                T
cls.seq_relationship.weight                        2E    nsp_head/kernel                        T
cls.seq_relationship.bias                          2     nsp_head/bias                          =
classifier.weight                                  CE    classifier/kernel                      T
classifier.bias                                    C     classifier/bias                        =
""")
DECODER, DECODER_BIAS, BIAS = (
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
)
WORDS = "embeddings.word_embeddings.weight"
# Names of old checkpoints, and the names they have now.
_RENAMED = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
# Buffers that some versions wrote: counters and zeros, not weights.
BUFFERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
_LAYER = re.compile(r"encoder\.layer\.(\d{1,6})\.")


def rows(paths: Iterable[str]) -> dict[str, Row]:
    """The row of the table for every parameter.

    Args:
        paths: Paths in a parameter tree; those of a task model have the encoder below `bert/`.
    """
    known = {row.ours: row for row in (*BACKBONE, *HEADS)}
    return {path: known[path.removeprefix("bert/")] for path in paths}


def numbered(row: Row, layers: int) -> list[str]:
    """The names a row stands for.

    Args:
        row: A row of the table.
        layers: L, the number of encoder layers.
    """
    if "*" not in row.theirs:
        return [row.theirs]
    return [row.theirs.replace("*", str(number)) for number in range(layers)]


def layer_numbers(names: Iterable[str]) -> set[int]:
    """Numbers of the encoder layers that occur in table names.

    Args:
        names: Names as `canonical` gives them.
    """
    return {int(match[1]) for name in names if (match := _LAYER.match(name))}


def is_known(name: str) -> bool:
    """Whether some BERT, with whatever head, has a tensor of this name.

    Args:
        name: A name as `canonical` gives it.
    """
    known = {row.theirs for row in (*BACKBONE, *HEADS)} | BUFFERS | {DECODER_BIAS}
    return _LAYER.sub("encoder.layer.*.", name) in known


def canonical(found: Iterable[str], tied: bool) -> dict[str, str]:
    """Names of the table for the names a checkpoint uses.

    Args:
        found: Names with or without `bert.`, new or of the time of `gamma` and `beta`.
        tied: Whether the masked-LM decoder is the word embedding. If it is not, transformers adds
            the decoder's own bias, and `cls.predictions.bias` is idle.

    Returns:
        The checkpoint's name by the table's name.

    Raises:
        CheckpointError: If one tensor occurs under two names.
    """
    names: dict[str, str] = {}
    for theirs in found:
        name = theirs.removeprefix("bert.")
        for old, new in _RENAMED:
            name = name.replace(old, new)
        if name in names:
            raise CheckpointError(
                f"The checkpoint holds one tensor under two names: {names[name]} and {theirs}.\n"
                "Remove one of them; which is right cannot be known."
            )
        names[name] = theirs
    if DECODER_BIAS in names and (not tied or BIAS not in names):
        names[BIAS] = names.pop(DECODER_BIAS)
    return names


def folded(texts: Iterable[str]) -> list[str]:
    """The texts, those that differ only in the number of the layer as one.

    Args:
        texts: Each begins with a name of the table.
    """
    layers: dict[str, list[int]] = {}
    for text in texts:
        number = _LAYER.match(text)
        entry = layers.setdefault(_LAYER.sub("encoder.layer.*.", text), [])
        entry += [int(number[1])] if number else []
    return [f"{text} (layer {_spans(n)})" if n else text for text, n in layers.items()]


def _spans(numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
