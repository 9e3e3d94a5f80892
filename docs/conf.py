# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the documentation site: `make docs` builds it with Sphinx into build/site.

The pages open from disk without a network: no script, font or style comes from elsewhere. What is
made while building (reference pages, attention pages) is in `_site`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import flaxattn

project = "flaxattn"
author = "The flaxattn authors"
copyright = "2026, The flaxattn authors"
version = release = flaxattn.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "_site.docstrings",
    "_site.generated_pages",
    "_site.live_pages",
    "_site.mathml",
    "_site.repository_links",
]
exclude_patterns = ["_site", "**/.ipynb_checkpoints"]
# Words in single backticks are code; those that name a documented object are links to it.
default_role = "code-or-link"
nitpicky = True
# Types in signatures name classes that have no page of their own, and JAX's and NumPy's.
nitpick_ignore_regex = [("py:(class|exc)", ".*")]

# Notebooks are executed by the tests; their outputs are kept.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
viewcode_follow_imported_members = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"flaxattn {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
# An excerpt of a result is fetched, which browsers refuse on pages from disk.
html_show_search_summary = False
html_math_renderer = "mathml"
