# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""All attention weights of a BERT-base-shaped model: flaxattn beside torch eager, in one run.

    make bench
    make bench ARGS="--torch-python /path/to/a/python/with/torch"

Each side is a process of its own, so that neither meets the other's threads; torch may live in
another Python than jax. Both hold the same random weights, and their results are compared before
anything is timed. Rounds alternate between the two, one at a time, so that whatever else the
machine does hits both. The ratio is torch's time over ours.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BATCH, LENGTH = 8, 128
IDS = np.random.default_rng(0).integers(1000, 30000, (BATCH, LENGTH)).astype(np.int32)


def torch_side(folder, kind):
    """A BERT-base in torch, eager; its weights go to `folder`. Returns the function to time."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(attn_implementation="eager")
    model = transformers.BertModel(config).eval()
    model.save_pretrained(folder)
    model = model.to(getattr(torch, kind))
    ids, mask = torch.from_numpy(IDS).long(), torch.ones(BATCH, LENGTH)

    def run():
        with torch.inference_mode():
            out = model(ids, attention_mask=mask, output_attentions=True)
        return out.last_hidden_state.float(), torch.stack(out.attentions).float()

    def timed():
        with torch.inference_mode():
            model(ids, attention_mask=mask, output_attentions=True)

    return run, timed


def flaxattn_side(folder, kind):
    """The same model here, from `folder`. Returns the function to time."""
    import jax
    import jax.numpy as jnp

    import flaxattn as fa
    from flaxattn.bert import Bert

    loaded = fa.from_pretrained(folder)
    module = Bert(
        loaded.config, dtype=jnp.dtype(kind), capture=fa.Capture(weights=True, dtype=kind)
    )
    params = jax.tree.map(lambda p: p.astype(kind), loaded.params)
    mask = np.ones_like(IDS)

    @jax.jit
    def forward(params, ids, mask):
        out, state = module.apply({"params": params}, ids, mask, mutable=["intermediates"])
        return out.last_hidden_state, fa.Trace.from_variables(state).encoder.weights

    return lambda: forward(params, IDS, mask), lambda: jax.block_until_ready(
        forward(params, IDS, mask)
    )


SIDES = {"torch": torch_side, "flaxattn": flaxattn_side}


def serve(side, folder, kind):
    """A process of one side: says what it is, saves its results, then times a round per line."""
    packages = {"torch": ("torch", "transformers"), "flaxattn": ("jax", "flax")}[side]
    run, timed = SIDES[side](folder, kind)
    hidden, weights = (np.asarray(part, np.float32) for part in run())
    np.savez(Path(folder) / side, hidden=hidden, weights=weights)
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps(versions | {"python": platform.python_version()}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        timed()
        print(time.perf_counter() - start, flush=True)


def started(python, side, folder, kind):
    """A serving process and what it said of itself."""
    words = [python, __file__, "--serve", side, "--folder", folder, kind]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the {side} side did not start; see its error above")
    return process, json.loads(line)


def one_round(process):
    """Seconds of one forward pass."""
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(kind, options):
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        torch, theirs = started(options.torch_python, "torch", folder, kind)
        ours, mine = started(sys.executable, "flaxattn", folder, kind)
        results = [np.load(Path(folder) / f"{side}.npz") for side in SIDES]
        gap = {
            name: float(np.abs(results[0][name] - results[1][name]).max()) for name in results[0]
        }
        times = {"torch": [], "flaxattn": []}
        for number in range(options.rounds + 2):
            sides = [("torch", torch), ("flaxattn", ours)]
            for side, process in sides[:: 1 if number % 2 else -1]:
                seconds = one_round(process)
                if number > 1:  # two rounds to warm up
                    times[side].append(seconds)
        for process in (torch, ours):
            process.stdin.close()
            process.wait()
    best = {side: 1e3 * min(seconds) for side, seconds in times.items()}
    middle = {side: 1e3 * statistics.median(seconds) for side, seconds in times.items()}
    return {
        "dtype": kind,
        "batch": BATCH,
        "length": LENGTH,
        "rounds": options.rounds,
        "best_ms": {side: round(ms, 1) for side, ms in best.items()},
        "median_ms": {side: round(ms, 1) for side, ms in middle.items()},
        "ratio_of_best": round(best["torch"] / best["flaxattn"], 3),
        "ratio_of_medians": round(middle["torch"] / middle["flaxattn"], 3),
        "largest_difference": gap,
        "versions": {"torch": theirs, "flaxattn": mine},
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }


def main():
    """Measure the dtypes that were named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--torch-python", default=sys.executable, help="Python that has torch")
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.folder, options.dtypes[0])
        return
    for kind in options.dtypes:
        row = measure(kind, options)
        print(
            f"{kind:<9} best {row['best_ms']} ms, median {row['median_ms']} ms, "
            f"ratio {row['ratio_of_best']} (best) {row['ratio_of_medians']} (median)"
        )
        print(json.dumps(row))


if __name__ == "__main__":
    main()
