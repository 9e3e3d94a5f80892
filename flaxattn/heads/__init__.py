# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What heads do: scores, roles and evidence, from traces and stores, never from a model."""
