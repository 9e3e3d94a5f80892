# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One training step of BERT-base: flaxattn beside torch with SDPA, in one run.

    make bench-train
    python benchmarks/bert_training.py float32 --dropout 0.1 --torch-python TORCH_PYTHON
    python benchmarks/bert_training.py bfloat16 --device cuda --batch 256 --length 128

A step is forward and backward of MLM (on 20 gathered positions of every 128) and NSP, clipping by
global norm, and AdamW. Parameters are float32 on both sides; bfloat16 is the dtype of computation,
through autocast in torch. Both start from the same random weights; without dropout their first
losses are compared. On a GPU torch compiles the forward pass and the loss, and the rate of a large
matrix product is measured too. `side_by_side.py` says how they are timed.
"""

import time
from pathlib import Path

import numpy as np
import side_by_side

VOCABULARY = 30522
RATE, DECAY, CLIP = 1e-4, 0.01, 1.0


def arrays(options):
    """A batch of random tokens: full rows, as packing makes them."""
    random = np.random.default_rng(0)
    batch, length = options.batch, options.length
    predictions = 20 * length // 128
    where = [random.choice(length, predictions, replace=False) for _ in range(batch)]
    return {
        "input_ids": random.integers(1000, VOCABULARY, (batch, length)),
        "attention_mask": np.ones((batch, length), int),
        "token_type_ids": np.broadcast_to(np.arange(length) >= length // 2, (batch, length)) + 0,
        "masked_positions": np.sort(where),
        "masked_ids": random.integers(1000, VOCABULARY, (batch, predictions)),
        "masked_weights": np.ones((batch, predictions), np.float32),
        "next_sentence_label": random.integers(0, 2, batch),
    }


def torch_side(options):
    """The step in torch, which returns the loss; the initial weights go to the folder."""
    import torch
    import transformers

    torch.manual_seed(0)
    device, (dropout,) = options.device, options.dropout
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = transformers.BertConfig(vocab_size=VOCABULARY, attn_implementation="sdpa", **rates)
    model = transformers.BertForPreTraining(config).train()
    model.save_pretrained(options.folder)
    model = model.to(device)
    batch = {
        name: torch.from_numpy(np.ascontiguousarray(x)).to(device)
        for name, x in arrays(options).items()
    }
    inputs = {n: batch[n] for n in ("input_ids", "attention_mask", "token_type_ids")}
    rows = torch.arange(options.batch, device=device)[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    entropy = torch.nn.functional.cross_entropy

    def loss_of():
        with torch.autocast(device, torch.bfloat16, enabled=options.dtypes == ["bfloat16"]):
            hidden, pooled = model.bert(**inputs)[:2]
            words, follows = model.cls(hidden[rows, batch["masked_positions"]], pooled)
        words, wanted = words.flatten(0, 1).float(), batch["masked_ids"].flatten()
        return entropy(words, wanted) + entropy(follows.float(), batch["next_sentence_label"])

    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def flaxattn_side(options):
    """The update of `flaxattn.train` from the weights in the folder; returns the loss."""
    from flaxattn.pipeline.allocator import keep_freed_memory

    keep_freed_memory()  # as the command does
    import jax
    import jax.numpy as jnp

    import flaxattn as fa
    from flaxattn.kernels.contract import NOTHING
    from flaxattn.models.task_heads import BertForPreTraining
    from flaxattn.train import bert_mlm, optimizers, state
    from flaxattn.train.pretraining_data import PretrainingBatch
    from flaxattn.train.recipe import PretrainRecipe

    loaded, (dropout,) = fa.from_pretrained(options.folder), options.dropout
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = loaded.config.__class__(**{**vars(loaded.config), **rates})
    recipe = PretrainRecipe(
        learning_rate=RATE, warmup_steps=0, schedule="constant", weight_decay=DECAY, clip_norm=CLIP
    )
    layout = {"capture": NOTHING, "unroll": recipe.unroll or 1}
    module = BertForPreTraining(config, dtype=jnp.dtype(options.dtypes[0]), **layout)
    optimizer = optimizers.optimizer(recipe)
    update = state.update_function(bert_mlm.loss_function(module), bert_mlm.batch_totals, optimizer)
    update = jax.jit(update, donate_argnums=0)
    batch = PretrainingBatch(**{n: jnp.asarray(x, jnp.int32) for n, x in arrays(options).items()})
    batch = batch._replace(masked_weights=jnp.ones(batch.masked_ids.shape, jnp.float32))
    now = state.initial_state(jax.tree.map(jnp.asarray, loaded.params), optimizer)

    def step():
        nonlocal now
        now, metrics = update(now, batch)
        jax.block_until_ready(now)
        return float(metrics["loss"])

    return step


SIDES = {"torch": torch_side, "flaxattn": flaxattn_side}


def matrix_rate(size=8192, rounds=10):
    """TFLOP/s of a bfloat16 product of two large matrices, on the device of jax."""
    import jax
    import jax.numpy as jnp

    x = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    product = jax.jit(jnp.matmul)
    product(x, x).block_until_ready()
    start = time.perf_counter()
    for _ in range(rounds):
        y = product(x, x)
    y.block_until_ready()
    return 2e-12 * size**3 * rounds / (time.perf_counter() - start)


def operations(options):
    """Floating-point operations of a step's matrix products: 12 layers of width 768, and MLM."""
    tokens, width = options.batch * options.length, 768
    layer = tokens * (12 * width**2 + 2 * options.length * width)
    words = options.batch * (20 * options.length // 128) * (width**2 + width * VOCABULARY)
    return 6 * (12 * layer + words)


def serve(options):
    """A process of one side: notes its first loss, then times steps."""
    step = SIDES[options.serve](options)
    (Path(options.folder) / options.serve).write_text(repr(step()))
    if options.device == "cuda" and options.serve == "flaxattn":
        (Path(options.folder) / "rate").write_text(repr(matrix_rate()))
    side_by_side.serve(options.serve, step)


def difference(folder):
    """Compare the first losses, which follow from the same weights; dropout differs."""
    torch, ours = (float((folder / side).read_text()) for side in SIDES)
    rate = folder / "rate"
    rates = {"matrix_tflops": round(float(rate.read_text()), 1)} if rate.exists() else {}
    return {"loss": torch, "difference": abs(torch - ours), **rates}


def main():
    """Measure the dtypes and rates of dropout that were named."""
    parser = side_by_side.parser(__doc__)
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1, 0.0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    shape = {"device": options.device, "batch": options.batch, "length": options.length}
    for kind in options.dtypes:
        for dropout in options.dropout:
            arguments = [kind, "--dropout", str(dropout)]
            arguments += [word for name, x in shape.items() for word in (f"--{name}", str(x))]
            platforms = "cpu" if options.device == "cpu" else "cuda,cpu"
            row = side_by_side.compare(__file__, options, arguments, difference, platforms)
            best = {side: 1e-3 * ms for side, ms in row["best_ms"].items()}
            rates = {
                "sequences_per_s": {n: round(options.batch / s, 1) for n, s in best.items()},
                "tflops": {n: round(1e-12 * operations(options) / s, 2) for n, s in best.items()},
            }
            about = shape | {"dtype": kind, "dropout": dropout}
            side_by_side.show(f"{kind}, dropout {dropout}", about | rates | row)


if __name__ == "__main__":
    main()
