"""What a row of the table of faults came to, and how large a tier is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from symbreak.errors import SymbreakError

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
Tier = Literal["small", "full"]


@dataclass(frozen=True)
class Outcome:
    """How many came out as they must, of how many; what went wrong, and what else should be said."""

    good: int
    of: int
    wrong: tuple[str, ...] = ()
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.good == self.of > 0 and not self.wrong


def count(problems: Iterable[str | None], note: str = "") -> Outcome:
    """One entry per case: none where it came out as it must."""
    found = list(problems)
    wrong = tuple(problem for problem in found if problem is not None)
    return Outcome(len(found) - len(wrong), len(found), wrong, note)


def together(outcomes: Sequence[Outcome], note: str = "") -> Outcome:
    wrong = tuple(problem for outcome in outcomes for problem in outcome.wrong)
    notes = "; ".join(filter(None, (*(outcome.note for outcome in outcomes), note)))
    return Outcome(sum(o.good for o in outcomes), sum(o.of for o in outcomes), wrong, notes)


def require(condition: object, problem: str) -> None:
    """Like an assertion, but never switched off."""
    if not condition:
        raise AssertionError(problem)


def problem_of(check: Callable[[], object], what: str) -> str | None:
    """What went wrong in one case, in one line; none if nothing did."""
    try:
        check()
    except (Exception, pytest.fail.Exception) as problem:
        return f"{what}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
    return None


def fails(act: Callable[[], object], kind: type[SymbreakError]) -> str:
    """What is said when it fails, as it must, in one line."""
    try:
        act()
    except kind as problem:
        require("\n" not in str(problem), "more than one line")
        return str(problem)
    raise AssertionError(f"no {kind.__name__}")


def python(*arguments: str, seconds: float = 900.0) -> subprocess.CompletedProcess[str]:
    """A process of its own with this checkout's package, to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        timeout=seconds,
        check=False,
    )


def symbreak(*arguments: str | Path, seconds: float = 900.0) -> subprocess.CompletedProcess[str]:
    return python("-m", "symbreak", *map(str, arguments), seconds=seconds)


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    lines = (result.stderr or result.stdout or "").strip().splitlines()
    return lines[-1][:200] if lines else "nothing said"
