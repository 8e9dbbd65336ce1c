"""The table of faults: what may happen to a run, and what then must come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import damage
import disks
import inputs
import kills
import long_runs
import numbers_and_worlds
import processes
from counting import Outcome, Tier

Check = Callable[[Tier, Path], Outcome]


@dataclass(frozen=True)
class Row:
    fault: str
    check: Check
    least: int  # cases in the full tier


ROWS: dict[str, Row] = {
    **{
        f"kill-{name}": Row(f"SIGKILL, then resume, on {name}", partial(kills.killed_and_resumed, name=name), 20)
        for name in kills.CASES
    },
    "save": Row("SIGKILL at each point of a save", kills.killed_while_saving, 40),
    "damage": Row("bit flip, truncation, zeros, missing file", damage.damaged, 200),
    "disk": Row("disk full, read-only or vanished", disks.failing_disks, 1),
    "signals": Row("SIGINT or SIGTERM", processes.signals, 20),
    "non-finite": Row("NaN or infinity from the environment", numbers_and_worlds.non_finite, 120),
    "divergence": Row("losses or parameters diverge", numbers_and_worlds.diverging, 20),
    "environments": Row("environments that misbehave", numbers_and_worlds.faulty_environments, 20),
    "misfits": Row("a symmetry that does not fit", inputs.misfits, 30),
    "representations": Row("matrices that are no representation", inputs.representations, 1_000),
    "audit": Row("a representation that is no symmetry", inputs.audited, 4),
    "workers": Row("workers of a study are killed", processes.workers, 24),
    "directory": Row("two runs on one directory", disks.one_directory, 50),
    "hostile": Row("hostile files, other versions", damage.hostile, 30),
    "settings": Row("bad settings", inputs.bad_settings, 60),
    "replay": Row("replay of any size against a list", long_runs.replay, 1_000),
    "frequencies": Row("evaluating, saving, logging at any rate", long_runs.frequencies, 8),
    "flat": Row("memory, files and programs stay flat", long_runs.flat, 6),
    "cost": Row("what saving costs, on Ant", long_runs.cost, 3),
}


def judge(name: str, tier: Tier, scratch: Path) -> Outcome:
    """A row's outcome; too few cases in the full tier are a fault of the row itself."""
    outcome = ROWS[name].check(tier, scratch)
    if tier == "full" and outcome.of < ROWS[name].least:
        wrong = f"only {outcome.of} cases where {ROWS[name].least} were promised"
        return Outcome(outcome.good, outcome.of, (*outcome.wrong, wrong), outcome.note)
    return outcome
