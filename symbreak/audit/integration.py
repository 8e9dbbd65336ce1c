# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs.)
"""The whole integration state of a MuJoCo model: read, written, and judged by its limits and contacts."""

from __future__ import annotations

import mujoco
import numpy as np

WHOLE_STATE = mujoco.mjtState.mjSTATE_INTEGRATION.value
# How much further than the visited state (whose constraints are soft) an image may lie beyond a joint limit or inside
# the ground, in radians or metres.
SLACK = 1e-3


class IntegrationState:
    """What all simulators on MuJoCo share."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self.model, self.data = model, data
        self._limited = np.flatnonzero(model.jnt_limited)
        self._limited = self._limited[model.jnt_type[self._limited] >= mujoco.mjtJoint.mjJNT_SLIDE.value]
        # What visited states exceed themselves, by identity; the state is kept so that its identity stays its own.
        self._own: dict[int, tuple[np.ndarray, dict[str, float]]] = {}
        self._names = [f"{model.joint(joint).name} beyond its limit" for joint in self._limited]

    def read(self) -> np.ndarray:
        state = np.empty(mujoco.mj_stateSize(self.model, WHOLE_STATE))
        mujoco.mj_getState(self.model, self.data, state, WHOLE_STATE)
        return state

    def write(self, state: np.ndarray) -> None:
        """Afterwards a step depends on the state alone: derived quantities are fresh, the solver starts from zero."""
        mujoco.mj_setState(self.model, self.data, state, WHOLE_STATE)
        self.data.time = 0.0
        self.data.ctrl[:] = 0.0
        mujoco.mj_forward(self.model, self.data)
        self.data.qacc_warmstart[:] = 0.0

    def moved(self, state: np.ndarray, positions: np.ndarray, velocities: np.ndarray) -> np.ndarray:
        """The state with other positions and velocities; these follow the time in the vector."""
        image = state.copy()
        end = 1 + positions.size
        image[1:end], image[end : end + velocities.size] = positions, velocities
        return image

    def excess(self) -> dict[str, float]:
        """How far the bodies, where they are now, lie beyond each joint limit and inside one another."""
        angles = self.data.qpos[self.model.jnt_qposadr[self._limited]]
        low, high = self.model.jnt_range[self._limited].T
        beyond = np.maximum(np.maximum(low - angles, angles - high), 0.0)
        named = dict(zip(self._names, beyond.tolist(), strict=True))
        depth = -self.data.contact.dist.min(initial=0.0) if self.data.ncon else 0.0
        return named | {"bodies inside one another": float(depth)}

    def hindrance(self, state: np.ndarray, image: np.ndarray) -> str:
        """What keeps the image from being visited like the state itself; empty where nothing does."""
        if id(state) not in self._own:
            self.write(state)
            self._own[id(state)] = (state, self.excess())
        self.write(image)
        return first_hindrance(self._own[id(state)][1], self.excess())


def first_hindrance(own: dict[str, float], other: dict[str, float]) -> str:
    """The largest excess, if it is larger by more than `SLACK` than any of a visited state's own of its kind."""
    # A mirrored joint takes the excess of its partner along, so limits are compared as a whole.
    limits = max((value for name, value in own.items() if "limit" in name), default=0.0)
    allowed = {name: (limits if "limit" in name else own[name]) + SLACK for name in own}
    worst = max(other, key=lambda name: other[name] - allowed[name])
    return worst if other[worst] > allowed[worst] else ""
