# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a recipe into a checkpoint, in one loop you can read; nothing else depends on it."""
