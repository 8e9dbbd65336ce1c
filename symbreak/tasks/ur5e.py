# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs.)
"""UR5e reach: bring the end effector of a torque-controlled arm to a random position and orientation.

Observation (24, float64), every vector in world axes:

| field | indices | what |
|---|---|---|
| position | 0:3 | end effector, relative to the workspace centre |
| rotation | 3:9 | its rot6d: first two columns of its rotation matrix |
| velocity | 9:12 | its linear velocity, m/s |
| angular_velocity | 12:15 | its angular velocity, rad/s |
| goal_position | 15:18 | relative to the workspace centre |
| goal_rotation | 18:24 | rot6d of the goal |

A rotation acts about a point; that point, the workspace centre, is where the end effector stands after a reset.

Action (6, in [-1, 1]): translation times 0.05 m and rotation vector times 0.2618 rad, starting from the current pose,
in axes of the end effector (`frame="end_effector"`, which no rotation of the world changes) or of the world
(`frame="world"`, two vectors). An action lasts 0.1 s: 50 physics steps, each with its own torque.

Reward: minus (distance in m + 0.19098621461 · angle in rad), so that 15° weigh as much as 0.05 m. An episode never
terminates, and the class alone never truncates either: the registered environment has `max_episode_steps=HORIZON`;
whoever constructs the class wraps it in `gymnasium.wrappers.TimeLimit`.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np

from symbreak.errors import InputError
from symbreak.tasks.offscreen import OffscreenCamera
from symbreak.tasks.ur5e_control import Gains, OperationalSpaceController
from symbreak.tasks.ur5e_kinematics import InverseKinematics, angle_between, columns_of, exponential, rotation_of

HORIZON = 100
PHYSICS_STEPS = 50  # per action, of 0.002 s
TRANSLATION_SCALE = 0.05  # m per unit of action
ROTATION_SCALE = 0.2618  # rad per unit of action
ANGLE_WEIGHT = 0.19098621461  # m per rad
GOAL_HALF_SIZE = 0.2  # m
GOAL_MIN_HEIGHT = 0.05  # m
SUCCESS_DISTANCE = 0.05  # m
SUCCESS_ANGLE = math.radians(15.0)

FIELDS = {
    "position": slice(0, 3),
    "rotation": slice(3, 9),
    "velocity": slice(9, 12),
    "angular_velocity": slice(12, 15),
    "goal_position": slice(15, 18),
    "goal_rotation": slice(18, 24),
}

# What no arm of this reach and power exceeds: positions 2 m, columns 1, velocities 100 m/s and 1000 rad/s.
_BOUND = np.repeat([2.0, 1.01, 1.01, 100.0, 1000.0, 2.0, 1.01, 1.01], 3)
_WHOLE_STATE = mujoco.mjtState.mjSTATE_INTEGRATION.value


class UR5eReachEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """The task of the module's docstring. `info` says `distance`, `angle`, `is_success`, and after a step whether in
    its physics steps the arm touched something (`contact`), sat on a joint limit (`limit`) or was `singular`: the
    places where the rotation symmetry breaks. All of the state, goal included, is in `data`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        render_mode: str | None = None,
        frame: str = "end_effector",  # or "world"
        goal_orientations: str = "near",  # up to 90° from reset; or "all" of SO(3)
        gains: Gains = Gains(),  # noqa: B008 (frozen)
        width: int = 640,
        height: int = 480,
    ) -> None:
        _require("render_mode", render_mode, (None, "rgb_array"))
        _require("frame", frame, ("end_effector", "world"))
        _require("goal_orientations", goal_orientations, ("near", "all"))
        self.render_mode, self.frame, self.goal_orientations = render_mode, frame, goal_orientations
        self._picture_size = (width, height)
        self._camera: OffscreenCamera | None = None

        self.model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_name("ur5e.xml")))
        self.data = mujoco.MjData(self.model)
        self._site = self.model.site("end_effector").id
        self._position = self.data.site_xpos[self._site]  # a view
        self._rotation = self.data.site_xmat[self._site].reshape(3, 3)  # a view
        self._controller = OperationalSpaceController(self.model, self.data, self._site, gains)
        self._inverse_kinematics = InverseKinematics(self.model, self._site)

        self._to_reset_pose()
        self.centre = self._position.copy()
        self._reset_rotation = self._rotation.copy()
        self.observation_space = gymnasium.spaces.Box(-_BOUND, _BOUND, dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._to_reset_pose()
        self.set_goal(*self._draw_goal())
        return self.observation(), self._progress()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        model, data, controller = self.model, self.data, self._controller
        mujoco.mj_step1(model, data)  # whoever set the state from outside need not think of it
        target_position, target_rotation = self.target(action)
        contact = limit = singular = False
        for _ in range(PHYSICS_STEPS):
            controller.apply(target_position, target_rotation)
            mujoco.mj_step2(model, data)
            mujoco.mj_step1(model, data)
            contact = contact or data.ncon > 0
            limit = limit or data.nl > 0
            singular = singular or controller.singular
        info = self._progress() | {"contact": contact, "limit": limit, "singular": singular}
        reward = -(info["distance"] + ANGLE_WEIGHT * info["angle"])
        return self.observation(), reward, False, False, info

    def target(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pose (p*, R*) an action asks for from here; actions outside the box are clipped."""
        action = np.asarray(action, dtype=np.float64)
        if action.shape != (6,):
            raise InputError(f"action of UR5e reach has shape {action.shape}, must be (6,): 3 translation, 3 rotation")
        translation = TRANSLATION_SCALE * action[:3].clip(-1.0, 1.0)
        turn = exponential(ROTATION_SCALE * action[3:].clip(-1.0, 1.0))
        if self.frame == "world":
            return self._position + translation, turn @ self._rotation
        return self._position + self._rotation @ translation, self._rotation @ turn

    def observation(self) -> np.ndarray:
        """The 24 numbers of the module's docstring, at the current state of `data` (after `mj_step1`)."""
        jacobian = self._controller.jacobian
        mujoco.mj_jacSite(self.model, self.data, jacobian[:3], jacobian[3:], self._site)
        goal_position, goal_rotation = self.goal
        return np.concatenate(
            [
                self._position - self.centre,
                columns_of(self._rotation),
                jacobian @ self.data.qvel,
                goal_position - self.centre,
                columns_of(goal_rotation),
            ]
        )

    @property
    def goal(self) -> tuple[np.ndarray, np.ndarray]:
        """Position in world coordinates and rotation matrix of the goal."""
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, self.data.mocap_quat[0])
        return self.data.mocap_pos[0].copy(), rotation.reshape(3, 3)

    def set_goal(self, position: np.ndarray, rotation: np.ndarray) -> None:
        _write_goal(self.data, position, rotation)
        mujoco.mj_step1(self.model, self.data)  # moves the goal's picture along

    def get_state(self) -> np.ndarray:
        """Everything the future depends on, goal included, as one vector. Only the random stream is not in it."""
        state = np.empty(mujoco.mj_stateSize(self.model, _WHOLE_STATE))
        mujoco.mj_getState(self.model, self.data, state, _WHOLE_STATE)
        return state

    def set_state(self, state: np.ndarray) -> None:
        """After this the environment continues bit for bit as it did after `get_state`."""
        mujoco.mj_setState(self.model, self.data, state, _WHOLE_STATE)
        mujoco.mj_step1(self.model, self.data)

    def solve_pose(self, position: np.ndarray, rotation: np.ndarray, start: np.ndarray) -> np.ndarray | None:
        """Joint angles within the limits, near `start`, for this pose in world coordinates; None if there are none."""
        return self._inverse_kinematics.solve(position, rotation, start)

    def state_from_observation(self, observation: np.ndarray, base: np.ndarray | None = None) -> np.ndarray | None:
        """A state with that observation, or None where the arm cannot realise it.

        Six joints, six dimensions of pose: the observation fixes the joints up to the posture, which is taken near that
        of the state `base` (default: the current one). Torques and the solver's warm start are cleared.
        """
        data, kinematics = mujoco.MjData(self.model), self._inverse_kinematics
        base = self.get_state() if base is None else base
        mujoco.mj_setState(self.model, data, base, _WHOLE_STATE)
        position = observation[FIELDS["position"]] + self.centre
        rotation = rotation_of(observation[FIELDS["rotation"]])
        angles = kinematics.solve(position, rotation, data.qpos)
        if angles is None:
            return None
        kinematics.pose_error(position, rotation, angles)
        twist = observation[9:15]
        rates = np.linalg.lstsq(kinematics.jacobian, twist)[0]
        if np.linalg.norm(kinematics.jacobian @ rates - twist) > 1e-9 * (1.0 + np.linalg.norm(twist)):
            return None
        data.qpos[:], data.qvel[:], data.ctrl[:], data.qacc_warmstart[:] = angles, rates, 0.0, 0.0
        goal_rotation = rotation_of(observation[FIELDS["goal_rotation"]])
        _write_goal(data, observation[FIELDS["goal_position"]] + self.centre, goal_rotation)
        state = np.empty_like(base)
        mujoco.mj_getState(self.model, data, state, _WHOLE_STATE)
        return state

    def set_from_observation(self, observation: np.ndarray, base: np.ndarray | None = None) -> bool:
        """Sets the state of `state_from_observation`; False, and nothing changed, where there is none."""
        state = self.state_from_observation(observation, base)
        if state is not None:
            self.set_state(state)
        return state is not None

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if self._camera is None:
            self._camera = OffscreenCamera(self.model, "view", *self._picture_size)
        return self._camera.picture(self.data)

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
            self._camera = None

    def _to_reset_pose(self) -> None:
        mujoco.mj_resetDataKeyframe(self.model, self.data, self.model.key("reset").id)
        mujoco.mj_step1(self.model, self.data)

    def _draw_goal(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.centre - GOAL_HALF_SIZE, self.centre + GOAL_HALF_SIZE
        low[2] = max(low[2], GOAL_MIN_HEIGHT)
        position = self.np_random.uniform(low, high)
        direction = self.np_random.normal(size=4)
        if self.goal_orientations == "all":
            rotation = np.zeros(9)  # a normal 4-vector, normalised, is a uniformly distributed unit quaternion
            mujoco.mju_quat2Mat(rotation, direction / np.linalg.norm(direction))
            return position, rotation.reshape(3, 3)
        axis = direction[:3] / np.linalg.norm(direction[:3])
        return position, exponential(axis * self.np_random.uniform(0.0, np.pi / 2)) @ self._reset_rotation

    def _progress(self) -> dict[str, Any]:
        goal_position, goal_rotation = self.goal
        distance = float(np.linalg.norm(goal_position - self._position))
        angle = angle_between(self._rotation, goal_rotation)
        return {
            "distance": distance,
            "angle": angle,
            "is_success": distance < SUCCESS_DISTANCE and angle < SUCCESS_ANGLE,
        }


def breaking_shares(
    env: UR5eReachEnv, episodes: int, seed: int = 0, policy: Callable[[np.ndarray], np.ndarray] | None = None
) -> dict[str, float]:
    """Shares of actions (`contact`) and of episodes (`contact_episodes`) in which each cause of breaking occurred.

    Without a policy actions are uniform in the box.
    """
    rng = np.random.default_rng(seed)
    causes = ("contact", "limit", "singular")
    seen = np.zeros((episodes, HORIZON, len(causes)), dtype=bool)
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        for step in range(HORIZON):
            action = rng.uniform(-1.0, 1.0, 6) if policy is None else policy(observation)
            observation, _, _, _, info = env.step(action)
            seen[episode, step] = [info[cause] for cause in causes]
    of_actions = dict(zip(causes, seen.mean((0, 1)).tolist(), strict=True))
    of_episodes = seen.any(1).mean(0).tolist()
    return of_actions | {f"{cause}_episodes": share for cause, share in zip(causes, of_episodes, strict=True)}


def _write_goal(data: mujoco.MjData, position: np.ndarray, rotation: np.ndarray) -> None:
    data.mocap_pos[0] = position
    mujoco.mju_mat2Quat(data.mocap_quat[0], np.ascontiguousarray(rotation).reshape(9))


def _require(name: str, value: object, allowed: tuple) -> None:
    if value not in allowed:
        raise InputError(f"{name}={value!r} of UR5e reach is not known, use one of {', '.join(map(repr, allowed))}")
