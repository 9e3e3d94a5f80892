# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Models as users hold them: loading, saving, the Hub, name tables, pruning and generation.

The built-in checkpoints lie here too, a folder each.
"""
