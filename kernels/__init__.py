# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention on arrays, fast, and it hands back what it saw; it has never heard of a model.

Import it as `flaxattn.kernels`. Start at `attention.py` (the function) and `reference.py` (the
right answers, in plain jnp); `contract.py` is the key of dimension letters, array layout, mask
rules and the capture request. This file holds no code: import the module you need.
"""
