# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of a corpus on disk: its plan, shards and seals, and the engines that fill them."""
