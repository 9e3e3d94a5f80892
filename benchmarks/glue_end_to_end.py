# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on GLUE from the start of the process to the last score, beside torch.

    python benchmarks/glue_end_to_end.py --data GLUE --torch-python TORCH_PYTHON

Both sides start from the built-in model, read the same TSV files, and do three epochs in batches
of 32 with AdamW. The torch side is what Hugging Face's `run_glue` does by default: every example
is padded to 128 tokens, and the dev set is judged at the end. Ours pads to length buckets, judges
twice an epoch and writes its checkpoints. Compilation counts. Whole runs alternate.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BATCH, EPOCHS, LENGTH, RATE = 32, 3, 128, 1e-4
# Training and dev file, columns of the texts, column of the label; whether there is a header.
FILES = {
    "cola": ("CoLA/in_domain_train.tsv", "CoLA/in_domain_dev.tsv", (3,), 1, False),
    "rte": ("RTE/train.tsv", "RTE/dev.tsv", (1, 2), 3, True),
}


def read(data, task, part):
    """Texts and labels of a part."""
    train, dev, texts, label, header = FILES[task]
    with (data / (train if part == "train" else dev)).open(encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[header:]
    names = {"not_entailment": 1, "entailment": 0, "0": 0, "1": 1}
    return [[row[column] for row in rows] for column in texts], [names[row[label]] for row in rows]


def torch_side(data, task, model):
    """The run in torch; prints the dev accuracy."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification
    from transformers import get_linear_schedule_with_warmup as schedule

    tokenizer = AutoTokenizer.from_pretrained(model)
    net = BertForSequenceClassification.from_pretrained(model, attn_implementation="sdpa").float()

    def encoded(part):
        texts, labels = read(data, task, part)
        given = tokenizer(
            *texts, padding="max_length", max_length=LENGTH, truncation=True, return_tensors="pt"
        )
        names = ("input_ids", "attention_mask", "token_type_ids")
        return torch.utils.data.TensorDataset(*(given[n] for n in names), torch.tensor(labels))

    torch.manual_seed(1)
    batches = torch.utils.data.DataLoader(encoded("train"), BATCH, shuffle=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    steps = EPOCHS * len(batches)
    rate = schedule(optimizer, steps // 10, steps)
    net.train()
    for _ in range(EPOCHS):
        for ids, mask, types, labels in batches:
            loss = net(ids, mask, types, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            rate.step()
    net.eval()
    right = 0
    with torch.no_grad():
        for ids, mask, types, labels in torch.utils.data.DataLoader(encoded("dev"), 64):
            right += (net(ids, mask, types).logits.argmax(-1) == labels).sum().item()
    print(json.dumps({"accuracy": right / len(read(data, task, "dev")[1])}))


def run_ours(data, task, model, folder):
    """The command a person types; returns the accuracy it notes."""
    command = [sys.executable, "-m", "flaxattn", "train", "glue", "--task", task]
    command += ["--data", data, "--model", model, "--out", folder]
    settings = {"batch_size": BATCH, "epochs": EPOCHS, "max_length": LENGTH, "learning_rate": RATE}
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    subprocess.run(command, check=True, capture_output=True)
    heldout = [
        row
        for line in (Path(folder) / "seed-12345" / "metrics.jsonl").open(encoding="utf-8")
        if (row := json.loads(line))["kind"] == "heldout"
    ]
    return {"score": heldout[-1]["score"]}


def run_torch(python, data, task, model):
    """A process of the torch side; returns what it printed."""
    command = [python, __file__, "--torch", "--data", data, "--task", task, "--model", model]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(options, task):
    """Whole runs in turns; one row."""
    seconds, found = {"torch": [], "flaxattn": []}, {}
    for _ in range(options.rounds):
        for side in seconds:
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                if side == "torch":
                    found[side] = run_torch(options.torch_python, options.data, task, options.model)
                else:
                    found[side] = run_ours(options.data, task, options.model, f"{folder}/run")
                seconds[side].append(round(time.perf_counter() - start, 1))
    ratio = min(seconds["torch"]) / min(seconds["flaxattn"])
    row = {"task": task, "seconds": seconds, "ratio_of_best": round(ratio, 2), "found": found}
    row |= {"load": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}
    print(json.dumps(row), flush=True)


def main():
    """Compare on the tasks that were named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--task", nargs="+", choices=FILES, default=["cola", "rte"])
    parser.add_argument("--model", help="a model directory; default the built-in one")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--torch-python", default=sys.executable, help="Python that has torch")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        torch_side(Path(options.data), options.task[0], options.model)
        return
    if options.model is None:
        from flaxattn.pretrained import hub

        options.model = str(hub.find("tiny-bert"))
    for task in options.task:
        compare(options, task)


if __name__ == "__main__":
    main()
