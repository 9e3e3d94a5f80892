# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""How docstrings are read: backticks, properties and fields of named tuples.

Text in single backticks is code, and a link where it is the name of something documented. Sphinx's
own `py:obj` also links by the last part of a name, so `heads` would lead anywhere.
"""

from typing import Any

from docutils import nodes
from docutils.parsers.rst import roles
from sphinx import addnodes
from sphinx.application import Sphinx

from _site.api_groups import GROUPS

# As a docstring may write it -> full name of what is documented.
TARGETS = {
    written: f"{group.module}.{name}"
    for group in GROUPS.values()
    for name in group.names
    for written in (name, f"fa.{name}", f"flaxattn.{name}", f"{group.module}.{name}")
    if (written == name and name[0].isupper()) or "." in written
}


def _role(name: str, rawtext: str, text: str, line: int, inliner: Any, *rest: Any) -> Any:
    del name, line, inliner, rest
    code = nodes.literal(rawtext, text)
    target = TARGETS.get(text.removesuffix("()"))
    if target is None:
        return [code], []
    link = addnodes.pending_xref(
        rawtext, code, refdomain="py", reftype="obj", reftarget=target, refexplicit=True
    )
    return [link], []


def _whole_property(app: Any, what: str, name: str, it: Any, options: Any, lines: Any) -> None:
    """Keep napoleon from reading `G, heads of keys: one for each query` as a type and a text."""
    del app, name, it, options
    if what in ("property", "attribute"):
        lines.insert(0, "")


def _is_bare_field(
    app: Any, what: str, name: str, it: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out `Alias for field number 0`; the attributes of the class say what fields are."""
    del app, what, name, options
    bare = (getattr(it, "__doc__", None) or "").startswith("Alias for field number")
    return True if bare or skip else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role `code-or-link`, which `default_role` in conf.py names."""
    app.connect("autodoc-process-docstring", _whole_property, priority=400)
    app.connect("autodoc-skip-member", _is_bare_field)
    roles.register_local_role("code-or-link", _role)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
