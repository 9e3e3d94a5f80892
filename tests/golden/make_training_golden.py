# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""How torch pretrains a small BERT for twenty updates, and the script that stores its losses.

`python tests/golden/make_training_golden.py` (with torch and transformers) writes `training.npz`
beside this file. Weights are those of `bert_checkpoint`, scaled so that training is stable; batches
come from NumPy's `RandomState`. The optimiser is written out here, from its definition: AdamW as
in BERT's code, without bias correction, after clipping by the global norm.
"""

import sys
from pathlib import Path
from typing import Any

import bert_checkpoint as golden
import numpy as np

GOLDEN = Path(__file__).with_name("training.npz")
CASE = golden.Case("BertForPreTraining", settings=(("num_hidden_layers", 2),))
UPDATES, ROWS, LENGTH, PREDICTIONS = 20, 8, 24, 4
RATE, WARMUP, DECAY = 2e-3, 5, 0.01


def batch(number: int) -> dict[str, np.ndarray]:
    """Rows of different lengths, some of whose positions are to be predicted.

    The word to predict follows from the first one and the pair's label from the second, so there
    is something to learn.
    """
    random = np.random.RandomState(1000 + number)
    vocabulary = CASE.config()["vocab_size"]
    ids = random.randint(5, vocabulary, (ROWS, LENGTH))
    sizes = random.randint(LENGTH // 2, LENGTH + 1, ROWS)
    mask = (np.arange(LENGTH) < sizes[:, None]).astype(int)
    places = np.stack([3 + np.sort(random.permutation(7)[:PREDICTIONS]) for _ in range(ROWS)])
    weights = np.ones((ROWS, PREDICTIONS))
    weights[::3, -1] = 0
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": (np.arange(LENGTH) >= 8) * mask,
        "masked_positions": places,
        "masked_ids": np.repeat((ids[:, :1] * 7) % vocabulary, PREDICTIONS, 1),
        "masked_weights": weights,
        "next_sentence_label": ids[:, 1] % 2,
    }


def torch_losses() -> dict[str, np.ndarray]:
    """Losses of masked words, of pairs, and their sum, before each update."""
    import torch
    import transformers

    config = transformers.BertConfig(
        **CASE.config(),
        attn_implementation="eager",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForPreTraining(config).train()
    state = {name: torch.from_numpy(array) for name, array in golden.tensors(CASE).items()}
    model.load_state_dict(state, strict=False)
    named = dict(model.named_parameters())
    moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in named.items()}
    rows = []
    for step in range(UPDATES):
        words, pairs = _losses(torch, model, batch(step))
        rows.append([words.item(), pairs.item(), (words + pairs).item()])
        model.zero_grad()
        (words + pairs).backward()
        with torch.no_grad():
            _update(torch, named, moments, step)
    return dict(zip(("mlm_loss", "nsp_loss", "loss"), np.array(rows).T, strict=True))


def _losses(torch: Any, model: Any, given: dict[str, np.ndarray]) -> tuple[Any, Any]:
    tensors = {name: torch.from_numpy(array).long() for name, array in given.items()}
    names = ("input_ids", "attention_mask", "token_type_ids")
    out = model(**{name: tensors[name] for name in names})
    labels = torch.full_like(tensors["input_ids"], -100)
    chosen = torch.where(tensors["masked_weights"] > 0, tensors["masked_ids"], -100)
    labels.scatter_(1, tensors["masked_positions"], chosen)
    entropy = torch.nn.functional.cross_entropy
    words = entropy(out.prediction_logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    return words, entropy(out.seq_relationship_logits, tensors["next_sentence_label"])


def _update(torch: Any, named: dict[str, Any], moments: dict[str, Any], step: int) -> None:
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in named.values()))
    rate = RATE * step / WARMUP if step < WARMUP else RATE * (1 - step / UPDATES)
    for name, weight in named.items():
        gradient = weight.grad / max(norm.item(), 1.0)
        mean, square = moments[name]
        mean.mul_(0.9).add_(gradient, alpha=0.1)
        square.mul_(0.999).add_(gradient**2, alpha=0.001)
        change = mean / (torch.sqrt(square) + 1e-6)
        if not name.endswith("bias") and "LayerNorm" not in name:
            change = change + DECAY * weight
        weight.sub_(change, alpha=rate)


def main() -> None:
    """Write the file."""
    np.savez_compressed(GOLDEN, **torch_losses())
    sys.stdout.write(f"{GOLDEN.name}: {GOLDEN.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
