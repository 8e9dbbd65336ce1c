"""Reaching with the Fetch arm, seen through nine numbers about the gripper and its goal.

The environment is gymnasium-robotics' dense-reward reach task. Its observation is a dictionary of absolute positions
and finger states; a rotation acts about a centre, so positions are given here relative to where the gripper starts.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np

from symbreak.errors import InputError

GRIPPER_POSITION, GRIPPER_VELOCITY = slice(0, 3), slice(5, 8)  # within the robot's own ten numbers
FIRST_UNSUPPORTED_MUJOCO = (3, 12)


class FetchReachEnv(gym.Env[np.ndarray, np.ndarray]):
    """Gripper position, gripper velocity and goal position, positions relative to the gripper's start: 9 numbers.

    The velocity is the robot's own: metres moved per control step of 0.04 s. The reward is minus the distance to the
    goal, `info["is_success"]` says whether it is below 0.05 m. The class alone never ends an episode; the registered
    environment does after 50 steps. It holds the goal-conditioned environment instead of wrapping it, because tools
    that find `compute_reward` behind a wrapper expect a dictionary.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 25}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        self._robot = _robot(render_mode=render_mode, **kwargs)
        self.render_mode = render_mode
        self.model, self.data, self.dt = self._robot.model, self._robot.data, self._robot.dt
        self.mujoco_renderer = self._robot.mujoco_renderer
        # Where the gripper stands after a reset, to a micrometre, in world coordinates.
        self.initial_gripper_xpos: np.ndarray = self._robot.initial_gripper_xpos.copy()
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (9,), np.float64)
        self.action_space = self._robot.action_space

    @property
    def centre(self) -> np.ndarray:
        """What rotations turn about."""
        return self.initial_gripper_xpos

    @property
    def goal(self) -> np.ndarray:
        """In world coordinates."""
        return self._robot.goal

    @goal.setter
    def goal(self, position: np.ndarray) -> None:
        self._robot.goal = np.array(position, dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._robot.np_random = self.np_random
        observation, info = self._robot.reset(options=options)
        return self._seen(observation), info | {"is_success": False}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, terminated, truncated, info = self._robot.step(action)
        success = {"is_success": bool(info["is_success"])}
        return self._seen(observation), float(reward), terminated, truncated, info | success

    def render(self) -> Any:
        return None if self.render_mode is None else self._robot.render()

    def close(self) -> None:
        self._robot.close()

    def _seen(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        own = observation["observation"]
        position, velocity = own[GRIPPER_POSITION], own[GRIPPER_VELOCITY]
        return np.concatenate([position - self.centre, velocity, observation["desired_goal"] - self.centre])


def _robot(**kwargs: Any) -> Any:
    installed = version("mujoco")
    if tuple(int(part) for part in installed.split(".")[:2]) >= FIRST_UNSUPPORTED_MUJOCO:
        raise InputError(f"fetch-reach cannot run on mujoco {installed}: pip install 'mujoco<3.12'")
    _silence_notice()
    from gymnasium_robotics.envs.fetch.reach import MujocoFetchReachEnv

    return MujocoFetchReachEnv(reward_type="dense", **kwargs)


def _silence_notice() -> None:
    """Importing gymnasium-robotics prints a notice about its hand environments, which are not used here."""
    from farama_notifications import notifications

    notifications.pop("gymnasium_robotics", None)


ReachState = FetchReachEnv  # former name
