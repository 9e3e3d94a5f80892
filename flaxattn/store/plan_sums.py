# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Checksum of the plan, in a file that `sha256sum` writes and checks."""

from collections.abc import Iterator
from pathlib import Path

from flaxattn.errors import StoreError
from flaxattn.files import file_inside, sha256_of
from flaxattn.store.seals import read_manifest, small_file
from flaxattn.store.store_layout import PLAN, PLAN_SEAL, SHARDS, shard_folder, shard_numbers


def write_sum(folder: Path) -> None:
    """Write the checksum of the plan in a folder."""
    (folder / PLAN_SEAL).write_text(_line(folder / PLAN), encoding="ascii")


def differing(store: Path) -> Iterator[tuple[str, str]]:
    """Compare the plan with its checksum; yield the file that is damaged and what is wrong."""
    try:
        line = _line(file_inside(store, PLAN))
    except FileNotFoundError:
        yield PLAN, "it is missing: the plan of the job"
        return
    except OSError as error:
        yield PLAN, error.strerror or str(error)
        return
    try:
        data = small_file(store, PLAN_SEAL)
    except FileNotFoundError:
        what = f"it is missing, so {PLAN} cannot be checked:"
        yield PLAN_SEAL, f"{what} sha256sum {PLAN} > {PLAN_SEAL} seals the plan as it is"
        return
    except OSError as error:
        yield PLAN_SEAL, error.strerror or str(error)
        return
    if line.encode() not in data.splitlines(keepends=True):
        yield PLAN, f"it does not match {PLAN_SEAL}"
    elif data != line.encode():
        yield PLAN_SEAL, "it is not what was written"


def check_plan_files(store: Path, sha256: str) -> None:
    """Refuse to continue with a store whose plan is not the one that its shards were made under."""
    shards = store / SHARDS
    numbers = shard_numbers([p.name for p in shards.iterdir()]) if shards.is_dir() else []
    for number in numbers:
        if read_manifest(store, number).plan != sha256:
            folder = shard_folder(store, number)
            raise _refused(store / PLAN, f"{folder} was made under another plan (sha256)")
    if (store / PLAN_SEAL).exists():
        for name, what in differing(store):
            raise _refused(store / name, what)


def _refused(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} is damaged: {what}\n"
        "nothing was written\n"
        "put back a copy: another machine's folder of the same job has it; or use another folder"
    )


def _line(path: Path) -> str:
    return f"{sha256_of(path)}  {PLAN}\n"
