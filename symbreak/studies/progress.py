"""What a study shows: its plan, and a table while it runs."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from symbreak.studies.launch import Progress
from symbreak.studies.plans import STUDIES, Job
from symbreak.studies.records import made_elsewhere, recorded

ROWS = 20  # of the live table
RECENT = 600.0  # seconds over which the speed of a run is measured, evaluations included
LINE = 300.0  # seconds between two lines about a run, where there is no terminal


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


class TimeLeft:
    """Seconds until runs end, by the speed of their last minutes; by the plan's estimate as long as that is unknown."""

    def __init__(self) -> None:
        self._moved: dict[tuple[str, int], deque[tuple[float, int]]] = {}  # when each try got to which step
        self._most = 0  # runs seen moving at once: tasks of a cluster may wait for a core

    def look(self, table: list[Progress], now: float) -> None:
        """Take note of how far runs are; to be called often."""
        for entry in table:
            if entry.state == "running":
                moved = self._moved.setdefault((entry.job.name, entry.attempts), deque([(now, entry.step)]))
                if entry.step < moved[-1][1]:  # it went back to a checkpoint
                    moved.clear()
                if len(moved) == 1 and entry.step == moved[0][1] + 1:  # the first step is mostly compiling
                    moved.clear()
                if not moved or entry.step > moved[-1][1]:
                    moved.append((now, entry.step))
                while len(moved) > 2 and moved[1][0] < now - RECENT:
                    moved.popleft()

    def of(self, entry: Progress, now: float) -> float | None:
        """Of a run whose speed is known."""
        pace = self._pace(entry)
        if pace is None:
            return None
        until, step = self._moved[entry.job.name, entry.attempts][-1]
        return max(0.0, pace * (_steps(entry) - step) - (now - until))

    def of_all(self, table: list[Progress], now: float) -> tuple[float, float]:
        """Of the whole study: on one core, and on as many as have been seen at work.

        Where nothing is measured yet the plan's estimate counts, corrected by how wrong it is about the others.
        """
        paces = [(pace, entry) for entry in table if (pace := self._pace(entry)) is not None]
        measured = sum(pace * _steps(entry) for pace, entry in paces)
        correction = measured / sum(3600 * entry.job.hours for _, entry in paces) if paces else 1.0

        def estimate(entry: Progress) -> float:
            return 3600 * entry.job.hours * correction * (1 - entry.step / _steps(entry))

        waiting = sum(estimate(entry) for entry in table if entry.state == "waiting")
        running = [
            estimate(entry) if (left := self.of(entry, now)) is None else left
            for entry in table
            if entry.state == "running"
        ]
        total = waiting + sum(running)
        self._most = max(self._most, len(paces))
        cores = min(len(running), self._most or len(running))
        return total, max([total / max(1, cores), *running])

    def _pace(self, entry: Progress) -> float | None:
        """Seconds per step of a run that goes on, once it has moved."""
        moved = self._moved.get((entry.job.name, entry.attempts), ())
        if entry.state != "running" or len(moved) < 2:
            return None
        (began, first), (until, last) = moved[0], moved[-1]
        return (until - began) / (last - first)


class LiveTable:
    """A live table in a terminal; elsewhere a line per change, and now and then one per run that goes on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live: Live | None = None
        self._seen: dict[str, tuple[str, int]] = {}
        self._left = TimeLeft()
        self._printed = time.monotonic()

    def __enter__(self) -> Callable[[list[Progress]], None]:
        if sys.stdout.isatty():
            self._live = Live(refresh_per_second=2)
            self._live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _show(self, table: list[Progress]) -> None:
        now = time.monotonic()
        self._left.look(table, now)
        if self._live is not None:
            self._live.update(self._drawn(table, now))
            return
        for entry in table:
            now_at = (entry.state, entry.attempts if entry.state == "running" else 0)
            if self._seen.get(entry.job.name, ("waiting", 0)) != now_at:
                again = (
                    f", try {entry.attempts} after {entry.former}" if entry.state == "running" and entry.former else ""
                )
                print(f"{entry.state}: {entry.job.name}{again}", flush=True)
                self._seen[entry.job.name] = now_at
        if now > self._printed + LINE:
            self._printed = now
            for entry in table:
                if (left := self._left.of(entry, now)) is not None:
                    print(f"running: {entry.job.name}: step {_step(entry)}, {_clock(left)} left", flush=True)

    def _drawn(self, table: list[Progress], now: float) -> Table:
        counts = Counter(entry.state for entry in table)
        facts = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        total, wait = self._left.of_all(table, now)
        drawn = Table(title=f"{self._name}: {facts}; about {_clock(wait)} left, {total / 3600:.1f} core-hours")
        for column in ("run", "state", "step", "left", "try"):
            drawn.add_column(column)
        order = {"running": 0, "failed": 1, "waiting": 2, "finished": 3}
        for entry in sorted(table, key=lambda each: order[each.state])[:ROWS]:
            left = self._left.of(entry, now)
            told = "" if left is None else _clock(left)
            drawn.add_row(entry.job.name, entry.state, _step(entry), told, str(entry.attempts))
        return drawn


def _steps(entry: Progress) -> int:
    return entry.job.config.steps or 1


def _step(entry: Progress) -> str:
    return f"{entry.step:,} / {_steps(entry):,}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
