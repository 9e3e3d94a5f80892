# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn doctor MODEL`: what a model is and can do, reported before its parameters are read."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.commands.model_report import model_report, uses
from flaxattn.errors import FlaxattnError
from flaxattn.pretrained.from_pretrained import without_parameters
from flaxattn.pretrained.model_directory import nearest_type
from flaxattn.trace.tensor_file import TensorFiles

BUILT_IN = ("tiny-bert", "tiny-gpt2", "tiny-dates")


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_it_says_is_what_loads(name: str, typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(TensorFiles, "read", lambda *given, **options: pytest.fail("a tensor"))
        code, out, _ = typed("doctor", name, "--json")
    facts, model = json.loads(out), fa.from_pretrained(name)
    assert code == 0
    leaves = jax.tree.leaves(model.params)
    assert facts["parameters"] == sum(leaf.size for leaf in leaves)
    assert facts["parameter_bytes"]["float32"] == sum(leaf.nbytes for leaf in leaves)
    arrays = facts["memory_bytes"]["parameters"]["arrays"]
    assert arrays == facts["parameter_bytes"]["float32"]
    assert facts["architecture"] == model.config.architectures[0]
    assert (facts["layers"], facts["heads"]) == model.counts() and facts["limit"] == model.limit
    assert facts["source"] == "built in" and set(facts["stored_dtypes"]) == {"F16"}
    assert facts["tokenizer"]["size"] == model.tokenizer.vocab_size  # type: ignore[union-attr]
    assert "vocab_size" in facts["switches"]
    folder = Path(facts["directory"])
    assert facts["disk_bytes"] == sum(path.stat().st_size for path in folder.iterdir())


def test_the_report_for_a_person(typed: Any) -> None:
    code, out, _ = typed("doctor", "tiny-gpt2")
    assert code == 0
    for line in (
        "model         tiny-gpt2 (built in)",
        "type          gpt2, saved as GPT2LMHeadModel",
        "shape         4 layers, 6 heads",
        "limit         256 tokens",
        "parameters    3,401,856; in bfloat16 6.8 MB",
        "tokenizer     BPE, 8,192 tokens",
        "setting       n_embd = 192",
        "does not run  classify: load it with head=GPT2ForSequenceClassification",
    ):
        assert line in out.splitlines()
    assert (
        "setting       scale" not in out and "memory        parameters: 13.6 MB in float32" in out
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2", "seq2seq", "rnn"])
def test_uses_run_or_do_not_as_reported(
    family: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made = request.getfixturevalue(family)
    made.save_pretrained(tmp_path / "model")
    model, report = (
        fa.from_pretrained(tmp_path / "model"),
        uses(without_parameters(tmp_path / "model")),
    )
    text = ["a b", "c d"]
    runs = {
        "trace": lambda: model.trace(text),
        "generate": lambda: model.generate(text, max_new_tokens=2),
        "embed": lambda: fa.embed(model, text),
        "attention_norms": lambda: fa.attention_norms(model, text),
        "prune": lambda: model.prune([(0, 0)]),
        "ablate": lambda: fa.head_task(model, text, text if family in ("seq2seq", "rnn") else None),
        "labels and loss": lambda: model(np.array([[3, 4]]), labels=np.array([[3, 4]])),
    }
    for use, run in runs.items():
        if family == "gpt2" and use == "labels and loss":
            continue
        if report[use] is None:
            run()
        else:
            with pytest.raises((FlaxattnError, AttributeError)):
                run()


def test_a_model_without_a_tokenizer(bert: Any, tmp_path: Path) -> None:
    bert.save_pretrained(tmp_path / "model")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / name).unlink(missing_ok=True)
    accept(tmp_path / "model")
    facts = model_report(str(tmp_path / "model"))
    assert facts["tokenizer"] is None and facts["source"] == "directory"
    assert facts["runs"]["call"] is None
    assert facts["runs"]["trace"].startswith("it has no tokenizer; it takes input_ids alone")


def accept(folder: Path) -> None:
    """Leave a directory as a program of somebody else would write it: without checksums."""
    import safetensors.numpy

    path = folder / "model.safetensors"
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path)


def test_a_sharded_directory_and_a_missing_head(checkpoint: Any, typed: Any) -> None:
    folder = checkpoint("BertModel", num_labels=3)
    settings = json.loads((folder / "config.json").read_text())
    settings["architectures"] = ["BertForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(settings))
    code, out, err = typed("doctor", folder)
    assert code == 0 and not err
    assert "missing       classifier.bias: freshly initialised" in out
    assert "classes       LABEL_0, LABEL_1, LABEL_2" in out


@pytest.mark.parametrize("damage", ["nothing", "weights", "config", "shape", "type"])
def test_a_broken_directory_is_reported_with_the_reason(
    bert: Any, typed: Any, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "model"
    bert.save_pretrained(folder)
    accept(folder)
    settings = json.loads((folder / "config.json").read_text())
    if damage == "nothing":
        shutil.rmtree(folder)
        folder.mkdir()
    elif damage == "weights":
        os.truncate(folder / "model.safetensors", 100)
    elif damage == "config":
        (folder / "config.json").write_text("{")
    else:
        changed = {"hidden_size": 32} if damage == "shape" else {"model_type": "distilled-bert"}
        (folder / "config.json").write_text(json.dumps(settings | changed))
    code, out, err = typed("doctor", folder)
    assert code == 1 and not err
    reason = {
        "nothing": "it has no config.json",
        "weights": "was cut short or damaged",
        "config": "cannot be read as JSON",
        "shape": "does not match its config.json",
        "type": "The nearest is distilbert.",
    }[damage]
    assert reason in out


@pytest.mark.parametrize(
    ("settings", "known", "nearest"),
    [
        ({"model_type": "gpt_neo"}, ("bert", "gpt2"), "gpt2"),
        ({"model_type": "xlm-roberta-xl"}, ("bert", "roberta", "xlm-roberta"), "xlm-roberta"),
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, ("bert", "gpt2"), "gpt2"),
        (
            {"model_type": "x", "architectures": ["XForCausalLM"]},
            ("bert", "gpt2", "llama"),
            "llama",
        ),
        ({"model_type": "x", "is_encoder_decoder": True}, ("bert", "bart", "gpt2"), "bart"),
        ({"model_type": "x", "architectures": ["XForMaskedLM"]}, ("gpt2", "bert"), "bert"),
        ({"model_type": 3, "architectures": 4}, ("gpt2", "bert"), "bert"),
    ],
)
def test_the_nearest_type(settings: dict[str, Any], known: tuple[str, ...], nearest: str) -> None:
    assert nearest_type(settings, known) == nearest


CHILD = """
import json, resource, subprocess, sys
import flaxattn as fa
from flaxattn.commands.model_report import model_report
if sys.argv[1] == "apart":  # what a process had is told to those that it starts
    subprocess.run([sys.executable, "-c", *sys.argv[2:]], check=True)
elif sys.argv[1] == "say":
    print(json.dumps(model_report(sys.argv[2])["memory_bytes"]))
else:
    model = fa.from_pretrained(sys.argv[2])
    trace = model.trace(" a" * (model.limit - 1), truncate=True)
    assert trace.decoder.weights.shape[-1] > 0.9 * model.limit
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_the_memory_of_a_trace_is_what_it_says(tmp_path: Path) -> None:
    tiny: Any = fa.from_pretrained("tiny-gpt2")
    config = fa.GPT2Config(n_embd=768, n_layer=6, n_head=12, vocab_size=8192)
    module = type(tiny.module)(config)
    params = jax.jit(module.init)(jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    model = dataclasses.replace(tiny, module=module, params=params, config=config)
    model.save_pretrained(tmp_path / "model")
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    found = {}
    for what in ("say", "do"):
        words = [sys.executable, "-c", CHILD, "apart", CHILD, what, str(tmp_path / "model")]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=plain)
        found[what] = json.loads(done.stdout)
    expected = found["say"]["trace of the longest text with weights"]["process"]
    assert found["do"] / 1.5 < expected < 1.5 * found["do"], (expected, found["do"])
