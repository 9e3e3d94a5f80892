# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention that other programs computed, as a trace: Hugging Face, TransformerLens, inseq.

Objects are read by the names of their fields, so neither torch nor these programs are ever
imported. Weights are checked to be attention: rows that sum to one. Plain arrays go straight to
`Trace.from_arrays`.

inseq's `FeatureAttributionOutput.save` writes JSON: objects as `__instance_type__` beside
`attributes`, and scores `[key, query, L, H]` in base64: as safetensors (0.7), or as plain or
gzipped bytes beside a dtype and a shape (before). Only names and numbers are taken; no class that a
file names is looked up.
"""

import base64
import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError, check_arguments, keywords_of
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace, as_numpy

Tokens = Sequence[str] | Sequence[Sequence[str]]
_SLACK = 0.02  # of a row's sum; 512 weights of bfloat16 err by less than half of it
_HUGGING_FACE = {
    "attentions": "attentions",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
_WRITTEN = ("decoder_attentions", "attentions")
"""Attention of the side that `generate` writes."""
_HOOK = re.compile(r"(blocks|encoder|decoder)\.(\d+)\.(attn|cross_attn)\.hook_(\w+)")
# What a TransformerLens hook is called in a record.
_LENS = {
    "pattern": "weights",
    "attn_scores": "scores",
    "q": "query",
    "k": "key",
    "rot_q": "query",
    "rot_k": "key",
    "v": "value",
    "z": "head_output",
}
_ROTATED = "rot_"  # queries and keys of which the scores are made, in place of those before
_OF_HEADS = ("query", "key", "value", "head_output")


@check_arguments(0, keywords_of(Trace))
def from_huggingface(
    outputs: Any,
    tokens: Tokens,
    decoder_tokens: Tokens = (),
    *,
    mask: Bool[Any, "B S"] | None = None,
    decoder_mask: Bool[Any, "B T"] | None = None,
    side: str | None = None,
    **fields: Any,
) -> Trace:
    """Make a trace of what a model of Hugging Face transformers returned.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> layer = np.full((1, 2, 3, 3), 1 / 3, np.float32)  # [B, H, Q, K]
    >>> trace = fa.from_huggingface((layer, layer), ["a", "b", "c"])
    >>> trace.encoder.weights.shape
    (2, 1, 2, 3, 3)

    Args:
        outputs: What a call with `output_attentions=True` returned; or what `generate` returned
            with `return_dict_in_generate=True` as well, whose steps are put together; or a tuple of
            one array per layer, `[B, H, Q, K]`, or `[H, Q, K]` of a single sequence. Arrays are of
            torch, NumPy or JAX.
        tokens: Token strings, a list per sequence; of a single sequence one list will do. Of
            `generate` without the last one that was written, which was never read, and of several
            returned sequences for each of them, or for each source of an encoder-decoder.
        decoder_tokens: What the decoder read, where there is one beside an encoder.
        mask: True, or 1, at real positions: the model's `attention_mask`.
        decoder_mask: The same of the decoder.
        side: Where `attentions` belong: `encoder` or `decoder`. Default the decoder if every token
            sees only itself and what is before it.
        **fields: Other fields of a trace, such as `special`, `segments` and `model`.

    Returns:
        A trace with NumPy arrays. Cost: every array is copied to the host once.

    Raises:
        InputError: If no attention is there, layers or tokens do not fit, or the real rows do not
            sum to one within 0.02.
    """
    given = _fields_of(outputs)
    beams = _beams_of(outputs)
    whole = {name: _layers(name, value, beams) for name, value in given.items()}
    rows, read = _lists(tokens), _lists(decoder_tokens)
    masks = {"mask": _mask(mask), "decoder_mask": _mask(decoder_mask)}
    if rows and {"encoder_attentions", "decoder_attentions"} <= whole.keys():
        count = whole["decoder_attentions"].shape[1]  # returned sequences, several of each source
        each = whole["encoder_attentions"] = _each(whole["encoder_attentions"], count, axis=1)
        rows = [row for row in rows for _ in range(each.shape[1] // len(rows) or 1)]
        if masks["mask"] is not None:
            masks["mask"] = _each(masks["mask"], count, axis=0)
    if beams is not None:
        own = "mask" if "attentions" in whole else "decoder_mask"
        read_ones = _read_positions(beams, next(whole[n] for n in _WRITTEN if n in whole))
        real = masks[own]
        masks[own] = read_ones if real is None else read_ones & _each(real, len(beams), axis=0)
    sides: dict[str, Any] = {}
    for name, weights in whole.items():
        own = _HUGGING_FACE[name] if name != "attentions" else side or _side_of(weights, masks)
        sides[own] = weights
    alone = "decoder" in sides and "cross" not in sides and not read
    for own, weights in sides.items():
        queries = rows if own == "encoder" or alone else read
        keys = read if own == "decoder" and not alone else rows
        real = masks["mask"] if queries is rows else masks["decoder_mask"]
        _check_tokens(own, weights.shape, queries, keys)
        _check_rows(own, weights, real)
    records: dict[str, Any] = {own: _record(weights=weights) for own, weights in sides.items()}
    kept: dict[str, Any] = {name: value for name, value in masks.items() if value is not None}
    return Trace(**records, tokens=rows, decoder_tokens=read, **kept, **fields)


@check_arguments(0, keywords_of(Trace))
def from_transformer_lens(
    cache: Any, tokens: Tokens, decoder_tokens: Tokens = (), **fields: Any
) -> Trace:
    """Make a trace of a TransformerLens cache, such as `model.run_with_cache(text)[1]`.

    Patterns become `weights`; scores, q, k, v and z are taken where they were cached. With rotary
    positions, queries and keys are those after the rotation (`hook_rot_q`, `hook_rot_k`), from
    which the scores are computed. Heads that share a key or value (grouped queries) each get a copy
    of it.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> cache = {"blocks.0.attn.hook_pattern": np.eye(3, dtype=np.float32)[None, None]}
    >>> trace = fa.from_transformer_lens(cache, ["a", "b", "c"])
    >>> trace.decoder.weights.shape
    (1, 1, 1, 3, 3)

    Args:
        cache: A mapping with names such as `blocks.0.attn.hook_pattern`; of an encoder-decoder
            `encoder.…` and `decoder.…`. Arrays have a batch axis or not.
        tokens: Token strings, as `model.to_str_tokens(text)` gives them.
        decoder_tokens: What the decoder read, where there is one beside an encoder.
        **fields: Other fields of a trace, such as `mask`, `special` and `model`.

    Returns:
        A trace with NumPy arrays and the numbers of the layers that were cached.

    Raises:
        InputError: If the cache holds no pattern, one was cached in some layers only, or shapes,
            tokens or the sums of rows are wrong.
    """
    found = _hooks(cache)
    rows, read = _lists(tokens), _lists(decoder_tokens)
    mask = _mask(fields.pop("mask", None))
    records: dict[str, Any] = {}
    for (stack, kind), layers in found.items():
        record = _lens_record(f"{stack}.*.{kind}", layers)
        cross = kind == "cross_attn"
        own = "cross" if cross else stack
        if stack == "blocks":
            own = _side_of(record.weights, {"mask": mask})
        queries = rows if stack != "decoder" else read
        keys = rows if cross else queries
        _check_tokens(own, np.shape(record.weights), queries, keys)
        _check_rows(own, np.asarray(record.weights), mask if queries is rows else None)
        records[own] = record
    if mask is not None:
        fields["mask"] = mask
    return Trace(**records, tokens=rows, decoder_tokens=read, **fields)


def _fields_of(outputs: Any) -> dict[str, Any]:
    """The attention in an output, by Hugging Face's names."""
    if isinstance(outputs, Mapping) or any(hasattr(outputs, name) for name in _HUGGING_FACE):
        named = outputs if isinstance(outputs, Mapping) else vars(outputs)
        found = {n: v for n in _HUGGING_FACE if (v := named.get(n)) is not None and len(v)}
    else:
        found = {"attentions": outputs} if isinstance(outputs, Sequence) and len(outputs) else {}
    if not found or any(_has_none(value) for value in found.values()):
        raise InputError(
            f"No attention is in this {type(outputs).__name__}: expected one of "
            f"{', '.join(_HUGGING_FACE)}, an array per layer.\n"
            'Load the model with attn_implementation="eager" and call it with '
            "output_attentions=True."
        )
    return found


def _has_none(value: Any) -> bool:
    """Return whether a layer, or a layer of a step, was not returned."""
    layers = [value] if not isinstance(value, list | tuple) else value
    return any(
        layer is None or (isinstance(layer, list | tuple) and _has_none(layer)) for layer in layers
    )


def _beams_of(outputs: Any) -> Int[np.ndarray, "N T"] | None:
    """Hypothesis that each token of each returned sequence was chosen from, with beams."""
    named = outputs if isinstance(outputs, Mapping) else getattr(outputs, "__dict__", {})
    steps = next((named[name] for name in _WRITTEN if named.get(name)), None)
    if not steps or not isinstance(steps[0], list | tuple):
        return None
    if (beams := named.get("beam_indices")) is not None:
        return as_numpy(beams)
    sequences, rows = named.get("sequences"), len(steps[0][0])
    if sequences is not None and len(sequences) != rows:
        raise InputError(
            f"attention of {rows} hypotheses, and {len(sequences)} sequences: which beam each "
            "token is of, is not said.\n"
            "Call generate with return_dict_in_generate=True and output_scores=True, which returns "
            "beam_indices."
        )
    return None


def _each(array: np.ndarray, count: int, axis: int) -> np.ndarray:
    """The array with every row as often as there are sequences of it."""
    times, rest = divmod(count, array.shape[axis])
    return array if rest or times < 2 else np.repeat(array, times, axis=axis)


def _read_positions(beams: Int[np.ndarray, "N T"], weights: np.ndarray) -> Bool[np.ndarray, "N Q"]:
    """Mask of the positions that were read of each sequence, up to its end."""
    steps = beams[:, 1:]
    real = np.ones((len(beams), weights.shape[3]), bool)
    real[:, weights.shape[3] - steps.shape[1] :] = steps >= 0
    return real


def _layers(
    name: str, value: Sequence[Any], beams: Int[np.ndarray, "N T"] | None = None
) -> Float[np.ndarray, "L B H Q K"]:
    """All layers of one side; the steps of `generate` are put together, key by key."""
    if not isinstance(value[0], list | tuple):
        return _stack(name, value)
    steps = [[as_numpy(layer) for layer in step] for step in value]
    if beams is not None:
        steps = [
            [_chosen(a, beams, n) for a in step] for n, step in enumerate(steps[: beams.shape[1]])
        ]
    layers = zip(*steps, strict=True)
    return _stack(name, [_together(name, layer) for layer in layers])


def _chosen(
    array: Float[np.ndarray, "R H Q K"], beams: Int[np.ndarray, "N T"], step: int
) -> Float[np.ndarray, "N H Q K"]:
    """The rows of a step that the returned sequences went through; zeros after their end."""
    rows = beams[:, step]
    return np.where(rows[:, None, None, None] >= 0, array[np.maximum(rows, 0)], 0)


def _together(
    name: str, steps: Sequence[Float[np.ndarray, "B H Q K"]]
) -> Float[np.ndarray, "B H Q K"]:
    """The steps of one layer; those with a window or a fixed cache hold other keys than all."""
    known, parts = 0, []
    for step in steps:
        queries, keys = step.shape[-2:]
        if known and queries == known + 1 > 1:  # no cache: all was read again
            step, queries = step[..., -1:, :], 1
        known += queries
        if name != "cross_attentions":
            if step[..., known:].any():
                raise InputError(
                    f"{name}: a step of generate attends to {keys} keys, and {known} tokens were "
                    "read.\nPass the steps of one call of generate, from the first on."
                )
            step = step[..., :known]
            before = known - step.shape[-1]  # what has left a window
            step = np.pad(step, [(0, 0)] * (step.ndim - 1) + [(before, 0)])
        parts.append(step)
    longest = max(part.shape[-1] for part in parts)
    return np.concatenate([_widened(part, longest) for part in parts], axis=-2)


def _stack(name: str, layers: Sequence[Any]) -> Float[np.ndarray, "L B H Q K"]:
    arrays = [as_numpy(layer) for layer in layers]
    arrays = [array[None] if array.ndim == 3 else array for array in arrays]
    shapes = [array.shape for array in arrays]
    if len(set(shapes)) != 1 or len(shapes[0]) != 4:
        raise InputError(
            f"{name}: expected layers of one shape [B, H, Q, K], received {_some(shapes)}.\n"
            "Take all layers of one forward pass, each with its head axis."
        )
    return np.stack(arrays)


def _some(values: Sequence[Any]) -> str:
    """The first few values, for a message."""
    return ", ".join(map(str, values[:3])) + (", …" if len(values) > 3 else "")


def _widened(step: Float[np.ndarray, "B H Q K"], width: int) -> Float[np.ndarray, "B H Q W"]:
    """A step that knew fewer keys, with zeros on those that came later."""
    return np.pad(step, [(0, 0)] * (step.ndim - 1) + [(0, width - step.shape[-1])])


def _lists(tokens: Tokens) -> list[list[str]]:
    """A list of tokens per sequence."""
    single = len(tokens) > 0 and isinstance(tokens[0], str)
    rows: Iterable[Any] = [tokens] if single else tokens
    return [list(row) for row in rows]


def _mask(mask: Any) -> Bool[np.ndarray, "B S"] | None:
    """A mask with a batch axis."""
    return None if mask is None else np.atleast_2d(as_numpy(mask)).astype(bool)


def _side_of(weights: Any, masks: Mapping[str, Any]) -> str:
    """The decoder if no real position sees a later one, else the encoder."""
    visible = np.asarray(weights)
    if (mask := masks.get("mask")) is not None and mask.shape == (
        visible.shape[1],
        visible.shape[3],
    ):
        visible = np.where(mask[None, :, None, :, None], visible, 0)
    causal = visible.shape[-1] > 1 and not np.triu(visible, 1).any()
    return "decoder" if causal else "encoder"


def _record(**arrays: Any) -> AttentionRecord:
    count, heads = arrays["weights"].shape[0], arrays["weights"].shape[2]
    return AttentionRecord(**arrays, layers=tuple(range(count)), heads=tuple(range(heads)))


def _check_tokens(
    side: str, shape: Sequence[int], queries: list[list[str]], keys: list[list[str]]
) -> None:
    counts = [sorted({len(row) for row in rows}) for rows in (queries, keys)]
    if [[shape[3]], [shape[4]]] != counts or {len(queries), len(keys)} != {shape[1]}:
        raise InputError(
            f"{side}: its weights are of {shape[1]} sequences, {shape[3]} queries by {shape[4]} "
            f"keys;\nreceived tokens of {len(queries)} sequences of length {_lengths(counts[0])} "
            f"that attend to {len(keys)} of length {_lengths(counts[1])}.\n"
            "Give one list of tokens per sequence, padding and special tokens too."
        )


def _lengths(counts: Sequence[int]) -> str:
    return " and ".join(map(str, counts)) or "0"


def _check_rows(side: str, weights: Any, mask: Bool[np.ndarray, "B Q"] | None) -> None:
    """See that every real row is a distribution over keys."""
    sums = np.asarray(weights, np.float32).sum(-1)
    if mask is not None and mask.shape == (sums.shape[1], sums.shape[3]):
        sums = np.where(mask[None, :, None], sums, 1)
    wrong = ~(np.abs(sums - 1) <= _SLACK)
    if wrong.any():
        layer, sequence, head, query = np.argwhere(wrong)[0].tolist()
        raise InputError(
            f"{side}: layer {layer}, sequence {sequence}, head {head}, query {query} sums to "
            f"{sums[layer, sequence, head, query]:.4g} over its keys, not to 1.\n"
            "Weights after dropout or before the softmax are not attention: call model.eval(), and "
            "give a mask for padding."
        )


def _hooks(cache: Any) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    """Cached arrays of attention: by stack and kind, then layer, then hook."""
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    if not hasattr(cache, "keys"):
        raise InputError(
            "from_transformer_lens cannot use this cache.\n"
            f"Expected a mapping of hooks to arrays, received {type(cache).__name__}.\n"
            "Pass model.run_with_cache(text)[1]."
        )
    names = map(str, cache.keys())  # a cache iterates over values in some versions
    matches = [match for name in names if (match := _HOOK.fullmatch(name))]
    rotated = {(m[1], m[3], m[4].removeprefix(_ROTATED)) for m in matches if _ROTATED in m[4]}
    for match in matches:
        if match[4] in _LENS and (match[1], match[3], match[4]) not in rotated:
            hooks = found.setdefault((match[1], match[3]), {}).setdefault(int(match[2]), {})
            hooks[match[4]] = as_numpy(cache[match[0]])
    found = {key: dict(sorted(layers.items())) for key, layers in found.items()}
    if not any("pattern" in hooks for layers in found.values() for hooks in layers.values()):
        raise InputError(
            "This cache holds no attention pattern: expected names such as "
            f"blocks.0.attn.hook_pattern, received {_some(list(cache.keys())) or 'none'}.\n"
            "Cache them: model.run_with_cache(text, names_filter=lambda n: 'attn.hook' in n)."
        )
    return found


def _lens_record(where: str, layers: Mapping[int, Mapping[str, Any]]) -> AttentionRecord:
    """The record of one stack."""
    cached = [hook for hook in _LENS if any(hook in hooks for hooks in layers.values())]
    for hook in (*cached, "pattern"):
        if missing := [layer for layer, hooks in layers.items() if hook not in hooks]:
            raise InputError(
                f"{where}.hook_{hook} is missing in layers {_some(missing)}; layers "
                f"{_some(list(layers))} were cached.\n"
                "Cache the same hooks in every layer you want, or drop the layers without them."
            )
    stacked: dict[str, Any] = {
        _LENS[hook]: _batched(f"{where} {_LENS[hook]}", [h[hook] for h in layers.values()])
        for hook in cached
    }
    heads = stacked["weights"].shape[2]
    for name in _OF_HEADS:
        if name in stacked and stacked[name].shape[3] != heads:
            stacked[name] = np.repeat(stacked[name], heads // stacked[name].shape[3], axis=3)
    return AttentionRecord(**stacked, layers=tuple(layers), heads=tuple(range(heads)))


def _batched(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Layers stacked, `[L, B, H, Q, K]` or `[L, B, S, H, D]`."""
    shapes = [array.shape for array in arrays]
    if len(set(shapes)) != 1 or len(shapes[0]) not in (3, 4):
        raise InputError(
            f"{name}: expected layers of one shape with three axes, or four with a batch, received "
            f"{_some(shapes)}.\nCache one forward pass of a whole model."
        )
    return np.stack([array if array.ndim == 4 else array[None] for array in arrays])


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
        cross=_inseq_record(cross),
        encoder=None if encoder is None else _inseq_record(encoder),
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
    record = _inseq_record(weights, query_window=(start - 1, stop - 1))
    return Trace(decoder=record, tokens=[target], model=model)


def _inseq_record(weights: Any, **numbers: Any) -> AttentionRecord:
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
