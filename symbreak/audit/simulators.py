# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs.)
"""Environments that can be put into a state, and into the image of a state.

The audit asks three things of an environment: capture where it stands, go back there, and go to a state that shows a
given observation. Whoever can answer them is a `Simulator`. A user's environment answers them with three methods,

- `get_state()`: everything the next step depends on;
- `set_state(state)`: go there;
- `state_from_observation(observation)`: a state that shows this observation, or None where there is none. It is called
  while the environment stands in the state whose image is wanted, so parts that the observation does not show can be
  taken from there.

on the environment itself or on a wrapper around it. Where `get_state()` is the observation, the third is not needed;
where the third is there, `get_state` is not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np

from symbreak.audit.integration import IntegrationState, first_hindrance
from symbreak.errors import EnvironmentFault, InputError, SymbreakError
from symbreak.tasks.check import one_line, require_finite

PROTOCOL = "get_state(), set_state(state) and state_from_observation(observation)"
AS_SET = 1e-6  # numbers that differ by less than this share, or this much, are the same after setting them


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one step showed."""

    observation: np.ndarray
    reward: float
    terminated: bool
    truncated: bool = False


class Simulator(ABC):
    """An environment together with a way to any state it has visited and to images of such states.

    `how` tells the reader of a report how images are made.
    """

    how: str
    source = "get_state"  # what says where the environment stands,
    maker = "image"  # and what makes the image of a state, in messages

    def __init__(self, env: gym.Env) -> None:
        self.env = env
        self._shown, self._steps = np.zeros(0), 0

    @abstractmethod
    def capture(self) -> Any:
        """Everything that the next step depends on."""

    @abstractmethod
    def place(self, state: Any) -> None:
        """Put the environment into the state."""

    @abstractmethod
    def image(self, state: Any, observation: np.ndarray) -> Any | None:
        """A state that shows the observation and is otherwise like `state`; None where there is none."""

    def hindrance(self, state: Any, image: Any) -> str:
        """What keeps the image from being visited like the state itself; empty where nothing does."""
        return ""

    def unlike(self, image: Any, observation: np.ndarray) -> str:
        """In which way the image, once set, does not show the observation; empty where it does or cannot be told."""
        return ""

    def observation(self) -> np.ndarray:
        """What the environment shows where it stands."""
        return self._shown

    def reset(self, seed: int | None = None) -> None:
        with blamed("reset"):
            shown, _ = self.env.reset(seed=seed)
        self._shown = np.asarray(shown, dtype=float)
        require_finite(self._shown, 0.0, self._steps, source="the reset that follows step")

    def step(self, action: np.ndarray | int) -> Outcome:
        """One step from where the environment stands."""
        advice = "the audit steps from visited states and their images, so look at set_state and state_from_observation"
        with blamed("step", f"; {advice} too"):
            shown, reward, terminated, truncated, _ = self.env.step(action)
        self._shown, self._steps = np.asarray(shown, dtype=float), self._steps + 1
        require_finite(self._shown, reward, self._steps, source="step")
        return Outcome(self.observation().copy(), float(reward), bool(terminated), bool(truncated))


@contextmanager
def blamed(method: str, advice: str = "") -> Iterator[None]:
    """What a user's method raises is told as the environment's fault, in one line."""
    try:
        yield
    except SymbreakError:
        raise
    except Exception as problem:
        raise EnvironmentFault(f"{method} raised {one_line(problem)}{advice}") from problem


class StatefulSimulator(Simulator):
    """A user's environment that brings the methods of the module's docstring."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._get = provider(env, "get_state")
        self._set = provider(env, "set_state")
        self._invert = provider(env, "state_from_observation")
        if self._set is None or (self._get is None and self._invert is None):
            lacking = "set_state" if self._set is None else "get_state and state_from_observation"
            raise InputError(
                f"{type(env.unwrapped).__name__} cannot be put into a state: it has no {lacking}; "
                f"give it or a wrapper {PROTOCOL}"
            )
        bare = env.unwrapped
        model, data = getattr(bare, "model", None), getattr(bare, "data", None)
        on_mujoco = isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData)
        self._whole = IntegrationState(model, data) if on_mujoco else None
        self.source = "get_state" if self._get is not None else "state_from_observation"
        self.maker = "state_from_observation" if self._invert is not None else "set_state"
        self.how = "states are set by the environment's own " + (
            "state_from_observation" if self._invert is not None else "set_state; the state is the observation"
        )

    def capture(self) -> Any:
        if self._get is None:
            return self._made(self._shown)
        with blamed("get_state"):
            # What is returned may be the array in which the environment goes on working.
            return deepcopy(self._get.get_state())

    def place(self, state: Any) -> None:
        with blamed("set_state", "; the audit sets visited states and their images"):
            self._require(self._set).set_state(deepcopy(state))

    def image(self, state: Any, observation: np.ndarray) -> Any | None:
        self.place(state)
        if self._invert is not None:
            return self._made(observation)
        if np.shape(state) != observation.shape:
            raise InputError(
                f"get_state() returns {np.shape(state)}, not the observation {observation.shape}: "
                "add state_from_observation(observation)"
            )
        return observation

    def unlike(self, image: Any, observation: np.ndarray) -> str:
        if self._invert is not None:
            return ""  # a state need not be an observation, so nothing tells what it shows before the next step
        self.place(image)
        shown = np.asarray(self.capture(), dtype=float)
        wrong = np.flatnonzero(~np.isclose(shown, observation, rtol=AS_SET, atol=AS_SET))
        if not wrong.size:
            return ""
        entry = int(wrong[0])
        return (
            f"set_state was given {float(observation[entry])!r} as entry {entry} of a state's image, and get_state "
            f"then returns {float(shown[entry])!r}: set just what is given (np.rint, where int would cut off), or add "
            "state_from_observation, which returns None where no state shows the observation"
        )

    def _made(self, observation: np.ndarray) -> Any | None:
        with blamed("state_from_observation", "; return None where no state shows the observation"):
            return deepcopy(self._require(self._invert).state_from_observation(observation.copy()))

    def hindrance(self, state: Any, image: Any) -> str:
        if self._whole is None:
            return ""
        self.place(state)
        own = self._whole.excess()
        self.place(image)
        return first_hindrance(own, self._whole.excess())

    @staticmethod
    def _require(layer: Any) -> Any:
        if layer is None:
            raise InputError(f"the environment cannot be put into a state; give it {PROTOCOL}")
        return layer


def layers(env: gym.Env) -> list[gym.Env]:
    """The environment's wrappers from the outermost inwards, and the bare environment last."""
    found = [env]
    while isinstance(found[-1], gym.Wrapper):
        found.append(found[-1].env)
    return found


def provider(env: gym.Env, method: str) -> Any | None:
    """The outermost layer that has the method."""
    return next((layer for layer in layers(env) if callable(getattr(layer, method, None))), None)


def simulator_for(env: gym.Env) -> Simulator:
    """The way to set this environment's state: its own methods if it has them, else what is known of its kind."""
    from symbreak.audit.fetch_arm import FetchSimulator
    from symbreak.audit.mujoco_state import MujocoSimulator
    from symbreak.tasks.fetch import FetchReachEnv

    bare = env.unwrapped
    if provider(env, "state_from_observation") is not None:
        return StatefulSimulator(env)
    if isinstance(bare, FetchReachEnv):
        return FetchSimulator(env)
    if hasattr(bare, "observation_structure") and hasattr(bare, "model"):
        return MujocoSimulator(env)
    return StatefulSimulator(env)
