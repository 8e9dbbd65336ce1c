# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs.)
"""MuJoCo environments set exactly: the whole integration state, with the solver's warm start cleared.

Gymnasium's robots show positions without the first one or two (the place on the floor), then velocities; the Ant of
the exact symmetry shows a rotation matrix in place of the torso's quaternion. Both maps can be inverted, so the image
of an observation fixes the image of the state but for the place on the floor, which stays. Velocities are taken
before the environment clips them for show.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mujoco
import numpy as np

from symbreak.audit.integration import IntegrationState
from symbreak.audit.simulators import Simulator, layers
from symbreak.errors import InputError
from symbreak.tasks.locomotion import QUATERNION, RotationMatrixObservation, rotation_matrix


class MujocoSimulator(Simulator):
    """Gymnasium's MuJoCo robots whose observation consists of positions and velocities."""

    how = "states are set exactly, joint by joint"

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        bare: Any = env.unwrapped
        structure = dict(bare.observation_structure)
        self._skipped = int(structure.pop("skipped_qpos", 0))
        shown = structure.pop("qpos", 0), structure.pop("qvel", 0)
        others = [name for name, size in structure.items() if size]
        self._whole = IntegrationState(bare.model, bare.data)
        if others or shown != (bare.model.nq - self._skipped, bare.model.nv):
            raise InputError(
                f"{type(bare).__name__} shows {', '.join(others) or 'only parts of its state'}, from which no state "
                "can be made: leave it out of the observation, or add state_from_observation(observation)"
            )
        self._as_matrix = any(isinstance(layer, RotationMatrixObservation) for layer in layers(env))
        self.reset(seed=0)
        if self.observation().shape != self._shown.shape or not np.allclose(self.observation(), self._shown, atol=1e-6):
            raise InputError(
                f"a wrapper around {type(bare).__name__} changes the observation in a way the audit cannot undo: "
                "remove it, or add state_from_observation(observation) to it"
            )

    def observation(self) -> np.ndarray:
        data = self._whole.data
        positions = data.qpos[self._skipped :]
        if self._as_matrix:
            before, after = positions[: QUATERNION.start], positions[QUATERNION.stop :]
            positions = np.concatenate([before, rotation_matrix(positions[QUATERNION]).ravel(), after])
        return np.concatenate([positions, data.qvel])

    def capture(self) -> np.ndarray:
        return self._whole.read()

    def place(self, state: np.ndarray) -> None:
        self._whole.write(state)

    def image(self, state: np.ndarray, observation: np.ndarray) -> np.ndarray | None:
        model = self._whole.model
        positions, velocities = observation[: -model.nv], observation[-model.nv :]
        if self._as_matrix:
            start, stop = QUATERNION.start, QUATERNION.start + 9
            matrix = positions[start:stop].reshape(3, 3)
            if np.linalg.det(matrix) < 0.5 or np.abs(matrix @ matrix.T - np.eye(3)).max() > 1e-6:
                return None  # no rotation: a body cannot be turned inside out
            quaternion = np.zeros(4)
            mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(matrix).ravel())
            positions = np.concatenate([positions[:start], quaternion, positions[stop:]])
        kept = state[1 : 1 + self._skipped]
        return self._whole.moved(state, np.concatenate([kept, positions]), velocities)

    def hindrance(self, state: np.ndarray, image: np.ndarray) -> str:
        return self._whole.hindrance(state, image)
