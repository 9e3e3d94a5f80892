# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Probes of attention heads and hidden states: dependency trees, structure and coreference."""
