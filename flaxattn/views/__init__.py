# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Offline HTML pages of attention; the browser code is in `assets/`, figures are in `figures/`."""
