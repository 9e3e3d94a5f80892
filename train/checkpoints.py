# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that exist whole or not at all, and that never read damage as numbers.

    checkpoints/step-00000500/  arrays/ (Orbax)  progress.json  manifest.json

Orbax copies the arrays from the devices and writes them while training continues. When it is done,
the sha256 of every file goes into manifest.json and the folder gets its name, in this order; a
kill before that leaves a folder that ends in .part and is removed at the next start. On reading,
every file is hashed first: Orbax itself does not notice a flipped bit in an array.
"""

import asyncio
import hashlib
import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint._src import asyncio_utils

from flaxattn.errors import CheckpointError
from flaxattn.models.parameter_shardings import state_shardings
from flaxattn.train.run_folder import RunFolder, write_json

_PART = ".part"
_NEW_LOOP = "_run_sync_via_new_loop"  # in Orbax, what runs the writes of a save
_PATIENCE = 60.0  # seconds for the writes that are under way when one fails
_FULL = re.compile("No space left on device|RESOURCE_EXHAUSTED")  # in long words of Orbax
_OVERHEAD = 2**16  # bytes of a checkpoint beside its arrays, about
_Result = TypeVar("_Result")


class Checkpoints:
    """The checkpoints of one run; a context manager that waits for the last save."""

    def __init__(
        self,
        run: RunFolder,
        keep: int,
        eligible: Callable[[int], bool] = lambda step: True,
        average: int = 1,
    ) -> None:
        """Remove what a killed run left unfinished, and everything where the run is fresh."""
        self._eligible, self._average = eligible, average
        self._run, self._keep, self._folder = run, keep, run.checkpoints.absolute()
        logging.getLogger("absl").addFilter(_not_from_orbax)
        if hasattr(asyncio_utils, _NEW_LOOP):  # versions of Orbax differ
            setattr(asyncio_utils, _NEW_LOOP, _run_to_end)
        self._orbax = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
        self._finishing: threading.Thread | None = None
        self._failure: CheckpointError | None = None
        self._last = -1  # the step on disk that needs no second save
        self._primary = jax.process_index() == 0
        if self._primary:
            for path in self._folder.glob("*" if run.fresh else f"*{_PART}"):
                shutil.rmtree(path)
            self._folder.mkdir(parents=True, exist_ok=True)
        _barrier("checkpoints")

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.wait()
        except CheckpointError:
            if kind is None:  # else what went wrong first is what to tell
                raise
        finally:
            with suppress(OSError):  # of a save that failed, which `wait` raises
                self._orbax.close()
            logging.getLogger("absl").removeFilter(_not_from_orbax)

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending."""
        names = [path.name for path in self._folder.glob("step-*") if path.suffix != _PART]
        return sorted(int(name.removeprefix("step-")) for name in names)

    def save(self, step: int, state: Any, progress: Mapping[str, Any]) -> None:
        """Start to save; returns when the arrays are copied, while the writing continues."""
        self.wait()
        if step == self._last:
            return
        final = self._path(step)
        part = final.with_name(final.name + _PART)
        self._check_space(state)
        try:
            if self._primary:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                write_json(part / "progress.json", {**progress, "tree": _tree(state)})
            _barrier(f"save {step}")
            self._orbax.save(part / "arrays", args=ocp.args.PyTreeSave(state))
        except (OSError, ValueError) as error:
            raise self._unsaved(part, error) from error
        best = (progress.get("best") or {}).get("step")
        self._finishing = threading.Thread(target=self._finish, args=(part, final, best))
        self._finishing.start()
        self._last = step

    def wait(self) -> None:
        """Wait for the save that is under way."""
        if self._finishing is not None:
            self._finishing.join()
            self._finishing = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def newest(self, like: Any, mesh: Any) -> tuple[Any, dict[str, Any]] | None:
        """State and progress of the newest checkpoint; None where there is none."""
        steps = self.steps()[::-1]
        for number, step in enumerate(steps):
            try:
                return self.load(step, like, mesh)
            except DamagedError:
                if not self._run.fallback or number == len(steps) - 1:
                    raise
        return None

    def load(self, step: int, like: Any, mesh: Any) -> tuple[Any, dict[str, Any]]:
        """State and progress of one checkpoint; arguments and errors as for `newest`."""
        path = self._path(step)
        verify(path)
        progress = json.loads((path / "progress.json").read_text(encoding="utf-8"))
        _compare(path, progress.pop("tree"), _tree(like))
        abstract = jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
            like,
            state_shardings(like, mesh),
        )
        how = ocp.checkpoint_utils.construct_restore_args(abstract)
        args = ocp.args.PyTreeRestore(item=abstract, restore_args=how)
        state = self._orbax.restore(path / "arrays", args=args)
        self._last = step
        return state, progress

    def averaged(self, like: Any, mesh: Any) -> Any:
        """Mean of the parameters of the newest eligible checkpoints."""
        chosen = self._in_mean()
        sums = self.load(chosen[0], like, mesh)[0].params
        for step in chosen[1:]:
            sums = jax.tree.map(jnp.add, sums, self.load(step, like, mesh)[0].params)
        return jax.tree.map(lambda x: x / len(chosen), sums)

    def _in_mean(self) -> list[int]:
        return [step for step in self.steps() if self._eligible(step)][-self._average :]

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:08}"

    def _finish(self, part: Path, final: Path, best: int | None) -> None:
        try:
            self._orbax.wait_until_finished()
            if self._primary:
                write_manifest(part)
                if final.exists():  # a damaged one, or one of a run that went on from before it
                    _remove(final)
                part.rename(final)
                _flush(final.parent)
                self._prune(best)
        except Exception as error:
            self._failure = self._unsaved(part, error)

    def _prune(self, best: int | None) -> None:
        spared = {best, *(self._in_mean() if self._average > 1 else ())}
        for step in self.steps()[: -self._keep]:
            if step not in spared:
                _remove(self._path(step))

    def _check_space(self, state: Any) -> None:
        needed = _OVERHEAD + sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        free = shutil.disk_usage(self._folder).free
        if self._primary and needed > free:
            raise CheckpointError(
                f"no room for a checkpoint in {self._folder}\n"
                f"it needs {needed:,} bytes, {free:,} are free\n"
                "older checkpoints are as they were; free some space and run the same command"
            )

    def _unsaved(self, part: Path, error: BaseException) -> CheckpointError:
        shutil.rmtree(part, ignore_errors=True)
        free = shutil.disk_usage(self._folder).free if self._folder.is_dir() else 0
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        if _FULL.search(str(error)):
            reason = "No space left on device"
        return CheckpointError(
            f"could not save {part.with_suffix('').name} in {self._folder}\n"
            f"{reason} ({free:,} bytes are free)\n"
            "older checkpoints are as they were; free some space and run the same command"
        )


class DamagedError(CheckpointError):
    """A checkpoint on disk is not what was written."""


def write_manifest(folder: Path) -> None:
    """Write sha256 and size of every file below a folder to its manifest.json, durably."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = {}
    for path in files:
        entries[str(path.relative_to(folder))] = [path.stat().st_size, _sha256(path)]
        _flush(path)
    write_json(folder / "manifest.json", entries)
    for inner in (path for path in folder.rglob("*") if path.is_dir()):
        _flush(inner)
    _flush(folder)


def verify(folder: Path) -> None:
    """Compare every file with the manifest."""
    try:
        wanted = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
        found.pop("manifest.json", None)
        names = sorted({*wanted, *found})
        wrong = next((n for n in names if _differs(found.get(n), wanted.get(n))), None)
    except (OSError, ValueError, TypeError, AttributeError):
        wrong = "manifest.json"
    if wrong is not None:
        raise DamagedError(
            f"checkpoint {folder.name} in {folder.parent} is damaged\n"
            f"{wrong} is not what was written\n"
            "continue from the checkpoint before it with --fallback, or start again with --fresh"
        )


def _differs(path: Path | None, entry: Any) -> bool:
    if path is None or entry is None:
        return True
    size, digest = entry
    return path.stat().st_size != size or _sha256(path) != digest


def _compare(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = [n for n in sorted({*found, *expected}) if found.get(n) != expected.get(n)]
    if names:
        what = [f"{n}: expected {expected.get(n)}, found {found.get(n)}" for n in names]
        raise CheckpointError(
            f"{path} belongs to another model: {len(names)} arrays differ\n"
            f"{'; '.join(what)}\n"
            "use the recipe of that run, another --out, or --fresh"
        )


def _not_from_orbax(record: logging.LogRecord) -> bool:
    """Keep Orbax's threads from printing an exception that `Checkpoints` raises with its file."""
    return not (record.exc_info and "orbax" in Path(record.pathname).parts)


def _remove(path: Path) -> None:
    """Remove a folder so that no half of it is ever seen under its name."""
    gone = path.with_name(f"{path.name}.old{_PART}")
    path.rename(gone)
    shutil.rmtree(gone)


def _tree(state: Any) -> dict[str, list[Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    return {
        name: [list(leaf.shape), str(np.dtype(leaf.dtype))]
        for name, (_, leaf) in zip(names, leaves, strict=True)
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _barrier(name: str) -> None:
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def _run_to_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine in a loop of its own and, where it fails, wait for the tasks it started.

    Orbax closes its loop at the first array that cannot be written. The threads that still write
    the others would then print tracebacks, and put files into a folder that is being removed.
    """
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(work)
        except Exception:
            loop.run_until_complete(_wait(asyncio.all_tasks(loop)))
            raise
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _wait(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait for tasks; the failure of the first one is raised already."""
    if tasks:
        await asyncio.wait(tasks, timeout=_PATIENCE)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # else asyncio warns that nobody read it
    await asyncio.sleep(0)
