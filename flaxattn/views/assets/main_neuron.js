// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where a page with queries and keys begins: it has one level more than `main.js` tells.

import { LEVELS } from "./main.js";
import { NeuronLevel } from "./neuron.js";

LEVELS.neuron = {
  make: NeuronLevel,
  label: "Neurons",
  fields: ["text", "side", "layer", "labels"],
  heads: true,
  oneHead: true,
};
