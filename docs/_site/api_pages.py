# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pages of the API reference: a summary and autodoc's directives for each name of a group."""

import inspect
import pkgutil
from typing import Any

from _site.api_groups import GROUPS, Group

TITLE = "API reference"
_LETTERS = (
    "Shapes are written with the same letters everywhere: `L` layer, `B` batch, `H` query head, "
    "`G` key head, `Q` query position, `K` key position, `D` depth of a head, `E` embedding "
    "width, `F` feed-forward width, `V` vocabulary, `R` statistic. A type such as "
    "`Float[Array, 'B H Q K']` says both dtype and shape. Masks are True at positions that may "
    "be attended to. Entropies and divergences are in nats, distances in tokens."
)


def pages() -> dict[str, str]:
    """Return the Markdown of each page by its file name: an index and a page for each group."""
    made = {f"{key}.md": _page(group) for key, group in GROUPS.items()}
    parts = [f"# {TITLE}", _LETTERS]
    for key, group in GROUPS.items():
        parts += [f"## {group.title}", f"{group.text} See [the page]({key}.md).", _table(group)]
    parts.append("```{toctree}\n:hidden:\n\n" + "\n".join(GROUPS) + "\n```")
    made["index.md"] = "\n\n".join(parts) + "\n"
    return made


def public_object(group: Group, name: str) -> Any:
    """Return the object that a name of a group stands for."""
    return pkgutil.resolve_name(f"{group.module}.{name}")


def summary(group: Group, name: str) -> str:
    """Return the first paragraph of an object's docstring, in one line."""
    found = public_object(group, name)
    if isinstance(found, str):
        return "Version of the package, as a string."
    return " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())


def _page(group: Group) -> str:
    entries = [_entry(group, name) for name in group.names]
    return "\n\n".join([f"# {group.title}", group.text, _table(group), *entries]) + "\n"


def _table(group: Group) -> str:
    rows = []
    for name in group.names:
        said = summary(group, name).replace("|", "\\|")
        rows.append(f"| {{py:obj}}`~{group.module}.{name}` | {said} |")
    return "| name | what it is |\n|---|---|\n" + "\n".join(rows)


def _entry(group: Group, name: str) -> str:
    """Autodoc's directive for one name."""
    found, full = public_object(group, name), f"{group.module}.{name}"
    if inspect.ismodule(found):
        lines = [f".. automodule:: {full}", "   :no-members:"]
    elif inspect.isclass(found):
        lines = [f".. autoclass:: {full}", "   :members:"]
    elif callable(found):
        lines = [f".. autofunction:: {full}"]
    else:
        lines = [f".. py:data:: {full}", "", f"   {summary(group, name)}"]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```"
