# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Input files to rows to texts: formats, columns, trees, marked mentions, and unusable rows."""
