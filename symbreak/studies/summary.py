"""What a set of studies has found, in one file, and whether it follows from the logs.

RESULTS/summary.json         study → setting → method → final, auc (each iqm, low, high, mean) and seeds
RESULTS/STUDY/plan.json      the runs that were asked for: name → digest of the configuration
RESULTS/STUDY/records/       what they left, see `records.py`
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from symbreak.errors import InputError, StorageFault, SymbreakError
from symbreak.storage.files import alone_in, replace_file
from symbreak.studies.plans import Job, digest_of
from symbreak.studies.records import checksums, is_whole
from symbreak.studies.report_runs import RETURN, Run, find_runs, group_runs, holders_of, read_json
from symbreak.studies.report_tables import summarise
from symbreak.training.record import read_config


def add_to_plan(study: Path, jobs: Sequence[Job]) -> None:
    """These runs are asked for too; a run of that name with another configuration is replaced."""
    with alone_in(study):
        _write(study / "plan.json", _plan_of(study) | {job.name: job.digest for job in jobs})


def _plan_of(study: Path) -> dict[str, str]:
    plan = read_json(study / "plan.json") if (study / "plan.json").exists() else {}
    if not isinstance(plan, dict):
        raise StorageFault(f"{study / 'plan.json'} is no plan; delete it and start the study again")
    return plan


def write_summary(results: Path) -> Path:
    """Sum up every study in the directory."""
    require_summary(results)
    with alone_in(results):
        return _write(results / "summary.json", summary_of(results))


def require_summary(results: Path) -> None:
    """Refuse a directory in which another file than a summary has its name."""
    path = results / "summary.json"
    known = read_json(path) if path.exists() else {}
    if not isinstance(known, dict) or not all(isinstance(study, dict) for study in known.values()):
        raise InputError(f"{path} is no summary of studies, and one would be written over it; choose another --out")


def summary_of(directory: Path) -> dict[str, Any]:
    """Study → setting → method → figures, from the raw logs, of a study or of all in a directory."""
    return {study.name: summarise(group_runs(_whole_runs_of(study))) for study in _studies_in(directory)}


def _studies_in(directory: Path) -> list[Path]:
    """The directory itself if it is a study, else every study in it: what has a plan."""
    if (directory / "plan.json").exists():
        return [directory]
    return sorted(path.parent for path in directory.glob("*/plan.json"))


def _whole_runs_of(study: Path) -> list[Run]:
    """Runs count by whole records alone, here as for whoever makes the runs."""
    records = study / "records"
    return [run for run in find_runs([records] if records.is_dir() else []) if is_whole(run.directory)]


def _write(path: Path, content: Any) -> Path:
    replace_file(path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
    return path


def _require_alike(study: Path, plan: dict[str, str]) -> None:
    """Seeds of one method on one setting that are summed up together differ in nothing else."""
    first: dict[Path, Path] = {}
    for record in sorted(study / "records" / name for name in plan):
        other = first.setdefault(record.parent, record)
        mine, theirs = (replace(read_config(path), seed=0) for path in (record, other))
        if difference := mine.differences(theirs):
            raise InputError(f"{record} was made with {difference} as in {other.name}; make one of them again")


def verify(directory: Path) -> int:
    """Check a study, or a directory of studies: every run that was asked for is there, finished or counted as failed,
    and belongs to the configuration it claims; every figure of the summary follows from the raw logs. Returns how many
    runs there are.
    """
    directory = directory.resolve()
    studies = _studies_in(directory)
    if not studies:
        raise InputError(f"{directory} holds no study; give a directory that `symbreak study` wrote")
    for records in directory.glob("*/records"):
        if records.is_dir() and not (records.parent / "plan.json").exists():
            raise InputError(f"{records.parent} has records and no plan.json; run the study again, or delete it")
    runs, asked = 0, set[Path]()
    for study in studies:
        plan = _plan_of(study)
        missing = [name for name, digest in plan.items() if not _is_there(study / "records" / name, digest)]
        if missing:
            shown = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
            raise InputError(f"{study} lacks {len(missing)} of {len(plan)} runs ({shown}); run the study again")
        _require_whole(study, plan)
        _require_alike(study, plan)
        runs, asked = runs + len(plan), asked | {study / "records" / name for name in plan}
    if strange := sorted({run.directory for run in find_runs([directory])} - asked):
        raise InputError(f"{strange[0]} is no run of a study, and a report would count it; move it elsewhere")
    one = studies == [directory]
    results = directory.parent if one else directory
    claimed, found = read_json(results / "summary.json"), summary_of(directory)
    for name in sorted(found if one or not isinstance(claimed, dict) else {*found, *claimed}):
        if not isinstance(claimed, dict) or claimed.get(name) != found.get(name):
            raise InputError(
                f"{results / 'summary.json'} does not follow from the records of {name}; "
                "`symbreak study` writes it anew, also where no run is missing"
            )
    return runs


def _require_whole(study: Path, plan: dict[str, str]) -> None:
    """Nothing counts that was not asked for, and a record's files agree on how its run ended."""
    there = {*holders_of("config.json", study / "records"), *holders_of("record.json", study)}
    if strange := sorted(there - {study / "records" / name for name in plan}):
        raise InputError(f"{strange[0]} was not asked for; run the study so, or delete it")
    for run in find_runs([study / "records"] if plan else []):
        facts = read_json(run.directory / "record.json")
        if facts.get("state") != run.state or not run.settled:
            raise InputError(f"{run.directory} is {facts.get('state')} by its record, {run.state} by itself")
        steps = run.config.get("steps")
        last = run.rows[-1] if run.rows else {}
        if run.state == "finished" and steps is not None and (last.get("step") != steps or RETURN not in last):
            raise InputError(f"{run.directory} is finished without a return of its last step; make it again")
        if run.state == "finished" and not facts.get("fingerprint"):
            raise InputError(f"{run.directory} is finished without a fingerprint; make it again")
        now, then = checksums(run.directory), facts.get("files")
        if now != then:
            changed = sorted({*now.items()} ^ {*then.items()})[0][0] if isinstance(then, dict) else "record.json"
            raise InputError(f"{run.directory / changed} is not what it was when the run was recorded; restore it")


def _is_there(record: Path, digest: str) -> bool:
    try:
        facts, config = read_json(record / "record.json"), read_config(record)
    except SymbreakError:
        return False
    return isinstance(facts, dict) and facts.get("digest") == digest == digest_of(config)
