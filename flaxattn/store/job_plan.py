# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of an extraction: the request, and which rows of which files make which shard.

A shard is a function of the plan and its number, whoever computes it. Here plans are compared,
written as JSON and read; `make_plan` makes one out of a corpus.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn import __version__
from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.input_files import Fingerprint
from flaxattn.corpus.texts import Columns
from flaxattn.errors import InputError, StoreError
from flaxattn.files import file_inside, sha256_of
from flaxattn.kernels.contract import Capture
from flaxattn.store.model_fingerprint import ModelFingerprint
from flaxattn.store.seals import parse_json, read_manifest, small_file
from flaxattn.store.store_layout import PLAN, PLAN_SEAL, SHARDS, shard_folder, shard_numbers
from flaxattn.trace.trace_file import capture_from_json, capture_to_json

FORMAT = 1


@dataclass(frozen=True)
class Settings:
    """Other settings that decide the content of a store.

    Attributes:
        truncate: whether texts over the model's limit are cut.
        seed: of anything that is drawn.
        limit: take no more rows than so many.
        reduce: moments that are kept of each shard, kinds of `OnlineMoments`.
        shard_bytes: a shard takes rows while its arrays have about this many bytes before
            compression; one text may have more.
        shard_texts: nor has it more texts than this.
    """

    truncate: bool = False
    seed: int = 0
    limit: int | None = None
    reduce: tuple[str, ...] = ()
    shard_bytes: int = 128 * 2**20
    shard_texts: int = 4096

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduce", tuple(self.reduce))


class Rows(NamedTuple):
    """Rows of a file that stand together, see `corpus.lines.FilePart`.

    Attributes:
        file: number of the file in the corpus.
        first: their first line, in Parquet and Arrow the first row, from 0.
        stop: the one after the last.
        offset: byte at which the first line begins, after decompression.
        pair_offset: the same in the second of two parallel files.
    """

    file: int
    first: int
    stop: int
    offset: int = 0
    pair_offset: int = 0


@dataclass(frozen=True)
class ShardPlan:
    """Rows that make a shard.

    Attributes:
        start: number of the first example.
        stop: `start` and the number of rows. Rows that are left out make no example, and then the
            shard's last numbers are not used.
        tokens: of the texts, as the model reads them, about.
        bytes: of their arrays before compression, about.
        rows: where the rows stand.
    """

    start: int
    stop: int
    tokens: int
    bytes: int
    rows: tuple[Rows, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(Rows(*rows) for rows in self.rows))
        if not all(type(number) is int and number >= 0 for rows in self.rows for number in rows):
            raise ValueError(f"rows of a shard cannot be {self.rows!r:.80}")


@dataclass(frozen=True)
class JobPlan:
    """Request of a job and, once the corpus was read, its texts cut into shards.

    Attributes:
        files: fingerprints of the corpus.
        columns: where the texts stand.
        model: fingerprint of the model.
        capture: what is kept.
        settings: what else decides the content.
        texts: how many rows there are, each a text unless it is left out.
        tokens: of all of them, as the model reads them, about.
        bytes: of all arrays before compression, about.
        problems: of whole files, whose rows are left out.
        shards: which rows make which; each row is in one, in order.
        flaxattn: version that made the plan.
        format: of the JSON.
        file_sha256: of the file that the plan was read from; empty for a plan made here.
    """

    files: tuple[Fingerprint, ...]
    columns: Columns
    model: ModelFingerprint
    capture: Capture
    settings: Settings = Settings()
    texts: int = 0
    tokens: int = 0
    bytes: int = 0
    problems: tuple[Problem, ...] = ()
    shards: tuple[ShardPlan, ...] = ()
    flaxattn: str = __version__
    format: int = FORMAT
    file_sha256: str = field(default="", compare=False)

    def compare(self, other: "JobPlan") -> list[str]:
        """Describe differences between two requests; empty if their stores would be the same."""
        before, now = self._request(), other._request()
        names = [name for name in now if before.get(name) != now[name]]
        names += [name for name in before if name not in now]
        return [f"{n} {_short(before.get(n))} -> {_short(now.get(n))}" for n in names]

    def to_json(self) -> dict[str, Any]:
        """The plan as objects that `json.dumps` takes."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del plain["file_sha256"]
        return {
            "format": plain.pop("format"),
            "flaxattn": plain.pop("flaxattn"),
            **plain,
            "files": [file._asdict() for file in self.files],
            "columns": dataclasses.asdict(self.columns),
            "model": dataclasses.asdict(self.model),
            "capture": capture_to_json(self.capture),
            "settings": dataclasses.asdict(self.settings),
            "problems": [problem._asdict() for problem in self.problems],
            "shards": [dataclasses.asdict(shard) for shard in self.shards],
        }

    @property
    def text(self) -> str:
        """Content of plan.json; equal plans have equal texts."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"

    @property
    def sha256(self) -> str:
        """Digest of plan.json, which every shard names.

        For a plan that was read, this is the digest of the file's own bytes: another version of
        flaxattn may have written them in another form.
        """
        return self.file_sha256 or hashlib.sha256(self.text.encode()).hexdigest()

    def _request(self) -> dict[str, Any]:
        """Settings that decide the content of a store, by the names a person knows."""
        model, fields = dataclasses.asdict(self.model), dataclasses.asdict(self.settings)
        model.pop("name")
        columns = {f"{k} column": v for k, v in dataclasses.asdict(self.columns).items()}
        return {
            **{f"file {file.name}": file.sha256 for file in self.files},
            "order of files": [file.name for file in self.files],
            **columns,
            **{f"model's {name}": value for name, value in model.items()},
            **{f"capture {k}": v for k, v in capture_to_json(self.capture).items()},
            **fields,
        }


def plan_from_json(content: Mapping[str, Any], file_sha256: str = "") -> JobPlan:
    """Parse a plan written by `JobPlan.to_json`."""
    try:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, this version reads {FORMAT}")
        plan = JobPlan(
            **{
                **content,
                "files": tuple(Fingerprint(**file) for file in content["files"]),
                "columns": Columns(**content["columns"]),
                "model": ModelFingerprint(**content["model"]),
                "capture": capture_from_json(content["capture"]),
                "settings": Settings(**content["settings"]),
                "problems": tuple(Problem(**problem) for problem in content["problems"]),
                "shards": tuple(ShardPlan(**shard) for shard in content["shards"]),
                "file_sha256": file_sha256,
            }
        )
        starts = [shard.start for shard in plan.shards]
        if [*starts, plan.texts] != [0, *(shard.stop for shard in plan.shards)]:
            raise ValueError("its shards do not hold each row once")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"this is not a plan of an extraction\n{reason.splitlines()[0]}\n"
            "restore plan.json, or extract into another folder"
        ) from error
    return plan


def read_plan(store: Path) -> JobPlan | None:
    """The plan in a folder; None where there is none."""
    path = store / PLAN
    try:
        data = small_file(store, PLAN)
        return plan_from_json(parse_json(data), hashlib.sha256(data).hexdigest())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        lines = str(error).splitlines()
        reason = lines[1] if isinstance(error, InputError) else lines[0]
        raise InputError(
            f"{path} cannot be used\n{reason}\nrestore it, or extract into another folder"
        ) from error


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 24 else text[:12] + "…"


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
