# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What attention saw of a corpus, on disk: how it is laid out, written, verified and read.

`store.py` is what `fa.open_store` returns. It imports no model.
"""
