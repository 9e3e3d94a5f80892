# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a recipe into a checkpoint, in one loop you can read; nothing depends on it.

Import it as `flaxattn.train`. Start at `loop.py`; `recipe.py` describes a run, `data.py` makes the
batches and `objectives.py` the losses. This file holds no code: import the module you need.
"""
