"""`symbreak study`: plan, run, and say what became of it."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from symbreak.errors import InputError, StorageFault
from symbreak.studies.launch import Progress, recorded, run_local
from symbreak.studies.plans import STUDIES, Job, plan
from symbreak.studies.report_runs import find_runs, group_runs
from symbreak.studies.report_tables import summarise

ROWS = 20  # of the live table


def study(
    name: str,
    out: Path | None = None,
    *,
    seeds: int | None = None,
    steps: int | None = None,
    methods: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    workers: int | None = None,
    ray: str | None = None,
    dry_run: bool = False,
    keep_runs: bool = False,
) -> int:
    """Make every run of a study that has no record yet. The same command again goes on where it stopped."""
    jobs = plan(name, seeds=seeds, steps=steps, methods=methods, settings=settings)
    out = Path("results") / name if out is None else out
    if dry_run:
        print_plan(name, jobs, out)
        return 0
    if ray is not None:
        from symbreak.studies.cluster import run_on_ray

        table = run_on_ray(jobs, out, address=ray, keep_runs=keep_runs)
    else:
        with _watched(name) as show:
            table = run_local(jobs, out, workers=workers, show=show, keep_runs=keep_runs)
    write_summary(out)
    failed = [entry for entry in table if entry.state == "failed"]
    for entry in failed:
        print(f"failed: {entry.job.name}: {entry.reason}", file=sys.stderr)
    print(f"{name}: {len(table) - len(failed)} of {len(table)} runs finished; records in {out / 'records'}")
    return 1 if failed else 0


def print_plan(name: str, jobs: list[Job], out: Path) -> None:
    """What would be run, and a rough number of hours."""
    counts = Counter((job.setting, job.config.method) for job in jobs)
    done = {job.name for job in jobs if recorded(out, job) == "finished"}
    table = Table(title=f"{name}: {STUDIES[name].description}")
    for column in ("setting", "method", "steps", "seeds", "done", "core-hours"):
        table.add_column(column, justify="left" if column in ("setting", "method") else "right")
    for (setting, method), seeds in counts.items():
        mine = [job for job in jobs if (job.setting, job.config.method) == (setting, method)]
        finished = sum(job.name in done for job in mine)
        hours = sum(job.hours for job in mine if job.name not in done)
        table.add_row(setting, method, f"{mine[0].config.steps:,}", str(seeds), str(finished), f"{hours:.1f}")
    Console().print(table)
    left = sum(job.hours for job in jobs if job.name not in done)
    print(f"{len(jobs)} runs, {len(done)} of them finished; about {left:.1f} core-hours left")


def write_summary(out: Path) -> Path:
    """DIR/summary.json: setting → method → final and area under the curve with their intervals, and seeds."""
    target = out / "summary.json"
    groups = group_runs(find_runs([out / "records"])) if (out / "records").is_dir() else []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(summarise(groups), indent=1, sort_keys=True) + "\n")
    except OSError as problem:
        raise StorageFault(f"cannot write {target}: {problem.strerror}; choose another --out") from problem
    return target


def verify_records(out: Path, jobs: list[Job]) -> None:
    """Every planned run has a record of this very configuration, and the summary follows from the raw logs."""
    missing = [job.name for job in jobs if recorded(out, job) is None]
    if missing:
        shown = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise InputError(f"{out} lacks {len(missing)} of {len(jobs)} runs ({shown}); run the study again to make them")
    claimed = (out / "summary.json").read_text()
    found = json.dumps(summarise(group_runs(find_runs([out / "records"]))), indent=1, sort_keys=True) + "\n"
    if claimed != found:
        raise InputError(f"{out / 'summary.json'} does not follow from the records; write it again with the study")


class _watched:  # noqa: N801  a context, used as one
    """A live table in a terminal; a line per change elsewhere."""

    def __init__(self, name: str) -> None:
        self._name, self._started = name, time.perf_counter()
        self._live: Live | None = None
        self._seen: dict[str, str] = {}

    def __enter__(self) -> Callable[[list[Progress]], None]:
        if sys.stdout.isatty():
            self._live = Live(refresh_per_second=2)
            self._live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _show(self, table: list[Progress]) -> None:
        if self._live is not None:
            self._live.update(self._drawn(table))
            return
        for entry in table:
            if self._seen.get(entry.job.name, "waiting") != entry.state:
                print(f"{entry.state}: {entry.job.name}", flush=True)
                self._seen[entry.job.name] = entry.state

    def _drawn(self, table: list[Progress]) -> Table:
        counts = Counter(entry.state for entry in table)
        left = sum(entry.job.hours for entry in table if entry.state in ("waiting", "running"))
        facts = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        drawn = Table(title=f"{self._name}: {facts}; about {left:.1f} core-hours left")
        for column in ("run", "state", "step", "try"):
            drawn.add_column(column)
        order = {"running": 0, "failed": 1, "waiting": 2, "finished": 3}
        for entry in sorted(table, key=lambda each: order[each.state])[:ROWS]:
            total = entry.job.config.steps or 0
            drawn.add_row(entry.job.name, entry.state, f"{entry.step:,} / {total:,}", str(entry.attempts))
        return drawn
