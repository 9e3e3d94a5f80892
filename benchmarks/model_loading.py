# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that loading a model takes, beside the size of its parameters.

    python benchmarks/model_loading.py

A GPT-2 of the size that is requested is written to a temporary directory, in shards whose tensors
are holes in the files, so it takes no room on disk. A process of its own then loads it in the dtype
of the files, and reports the most memory that it had beyond what it had before.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_BYTES = {"float32": ("F32", 4), "bfloat16": ("BF16", 2), "float16": ("F16", 2)}


def write_checkpoint(folder, *, layers, width, dtype="bfloat16", shards=8, vocabulary=50257):
    """Write a GPT-2 of zeros; return the bytes of its parameters."""
    from flaxattn import GPT2Config
    from flaxattn.pretrained.decoder_names import GPT2_NAMES

    heads = max(1, width // 64)
    config = GPT2Config(vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=heads)
    (folder / "config.json").write_text(json.dumps(config.to_hf()))
    rows = {row.theirs: row for row in GPT2_NAMES.rows}
    shapes = {
        name: GPT2_NAMES.shape(row, config)
        for theirs, row in rows.items()
        if theirs not in ("lm_head.weight", "score.weight")
        for name in GPT2_NAMES.numbered(row, config)
    }
    names, placed, total = sorted(shapes), {}, 0
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        some = {name: shapes[name] for name in names[shard::shards]}
        total += _write_holes(folder / file, some, *_BYTES[dtype])
        placed |= dict.fromkeys(some, file)
    index = {"metadata": {"total_size": total}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def _write_holes(path, shapes, letters, itemsize):
    """Write a safetensors file of zeros that takes the room of its header."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = itemsize
        for axis in shape:
            size *= axis
        header[name] = {"dtype": letters, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return end


def _memory(field):
    """Bytes that Linux tells under a name; elsewhere the most that the process ever had."""
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", _STATUS.read_text())[1])


def measure(folder, dtype):
    """Load a model in this process; return its memory in bytes, and seconds."""
    import jax

    import flaxattn as fa

    fa.from_pretrained("tiny-gpt2")  # what is imported, compiled and started once
    if _RESET.exists():
        _RESET.write_text("5")
    before, begun = _memory("VmRSS"), time.perf_counter()
    model = fa.from_pretrained(folder, dtype=dtype)
    seconds = time.perf_counter() - begun
    leaves = jax.tree.leaves(model.params)
    assert {leaf.dtype.name for leaf in leaves} == {dtype}
    return {
        "parameters": sum(leaf.size for leaf in leaves),
        "bytes": sum(leaf.nbytes for leaf in leaves),
        "peak_growth": _memory("VmHWM") - before,
        "seconds": round(seconds, 2),
    }


def run(*, layers, width, dtype="bfloat16", shards=8, vocabulary=50257):
    """Write a checkpoint, load it in a process of its own, and return what that measured."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"layers": layers, "width": width, "shards": shards, "vocabulary": vocabulary}
        written = write_checkpoint(Path(folder), dtype=dtype, **sizes)
        command = [sys.executable, "-P", __file__, "--load", folder, "--dtype", dtype]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    row = json.loads(done.stdout)
    assert row["bytes"] == written
    return row | {"ratio": round(row["peak_growth"] / row["bytes"], 3)}


def main():
    """Print one row as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1792)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--dtype", choices=sorted(_BYTES), default="bfloat16")
    parser.add_argument("--load", help="Load this directory, and measure.")
    options = parser.parse_args()
    if options.load:
        print(json.dumps(measure(options.load, options.dtype)))
        return
    sizes = {"layers": options.layers, "width": options.width, "shards": options.shards}
    print(json.dumps(run(**sizes, dtype=options.dtype)))


if __name__ == "__main__":
    main()
