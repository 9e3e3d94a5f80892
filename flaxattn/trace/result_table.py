# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Results that are tables: short when printed, a table in a notebook, a data frame on request."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.errors import UnavailableError

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 20  # that a notebook shows
_NAMES = 6  # columns that are named when a result is printed


class ResultTable:
    """A result with a row for each head, text or pair; a subclass gives the columns."""

    def to_columns(self) -> Mapping[str, Sequence[Any] | np.ndarray]:
        """Return the table by columns, all of one length."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a data frame.

        Raises:
            UnavailableError: If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UnavailableError(
                "to_pandas needs pandas, which is not installed\n"
                "install it (pip install pandas), or call to_columns()"
            ) from error
        return pd.DataFrame(dict(self.to_columns()))

    def __repr__(self) -> str:
        columns = self.to_columns()
        names = [*columns]
        more = ", …" if len(names) > _NAMES else ""
        rows = len(columns[names[0]]) if names else 0
        return f"{type(self).__name__}({rows:,} rows of {', '.join(names[:_NAMES])}{more})"

    def _repr_html_(self) -> str | None:
        columns = self.to_columns()
        rows = list(zip(*(values[:_ROWS] for values in columns.values()), strict=True))
        count = len(next(iter(columns.values()), ()))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_cell(value))}</td>' for value in row)}</tr>"
            for row in rows
        )
        note = f"{count:,} rows" + (f", the first {_ROWS}" if count > _ROWS else "")
        return f"<table><caption>{note}</caption><tr>{head}</tr>{body}</table>"


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of rows that all have the keys of the first."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _cell(value: Any) -> str:
    """A value in a few characters; blank where it is missing or not finite."""
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if np.isfinite(value) else ""
    return str(value)
