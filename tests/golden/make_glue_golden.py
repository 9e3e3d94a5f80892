# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Loss and gradients of torch's sequence classifier on a small batch: the cases, and the script.

`python tests/golden/make_glue_golden.py` (with torch and transformers) writes `glue.npz` beside
this file. Weights and inputs come from `bert_checkpoint.py` and are not stored.
"""

import sys
from pathlib import Path

import bert_checkpoint as golden
import numpy as np

GOLDEN = Path(__file__).with_name("glue.npz")
HEAD = "BertForSequenceClassification"
SIZES = (("hidden_size", 24), ("num_hidden_layers", 2), ("num_attention_heads", 3))
CASES = {
    "classes": golden.Case(
        HEAD, lengths=(13, 7, 9), second=(5, 4, 3), settings=(*SIZES, ("num_labels", 3))
    ),
    "regression": golden.Case(HEAD, lengths=(11, 6, 8), settings=(*SIZES, ("num_labels", 1))),
}
LABELS = {"classes": np.array([2, 0, 1]), "regression": np.array([4.5, 0.0, 2.25], np.float32)}
# Gradients that are kept: the head, and one tensor far from it.
KEPT = (
    "classifier.weight",
    "classifier.bias",
    "bert.encoder.layer.0.attention.self.query.weight",
)


def torch_outputs(name: str) -> dict[str, np.ndarray]:
    """Loss and gradients as torch computes them, without dropout."""
    import torch
    import transformers

    case = CASES[name]
    config = transformers.BertConfig(**case.config(), attn_implementation="eager")
    config.problem_type = "regression" if name == "regression" else None
    model = transformers.BertForSequenceClassification(config).eval()
    state = {key: torch.from_numpy(array) for key, array in golden.tensors(case).items()}
    model.load_state_dict(state)
    given = {key: torch.from_numpy(array) for key, array in golden.inputs(case).items()}
    out = model(**given, labels=torch.from_numpy(LABELS[name]))
    out.loss.backward()
    grads = {key: model.get_parameter(key).grad.numpy() for key in KEPT}
    return {"loss": out.loss.detach().numpy(), **grads}


def main() -> None:
    """Write the file."""
    arrays = {
        f"{name}/{field}": array for name in CASES for field, array in torch_outputs(name).items()
    }
    np.savez_compressed(GOLDEN, **arrays)
    sys.stdout.write(f"{GOLDEN.name}: {len(arrays)} arrays, {GOLDEN.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
