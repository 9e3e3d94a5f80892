# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m flaxattn` is the `flaxattn` command."""

import sys

from flaxattn.cli import main

sys.exit(main())
