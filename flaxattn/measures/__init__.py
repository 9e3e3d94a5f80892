# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Measures of attention heads: score definitions, their evaluation, moments, roles and tests."""
