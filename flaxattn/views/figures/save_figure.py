# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures as files: the same figure gives the same bytes, each written whole or not at all.

What is on a figure is not known here.
"""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flaxattn.errors import InputError, check_arguments, check_type
from flaxattn.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a file says of itself: neither the day nor the version that drew it.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "flaxattn"},
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": "flaxattn", "Creator": "flaxattn"},
    "png": {"Software": "flaxattn"},
}
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "flaxattn",  # else the ids in an SVG are random
    "svg.fonttype": "path",  # looks the same where the fonts are missing
    "pdf.fonttype": 42,  # text stays text; publishers refuse the default, Type 3
}


@check_arguments(0)
def save_figure(figure: "Figure", path: str | os.PathLike[str], dpi: float = 150) -> Path:
    """Write a figure as SVG, PDF or PNG, as the ending of the name says.

    The same figure gives the same bytes under the same matplotlib and fonts.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> fa.save_figure(fa.plot_heads(trace, layers=[1], heads=[2]), "heads.svg").name
    'heads.svg'

    Args:
        figure: What `plot_heads` and its like return.
        path: Such as `heads.svg`; its folder must exist. A file there is replaced in one step.
        dpi: Dots per inch of a PNG, and of maps inside an SVG or PDF.

    Returns:
        The path.

    Raises:
        InputError: If the ending is another, the folder is missing or the path is a folder.
    """
    import matplotlib
    from matplotlib.figure import Figure

    check_type(figure, Figure, "save_figure", "figure")
    check_type(path, str | os.PathLike, "save_figure", "path")
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(
            f"A figure is saved as {', '.join(_METADATA)}; {str(path)!r} names none of these.\n"
            "Change the ending, for example to .svg."
        )
    file = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(file, format=kind, dpi=dpi, metadata=_METADATA[kind])
    return write_bytes(path, file.getvalue(), "a figure")
