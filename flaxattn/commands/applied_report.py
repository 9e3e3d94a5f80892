# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The report of `flaxattn probe --load`: a probe of a file, on other sentences than before.

Everything heavy is imported when it runs.
"""

from pathlib import Path
from typing import Any

from rich.console import Console

from flaxattn.commands.probe_reader import ProbeSpec, left_out, tell_rest


def report_applied(asked: ProbeSpec, path: Path) -> None:
    """Apply a probe that was fitted before, write probe.json and scores.parquet, and print."""
    from flaxattn.commands.report_files import described, write_report
    from flaxattn.commands.report_layout import SCORES
    from flaxattn.probes.head_probe import apply_probe
    from flaxattn.probes.label_scores import LabelAccuracy
    from flaxattn.probes.probe_file import load_probe
    from flaxattn.probes.selectivity import Attachment
    from flaxattn.probes.structural_scores import plain

    saved = load_probe(path)
    asked.announce("applying the probe", "one pass over all texts")
    found = apply_probe(
        asked.loaded(),
        asked.files[0].sentences(asked.bad),
        saved.probe,
        reading=asked.reading(),
    )
    scores: dict[str, Any]
    if isinstance(found, LabelAccuracy):
        scores = {"accuracy": found.score, "words": found.words}
        message = f"accuracy {found.score:.1%} of the labels of {found.words:,} words"
    elif isinstance(found, Attachment):
        scores = {"uas": 100 * found.score, "words": found.words}
        message = f"all heads together attach {found.score:.1%} of {found.words:,} words"
    else:
        scores = plain(found)
        message = (
            f"UUAS {found.uuas:.1%}, distances {found.distance_spearman:.3f}, "
            f"root {found.root_accuracy:.1%}, depths {found.norm_spearman:.3f} "
            f"in {found.sentences:,} sentences"
        )
    said = {
        "model": asked.model,
        "data": [asked.files[0].facts()],
        "settings": {"truncate": asked.truncate},
        "left_out": left_out(asked.bad),
        "probe": {**described([path])[0], "notes": saved.notes},
        "scores": scores,
    }
    rows = {name: [value] for name, value in scores.items()}
    written = write_report(asked.run, said, rows, {}, table=SCORES)
    if not asked.told_as_json(said):
        console = Console(highlight=False, soft_wrap=True)
        console.print(message)
        console.print(f"fitted to {saved.notes.get('model', 'an unknown model')}", markup=False)
        tell_rest(said, written)
