# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Dry run of an extraction: `flaxattn extract --dry-run`. It writes to no store."""

import dataclasses
import shutil
import tempfile
import time
from pathlib import Path

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.input_files import find_inputs, kept_inputs
from flaxattn.store.commit_shards import StoreWork
from flaxattn.store.job import (
    JobReport,
    JobSpec,
    Models,
    Watcher,
    check_request,
    folders,
    prepare_arguments,
    report_of,
)
from flaxattn.store.job_plan import read_plan
from flaxattn.store.make_plan import check_same, make_plan


def survey(store: Path, model: Models, asked: JobSpec, watcher: Watcher | None = None) -> JobReport:
    """Describe what a job would do. Only temporary files are written."""
    started, watcher = time.monotonic(), watcher or Watcher()
    models = folders(model)
    check_request(list(models.values()), asked)
    name, first = next(iter(models.items()))
    whole = store / name if name else store
    with tempfile.TemporaryDirectory() as folder:
        kept = store if kept_inputs(store) else Path(folder)
        files = find_inputs(asked.inputs, folder=kept, kind=asked.kind)
        plan, measure, size = prepare_arguments(first, asked, files)
        if found := read_plan(whole):
            check_same(whole, found, plan)
            plan = found
        else:
            bad = BadRows(asked.settings.on_error, Path(folder))
            plan = make_plan(plan, files, measure, size, bad, note=watcher.planning)
    works = [StoreWork(store / name if name else store, plan, one) for name, one in models.items()]
    report = report_of(store, works, time.monotonic() - started)
    place = next(path for path in (store, *store.absolute().parents) if path.exists())
    return dataclasses.replace(report, free=shutil.disk_usage(place).free)
