# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Model architectures as Flax Linen modules, one file each, with their configurations.

The layers they share are in `layers` and `layer_stack`. `flaxattn.pretrained` reads checkpoints and
tokenizers.
"""
