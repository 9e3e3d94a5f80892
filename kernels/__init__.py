# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Fast attention on arrays that also returns weights and statistics. Start at attention.py.

Nothing here has heard of a model, a token or a file; imports are jax, numpy and jaxtyping only.
"""
