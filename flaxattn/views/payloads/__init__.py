# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contents of pages and figures: sides, weights, neurons and state, before anything is drawn."""
