# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A capture request as JSON and back, sieves too. What a request means is not known here."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture, Sieve


def capture_to_json(capture: Capture) -> dict[str, Any]:
    """A request as objects that `json.dumps` takes."""
    fields = {f.name: getattr(capture, f.name) for f in dataclasses.fields(capture)}
    fields["stats"] = [s if isinstance(s, str) else dataclasses.asdict(s) for s in capture.stats]
    return {name: _plain(value) for name, value in fields.items()}


def capture_from_json(fields: Mapping[str, Any]) -> Capture:
    """The request that `capture_to_json` wrote."""
    try:
        found = {name: _frozen(value) for name, value in fields.items()}
        stats = fields.get("stats", ())
        found["stats"] = tuple(s if isinstance(s, str) else Sieve(**_tuples(s)) for s in stats)
        return Capture(**found)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"this is not a capture request\n{str(error).splitlines()[0]}\n"
            "it was written by another version, or damaged"
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _frozen(value) for name, value in fields.items()}
