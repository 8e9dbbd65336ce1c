"""States that a policy meets on its way, each with the action taken there and what the step did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from symbreak.audit.simulators import Outcome, Simulator
from symbreak.errors import InputError

Policy = Callable[[np.ndarray], Any]
KEEP = 0.25  # share of a rollout's states that are audited, so that they differ from one another
LONGEST_ROLLOUT = 200


@dataclass(frozen=True, eq=False)
class Situation:
    """A visited state, what it showed, an action, and what the step did: from the state when set, and when met."""

    state: Any
    observation: np.ndarray
    action: np.ndarray | int
    outcome: Outcome
    met: Outcome


def visit(simulator: Simulator, states: int, seed: int, policy: Policy | None) -> list[Situation]:
    """States met on rollouts, each stepped once from where it was set, as its images will be."""
    rng = np.random.default_rng(seed)
    space = simulator.env.action_space
    simulator.reset(seed=seed)
    met: list[tuple[Any, np.ndarray, Any, Outcome]] = []
    time = 0
    while len(met) < states:
        observation = simulator.observation().copy()
        action = _random_action(space, rng) if policy is None else _taken(space, policy(observation))
        state = [simulator.capture()] if rng.random() < KEEP else []
        outcome = simulator.step(action)
        met += [(kept, observation, action, outcome) for kept in state]
        time += 1
        if outcome.terminated or outcome.truncated or time >= LONGEST_ROLLOUT:
            simulator.reset()
            time = 0
    situations = []
    for state, observation, action, outcome in met:
        simulator.place(state)
        situations.append(Situation(state, observation, action, simulator.step(action), outcome))
    return situations


def _taken(space: Any, action: Any) -> np.ndarray | int:
    predicted = isinstance(action, tuple) and len(action) == 2 and action[1] is None  # as agents do
    action = np.asarray(action[0] if predicted else action)
    return int(action) if isinstance(space, Discrete) else np.asarray(action, dtype=space.dtype)


def _random_action(space: Any, rng: np.random.Generator) -> np.ndarray | int:
    if isinstance(space, Discrete):
        return int(rng.integers(space.n))
    if not isinstance(space, Box):
        raise InputError(f"the action space {space} is neither Box nor Discrete; only these can be audited")
    low, high = np.where(np.isfinite(space.low), space.low, -1.0), np.where(np.isfinite(space.high), space.high, 1.0)
    # Environments may refuse an action that their space does not contain, and precision is part of that.
    return rng.uniform(low, high).astype(space.dtype)
