# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Putting stores of one plan together that were written in different folders.

Shards are verified on the way and never changed: they are linked, or copied where the file system
cannot link.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flaxattn.errors import InputError, StoreError
from flaxattn.files import existing_part, file_inside
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.store.commit_shards import (
    flush,
    flush_folders,
    list_problems,
    mode_of_texts,
    named,
    parted,
)
from flaxattn.store.open_store import Store
from flaxattn.store.seals import read_manifest
from flaxattn.store.store_layout import (
    ERRORS,
    MANIFEST,
    PLAN,
    PLAN_SEAL,
    shard_folder,
)
from flaxattn.store.verify_store import check_shard, shard_sizes


class Merged(NamedTuple):
    """Result of a merge.

    Attributes:
        shards: Shards in the new store.
        missing: Numbers of those that no store had.
        copied: Files that were copied; others are links.
    """

    shards: int
    missing: list[int]
    copied: int


def merge(
    sources: Sequence[Path], out: Path, *, copy: bool = False, watch: Watch = show_progress
) -> Merged:
    """Make one store of the shards of several; it appears when it is whole.

    Reads and hashes every shard twice, and copies it.
    """
    stores = check_sources(sources, out, copy=copy)
    draft = out.absolute().with_name(f".{out.absolute().name}.{os.urandom(8).hex()}.part")
    try:
        copied = _fill(draft, stores, copy, watch)
        merged = Store(draft)
        found = Merged(len(merged.shards), merged.missing, copied)
        os.rename(draft, out)
        flush(out.absolute().parent)
    except OSError as error:
        raise StoreError(
            f"could not write {out}: {error.strerror or error}\n"
            "nothing was left of it; the stores it is made of are as they were"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return found


def check_sources(sources: Sequence[Path], out: Path, *, copy: bool = False) -> list[Store]:
    """Open stores that are to be merged, or refuse to."""
    stores = [Store(path) for path in sources]
    for store in stores[1:]:
        if store.plan_sha256 != stores[0].plan_sha256:
            raise InputError(
                f"{store.path} and {stores[0].path} were made under different plans\n"
                "only stores with the same plan.json belong together"
            )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is in use\nname a new folder")
    if copy:
        sizes: dict[int, int] = {}
        for store in stores:
            sizes |= shard_sizes(store.path)
        needed = sum(sizes.values())
        if needed > (free := shutil.disk_usage(existing_part(out)).free):
            raise StoreError(
                f"{out} needs {needed:,} bytes for {len(sizes)} shards; {free:,} are free\n"
                "free some space, or link the files instead of copying them"
            )
    return stores


def _every(stores: Sequence[Store]) -> set[int]:
    """Numbers of all shards."""
    return {number for store in stores for number in store.shards}


def _fill(draft: Path, stores: Sequence[Store], copy: bool, watch: Watch) -> int:
    """Make the new store under its first name; the number of files that were copied."""
    draft.mkdir(parents=True)
    copied = 0
    first = stores[0].path
    names = [PLAN, *([PLAN_SEAL] if _is_there(first, PLAN_SEAL) else [])]
    copied += sum(_take(first / name, draft / name, True) for name in names)
    sizes = [shard_sizes(store.path) for store in stores]
    for number in sorted(_every(stores)):
        source = _sound([s.path for s in stores if number in s.shards], number)
        folder, manifest = shard_folder(source, number), read_manifest(source, number)
        needed = sum(sealed["size"] for sealed in manifest.files.values())
        with parted(draft, number, needed) as part:
            for name in (*manifest.files, MANIFEST):
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                copied += _take(folder / name, part / name, copy)
            flush_folders(part)
            named(draft, number, part)
        watch("merging", sum(each.get(number, 0) for each in sizes))
    if any(_is_there(store.path, ERRORS) for store in stores):
        list_problems(draft, mode_of_texts(draft))
    flush_folders(draft)
    return copied


def _is_there(store: Path, name: str) -> bool:
    """Return whether a store has a file of this name, and no link, pipe or device in its place."""
    try:
        file_inside(store, name)
    except OSError:
        return False
    return True


def _sound(sources: Sequence[Path], number: int) -> Path:
    """A store whose shard is whole; all that are whole must be equal."""
    whole, reasons = {}, []
    for source in sources:
        try:
            manifest = read_manifest(source, number)
        except StoreError as error:
            reasons.append(str(error))
            continue
        for damage in check_shard(source, manifest)[:1]:
            reasons.append(
                f"{source / damage.file} is damaged: {damage.what}\n"
                f"no other store has shard {number}; extract it again in {source}"
            )
            break
        else:
            whole[source] = manifest
    if not whole:
        raise StoreError(reasons[0])
    first, *others = whole
    for other in others:
        if whole[other] != whole[first]:
            raise StoreError(
                f"shard {number} of {first} and of {other} differ\n"
                "delete the one you do not trust and merge again"
            )
    return first


def _take(source: Path, target: Path, copy: bool) -> int:
    """Link a file, or copy it and see it on the disk; whether it was copied."""
    if not copy:
        try:
            os.link(source, target)
            return 0
        except OSError:  # another disk, or a file system without links
            target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)
    flush(target)
    return 1
