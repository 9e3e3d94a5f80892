# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What torch transformers computes on the tiny models of every family, and the script storing it.

`python tests/golden/make_family_golden.py [FAMILY ...]` (with torch and transformers) reads
`cases_FAMILY.py` and writes `families/FAMILY.npz`: for each case upstream's config.json, the names
and shapes of the tensors that upstream saves, and what it computes under eager attention in
float32. All families without arguments.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import family_case
import numpy as np
from family_case import FamilyCase

FOLDER = Path(__file__).with_name("families")
FAMILIES = tuple(sorted(p.stem.removeprefix("cases_") for p in FOLDER.parent.glob("cases_*.py")))
SINGLE = (
    "logits",
    "last_hidden_state",
    "pooler_output",
    "start_logits",
    "end_logits",
    "prediction_logits",
    "seq_relationship_logits",
    "sop_logits",
    "encoder_last_hidden_state",
    "loss",
)
STACKED = (
    "hidden_states",
    "attentions",
    "encoder_hidden_states",
    "decoder_hidden_states",
    "encoder_attentions",
    "decoder_attentions",
    "cross_attentions",
)
STEP = 2.0**-20  # numbers are stored as multiples of it, which compress


def cases_of(family: str) -> dict[str, FamilyCase]:
    """The cases of one file by name."""
    cases = importlib.import_module(f"cases_{family}").CASES
    named = {case.name: case for case in cases}
    assert len(named) == len(cases), f"cases_{family}.py: two cases of one name"
    return named


class Stored:
    """What one case has in a file: config.json, tensors, outputs of upstream."""

    def __init__(self, case: FamilyCase, arrays: dict[str, np.ndarray]) -> None:
        self.case = case
        self.config = json.loads(str(arrays["config"]))
        self.layout: list[list[Any]] = json.loads(str(arrays["tensors"]))
        fixed = [name for name in arrays if name.startswith("buffer=")]
        self.buffers = {name.partition("=")[2]: arrays[name] for name in fixed}
        self.outputs = {n: a for n, a in arrays.items() if n in SINGLE + STACKED}

    def tensors(self) -> dict[str, np.ndarray]:
        """The checkpoint in float32, each tensor drawn from its name and shape alone."""
        return {
            name: family_case.drawn(_one_name(name), tuple(shape), base, self.case.sharpness)
            for name, shape, base in self.layout
        }

    def write(self, folder: Path) -> Path:
        """A Hugging Face directory with upstream's config.json and the drawn tensors."""
        from safetensors.numpy import save_file

        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        save_file(self.tensors() | self.buffers, folder / "model.safetensors", {"format": "pt"})
        return folder

    def inputs(self, **changes: Any) -> dict[str, np.ndarray]:
        """Arguments of the model; see `family_case.inputs`."""
        return family_case.inputs(self.case, self.config, **changes)


def _one_name(name: str) -> str:
    """Name that decides the numbers: a bias that upstream keeps twice has one."""
    return name.replace(".decoder.bias", ".bias")


def read(family: str) -> dict[str, Stored]:
    """The cases of a stored file by name."""
    arrays: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FOLDER / f"{family}.npz", allow_pickle=False) as file:
        for key in file:
            name, _, field = key.partition("/")
            arrays.setdefault(name, {})[field] = file[key]
    cases = cases_of(family)
    assert arrays.keys() == cases.keys(), f"{family}.npz: run make_family_golden.py {family}"
    return {name: Stored(case, arrays[name]) for name, case in cases.items()}


def thinned(name: str, array: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """What is stored: every fourth column of wide states and scores, zero at padding."""
    if "attentions" not in name and array.ndim > 1 and array.shape[-1] > 16:
        array = array[..., ::4]
    if mask is not None:
        array = np.where(mask, array, 0)
    return np.round(array / STEP).astype(np.float32) * np.float32(STEP)


def real_places(name: str, shape: tuple[int, ...], given: dict[str, np.ndarray]) -> Any:
    """Mask of the numbers that are of real positions, which broadcasts to `shape`; None for all."""
    if "attention_mask" not in given:
        return None
    side = "decoder_" if "decoder_attention_mask" in given and "encoder" not in name else ""
    side = "decoder_" if name.startswith("decoder") and "decoder_attention_mask" in given else side
    real = given[f"{side}attention_mask"] == 1
    if "attentions" in name:
        return real[None, :, None, :, None]
    if name in STACKED:
        return real[None, :, :, None]
    if len(shape) >= 2 and shape[:2] == real.shape:
        return real.reshape(real.shape + (1,) * (len(shape) - 2))
    return None


def constant(model: Any) -> set[str]:
    """Names of the parameters of upstream's model that are not trained."""
    return {name for name, tensor in model.named_parameters() if not tensor.requires_grad}


def layout(model: Any, folder: Path) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Name, shape and base of the tensors that upstream saves; what is constant as it is.

    Constant are buffers that are not all zero, such as rates of rotary positions, and parameters
    that are not trained, such as sinusoids.
    """
    from safetensors.numpy import load_file

    model.save_pretrained(folder)
    saved = load_file(folder / "model.safetensors")
    known = model.state_dict()
    if not saved.keys() <= known.keys():  # some versions write old names, which no model has
        renamed = {n.replace(".gamma", ".weight").replace(".beta", ".bias"): n for n in saved}
        weights = {n: old for n, old in renamed.items() if "inv_freq" not in n}
        # Older names repeat these for every layer.
        rates = {n: known[n].numpy() for n in known if "inv_freq" in n}
        saved = rates | {n: known[n].numpy() if n in known else saved[weights[n]] for n in weights}
    fixed = {name for name, buffer in model.named_buffers() if buffer.any()}
    fixed |= constant(model)
    weights = {n: a for n, a in saved.items() if n not in fixed}
    tensors = [
        [name, list(array.shape), round(float(array.mean())) if array.ndim < 2 else 0]
        for name, array in sorted(weights.items())
    ]
    return tensors, {name: array for name, array in saved.items() if name in fixed}


def torch_case(case: FamilyCase) -> dict[str, np.ndarray]:
    """Everything that is stored of a case."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(case.model_type, **case.settings)
    torch.manual_seed(0)
    model = getattr(transformers, case.architecture)(config)
    with tempfile.TemporaryDirectory() as folder:
        tensors, buffers = layout(model, Path(folder))
        settings = (Path(folder) / "config.json").read_text(encoding="utf-8")
    arrays = {"config": np.array(settings), "tensors": np.array(json.dumps(tensors))}
    arrays |= {f"buffer={name}": array for name, array in buffers.items()}
    stored = Stored(case, arrays)
    given = stored.inputs()
    labels = family_case.labels(case, stored.config, given)
    outputs = torch_outputs(stored, given | labels)
    for name, array in outputs.items():
        arrays[name] = thinned(name, array, real_places(name, array.shape, given))
    return arrays


def torch_model(case: FamilyCase, folder: Path) -> Any:
    """Upstream's model from a directory, eager attention, float32; no tensor is left over.

    What is missing is constant or unused.
    """
    import torch
    import transformers

    model, info = getattr(transformers, case.architecture).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    assert set(info["missing_keys"]) <= constant(type(model)(model.config)) | {*case.unused}, info
    assert not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model.eval()


def torch_outputs(stored: Stored, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What upstream computes with the drawn tensors."""
    with tempfile.TemporaryDirectory() as folder:
        model = torch_model(stored.case, stored.write(Path(folder) / "model"))
    return run_torch(model, given)


def run_torch(model: Any, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of upstream's model by name."""
    import torch

    with torch.no_grad():
        out = model(
            **{name: torch.from_numpy(np.asarray(a)) for name, a in given.items()},
            output_attentions=True,
            output_hidden_states=True,
        )
    arrays = {n: out[n].numpy() for n in SINGLE if n in out and out[n] is not None}
    several = {n: out[n] for n in STACKED if out.get(n)}
    return arrays | {n: np.stack([one.numpy() for one in some]) for n, some in several.items()}


def main() -> None:
    """Write the files of the families that are named."""
    for family in sys.argv[1:] or FAMILIES:
        arrays = {
            f"{name}/{field}": array
            for name, case in cases_of(family).items()
            for field, array in torch_case(case).items()
        }
        path = FOLDER / f"{family}.npz"
        np.savez_compressed(path, **arrays)
        sys.stdout.write(f"{path.name}: {len(arrays)} arrays, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
