# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into one HTML file that works offline; all browser code is in `assets/`.

`page.py` wraps a payload into an escaped, self-contained page; each view (`head.py`) only shapes
its payload. Nothing here ever imports a model. This file holds no code: `flaxattn.head_view` is the
way in.
"""
