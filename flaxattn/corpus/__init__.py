# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts out of files: which files, of what format, row by row, and what becomes of bad rows.

It knows no model and no tokenizer; extraction and training read through it.
"""
