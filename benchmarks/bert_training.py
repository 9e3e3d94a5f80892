# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One training step of BERT-base: flaxattn beside torch with SDPA, in one run.

    make bench-train
    python benchmarks/bert_training.py float32 --dropout 0.1 --torch-python TORCH_PYTHON

A step is forward and backward of MLM (on 20 gathered positions of each sequence) and NSP, clipping
by global norm, and AdamW. Parameters are float32 on both sides; bfloat16 is the dtype of
computation, through autocast in torch. Both start from the same random weights; without dropout
their first losses are compared. `side_by_side.py` says how they are timed.
"""

from pathlib import Path

import numpy as np
import side_by_side

BATCH, LENGTH, PREDICTIONS, VOCABULARY = 8, 128, 20, 30522
RATE, DECAY, CLIP = 1e-4, 0.01, 1.0


def arrays():
    """A batch of random tokens: full rows, as packing makes them."""
    random = np.random.default_rng(0)
    where = [random.choice(LENGTH, PREDICTIONS, replace=False) for _ in range(BATCH)]
    return {
        "input_ids": random.integers(1000, VOCABULARY, (BATCH, LENGTH)),
        "attention_mask": np.ones((BATCH, LENGTH), int),
        "token_type_ids": np.broadcast_to(np.arange(LENGTH) >= LENGTH // 2, (BATCH, LENGTH)) + 0,
        "masked_positions": np.sort(where),
        "masked_ids": random.integers(1000, VOCABULARY, (BATCH, PREDICTIONS)),
        "masked_weights": np.ones((BATCH, PREDICTIONS), np.float32),
        "next_sentence_label": random.integers(0, 2, BATCH),
    }


def torch_side(folder, kind, dropout):
    """The step in torch, which returns the loss; the initial weights go to `folder`."""
    import torch
    import transformers

    torch.manual_seed(0)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = transformers.BertConfig(vocab_size=VOCABULARY, attn_implementation="sdpa", **rates)
    model = transformers.BertForPreTraining(config).train()
    model.save_pretrained(folder)
    batch = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in arrays().items()}
    inputs = {n: batch[n] for n in ("input_ids", "attention_mask", "token_type_ids")}
    rows = torch.arange(BATCH)[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    entropy = torch.nn.functional.cross_entropy

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bfloat16"):
            hidden, pooled = model.bert(**inputs)[:2]
            words, follows = model.cls(hidden[rows, batch["masked_positions"]], pooled)
        words, wanted = words.flatten(0, 1).float(), batch["masked_ids"].flatten()
        loss = entropy(words, wanted) + entropy(follows.float(), batch["next_sentence_label"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def flaxattn_side(folder, kind, dropout):
    """The update of `flaxattn.train` from the weights in `folder`; returns the loss."""
    from flaxattn.pipeline.allocator import keep_freed_memory

    keep_freed_memory()  # as the command does
    import jax
    import jax.numpy as jnp

    import flaxattn as fa
    from flaxattn.kernels.contract import NOTHING
    from flaxattn.models.bert import BertForPreTraining
    from flaxattn.train import bert_mlm, optimizers, state
    from flaxattn.train.pretraining_data import PretrainingBatch
    from flaxattn.train.recipe import PretrainRecipe

    loaded = fa.from_pretrained(folder)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = loaded.config.__class__(**{**vars(loaded.config), **rates})
    recipe = PretrainRecipe(
        learning_rate=RATE, warmup_steps=0, schedule="constant", weight_decay=DECAY, clip_norm=CLIP
    )
    layout = {"capture": NOTHING, "unroll": recipe.unroll or 1}
    module = BertForPreTraining(config, dtype=jnp.dtype(kind), **layout)
    optimizer = optimizers.optimizer(recipe)
    update = state.update_function(bert_mlm.loss_function(module), bert_mlm.batch_totals, optimizer)
    update = jax.jit(update, donate_argnums=0)
    batch = PretrainingBatch(**{n: jnp.asarray(x, jnp.int32) for n, x in arrays().items()})
    batch = batch._replace(masked_weights=jnp.ones((BATCH, PREDICTIONS), jnp.float32))
    now = state.initial_state(jax.tree.map(jnp.asarray, loaded.params), optimizer)

    def step():
        nonlocal now
        now, metrics = update(now, batch)
        jax.block_until_ready(now)
        return float(metrics["loss"])

    return step


SIDES = {"torch": torch_side, "flaxattn": flaxattn_side}


def serve(side, folder, kind, dropout):
    """A process of one side: notes its first loss, then times steps."""
    step = SIDES[side](folder, kind, dropout)
    (Path(folder) / side).write_text(repr(step()))
    side_by_side.serve(side, step)


def difference(folder):
    """Of the first losses, which follow from the same weights; dropout differs, if there is any."""
    torch, ours = (float((folder / side).read_text()) for side in SIDES)
    return {"loss": torch, "difference": abs(torch - ours)}


def main():
    """Measure the dtypes and rates of dropout that were named."""
    parser = side_by_side.parser(__doc__)
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1, 0.0])
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.folder, options.dtypes[0], options.dropout[0])
        return
    for kind in options.dtypes:
        for dropout in options.dropout:
            arguments = [kind, "--dropout", str(dropout)]
            row = side_by_side.compare(__file__, options, arguments, difference)
            shape = {"dtype": kind, "dropout": dropout, "batch": BATCH, "length": LENGTH}
            side_by_side.show(f"{kind}, dropout {dropout}", shape | row)


if __name__ == "__main__":
    main()
