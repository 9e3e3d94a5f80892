# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention records, traces made of them and their files; readers of other libraries' attention."""
