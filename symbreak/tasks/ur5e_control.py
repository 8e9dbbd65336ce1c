# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs, and so is SciPy's LAPACK.)
"""Operational-space control of a six-joint arm: joint torques that pull the end effector towards a pose.

With Jacobian J, joint inertia M, gravity and Coriolis torques `bias`, and Λ = (J M⁻¹ Jᵀ)⁻¹:

    torque = Jᵀ Λ [kp·position error ; ko·orientation error] − kv·M·(joint velocity) + bias

The position error is p* − p, the orientation error ½ Σ column_i(R) × column_i(R*) = sin(angle)·axis. The norm of each
is limited so that the arm does not drive faster than `max_speed` and `max_turn`. The simulator clips the torques to
the limits of the motors.
"""

import math
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.linalg import lapack

# Determinant of J M⁻¹ Jᵀ (not of Λ, its inverse) below which the arm counts as singular; about 5 at the reset pose.
SINGULAR_DETERMINANT = 1e-3
# Share of the largest eigenvalue below which the pseudo-inverse gives a direction up.
SINGULAR_CUTOFF = 1e-4


@dataclass(frozen=True)
class Gains:
    """Stiffness and damping of the virtual spring, in units of acceleration."""

    position: float = 300.0  # kp
    orientation: float = 300.0  # ko
    damping: float = 30.0  # kv
    max_speed: float = 1.0  # m/s
    max_turn: float = 2.0  # rad/s

    @property
    def position_limit(self) -> float:
        """Longest position error that is acted on: where spring and damper balance at `max_speed`."""
        return self.max_speed * self.damping / self.position

    @property
    def orientation_limit(self) -> float:
        """Longest orientation error that is acted on: where spring and damper balance at `max_turn`."""
        return self.max_turn * self.damping / self.orientation


PUBLIC_GAINS = Gains(position=200.0, orientation=200.0, damping=50.0)


class OperationalSpaceController:
    """Writes the motor torques for one physics step into `data.ctrl`; holds no state of its own between steps.

    Needs six joints, six motors, and position- and velocity-dependent quantities of `data` that are up to date
    (`mj_step1`). `singular` says whether the last torque needed the pseudo-inverse.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, site: int, gains: Gains) -> None:
        self.model, self.data, self.site, self.gains = model, data, site, gains
        self.singular = False
        # Fifty torques per action: work space and views into the simulator are made once.
        self.jacobian = np.zeros((6, 6))
        self._jacobian_transposed = self.jacobian.T
        self._linear, self._angular = self.jacobian[:3], self.jacobian[3:]
        self._inverse_inertia_rows = np.zeros((6, 6))
        self._factor = np.zeros((6, 6))
        self._factor_diagonal = self._factor.reshape(-1)[::7]
        self._pull = np.zeros(6)
        self._wrench = np.zeros(6)
        self._damping = np.zeros(6)
        self._turn = np.zeros((3, 3))
        self._position = data.site_xpos[site]
        self._rotation_transposed = data.site_xmat[site].reshape(3, 3).T
        self._velocity, self._bias, self._torque = data.qvel, data.qfrc_bias, data.ctrl

    def apply(self, target_position: np.ndarray, target_rotation: np.ndarray) -> None:
        """Sets `data.ctrl` to the torque of the law above for the target pose (p*, R*)."""
        model, data = self.model, self.data
        self._set_pull(target_position, target_rotation)
        mujoco.mj_jacSite(model, data, self._linear, self._angular, self.site)
        mujoco.mj_solveM(model, data, self._inverse_inertia_rows, self.jacobian)
        np.dot(self._inverse_inertia_rows, self._jacobian_transposed, out=self._factor)  # J M⁻¹ Jᵀ = Λ⁻¹
        rank = mujoco.mju_cholFactor(self._factor, 0.0)
        # Product of the factor's diagonal, squared, is the determinant: no second decomposition.
        self.singular = rank < 6 or math.prod(self._factor_diagonal.tolist()) ** 2 < SINGULAR_DETERMINANT
        if self.singular:
            mobility = np.dot(self._inverse_inertia_rows, self._jacobian_transposed)  # the factor has overwritten it
            self._wrench[:] = pseudo_solve(mobility, self._pull)
        else:
            mujoco.mju_cholSolve(self._wrench, self._factor, self._pull)
        mujoco.mj_mulM(model, data, self._damping, self._velocity)
        torque = self._torque
        np.dot(self._wrench, self.jacobian, out=torque)
        self._damping *= self.gains.damping
        torque -= self._damping
        torque += self._bias

    def _set_pull(self, target_position: np.ndarray, target_rotation: np.ndarray) -> None:
        """Limited errors times their gains. Scalars: on three numbers they are faster than arrays."""
        gains, pull = self.gains, self._pull
        goal_x, goal_y, goal_z = target_position.tolist()
        here_x, here_y, here_z = self._position.tolist()
        x, y, z = goal_x - here_x, goal_y - here_y, goal_z - here_z
        scale = gains.position * _shrink(math.sqrt(x * x + y * y + z * z), gains.position_limit)
        pull[0], pull[1], pull[2] = scale * x, scale * y, scale * z
        # R* Rᵀ has the sum of the columns' cross products as the vector of its antisymmetric part.
        np.dot(target_rotation, self._rotation_transposed, out=self._turn)
        (_, xy, xz), (yx, _, yz), (zx, zy, _) = self._turn.tolist()
        x, y, z = 0.5 * (zy - yz), 0.5 * (xz - zx), 0.5 * (yx - xy)
        scale = gains.orientation * _shrink(math.sqrt(x * x + y * y + z * z), gains.orientation_limit)
        pull[3], pull[4], pull[5] = scale * x, scale * y, scale * z


def _shrink(norm: float, limit: float) -> float:
    """Factor that brings a vector of that norm to at most the limit."""
    return limit / norm if norm > limit else 1.0


def pseudo_solve(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Pseudo-inverse of a positive semi-definite matrix times a vector; directions below the cutoff give nothing."""
    # LAPACK without NumPy's wrapper: half the time, and near a singularity it is the largest part of a step.
    values, vectors, _ = lapack.dsyev(matrix)  # ascending
    dropped = int(values.searchsorted(SINGULAR_CUTOFF * values[-1], side="right"))
    kept = vectors[:, dropped:]
    return kept @ ((vector @ kept) / values[dropped:])
