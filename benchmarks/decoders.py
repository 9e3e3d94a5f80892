# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A Llama-shaped decoder: flaxattn beside torch transformers, in one run.

    python benchmarks/decoders.py prefill 1 8 statistics --rounds 5 --torch-python TORCH_PYTHON

The shape of SmolLM2-135M with random weights in float32. `prefill` reads 512 tokens and writes one;
`1` and `8` continue so many texts of 16 tokens by 64, the end of the text banned on both sides;
`statistics` are those of every attention row of a text of 2,048 tokens, by torch from the weights
of eager attention. Times, and the memory of each process. `side_by_side.py` says how sides are
timed.
"""

from pathlib import Path

import gpt2_generation as writing
import numpy as np
import side_by_side

PREFILL, NEW, LONG, VOCABULARY = 512, 64, 2048, 49152
END = VOCABULARY - 1
KINDS = ["prefill", "1", "8", "statistics"]
STATISTICS = ("entropy", "max", "argmax", "distance", "received")
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": END,
    "eos_token_id": END,
}


def prompts(kind):
    """Prompts, and how many tokens are written after them."""
    if kind in ("prefill", "statistics"):
        return writing.ids(1, PREFILL if kind == "prefill" else LONG, END), 1
    return writing.ids(int(kind), writing.PROMPT, END), NEW


def torch_statistics(model, given):
    """Statistics of the rows of every layer, from its weights."""
    import torch

    given = torch.from_numpy(given)
    places = torch.arange(given.shape[1])
    apart = (places[:, None] - places[None]).abs().float()

    def work():
        found = {name: [] for name in STATISTICS}
        with torch.inference_mode():
            for p in model.model(given, output_attentions=True).attentions:
                found["entropy"].append(torch.special.entr(p).sum(-1))
                largest = p.max(-1)
                found["max"].append(largest.values)
                found["argmax"].append(largest.indices)
                found["distance"].append((p * apart).sum(-1))
                found["received"].append(p.sum(-2))
        return torch.stack([layer.mean((0, 2)) for layer in found["entropy"]])

    return work


def our_statistics(model, given):
    """The same by flaxattn, which makes no map of weights."""
    from flaxattn.kernels.contract import Capture

    reading = model._reading(given.astype(np.int32), np.ones(given.shape, np.int32))
    capture = Capture(stats=STATISTICS)

    def work():
        sides = model.trace_tokens(reading, capture).decoder
        return np.asarray(sides.stats["entropy"]).mean((1, 3))

    return work


def torch_side(folder, kind):
    """The work in torch; weights and results go to `folder`."""
    import torch
    import transformers

    torch.manual_seed(0)
    eager = {"attn_implementation": "eager"} if kind == "statistics" else {}
    config = transformers.LlamaConfig(**SHAPE, **eager)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    given, new = prompts(kind)
    if kind == "statistics":
        work = torch_statistics(model, given)
    else:
        work = writing.torch_writing(model, given, new, END)
    np.save(Path(folder) / "torch.npy", work().numpy())
    return work


def our_side(folder, kind):
    """The same in flaxattn."""
    import flaxattn as fa

    given, new = prompts(kind)
    if kind == "statistics":
        work = our_statistics(fa.from_pretrained(folder, head="base"), given)
    else:
        work = writing.our_writing(fa.from_pretrained(folder), given, new, END)
    np.save(Path(folder) / "flaxattn.npy", np.asarray(work()))
    return work


def difference(folder):
    """Share of the tokens that differ, or the largest difference of mean entropies."""
    ours, theirs = (np.load(folder / f"{name}.npy") for name in ("flaxattn", "torch"))
    if ours.dtype.kind == "f":
        return float(np.abs(ours - theirs).max())
    return writing.difference(folder)


def main():
    """Compare, or serve one side."""
    made = side_by_side.parser(__doc__)
    made.set_defaults(dtypes=KINDS)
    options = made.parse_args()
    if options.serve:
        side = torch_side if options.serve == "torch" else our_side
        side_by_side.serve(options.serve, side(options.folder, options.dtypes[0]))
        return
    for kind in options.dtypes:
        row = side_by_side.compare(__file__, options, [kind], difference)
        side_by_side.show(f"Llama 135M, {kind}", row)


if __name__ == "__main__":
    main()
