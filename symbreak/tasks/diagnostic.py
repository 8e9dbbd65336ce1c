"""Tiny environments, each of which only an agent with one more ability can learn; together they tell what is broken.

All show a point (x, y) of a square and take a sideways push: left, stay, right, or a pair of numbers (push, lift). All
are mirrored by x → −x, so that equivariant agents can learn them too; only `patch` breaks that, in a known place.

- `constant`: one step worth 1. Can a value be learned at all?
- `observation`: one step worth y. Does the value depend on the state?
- `discount`: nothing, then 1. Are values carried back, and discounted?
- `action`: one step, best not to push (and to lift by a half). Does the choice depend on the values?
- `both`: one step, best to push towards x. Does it depend on state and values together?
- `patch`: move to the middle; where x is between 0.3 and 0.7 and y is positive, a wind blows to the left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np

from symbreak.errors import InputError
from symbreak.symmetry import Layout, Symmetry, Z
from symbreak.tasks.task import Task, View

STEP, WIND = 0.4, -0.8  # how far a full push moves, and what the wind adds in the patch
HORIZON = 4  # of the patch: it has no end of its own


@dataclass(frozen=True)
class Push:
    """An action as both kinds of environment understand it; discrete ones cannot lift."""

    sideways: float
    lift: float | None


Outcome = tuple[float, float, float, bool]  # x and y after the step, reward, terminated


@dataclass(frozen=True)
class Probe:
    """The rules of one environment."""

    start: Callable[[np.random.Generator], tuple[float, float]]
    step: Callable[[float, float, Push], Outcome]
    best: float  # undiscounted return of the best policy; for the patch a bound


def in_patch(x: Any, y: Any) -> Any:
    """Where the mirror does not hold; its image is where it seems to hold and does not either."""
    return (x >= 0.3) & (x <= 0.7) & (y > 0)


def _missed(push: Push, sideways: float, lift: float) -> float:
    """Squared distance from the best action."""
    return (push.sideways - sideways) ** 2 + (0.0 if push.lift is None else (push.lift - lift) ** 2)


def _blown(x: float, y: float, push: Push) -> Outcome:
    after = float(np.clip(x + STEP * push.sideways + (WIND if in_patch(x, y) else 0.0), -1, 1))
    return after, y, 1 - abs(after), False


PROBES = {
    "constant": Probe(lambda rng: (0.0, 0.0), lambda x, y, push: (x, y, 1.0, True), 1.0),
    "observation": Probe(lambda rng: (0.0, float(rng.choice([-1, 1]))), lambda x, y, push: (x, y, y, True), 0.0),
    "discount": Probe(lambda rng: (0.0, -1.0), lambda x, y, push: (x, 1.0, float(y > 0), y > 0), 1.0),
    "action": Probe(lambda rng: (0.0, 0.0), lambda x, y, push: (x, y, 1 - _missed(push, 0, 0.5), True), 1.0),
    "both": Probe(
        lambda rng: (float(rng.choice([-1, 1])), 0.0), lambda x, y, push: (x, y, 1 - _missed(push, x, 0), True), 1.0
    ),
    "patch": Probe(lambda rng: (rng.uniform(-1, 1), rng.uniform(-1, 1)), _blown, float(HORIZON)),
}


class DiagnosticEnv(gym.Env):
    """One of the probes, with three discrete actions or two continuous ones."""

    metadata = {"render_modes": []}  # noqa: RUF012  Gymnasium reads this from the class

    def __init__(self, probe: str, continuous: bool = False) -> None:
        if probe not in PROBES:
            raise InputError(f"there is no diagnostic environment {probe!r}: choose one of {', '.join(PROBES)}")
        self.probe = PROBES[probe]
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space: gym.Space = (
            gym.spaces.Box(-1.0, 1.0, (2,), np.float32) if continuous else gym.spaces.Discrete(3)
        )
        self._place = (0.0, 0.0)
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._place, self._time = self.probe.start(self.np_random), 0
        return np.array(self._place, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if isinstance(self.action_space, gym.spaces.Discrete):
            push = Push(float(action) - 1.0, None)
        else:
            push = Push(float(action[0]), float(action[1]))
        x, y, reward, terminated = self.probe.step(*self._place, push)
        self._place = (x, y)
        self._time += 1
        truncated = self._time >= HORIZON and not terminated
        return np.array(self._place, np.float32), float(reward), bool(terminated), truncated, {}


@cache
def mirror(continuous: bool) -> Symmetry:
    """x and the sideways push change sign, everything else stays."""
    group = Z(2)
    place = Layout({"x": group.sign, "y": group.trivial})
    if continuous:
        return Symmetry(place, Layout({"push": group.sign, "lift": group.trivial}), name="mirror")
    swap = group.permutation("left-stay-right", [[2, 1, 0]])
    return Symmetry(place, Layout({"push": swap}), discrete=True, name="mirror")


@cache
def diagnostic_task(probe: str, continuous: bool = False) -> Task:
    """A probe as a task: Q-learning where actions are discrete, soft actor-critic where they are continuous."""
    environment = partial(DiagnosticEnv, probe, continuous)
    environment()  # refuses an unknown name here
    return Task(
        name=f"diagnostic-{probe}" + ("-continuous" if continuous else ""),
        description="a tiny environment that tells which ability is broken",
        views={"mirror": View(environment, partial(mirror, continuous))},
        algorithm="sac" if continuous else "dqn",
        horizon=HORIZON,
        training_steps=1_000,
        random_steps=100,
        discount=0.9,
    )
