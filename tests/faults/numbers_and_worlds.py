"""Numbers that are none, runs that diverge, environments that misbehave."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import jax
import numpy as np
import test_check
from counting import Outcome, Tier, count, fails, problem_of, require
from test_run import GRID, POINT, TINY, Pendulum, point_task

from symbreak.errors import EnvironmentFault, NumericFault, SymbreakError
from symbreak.storage.checkpoint import Checkpoints
from symbreak.tasks import TASK_NAMES, check_environment, get_task
from symbreak.tasks.task import View
from symbreak.training.inspection import verify
from symbreak.training.run import Run
from symbreak.training.tally import STRETCH

# --- from the environment ---------------------------------------------------------------------------------------------

VALUES = (math.nan, math.inf, -math.inf)
FIELDS = ("angle", "speed", "reward", "speed after a reset")
STEPS = (1, 2, 39, 40, 41, 59, 60, 61, 100, 137)  # ends of episodes, the first update, a checkpoint among them


class Poisoned(Pendulum):
    """One number that is none: in an observation or reward at step `at`, or in the first reset that follows it."""

    def __init__(self, value: float, field: str, at: int) -> None:
        super().__init__()
        self.value, self.field, self.at = value, field, at

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        if self.field == FIELDS[3] and self.steps >= self.at:
            observation[1] = self.value
        return observation, info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.steps == self.at and self.field in FIELDS[:2]:
            observation[FIELDS.index(self.field)] = self.value
        return observation, self.value if self.steps == self.at and self.field == "reward" else reward, *rest


def caught(value: float, field: str, at: int, directory: Path) -> None:
    """Exit 4 with step, field and index, the exact step in the status, and no such number in any replay."""
    task = point_task()
    world = View(lambda: Poisoned(value, field, at), task.views["mirror"].symmetry)
    # Evaluation has an environment of its own; here it comes after the fault.
    config = replace(POINT, evaluations=1, checkpoint_every=50)
    run = Run.create(config, directory, task=replace(task, views={"mirror": world}))

    def go_on() -> None:
        with run:
            try:
                run.advance()
            finally:
                replay.append(jax.device_get(run.driver.save()[1].data))
                run.save()  # whatever is tried now, no torn state is saved

    replay: list = []
    said = fails(go_on, NumericFault)
    reached = -(-at // 40) * 40  # episodes end after 40 steps
    place = {"reward": "reward", "angle": "observation[0] (angle)"}.get(field, "observation[1] (speed)")
    when = f"the reset that follows step {reached}" if field == FIELDS[3] else f"step {at}"
    require(f"{place} is {value} after {when}" in said, said)
    require(NumericFault.exit_code == 4, "exit 4")
    status = json.loads((directory / "status.json").read_text())
    expected = reached if field == FIELDS[3] else at - 1
    require((status["state"], status["step"]) == ("failed", expected), f"{status} instead of step {expected}")
    require(all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(replay)), "it is in the replay")
    verdict = verify(directory)
    require(verdict.good == len(verdict.checkpoints) == min(3, expected // 50), f"{verdict}")
    if verdict.good:
        loaded = Run.open(directory, task=point_task())
        stored = jax.tree.leaves(loaded.driver.save()[1])
        loaded._leave(None)
        require(all(np.isfinite(leaf).all() for leaf in stored), "it is in the stored replay")


def non_finite(tier: Tier, scratch: Path) -> Outcome:
    cases = [(value, field, at) for at in STEPS for field in FIELDS for value in VALUES]
    return count(
        problem_of(lambda case=case, n=n: caught(*case, scratch / str(n)), str(case))
        for n, case in enumerate(cases if tier == "full" else cases[::13])
    )


# --- divergence -------------------------------------------------------------------------------------------------------


def diverged(task: str, rate: float, seed: int, directory: Path) -> None:
    """Exit 4 within a stretch of steps; the checkpoints that are left are finite, and there is one."""
    config = GRID if task == "grid" else POINT
    settings = {**(TINY if task == "grid" else POINT.agent), "rate": rate}
    config = replace(config, agent=settings, seed=seed, checkpoint_every=50, steps=1_500, evaluations=1)
    run = Run.create(config, directory, task=None if task == "grid" else point_task())

    def go_on() -> None:
        with run:
            run.advance()

    said = fails(go_on, NumericFault)
    require("not finite" in said, said)
    require(run.step <= STRETCH, f"noticed at step {run.step}")
    verdict = verify(directory)
    require(verdict.good == len(verdict.checkpoints) >= 1, f"{verdict}")
    loaded = Checkpoints(directory / "checkpoints", directory / "replay").load(None)
    assert loaded is not None
    numbers = [array for array in loaded.trees.values() if array.dtype.kind == "f"]
    require(all(np.isfinite(array).all() for array in numbers), "a checkpoint that is not finite was kept")


def diverging(tier: Tier, scratch: Path) -> Outcome:
    """Two algorithms, two absurd learning rates each, five seeds each."""
    cases = [(task, rate, seed) for task in ("grid", "point") for rate in (1e30, 1e18) for seed in range(5)]
    return count(
        problem_of(lambda case=case, n=n: diverged(*case, scratch / str(n)), str(case))
        for n, case in enumerate(cases if tier == "full" else cases[:2])
    )


# --- environments that misbehave --------------------------------------------------------------------------------------


def _named(make: Callable[[], gym.Env], message: str, kind: type[SymbreakError], patience: float = 120.0) -> None:
    said = fails(lambda: check_environment(make(), patience=patience), kind)
    require(message in said, said)


def _quiet(name: str, view: str) -> None:
    environment = get_task(name).make(view)
    try:
        check_environment(environment, get_task(name).symmetry(view))
    finally:
        environment.close()


def _stops_a_run(fault: str, message: str, directory: Path) -> None:
    config = replace(POINT, environment_timeout=0.5, evaluations=1)
    run = Run.create(config, directory, task=point_task(fault=fault, at=30))

    def go_on() -> None:
        with run:
            run.advance()

    said = fails(go_on, EnvironmentFault)
    require(message in said, said)
    status = json.loads((directory / "status.json").read_text())
    require((status["state"], status["step"]) == ("failed", 29), f"{status}")


def faulty_environments(tier: Tier, scratch: Path) -> Outcome:
    small = tier == "small"
    faults = [(message, make, EnvironmentFault) for message, make in test_check.FAULTS]
    faults += [(message, make, NumericFault) for message, make in test_check.NOT_FINITE]
    problems = [problem_of(lambda f=f: _named(f[1], f[0], f[2]), f[0]) for f in (faults[::3] if small else faults)]
    problems.append(problem_of(lambda: _named(test_check.Hangs, "within 0.2 s", EnvironmentFault, 0.2), "hangs"))
    stops = {"raises": "step 30 raised RuntimeError: the motor is broken", "shape": "step 30 has shape (3,)"}
    stops["hangs"] = "step 30 of the environment took longer than 0.5 s"
    for fault, message in stops.items():
        problems.append(problem_of(lambda f=fault, m=message: _stops_a_run(f, m, scratch / f), fault))
    real = [(name, view) for name in TASK_NAMES for view in get_task(name).symmetries]
    alarms = [problem_of(lambda r=r: _quiet(*r), f"false alarm on {r}") for r in (real[::6] if small else real)]
    note = f"{sum(alarm is not None for alarm in alarms)} false alarms on {len(alarms)} real ones"
    return count([*problems, *alarms], note)
