# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention that inseq saved as JSON, as a trace; inseq itself is never imported.

`FeatureAttributionOutput.save` writes objects as `__instance_type__` beside `attributes`, and
scores `[key, query, L, H]` in base64: as safetensors (0.7), or as plain or gzipped bytes beside a
dtype and a shape (before). Only names and numbers are taken; no class that a file names is looked
up.
"""

import base64
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

_MOST = 2 << 30  # bytes that a compressed file or array may unfold to
_UNFOLDED = 40  # times its size that a compressed file may have; numbers as text have 3 to 10
_SMALL = 16 << 20  # bytes that any file may unfold to
_DTYPES = ("float16", "float32", "float64")


@check_arguments()
def from_inseq(path: str | os.PathLike[str], sequence: int = 0) -> Trace:
    """Make a trace of attention that inseq saved: `model.attribute(…, method="attention")`.

    For a decoder alone, the trace has the rows that generated: a window of queries, each named
    after the token that was read there, with weights on the tokens before it. For an
    encoder-decoder, the trace has `cross` and, where it was saved, `encoder`; self-attention of its
    decoder is left out, because inseq drops the weights on the first position. NaN, with which
    inseq marks what no row could see, is 0.

    >>> import json
    >>> from pathlib import Path
    >>> import flaxattn as fa
    >>> def saved(kind, **fields):  # as `out.save("attention.json")` writes it
    ...     return {"__instance_type__": ["inseq.data.attribution", kind], "attributes": fields}
    >>> tokens = [saved("TokenWithId", token=token, id=0) for token in ("a", "b", "c")]
    >>> rows = {"dtype": "float32", "shape": [3, 1, 1, 1], "Corder": True}
    >>> rows["__ndarray__"] = [[[[0.25]]], [[[0.75]]], [[[0.0]]]]  # [K, Q, L, H]
    >>> text = {"source": tokens[:2], "target": tokens, "attr_pos_start": 2, "attr_pos_end": 3}
    >>> text |= {"source_attributions": None, "target_attributions": rows}
    >>> texts = [saved("MultiDimensionalSequenceOutput", **text)]
    >>> output = saved("FeatureAttributionOutput", sequence_attributions=texts, info={})
    >>> _ = Path("attention.json").write_text(json.dumps(output), encoding="utf-8")
    >>> fa.from_inseq("attention.json").decoder.weights.shape
    (1, 1, 1, 1, 3)

    Args:
        path: A file of `out.save(path)`, gzipped or not. Scores must not have been aggregated over
            layers and heads.
        sequence: Number of the text among those saved.

    Returns:
        A trace of one text with NumPy arrays.

    Raises:
        InputError: If there is no such file or text, it is not attention of layers and heads, or
            shapes and tokens do not fit.
    """
    file = Path(path)
    metadata = _object(_read(file))
    texts = metadata.get("sequence_attributions")
    if not isinstance(texts, list) or not -len(texts) <= sequence < len(texts):
        count = len(texts) if isinstance(texts, list) else 0
        raise InputError(
            f"{file} holds {count} texts of inseq; there is no {sequence}.\n"
            "Give a file that inseq's out.save(path) wrote, and a text it holds."
        )
    text, info = _object(texts[sequence]), _object(metadata.get("info") or {})
    try:
        source, target = (_tokens(text[name]) for name in ("source", "target"))
        model = str(info.get("model_name") or "")
        if text.get("source_attributions") is not None:
            return _encoder_decoder(file, text, source, target, model)
        return _decoder(file, text, target, model)
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(file, f"it lacks {error}") from error


def _read(file: Path) -> Any:
    """The JSON of a file, gzipped or not."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror or error}.\nName a file of inseq."
        ) from error
    text = _unzipped(file, data) if data[:2] == b"\x1f\x8b" else data
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(file, f"it is not JSON ({str(error).splitlines()[0]})") from error


def _unzipped(file: Path, data: bytes) -> bytes:
    """Gzipped bytes unfolded, unless there are too many."""
    machine = zlib.decompressobj(wbits=31)
    most = min(_MOST, max(_SMALL, _UNFOLDED * len(data)))
    try:
        found = machine.decompress(data, most)
    except zlib.error as error:
        raise _damaged(file, f"its gzip cannot be read ({error})") from error
    if not machine.eof:
        raise _damaged(file, f"its gzip is cut, or unfolds to more than {most >> 20} MB")
    return found


def _object(value: Any) -> Mapping[str, Any]:
    """An object's attributes, whatever class the file says it is of."""
    if isinstance(value, Mapping) and "__instance_type__" in value:
        value = value.get("attributes", {})
    return value if isinstance(value, Mapping) else {}


def _tokens(rows: Sequence[Any]) -> list[str]:
    return [str(_object(row)["token"]) for row in rows]


def _encoder_decoder(
    file: Path, text: Mapping[str, Any], source: list[str], target: list[str], model: str
) -> Trace:
    """`cross`, and `encoder` where its weights were saved."""
    written = target[text.get("attr_pos_start") or 0 : text.get("attr_pos_end")]
    cross = _scores(file, "source_attributions", text, len(written), len(source))
    others = _object(text.get("sequence_scores") or {})
    encoder = None
    if others.get("encoder_self_attentions") is not None:
        encoder = _scores(file, "encoder_self_attentions", others, len(source), len(source))
    return Trace(
        cross=_record(cross),
        encoder=None if encoder is None else _record(encoder),
        tokens=[source],
        written=[written],
        model=model,
    )


def _decoder(file: Path, text: Mapping[str, Any], target: list[str], model: str) -> Trace:
    """The rows that generated, as a window of queries: each read the token before what it wrote."""
    start = text.get("attr_pos_start") or 0
    stop = text.get("attr_pos_end") or len(target)
    weights = _scores(file, "target_attributions", text, stop - start, len(target))
    if start < 1:
        raise InputError(
            f"{file}: its first row of attention stands before the first token.\n"
            "Save what inseq generated from a prompt of at least one token."
        )
    record = _record(weights, query_window=(start - 1, stop - 1))
    return Trace(decoder=record, tokens=[target], model=model)


def _record(weights: Any, **numbers: Any) -> AttentionRecord:
    layers, heads = range(weights.shape[0]), range(weights.shape[2])
    return AttentionRecord(weights=weights, layers=tuple(layers), heads=tuple(heads), **numbers)


def _scores(
    file: Path, name: str, held: Mapping[str, Any], queries: int, keys: int
) -> Float[np.ndarray, "L 1 H Q K"]:
    """Scores as weights."""
    array = _array(file, name, held[name])
    if array.ndim != 4 or array.shape[:2] != (keys, queries):
        raise InputError(
            f"{file}: {name} has shape {array.shape}, expected [{keys} keys, {queries} queries, "
            "layers, heads].\nSave attention before it is aggregated: "
            'model.attribute(text, method="attention").save(path).'
        )
    weights = np.nan_to_num(array.transpose(2, 3, 1, 0)[:, None].astype(np.float32))
    low, high = float(weights.min()), float(weights.sum(-1).max())
    if not (low >= 0 and high <= 1.02):
        raise InputError(
            f"{file}: {name} is not attention: weights from {low:.4g}, sums of rows to {high:.4g}."
            '\nSave what method="attention" computed, before it is normalised otherwise.'
        )
    return weights


def _array(file: Path, name: str, value: Any) -> np.ndarray:
    """An array in any of inseq's spellings."""
    try:
        if isinstance(value, str):
            return safetensors.numpy.load(base64.b64decode(value, validate=True))["attribution"]
        data, dtype, shape = (value[key] for key in ("__ndarray__", "dtype", "shape"))
        if dtype not in _DTYPES:
            raise ValueError(f"its dtype is {dtype}")
        if not isinstance(data, str):
            return np.asarray(data, dtype).reshape(shape)
        kind, _, text = data.partition(":")
        raw = base64.b64decode(text, validate=True)
        raw = _limited(raw, math.prod(shape) * np.dtype(dtype).itemsize) if "gz" in kind else raw
        return np.frombuffer(raw, dtype).reshape(shape)
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise _damaged(file, f"{name} cannot be read ({str(error).splitlines()[0]})") from error
    except safetensors.SafetensorError as error:
        raise InputError(
            f"{file}: {name} cannot be read: {str(error).splitlines()[0]}.\n"
            'Save it in another precision: out.save(path, scores_precision="float16").'
        ) from error


def _limited(data: bytes, size: int) -> bytes:
    """Gzipped bytes unfolded to the size that is expected of them, no further."""
    if size > _MOST:
        raise ValueError(f"it would take {size} bytes")
    found = zlib.decompressobj(wbits=31).decompress(data, size + 1)
    if len(found) != size:
        raise ValueError(f"it has {'more' if len(found) > size else 'less'} than {size} bytes")
    return found


def _damaged(file: Path, reason: str) -> InputError:
    return InputError(f"{file} cannot be taken for a file of inseq: {reason}.\nSave it again.")
