# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sphinx extensions of the documentation site: what is made of the package while it is built."""
