// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where the page of a report about two models begins: its claims, and two traces of each text.

import {} from "./main_claims.js";
import {} from "./main_compare.js";
