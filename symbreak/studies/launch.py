"""Runs of a study, side by side, each in a process pinned to a core of its own.

    DIR/records/SETTING/METHOD/seed-N/   what is small of a run, to be kept: `records.py`
    DIR/runs/SETTING/METHOD/seed-N/      the run itself with checkpoints and replay, to be thrown away

A finished run is known by its record, whose digest of the configuration must be the job's; it is never made again, on
whatever machine. Where a study beside this one has made the very same run, its record is taken over: ablations share
their usual setting with the main studies. A run that fails is continued from its checkpoint twice and then recorded as
failed. A study that ends before its runs do, for whatever reason, asks them to save and stop.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from symbreak.errors import StorageFault
from symbreak.studies.plans import Job
from symbreak.studies.records import as_json, recorded, run_directory, write_record
from symbreak.training.files import replace_file, storage_faults
from symbreak.training.follow import following
from symbreak.training.inspection import fingerprint
from symbreak.training.record import is_finished, read_status

ATTEMPTS = 3
WORKER = "symbreak.studies.worker"


@dataclass
class Progress:
    """What is known of one job."""

    job: Job
    state: str = "waiting"  # running, finished, failed
    attempts: int = 0
    step: int = 0
    reason: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)


def reached(out: Path, job: Job) -> int:
    """The step that a run last told; zero before it has said anything."""
    return int(read_status(run_directory(out, job)).get("step", 0))


def arguments_of(out: Path, job: Job) -> list[str]:
    """What a job's worker is told, on this machine or another that sees the directory."""
    config = out / "jobs" / f"{job.name.replace('/', '_')}.json"
    with storage_faults(f"write {config}"):
        config.parent.mkdir(parents=True, exist_ok=True)
    replace_file(config, as_json(job.config.to_json()))
    return [str(config), str(run_directory(out, job))]


def run_local(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int | None = None,
    show: Callable[[list[Progress]], None] = lambda table: None,
    keep_runs: bool = False,
    poll: float = 0.5,
) -> list[Progress]:
    """Make every run that has no record yet; returns what became of each job. Call again to go on."""
    table = [Progress(job, recorded(out, job) or "waiting") for job in jobs]
    for entry in table:
        if entry.state == "failed":  # another call is another chance
            entry.state = "waiting"
    cores = sorted(os.sched_getaffinity(0))
    count = min(workers or len(cores), len(cores))
    free = cores[:count]
    running: dict[int, Progress] = {}  # by core
    try:
        while True:
            for core, entry in list(running.items()):
                assert entry.process is not None
                entry.step = reached(out, entry.job)
                code = entry.process.poll()
                if code is not None:
                    del running[core]
                    free.append(core)
                    settle(out, entry, code, keep_runs)
            for entry in table:
                if entry.state == "waiting" and free:
                    core = free.pop(0)
                    _start(out, entry, core)
                    running[core] = entry
            show(table)
            if not running:
                return table
            time.sleep(poll)
    finally:
        stopped = [entry.process for entry in running.values() if entry.process is not None]
        for process in stopped:
            process.terminate()  # it saves and leaves
        for process in stopped:
            process.wait()


def _start(out: Path, entry: Progress, core: int) -> None:
    """In a session of its own: Ctrl-C reaches the study alone, which passes on one signal; two would leave no time."""
    entry.state, entry.attempts, entry.step = "running", entry.attempts + 1, reached(out, entry.job)
    command = following(WORKER, *arguments_of(out, entry.job), str(core))
    log = run_directory(out, entry.job).with_suffix(".log")
    with storage_faults(f"write {log}"):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as said:
            entry.process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)


def settle(out: Path, entry: Progress, code: int, keep_runs: bool) -> None:
    """A process has ended: finished, to be tried again, or failed for good. What cannot be read has failed."""
    directory, seal, reason = run_directory(out, entry.job), "", ""
    if code == 0 and is_finished(directory):
        try:
            seal = fingerprint(directory)
        except StorageFault as fault:
            reason = str(fault)
    if seal:
        entry.state = "finished"
        write_record(out, entry.job, "finished", entry.attempts, seal=seal)
        if not keep_runs:
            shutil.rmtree(directory, ignore_errors=True)
    elif entry.attempts < ATTEMPTS:
        entry.state = "waiting"
    else:
        log = directory.with_suffix(".log")
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        entry.state, entry.reason = "failed", (reason or (lines[-1] if lines else f"exit code {code}"))[:200]
        write_record(out, entry.job, "failed", entry.attempts, reason=entry.reason)
