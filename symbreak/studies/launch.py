"""Runs of a study, side by side, each in a process pinned to a core of its own.

    DIR/records/SETTING/METHOD/seed-N/   config.json, metrics.jsonl, status.json, record.json: small, to be kept;
                                         also grid.json where a figure is drawn from it
    DIR/runs/SETTING/METHOD/seed-N/      the run itself with checkpoints and replay, to be thrown away

A finished run is known by its record, whose digest of the configuration must be the job's; it is never made again, on
whatever machine. Where a study beside this one has made the very same run, its record is taken over: ablations share
their usual setting with the main studies. A run that fails is continued from its checkpoint twice and then recorded as
failed. A study that ends before its runs do, for whatever reason, asks them to save and stop.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symbreak.errors import InputError, StorageFault, SymbreakError
from symbreak.studies.plans import Job, digest_of
from symbreak.training.files import fsync_directory, read_file, replace_file, storage_faults
from symbreak.training.follow import following
from symbreak.training.inspection import fingerprint
from symbreak.training.record import MOST_METRICS, is_finished, read_config, read_status
from symbreak.training.settings import RunConfig
from symbreak.training.strict_json import read_json

ATTEMPTS = 3
KEPT = ("config.json", "metrics.jsonl", "status.json")
MAP = "grid.json"  # kept of a setting whose figure is drawn from it
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


def record_directory(out: Path, job: Job) -> Path:
    return out / "records" / job.name


def run_directory(out: Path, job: Job) -> Path:
    return out / "runs" / job.name


def reached(out: Path, job: Job) -> int:
    """The step that a run last told; zero before it has said anything."""
    return int(read_status(run_directory(out, job)).get("step", 0))


def recorded(out: Path, job: Job) -> str | None:
    """The state that a job's record tells, if there is one of this very configuration."""
    facts = _facts(record_directory(out, job))
    return facts.get("state") if facts.get("digest") == job.digest else None


def _facts(record: Path) -> dict[str, Any]:
    """What a record says of its run; nothing if it is not there, or not whole."""
    try:
        facts = read_json(record / "record.json")
    except (OSError, StorageFault):
        return {}
    return facts if isinstance(facts, dict) else {}


def refuse_replacing(out: Path, jobs: Sequence[Job]) -> None:
    """No run, finished or begun, is replaced or continued by one of the same name and another configuration."""
    for job in jobs:
        record = record_directory(out, job)
        if _facts(record).get("state") == "finished":
            refuse_another(record, job.config)
        refuse_another(run_directory(out, job), job.config)


def refuse_another(directory: Path, config: RunConfig) -> None:
    """Refuse a directory with a run of another configuration."""
    if (directory / "config.json").exists() and (other := read_config(directory).differences(config)):
        raise InputError(f"{directory} holds a run with {other}; choose another --out")


def made_elsewhere(out: Path, jobs: Sequence[Job]) -> dict[str, Path]:
    """Records of finished runs in the studies beside this one, by the name of the job here that needs no run."""
    records: dict[str, Path] = {}  # by digest
    for path in sorted(out.parent.glob("*/records/*/*/*/record.json")):
        facts = _facts(path.parent)
        if facts.get("state") == "finished" and path.parents[4] != out and _is_of(path.parent, facts):
            records.setdefault(str(facts.get("digest")), path.parent)
    wanted = {job.name: records[job.digest] for job in jobs if not recorded(out, job) and job.digest in records}
    maps = {job.name for job in jobs if job.keeps_map}
    return {name: record for name, record in wanted.items() if name not in maps or (record / MAP).exists()}


def _is_of(record: Path, facts: dict[str, Any]) -> bool:
    """Whether a record's digest is that of its own configuration."""
    try:
        return digest_of(read_config(record)) == facts.get("digest")
    except SymbreakError:
        return False


def take_over(out: Path, jobs: Sequence[Job]) -> int:
    """Copy the records of runs that studies beside this one have made; returns how many."""
    found = made_elsewhere(out, jobs)
    for name, source in found.items():
        target = out / "records" / name
        with storage_faults(f"copy {source} to {target}"):
            _keep(source, target, (*KEPT, MAP, "record.json"))  # with the last one the record counts
    return len(found)


def _keep(source: Path, target: Path, names: Sequence[str]) -> None:
    """Copies of those files that there are, in this order, each on the disk before the next: the run is thrown away."""
    missing = [path for path in (target, *target.parents) if not path.exists()]
    target.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        fsync_directory(path.parent)
    for name in names:
        if (source / name).exists():
            replace_file(target / name, bytes(read_file(source / name, MOST_METRICS)))


def write_record(out: Path, job: Job, state: str, attempts: int, reason: str = "") -> None:
    """Keep what is small of a run; `record.json` comes last, and with it the record counts.

    A run that failed says so itself, also when it was killed or never began.
    """
    source, target = run_directory(out, job), record_directory(out, job)
    with storage_faults(f"write the record {target}"):
        _keep(source, target, (*KEPT, MAP) if job.keeps_map else KEPT)
        facts: dict[str, Any] = {"digest": job.digest, "state": state, "attempts": attempts}
        if state == "finished":
            facts["fingerprint"] = fingerprint(source)
        else:
            if not (target / "config.json").exists():
                replace_file(target / "config.json", _json(job.config.to_json()))
            status = {"step": 0, **read_status(source), "state": state, "reason": reason}
            replace_file(target / "status.json", _json(status))
        replace_file(target / "record.json", _json(facts))


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def arguments_of(out: Path, job: Job) -> list[str]:
    """What a job's worker is told, on this machine or another that sees the directory."""
    config = out / "jobs" / f"{job.name.replace('/', '_')}.json"
    with storage_faults(f"write {config}"):
        config.parent.mkdir(parents=True, exist_ok=True)
    replace_file(config, _json(job.config.to_json()))
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
    """A process has ended: finished, to be tried again, or failed for good."""
    directory = run_directory(out, entry.job)
    if code == 0 and is_finished(directory):
        entry.state = "finished"
        write_record(out, entry.job, "finished", entry.attempts)
        if not keep_runs:
            shutil.rmtree(directory, ignore_errors=True)
    elif entry.attempts < ATTEMPTS:
        entry.state = "waiting"
    else:
        log = directory.with_suffix(".log")
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        entry.state, entry.reason = "failed", lines[-1][:200] if lines else f"exit code {code}"
        write_record(out, entry.job, "failed", entry.attempts, entry.reason)
