"""The studies: which runs make which figure.

A study is a list of settings (a task with a symmetry, a budget, a preset) times methods times seeds. Nothing here runs
anything; `launch.py` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from symbreak.agents.methods import PAPER_METHODS, get_method
from symbreak.errors import InputError
from symbreak.training.settings import RunConfig

# Seconds per environment step and core with a learned gate, for estimates only; without one it takes half of that.
SECONDS_PER_STEP = {"grid": 0.005, "hopper": 0.015, "swimmer": 0.015, "ant": 0.015, "fetch": 0.02, "ur5e": 0.015}
PUBLISHED_GRID = 0.085  # there the published recipe takes forty gradient steps of predictors in every step


@dataclass(frozen=True)
class Setting:
    task: str
    steps: int
    symmetry: str | None = None
    preset: str = "default"
    gate: dict[str, Any] = field(default_factory=dict)
    agent: dict[str, Any] = field(default_factory=dict)
    label: str = ""  # tells settings of one task apart
    evaluations: int = 20
    keeps_map: bool = False  # of what the agent does in every state: a figure is drawn from it

    @property
    def name(self) -> str:
        parts = (self.task, self.symmetry, self.preset if self.preset != "default" else None, self.label or None)
        return "_".join(part for part in parts if part)


@dataclass(frozen=True)
class Study:
    description: str
    settings: tuple[Setting, ...]
    methods: tuple[str, ...] = PAPER_METHODS
    seeds: int = 5
    scored: bool = True  # do its returns belong into the tables of results?


def _grids(obstacles: Sequence[int], suffix: str = "") -> tuple[Setting, ...]:
    return tuple(Setting(f"grid-{count}{suffix}", 100_000) for count in obstacles)


_ABLATION_TASKS = (Setting("fetch-reach", 30_000), Setting("ant", 1_000_000, "paper"))
_DEVIATIONS = (-0.5, 0.5, 1.5)
_SIGMA = {"kind": "sigma", "smoothing": 0.1, "every": 100}  # as published
_PREDICTOR_STEPS = {
    "20 steps": {"predictor_steps": 20, "predictor_every": 1, "gate_every": 1},
    "5 steps": {"predictor_steps": 5, "predictor_every": 1, "gate_every": 1},
    "1 step": {"predictor_steps": 1, "predictor_every": 1, "gate_every": 1},
    "every 4th": {"predictor_steps": 1, "predictor_every": 4, "gate_every": 4},
}

STUDIES: dict[str, Study] = {
    "grid-obstacles": Study("returns as obstacles break the rotation symmetry", _grids((0, 10, 20, 30, 40))),
    "grid-oracles": Study(
        "the same with gates that know the truth", _grids((0, 20, 40)), ("oracle-minority", "oracle-strict"), 3
    ),
    "grid-floors": Study(
        "the same on other floors, one training on each",
        tuple(setting for floor in (1, 2, 3) for setting in _grids((20, 40), f"-floor{floor}")),
        seeds=1,
        scored=False,
    ),
    "grid-reward": Study("half of the obstacles passable at a price", _grids((10, 30), "-reward")),
    "grid-slip": Study("moves that slip", _grids((40,), "-slip")),
    "grid-paper": Study(
        "the published recipe",
        tuple(Setting(f"grid-{count}", 100_000, preset="paper") for count in (20, 40)),
        ("partial",),
        3,
    ),
    "grid-coin": Study(
        "a coin in the place of the gate, in training and in evaluations; to be read beside grid-paper",
        _grids((20, 40)),
        ("partial-coin",),
        3,
    ),
    "propagation": Study(
        "the moves of an equivariant agent in a broken world; `symbreak theory grid-20-slip --run RECORD` draws them",
        (Setting("grid-20-slip", 100_000, keeps_map=True),),
        ("exact",),
        1,
        scored=False,
    ),
    "predictor-steps": Study(
        "gate quality and return against predictor steps per environment step",
        (
            *(Setting("grid-20", 50_000, gate=gate, label=label) for label, gate in _PREDICTOR_STEPS.items()),
            *(
                Setting("grid-40", 50_000, gate=_PREDICTOR_STEPS[label], label=label)
                for label in ("1 step", "every 4th")
            ),
        ),
        ("partial",),
        3,
        scored=False,
    ),
    "locomotion": Study(
        "Hopper, Ant and Swimmer",
        (
            Setting("hopper", 1_000_000),
            *(Setting(task, 1_000_000, symmetry) for task in ("ant", "swimmer") for symmetry in ("paper", "exact")),
        ),
        seeds=8,
    ),
    "manipulation": Study("reaching arms", (Setting("fetch-reach", 30_000), Setting("ur5e-reach", 500_000))),
    "stability": Study(
        "does a short training stay finite, with every method and symmetry",
        (
            Setting("ur5e-reach", 5_000, agent={"learning_starts": 1_000}),
            *(  # whose episodes are long: evaluating as often as elsewhere would take longer than training
                Setting(task, 5_000, symmetry, agent={"learning_starts": 1_000}, evaluations=4)
                for task in ("swimmer", "ant")
                for symmetry in ("paper", "exact")
            ),
        ),
        seeds=1,
        scored=False,
    ),
    "unrouted": Study(
        "is learning the same when the free expert answers everywhere; grid-20 is to be read beside grid-obstacles",
        (
            Setting("grid-20", 100_000, agent={"route": False}, label="unrouted"),
            Setting("hopper", 10_000, agent={"learning_starts": 1_000, "route": False}, label="unrouted"),
            Setting("hopper", 10_000, agent={"learning_starts": 1_000}, label="routed"),
        ),
        ("partial",),
        scored=False,
    ),
    "ablation-routing": Study(
        "hard, soft and fixed routing", _ABLATION_TASKS, ("partial", "partial-soft", "partial-fixed", "rpp")
    ),
    "ablation-actor": Study(
        "how a state's gate is found", _ABLATION_TASKS, ("partial", "partial-max4", "partial-max8")
    ),
    "ablation-trunks": Study(
        "shared and separate trunks, all with two trained predictors, since an averaged one has no trunk to share",
        tuple(replace(s, gate={"disagreement": "trained"}, label="two predictors") for s in _ABLATION_TASKS),
        ("partial", "partial-shared-heads", "partial-shared-predictors", "partial-shared-all"),
    ),
    "ablation-threshold": Study(
        "how many deviations above the mean count as broken",
        tuple(
            Setting(s.task, s.steps, s.symmetry, gate={"threshold": {**_SIGMA, "deviations": k}}, label=f"kappa {k}")
            for s in _ABLATION_TASKS
            for k in _DEVIATIONS
        ),
        ("partial",),
    ),
}


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    setting: str
    config: RunConfig
    keeps_map: bool = False

    @property
    def name(self) -> str:
        return f"{self.setting}/{self.config.method}/seed-{self.config.seed}".replace(" ", "-")

    @property
    def digest(self) -> str:
        """Of everything that determines the run: a finished run with this digest need not be made again."""
        return digest_of(self.config)

    @property
    def hours(self) -> float:
        """A rough estimate on one core."""
        task = self.config.task
        rate = next((s for part, s in SECONDS_PER_STEP.items() if task.startswith(part)), 0.02)
        if self.config.preset == "paper" and task.startswith("grid"):
            rate = PUBLISHED_GRID
        elif get_method(self.config.method).gate != "learned":
            rate /= 2
        return (self.config.steps or 0) * rate / 3600


def digest_of(config: RunConfig) -> str:
    return hashlib.sha256(json.dumps(config.identity, sort_keys=True).encode()).hexdigest()


def plan(
    study: str,
    *,
    seeds: int | None = None,
    steps: int | None = None,
    methods: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> list[Job]:
    """The runs of a study, seed after seed, so that an interrupted study has whole sets."""
    if study not in STUDIES:
        import difflib

        near = difflib.get_close_matches(study, STUDIES, n=3) or list(STUDIES)
        raise InputError(f"there is no study {study!r}: did you mean {', '.join(near)}?")
    chosen = STUDIES[study]
    known = {setting.name for setting in chosen.settings} | {setting.task for setting in chosen.settings}
    for name in settings:
        if name not in known:
            raise InputError(f"study {study!r} has no setting {name!r}: it has {', '.join(sorted(known))}")
    for method in methods:
        get_method(method)  # refuses an unknown name
    if seeds is not None and seeds < 1:
        raise InputError(f"a study needs at least one seed, not {seeds}")
    if steps is not None and steps < 1:
        raise InputError(f"a run needs at least one step, not {steps}")
    jobs = []
    for seed in range(chosen.seeds if seeds is None else seeds):
        for setting in chosen.settings:
            if settings and setting.name not in settings and setting.task not in settings:
                continue
            for method in dict.fromkeys(methods or chosen.methods):
                config = RunConfig(
                    setting.task,
                    method,
                    setting.symmetry,
                    setting.preset,  # pyright: ignore[reportArgumentType]
                    setting.steps if steps is None else steps,
                    seed,
                    setting.evaluations,
                    agent=setting.agent,
                    gate=setting.gate,
                )
                jobs.append(Job(setting.name, config, setting.keeps_map))
    return jobs
