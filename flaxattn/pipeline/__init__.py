# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The loop from texts to the consumer of what a model computed on them.

Texts are tokenized, sorted into batches of few lengths, and run on the device; extraction into
memory, embeddings and hidden states are consumers here. Stores and measures are other rooms.
"""
