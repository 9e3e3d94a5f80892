# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Subcommands of `flaxattn`: each parses arguments, calls the library and prints."""
