# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The errors a user of flaxattn can cause, and how they speak.

The rule of three lines. A message has at most three: what is wrong, where (what was expected
against what was received), and how to put it right. The command line prints them as they are,
without a traceback, so nothing may be needed from the stack to understand one. Their wording is
tested.

A new class is added only when a caller would want to catch it apart from the others; its name ends
in `Error`, it inherits from `FlaxattnError`, and its docstring says when it is raised. Mistakes of
ours (a broken invariant) are not of this family. `flaxattn.kernels` knows nothing of this file: it
raises plain `ValueError`, `TypeError` or `NotImplementedError`.
"""


class FlaxattnError(ValueError):
    """Something a user gave cannot be used; the message says what, where and how to fix it."""


class InputError(FlaxattnError):
    """Text, ids, masks, a capture request or an option that the model or the view cannot take."""


class CheckpointError(FlaxattnError):
    """A model directory that is missing, incomplete, damaged, or does not match its config."""


class StoreError(FlaxattnError):
    """A store of attention that is damaged or unfinished, or a shard that cannot be written."""


class UnavailableError(FlaxattnError):
    """Error for a device, package, network or implementation that is not available here."""


class StopRequestedError(BaseException):
    """Somebody asked a long job to stop (SIGTERM); it has saved its state and can go on.

    No mistake, so not of the family, and `except Exception` lets it through. The command exits
    with code 75.
    """
