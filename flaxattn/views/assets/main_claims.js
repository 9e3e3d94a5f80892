// SPDX-FileCopyrightText: 2026 The flaxattn authors
// SPDX-License-Identifier: Apache-2.0
// Where the page of a report begins: its claims come before the levels of `main.js`.

import { ClaimsLevel } from "./claims.js";
import { HeadProfile } from "./head_profile.js";
import { LEVELS } from "./main.js";

LEVELS.claims = { make: ClaimsLevel, label: "Claims", fields: ["side", "measure"] };
LEVELS.profile = { make: HeadProfile, label: "Profile", fields: ["layer"], heads: true, oneHead: true, noPicture: true };
