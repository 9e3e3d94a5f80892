# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Writes heads.md and heads.json: what the heads of two models do on two corpora, in numbers.

    python docs/heads.py --data UD --checkpoint MODEL

UD is a folder with `en_ewt-ud-dev.conllu` and `en_pud-ud-test.conllu`, MODEL the directory of a
pretrained BERT; `tiny-bert` is the other model. Heads that are said to find a relation are chosen
on one corpus and judged on the other. No sentence gets into the files. What is measured, and how,
is in `flaxattn.measures`.
"""

import argparse
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from page_tables import Clock, table, write_page

from flaxattn import __version__
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence, read_sentences
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.files import sha256_of
from flaxattn.measures.claims import head_patterns
from flaxattn.measures.role_tests import Test, facts, find_roles
from flaxattn.measures.score_source import head_scores
from flaxattn.measures.scores import ScoreAccumulator, Scores, intervals
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.pipeline.tokenize_texts import ReadingOptions
from flaxattn.pretrained.from_pretrained import from_pretrained, untrained
from flaxattn.probes.governor_probe import FROM_GOVERNOR, Classifier, Dependencies
from flaxattn.probes.parsing_probe import judge_parsing
from flaxattn.probes.word_records import WordMaps, word_maps

CORPORA = {"EWT dev": "en_ewt-ud-dev.conllu", "PUD": "en_pud-ud-test.conllu"}
STATISTICS = ("entropy", "distance", "cls", "sep", "punctuation", "next", "previous", "own")
ASKED, TEST = ScoreOptions(), Test()
FEW = 100  # words: relations with fewer are left out
DRAWS = 2000


def gathered(given: argparse.Namespace) -> dict[str, Any]:
    """Everything that is on the page."""
    paths = {name: given.data / file for name, file in CORPORA.items()}
    sentences = {
        name: list(itertools.islice(read_sentences([path], BadRows("skip")), given.sentences))
        for name, path in paths.items()
    }
    told: dict[str, Any] = {
        "flaxattn": __version__,
        "jax": jax.__version__,
        "cores": os.cpu_count(),
        "settings": {
            **dataclasses.asdict(ASKED),
            **dataclasses.asdict(TEST),
            "sentences": given.sentences,
            "probe_sentences": given.probe_sentences,
            "control_sentences": given.control_sentences,
            "control_seeds": given.control_seeds,
            "bootstrap_draws": DRAWS,
        },
        "data": {name: {"file": p.name, "sha256": sha256_of(p)} for name, p in paths.items()},
        "models": {},
        "reports": [],
        "relations": [],
        "controls": [],
    }
    for name, source in (("tiny-bert", "tiny-bert"), (given.name, given.checkpoint)):
        model = from_pretrained(str(source))
        told["models"][name] = described(model, source)
        clocks = {corpus: Clock() for corpus in CORPORA}
        maps: dict[str, list[WordMaps]] = {}
        for corpus, some in sentences.items():
            with clocks[corpus]:
                report = reported(model, some)
                maps[corpus] = list(word_maps(model, some, ReadingOptions(bad=BadRows("skip"))))
            told["reports"].append({"model": name, "corpus": corpus, **report})
        for corpus, other in (tuple(CORPORA), tuple(CORPORA)[::-1]):
            with clocks[corpus]:
                found = related(maps[corpus], maps[other], given.probe_sentences)
            told["relations"].append({"model": name, "corpus": corpus, "other": other, **found})
        for report in told["reports"][-len(CORPORA) :]:
            report["seconds"] = clocks[report["corpus"]].told()
            print(json.dumps({k: report[k] for k in ("model", "corpus", "seconds")}), flush=True)
        first = sentences["EWT dev"][: given.control_sentences]
        told["controls"] += [
            {"model": name, **control}
            for control in controlled(model, first, range(given.control_seeds))
        ]
    return told


def described(model: Any, source: str | Path) -> dict[str, Any]:
    """A model's shape, and the digest of its weights where they lie in a folder."""
    file, config = Path(source) / "model.safetensors", model.config
    return {
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "sha256": sha256_of(file) if file.is_file() else None,
    }


def reported(model: Any, sentences: list[Sentence]) -> dict[str, Any]:
    """Roles, patterns and statistics of all heads on some sentences."""
    bad = BadRows("skip")
    parts = list(
        head_scores(model, map(annotated_text, sentences), ASKED, reading=ReadingOptions(bad=bad))
    )
    tally = ScoreAccumulator.of(*parts)
    found = find_roles(tally, ASKED, TEST)
    drawn = intervals(Scores.joined(parts))
    patterns: dict[str, int] = {}
    for label in head_patterns(tally, alpha=TEST.alpha):
        patterns[label.label] = patterns.get(label.label, 0) + 1
    columns = {name: ScoreSpec("mean", name) for name in STATISTICS}
    return {
        "texts": len(tally.lengths),
        "left_out": dict(bad.counts),
        "mean length": float(tally.lengths.mean()),
        **facts(found),
        "patterns": patterns,
        "statistics": {n: tally.moments[c].mean.mean(1).tolist() for n, c in columns.items()},
        "widest interval": {
            n: float((drawn[c][1] - drawn[c][0]).max()) for n, c in columns.items()
        },
    }


def related(texts: list[WordMaps], others: list[WordMaps], fitted: int) -> dict[str, Any]:
    """The best head of every relation, and a parser of all heads; both learnt from `others`."""
    best = Dependencies.of(texts).best(Dependencies.of(others))
    judged = judge_parsing(others[:fitted], texts)
    shown = [one for one in best if one.words >= FEW and ":" not in one.relation]
    rows = []
    for one in shown:
        low, high = interval(texts, one)
        rows.append({**one._asdict(), "lift": one.lift, "low": low, "high": high})
    return {"best": rows, "parser": judged.facts()}


def interval(texts: list[WordMaps], one: Classifier) -> tuple[float, float]:
    """95% bootstrap interval, over sentences, of a head's points above its baseline."""
    counts = []
    for words in texts:
        names = [name.split(":")[0] for name in words.relations]
        asked = (words.governors >= 0) & np.array([one.relation in (n, "any") for n in names])
        at = np.flatnonzero(asked)
        layer, head = words.layers.index(one.layer), words.heads.index(one.head)
        weights = words.weights[layer, head] - 2 * np.eye(len(words))
        answers = weights.argmax(0 if one.direction == FROM_GOVERNOR else 1)[at]
        right = (answers == words.governors[at]).sum()
        counts.append((right - (at + one.offset == words.governors[at]).sum(), len(at)))
    table_of = np.array(counts, float)
    times = np.random.default_rng(0).multinomial(
        len(counts), np.full(len(counts), 1 / len(counts)), size=DRAWS
    )
    lifts, words_drawn = (times @ table_of).T
    low, high = np.quantile(100 * lifts / np.maximum(words_drawn, 1), (0.025, 0.975))
    return float(low), float(high)


def controlled(model: Any, sentences: list[Sentence], seeds: range) -> Iterator[dict[str, Any]]:
    """How often roles are found where there are none."""
    blind = [(untrained(model, seed), sentences, seed) for seed in seeds]
    yield {"control": "parameters at random"} | falsely(blind, every=True)
    mixed = [(model, [shuffled(sentence, seed) for sentence in sentences], seed) for seed in seeds]
    yield {"control": "trees shuffled"} | falsely(mixed, every=False)


def shuffled(sentence: Sentence, seed: int) -> Sentence:
    """The sentence with the words of its tree in another order: arcs between words at random."""
    rng = np.random.default_rng([seed, sentence.line])
    order = rng.permutation(len(sentence.words)).tolist()
    words = list(sentence.words)
    for place, word in zip(order, sentence.words, strict=True):
        governor = word.governor if word.governor < 0 else order[word.governor]
        words[place] = words[place]._replace(governor=governor, relation=word.relation)
    return sentence._replace(words=tuple(words))


def falsely(drawn: list[tuple[Any, list[Sentence], int]], *, every: bool) -> dict[str, Any]:
    """How many tests are positive, over several drawings; of roles of trees only, or of all."""
    tests, roles, pairs, beyond, raw, families, highest = 0, 0, 0, 0, 0, 0, 0.0
    for model, sentences, seed in drawn:
        asked = dataclasses.replace(ASKED, seed=seed)
        subjects: list[Text] = [annotated_text(sentence) for sentence in sentences]
        tally = ScoreAccumulator.of(
            *head_scores(model, subjects, asked, reading=ReadingOptions(bad=BadRows("skip")))
        )
        found = find_roles(tally, asked, TEST)
        loose = find_roles(tally, asked, dataclasses.replace(TEST, correction="none"))
        trees = [role for role in found.roles.values() if role.beyond is not None]
        judged = list(found.roles.values()) if every else trees
        tests += sum(role.found.size for role in judged)
        roles += sum(int(role.found.sum()) for role in judged)
        pairs += sum(role.found.size for role in trees)
        beyond += sum(int((np.nan_to_num(r.beyond, nan=1) < TEST.alpha).sum()) for r in trees)
        families += any(bool((np.nan_to_num(r.beyond, nan=1) < TEST.alpha).any()) for r in trees)
        for role in loose.roles.values():
            if role.beyond is not None:
                raw += int((np.nan_to_num(role.beyond, nan=1) < TEST.alpha).sum())
        highest = max(highest, *(float(np.nanmax(role.score)) for role in trees))
    return {
        "seeds": len(drawn),
        "sentences": len(drawn[0][1]) if drawn else 0,
        "tests": tests,
        "roles": roles,
        "pairs": pairs,
        "beyond": beyond,
        "beyond uncorrected": raw,
        "seeds with one beyond": families,
        "highest score": highest,
    }


def render(told: dict[str, Any]) -> str:
    """The page."""
    settings = told["settings"]
    files = [
        [name, f"`{at['file']}`", settings["sentences"], f"`{at['sha256'][:16]}`"]
        for name, at in told["data"].items()
    ]
    models = [
        [name, at["layers"], at["heads"], at["width"], at["sha256"] and f"`{at['sha256'][:16]}`"]
        for name, at in told["models"].items()
    ]
    parts = [
        "# What the heads of two models do",
        "`python docs/heads.py --data UD --checkpoint MODEL` writes this page and "
        f"`heads.json`, which has more digits. flaxattn {told['flaxattn']}, jax {told['jax']}.",
        *_in_short(told),
        "## Data, models, settings",
        table(["corpus", "file", "sentences", "SHA-256"], files),
        table(["model", "layers", "heads", "width", "SHA-256 of the weights"], models),
        f"τ = {settings['tau']:g}, α = {settings['alpha']:g}, correction "
        f"`{settings['correction']}` over all heads and roles, relations "
        f"{', '.join(settings['relations'])}, seed {settings['seed']}.",
        "## Roles",
        "How many heads have a mean score above τ (a lift over uniform attention). *Share needed* "
        "is the attention that takes on the median text: it falls with the length of texts, so "
        "counts on texts of other lengths do not compare. *Beyond* counts those heads whose score "
        "also exceeds that of unrelated words as far apart.",
        *itertools.chain.from_iterable(_roles(report) for report in told["reports"]),
        "## The best head of each relation",
        "One head says of each word which is its governor: the word it attends to most, or the one "
        "that attends most to it. Head, direction and offset are chosen on the other corpus. "
        "The baseline is the best fixed offset; intervals are 95% bootstrap intervals over "
        f"sentences. Relations with {FEW} words and more.",
        *itertools.chain.from_iterable(_best(one) for one in told["relations"]),
        "## All heads as a parser",
        "Unlabelled attachment of an attention-only probe fitted to "
        f"{settings['probe_sentences']} sentences of the other corpus, punctuation not counted; "
        "the control task has an answer at random for each word type, and is learnt by heart if "
        "anything is.",
        table(
            [*("model", "judged on", "UAS", "fitted to", "offset", "control", "selectivity")],
            [_parser(one) for one in told["relations"]],
        ),
        "## Statistics by layer",
        "Means over heads and sentences: entropy in nats, distance in positions, the others shares "
        "of attention.",
        *itertools.chain.from_iterable(_statistics(report) for report in told["reports"]),
        "## Where there is nothing to find",
        f"The same tests over {settings['control_seeds']} seeds each, on models with parameters at "
        "random (all roles) and on trees whose words are in another order (roles of trees). "
        "*Roles* are those found at τ; *beyond* are heads said to exceed unrelated words as far "
        "apart, with the correction and without.",
        table(
            ["model", "control", "tests", "roles", "beyond", "uncorrected", "highest score"],
            [_control(one) for one in told["controls"]],
        ),
        "## Time",
        f"Seconds for a full report (scores, intervals, tests, maps between words, the best heads, "
        f"two fits of a parser), on {told['cores']} cores, compiling included:",
        table(
            ["model", "corpus", "sentences", "wall", "processors"],
            [
                [r["model"], r["corpus"], r["texts"], *(f"{s:.0f}" for s in r["seconds"].values())]
                for r in told["reports"]
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _in_short(told: dict[str, Any]) -> Iterator[str]:
    yield "## In short"
    for one in told["relations"]:
        clear = [row for row in one["best"] if row["low"] > 10 and row["relation"] != "any"]
        most = max(one["best"], key=lambda row: row["lift"], default=None)
        if most is None:
            continue
        yield (
            f"* **{one['model']}** on {one['corpus']}: "
            + (
                f"{len(clear)} of {len(one['best'])} relations have a head that beats its baseline "
                f"by more than 10 points, the whole interval counted "
                f"({', '.join(row['relation'] for row in clear)}). "
                if clear
                else "no head beats its baseline by 10 points, the whole interval counted. "
            )
            + f"Most on `{most['relation']}`: head {most['layer']}.{most['head']} is right for "
            f"{most['accuracy']:.1%} of {most['words']} words, the offset {most['offset']:+d} for "
            f"{most['baseline']:.1%}: {most['lift']:+.1f} points [{most['low']:.1f}, "
            f"{most['high']:.1f}]."
        )


def _title(one: dict[str, Any]) -> str:
    return f"### {one['model']} on {one['corpus']}"


def _roles(report: dict[str, Any]) -> Iterator[str]:
    yield _title(report)
    yield (
        f"{report['texts']} sentences of {report['mean length']:.1f} positions on average, "
        f"{report['heads']} heads, {report['tests']} tests."
    )
    header = ["role", "heads", "beyond", "by layer", "keys", "share needed", "too short"]
    rows = []
    for name, role in report["roles"].items():
        reach = role["lengths"]
        counts = " ".join(map(str, role["by_layer"]))
        keys = None if reach["keys"] is None else f"{reach['keys']:.1f}"
        needed = None if reach["mass"] is None else f"{reach['mass']:.0%}"
        out = f"{reach['out'] / reach['texts']:.0%}"
        rows.append([name, role["heads"], role["beyond_position"], counts, keys, needed, out])
    yield table(header, rows)
    found = sorted(report["patterns"].items(), key=lambda item: -item[1])
    yield "Patterns: " + (", ".join(f"{name} {count}" for name, count in found) or "none") + "."


def _best(one: dict[str, Any]) -> Iterator[str]:
    yield _title(one) + f", chosen on {one['other']}"
    header = ["relation", "words", "head", "direction", "right", "offset", "baseline", "points"]
    yield table(
        [*header, "95% interval"],
        [
            [
                *(row["relation"], row["words"], f"{row['layer']}.{row['head']}", row["direction"]),
                *(f"{row['accuracy']:.1%}", f"{row['offset']:+d}", f"{row['baseline']:.1%}"),
                *(f"{row['lift']:+.1f}", f"{row['low']:+.1f} to {row['high']:+.1f}"),
            ]
            for row in one["best"]
        ],
    )


def _parser(one: dict[str, Any]) -> list[str]:
    scores = one["parser"]["uas"]
    each = [f"{scores[name]:.1f}" for name in ("tree", "fitted", "offset", "control")]
    return [one["model"], one["corpus"], *each, f"{one['parser']['selectivity']:+.1f}"]


def _statistics(report: dict[str, Any]) -> Iterator[str]:
    yield _title(report)
    values = report["statistics"]
    yield table(
        ["layer", *values],
        [
            [str(layer), *(f"{number:.3f}" for number in numbers)]
            for layer, numbers in enumerate(zip(*values.values(), strict=True))
        ],
    )


def _control(one: dict[str, Any]) -> list[str]:
    roles = f"{one['roles']} ({one['roles'] / max(one['tests'], 1):.2%})"
    found = [
        f"{one[name]} of {one['pairs']} ({one[name] / max(one['pairs'], 1):.2%})"
        for name in ("beyond", "beyond uncorrected")
    ]
    told = [one["model"], one["control"], str(one["tests"]), roles, *found]
    return [*told, f"{one['highest score']:.2f}"]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the two corpora")
    parser.add_argument("--checkpoint", type=Path, required=True, help="of a pretrained BERT")
    parser.add_argument("--name", default="MiniLM-L6", help="what to call it")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--probe-sentences", type=int, default=500, help="the parser is fitted to")
    parser.add_argument("--control-sentences", type=int, default=200)
    parser.add_argument("--control-seeds", type=int, default=20)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    write_page("heads", gathered(parsed()), render)
