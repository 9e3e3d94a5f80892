# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A model that is saved over another one: killed at any moment, what loads is one of the two.

A process of its own forks for every trial, so that nothing is imported or compiled again.
`make test` makes few trials, `make all` a hundred.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TRIALS = """
import json, os, random, shutil, signal, sys, time
from pathlib import Path
import jax, numpy as np
import flaxattn as fa
from flaxattn import files
from flaxattn.errors import CheckpointError
from flaxattn.models.bert import Bert
from flaxattn.pretrained import model_directory as weights
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import bert_backend

folder, place, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

def made(heads, words, value):
    config = fa.BertConfig(vocab_size=8, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=heads, intermediate_size=32, max_position_embeddings=16)
    shapes = jax.eval_shape(Bert(config).init, jax.random.key(0), np.ones((1, 2), np.int32))
    params = jax.tree.map(lambda s: np.full(s.shape, value, np.float32), shapes["params"])
    pieces = {piece: number for number, piece in enumerate([*PIECES, *words])}
    return Bert(config), params, Tokenizer(bert_backend(pieces, {}))

def save(module, params, tokenizer):
    weights.save(folder, module, params, tokenizer=tokenizer)

old, new = made(2, ["a", "b", "c"], 1.0), made(4, ["x", "y", "z"], 2.0)

def reset():
    shutil.rmtree(folder, ignore_errors=True)
    save(*old)
    (folder / "notes.txt").write_text("mine")
    if place != "swapped":  # a folder with a folder inside is not exchanged for another
        (folder / "inner").mkdir()
    if place == "foreign":  # another program saved the old model, without checksums
        import safetensors.numpy
        path = folder / "model.safetensors"
        safetensors.numpy.save_file(safetensors.numpy.load_file(path), path, {"format": "pt"})

def found():
    try:
        model = fa.from_pretrained(folder)
    except CheckpointError as error:
        assert len(str(error).splitlines()) <= 3
        return "refused"
    known = "a" in model.tokenizer.backend.get_vocab()
    value = float(jax.tree.leaves(model.params)[0].reshape(-1)[0])
    facts = (model.config.num_attention_heads, known, value)
    return {(2, True, 1.0): "old", (4, False, 2.0): "new"}.get(facts, f"mixed {facts}")

def hooked(at):
    calls = [0]
    def wrapped(function):
        def call(*given, **named):
            calls[0] += 1
            if calls[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)
        return call
    for name in ("replace", "rename", "fsync", "link", "unlink"):
        setattr(os, name, wrapped(getattr(os, name)))
    files._exchange = wrapped(files._exchange)
    return calls

reset()
started = time.monotonic()
save(*new)
seconds = time.monotonic() - started
assert found() == "new" and (folder / "notes.txt").read_text() == "mine"
rng = random.Random(0)
steps = 0  # calls of a whole save that change the disk
for trial in range(-1, count):
    reset()
    child = os.fork()
    if not child:
        calls = hooked(trial % steps + 1 if steps else 0) if trial % 4 else [0]
        save(*new)
        os._exit(calls[0] if trial < 0 else 0)
    if trial < 0:
        steps = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        continue
    if not trial % 4:
        time.sleep(rng.uniform(0, 1.2 * seconds))
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, steps, found(), (folder / "notes.txt").exists()]), flush=True)
    for part in folder.parent.glob(".*.part"):
        shutil.rmtree(part)
"""


def trials(place: str, count: int, folder: Path) -> Counter[str]:
    """What was found after each kill, counted."""
    command = [sys.executable, "-P", "-W", "ignore", "-c", TRIALS, str(folder / "model"), place]
    done = subprocess.run(
        [*command, str(count)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == count
    assert sum(code < 0 for code, *_ in rows) >= count / 2, "few were killed"
    assert all(kept for *_, kept in rows), "a file of the user is gone"
    return Counter(state for *_, state, _ in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "count"),
    [
        *((place, 12) for place in ("swapped", "in place", "foreign")),
        *(
            pytest.param(place, 100, marks=pytest.mark.slow)
            for place in ("swapped", "in place", "foreign")
        ),
    ],
)
def test_a_killed_save_leaves_one_of_two_models(place: str, count: int, tmp_path: Path) -> None:
    """A folder that can be exchanged is never refused; otherwise a mixture is, with words."""
    states = trials(place, count, tmp_path)
    print(dict(states))
    assert set(states) <= {"old", "new", *(["refused"] if place != "swapped" else [])}, states
