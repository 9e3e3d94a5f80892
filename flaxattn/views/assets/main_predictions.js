// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where the page of a language model begins: its panel says what was predicted, its text how
// surprising each token was.

import {} from "./main.js";
import { MORE } from "./panel.js";
import { showPrediction, surprisesOf } from "./predictions.js";

Object.assign(MORE, { note: showPrediction, surprise: surprisesOf });
