"""The runs that a comparison is made of: read from their directories, sorted into settings and methods.

A *setting* is a task with a symmetry, a *group* is every run of one method in one setting; its runs differ by seed. A
run that failed counts with the lowest value seen in its setting (or a configured floor) wherever it has no value of its
own, so that crashing never pays. A run that is still going, or was interrupted, has no final score yet: it is drawn as
far as it came and counted beside the tables.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from symbreak.agents.dqn import DQNConfig
from symbreak.agents.sac import SACConfig
from symbreak.errors import InputError, StorageFault
from symbreak.storage.files import read_file
from symbreak.storage.strict_json import MOST_JSON
from symbreak.studies.statistics import area_under_curve
from symbreak.training.record import MOST_METRICS

RETURN, SUCCESS = "eval/return", "eval/success"
SETTLED = ("finished", "failed")
AGENTS = {entry.name for config in (DQNConfig, SACConfig) for entry in fields(config)}  # settings by name
METHOD_ORDER = ("partial", "vanilla", "augmented", "exact", "rpp", "approximate", "oracle-minority", "oracle-strict")


@dataclass(frozen=True, eq=False)
class Run:
    """One run directory."""

    name: str  # its path below the parent that all runs share
    directory: Path
    config: dict[str, Any]
    status: dict[str, Any]
    rows: list[dict[str, float]]  # one per evaluation, finite numbers only, steps increasing

    @property
    def state(self) -> str:
        return str(self.status.get("state", "unknown"))

    @property
    def settled(self) -> bool:
        return self.state in SETTLED

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    @property
    def metrics(self) -> set[str]:
        return {name for row in self.rows for name in row if name != "step"}

    def curve(self, metric: str) -> tuple[list[float], list[float]]:
        rows = [row for row in self.rows if metric in row]
        return [row["step"] for row in rows], [row[metric] for row in rows]


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one method in one setting, on one time axis."""

    setting: str
    label: str
    runs: tuple[Run, ...]
    steps: Float[np.ndarray, " points"]
    floors: dict[str, float] = field(default_factory=dict)

    @cached_property
    def settled(self) -> Group:
        """The group without its unfinished runs."""
        runs = tuple(run for run in self.runs if run.settled)
        return Group(self.setting, self.label, runs, self.steps, self.floors)

    def count(self, state: str) -> int:
        return sum(run.state == state for run in self.runs)

    @property
    def inexact(self) -> int:
        """Runs that are not bit for bit what they would have been without a stop."""
        return sum(run.status.get("exact") is False for run in self.runs)

    @property
    def unfinished(self) -> int:
        return sum(not run.settled for run in self.runs)

    def curves(self, metric: str) -> Float[np.ndarray, "runs points"]:
        """Values at the common steps. Where a failed run has none stands the floor, elsewhere NaN."""
        return np.array([self._curve(run, metric) for run in self.runs]).reshape(len(self.runs), len(self.steps))

    def _curve(self, run: Run, metric: str) -> np.ndarray:
        floor = self.floors.get(metric, math.nan) if run.state == "failed" else math.nan
        known, values = run.curve(metric)
        if not known:
            return np.full(len(self.steps), floor)
        inner = np.interp(self.steps, known, values, left=math.nan)
        return np.where(self.steps > known[-1], floor, inner)

    def final(self, metric: str = RETURN) -> Float[np.ndarray, " runs"]:
        """The last value of every settled run; empty where the metric was never recorded."""
        last = self.settled.curves(metric)[:, -1:]
        return last[np.isfinite(last)]

    def areas(self, metric: str = RETURN) -> Float[np.ndarray, " runs"]:
        curves = self.settled.curves(metric)
        known = [np.isfinite(curve) for curve in curves]
        areas = [
            area_under_curve(self.steps[at], curve[at]) for curve, at in zip(curves, known, strict=True) if at.any()
        ]
        return np.array(areas, float)


def find_runs(directories: Sequence[Path]) -> list[Run]:
    """Every run in or below the directories, once, in the order of their names; those in the making do not count."""
    found: set[Path] = set()
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise InputError(f"{directory} is no directory; give run or study directories")
        configs = (path.resolve() for path in holders_of("config.json", directory))
        found |= {path for path in configs if not _is_in_the_making(path, directory.resolve())}
    if not found:
        return []
    parent = os.path.commonpath([path.parent for path in found])
    named = [(path.relative_to(parent).as_posix(), path) for path in found]
    runs = [_read_run(name, path) for name, path in sorted(named, key=lambda pair: natural(pair[0]))]
    return _once(run for run in runs if isinstance(run.config.get("task"), str))


def holders_of(name: str, directory: Path) -> Iterator[Path]:
    """Directories with such a file, here and below, also while others come and go; not inside of what a run saves."""
    for place, below, files in os.walk(directory):
        if "config.json" in files:
            below[:] = [inner for inner in below if inner not in ("checkpoints", "replay")]
        if name in files:
            yield Path(place)


def _once(runs: Iterable[Run]) -> list[Run]:
    """A run whose record stands in several studies, since they share it, is one run and no further seed."""
    kept: dict[object, Run] = {}
    for run in runs:
        facts = run.directory / "record.json"
        known = read_json(facts) if facts.exists() else None
        same = [known.get(name) for name in ("digest", "fingerprint")] if isinstance(known, dict) else [None]
        kept.setdefault(tuple(map(str, same)) if all(same) else run.directory, run)
    return list(kept.values())


def _is_in_the_making(run: Path, asked: Path) -> bool:
    """One of STUDY/runs/SETTING/METHOD/seed-N, where the whole study was asked for: what counts are its records."""
    if len(run.parents) < 4 or run.parents[2].name != "runs":
        return False
    study = run.parents[3]
    return (study / "plan.json").exists() and study.is_relative_to(asked)


def group_runs(runs: Iterable[Run], floors: Mapping[str, float] | None = None) -> list[Group]:
    """Runs by setting and method, in reading order. `floors` gives the return of a crash per setting or task."""
    settings: dict[str, list[Run]] = {}
    runs = list(runs)
    for run in runs:
        settings.setdefault(_setting(run, runs), []).append(run)
    groups = []
    for setting in sorted(settings, key=natural):
        members = settings[setting]
        given = {**(floors or {})}
        seen = {metric: [value for run in members for value in run.curve(metric)[1]] for metric in (RETURN, SUCCESS)}
        lowest = {metric: min(values) for metric, values in seen.items() if values}
        for name in (members[0].config["task"], setting):
            if name in given:
                lowest[RETURN] = float(given[name])
        if SUCCESS in lowest:
            lowest[SUCCESS] = 0.0
        labels: dict[str, list[Run]] = {}
        for run in members:
            labels.setdefault(_label(run, members), []).append(run)
        for label in sorted(labels, key=method_place):
            steps = _common_steps(labels[label], members)
            groups.append(Group(setting, label, tuple(labels[label]), steps, lowest))
    return groups


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sorts numbers in names by their size: grid-5 before grid-20."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", text)]


def read_json(path: Path) -> Any:
    try:
        return json.loads(bytes(read_file(path, MOST_JSON)))
    except OSError as problem:
        raise StorageFault(f"cannot read {path}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise StorageFault(f"{path} is no JSON ({problem}); restore or delete this run") from problem


def _read_run(name: str, directory: Path) -> Run:
    config = read_json(directory / "config.json")
    status = read_json(directory / "status.json") if (directory / "status.json").exists() else {}
    if not isinstance(config, dict) or not isinstance(status, dict):
        raise StorageFault(f"{directory} has a config.json or status.json that is no JSON object; restore it")
    rows = _read_rows(directory / "metrics.jsonl") if (directory / "metrics.jsonl").exists() else []
    return Run(name, directory, config, status, rows)


def _read_rows(path: Path) -> list[dict[str, float]]:
    lines = read_file(path, MOST_METRICS).decode("utf-8", errors="replace").splitlines()
    by_step: dict[float, dict[str, float]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            step = row["step"]
            if not _is_number(step):
                raise TypeError(f"step {step!r}")
        except (ValueError, TypeError, KeyError, RecursionError) as problem:
            if number == len(lines):
                break  # a run that was killed, or still writes, may leave half a line
            raise StorageFault(f"{path} line {number} is no evaluation; restore it or delete the run") from problem
        by_step[float(step)] = {key: float(value) for key, value in row.items() if _is_number(value)}
    return [by_step[step] for step in sorted(by_step)]


def _is_number(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 1 << 63
    return isinstance(value, float) and math.isfinite(value)


def _setting(run: Run, runs: list[Run]) -> str:
    task, symmetry = run.config["task"], run.config.get("symmetry")
    several = len({str(other.config.get("symmetry")) for other in runs if other.config["task"] == task}) > 1
    return f"{task} · {symmetry or 'first symmetry'}" if several else task


def _label(run: Run, members: list[Run]) -> str:
    """The method, and whatever else sets this run apart from others of its setting."""
    config = run.config
    label = str(config.get("method", "?"))
    if config.get("preset", "default") != "default":
        label += f" ({config['preset']})"
    for part in ("agent", "gate"):
        ours = _changes(run, part)
        common = [key for key in ours if all(_changes(other, part).get(key, ...) == ours[key] for other in members)]
        label += "".join(f" {_whose(part, key)}={json.dumps(ours[key])}" for key in sorted(ours) if key not in common)
    if len({json.dumps(other.config.get("environments", 1)) for other in members}) > 1:
        label += f" environments={config.get('environments', 1)}"
    if len({json.dumps(other.config.get("evaluations")) for other in members}) > 1:  # where their areas begin
        label += f" evaluations={config.get('evaluations')}"
    if len({json.dumps(other.config.get("steps")) for other in members}) > 1 and _is_number(config.get("steps")):
        label += f" {config['steps']:,} steps"
    return label


def _whose(part: str, key: str) -> str:
    """A setting's name; of a gate's that the agent has too, also whose it is."""
    return f"gate.{key}" if part == "gate" and key in AGENTS else key


def _changes(run: Run, part: str) -> dict[str, Any]:
    """What differs from the defaults, rules within by names with dots."""
    changes = run.config.get(part)
    flat: dict[str, Any] = {}
    for key, value in (changes if isinstance(changes, dict) else {}).items():
        flat |= {f"{key}.{inner}": deep for inner, deep in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def method_place(label: str) -> tuple[int, list[tuple[int, int, str]]]:
    base = label.split(" ")[0]
    return METHOD_ORDER.index(base) if base in METHOD_ORDER else len(METHOD_ORDER), natural(label)


def _budget(run: Run) -> float | None:
    """How many steps a run was to make: what it was told, or its task's own number."""
    from symbreak.tasks import get_task

    steps = run.config.get("steps")
    if steps is None:
        with suppress(InputError):
            return get_task(str(run.config["task"])).training_steps
    return steps if _is_number(steps) else None


def _common_steps(runs: list[Run], members: list[Run]) -> np.ndarray:
    """Where any run of the group was evaluated; where none was, the steps of the setting or the planned last one.

    Where one failed, also the steps of others with its budget, and the last one: else all that crash would end early.
    """
    if any(run.state == "failed" for run in runs):
        told = [run.config.get("steps") for run in runs]
        budgets = {float(budget) for run in runs if (budget := _budget(run)) is not None}
        others = {row["step"] for run in members if run.config.get("steps") in told for row in run.rows}
        own = {row["step"] for run in runs for row in run.rows}
        if steps := sorted({*own, *others, *budgets}):
            return np.array(steps)
    for source in (runs, members):
        steps = sorted({row["step"] for run in source for row in run.rows})
        if steps:
            return np.array(steps)
    return np.array([float(runs[0].config.get("steps") or 0)])
