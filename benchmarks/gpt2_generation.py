# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Going on with text by GPT-2: flaxattn beside torch's `generate`, in one run.

    python benchmarks/gpt2_generation.py 1 8 loss --rounds 5 --torch-python TORCH_PYTHON
    python benchmarks/gpt2_generation.py --lengths

The shape of `gpt2` with random weights in float32, prompts of 16 pieces, 128 new ones, one text or
8; the end of the text is banned on both sides. `loss` is the mean loss of 8 texts of 256 pieces.
With `--lengths`, the time of a piece after 256, 512 and 1,000 others, of ours alone.
`side_by_side.py` says how sides are timed.
"""

import sys
import time
from pathlib import Path

import numpy as np
import side_by_side

PROMPT, NEW, VOCABULARY = 16, 128, 50257
END = VOCABULARY - 1


def ids(rows, length, end=END):
    """Random pieces, none of them the last of the vocabulary."""
    return np.random.default_rng(0).integers(0, end, (rows, length))


def torch_writing(model, given, new, end):
    """Greedy continuations by torch, as a piece of work; texts never end."""
    import torch

    given = torch.from_numpy(given)
    settings = {"max_new_tokens": new, "do_sample": False, "pad_token_id": end}

    def work():
        with torch.inference_mode():
            mask = torch.ones_like(given)
            return model.generate(given, attention_mask=mask, bad_words_ids=[[end]], **settings)

    return work


def our_writing(model, given, new, end):
    """The same by flaxattn."""

    def work():
        return model.generate(input_ids=given, max_new_tokens=new, banned=(end,))

    return work


def torch_side(folder, kind):
    """The work in torch; weights and results go to `folder`."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    model.save_pretrained(folder)
    if kind == "loss":
        given = torch.from_numpy(ids(8, 256))

        def work():
            with torch.inference_mode():
                return model(given, labels=given).loss
    else:
        work = torch_writing(model, ids(int(kind), PROMPT), NEW, END)

    np.save(Path(folder) / "torch.npy", work().numpy())
    return work


def our_side(folder, kind):
    """The same in flaxattn."""
    import jax
    import jax.numpy as jnp

    import flaxattn as fa

    model = fa.from_pretrained(folder)
    if kind == "loss":
        given = jnp.asarray(ids(8, 256))

        @jax.jit
        def loss(params, given):
            logits = model.module.apply({"params": params}, given).logits[:, :-1]
            right = jnp.take_along_axis(logits, given[:, 1:, None], axis=2)[..., 0]
            return (jax.nn.logsumexp(logits, axis=-1) - right).mean()

        def work():
            return loss(model.params, given).block_until_ready()
    else:
        work = our_writing(model, ids(int(kind), PROMPT), NEW, END)

    np.save(Path(folder) / "flaxattn.npy", np.asarray(work()))
    return work


def difference(folder):
    """Share of the pieces that differ, or the difference of the losses."""
    ours, theirs = (np.load(folder / f"{name}.npy") for name in ("flaxattn", "torch"))
    if ours.ndim == 0:
        return float(abs(ours - theirs))
    return float((ours != theirs).mean()) if ours.shape == theirs.shape else 1.0


def lengths():
    """Milliseconds of a piece after so many others."""
    import jax

    import flaxattn as fa
    from flaxattn.models.decoder import DecoderLM
    from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

    config = fa.GPT2Config()
    module = DecoderLM(config)
    params = jax.jit(module.init)(jax.random.key(0), ids(1, 1))["params"]
    model = PretrainedDecoder(module, params, None, config)
    for length in (256, 512, 1000):
        seconds = []
        for new in (2, 22):
            times = []
            for _ in range(4):
                start = time.perf_counter()
                model.generate(input_ids=ids(1, length), max_new_tokens=new, banned=(END,))
                times.append(time.perf_counter() - start)
            seconds.append(min(times))
        sys.stdout.write(f"{length}: {(seconds[1] - seconds[0]) / 20 * 1e3:.1f} ms\n")


def main():
    """Compare, or serve one side."""
    made = side_by_side.parser(__doc__)
    made.add_argument("--lengths", action="store_true")
    options = made.parse_args()
    if options.lengths:
        lengths()
    elif options.serve:
        side = torch_side if options.serve == "torch" else our_side
        side_by_side.serve(options.serve, side(options.folder, options.dtypes[0]))
    else:
        for kind in options.dtypes:
            row = side_by_side.compare(__file__, options, [kind], difference)
            side_by_side.show(f"GPT-2, {kind}", row)


if __name__ == "__main__":
    main()
