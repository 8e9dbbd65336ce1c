"""Runs of a study, side by side, each in a process pinned to a core of its own.

    DIR/records/SETTING/METHOD/seed-N/   what is small of a run, to be kept: `records.py`
    DIR/runs/SETTING/METHOD/seed-N/      the run itself with checkpoints and replay, to be thrown away

A finished run is known by its record, whose digest of the configuration must be the job's; it is never made again, on
whatever machine. Where a study beside this one has made the very same run, its record is taken over: ablations share
their usual setting with the main studies. A run that fails is continued from its checkpoint twice and then recorded as
failed; one that was asked to stop has not failed, as long as it gets on. A study that ends before its runs do, for
whatever reason, asks them to save and stop.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from symbreak.errors import Interrupted, StorageFault
from symbreak.process.cores import least_used_first
from symbreak.process.follow import following
from symbreak.storage.files import replace_file, storage_faults
from symbreak.studies.plans import Job
from symbreak.studies.records import as_json, code_of, recorded, run_directory, take_over, write_record
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
    former: str = ""  # why the try before this one ended
    said: int = 0  # bytes in the log of a run when its last try began
    began: int = 0  # the step from which that went on
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)


def reached(out: Path, job: Job) -> int:
    """The step that a run last told; zero before it has said anything."""
    return int(read_status(run_directory(out, job)).get("step", 0))


def begin(out: Path, entry: Progress) -> None:
    """Another try: what was said of former ones, also by former studies, is not said of this one."""
    log = log_of(out, entry.job)
    entry.state, entry.attempts = "running", entry.attempts + 1
    entry.began = entry.step = reached(out, entry.job)
    entry.former, entry.reason = entry.reason, ""
    entry.said = log.stat().st_size if log.exists() else 0


def look(out: Path, entry: Progress) -> None:
    """How far a run is. One that was killed goes on from its checkpoint, behind the step that it had told."""
    entry.step = reached(out, entry.job)
    entry.began = min(entry.began, entry.step)


def is_made_elsewhere(out: Path, entry: Progress) -> bool:
    """Whether a study beside this one has made the very run since this one began; its record is taken over."""
    if entry.attempts == 0 and take_over(out, [entry.job]):
        entry.state = "finished"
        return True
    return False


def log_of(out: Path, job: Job) -> Path:
    return run_directory(out, job).with_suffix(".log")


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
    free = least_used_first()[:workers]
    running: dict[int, Progress] = {}  # by core
    try:
        while True:
            for core, entry in list(running.items()):
                assert entry.process is not None
                look(out, entry)
                code = entry.process.poll()
                if code is not None:
                    del running[core]
                    free.append(core)
                    settle(out, entry, code, keep_runs)
            for entry in table:
                if entry.state == "waiting" and free and not is_made_elsewhere(out, entry):
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
    begin(out, entry)
    command, log = following(WORKER, *arguments_of(out, entry.job), str(core)), log_of(out, entry.job)
    with storage_faults(f"write {log}"):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as said:
            entry.process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)


def settle(out: Path, entry: Progress, code: int, keep_runs: bool) -> None:
    """A process has ended: finished, to be tried again, or failed for good. What cannot be read has failed."""
    directory, seal = run_directory(out, entry.job), ""
    if code == 0 and is_finished(directory):
        try:
            seal = fingerprint(directory, at_its_end=True)
        except StorageFault as fault:
            entry.reason = str(fault)
            if entry.attempts < ATTEMPTS:  # the next try goes on from an older checkpoint, where there is one
                replace_file(directory / "status.json", as_json({**read_status(directory), "state": "interrupted"}))
    if seal:
        entry.state = "finished"
        write_record(out, entry.job, "finished", entry.attempts, seal=seal)
        if not keep_runs:
            shutil.rmtree(directory, ignore_errors=True)
            code_of(directory).unlink(missing_ok=True)
    elif code == Interrupted.exit_code and reached(out, entry.job) > entry.began:
        entry.state, entry.attempts = "waiting", entry.attempts - 1
    else:
        entry.reason = (entry.reason or _last_words(log_of(out, entry.job), entry.said, code))[:200]
        entry.state = "waiting" if entry.attempts < ATTEMPTS else "failed"
    if entry.state == "failed":
        write_record(out, entry.job, "failed", entry.attempts, reason=entry.reason)


def _last_words(log: Path, said: int, code: int) -> str:
    """Why a process ended, by its signal or by what it said in the end."""
    lines = log.read_bytes()[said:].decode(errors="replace").strip().splitlines() if log.exists() else []
    if code < 0:
        return f"killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"
    return lines[-1] if lines else f"exit code {code}"
