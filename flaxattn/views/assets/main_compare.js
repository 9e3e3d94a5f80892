// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where a page of two traces begins: its head level shows both beside each other.

import { LEVELS } from "./main.js";
import { Together } from "./together.js";

LEVELS.head.together = Together;
