"""The Ant seen through its exact symmetry: the torso's rotation as a matrix.

Hopper, Swimmer and the paper's Ant are Gymnasium's environments unchanged; `symbreak.tasks.registry` names them.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

# No contact forces in the observation and no cost for them: 27 numbers, as in the older versions of the environment.
ANT_OPTIONS = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
QUATERNION = slice(1, 5)  # scalar first, within the 27 numbers


def rotation_matrix(quaternion: np.ndarray) -> np.ndarray:
    """The rotation of a quaternion (scalar first) of any length but zero."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


class RotationMatrixObservation(gym.ObservationWrapper, RecordConstructorArgs):
    """The Ant's 27 numbers with the torso's quaternion replaced by its rotation matrix, row by row: 32 numbers.

    A quarter turn has order four on the matrix; on the quaternion, which is only given up to sign, it would have
    order eight.
    """

    def __init__(self, env: gym.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (27 - 4 + 9,), np.float64)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        before, after = observation[: QUATERNION.start], observation[QUATERNION.stop :]
        return np.concatenate([before, rotation_matrix(observation[QUATERNION]).ravel(), after])
