# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports on heads of every built-in model: the commands, their inputs, and the numbers they leave.

`make_report_golden.py` stores these numbers; `tests/measures/test_golden_reports.py` compares.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import small_bert

# word/tag/governor/relation; governors count from 1, 0 is the root.
TREES = (
    "the/DET/3/det old/ADJ/3/amod cat/NOUN/4/nsubj slept/VERB/0/root quietly/ADV/4/advmod "
    "./PUNCT/4/punct",
    "she/PRON/2/nsubj wrote/VERB/0/root me/PRON/2/iobj a/DET/6/det long/ADJ/6/amod "
    "letter/NOUN/2/obj from/ADP/9/case the/DET/9/det city/NOUN/2/obl ./PUNCT/2/punct",
    "nobody/PRON/2/nsubj came/VERB/0/root in/ADV/2/advmod when/ADV/7/advmod the/DET/6/det "
    "door/NOUN/7/nsubj opened/VERB/2/advcl at/ADP/9/case last/ADJ/7/obl ./PUNCT/2/punct",
    "the/DET/2/det water/NOUN/4/nsubj was/AUX/4/cop high/ADJ/0/root ,/PUNCT/4/punct "
    "for/SCONJ/8/mark it/PRON/8/nsubj rained/VERB/4/advcl in/ADP/11/case the/DET/11/det "
    "hills/NOUN/8/obl ./PUNCT/4/punct",
    "his/PRON/2/nmod sister/NOUN/3/nsubj bought/VERB/0/root bread/NOUN/3/obj and/CCONJ/6/cc "
    "cheese/NOUN/4/conj ,/PUNCT/3/punct and/CCONJ/10/cc he/PRON/10/nsubj ate/VERB/3/conj "
    "it/PRON/10/obj quickly/ADV/10/advmod ./PUNCT/3/punct",
    "small/ADJ/2/amod birds/NOUN/3/nsubj sang/VERB/0/root very/ADV/5/advmod loudly/ADV/3/advmod "
    "in/ADP/8/case the/DET/8/det garden/NOUN/3/obl ./PUNCT/3/punct",
    "we/PRON/2/nsubj saw/VERB/0/root the/DET/4/det man/NOUN/2/obj who/PRON/6/nsubj "
    "sold/VERB/4/acl the/DET/9/det red/ADJ/9/amod apples/NOUN/6/obj ./PUNCT/2/punct",
)
PAIRS = (
    ("The cat is very sad.", "Because it could not find food to eat."),
    ("The old man walked down to the river.", "The river was high, and the man was old."),
    ("When the door opened, nobody came in.", "There was only the wind upon the step."),
)
DATES = (
    ("Monday, 4 March 1985", "1985-03-04"),
    ("12.07.2003", "2003-07-12"),
    ("the 1st of May 1999", "1999-05-01"),
    ("November 23, 2026", "2026-11-23"),
    ("3. Oktober 1990", "1990-10-03"),
)
PRONOUNS = (
    "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
    "d-1\tAnna saw Berta's dog and she smiled.\tshe\t25\tAnna\t0\tTRUE\tBerta\t9\tFALSE\tu\n"
    "d-2\tCarl met Emil; his dog barked.\this\t15\tCarl\t0\tFALSE\tEmil\t9\tTRUE\tu\n"
)
_DATES = ("dates.tsv", "--pair-column", "iso", "--model", "tiny-dates")
# Commands without their page, which takes time and holds no other number.
_WITH_PAGE = {
    "roles-bert": ("roles", "trees.conllu", "--relations", "all", "--tau", "1.5"),
    "roles-bert-pairs": ("roles", "pairs.tsv", "--pair-column", "second", "--pande-parity"),
    "stats-bert": ("stats", "trees.conllu"),
    "roles-gpt2": ("roles", "trees.conllu", "--model", "tiny-gpt2", "--repeats", "4"),
    "stats-gpt2": ("stats", "trees.conllu", "--model", "tiny-gpt2"),
    "roles-dates-encoder": ("roles", *_DATES, "--side", "encoder"),
    "roles-dates-decoder": ("roles", *_DATES, "--side", "decoder"),
    "roles-dates-cross": ("roles", *_DATES),
    "stats-dates-cross": ("stats", *_DATES),
    "stats-dates-encoder": ("stats", *_DATES, "--side", "encoder"),
    "roles-store": ("roles", "weights", "--trees", "trees.conllu"),
    "stats-store": ("stats", "statistics", "--trees", "trees.conllu"),
    "stats-store-dates": ("stats", "dates"),
    "probe-bert": ("probe", "trees.conllu"),
    "compare": ("compare", "small", "other", "pairs.tsv"),
}
CASES = {name: (*words, "--no-page") for name, words in _WITH_PAGE.items()} | {
    "probe-pronouns": ("probe", "gap.tsv", "--pronouns", "gap"),
}
# What it takes to read these stores: they are extracted first.
STORES = {
    "weights": ("trees.txt", "--capture", "weights", "--dtype", "float32"),
    "statistics": (*("trees.txt", "--stats", "entropy,distance,max,sum_sq,received,topk(4)"),),
    "dates": (*_DATES[:1], "--text-column", "text", *_DATES[1:], "--capture", "weights"),
}
EXTRACTIONS = {name: ("extract", *words) for name, words in STORES.items()}
# Where things lie differs, and which of texts that are equally good comes first.
_JUDGED = ("changed", "role_")  # columns of what is claimed of a head, not of which head
_LEFT_OUT = {"evidence", "data", "flaxattn", "out", "name", "sha256", "plan_sha256", "model"}


def write_inputs(folder):
    """The files that the commands read."""
    sentences, plain = [], []
    for number, line in enumerate(TREES):
        words = [word.rsplit("/", 3) for word in line.split()]
        rows = [
            f"{n}\t{form}\t_\t{tag}\t_\t_\t{governor}\t{relation}\t_\t_"
            for n, (form, tag, governor, relation) in enumerate(words, 1)
        ]
        text = " ".join(form for form, *_ in words)
        sentences.append("\n".join([f"# sent_id = s{number}", f"# text = {text}", *rows, "", ""]))
        plain.append(text)
    tables = {
        "trees.conllu": "".join(sentences),
        "trees.txt": "".join(text + "\n" for text in plain),
        "pairs.tsv": "".join("\t".join(row) + "\n" for row in [("text", "second"), *PAIRS]),
        "dates.tsv": "".join("\t".join(row) + "\n" for row in [("text", "iso"), *DATES]),
        "gap.tsv": PRONOUNS,
    }
    for name, content in tables.items():
        (folder / name).write_text(content, encoding="utf-8")


def write_models(folder):
    """The two random models that are compared."""
    for seed, name in enumerate(("small", "other")):
        small_bert.save(folder / name, heads=4, deviation=0.3, seed=seed)


def numbers_of(report):
    """Every number of a report by its place, from its JSON and its table of heads."""
    found = {}
    (summary,) = [path for path in report.glob("*.json")]
    _walk(json.loads(summary.read_text(encoding="utf-8")), "", found)
    for table in sorted(report.glob("*.parquet")):
        if table.stem in ("heads", "compare", "probe"):
            columns = pq.read_table(table)
            floats = {f.name for f in columns.schema if pa.types.is_floating(f.type)}
            for row in columns.to_pylist():
                labels = [
                    str(value)
                    for name, value in row.items()
                    if isinstance(value, str | int) and not name.startswith(_JUDGED)
                ]
                for name, value in row.items():
                    if name in floats:  # null where there is no number
                        number = float("nan") if value is None else value
                        found[f"{table.stem}/{'/'.join(labels[:5])}/{name}"] = number
    return found


def _walk(value, place, found):
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in _LEFT_OUT:
                _walk(part, f"{place}/{key.replace(' ', '_')}", found)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            _walk(part, f"{place}/{number}", found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found[place] = float(value)


def stored(numbers):
    """Numbers as arrays that an npz file holds."""
    names = sorted(numbers)
    return "\n".join(names), np.array([numbers[name] for name in names], np.float64)


def rounded_up(tolerances):
    """Tolerances as the powers of two above them, which take little room."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.ceil(np.log2(tolerances)), -30).astype(np.int8)
