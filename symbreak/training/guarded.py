"""An environment behind a guard: what it returns is checked before anything is stored or learned from it.

Raising, hanging, wrong shapes and types are faults of the environment (exit 3), NaN and infinities are numeric faults
(exit 4); each is named with the step at which it came.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gymnasium as gym
import numpy as np

from symbreak.errors import EnvironmentFault, InputError, NumericFault, SymbreakError
from symbreak.symmetry.layout import Layout, Symmetry
from symbreak.tasks.check import require_finite

Limit = Callable[[str], AbstractContextManager[None]]  # what is being done → a block that may not take too long
ROUNDING = 1e-5  # relative to half of an action's range
LONGEST_EPISODE = 20_000  # steps of an evaluation, where the environment declares no longer limit


def in_bounds(space: gym.Space, actions: np.ndarray) -> np.ndarray:
    """Actions from [−1, 1] in the bounds of the environment; numbers of actions as they are."""
    if isinstance(space, gym.spaces.Box):
        middle, half = _middle_and_half(space)
        return (middle + half * actions).astype(space.dtype)
    return actions.astype(np.int64)


def from_bounds(space: gym.Space, actions: Any, batch: tuple[int, ...]) -> np.ndarray:
    """The inverse of `in_bounds`, for as many actions as `batch` says; what an environment does not take is refused."""
    try:
        actions = np.asarray(actions, float)
    except (TypeError, ValueError):
        raise InputError("the actions are no numbers; give them as the environment takes them") from None
    wanted = (*batch, *(space.shape or ()))
    if actions.shape != wanted:
        raise InputError(f"the actions have shape {actions.shape}; give one for each observation, shape {wanted}")
    if isinstance(space, gym.spaces.Box):
        middle, half = _middle_and_half(space)
        scaled = (actions - middle) / half
        if not np.all(np.abs(scaled) <= 1 + ROUNDING):  # neither is what is not finite
            raise InputError(f"an action lies outside of {space}; give it as the environment takes it")
        return np.clip(scaled, -1, 1).astype(np.float32)
    if not np.isin(actions, np.arange(space.n if isinstance(space, gym.spaces.Discrete) else 0)).all():
        raise InputError(f"an action is no number of {space}; give it as the environment takes it")
    return actions.astype(np.int32)


def _middle_and_half(space: gym.spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    return (space.high + space.low) / 2, (space.high - space.low) / 2


def require_bounds(space: gym.Space, symmetry: Symmetry) -> None:
    """Agents act in [−1, 1], scaled to the bounds entry by entry: the group must commute with that."""
    if not isinstance(space, gym.spaces.Box):
        return
    middle, half = (space.high + space.low) / 2.0, (space.high - space.low) / 2.0
    largest = np.maximum(np.abs(space.low), np.abs(space.high))
    for element in symmetry.group.generators:
        matrix = symmetry.action.matrix(element)
        moved, uneven = np.abs(matrix @ middle - middle), np.abs(matrix * half - half[:, None] * matrix).max(axis=1)
        slack = 1e-5 * np.maximum(largest, (np.abs(matrix) > 1e-9) @ largest)
        wrong = np.flatnonzero(np.maximum(moved, uneven) > slack)
        if wrong.size:
            raise InputError(
                f"the bounds of action entry {wrong[0]} do not fit symmetry {symmetry.name!r}: entries that it "
                "exchanges or mixes need equal bounds, and those that it flips bounds about zero; change them, or wrap "
                "the environment in gymnasium.wrappers.RescaleAction and declare what then holds"
            )


def steps_allowed(environment: gym.Env) -> int:
    """In one episode of an evaluation, which waits for its end; training does not."""
    declared = environment.spec.max_episode_steps if environment.spec is not None else None
    while declared is None and isinstance(environment, gym.Wrapper):  # without a spec, only the wrapper knows
        declared = environment._max_episode_steps if isinstance(environment, gym.wrappers.TimeLimit) else None
        environment = environment.env
    return max(LONGEST_EPISODE, declared or 0)


def require_an_end(length: int, allowed: int) -> None:
    """Refuse an episode of an evaluation that goes on for ever; asked after a step that was not its last."""
    if length >= allowed:
        raise EnvironmentFault(
            f"no end of an episode within {allowed:,} steps of an evaluation; give the environment a limit: "
            "register it with max_episode_steps or wrap it in gymnasium.wrappers.TimeLimit"
        )


def no_limit(doing: str) -> AbstractContextManager[None]:
    return nullcontext()


class GuardedEnvironment:
    """Observations are float32 copies, actions come in [−1, 1] or as numbers of actions."""

    def __init__(self, environment: gym.Env, layout: Layout, purpose: str = "step", limit: Limit = no_limit) -> None:
        self.environment = environment
        self.layout = layout
        self.purpose = purpose  # how a step is called in messages
        self.limit = limit

    def reset(self, seed: int, step: int) -> np.ndarray:
        """A new episode; `step` only serves messages."""
        try:
            with self.limit(f"reset before {self.purpose} {step + 1}"):
                result = self.environment.reset(seed=seed)
        except SymbreakError:
            raise
        except Exception as problem:
            raise self._raised(f"reset(seed={seed})", problem) from problem
        if not isinstance(result, tuple) or len(result) != 2:
            raise EnvironmentFault(f"reset(seed={seed}) returned no pair (observation, info); mend the environment")
        observation = self._observation(result[0], step)
        require_finite(observation, 0.0, step, self.layout, f"the reset that follows {self.purpose}")
        return observation

    def step(self, action: np.ndarray, step: int) -> tuple[np.ndarray, np.float32, bool, bool, dict[str, Any]]:
        """One step, the `step`-th."""
        # A simulator would answer with NaN or an error of its own, and be blamed for it.
        if not np.isfinite(action).all():
            raise NumericFault(
                f"the agent's action is not finite before {self.purpose} {step}; lower the learning rates"
            )
        try:
            with self.limit(f"{self.purpose} {step}"):
                result = self.environment.step(self._scaled(action))
        except SymbreakError:
            raise
        except Exception as problem:
            raise self._raised(f"{self.purpose} {step}", problem) from problem
        if not isinstance(result, tuple) or len(result) != 5:
            raise EnvironmentFault(f"{self.purpose} {step} did not return five values; mend the environment")
        observation = self._observation(result[0], step)
        try:
            with np.errstate(over="ignore"):
                reward = np.float32(result[1])
            terminated, truncated = bool(result[2]), bool(result[3])
        except (TypeError, ValueError) as problem:
            raise EnvironmentFault(
                f"{self.purpose} {step} returned a reward or an end that is no number; mend the environment"
            ) from problem
        require_finite(observation, reward, step, self.layout, self.purpose)
        return observation, reward, terminated, truncated, result[4] if isinstance(result[4], dict) else {}

    def _observation(self, value: Any, step: int) -> np.ndarray:
        """A copy: some environments write the next observation into the same memory."""
        try:
            with np.errstate(over="ignore"):
                observation = np.array(value, np.float32, copy=True)
        except (TypeError, ValueError) as problem:
            raise self._raised(f"reading the observation of {self.purpose} {step}", problem) from problem
        if observation.shape != (self.layout.size,):
            raise EnvironmentFault(
                f"the observation of {self.purpose} {step} has shape {observation.shape} where {self.layout.size} "
                "numbers were declared; mend the environment or its symmetry"
            )
        return observation

    def _scaled(self, action: np.ndarray) -> Any:
        space = self.environment.action_space
        return in_bounds(space, action) if isinstance(space, gym.spaces.Box) else int(action)

    @staticmethod
    def _raised(doing: str, problem: Exception) -> EnvironmentFault:
        text = " ".join(str(problem).split())[:200]
        return EnvironmentFault(f"{doing} raised {type(problem).__name__}: {text}; mend the environment, then resume")
