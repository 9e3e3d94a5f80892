# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What torch transformers computes on small random GPT-2s: the cases, and the script.

`python tests/golden/make_gpt2_golden.py` (with torch and transformers) writes `gpt2.npz` beside
this file. As in `make_golden.py`, weights and inputs come from NumPy's frozen `RandomState`, and
are drawn so that attention is peaked and every term matters.
"""

import dataclasses
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("gpt2.npz")
LM, BASE, CLASSIFIER = "GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification"


@dataclasses.dataclass(frozen=True)
class Case:
    """One model and one batch.

    `lengths` are the real positions of each text, `left` puts the padding before them.
    """

    head: str = LM
    lengths: tuple[int, ...] = (13, 6, 9)
    left: bool = False
    settings: tuple[tuple[str, Any], ...] = ()

    def config(self) -> dict[str, Any]:
        """Settings of the model under Hugging Face's names."""
        sizes = dict(
            vocab_size=67,
            n_positions=80,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=2,
            pad_token_id=1,
        )
        return {**sizes, **dict(self.settings)}


def _case(head: str = LM, **fields: Any) -> Case:
    known = {f.name for f in dataclasses.fields(Case)}
    settings = tuple((k, v) for k, v in fields.items() if k not in known)
    return Case(head, settings=settings, **{k: v for k, v in fields.items() if k in known})


CASES = {
    "gpt2": _case(),
    "padded-left": _case(left=True, n_head=2),
    "narrow-inner": _case(n_inner=20, activation_function="relu", n_layer=3),
    "untied": _case(tie_word_embeddings=False, activation_function="gelu"),
    "one-head-to-the-limit": _case(n_head=1, n_positions=21, lengths=(21, 1)),
    "deep": _case(n_layer=5, n_embd=24, n_head=8, layer_norm_epsilon=1e-3),
    "without-head": _case(BASE, n_embd=20),
    "classifier": _case(CLASSIFIER, num_labels=3),
}
# Models that write, and how many prompts: each 64 tokens.
WRITERS = ("untied", "narrow-inner")
PROMPTS, NEW_TOKENS = 64, 64


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint, written down from the published layout."""
    c = case.config()
    e, f = c["n_embd"], c.get("n_inner", 4 * c["n_embd"])
    named = {"wte.weight": (c["vocab_size"], e), "wpe.weight": (c["n_positions"], e)}
    for n in range(c["n_layer"]):
        parts = {"attn.c_attn": (e, 3 * e), "attn.c_proj": (e, e)}
        parts |= {"mlp.c_fc": (e, f), "mlp.c_proj": (f, e)}
        for part, shape in parts.items():
            named |= {f"h.{n}.{part}.weight": shape, f"h.{n}.{part}.bias": shape[1:]}
        for norm in ("ln_1", "ln_2"):
            named |= {f"h.{n}.{norm}.weight": (e,), f"h.{n}.{norm}.bias": (e,)}
    named |= {"ln_f.weight": (e,), "ln_f.bias": (e,)}
    if case.head == BASE:
        return named
    named = {f"transformer.{name}": shape for name, shape in named.items()}
    if case.head == CLASSIFIER:
        return named | {"score.weight": (c["num_labels"], e)}
    untied = not c.get("tie_word_embeddings", True)
    return named | ({"lm_head.weight": (c["vocab_size"], e)} if untied else {})


def _random(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def tensors(case: Case) -> dict[str, np.ndarray]:
    """A checkpoint in float32, each tensor drawn from its name and shape alone."""
    return {name: _drawn(name, shape) for name, shape in shapes(case).items()}


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    noise = _random(f"{name} {shape}").standard_normal(shape)
    if "ln_" in name and name.endswith("weight"):
        noise = 1 + 0.2 * noise
    elif name.endswith("bias"):
        noise *= 0.2
    elif "wte" in name or "wpe" in name:
        noise *= 0.5
    elif "c_attn" in name:
        noise *= 1.6 / shape[0] ** 0.5
    else:
        noise *= 0.8 / shape[0] ** 0.5
    return noise.astype(np.float32)


def inputs(case: Case) -> dict[str, np.ndarray]:
    """Arguments of the model; padding has random ids too, except where a classifier looks."""
    random, c = _random("inputs"), case.config()
    size = (len(case.lengths), max(case.lengths))
    places = np.arange(size[1])[None]
    if case.left:
        places = places - (size[1] - np.array(case.lengths)[:, None])
    real = (places >= 0) & (places < np.array(case.lengths)[:, None])
    ids = random.randint(3, c["vocab_size"], size)
    if case.head == CLASSIFIER:
        ids = np.where(real, ids, c["pad_token_id"])
    return {"input_ids": ids, "attention_mask": real.astype(int)}


def prompts(case: Case) -> dict[str, np.ndarray]:
    """Random prompts of 1 to 12 tokens, padded on the left."""
    random = _random("prompts")
    lengths = random.randint(1, 13, (PROMPTS, 1))
    real = np.arange(12)[None] >= 12 - lengths
    ids = random.randint(3, case.config()["vocab_size"], real.shape)
    return {"input_ids": np.where(real, ids, 1), "attention_mask": real.astype(int)}


def torch_model(case: Case) -> Any:
    """The reference implementation with a case's weights, eager attention, float32."""
    import torch
    import transformers

    config = transformers.GPT2Config(**case.config(), attn_implementation="eager")
    model = getattr(transformers, case.head)(config).eval()
    state = {name: torch.from_numpy(array) for name, array in tensors(case).items()}
    left = model.load_state_dict(state, strict=False)
    assert not left.unexpected_keys, left
    assert all("attn.bias" in n or n == "lm_head.weight" for n in left.missing_keys), left
    return model


def torch_outputs(case: Case) -> dict[str, np.ndarray]:
    """Scores or last state, attention, hidden states, and the loss of each token at its target."""
    import torch

    model = torch_model(case)
    given = {name: torch.from_numpy(array) for name, array in inputs(case).items()}
    with torch.no_grad():
        out = model(**given, output_attentions=True, output_hidden_states=True)
    names = ("logits", "last_hidden_state")
    arrays = {name: out[name].numpy() for name in names if name in out}
    arrays |= {
        name: np.stack([one.numpy() for one in out[name]])
        for name in ("attentions", "hidden_states")
    }
    if case.head == LM:
        rows = out.logits[:, :-1].reshape(-1, out.logits.shape[-1])
        targets = given["input_ids"][:, 1:].reshape(-1)
        loss = torch.nn.functional.cross_entropy(rows, targets, reduction="none")
        arrays["loss"] = loss.reshape(len(out.logits), -1).numpy()
    return arrays


def torch_written(case: Case) -> np.ndarray:
    """Ids that torch's `generate` writes greedily, prompts included, padded to one length."""
    import torch

    given = {name: torch.from_numpy(array) for name, array in prompts(case).items()}
    with torch.no_grad():
        ids = torch_model(case).generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False)
    room = 12 + NEW_TOKENS - ids.shape[1]
    return np.pad(ids.numpy(), ((0, 0), (0, room)), constant_values=1).astype(np.uint8)


def stored(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is kept: all but the hidden states."""
    return {name: array for name, array in outputs.items() if name != "hidden_states"}


def main() -> None:
    """Write the file."""
    arrays = {
        f"{name}/{field}": array
        for name, case in CASES.items()
        for field, array in stored(torch_outputs(case)).items()
    }
    arrays |= {f"{name}/written": torch_written(CASES[name]) for name in WRITERS}
    np.savez_compressed(GOLDEN, **arrays)
    sys.stdout.write(f"{GOLDEN.name}: {len(arrays)} arrays, {GOLDEN.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
