"""What a study shows: its plan, and a table while it runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from symbreak.studies.launch import Progress, made_elsewhere, recorded
from symbreak.studies.plans import STUDIES, Job

ROWS = 20  # of the live table


def print_plan(name: str, jobs: list[Job], out: Path) -> None:
    """What would be run, and a rough number of hours."""
    counts = Counter((job.setting, job.config.method) for job in jobs)
    done = {job.name for job in jobs if recorded(out, job) == "finished"} | set(made_elsewhere(out, jobs))
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


class LiveTable:
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
