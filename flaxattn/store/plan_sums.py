# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Checksum of the plan, in a file that `sha256sum` writes and checks."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from flaxattn.errors import StoreError
from flaxattn.files import file_inside, sha256_of
from flaxattn.store.seals import read_manifest, small_file
from flaxattn.store.store_layout import PLAN, PLAN_SEAL, SHARDS, shard_folder, shard_numbers

OF_PLAN = {PLAN: "the plan of the job"}


def write_sums(folder: Path, seal: str, *names: str) -> None:
    """Write the checksums of some files."""
    lines = [_line(sha256_of(folder / name), name) for name in names]
    (folder / seal).write_text("".join(lines), encoding="ascii")


def differing(store: Path, seal: str, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Compare files with their checksums."""
    lines: dict[str, str] = {}
    for name, holds in names.items():
        try:
            lines[name] = _line(sha256_of(file_inside(store, name)), name)
        except FileNotFoundError:
            yield name, f"it is missing: {holds}"
        except OSError as error:
            yield name, error.strerror or str(error)
    if not lines:
        return
    try:
        data = small_file(store, seal)
    except FileNotFoundError:
        what = f"it is missing, so {' and '.join(lines)} cannot be checked; older stores have none:"
        yield seal, f"{what} sha256sum {' '.join(lines)} > {seal} seals the list as it is"
        return
    except OSError as error:
        yield seal, error.strerror or str(error)
        return
    written = data.splitlines(keepends=True)
    wrong = [name for name, line in lines.items() if line.encode() not in written]
    for name in wrong:
        yield name, f"it does not match {seal}"
    if not wrong and len(lines) == len(names) and data != "".join(lines.values()).encode():
        yield seal, "it is not what was written"


def check_plan_files(store: Path, sha256: str) -> None:
    """Refuse to continue with a store whose plan is not the one that its shards were made under."""
    shards = store / SHARDS
    numbers = shard_numbers([p.name for p in shards.iterdir()]) if shards.is_dir() else []
    for number in numbers:
        if read_manifest(store, number).plan != sha256:
            folder = shard_folder(store, number)
            raise _refused(store / PLAN, f"{folder} was made under another plan (sha256)")
    if (store / PLAN_SEAL).exists():  # stores of older versions have none
        for name, what in differing(store, PLAN_SEAL, OF_PLAN):
            raise _refused(store / name, what)


def _refused(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} is damaged: {what}\n"
        "nothing was written\n"
        "put back a copy: another machine's folder of the same job has it; or use another folder"
    )


def _line(digest: str, name: str) -> str:
    return f"{digest}  {name}\n"
