# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the command `flaxattn` runs: options of each subcommand, and what it prints."""
