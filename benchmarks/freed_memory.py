# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Time of updates of the built-in model, with and without keeping freed memory.

    python benchmarks/freed_memory.py

Each turn is a process of its own, because the setting holds for the rest of a process; turns
alternate. An update is one of fine-tuning on pairs: batch 32, length 96.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np

BATCH, LENGTH, UPDATES, TURNS = 32, 96, 15, 4


def measure(keep):
    """Best milliseconds and page faults of an update in this process."""
    from flaxattn.pipeline.allocator import keep_freed_memory

    if keep:
        assert keep_freed_memory()
    import jax

    from flaxattn.train import glue_model, optimizers, state
    from flaxattn.train.glue_data import GlueBatch
    from flaxattn.train.glue_tasks import find_task
    from flaxattn.train.recipe import GlueRecipe

    task, recipe = find_task("rte"), GlueRecipe(task="rte", steps=100)
    base = glue_model.load_base(task, recipe)
    random = np.random.default_rng(0)
    ids = random.integers(5, 8000, (BATCH, LENGTH)).astype(np.int32)
    labels = random.integers(0, 2, BATCH).astype(np.float32)
    batch = GlueBatch(ids, np.ones_like(ids), ids * 0, labels, np.ones(BATCH, np.float32))
    loss = glue_model.loss_function(glue_model.build_module(task, base, recipe), task)
    optimizer = optimizers.optimizer(recipe)
    update = state.update_function(loss, glue_model.batch_totals, optimizer)
    update = jax.jit(update, donate_argnums=0)
    params = glue_model.initial_parameters(task, base, 0)
    now = jax.jit(lambda p: state.initial_state(p, optimizer))(params)
    times, faults = [], []
    for _ in range(UPDATES):
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        now, _ = update(now, batch)
        jax.block_until_ready(now)
        times.append(1e3 * (time.perf_counter() - begun))
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return {"ms": min(times), "page_faults": sorted(faults)[UPDATES // 2]}


def main():
    """Alternate the two, and print the best of each."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1] == "keep")))
        return
    rows = {"plain": [], "keep": []}
    for _ in range(TURNS):
        for name, found in rows.items():
            done = subprocess.run(
                [sys.executable, __file__, name], stdout=subprocess.PIPE, check=True
            )
            found.append(json.loads(done.stdout))
            print(name, found[-1], flush=True)
    plain, kept = (min(row["ms"] for row in found) for found in rows.values())
    print(f"plain {plain:.0f} ms, kept {kept:.0f} ms: {plain / kept:.2f}")


if __name__ == "__main__":
    main()
