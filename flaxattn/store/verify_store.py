# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Verification of a store: each file of each shard against its manifest and the plan.

The files beside the shards are compared with their checksums. Reading finds damage too, but only in
what it reads. Nothing is repaired here. `store_info` describes a store in numbers and names.
"""

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.errors import StoreError
from flaxattn.files import file_inside
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.store.commit_shards import stored_problems
from flaxattn.store.open_store import Store, read_plan
from flaxattn.store.plan import differing
from flaxattn.store.seals import Manifest, check_content, read_manifest
from flaxattn.store.store_layout import (
    ERRORS,
    MANIFEST,
    PLAN,
    PLAN_SEAL,
    SHARDS,
    TEXTS,
    chunks_path,
    shard_folder,
    shard_name,
    shard_numbers,
)
from flaxattn.store.zarr_arrays import damaged_chunks


def shard_sizes(store: Path) -> dict[int, int]:
    """Number of bytes on disk of each committed shard, by its number; no file is opened."""
    folder = store / SHARDS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return {number: _size(shard_folder(store, number)) for number in shard_numbers(names)}


def _size(folder: Path) -> int:
    """Bytes in the regular files of a folder."""
    files = (path for path in folder.rglob("*") if not path.is_symlink() and path.is_file())
    return sum(path.lstat().st_size for path in files)


def describe(store: Store) -> dict[str, Any]:
    """Shards, texts, bytes, and what was captured on each side.

    Reads names and sizes of all files, and every manifest.
    """
    there = store.shards
    sizes = shard_sizes(store.path)
    size, texts = sum(sizes[number] for number in there), len(store.examples)
    facts: dict[str, Any] = {
        "texts": len(store),
        "texts_present": texts,
        "shards": len(store.plan["shards"]),
        "shards_present": len(there),
        "complete": store.complete,
        "bytes": size,
        "bytes_per_text": round(size / texts) if texts else None,
        "plan_sha256": store.plan_sha256,
    }
    if there:
        manifests = [store.shard(number).manifest for number in there]
        traces = next((m for m in manifests if m.stop > m.start), manifests[0]).traces
        facts["nonfinite_rows"] = sum(manifest.nonfinite for manifest in manifests)
        facts["model"] = traces["model"]
        facts["sides"] = [
            {
                "side": side,
                "layers": ", ".join(map(str, kept["layers"])),
                "heads": ", ".join(map(str, kept["heads"])),
                "arrays": ", ".join(f"{n} {kind[0]}" for n, kind in kept["arrays"].items()),
                "statistics": ", ".join(kept["stats"]),
            }
            for side, kept in traces["sides"].items()
        ]
    return facts


def describe_text(store: Store, example: int) -> dict[str, Any]:
    """One text: where it came from, and its tokens."""
    example, shard = store.shard_of(example)
    place = example - shard.manifest.start
    columns = ["example", "id", "file", "line", "text", "text_b", "truncated"]
    (row,) = shard.table(TEXTS, columns, (place, place + 1)).to_pylist()
    kept = ["side", "position", "token", "written", "word", "segment", "special"]
    parts = shard.tokens(example, kept).values()
    return {**row, "tokens": [token for part in parts for token in part.to_pylist()]}


class Damage(NamedTuple):
    """Something in a store that is not as it was written.

    Attributes:
        file: Its path inside the store.
        what: What is wrong.
    """

    file: str
    what: str


class Findings(NamedTuple):
    """Findings of a verification.

    Attributes:
        shards: Shards that are there.
        missing: Numbers of those that are not there yet; no damage.
        files: Files that were read.
        bytes: In them.
        damage: Everything that is wrong.
        nonfinite: Number of rows of attention that are NaN or infinite; they were stored so, which
            is not damage.
    """

    shards: int
    missing: list[int]
    files: int
    bytes: int
    damage: list[Damage]
    nonfinite: int = 0


def verify(store: Path, watch: Watch = show_progress) -> Findings:
    """Read all of a store and compare it with its manifests and its plan.

    Reads and hashes every byte.
    """
    names = [p.name for p in (store / SHARDS).iterdir()] if (store / SHARDS).is_dir() else []
    numbers = shard_numbers(names)
    damage = list(_strange(names, numbers))
    plan, sha256, spans = None, "", []
    try:
        plan, sha256 = read_plan(store)
        spans = plan["shards"]
    except StoreError as error:
        if not numbers:
            raise
        damage.append(Damage(PLAN, str(error).splitlines()[0].partition(f"{PLAN} ")[2]))
    files, size, broken, plans = 1, 0, 0, {}
    sizes = shard_sizes(store)
    for number in numbers:
        folder = shard_folder(store, number)
        try:
            manifest = read_manifest(store, number)
        except StoreError as error:
            damage.append(_damage(store, folder / MANIFEST, error))
            watch("verifying", sizes.get(number, 0))
            continue
        plans[number] = manifest.plan
        files += 1 + len(manifest.files)
        broken += manifest.nonfinite
        size += sum(sealed["size"] for sealed in manifest.files.values())
        damage += check_shard(store, manifest)
        if plan is not None:
            damage += _against(manifest, spans)
        watch("verifying", sizes.get(number, 0))
    if plan is not None:
        damage += _plans(plans, sha256)
        damage += _sealed(store, plan)
    missing = sorted({*range(len(spans))} - {*numbers})
    if plan is not None and not missing:
        damage += _listed(store)
    return Findings(len(numbers), missing, files, size, damage, broken)


def check_shard(store: Path, manifest: Manifest) -> list[Damage]:
    """Compare the files of one shard with its manifest."""
    folder = shard_folder(store, manifest.shard)
    damage = []
    for name, sealed in manifest.files.items():
        try:
            check_content(folder, name, sealed)
        except StoreError as error:
            found = _damage(store, folder / name, error)
            damage.append(found._replace(what=found.what + _where(folder, name, manifest)))
    inside = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    there = {path.relative_to(folder).as_posix() for path in inside}
    for name in sorted(there - {*manifest.files, MANIFEST}):
        file = (folder / name).relative_to(store).as_posix()
        damage.append(Damage(file, "it does not belong to the shard"))
    return damage


def _damage(store: Path, path: Path, error: StoreError) -> Damage:
    """A file and the reason in the first line of an error about it."""
    what = str(error).splitlines()[0].partition(" is damaged: ")[2]
    return Damage(path.relative_to(store).as_posix(), what)


def _where(folder: Path, name: str, manifest: Manifest) -> str:
    """Layers and heads that are concerned, if it is a file of chunks whose index is whole."""
    for array, entry in manifest.arrays.items():
        if name != chunks_path(array, len(entry["shape"])):
            continue
        try:
            path = file_inside(folder, name, manifest.files[name]["size"])
        except OSError:
            return ""
        side = manifest.traces["sides"][array.partition(".")[0]]
        layers, heads = side["layers"], side["heads"]
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = sorted({(layers[i], heads[j]) for i, j, _ in damaged_chunks(data, entry)})
        named = ", ".join(f"layer {layer} head {head}" for layer, head in found[:3])
        more = ", …" if len(found) > 3 else ""
        return f": {named}{more}" if found else ""
    return ""


def _strange(names: list[str], numbers: list[int]) -> Iterator[Damage]:
    """Yield what lies among the shards and is none, nor one that is being written."""
    for name in sorted({*names} - {shard_name(number) for number in numbers}):
        if not name.startswith("."):
            yield Damage(f"{SHARDS}/{name}", "it is not a shard")


def _against(manifest: Manifest, spans: list[dict[str, int]]) -> Iterator[Damage]:
    """Yield differences between a shard and the plan."""
    file = f"{SHARDS}/{shard_name(manifest.shard)}"
    if manifest.shard >= len(spans):
        yield Damage(file, f"the plan has {len(spans)} shards")
    elif (span := spans[manifest.shard]) and (
        manifest.start != span["start"] or manifest.stop > span["stop"]
    ):
        yield Damage(file, f"the plan says examples {span['start']} to {span['stop'] - 1}")


def _sealed(store: Path, plan: Mapping[str, Any]) -> Iterator[Damage]:
    """Describe damage to the plan."""
    if isinstance(plan.get("settings"), dict) or (store / PLAN_SEAL).exists():
        yield from (Damage(*entry) for entry in differing(store))


def _listed(store: Path) -> Iterator[Damage]:
    """Compare the list of rows that were left out, where there is one, with those of all shards."""
    try:
        found = file_inside(store, ERRORS).read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        yield Damage(ERRORS, error.strerror or str(error))
        return
    try:
        expected = stored_problems(store)
    except StoreError:  # of a shard that is damaged
        return
    if found != expected:
        what = "it is not the list of the rows that were left out: run the same extraction again"
        yield Damage(ERRORS, what)


def _plans(plans: dict[int, str], sha256: str) -> Iterator[Damage]:
    """Shards of another plan; if all of them agree on one, it is the plan that changed."""
    counted = Counter(plans.values())
    if counted and list(counted) != [sha256] and len(counted) == 1:
        yield Damage(PLAN, "all shards were made under another plan (sha256)")
    else:
        for number, plan in plans.items():
            if plan != sha256:
                file = f"{SHARDS}/{shard_name(number)}"
                yield Damage(file, f"it was made under another {PLAN} (sha256)")
