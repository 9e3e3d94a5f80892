# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the attention function beside its peers; installed as `flaxattn.benchmarks`."""
