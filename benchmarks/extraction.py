# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of a corpus to files: `fa.extract_to` beside the loop that people write with torch.

    python benchmarks/extraction.py en_ewt-ud-dev.conllu --torch-python /a/python/with/torch
    python benchmarks/extraction.py en_ewt-ud-dev.conllu --memory
    python benchmarks/extraction.py en_ewt-ud-dev.conllu --sizes
    python benchmarks/extraction.py en_ewt-ud-dev.conllu --plan

A BERT-base-shaped model with random weights reads the sentences of a file (.conllu, or a text per
line), float32 on the CPU, and all weights are stored in float16. The loop takes batches of 16 in
file order, pads to the longest and saves an array per text. Both sides work in turns; their weights
are compared before anything is timed. `--memory`: peak memory of a model of 2 layers and width 16
over the texts, then over ten times as many. `--plan`: rows per second until the first shard of a
job begins, by format.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import side_by_side

STATISTICS = ("lse", "entropy", "max", "distance")
WORK = ("weights", "statistics")
TIMES = 10  # texts of the second measurement of memory
SMALL = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
}
COMPARED = 40  # texts whose weights are compared


def sentences(path):
    """Sentences of a treebank, or lines of a text."""
    text = Path(path).read_text(encoding="utf-8")
    if Path(path).suffix == ".conllu":
        return re.findall(r"^# text = (.+)$", text, flags=re.MULTILINE)
    return [line for line in text.splitlines() if line.strip()]


def prepare(folder, texts, pieces=30522, **settings):
    """The corpus, and a model with a vocabulary learnt from it, as a Hugging Face directory."""
    import jax

    import flaxattn as fa
    from flaxattn.models.bert import Bert
    from flaxattn.pretrained import model_directory
    from flaxattn.text.vocabulary_training import train_wordpiece

    (folder / "corpus.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    tokenizer = train_wordpiece(texts, pieces, True, 512)
    module = Bert(fa.BertConfig(vocab_size=pieces, **settings))
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 2), np.int32))["params"]
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda s: draw.normal(0, 0.05, s.shape).astype(np.float32), shapes)
    model_directory.save(folder / "model", module, params, tokenizer=tokenizer)


def torch_side(prepared, texts, out):
    """The loop; returns a function of a number of texts."""
    import torch
    import transformers

    read = transformers.AutoTokenizer.from_pretrained(prepared / "model")
    model = transformers.BertModel.from_pretrained(
        prepared / "model", attn_implementation="eager", add_pooling_layer=False
    ).eval()

    def loop(count, kind):
        for start in range(0, count, 16):
            batch = read(texts[start : min(start + 16, count)], padding=True, return_tensors="pt")
            with torch.no_grad():
                attentions = model(**batch, output_attentions=True).attentions
            weights = torch.stack(attentions, 1).to(torch.float16).numpy()
            for row, mask in enumerate(batch["attention_mask"]):
                n = int(mask.sum())
                np.save(out / f"{start + row}.npy", weights[row, :, :, :n, :n])

    return loop, lambda number: np.load(out / f"{number}.npy")


def flaxattn_side(prepared, texts, out):
    """`fa.extract_to`; returns a function of a number of texts."""
    import flaxattn as fa

    model = fa.from_pretrained(prepared / "model")

    def store(count, kind):
        shutil.rmtree(out, ignore_errors=True)
        capture = fa.Capture(weights=True, dtype="float16")
        if kind == "statistics":
            capture = fa.Capture(stats=STATISTICS)
        fa.extract_to(out, model, prepared / "corpus.txt", capture=capture, limit=count)

    return store, lambda number: fa.open_store(out).weights(number)


SIDES = {"torch": torch_side, "flaxattn": flaxattn_side}


def serve(options):
    """A process of one side: leaves the weights of some texts, then times rounds."""
    folder, prepared = Path(options.folder), Path(options.prepared)
    texts = (prepared / "corpus.txt").read_text(encoding="utf-8").splitlines()
    out = folder / f"{options.serve}-out"
    out.mkdir()
    work, read = SIDES[options.serve](prepared, texts, out)
    work(COMPARED, "weights")
    found = [np.asarray(read(n), np.float32).ravel() for n in range(COMPARED)]
    np.save(folder / f"{options.serve}.npy", np.concatenate(found))
    side_by_side.serve(options.serve, lambda: work(options.texts, options.kind))


def difference(folder):
    """Largest difference of stored weights."""
    torch, ours = (np.load(folder / f"{side}.npy") for side in SIDES)
    return float(np.abs(torch - ours).max())


def compare(options, prepared):
    """Time both sides, once for stored weights and once for statistics."""
    side_by_side.WARM_UP = options.warm_up
    for kind in options.kinds:
        words = ["--prepared", str(prepared), "--texts", str(options.texts), "--kind", kind]
        row = side_by_side.compare(__file__, options, [options.file, *words], difference)
        side_by_side.show(kind, {"kind": kind, "texts": options.texts} | row)


def peak(kind, corpus, prepared):
    """Peak memory of `flaxattn extract` over a corpus, in MB, as the system counted it."""
    kept = ["--stats", ",".join(STATISTICS)]
    if kind == "weights":
        kept = ["--capture", "weights", "--dtype", "float16"]
    words = [str(corpus), "--model", str(prepared / "model"), *kept]
    with tempfile.TemporaryDirectory(dir=prepared) as folder:
        command = ["-m", "flaxattn", "extract", *words, "--out", str(Path(folder) / "store")]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        process = subprocess.Popen(
            [sys.executable, "-P", *command], env=environment, stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"extract ended with {process.returncode}")
    return round(used.ru_maxrss / 1024)


def memory(options, texts, prepared):
    """Peak memory at 10,000 texts, and at ten times as many; kinds in turns."""
    corpora = [prepared / f"{count}.txt" for count in (options.texts, TIMES * options.texts)]
    for corpus in corpora:
        lines = itertools.islice(itertools.cycle(texts), int(corpus.stem))
        corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for kind in options.rounds * options.kinds:
        few, many = (peak(kind, corpus, prepared) for corpus in corpora)
        row = {"memory": kind, "few_mb": few, "many_mb": many, "ratio": many / few}
        print(json.dumps(row), flush=True)


def sizes(options, prepared):
    """Bytes per text on the disk, of several captures and of BertViz's JSON."""
    import flaxattn as fa

    model = fa.from_pretrained(prepared / "model")
    captures = {
        "float16": fa.Capture(weights=True, dtype="float16"),
        "uint8": fa.Capture(weights=True, dtype="uint8"),
        "top 8": fa.Capture(stats=("topk(8)",)),
        "statistics": fa.Capture(stats=STATISTICS),
    }
    found = {}
    for name, capture in captures.items():
        store = prepared / name
        where = dict(capture=capture, limit=options.texts)
        report = fa.extract_to(store, model, prepared / "corpus.txt", **where)
        found[name] = round(report.written_bytes / report.texts)
    opened = fa.open_store(prepared / "float16")
    told = [opened.weights(n).tolist() for n in range(min(COMPARED, options.texts))]
    found["BertViz JSON"] = round(sum(len(json.dumps(weights)) for weights in told) / len(told))
    print(json.dumps({"texts": options.texts, "bytes_per_text": found}), flush=True)


def plan(options, texts, folder):
    """Rows per second until the first shard of a job begins."""
    import csv
    import time

    import pyarrow as pa
    import pyarrow.parquet as pq

    import flaxattn as fa
    from flaxattn.store.extract_to import Watcher

    class BegunError(Exception):
        pass

    class Planned(Watcher):
        def planned(self, *_):
            raise BegunError

    rows = list(itertools.islice(itertools.cycle(texts), options.texts))
    (folder / "a.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = "".join(json.dumps({"text": row}) + "\n" for row in rows)
    (folder / "a.jsonl").write_text(lines, encoding="utf-8")
    pq.write_table(pa.table({"text": rows}), folder / "a.parquet")
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text"], *([row] for row in rows)])
    model = fa.from_pretrained(folder / "model")
    capture = fa.Capture(stats=("entropy",))
    for number, name in enumerate(["txt", "jsonl", "parquet", "csv"] * options.rounds):
        started = time.perf_counter()
        try:
            store = folder / f"store-{number}"
            fa.extract_to(store, model, folder / f"a.{name}", capture=capture, watcher=Planned())
        except BegunError:
            seconds = time.perf_counter() - started
            print(f"{name}: {len(rows) / seconds:,.0f} rows/s, {seconds:.2f} s", flush=True)


def parser():
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("file", help="a treebank, or a text per line")
    made.add_argument("--texts", type=int, help="default all; for --memory 10,000")
    made.add_argument("--layers", type=int, default=12, help="of the model; fewer for a trial")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--warm-up", type=int, default=1, help="rounds that do not count")
    made.add_argument("--kinds", nargs="+", choices=WORK, default=WORK)
    made.add_argument("--torch-python", default=sys.executable, help="Python that has torch")
    made.add_argument("--memory", action="store_true", help="peak memory instead")
    made.add_argument("--sizes", action="store_true", help="bytes per text instead")
    made.add_argument("--plan", action="store_true", help="rows per second of planning instead")
    made.add_argument("--folder", help="where stores are made; default a temporary folder")
    for hidden in ("--serve", "--prepared", "--kind"):
        made.add_argument(hidden, help=argparse.SUPPRESS)
    return made


def main():
    """Measure what the options name."""
    options = parser().parse_args()
    if options.serve:
        serve(options)
        return
    texts = sentences(options.file)
    if options.memory or options.plan:
        options.texts = options.texts or (10_000 if options.memory else 200_000)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            prepare(Path(folder), texts, 2000, **SMALL)
            (memory if options.memory else plan)(options, texts, Path(folder))
        return
    options.texts = min(options.texts or len(texts), len(texts))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        prepare(Path(folder), texts, num_hidden_layers=options.layers)
        (sizes if options.sizes else compare)(options, Path(folder))


if __name__ == "__main__":
    main()
