# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""All attention weights of a BERT-base-shaped model: flaxattn beside torch eager, in one run.

    make bench
    make bench ARGS="--torch-python /path/to/a/python/with/torch"

Both sides hold the same random weights, and their results are compared before anything is timed;
`side_by_side.py` says how that is done. The ratio is torch's time over ours.
"""

from pathlib import Path

import numpy as np
import side_by_side

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
    from flaxattn.models.bert import Bert

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
    """A process of one side: saves its results, then times rounds."""
    run, timed = SIDES[side](folder, kind)
    hidden, weights = (np.asarray(part, np.float32) for part in run())
    np.savez(Path(folder) / side, hidden=hidden, weights=weights)
    side_by_side.serve(side, timed)


def difference(folder):
    """Largest difference of hidden states and of weights."""
    torch, ours = (np.load(folder / f"{side}.npz") for side in SIDES)
    return {name: float(np.abs(torch[name] - ours[name]).max()) for name in torch}


def main():
    """Measure the dtypes that were named."""
    options = side_by_side.parser(__doc__).parse_args()
    if options.serve:
        serve(options.serve, options.folder, options.dtypes[0])
        return
    for kind in options.dtypes:
        row = side_by_side.compare(__file__, options, [kind], difference)
        shape = {"dtype": kind, "batch": BATCH, "length": LENGTH}
        side_by_side.show(kind, shape | row)


if __name__ == "__main__":
    main()
