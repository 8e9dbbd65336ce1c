"""Reaching with the Fetch arm, seen through nine numbers about the gripper and its goal.

The environment is gymnasium-robotics' dense-reward reach task. Its observation carries absolute positions and finger
states; a rotation acts about a centre, so positions are given relative to where the gripper starts.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from symbreak.errors import InputError

GRIPPER_POSITION, GRIPPER_VELOCITY = slice(0, 3), slice(5, 8)  # within the environment's own ten numbers
FIRST_UNSUPPORTED_MUJOCO = (3, 12)


def make_fetch_reach(**kwargs) -> gym.Env:
    """The reach environment of gymnasium-robotics with dense rewards, without a time limit."""
    installed = version("mujoco")
    if tuple(int(part) for part in installed.split(".")[:2]) >= FIRST_UNSUPPORTED_MUJOCO:
        raise InputError(
            f"fetch-reach cannot run on mujoco {installed}: install one below 3.12 (pip install 'mujoco<3.12')"
        )
    _silence_notice()
    from gymnasium_robotics.envs.fetch.reach import MujocoFetchReachEnv

    return MujocoFetchReachEnv(reward_type="dense", **kwargs)


def _silence_notice() -> None:
    """Importing gymnasium-robotics prints a notice about its hand environments, which are not used here."""
    from farama_notifications import notifications

    notifications.pop("gymnasium_robotics", None)


class ReachState(gym.Wrapper, RecordConstructorArgs):
    """Gripper position, gripper velocity and goal position, positions relative to the gripper's start: 9 numbers.

    The velocity is the environment's own: metres moved per control step of 0.04 s. `info["is_success"]` is a bool.
    """

    def __init__(self, env: gym.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (9,), np.float64)

    @property
    def centre(self) -> np.ndarray:
        """Where the gripper starts (to a micrometre), in world coordinates: what rotations turn about."""
        return self.unwrapped.initial_gripper_xpos  # pyright: ignore[reportAttributeAccessIssue]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._seen(observation), info | {"is_success": False}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        success = {"is_success": bool(info["is_success"])}
        return self._seen(observation), float(reward), terminated, truncated, info | success

    def _seen(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        own = observation["observation"]
        position, velocity = own[GRIPPER_POSITION], own[GRIPPER_VELOCITY]
        return np.concatenate([position - self.centre, velocity, observation["desired_goal"] - self.centre])
