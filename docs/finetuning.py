# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Writes finetuning.md and finetuning.json: what fine-tuning does to the roles of heads.

    python docs/finetuning.py --glue GLUE --trees TREES.conllu --checkpoint MODEL --out RUNS

Two BERTs are fine-tuned on SST-2 and MRPC, the roles of their heads found before and after on the
dev sentences, and on sentences with trees, and the published findings (Pande et al. 2021) looked at
one by one. Runs that RUNS holds are not run again. No sentence gets into the files.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from page_tables import Clock, table, write_page

from flaxattn import __version__
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.files import sha256_of
from flaxattn.measures.compare_heads import Comparison, role_changes
from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.score_source import head_scores
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.pipeline.allocator import keep_freed_memory
from flaxattn.pipeline.extraction import extract
from flaxattn.pipeline.tokenize_texts import ReadingOptions
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.train.glue import finetune
from flaxattn.train.glue_data import read_parts
from flaxattn.train.glue_tasks import TASKS
from flaxattn.train.recipe import GlueRecipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import build

# Published settings of the two tasks take hours on a processor; these take minutes.
COMMON: dict[str, Any] = {"batch_size": 32, "max_length": 64, "buckets": [16, 24, 32, 48, 64]}
RATES = {"tiny-bert": 3e-4}
RATE = 5e-5
STEPS = {"sst2": 600, "mrpc": 345}
PLAIN, TREES, TEST = ScoreOptions(annotated=False), ScoreOptions(), Test()
SHOWN = ("local", "cls", "sep", "delimiter", "block", "block_entropy")
_KEPT_BACK = ("loss", "score")
CLEAR = 0.01  # p-values below this, or above 1 minus this, are near 0 or 1
POINTS = {
    "both": "42% to 88% of heads are both local and syntactic",
    "middle": "most heads of several roles are in the middle layers",
    "order": "CLS heads are in earlier layers than SEP heads",
    "late": "fine-tuning changes the later layers most",
    "spread": "in the later half, attention to SEP goes to other positions",
    "clear": f"about 98% of p-values are near 0 or 1 (below {CLEAR} or above {1 - CLEAR})",
}


def gathered(given: argparse.Namespace) -> dict[str, Any]:
    """Everything that is on the page."""
    told: dict[str, Any] = {
        "flaxattn": __version__,
        "jax": jax.__version__,
        "settings": {**COMMON, "compared": given.compared, **dataclasses.asdict(TEST)},
        "trees": {"file": given.trees.name, "sha256": sha256_of(given.trees), "n": given.limit},
        "runs": [],
    }
    sentences = itertools.islice(read_sentences([given.trees], BadRows("skip")), given.limit)
    trees = list(map(annotated_text, sentences))
    for task, (name, source) in itertools.product(
        STEPS, (("tiny-bert", "tiny-bert"), (given.name, str(given.checkpoint)))
    ):
        wanted = {
            **COMMON,
            **{"task": task, "model": source, "seeds": [1]},
            "steps": min(STEPS[task], given.steps),
            "learning_rate": RATES.get(name, RATE),
        }
        wanted["evaluate_every"] = wanted["steps"]
        recipe, folder = build(GlueRecipe, wanted), given.out / f"{name}-{task}"
        with Clock() as clock:
            summary = finetune(given.glue, RunFolder(folder), recipe)
        parts = read_parts(TASKS[task], given.glue, recipe, BadRows("skip"), ("train", "dev"))
        examples = parts["dev"].examples[: given.limit]
        dev = [Text(n, str(n), e.first, e.second) for n, e in enumerate(examples)]
        models = [from_pretrained(str(s), head="base") for s in (source, folder / "model")]
        print(f"{name} on {task}: {summary['metrics']}", flush=True)
        told["runs"].append(
            {
                **{"model": name, "task": task, "steps": wanted["steps"]},
                "learning rate": wanted["learning_rate"],
                "examples": summary["examples"],
                "data": {part: list(files.values()) for part, files in summary["data"].items()},
                "metrics": {n: value["mean"] for n, value in summary["metrics"].items()},
                "seconds": clock.told(),
                **compared(models, dev, trees, given.compared),
            }
        )
    return told


def compared(models: list[Any], dev: list[Text], trees: list[Text], some: int) -> dict:
    """Roles before and after, on texts of the task and on trees, and how far maps moved."""
    found: dict[str, Any] = {"before": {}, "after": {}}
    tables: list[dict[str, np.ndarray]] = []
    for when, model in zip(found, models, strict=True):
        own = _tally(model, dev, PLAIN)
        roles, linked = (find_roles(own, PLAIN, TEST), _trees(model, trees))
        masses = {n: own.moments[ScoreSpec("mean", n)].mean.mean(1) for n in ("cls", "sep", "own")}
        tables.append({name: role.found for name, role in roles.roles.items()})
        found[when] = {
            "roles": {n: t.sum(1).tolist() for n, t in tables[-1].items() if n in SHOWN},
            "masses": {name: values.tolist() for name, values in masses.items()},
            **_several(linked),
            "clear": _clear(roles, linked),
        }
    changes = [c for c in role_changes(*tables) if c.gained or c.lost]
    comparison = Comparison()
    texts = [subject.text for subject in dev[:some]]
    pairs = [s.text_b for s in dev[:some] if s.text_b is not None] or None
    for one, other in zip(*(extract(m, texts, pairs) for m in models), strict=True):
        comparison.add(one, other)
    layers = comparison.by_layer()["encoder"]
    return {
        **found,
        "dev": len(dev),
        "changes": [dataclasses.asdict(change) for change in changes],
        "divergence": [divergence for _, divergence, _ in layers],
        "cosine": [cosine for _, _, cosine in layers],
    }


def _tally(model: Any, subjects: list[Text], asked: ScoreOptions) -> ScoreAccumulator:
    return ScoreAccumulator.of(
        *head_scores(
            model, subjects, asked, reading=ReadingOptions(truncate=True, bad=BadRows("skip"))
        )
    )


def _trees(model: Any, trees: list[Text]) -> Roles:
    return find_roles(_tally(model, trees, TREES), TREES, TEST)


def _several(roles: Roles) -> dict[str, Any]:
    """Heads of several roles, on sentences with trees."""
    tables = {name: role.found for name, role in roles.roles.items()}
    none = np.zeros((len(roles.layers), len(roles.heads)), bool)
    syntactic = np.logical_or.reduce([t for n, t in tables.items() if "(" in n] or [none])
    local = tables.get("local", none)
    kinds = (local, syntactic, tables.get("block", none), tables.get("delimiter", none))
    several = np.sum(kinds, axis=0) > 1
    return {
        "local": int(local.sum()),
        "syntactic": int(syntactic.sum()),
        "both": int((local & syntactic).sum()),
        "heads": none.size,
        "several": several.sum(1).tolist(),
    }


def _clear(*found: Roles) -> float:
    """Share of p-values, uncorrected, that are near 0 or 1."""
    p = np.concatenate([role.p.ravel() for roles in found for role in roles.roles.values()])
    p = p[~np.isnan(p)]
    return float(((p < CLEAR) | (p > 1 - CLEAR)).mean())


def center(counts: list[int]) -> float | None:
    """Mean layer of some heads, from 0 for the first to 1 for the last; None where there are none.

    Args:
        counts: Heads by layer.
    """
    depth = np.linspace(0, 1, len(counts))
    return float(depth @ counts / sum(counts)) if sum(counts) else None


def verdicts(run: dict[str, Any]) -> dict[str, tuple[bool | None, str]]:
    """Whether each published finding holds in a run, None where nothing can be said, and why.

    Args:
        run: Facts of it.
    """
    after = run["after"]
    share = after["both"] / after["heads"]
    middle = center(after["several"])
    cls, sep = (center(after["roles"].get(name, [0])) for name in ("cls", "sep"))
    moved = run["divergence"]
    half = len(moved) // 2
    early, late = float(np.mean(moved[:half])), float(np.mean(moved[half:]))
    masses = [np.array(run[when]["masses"]["sep"][half:]).mean() for when in ("before", "after")]
    ends = [f"{100 * mass:.1f}%" for mass in masses]
    order = None if cls is None or sep is None else cls < sep
    where = "no such head" if middle is None else f"mean depth {middle:.2f} of 0 to 1"
    depths = ["none" if each is None else f"{each:.2f}" for each in (cls, sep)]
    return {
        "both": (0.42 <= share <= 0.88, f"{after['both']} of {after['heads']} ({share:.0%})"),
        "middle": (None if middle is None else 1 / 3 <= middle <= 2 / 3, where),
        "order": (order, f"mean depth of CLS heads {depths[0]}, of SEP heads {depths[1]}"),
        "late": (late > early, f"divergence {early:.4f} in the first half, {late:.4f} in the last"),
        "spread": (bool(masses[1] < masses[0]), f"{ends[0]} before, {ends[1]} after"),
        "clear": (after["clear"] >= 0.95, f"{after['clear']:.1%}"),
    }


def render(told: dict[str, Any]) -> str:
    """The page."""
    settings, trees = told["settings"], told["trees"]
    runs = told["runs"]
    judged = [verdicts(run) for run in runs]
    names = [f"{run['model']}, {run['task']}" for run in runs]
    says = {True: "holds", False: "does not", None: "–"}
    parts = [
        "# What fine-tuning does to the roles of heads",
        "`python docs/finetuning.py --glue GLUE --trees TREES --checkpoint MODEL --out RUNS` "
        f"writes this page and `finetuning.json`. flaxattn {told['flaxattn']}, jax {told['jax']}.",
        f"Batches of {settings['batch_size']}, at most {settings['max_length']} tokens, AdamW, "
        f"float32, seed 1. Roles: τ = {settings['tau']:g}, α = {settings['alpha']:g}, correction "
        f"`{settings['correction']}`, on dev texts of the task; syntactic ones on the first "
        f"{trees['n']} sentences of `{trees['file']}` (SHA-256 `{trees['sha256'][:16]}`). "
        f"Divergence: Jensen–Shannon, nats, over {settings['compared']} dev texts.",
        table(
            [*("run", "steps", "rate", "train", "dev"), "result", "processor seconds"],
            [_run(name, run) for name, run in zip(names, runs, strict=True)],
        ),
        "## The published findings, one by one",
        "They are on BERT-base, fine-tuned in full on QNLI, QQP, MRPC and SST-2 (Pande et al. "
        "2021, as their repository reports them). A row says whether each holds in these runs, "
        "after fine-tuning, by a rule that is in `verdicts` of the script.",
        table(
            ["finding", *names],
            [[text, *(says[j[key][0]] for j in judged)] for key, text in POINTS.items()],
        ),
        *(
            f"* {text}: "
            + "; ".join(f"{n}: {j[key][1]}" for n, j in zip(names, judged, strict=True))
            + "."
            for key, text in POINTS.items()
        ),
        "## By layer",
        *itertools.chain.from_iterable(_layers(n, run) for n, run in zip(names, runs, strict=True)),
    ]
    return "\n\n".join(parts) + "\n"


def _run(name: str, run: dict[str, Any]) -> list[str]:
    metrics = ", ".join(f"{n} {v:.3f}" for n, v in run["metrics"].items() if n not in _KEPT_BACK)
    sizes = [f"{run['examples'][part]:,}" for part in ("train", "dev")]
    cost = f"{run['seconds']['cpu']:.0f}"
    return [name, str(run["steps"]), f"{run['learning rate']:g}", *sizes, metrics, cost]


def _layers(name: str, run: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    before, after = run["before"], run["after"]
    roles = [role for role in SHOWN if role in before["roles"]]
    rows = []
    for layer, divergence in enumerate(run["divergence"]):
        heads = [f"{before['roles'][r][layer]} → {after['roles'][r][layer]}" for r in roles]
        sep = [f"{100 * when['masses']['sep'][layer]:.1f}" for when in (before, after)]
        rows.append([str(layer), *heads, " → ".join(sep), f"{divergence:.4f}"])
    yield table(["layer", *roles, "% on SEP", "divergence"], rows)
    gained, lost = (sum(len(c[what]) for c in run["changes"]) for what in ("gained", "lost"))
    yield (
        f"{run['dev']} dev texts. {gained} roles gained, {lost} lost. On trees, "
        + " and ".join(
            f"{each['both']} of {each['heads']} heads are local and syntactic {word} "
            f"({each['local']} local, {each['syntactic']} syntactic)"
            for word, each in (("before", before), ("after", after))
        )
        + "."
    )


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--glue", type=Path, required=True, help="folder with SST-2 and MRPC")
    parser.add_argument("--trees", type=Path, required=True, help="CoNLL-U")
    parser.add_argument("--checkpoint", type=Path, required=True, help="of a pretrained BERT")
    parser.add_argument("--name", default="MiniLM-L6", help="what to call it")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--steps", type=int, default=max(STEPS.values()), help="most steps")
    parser.add_argument("--limit", type=int, default=500, help="most texts of each kind")
    parser.add_argument("--compared", type=int, default=200, help="texts for the divergence")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    keep_freed_memory()
    write_page("finetuning", gathered(parsed()), render)
