# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From a corpus to what attention saw of it: planned, computed in batches, committed by shards.

`extract.py` is `fa.extract`, in memory; `run.py` is `fa.extract_to`, a job that may be stopped.
`embed.py` is `fa.embed`; `head_index.py` makes what `flaxattn search` looks into.
"""
