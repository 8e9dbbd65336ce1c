"""A run in memory, to and from a directory.

What is written is the directory of an ordinary run: it can be resumed, verified, evaluated and reported. What is read
becomes a run of its own in memory; the directory stays as it is.
"""

from __future__ import annotations

import glob
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from symbreak.errors import InputError
from symbreak.process.provenance import versions
from symbreak.storage.checkpoint import Loaded
from symbreak.storage.directory import lock_run_directory
from symbreak.storage.files import fsync_directory, storage_faults
from symbreak.training.gate_record import FILE as GATE_RECORD
from symbreak.training.grid_record import FILE as GRID_RECORD
from symbreak.training.record import (
    PARTS,
    Record,
    no_checkpoint,
    read_config,
    refuse_existing,
)
from symbreak.training.run import Run
from symbreak.training.saving import newest, require_same, rows_until, take_up
from symbreak.training.settings import RunConfig

FILES = ("config.json", "metrics.jsonl", "status.json", "run.lock", GRID_RECORD, GATE_RECORD)
OWN = (*PARTS, *FILES)  # what a run's directory holds


def write_run(run: Run, directory: Path, *, replace: bool = False) -> None:
    """Write a run that lives in memory; with `replace`, in the place of the run that the directory holds.

    What else lies there is left where it is.
    """
    run.require_whole()
    if not replace or not (directory / "config.json").exists():
        refuse_existing(directory)
        with storage_faults(f"look into {directory}"):
            others = [path for path in directory.iterdir() if path.name not in OWN] if directory.is_dir() else []
        if others:
            raise InputError(f"{directory} holds other files and no run; save into a new or an empty directory")
        try:
            _write(run, directory)
        except BaseException:
            _remove_parts(directory)  # half of a run would be in the way of the next try
            raise
        return
    # Complete beside the old one before it takes its place: whatever happens, one of them is whole.
    directory = directory.resolve()
    fresh = directory.with_name(f".{directory.name}.saving-{os.getpid()}")
    former = directory.with_name(f".{directory.name}.former-{time.time_ns()}")
    try:
        _write(run, fresh)
        with storage_faults(f"replace {directory}"):
            with lock_run_directory(directory):  # nobody else is writing there
                pass
            os.rename(directory, former)
            try:
                os.rename(fresh, directory)
            except BaseException:
                os.rename(former, directory)
                raise
            fsync_directory(directory.parent)
        _bring_back(former, directory)  # first: what lay in the directory itself keeps its name
        left = directory.parent.glob(f".{glob.escape(directory.name)}.former-*")  # where a save was killed here
        for older in sorted(left, reverse=True):
            _bring_back(older, directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _remove_parts(directory: Path) -> None:
    for name in OWN:
        if (directory / name).is_dir():
            shutil.rmtree(directory / name, ignore_errors=True)
        else:
            with suppress(OSError):
                (directory / name).unlink()


def _bring_back(former: Path, directory: Path) -> None:
    """What is not of the run, from where the directory was moved. What has a namesake by now stays there."""
    with storage_faults(f"move what else lay in {directory} back from {former}"):
        others = [other for other in former.iterdir() if other.name not in OWN]
        taken = [other for other in others if (directory / other.name).exists()]
        for other in others:
            if other not in taken:
                os.rename(other, directory / other.name)
    if not taken:
        shutil.rmtree(former, ignore_errors=True)


def _write(run: Run, directory: Path) -> None:
    memory = run.record
    record = Record.create(run.config, directory, versions())
    try:
        for row in memory.rows:
            record.write(row)
        record.inexact, record.notes = list(memory.inexact), run.notes
        run.record, run.saved_step = record, -1
        run._follow(())
        run.save()
        if run.finished:
            run.driver.write_maps(directory)
        record.status("finished" if run.finished else "interrupted", run.step)
    finally:
        run.record, run.saved_step, run._segments = memory, -1, None
        record.close()


def read_run(directory: Path, task: Any) -> Run:
    """The run of a directory, where its newest undamaged checkpoint left it, as a run in memory."""
    run = Run(read_config(directory), Record(None), task, None)
    try:
        _read(run, directory)
    except BaseException:
        run.driver.close()
        raise
    return run


def _read(run: Run, directory: Path) -> None:
    trees, replay = run.driver.templates()
    loaded = stored_checkpoint(directory, trees, run.config, run.agent.symmetry.digest)
    run.record.rows = rows_until(take_up(run, loaded, replay, directory), directory)
    run.say_beside_results()


def stored_checkpoint(directory: Path, trees: dict[str, Any], config: RunConfig, symmetry: str) -> Loaded:
    """The newest undamaged checkpoint of a run, which must be of this configuration and symmetry."""
    loaded = newest(directory, trees)
    if loaded is None:
        raise no_checkpoint(directory)
    require_same(loaded, config, symmetry, directory)
    return loaded
