# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of llama.cpp: configuration, tensors and tokenizer of a decoder in one file.

Tensors are dequantized while they are read, under the names and in the layout of Hugging Face. The
package `gguf` reads the file; it is imported when such a file is opened and not before.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Float
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from flaxattn.errors import CheckpointError, UnavailableError
from flaxattn.models.config_base import shown
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace.tensor_file import TensorFiles

_CONTROL, _USER = 3, 4  # values of token_type
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _splitters() -> dict[str, Any]:
    """Steps before byte pairs by the name that llama.cpp has for them."""
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _BYTES])
    return {
        "gpt-2": _BYTES,
        "smollm": digits,
        "starcoder": digits,
        "llama-bpe": _split(_LLAMA),
        "qwen2": _split(_QWEN),
    }


def byte_level_tokenizer(facts: Mapping[str, Any], template: str | None) -> Tokenizer:
    """A tokenizer of byte pairs, as of GPT-2."""
    kind, splitters = facts.get("pre", "gpt-2"), _splitters()
    kind = "gpt-2" if kind == "default" else kind
    if kind not in splitters:
        raise CheckpointError(
            f"its tokenizer splits texts as {kind!r}; flaxattn knows {', '.join(splitters)}"
        )
    vocabulary = {token: number for number, token in enumerate(facts["tokens"])}
    merges = [(pair[0], pair[1]) for pair in map(_pair, facts["merges"])]
    model = models.BPE(vocabulary, merges, ignore_merges=kind == "llama-bpe")
    backend = tokenizers.Tokenizer(model)
    if kind == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer, backend.decoder = splitters[kind], decoders.ByteLevel()
    return _finished(backend, facts, template, begins=kind == "llama-bpe")


def sentencepiece_tokenizer(facts: Mapping[str, Any], template: str | None) -> Tokenizer:
    """A tokenizer of SentencePiece's byte pairs, as of Llama 2 and Gemma."""
    tokens = facts["tokens"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = _merges(vocabulary, facts["scores"], facts["token_type"])
    unknown = tokens[facts.get("unknown_token_id", 0)]
    model = models.BPE(
        vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback="<0x00>" in vocabulary
    )
    backend = tokenizers.Tokenizer(model)
    prefix = facts.get("add_space_prefix", True)
    steps = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    last = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )
    return _finished(backend, facts, template, begins=True)


def _pair(merge: str) -> list[str]:
    return merge.split(" ", 1)


def _merges(
    vocabulary: Mapping[str, int], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Pairs of tokens that make a token, those of the highest score first."""

    def pairs() -> Iterator[tuple[float, int, str, str]]:
        for token, number in vocabulary.items():
            if kinds[number] in (_CONTROL, _USER) or len(token) < 2:
                continue
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if left in vocabulary and right in vocabulary:
                    yield -scores[number], number, left, right

    return [(left, right) for _, _, left, right in sorted(pairs())]


def _finished(
    backend: tokenizers.Tokenizer, facts: Mapping[str, Any], template: str | None, begins: bool
) -> Tokenizer:
    """The tokenizer with its special tokens; `begins` is whether it adds one by default."""
    tokens, kinds = facts["tokens"], facts.get("token_type", ())
    added = [
        AddedToken(token, normalized=False, special=kind == _CONTROL)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (_CONTROL, _USER)
    ]
    backend.add_tokens(added)
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    settings: dict[str, Any] = {
        name: tokens[facts[f"{key}_token_id"]]
        for name, key in names.items()
        if facts.get(f"{key}_token_id") is not None
    }
    first = [settings["bos_token"]] if facts.get("add_bos_token", begins) else []
    last = [settings["eos_token"]] if facts.get("add_eos_token", False) else []
    if first or last:
        around = " ".join([*first, "$A", *last])
        second = " ".join([*(f"{token}:1" for token in first), "$B:1", *(f"{t}:1" for t in last)])
        backend.post_processor = processors.TemplateProcessing(
            single=around,
            pair=f"{around} {second}",
            special_tokens=[(token, backend.token_to_id(token)) for token in {*first, *last}],
        )
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    return Tokenizer(backend, settings, template)


SUFFIX = ".gguf"
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NORMS_ON_BOTH_SIDES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# Metadata that a setting of Hugging Face is read from; those of all architectures.
_SETTINGS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
_TOKENS = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "pad_token_id": "padding_token_id",
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of an architecture in llama.cpp.

    Attributes:
        model_type: Model type of Hugging Face.
        stem: Stem of the names of its classes there.
        interleaved: Whether rows of queries and keys are reordered for rotary positions of pairs.
        plus_one: Whether scales of norms have 1 added to them.
        names: Tensors of a layer, where they differ from those of Llama.
        settings: Further settings, by their metadata.
        fixed: Settings that the metadata does not have.
        scalar_layers: Number of layers of the model whose scores are scaled by E / H, not by D.
    """

    model_type: str
    stem: str
    interleaved: bool = False
    plus_one: bool = False
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scalar_layers: int | None = None


_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh"}
_WINDOW = {"sliding_window": "attention.sliding_window"}
LAYOUTS = {
    "llama": Layout("llama", "Llama", interleaved=True),
    "qwen2": Layout("qwen2", "Qwen2"),
    "qwen3": Layout("qwen3", "Qwen3"),
    "gemma": Layout("gemma", "Gemma", plus_one=True, fixed=_GEMMA),
    "gemma2": Layout(
        "gemma2",
        "Gemma2",
        plus_one=True,
        names=_NORMS_ON_BOTH_SIDES,
        settings={
            **_WINDOW,
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        fixed=_GEMMA,
        scalar_layers=46,
    ),
    "gemma3": Layout(
        "gemma3_text",
        "Gemma3",
        plus_one=True,
        names=_NORMS_ON_BOTH_SIDES,
        settings=_WINDOW,
        fixed={**_GEMMA, "rope_local_base_freq": 10000.0},
        scalar_layers=62,
    ),
}
"""Architectures that are read, by the name that llama.cpp has for them."""


class GgufFile:
    """An open file.

    Attributes:
        path: Its path.
        metadata: Its facts by name.
        layout: Layout of its architecture.
    """

    def __init__(self, path: Path) -> None:
        """Open a file and read its header."""
        try:
            import gguf  # only such files need it
        except ImportError as error:
            raise UnavailableError(
                f'{path} needs the package gguf\ninstall it with: pip install "flaxattn[gguf]"'
            ) from error
        self.path = path
        try:
            reader = gguf.GGUFReader(path)
            self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        except Exception as error:  # the package raises whatever a damaged byte makes it raise
            raise CheckpointError(
                f"{path} is not a GGUF file that can be read: {type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else 'it ends too early'}\n"
                "Download or copy it again."
            ) from error
        self._dequantize: Callable[..., Any] = gguf.quants.dequantize
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        architecture = self.metadata.get("general.architecture")
        if architecture not in LAYOUTS:
            raise self._error(
                f"its architecture is {shown(architecture)}",
                f"flaxattn reads {', '.join(LAYOUTS)} from such files",
            )
        self._architecture = str(architecture)
        self.layout = LAYOUTS[self._architecture]
        self._check()

    def settings(self) -> dict[str, Any]:
        """The content that `config.json` would have."""
        layout, found = self.layout, {}
        for name, key in {**_SETTINGS, **layout.settings}.items():
            value = self._fact(key)
            if value is None and name in _SETTINGS and name != "num_key_value_heads":
                raise self._error(f"it lacks {self._architecture}.{key}", "download it again")
            if value is not None:
                found[name] = value
        found["vocab_size"] = int(self._tensors["token_embd.weight"].shape[1])
        width, heads = found["hidden_size"], found["num_attention_heads"]
        found["head_dim"] = self._fact("attention.key_length") or width // heads
        found["rope_theta"] = self._fact("rope.freq_base") or 10000.0
        scaling = self._fact("rope.scaling.type")
        if scaling == "linear":
            factor = self._fact("rope.scaling.factor")
            found["rope_scaling"] = {"rope_type": "linear", "factor": factor}
        if layout.names:  # scores of these are scaled by a number of their own
            by_width = found["num_hidden_layers"] == layout.scalar_layers
            found["query_pre_attn_scalar"] = width // heads if by_width else found["head_dim"]
        for name, key in _TOKENS.items():
            found[name] = self.metadata.get(f"tokenizer.ggml.{key}")
        if "blk.0.attn_q.bias" in self._tensors and layout.model_type == "llama":
            found["attention_bias"] = True
        return {
            "model_type": layout.model_type,
            "architectures": [f"{layout.stem}ForCausalLM"],
            "tie_word_embeddings": "output.weight" not in self._tensors,
            **found,
            **layout.fixed,
        }

    def tensors(self) -> "GgufTensors":
        """Its tensors under the names of Hugging Face."""
        return GgufTensors(self)

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None where the file holds none."""
        facts = {
            name.removeprefix("tokenizer.ggml."): value
            for name, value in self.metadata.items()
            if name.startswith("tokenizer.ggml.")
        }
        kind = facts.get("model")
        if kind is None or kind == "none":
            return None
        make = {"gpt2": byte_level_tokenizer, "llama": sentencepiece_tokenizer}.get(kind)
        if make is None:
            raise self._error(
                f"its tokenizer is of the kind {shown(kind)}",
                "flaxattn reads the kinds gpt2 and llama from such files",
            )
        try:
            return make(facts, self.metadata.get("tokenizer.chat_template"))
        except CheckpointError as error:
            raise self._error(str(error), "take the model as a Hugging Face directory") from error

    def names(self) -> dict[str, str]:
        """Names in the file by those of Hugging Face."""
        found = {}
        for name in self._tensors:
            theirs = _TOP.get(name)
            if theirs is None and (match := _BLOCK.fullmatch(name)) is not None:
                layer = {**_LAYER, **self.layout.names}.get(match[2])
                theirs = layer and f"model.layers.{match[1]}.{layer}.{match[3]}"
            if theirs is None:
                raise self._error(
                    f"it holds the tensor {name}, which a {self.layout.stem} here does not have",
                    "take the model as a Hugging Face directory",
                )
            found[theirs] = name
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, outputs first."""
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def quantization(self, name: str) -> str:
        """Kind of a tensor, such as Q4_1 or F32."""
        return str(self._tensors[name].tensor_type.name)

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """A tensor as Hugging Face has it, in float32."""
        tensor = self._tensors[name]
        try:
            array = np.asarray(self._dequantize(tensor.data, tensor.tensor_type), np.float32)
            array = array.reshape(self.shape(name))
        except (NotImplementedError, ValueError) as error:
            raise self._error(
                f"the tensor {name} of the kind {tensor.tensor_type.name} cannot be read",
                "download it again, or take another quantization",
            ) from error
        if self.layout.plus_one and name.endswith("norm.weight"):
            array = array - np.float32(1)
        if self.layout.interleaved and (match := re.search(r"\.attn_([qk])\.", name)):
            key = "head_count" if match[1] == "q" else "head_count_kv"
            heads = self._fact(f"attention.{key}") or self._fact("attention.head_count")
            pairs = array.reshape(heads, -1, 2, *array.shape[1:])
            array = pairs.swapaxes(1, 2).reshape(array.shape)
        return np.ascontiguousarray(array)

    def _fact(self, key: str) -> Any:
        """A fact of the architecture; of a float32, the decimal that it was written as."""
        value = self.metadata.get(f"{self._architecture}.{key}")
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def _check(self) -> None:
        """Refuse settings that would change the arithmetic and are not supported."""
        if (count := self.metadata.get("split.count", 1)) > 1:
            raise self._error(f"it is one of {count} parts", "join them with llama-gguf-split")
        if "token_embd.weight" not in self._tensors:
            raise self._error("it has no token_embd.weight", "take a file of a whole model")
        if self._fact("expert_count"):
            raise self._error("it is a mixture of experts", "take a model without experts")
        if "rope_freqs.weight" in self._tensors:
            raise self._error(
                "it holds rope_freqs, whose settings are not in the file",
                "take the model as a Hugging Face directory",
            )
        scaling = self._fact("rope.scaling.type")
        if scaling not in (None, "none", "linear"):
            raise self._error(
                f"rope.scaling.type is {shown(scaling)}",
                "take the model as a Hugging Face directory",
            )
        sizes = {self._fact("rope.dimension_count"), self._fact("attention.key_length")} - {None}
        sizes |= {self._fact("attention.value_length") or next(iter(sizes), None)} - {None}
        if len(sizes) > 1:
            raise self._error(
                f"depths of heads differ: {sorted(sizes)}",
                "take the model as a Hugging Face directory",
            )
        for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
            if isinstance(self._fact(key), list):
                raise self._error(f"{key} differs by layer", "take a model whose layers are alike")

    def _error(self, fact: str, advice: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {fact}.\n{advice[0].upper()}{advice[1:]}.")


class GgufTensors(TensorFiles):
    """The tensors of a GGUF file, dequantized to float32 when they are read."""

    def __init__(self, file: GgufFile) -> None:
        self.directory, self._file, self._names = file.path, file, file.names()
        self.shapes = {theirs: file.shape(name) for theirs, name in self._names.items()}

    def letters(self) -> dict[str, str]:
        """Kinds of quantization by name."""
        return {theirs: self._file.quantization(name) for theirs, name in self._names.items()}

    def dtype(self, name: str) -> np.dtype[Any]:
        """Float32."""
        return np.dtype(np.float32)

    def read(self, name: str, into: np.ndarray | None = None) -> np.ndarray:
        """Read one tensor; see `TensorFiles.read`."""
        array = self._file.read(self._names[name])
        if into is None:
            return array
        into[...] = array
        return into
