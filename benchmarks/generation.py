# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Translating with Marian-base: flaxattn beside torch's `generate`, or CTranslate2, in one run.

    python benchmarks/generation.py greedy beam greedy-trace beam-trace \
        --rounds 5 --torch-python TORCH_PYTHON

The shape of the published Opus-MT models (6 + 6 layers, width 512, 58,101 pieces) with random
weights, 16 sources of 8 to 24 tokens, 32 new tokens each: the end of the text is banned on both
sides, so that both write as many. Float32. With `-trace` ours hands back every attention of all
three kinds besides; torch is requested none. With `-ctranslate2` the other side is CTranslate2 on
the same weights in float32, from the Python of torch. `side_by_side.py` says how they are timed.
"""

import os
from pathlib import Path

import numpy as np
import side_by_side

BATCH, NEW, VOCABULARY = 16, 32, 58101
END, PAD = 0, VOCABULARY - 1
WAYS = {"greedy": 1, "beam": 4}


def sources():
    """Random sources, padded on the right."""
    random = np.random.default_rng(0)
    real = np.arange(24)[None] < random.integers(8, 25, (BATCH, 1))
    real[0] = True
    ids = np.where(real, random.integers(1, PAD, real.shape), PAD)
    return {"input_ids": ids, "attention_mask": real.astype(int)}


def torch_side(folder, way):
    """Generation in torch; weights and text go to `folder`."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    model = transformers.MarianMTModel(config).eval()
    model.save_pretrained(folder)
    given = {name: torch.from_numpy(array) for name, array in sources().items()}
    settings = {"max_new_tokens": NEW, "num_beams": WAYS[way], "do_sample": False}

    def work():
        with torch.inference_mode():
            return model.generate(**given, **settings, bad_words_ids=[[END], [PAD]])

    np.save(Path(folder) / "torch.npy", work().numpy())
    return work


def ctranslate2_side(folder, way):
    """The same model in CTranslate2, which takes words for tokens and writes as many."""
    import ctranslate2
    import transformers
    from ctranslate2.converters.transformers import MarianMTLoader

    torch_side(folder, way)
    words = [f"t{number}" for number in range(PAD)]

    class Loader(MarianMTLoader):
        def get_vocabulary(self, model, tokenizer):
            return words

        def set_config(self, config, model, tokenizer):
            config.eos_token = config.decoder_start_token = words[END]
            config.unk_token = words[1]

    spec = Loader()(transformers.MarianMTModel.from_pretrained(folder), None)
    spec.validate()
    spec.optimize(quantization=None)
    made = Path(folder) / "ctranslate2"
    made.mkdir()
    spec.save(str(made))
    model = ctranslate2.Translator(str(made), device="cpu", intra_threads=os.cpu_count())
    given = sources()
    rows = zip(given["input_ids"], given["attention_mask"] == 1, strict=True)
    texts = [[words[number] for number in row[real]] for row, real in rows]
    lengths = {"max_decoding_length": NEW, "min_decoding_length": NEW}

    def work():
        return model.translate_batch(
            texts, beam_size=WAYS[way], **lengths, suppress_sequences=[[words[END]]]
        )

    ids = [[PAD] + [int(word[1:]) for word in found.hypotheses[0]] for found in work()]
    np.save(Path(folder) / "torch.npy", ids)
    return work


def our_side(folder, way, traced):
    """The same in flaxattn."""
    import jax

    import flaxattn as fa

    model, given = fa.from_pretrained(folder), sources()
    settings = {"max_new_tokens": NEW, "num_beams": WAYS[way], "banned": (END, PAD)}

    def work():
        found = model.generate(**given, **settings, trace=traced)
        if traced:
            jax.block_until_ready(found[1].cross.weights)
        return found[0] if traced else found

    np.save(Path(folder) / "flaxattn.npy", work())
    return work


def difference(folder):
    """Share of the tokens that differ."""
    ours, theirs = (np.load(folder / f"{name}.npy") for name in ("flaxattn", "torch"))
    return float((ours != theirs).mean()) if ours.shape == theirs.shape else 1.0


def main():
    """Compare, or serve one side."""
    options = side_by_side.parser(__doc__).parse_args()
    kind = options.dtypes[0]
    way, _, extra = kind.partition("-")
    if options.serve == "torch":
        side = ctranslate2_side if extra == "ctranslate2" else torch_side
        side_by_side.serve("torch", side(options.folder, way))
    elif options.serve:
        side_by_side.serve("flaxattn", our_side(options.folder, way, extra == "trace"))
    else:
        for kind in options.dtypes:
            row = side_by_side.compare(__file__, options, [kind], difference)
            side_by_side.show(f"Marian-base, {kind}", row)


if __name__ == "__main__":
    main()
