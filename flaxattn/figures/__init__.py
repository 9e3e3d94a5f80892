# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures for papers, in matplotlib: each file draws one kind, on axes given or new."""
