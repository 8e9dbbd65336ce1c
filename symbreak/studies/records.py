"""Records: what is small of a run, to be kept, and by which a run is known on whatever machine.

    DIR/records/SETTING/METHOD/seed-N/   config.json, metrics.jsonl, status.json, record.json;
                                         also grid.json where a figure is drawn from it

`record.json` comes last, and with it the record counts: it has the digest of the configuration, how the run ended, the
checksums of the files beside it, and which code made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symbreak.errors import InputError, StorageFault, SymbreakError
from symbreak.storage.files import fsync_directory, read_file, replace_file, storage_faults
from symbreak.storage.strict_json import read_json
from symbreak.studies.plans import Job, digest_of
from symbreak.training.record import MOST_METRICS, read_config, read_status
from symbreak.training.settings import RunConfig

KEPT = ("config.json", "metrics.jsonl", "status.json")
MAP = "grid.json"  # kept of a setting whose figure is drawn from it


def record_directory(out: Path, job: Job) -> Path:
    return out / "records" / job.name


def run_directory(out: Path, job: Job) -> Path:
    return out / "runs" / job.name


def recorded(out: Path, job: Job) -> str | None:
    """The state that a job's record tells, if there is a whole one of this very configuration."""
    record = record_directory(out, job)
    facts = _facts(record)
    return facts.get("state") if facts.get("digest") == job.digest and is_whole(record) else None


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
        if is_whole(record) and _facts(record).get("state") == "finished":  # a damaged one is made again
            refuse_another(record, job.config)
        refuse_another(run_directory(out, job), job.config)


def refuse_another(directory: Path, config: RunConfig) -> None:
    """Refuse a directory with a run of another configuration."""
    if (directory / "config.json").exists() and (other := read_config(directory).differences(config)):
        raise InputError(f"{directory} holds a run with {other}; choose another --out")


def made_elsewhere(out: Path, jobs: Sequence[Job]) -> dict[str, Path]:
    """Records of finished runs in the studies beside this one, by the name of the job here that needs no run."""
    lacking = [job for job in jobs if recorded(out, job) != "finished"]
    wanting = {job.digest for job in lacking}
    records: dict[str, Path] = {}  # by digest
    for path in sorted(out.parent.glob("*/records/*/*/*/record.json")):
        facts = _facts(path.parent)
        asked = facts.get("digest") in wanting and facts.get("state") == "finished" and path.parents[4] != out
        if asked and is_whole(path.parent):
            records.setdefault(str(facts.get("digest")), path.parent)
    wanted = {job.name: records[job.digest] for job in lacking if job.digest in records}
    maps = {job.name for job in jobs if job.keeps_map}
    return {name: record for name, record in wanted.items() if name not in maps or (record / MAP).exists()}


def is_whole(record: Path) -> bool:
    """Whether the files beside it are those that a record tells of, and all that one of a finished run needs."""
    facts = _facts(record)
    try:
        files, digest = checksums(record), digest_of(read_config(record))
    except SymbreakError:
        return False
    ended = facts.get("state") != "finished" or (bool(facts.get("fingerprint")) and set(KEPT) <= set(files))
    return ended and files == facts.get("files") and digest == facts.get("digest")


def take_over(out: Path, jobs: Sequence[Job]) -> int:
    """Copy the records of runs that studies beside this one have made; returns how many."""
    found = made_elsewhere(out, jobs)
    for name, source in found.items():
        target = out / "records" / name
        with storage_faults(f"copy {source} to {target}"):
            _clear(target)
            _keep(source, target, (*KEPT, MAP, "record.json"))  # with the last one the record counts
    return len(found)


def _clear(record: Path) -> None:
    """Remove a record of a former try; without the first of its files the rest counts no more."""
    for name in ("record.json", *KEPT, MAP):
        (record / name).unlink(missing_ok=True)


def _keep(source: Path, target: Path, names: Sequence[str]) -> None:
    """Copies of those files that there are, in this order, each on the disk before the next: the run is thrown away."""
    missing = [path for path in (target, *target.parents) if not path.exists()]
    target.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        fsync_directory(path.parent)
    for name in names:
        if (source / name).exists():
            replace_file(target / name, bytes(read_file(source / name, MOST_METRICS)))


def write_record(out: Path, job: Job, state: str, attempts: int, *, seal: str = "", reason: str = "") -> None:
    """Keep what is small of a run; `seal` is the fingerprint of a finished one.

    A run that failed says so itself, also when it was killed or never began.
    """
    source, target = run_directory(out, job), record_directory(out, job)
    with storage_faults(f"write the record {target}"):
        _clear(target)
        _keep(source, target, (*KEPT, MAP) if job.keeps_map else KEPT)
        facts: dict[str, Any] = {"digest": job.digest, "state": state, "attempts": attempts}
        if state == "finished":
            facts["fingerprint"] = seal
        else:
            if not (target / "config.json").exists():
                replace_file(target / "config.json", as_json(job.config.to_json()))
            status = {"step": 0, **read_status(source), "state": state, "reason": reason}
            replace_file(target / "status.json", as_json(status))
        if (code := code_of(source)).exists():
            facts["code"] = read_file(code, MOST_METRICS).decode(errors="replace").split()
        facts["files"] = checksums(target)
        replace_file(target / "record.json", as_json(facts))


def checksums(record: Path) -> dict[str, str]:
    """SHA-256 of each file that a record keeps."""
    there = [name for name in (*KEPT, MAP) if (record / name).exists()]
    return {name: hashlib.sha256(read_file(record / name, MOST_METRICS)).hexdigest() for name in there}


def code_of(run: Path) -> Path:
    """Where the processes that make a run say by which code: it need not be that of whoever started them."""
    return run.with_suffix(".code")


def note_code(run: Path, *, afresh: bool) -> None:
    """This process makes the run from here on; to be said by whoever holds its directory."""
    path = code_of(run)
    former = [] if afresh or not path.exists() else read_file(path, MOST_METRICS).decode(errors="replace").split()
    if former[-1:] != [code_digest()]:
        replace_file(path, "\n".join([*former, code_digest()]).encode())


def code_digest() -> str:
    """Of all sources of this package: runs with one digest were made by the same code."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted((*package.rglob("*.py"), *package.rglob("*.xml"))):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
