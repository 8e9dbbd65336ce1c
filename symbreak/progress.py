"""A progress line: step, speed, time left, return and gate rate; plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows each evaluation of a run as it comes."""

    def __init__(self, steps: int, title: str, quiet: bool = False, *, done: int = 0) -> None:
        self._steps, self._title, self._quiet, self._done = steps, title, quiet, done
        self._started = time.perf_counter()
        self._bar: Bar | None = None
        if not quiet and sys.stdout.isatty():
            self._bar = Bar(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
                console=Console(),
            )
            self._task = self._bar.add_task(title, total=steps, completed=done, numbers="compiling…")

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

    def update(self, row: dict[str, float]) -> None:
        """Take an evaluation's metrics."""
        names = {
            "eval/return": "return",
            "eval/success": "success",
            "gate/mean": "gate",
            "gate/auroc_minority": "AUROC",
        }
        numbers = " ".join(f"{short} {row[name]:.2f}" for name, short in names.items() if name in row)
        speed = f"{row.get('steps_per_second', 0):.0f}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=int(row["step"]), numbers=f"{speed} {numbers}")
        elif not self._quiet:
            elapsed = time.perf_counter() - self._started
            left = elapsed * (self._steps - row["step"]) / max(1, row["step"] - self._done)
            print(f"step {int(row['step'])}/{self._steps}  {speed}  {left:.0f} s left  {numbers}", flush=True)
