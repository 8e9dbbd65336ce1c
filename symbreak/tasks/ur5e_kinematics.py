# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs.)
"""Rotations, and joint angles that realise an end-effector pose.

The observation names an orientation by the first two columns of its rotation matrix (rot6d): under a rotation g of the
world R becomes gR, so each column turns like a vector. Rows would not.
"""

import math
from collections.abc import Iterator

import mujoco
import numpy as np


def columns_of(rotation: np.ndarray) -> np.ndarray:
    """The first two columns of a rotation matrix, one after the other: (6,)."""
    return rotation[:, :2].T.reshape(6)


def rotation_of(columns: np.ndarray) -> np.ndarray:
    """The rotation matrix with these first two columns, after making them orthonormal."""
    first = columns[:3] / np.linalg.norm(columns[:3])
    second = columns[3:] - first * (first @ columns[3:])
    second = second / np.linalg.norm(second)
    return np.stack([first, second, np.cross(first, second)], axis=1)


def exponential(vector: np.ndarray) -> np.ndarray:
    """Exp: the rotation about the vector's direction by its length in radians."""
    angle = float(np.linalg.norm(vector))
    axis = vector / angle if angle > 0 else np.array([1.0, 0.0, 0.0])
    quaternion, matrix = np.zeros(4), np.zeros(9)
    mujoco.mju_axisAngle2Quat(quaternion, axis, angle)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)


def logarithm(rotation: np.ndarray) -> np.ndarray:
    """The inverse of `exponential`, of length at most π."""
    quaternion, vector = np.zeros(4), np.zeros(3)
    mujoco.mju_mat2Quat(quaternion, rotation.reshape(9))
    mujoco.mju_quat2Vel(vector, quaternion, 1.0)
    return vector


def angle_between(first: np.ndarray, second: np.ndarray) -> float:
    """Geodesic distance of two rotations in radians, accurate at both ends (the arc cosine alone is not)."""
    turn = first.T @ second
    sine = 0.5 * math.hypot(turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1])
    cosine = 0.5 * (turn[0, 0] + turn[1, 1] + turn[2, 2] - 1.0)
    return math.atan2(sine, cosine)


class InverseKinematics:
    """Damped least squares (Levenberg-Marquardt), on its own copy of the simulator's data.

    The arm has up to eight postures for a pose; the one found is that in whose basin the start lies. Joints turn twice
    around, so any angle is brought into its range by whole turns, as near to the start as the range allows.
    """

    tolerance = 1e-11
    iterations = 80
    restarts = 24

    def __init__(self, model: mujoco.MjModel, site: int) -> None:
        self.model, self.site = model, site
        self.data = mujoco.MjData(model)
        self.jacobian = np.zeros((6, 6))
        self._low, self._high = model.jnt_range.T.copy()

    def solve(self, position: np.ndarray, rotation: np.ndarray, start: np.ndarray) -> np.ndarray | None:
        """Joint angles inside their ranges whose pose differs by less than the tolerance, or None if none is found.

        The answer depends on the arguments alone. Contacts are not looked at.
        """
        for guess in self._guesses(start):
            angles = self._descend(position, rotation, guess)
            if angles is not None:
                angles = self._by_whole_turns(angles, start)
                if np.all((angles >= self._low) & (angles <= self._high)):
                    return angles
        return None

    def pose_error(self, position: np.ndarray, rotation: np.ndarray, angles: np.ndarray) -> np.ndarray:
        """[p* − p ; rotation vector from R to R*] at these joint angles; refreshes the Jacobian."""
        data = self.data
        data.qpos[:] = angles
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        mujoco.mj_jacSite(self.model, data, self.jacobian[:3], self.jacobian[3:], self.site)
        turn = rotation @ data.site_xmat[self.site].reshape(3, 3).T
        return np.concatenate([position - data.site_xpos[self.site], logarithm(turn)])

    def _guesses(self, start: np.ndarray) -> Iterator[np.ndarray]:
        yield np.array(start, dtype=float)
        # The same restarts for every question, so that the answer does not depend on what was asked before.
        yield from np.random.default_rng(0).uniform(-np.pi, np.pi, (self.restarts, 6))

    def _descend(self, position: np.ndarray, rotation: np.ndarray, angles: np.ndarray) -> np.ndarray | None:
        error = self.pose_error(position, rotation, angles)
        jacobian = self.jacobian.copy()
        cost, damping = error @ error, 1e-3
        for _ in range(self.iterations):
            if math.sqrt(cost) < self.tolerance:
                return angles
            step = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + damping * np.eye(6), error)
            trial_error = self.pose_error(position, rotation, angles + step)
            trial_cost = trial_error @ trial_error
            if trial_cost < cost:
                angles, error, cost = angles + step, trial_error, trial_cost
                jacobian = self.jacobian.copy()
                damping = max(0.1 * damping, 1e-15)
            else:
                damping = 10.0 * damping
        return None

    def _by_whole_turns(self, angles: np.ndarray, start: np.ndarray) -> np.ndarray:
        turn = 2.0 * np.pi
        near = angles - turn * np.round((angles - start) / turn)
        near = near - turn * np.ceil(np.maximum(near - self._high, 0.0) / turn)
        return near + turn * np.ceil(np.maximum(self._low - near, 0.0) / turn)
