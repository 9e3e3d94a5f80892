# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What heads and hidden states know of trees and of reference, judged word by word.

Single heads as classifiers, all heads together as a parser, a linear map of hidden states; each
beside baselines that have seen no model. Running one over a corpus is in `flaxattn.extraction`.
"""
