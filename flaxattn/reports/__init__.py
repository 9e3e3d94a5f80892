# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports on heads: facts, a table, figures and a page, from Python as from the command line."""
