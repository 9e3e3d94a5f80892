# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Write `upstream_settings.json`: which keys of a `config.json` transformers' own classes read.

    make compare ARGS=--collect-only  # makes the environment
    .venv-parity/bin/python tests/golden/make_upstream_settings.py

For every model type: the attributes of the configuration that the source of its module names, and
`is_causal` where it makes causal masks, which read that; and the default values.
"""

import importlib
import inspect
import json
import re
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING, masking_utils

from flaxattn.pretrained.model_types import CONFIGS

OUT = Path(__file__).parent / "upstream_settings.json"
NAMED = re.compile(r"config\.([a-z]\w*)")
READ = re.compile(r"getattr\(\s*(?:self\.)?config,\s*\"(\w+)\"")


def main() -> None:
    shared = set(READ.findall(inspect.getsource(masking_utils))) & {"is_causal"}
    found = {}
    for kind in sorted(set(CONFIGS) & set(CONFIG_MAPPING.keys())):
        config = CONFIG_MAPPING[kind]
        name = config.__module__.replace(".configuration_", ".modeling_")
        source = inspect.getsource(importlib.import_module(name))
        values = {n: v for n, v in config().to_dict().items() if not n.startswith("_")}
        keys = set(NAMED.findall(source)) & set(values) | set(READ.findall(source))
        keys |= shared if "create_causal_mask" in source else set()
        kept = {n: v for n, v in values.items() if n in keys or v is not None}
        found[kind] = {"defaults": kept, "read": sorted(keys)}
    document = {"transformers": transformers.__version__, "types": found}
    OUT.write_text(json.dumps(document, indent=1, sort_keys=True, default=str) + "\n")


if __name__ == "__main__":
    main()
