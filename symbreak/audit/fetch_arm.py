# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs.)
"""The Fetch arm brought to the image of a state by inverse kinematics.

The nine numbers of the reach task (gripper position and velocity, goal) do not fix the arm's joints. An image moves the
gripper where the rotation puts it, with the hand's orientation and turning rate as they were, by the smallest motion of
the seven arm joints; the same for the joint velocities. Under the identity nothing moves, so the audit's control is
exact; under a rotation the image is exact in the nine numbers (to 1e-9 m) and one of many in the joints.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mujoco
import numpy as np

from symbreak.audit.integration import IntegrationState
from symbreak.audit.simulators import Simulator
from symbreak.errors import InputError
from symbreak.tasks.fetch import FetchReachEnv

ARM = ("shoulder_pan", "shoulder_lift", "upperarm_roll", "elbow_flex", "forearm_roll", "wrist_flex", "wrist_roll")
TOLERANCE = 1e-9  # metres and radians
ITERATIONS = 60


class FetchSimulator(Simulator):
    """The Fetch reach task."""

    how = "images are reached by inverse kinematics to within 1e-9 m; joints that the observation hides are free"

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        if not isinstance(env.unwrapped, FetchReachEnv):
            raise InputError("the audit knows the Fetch arm only as the task fetch-reach: use its environment")
        self._bare = env.unwrapped
        self._model, self._data = self._bare.model, self._bare.data
        self._whole = IntegrationState(self._model, self._data)
        joints = [self._model.joint(f"robot0:{name}_joint").id for name in ARM]
        self._angles, self._rates = self._model.jnt_qposadr[joints], self._model.jnt_dofadr[joints]
        self._site = self._model.site("robot0:grip").id
        self._jacobian = np.zeros((6, self._model.nv))

    def capture(self) -> tuple[np.ndarray, np.ndarray]:
        return self._whole.read(), np.copy(self._bare.goal)

    def place(self, state: tuple[np.ndarray, np.ndarray]) -> None:
        whole, goal = state
        self._whole.write(whole)
        self._bare.goal = np.copy(goal)

    def image(self, state: tuple[np.ndarray, np.ndarray], observation: np.ndarray) -> Any | None:
        position, velocity, goal = np.split(observation, 3)
        self.place(state)
        data = self._data
        orientation = data.site_xmat[self._site].reshape(3, 3).copy()
        turning = self._arm_jacobian_times(data.qvel)[3:]
        if not self._reach(position + self._bare.centre, orientation):
            return None
        # What the environment shows is metres per control step, not per second.
        twist = np.concatenate([velocity / self._bare.dt, turning])
        lacking = twist - self._arm_jacobian_times(data.qvel)
        data.qvel[self._rates] += np.linalg.lstsq(self._jacobian[:, self._rates], lacking, rcond=None)[0]
        moved = self._whole.moved(state[0], data.qpos.copy(), data.qvel.copy())
        return moved, goal + self._bare.centre

    def hindrance(self, state: tuple[np.ndarray, np.ndarray], image: tuple[np.ndarray, np.ndarray]) -> str:
        return self._whole.hindrance(state[0], image[0])

    def _arm_jacobian_times(self, rates: np.ndarray) -> np.ndarray:
        mujoco.mj_jacSite(self._model, self._data, self._jacobian[:3], self._jacobian[3:], self._site)
        return self._jacobian @ rates

    def _reach(self, position: np.ndarray, orientation: np.ndarray) -> bool:
        """Damped least squares from where the arm is; True where position and orientation are met."""
        data, model = self._data, self._model
        for _ in range(ITERATIONS):
            turn = np.zeros(3)
            quaternion = np.zeros(4)
            mujoco.mju_mat2Quat(quaternion, (orientation @ data.site_xmat[self._site].reshape(3, 3).T).ravel())
            mujoco.mju_quat2Vel(turn, quaternion, 1.0)
            error = np.concatenate([position - data.site_xpos[self._site], turn])
            if np.abs(error).max() < TOLERANCE:
                return True
            self._arm_jacobian_times(data.qvel)
            arm = self._jacobian[:, self._rates]
            damping = 1e-2 * (error @ error) * np.eye(6)  # vanishes with the error, so convergence stays quadratic
            data.qpos[self._angles] += arm.T @ np.linalg.solve(arm @ arm.T + damping + 1e-12 * np.eye(6), error)
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
        return False
