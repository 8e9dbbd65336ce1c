"""How far a run is: step, speed, time left, return and gate rate; a bar, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections import deque
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

PICTURES = 4  # of the bar per second
LINE = 60.0  # seconds between two plain lines, where no evaluation comes in between
RECENT = 30.0  # seconds over which the speed is measured
UNKNOWN = "-:--:--"  # time left
APART = 0.25  # seconds between two measurements at least
TOLD = {"eval/return": "return", "eval/success": "success", "gate/mean": "gate", "gate/auroc_minority": "AUROC"}


class Progress:
    """Shows the steps of a run as they are made, and each evaluation as it comes."""

    def __init__(self, steps: int, title: str, quiet: bool = False, *, done: int = 0, learns_at: int = 0) -> None:
        self._steps, self._title, self._quiet, self._done = steps, title, quiet, done
        self._learns_at = learns_at if learns_at <= steps else 0  # a run that never learns is not waited for
        self._pace: Pace | None = None  # from the first steps that learned on: what came before was compiled, or random
        self._told: dict[str, str] = {}
        self._numbers = ""  # of the last evaluation
        self._printed = time.perf_counter()
        self._bar: Bar | None = None
        if not quiet and sys.stdout.isatty():
            self._bar = Bar(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("[cyan]{task.fields[left]}"),
                TextColumn("{task.fields[numbers]}"),
                console=Console(),
                refresh_per_second=PICTURES,
            )
            self._task = self._bar.add_task(title, total=steps, completed=done, left=UNKNOWN, numbers="compiling…")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        elif not self._quiet:
            rest = f", from step {self._done}" if self._done else ""
            print(f"{self._title}: {self._steps} steps{rest}", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tick(self, step: int) -> None:
        """Take the number of steps made; called often, after every few of them."""
        if self._quiet:
            return
        now = time.perf_counter()
        if self._pace is not None:
            self._pace.measure(now, step)
        elif step >= self._learns_at:
            self._pace = Pace(now, step)
        if self._bar is not None or now >= self._printed + LINE:
            self._show(now, step)

    def update(self, row: dict[str, float]) -> None:
        """Take the metrics of an evaluation, or of a log in between, which tells less."""
        self._told |= {short: f"{short} {row[name]:.2f}" for name, short in TOLD.items() if name in row}
        self._numbers = " ".join(self._told.values())
        if self._quiet:
            return
        now = time.perf_counter()
        self._show(now, int(row["step"]))
        if self._pace is not None:
            self._pace.go_on(now)  # evaluations are no steps, and the first one compiles

    def _show(self, now: float, step: int) -> None:
        speed = None if self._pace is None else self._pace.speed
        left = "" if speed is None else str(timedelta(seconds=round((self._steps - step) / speed)))
        if self._pace is None:  # the step that learns first is compiled before it is made
            said = "compiling…" if step == self._learns_at - 1 else "random steps" if step < self._learns_at else ""
        else:
            said = "" if speed is None else f"{speed:.0f}/s" if speed >= 10 else f"{speed:.1f}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, left=left or UNKNOWN, numbers=f"{said} {self._numbers}")
        else:
            parts = (f"step {step}/{self._steps}", said, left and f"{left} left", self._numbers)
            print("  ".join(part for part in parts if part), flush=True)
            self._printed = now


class Pace:
    """Steps per second of the last while, from a first moment on; pauses do not count."""

    def __init__(self, now: float, step: int) -> None:
        self.speed: float | None = None
        self._looked = now
        self._worked = 0.0  # seconds
        self._seen = deque([(0.0, step)])  # of those seconds, and the step that was reached

    def go_on(self, now: float) -> None:
        """After a pause."""
        self._looked = now

    def measure(self, now: float, step: int) -> None:
        self._worked, self._looked = self._worked + now - self._looked, now
        while len(self._seen) > 1 and self._seen[1][0] < self._worked - RECENT:
            self._seen.popleft()
        began, first = self._seen[0]
        if self._worked > began and step > first:
            self.speed = (step - first) / (self._worked - began)
        if self._worked > self._seen[-1][0] + APART:
            self._seen.append((self._worked, step))
