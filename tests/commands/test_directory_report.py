# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn doctor DIRECTORY` names what a directory holds, what is applied, and what is wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy as st

import flaxattn as fa
from flaxattn.errors import FlaxattnError

BUILT_IN = Path(fa.__file__).parent / "pretrained"


def write_json(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file, or write a new one."""
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(settings | changes))


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / "config.json", **changes)


def tokenizer_config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / "tokenizer_config.json", **changes)


def wrap_names(folder: Path) -> None:
    tensors = st.load_file(folder / "model.safetensors")
    wrapped = {f"module._orig_mod.{name}": array for name, array in tensors.items()}
    st.save_file(wrapped, folder / "model.safetensors")


def lose_a_shard(folder: Path) -> None:
    tensors = st.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    first, *others = sorted(tensors)
    st.save_file({first: tensors[first]}, folder / "model-00001-of-00002.safetensors")
    files = {first: "model-00001-of-00002.safetensors"}
    files |= dict.fromkeys(others, "model-00002-of-00002.safetensors")
    write_json(folder / "model.safetensors.index.json", metadata={}, weight_map=files)


def integers(folder: Path) -> None:
    tensors = dict(st.load_file(folder / "model.safetensors"))
    name = next(name for name in tensors if name.endswith("query.weight"))
    tensors[name] = tensors[name].astype(np.int8)
    st.save_file(tensors, folder / "model.safetensors")


def only_weights(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


def add_adapter(folder: Path) -> None:
    write_json(folder / "adapter_config.json", peft_type="LORA", r=2)


def sentence_model(folder: Path, module: str) -> None:
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1", "type": f"sentence_transformers.models.{module}"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1").mkdir()
    write_json(folder / "1" / "config.json", word_embedding_dimension=256)


GPTQ = {"quant_method": "gptq", "bits": 4}
# What was done to a copy of tiny-bert, whether it still opens, and a subject with words of it.
CASES: dict[str, tuple[Callable[[Path], None], bool, str, str]] = {
    "unchanged": (lambda folder: None, True, "kind", "type bert"),
    "unknown key": (config(vitality=3), True, "config", "vitality"),
    "unknown arithmetic": (config(hidden_act="swoosh"), False, "config", "swoosh"),
    "quantized": (config(quantization_config=GPTQ), False, "config", "gptq"),
    "unknown type": (config(model_type="swooshformer"), False, "kind", "swooshformer"),
    "other shape": (config(hidden_size=128), False, "opens", "word_embeddings"),
    "wrapped names": (wrap_names, True, "weights", "module, _orig_mod"),
    "missing shard": (lose_a_shard, False, "weights", "model-00002-of-00002.safetensors"),
    "integers": (integers, False, "opens", "I8"),
    "lower case": (tokenizer_config(do_lower_case=False), True, "tokenizer", "lowercase True"),
    "accents": (tokenizer_config(strip_accents=False), True, "tokenizer", "strip_accents"),
    "added token": (
        lambda folder: write_json(folder / "added_tokens.json", **{"<tool>": 8000}),
        True,
        "tokenizer",
        "<tool>",
    ),
    "no tokenizer": (only_weights, True, "tokenizer", "input_ids"),
    "broken tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{"),
        False,
        "tokenizer",
        "tokenizer.json",
    ),
    "adapter beside": (add_adapter, True, "kind", "adapter"),
    "sentence model": (lambda folder: sentence_model(folder, "Pooling"), True, "vectors", "embed"),
    "other sentence model": (
        lambda folder: sentence_model(folder, "WordWeights"),
        True,
        "vectors",
        "WordWeights",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of tiny-bert as another program would have written it."""
    made = tmp_path / "model"
    made.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUILT_IN / "tiny-bert" / name, made)
    tensors = st.load_file(BUILT_IN / "tiny-bert" / "model.safetensors")
    st.save_file(tensors, made / "model.safetensors")
    return made


def findings(typed: Any, place: Path) -> tuple[bool, dict[str, str]]:
    """Whether it opens, and the findings by subject; checked with the exit code and the text."""
    code, out, _ = typed("doctor", place, "--json")
    report = json.loads(out)
    assert code == (0 if report["opens"] else 1)
    found: dict[str, str] = {}
    for one in report["findings"]:
        found[one["subject"]] = found.get(one["subject"], "") + one["text"] + "\n"
    assert typed("doctor", place)[0] == code
    return report["opens"], found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_what_a_directory_holds_is_named(folder: Path, typed: Any, case: str) -> None:
    change, opens, subject, words = CASES[case]
    change(folder)
    actual, found = findings(typed, folder)
    assert actual == opens
    assert words in found[subject]
    try:
        fa.from_pretrained(folder)
    except FlaxattnError:
        assert not opens
    else:
        assert opens


@pytest.mark.parametrize("there", [True, False])
def test_an_adapter_and_its_base(folder: Path, typed: Any, tmp_path: Path, there: bool) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    base = str(folder if there else tmp_path / "elsewhere")
    facts = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["query"]}
    write_json(adapter / "adapter_config.json", base_model_name_or_path=base, **facts)
    module = "base_model.model.bert.encoder.layer.0.attention.self.query"
    tensors = {
        f"{module}.lora_{side}.weight": np.ones(shape, np.float32)
        for side, shape in {"A": (1, 256), "B": (256, 1)}.items()
    }
    st.save_file(tensors, adapter / "adapter_model.safetensors")
    opens, found = findings(typed, adapter)
    assert opens == there and base in found["kind"]
    assert there or "elsewhere" in found["opens"]


def test_every_part_is_looked_at_behind_one_that_is_wrong(folder: Path, typed: Any) -> None:
    config(hidden_act="swoosh")(folder)
    tokenizer_config(do_lower_case=False)(folder)
    lose_a_shard(folder)
    opens, found = findings(typed, folder)
    assert not opens and "swoosh" in found["config"] and "lowercase" in found["tokenizer"]
    assert "model-00002-of-00002.safetensors" in found["weights"]


def test_a_model_that_does_not_exist(typed: Any, tmp_path: Path) -> None:
    code, out, err = typed("doctor", tmp_path / "nowhere")
    assert code == 2 and not out and "nowhere" in err
