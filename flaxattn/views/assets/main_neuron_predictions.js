// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where the page of a language model with queries and keys begins.

import {} from "./main_neuron.js";
import {} from "./main_predictions.js";
