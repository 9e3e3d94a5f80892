# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a name stands for: the directory or file, configuration and tensors of a model.

Of an adapter they are those of its base, with the changes of the adapter.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flaxattn.errors import CheckpointError, UnavailableError
from flaxattn.pretrained import hub
from flaxattn.pretrained.gguf_file import SUFFIX, GgufFile
from flaxattn.pretrained.lora_adapter import LoraAdapter
from flaxattn.pretrained.model_directory import as_stored, config_of, read_config
from flaxattn.pretrained.model_types import ModelConfig, family_of
from flaxattn.trace.tensor_file import TensorFiles, saved_beside


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model that was found and whose tensors are still to be read.

    Attributes:
        directory: Of the model; the file itself where that is a GGUF file.
        config: Its configuration.
        files: Its tensors.
        saved: Checksums of the files beside them; empty where another program wrote these.
        adapter: Whose changes are merged into the tensors; None where there is none.
        gguf: The one file that holds the model; None for a directory.
    """

    directory: Path
    config: ModelConfig
    files: TensorFiles
    saved: Mapping[str, str]
    adapter: LoraAdapter | None = None
    gguf: GgufFile | None = None

    @classmethod
    def find(cls, name: str | Path, **hosted: Any) -> "Checkpoint":
        """Find a model by its name."""
        path = Path(name).expanduser()
        if path.suffix == SUFFIX and path.is_file():
            return cls._of_gguf(GgufFile(path))
        directory = hub.find(name, **hosted)
        if (adapter := LoraAdapter.read(directory)) is None:
            return cls._of(directory)
        base = cls._of(_base(adapter, hosted))
        files = adapter.merged(base.files, family_of(base.config), base.config)
        config = base.config
        if files.rows is not None:  # tokens were added
            config = dataclasses.replace(config, vocab_size=files.rows)
        return dataclasses.replace(base, config=config, files=files, adapter=adapter)

    def unchanged(self) -> bool:
        """Return whether the files beside the tensors are still those that were found."""
        return self.gguf is not None or saved_beside(self.directory) == self.saved

    @classmethod
    def _of_gguf(cls, file: GgufFile) -> "Checkpoint":
        config = config_of(file.path, file.settings())
        return cls(file.path, config, file.tensors(), {}, gguf=file)

    @classmethod
    def _of(cls, directory: Path) -> "Checkpoint":
        saved, config = saved_beside(directory), read_config(directory)
        files = TensorFiles(directory)
        return cls(directory, as_stored(config, files), files, saved)


def _base(adapter: LoraAdapter, hosted: Mapping[str, Any]) -> Path:
    """Directory of the model that an adapter changes, beside the adapter or by its name."""
    beside = adapter.directory / adapter.base
    if beside.is_dir():
        return beside
    revision = adapter.settings.get("revision")
    try:
        return hub.find(adapter.base, **{**hosted, "revision": revision})
    except (CheckpointError, UnavailableError) as error:
        raise adapter.refused("that model is not at hand") from error
