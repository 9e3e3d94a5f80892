# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contribution of tokens and heads to outputs: norms, gradients, rollout, flow and ablation."""
