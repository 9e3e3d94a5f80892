# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Names of the files of every report. Nothing here reads or writes one.

The JSON file, the figure and the page of a report are named after its command.
"""

HEADS, LAYERS = "heads.parquet", "layers.parquet"
SCORES, EVIDENCE, EXAMPLES = "scores.parquet", "evidence.parquet", "examples.parquet"
LIKENESS, DISTANCES, LIKENESS_MAP = "likeness.parquet", "distances.parquet", "likeness.png"
COMPOSITION, COMPOSED = "composition.parquet", "composition.png"
PAIRS, CORRELATIONS = "pairs.parquet", "correlations.parquet"
GRID, OVERLAP = "role-grid.png", "role-overlap.png"
CURVE, FITTED = "curve.png", "probe.safetensors"


def facts_file(command: str) -> str:
    """Name of the JSON file."""
    return f"{command}.json"


def table_file(command: str) -> str:
    """Name of the table of a command whose rows are not those of `HEADS`."""
    return f"{command}.parquet"


def figure_file(command: str) -> str:
    """Name of the figure."""
    return f"{command}.png"


def page_file(command: str) -> str:
    """Name of the page."""
    return f"{command}.html"


_BESIDE = {
    "ablate": (table_file("ablate"), EVIDENCE, CURVE, page_file("ablate")),
    "circuits": (table_file("circuits"), COMPOSITION, COMPOSED),
    "faithfulness": (table_file("faithfulness"),),
    "compare": (table_file("compare"), EVIDENCE, page_file("compare")),
    "heads": (HEADS, CORRELATIONS),
    "patch": (table_file("patch"), PAIRS, EVIDENCE, page_file("patch")),
    "probe": (HEADS, LAYERS, SCORES, EVIDENCE, FITTED, page_file("probe")),
    "roles": (HEADS, EVIDENCE, EXAMPLES, GRID, OVERLAP, page_file("roles")),
    "stats": (HEADS, EVIDENCE, EXAMPLES, LIKENESS, DISTANCES, LIKENESS_MAP, page_file("stats")),
    "weights": (HEADS,),
}
REPORT_FILES = {  # every file that the report of a command may have
    command: (facts_file(command), figure_file(command), *others)
    for command, others in _BESIDE.items()
}
