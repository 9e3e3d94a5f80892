# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into one HTML file that works offline; all browser code is in `assets/`.

`levels.py` says what the page of a trace holds, `sides.py` shapes it, `page.py` wraps it into an
escaped, self-contained file with the modules that `linking.py` joins. Nothing here ever imports a
model. This file holds no code: `doors.py` has the ways in, such as `flaxattn.head_view`.
"""
