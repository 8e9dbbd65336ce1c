"""What a user sees of a run while it goes on: signs of life, and a time left that compiling has no part in."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from symbreak.progress import LINE, RECENT, UNKNOWN, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("symbreak.progress.time", made)
    return made


def work(progress: Progress, clock: Clock, start: int, end: int, speed: float) -> None:
    """Steps from `start` to `end`, told in pieces of half a second."""
    piece = max(1, round(speed / 2))
    for step in range(start + piece, end + 1, piece):
        clock.now += piece / speed
        progress.tick(step)


def lines(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_log_shows_life_about_every_minute(clock, capsys):
    with Progress(20_000, "partial on hopper") as progress:
        clock.now += 20  # of compiling
        progress.tick(1)
        work(progress, clock, 1, 3_001, speed=10)  # five minutes
        told = lines(capsys)
        assert told[0] == "partial on hopper: 20000 steps"
        assert len(told) == 1 + 320 // LINE
        assert told[1] == "step 401/20000  10/s  0:32:40 left"
        progress.update({"step": 3_001, "eval/return": 1.5, "steps_per_second": 7.0})
        assert lines(capsys) == ["step 3001/20000  10/s  0:28:20 left  return 1.50"]
        work(progress, clock, 3_001, 3_001 + 10 * (round(LINE) - 1), speed=10)
        assert lines(capsys) == []  # the row was a sign of life too
    with Progress(20_000, "partial on hopper", quiet=True) as progress:
        work(progress, clock, 0, 3_000, speed=10)
        progress.update({"step": 3_000, "eval/return": 1.5})
    assert lines(capsys) == []


@pytest.fixture
def bar(monkeypatch, clock):
    """A bar on a terminal that learns from step 100 on, and what it shows: step, time left, speed and numbers."""
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True, write=io.StringIO().write))
    progress = Progress(1_100, "partial on hopper", learns_at=100)

    def shown() -> tuple[float, str, str]:
        assert progress._bar is not None
        (task,) = progress._bar.tasks
        return task.completed, task.fields["left"], task.fields["numbers"].strip()

    return progress, shown


def test_a_bar_moves_with_the_steps_and_compiles_until_it_learns(bar, clock):
    progress, shown = bar
    assert shown() == (0, UNKNOWN, "compiling…")
    clock.now += 5
    progress.tick(1)
    assert shown() == (1, UNKNOWN, "random steps")
    work(progress, clock, 1, 99, speed=1_000)
    progress.tick(99)
    assert shown() == (99, UNKNOWN, "compiling…")
    clock.now += 60
    progress.tick(100)
    assert shown() == (100, UNKNOWN, "")
    work(progress, clock, 100, 150, speed=10)
    assert shown() == (150, "0:01:35", "10/s")  # neither compiling nor the faster random steps


def test_the_time_left_follows_recent_steps_and_not_evaluations(bar, clock):
    progress, shown = bar
    progress.tick(100)
    work(progress, clock, 100, 200, speed=100)
    clock.now += 50
    progress.update({"step": 200, "eval/return": -2.0})
    assert shown() == (200, "0:00:09", "100/s return -2.00")
    work(progress, clock, 200, 300, speed=100)
    assert shown() == (300, "0:00:08", "100/s return -2.00")
    work(progress, clock, 300, 300 + 10 * round(RECENT + 2), speed=10)
    assert shown() == (620, "0:00:48", "10/s return -2.00")


def test_a_run_that_never_learns_is_not_waited_for(clock, capsys):
    with Progress(1_000, "vanilla on hopper", learns_at=5_000) as progress:
        progress.tick(1)
        work(progress, clock, 1, 1_000, speed=10)
    assert "10/s" in lines(capsys)[-1]
