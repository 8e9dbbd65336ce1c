"""UR5e reach: the model is the table, the torque is the law, the observation turns with the world."""

import functools
import json
import os
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from symbreak.errors import EnvironmentFault, InputError
from symbreak.tasks import offscreen, ur5e
from symbreak.tasks.ur5e import FIELDS, HORIZON, UR5eReachEnv, breaking_shares
from symbreak.tasks.ur5e_control import PUBLIC_GAINS, Gains, pseudo_solve
from symbreak.tasks.ur5e_kinematics import angle_between, columns_of, exponential, logarithm, rotation_of

IDENTITY = (1, 0, 0, 0)
# body, position in the parent, quaternion, joint axis, mass, centre of mass, quaternion of the inertia, inertia
TABLE = (
    ("base", (0, 0, 0), IDENTITY, None, 4.0, (0, 0, 0), IDENTITY, (0.00443333156, 0.00443333156, 0.0072)),
    ("shoulder", (0, 0, 0.163), IDENTITY, "z", 3.7, (0, 0, 0), IDENTITY, (0.0102675, 0.0102675, 0.00666)),
    ("upper_arm", (0, 0.138, 0), (1, 0, 1, 0), "y", 8.393, (0, 0, 0.2125), IDENTITY, (0.133886, 0.133886, 0.0151074)),
    ("forearm", (0, -0.131, 0.425), IDENTITY, "y", 2.275, (0, 0, 0.196), IDENTITY, (0.0311796, 0.0311796, 0.004095)),
    ("wrist_1", (0, 0, 0.392), (1, 0, 1, 0), "y", 1.219, (0, 0.127, 0), IDENTITY, (0.0025599, 0.0025599, 0.0021942)),
    ("wrist_2", (0, 0.127, 0), IDENTITY, "z", 1.219, (0, 0, 0.1), IDENTITY, (0.0025599, 0.0025599, 0.0021942)),
    (
        *("wrist_3", (0, 0, 0.1), IDENTITY, "y", 0.1889, (0, 0.0771683, 0), (1, 0, 0, 1)),
        (0.000132134, 0.0000990863, 0.0000990863),
    ),
    ("tool", (0, 0.1, 0), (-1, 1, 0, 0), None, 0.0, (0, 0, 0), IDENTITY, (0, 0, 0)),
)
SITE = ((0, 0, 0.05), (0, 0.7071068, -0.7071068, 0))
# body, kind, radius, half-length, position, quaternion
COLLISION = (
    ("shoulder", "CAPSULE", 0.06, 0.06, (0, 0, -0.04), IDENTITY),
    ("upper_arm", "CAPSULE", 0.06, 0.06, (0, -0.04, 0), (1, 1, 0, 0)),
    ("upper_arm", "CAPSULE", 0.05, 0.2, (0, 0, 0.2), IDENTITY),
    ("forearm", "CAPSULE", 0.055, 0.06, (0, 0.08, 0), (1, 1, 0, 0)),
    ("forearm", "CAPSULE", 0.038, 0.19, (0, 0, 0.2), IDENTITY),
    ("wrist_1", "CAPSULE", 0.04, 0.07, (0, 0.05, 0), (1, 1, 0, 0)),
    ("wrist_2", "CAPSULE", 0.04, 0.06, (0, 0, 0.04), IDENTITY),
    ("wrist_2", "CAPSULE", 0.04, 0.04, (0, 0.02, 0.1), (1, 1, 0, 0)),
    ("wrist_3", "CYLINDER", 0.04, 0.02, (0, 0.08, 0), (1, 1, 0, 0)),
)


def matrix_of(quaternion):
    w, *vector = np.asarray(quaternion, float) / np.linalg.norm(quaternion)
    x, y, z = vector
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * cross + 2 * cross @ cross


def about(axis, angle):
    first, second = {"y": (2, 0), "z": (0, 1)}[axis]
    rotation = np.eye(3)
    rotation[first, first] = rotation[second, second] = np.cos(angle)
    rotation[second, first], rotation[first, second] = np.sin(angle), -np.sin(angle)
    return rotation


def forward_kinematics(angles, shoulder_height=0.163):
    """End-effector pose from the table alone, without MuJoCo."""
    position, rotation, joints = np.zeros(3), np.eye(3), iter(angles)
    for name, offset, quaternion, axis, *_ in TABLE:
        offset = (0, 0, shoulder_height) if name == "shoulder" else offset
        position, rotation = position + rotation @ np.array(offset, float), rotation @ matrix_of(quaternion)
        if axis is not None:
            rotation = rotation @ about(axis, next(joints))
    return position + rotation @ np.array(SITE[0]), rotation @ matrix_of(SITE[1])


def random_rotation(rng, smallest=0.2, largest=np.pi):
    axis = rng.normal(size=3)
    return exponential(axis / np.linalg.norm(axis) * rng.uniform(smallest, largest))


def turned(observation, rotation):
    """The observation consists of eight vectors, all of which a rotation of the world turns."""
    return (observation.reshape(8, 3) @ rotation.T).reshape(24)


def towards_goal(observation, frame="end_effector"):
    """Scripted controller: the pose error in the axes of the action's frame, as far as one action goes."""
    here, goal = rotation_of(observation[FIELDS["rotation"]]), rotation_of(observation[FIELDS["goal_rotation"]])
    axes = here if frame == "end_effector" else np.eye(3)
    translation = axes.T @ (observation[FIELDS["goal_position"]] - observation[FIELDS["position"]])
    turn = axes.T @ logarithm(goal @ here.T)
    return np.concatenate([translation / ur5e.TRANSLATION_SCALE, turn / ur5e.ROTATION_SCALE]).clip(-1, 1)


def share_reached(env, policy, goals):
    reached = 0
    for seed in range(goals):
        observation, info = env.reset(seed=seed)
        for _ in range(HORIZON):
            observation, _, _, _, info = env.step(policy(observation))
            if info["is_success"]:
                break
        reached += info["is_success"]
    return reached / goals


@pytest.fixture
def env():
    made = UR5eReachEnv()
    made.reset(seed=0)
    yield made
    made.close()


def place(env, angles, rates=0.0):
    env.data.qpos[:], env.data.qvel[:] = angles, rates
    mujoco.mj_step1(env.model, env.data)


# the model


def test_forward_kinematics_is_that_of_the_table(env):
    rng = np.random.default_rng(0)
    worst = worst_when_one_number_is_wrong = 0.0
    for angles in rng.uniform(-2 * np.pi, 2 * np.pi, (1000, 6)):
        place(env, angles)
        position, rotation = env.data.site_xpos[0], env.data.site_xmat[0].reshape(3, 3)
        expected_position, expected_rotation = forward_kinematics(angles)
        worst = max(worst, abs(position - expected_position).max(), abs(rotation - expected_rotation).max())
        wrong_position, _ = forward_kinematics(angles, shoulder_height=0.1625)
        worst_when_one_number_is_wrong = max(worst_when_one_number_is_wrong, abs(position - wrong_position).max())
    assert worst < 1e-9
    assert worst_when_one_number_is_wrong > 1e-4


def test_the_model_has_the_masses_limits_and_capsules_of_the_table(env):
    model = env.model
    assert model.body_mass.sum() == pytest.approx(20.9949, abs=1e-12)
    for name, position, quaternion, _, mass, centre, inertia_quaternion, inertia in TABLE:
        body = model.body(name)
        assert body.mass[0] == mass
        np.testing.assert_allclose(body.pos, position, atol=1e-12)
        np.testing.assert_allclose(matrix_of(body.quat), matrix_of(quaternion), atol=1e-12)
        if mass:
            np.testing.assert_allclose(body.ipos, centre, atol=1e-12)
            np.testing.assert_allclose(matrix_of(body.iquat), matrix_of(inertia_quaternion), atol=1e-12)
            np.testing.assert_allclose(body.inertia, inertia, rtol=1e-12)
    np.testing.assert_allclose(model.jnt_range[:, 1], [6.28319, 6.28319, 3.1415, 6.28319, 6.28319, 6.28319])
    np.testing.assert_array_equal(model.jnt_range[:, 0], -model.jnt_range[:, 1])
    np.testing.assert_array_equal(model.dof_armature, 0.1)
    np.testing.assert_array_equal(model.dof_damping, 0.0)
    np.testing.assert_array_equal(model.actuator_ctrlrange[:, 1], [150, 150, 150, 28, 28, 28])
    np.testing.assert_array_equal(model.actuator_ctrlrange[:, 0], -model.actuator_ctrlrange[:, 1])

    felt = [index for index in range(model.ngeom) if model.geom_contype[index] and model.geom(index).name != "floor"]
    assert len(felt) == len(COLLISION)
    for index, (body, kind, radius, half_length, position, quaternion) in zip(felt, COLLISION, strict=True):
        assert model.body(model.geom_bodyid[index]).name == body
        assert model.geom_type[index] == getattr(mujoco.mjtGeom, f"mjGEOM_{kind}")
        np.testing.assert_allclose(model.geom_size[index][:2], [radius, half_length])
        np.testing.assert_allclose(model.geom_pos[index], position, atol=1e-12)
        np.testing.assert_allclose(matrix_of(model.geom_quat[index]), matrix_of(quaternion), atol=1e-12)


def test_reset_pose_is_free_and_where_it_should_be(env):
    np.testing.assert_allclose(env.centre, [0.492, 0.134, 0.438], atol=5e-4)
    np.testing.assert_array_equal(env.data.qpos, [0, -1.5707, 1.5707, -1.5707, -1.5707, 0])
    assert env.data.ncon == 0
    assert env.data.nl == 0


# the control law


def expected_torque(env, gains, target_position, target_rotation):
    """The law with general inverses, straight from its definition; and the determinant that chooses between them."""
    data, model = env.data, env.model
    jacobian = np.zeros((6, 6))
    mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], 0)
    inertia = np.zeros((6, 6))
    for column, unit in enumerate(np.eye(6)):
        mujoco.mj_mulM(model, data, inertia[column], unit)
    mobility = jacobian @ np.linalg.inv(inertia) @ jacobian.T
    determinant = np.linalg.det(mobility)
    lumped = np.linalg.pinv(mobility, rcond=1e-4) if abs(determinant) < 1e-3 else np.linalg.inv(mobility)
    rotation = data.site_xmat[0].reshape(3, 3)
    position_error = target_position - data.site_xpos[0]
    orientation_error = 0.5 * np.cross(rotation.T, target_rotation.T).sum(0)
    position_error *= min(1.0, 1.0 * gains.damping / gains.position / np.linalg.norm(position_error))
    orientation_error *= min(1.0, 2.0 * gains.damping / gains.orientation / np.linalg.norm(orientation_error))
    pull = np.concatenate([gains.position * position_error, gains.orientation * orientation_error])
    torque = jacobian.T @ lumped @ pull - gains.damping * inertia @ data.qvel + data.qfrc_bias
    return torque, determinant


@pytest.mark.parametrize("gains", [Gains(), PUBLIC_GAINS])
@pytest.mark.parametrize("near_singular", [False, True])
def test_torque_is_the_law(gains, near_singular):
    env = UR5eReachEnv(gains=gains)
    rng = np.random.default_rng(1)
    singular = 0
    for _ in range(200):
        angles = rng.uniform(-np.pi, np.pi, 6)
        if near_singular:
            angles[4] = rng.uniform(-1e-2, 1e-2)  # the wrist's first and last axes almost fall together
        place(env, angles, rng.normal(size=6))
        target = env.target(rng.uniform(-1, 1, 6))
        if rng.random() < 0.3:
            target = (target[0] + rng.normal(size=3), target[1] @ random_rotation(rng))  # far: both limits bind
        env._controller.apply(*target)
        expected, determinant = expected_torque(env, gains, *target)
        # The determinant is that of the inverse of Λ: a rule on Λ itself would call just the other poses singular.
        assert env._controller.singular == (determinant < 1e-3)
        singular += env._controller.singular
        np.testing.assert_allclose(env.data.ctrl, expected, rtol=1e-7, atol=1e-7 * abs(expected).max())
    assert singular == 200 if near_singular else singular < 60


def test_pseudo_solve_drops_weak_directions_only():
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    matrix = basis @ np.diag([3.0, 2.0, 1.0, 0.5, 1e-3, 1e-6]) @ basis.T
    vector = rng.normal(size=6)
    np.testing.assert_allclose(pseudo_solve(matrix, vector), np.linalg.pinv(matrix, rcond=1e-4) @ vector, rtol=1e-9)
    assert not np.allclose(pseudo_solve(matrix, vector), np.linalg.solve(matrix, vector), rtol=0.1)


def test_motors_do_not_exceed_their_limits(env):
    place(env, env.data.qpos.copy(), rates=30.0)
    env.step(np.ones(6))
    limits = env.model.actuator_ctrlrange[:, 1]
    place(env, env.data.qpos.copy(), rates=30.0)
    env._controller.apply(*env.target(np.zeros(6)))
    assert np.any(abs(env.data.ctrl) > limits)
    mujoco.mj_step2(env.model, env.data)
    assert np.all(abs(env.data.qfrc_actuator) <= limits)


def test_zero_action_holds_the_arm_against_gravity(env):
    for _ in range(20):
        observation, *_ = env.step(np.zeros(6))
    assert np.linalg.norm(observation[FIELDS["position"]]) < 1e-3
    env.model.opt.gravity[2] = 0.0
    env.data.qfrc_applied[1] = 20.0  # a load that the controller does not know of moves it
    for _ in range(20):
        observation, *_ = env.step(np.zeros(6))
    assert np.linalg.norm(observation[FIELDS["position"]]) > 1e-3


# observation, action, reward


def test_rot6d_is_made_of_columns(env):
    rng = np.random.default_rng(0)
    for _ in range(20):
        env.step(rng.uniform(-1, 1, 6))
    observation, rotation = env.observation(), env.data.site_xmat[0].reshape(3, 3)
    np.testing.assert_array_equal(observation[3:6], rotation[:, 0])
    np.testing.assert_array_equal(observation[6:9], rotation[:, 1])
    np.testing.assert_allclose(rotation_of(observation[FIELDS["rotation"]]), rotation, atol=1e-12)

    world = random_rotation(rng)
    turned_columns = (columns_of(rotation).reshape(2, 3) @ world.T).reshape(6)
    np.testing.assert_allclose(columns_of(world @ rotation), turned_columns, atol=1e-12)
    turned_rows = (rotation[:2].copy() @ world.T).reshape(6)
    assert not np.allclose((world @ rotation)[:2].reshape(6), turned_rows, atol=1e-2)


def test_velocities_are_the_rates_of_the_pose(env):
    rng = np.random.default_rng(0)
    for _ in range(5):
        env.step(rng.uniform(-1, 1, 6))
    observation, angles, rates = env.observation(), env.data.qpos.copy(), env.data.qvel.copy()
    tiny = 1e-7
    (before, rotation_before), (after, rotation_after) = (
        forward_kinematics(angles + sign * tiny * rates) for sign in (-1, 1)
    )
    np.testing.assert_allclose(observation[FIELDS["velocity"]], (after - before) / (2 * tiny), atol=1e-6)
    spin = logarithm(rotation_after @ rotation_before.T) / (2 * tiny)
    np.testing.assert_allclose(observation[FIELDS["angular_velocity"]], spin, atol=1e-6)
    assert np.linalg.norm(observation[9:15]) > 0.05


@pytest.mark.parametrize("frame", ["end_effector", "world"])
def test_action_frame(frame):
    env = UR5eReachEnv(frame=frame)
    env.reset(seed=0)
    rng = np.random.default_rng(2)
    for _ in range(10):
        env.step(rng.uniform(-1, 1, 6))
    position, rotation = env.data.site_xpos[0].copy(), env.data.site_xmat[0].reshape(3, 3).copy()
    action = rng.uniform(-1, 1, 6)
    translation, turn = 0.05 * action[:3], exponential(0.2618 * action[3:])
    of_frame = {
        "end_effector": (position + rotation @ translation, rotation @ turn),
        "world": (position + translation, turn @ rotation),
    }
    target = env.target(action)
    for other, expected in of_frame.items():
        for got, wanted in zip(target, expected, strict=True):
            assert np.allclose(got, wanted, atol=1e-12) == (other == frame)
    np.testing.assert_array_equal(env.target(3 * np.ones(6))[0], env.target(np.ones(6))[0])


def test_reward_and_success_follow_from_the_errors(env):
    observation, reward, terminated, truncated, info = env.step(np.zeros(6))
    distance = np.linalg.norm(observation[15:18] - observation[0:3])
    cosine = (np.trace(rotation_of(observation[3:9]).T @ rotation_of(observation[18:24])) - 1) / 2
    assert reward == pytest.approx(-(distance + 0.19098621461 * np.arccos(cosine)), abs=1e-9)
    assert not terminated
    assert not truncated
    assert not info["is_success"]
    for offset, tilt, success in ((0.04, 14.0, True), (0.06, 0.0, False), (0.0, 16.0, False)):
        place(env, env.model.key("reset").qpos)
        env.set_goal(env.centre + np.array([0, offset, 0]), exponential(np.radians([tilt, 0, 0])) @ env._reset_rotation)
        assert env._progress()["is_success"] == success


def test_angle_is_accurate_at_both_ends():
    axis = np.array([1.0, 2.0, -2.0]) / 3
    for angle in (0.0, 1e-9, 1e-4, 1.0, np.pi - 1e-6, np.pi):
        assert angle_between(np.eye(3), exponential(axis * angle)) == pytest.approx(angle, abs=1e-12)


def test_goals_are_drawn_where_they_should_be():
    for orientations, largest, mean in (("near", np.pi / 2, np.pi / 4), ("all", np.pi, np.pi / 2 + 2 / np.pi)):
        env = UR5eReachEnv(goal_orientations=orientations)
        env.reset(seed=0)
        drawn = [env._draw_goal() for _ in range(2000)]
        offsets = np.array([position for position, _ in drawn]) - env.centre
        angles = np.array([angle_between(env._reset_rotation, rotation) for _, rotation in drawn])
        assert 0.195 < abs(offsets).max() <= 0.2
        np.testing.assert_allclose(offsets.mean(0), 0, atol=0.015)
        assert 0.95 * largest < angles.max() <= largest + 1e-9
        assert angles.mean() == pytest.approx(mean, abs=0.05)


# state, images, inverse kinematics


def test_a_restored_state_continues_bit_for_bit(env):
    rng = np.random.default_rng(3)
    actions = rng.uniform(-1, 1, (40, 6))
    actions[:25] = [0, 0, -1, 0, 0, 0]  # down to the floor: the state has to hold in contact too
    for action in actions[:20]:
        env.step(action)
    assert env.data.ncon > 0
    state = env.get_state()

    def rest():
        return np.array([env.step(action)[0] for action in actions[20:]])

    first = rest()
    env.reset(seed=99)
    assert not np.array_equal(first, rest())
    env.set_state(state)
    np.testing.assert_array_equal(first, rest())
    fresh = UR5eReachEnv()
    fresh.set_state(state)
    np.testing.assert_array_equal(first, np.array([fresh.step(action)[0] for action in actions[20:]]))


def test_images_of_states_have_the_turned_observation(env):
    rng = np.random.default_rng(4)
    found = 0
    for seed in range(4):
        env.reset(seed=seed)
        for _ in range(10):
            observation, *_ = env.step(rng.uniform(-1, 1, 6))
        state, progress, target = env.get_state(), env._progress(), env.target(np.ones(6))
        for _ in range(5):
            world = random_rotation(rng, largest=1.0)
            assert np.array_equal(env.get_state(), state)
            if not env.set_from_observation(turned(observation, world), state):
                continue
            found += 1
            np.testing.assert_allclose(env.observation(), turned(observation, world), atol=1e-8)
            image = env._progress()
            assert image["distance"] == pytest.approx(progress["distance"], abs=1e-8)
            assert image["angle"] == pytest.approx(progress["angle"], abs=1e-8)
            # Actions in the end effector's axes are invariant: the same action asks for the turned target.
            image_target = env.target(np.ones(6))
            np.testing.assert_allclose(image_target[0] - env.centre, world @ (target[0] - env.centre), atol=1e-8)
            np.testing.assert_allclose(image_target[1], world @ target[1], atol=1e-8)
            # About the origin of the world instead of the centre they do not turn.
            assert not np.allclose(image_target[0], world @ target[0], atol=1e-3)
            env.set_state(state)
    assert found >= 15


def test_inverse_kinematics_solves_what_can_be_solved(env):
    rng = np.random.default_rng(5)
    solved = 0
    for _ in range(40):
        position, rotation = forward_kinematics(rng.uniform(-np.pi, np.pi, 6))
        angles = env.solve_pose(position, rotation, env.data.qpos)
        if angles is None:
            continue
        solved += 1
        reached_position, reached_rotation = forward_kinematics(angles)
        np.testing.assert_allclose(reached_position, position, atol=1e-9)
        np.testing.assert_allclose(reached_rotation, rotation, atol=1e-9)
        assert np.all(abs(angles) <= env.model.jnt_range[:, 1])
    assert solved >= 38
    start = env.data.qpos.copy()
    np.testing.assert_array_equal(env.solve_pose(*forward_kinematics(start), start), start)
    assert env.solve_pose(np.array([1.5, 0, 0.3]), np.eye(3), start) is None


# the task


def test_gymnasium_checker_is_clean_and_episodes_are_cut_at_the_horizon():
    check_env(UR5eReachEnv(), skip_render_check=True)
    registered = gymnasium.make("symbreak/UR5eReach-v0")
    check_env(registered.unwrapped, skip_render_check=True)
    registered.reset(seed=0)
    ends = [registered.step(np.zeros(6, np.float32))[2:4] for _ in range(HORIZON)]
    assert ends == [(False, False)] * (HORIZON - 1) + [(False, True)]


def test_episodes_are_a_function_of_the_seed(env):
    def episode(environment, seed):
        first, _ = environment.reset(seed=seed)
        actions = np.random.default_rng(0).uniform(-1, 1, (10, 6))
        return np.array([first, *(environment.step(action)[0] for action in actions)])

    np.testing.assert_array_equal(episode(env, 7), episode(UR5eReachEnv(), 7))
    assert not np.array_equal(episode(env, 7)[0], episode(env, 8)[0])


def test_a_proportional_controller_reaches_the_goals(env):
    assert share_reached(env, towards_goal, goals=10) >= 0.9
    assert share_reached(env, lambda observation: -towards_goal(observation), goals=3) == 0.0


@pytest.mark.slow
def test_a_proportional_controller_reaches_the_goals_of_many_episodes(env):
    assert share_reached(env, towards_goal, goals=50) >= 0.9
    assert share_reached(UR5eReachEnv(goal_orientations="all"), towards_goal, goals=50) >= 0.8
    in_world_axes = functools.partial(towards_goal, frame="world")
    assert share_reached(UR5eReachEnv(frame="world"), in_world_axes, goals=50) >= 0.9


# Processor time of the best of several blocks: other processes slow a block, none makes it faster.
SPEED = """
import sys, time
import mujoco
import numpy as np
from symbreak.tasks.ur5e import UR5eReachEnv
near_singular = sys.argv[1] == "True"
env = UR5eReachEnv()
env.reset(seed=0)
env.data.qpos[4] *= not near_singular
start = env.get_state()
blocks, bare, jacobian, solved = [], [], *np.zeros((2, 6, env.model.nv))
for _ in range(8):
    begin = time.thread_time()
    for _ in range(20):
        env.set_state(start)
        for _ in range(50):  # what no such controller can do without
            mujoco.mj_jacSite(env.model, env.data, jacobian[:3], jacobian[3:], 0)
            mujoco.mj_solveM(env.model, env.data, solved, jacobian)
            np.linalg.inv(jacobian @ solved.T + np.eye(6))
            mujoco.mj_step(env.model, env.data)
    bare.append((time.thread_time() - begin) / 20)
    begin = time.thread_time()
    for _ in range(20):
        env.set_state(start)  # an arm on a singularity slips off it within a few actions
        assert env.step(np.full(6, 0.02))[4]["singular"] == near_singular
        assert env._controller.singular == near_singular  # still so in the last physics step
    blocks.append((time.thread_time() - begin) / 20)
print(1000 * min(blocks), 1000 * min(bare))
"""


@pytest.mark.parametrize("near_singular", [False, True])
def test_an_action_takes_at_most_four_milliseconds(near_singular):
    # In a process of its own: in this one every annotated call is checked, which costs more than the call.
    command = [sys.executable, "-c", SPEED, str(near_singular)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    action, bare = map(float, finished.stdout.split())
    print(f"{action:.2f} ms per action, {bare:.2f} ms for the least, singular: {near_singular}")
    assert action <= max(4.0, 2.2 * bare)  # where the machine is slow both are


def test_random_actions_held_for_half_a_second_meet_every_cause_of_breaking(env):
    rng, held = np.random.default_rng(0), {}

    def policy(observation):
        if held.setdefault("left", 0) == 0:
            held.update(left=5, action=rng.uniform(-1, 1, 6))
        held["left"] -= 1
        return held["action"]

    shares = breaking_shares(env, episodes=8, policy=policy)
    print(shares)
    assert all(share > 0 for share in shares.values())
    still = breaking_shares(env, episodes=1, policy=lambda observation: np.zeros(6))
    assert all(share == 0 for share in still.values())


SHARES = """
import json, sys
from symbreak.tasks.ur5e import UR5eReachEnv, breaking_shares
print(json.dumps(breaking_shares(UR5eReachEnv(), episodes=150, seed=int(sys.argv[1]))))
"""


@pytest.mark.slow
def test_uniformly_random_actions_meet_every_cause_of_breaking():
    # Limits are met in about one episode of a hundred: more are drawn until each cause has been seen.
    shares = {}
    for block in range(8):
        command = [sys.executable, "-c", SHARES, str(1000 * block)]  # unchecked calls, as above
        shares = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(shares)
        if all(share > 0 for share in shares.values()):
            return
    pytest.fail(f"a cause was never met: {shares}")


@pytest.mark.parametrize(
    ("name", "value"), [("frame", "tool"), ("goal_orientations", "some"), ("render_mode", "human")]
)
def test_unknown_options_are_refused_by_name(name, value):
    with pytest.raises(InputError, match=f"{name}='{value}'"):
        UR5eReachEnv(**{name: value})


def test_actions_of_the_wrong_shape_are_refused(env):
    with pytest.raises(InputError, match=r"\(4,\)"):
        env.step(np.zeros(4))


# pictures


def test_the_picture_shows_arm_and_goal():
    env = UR5eReachEnv(render_mode="rgb_array", width=320, height=240)
    env.reset(seed=0)
    try:
        picture = env.render()
    except EnvironmentFault as fault:
        pytest.skip(str(fault))
    assert picture.shape == (240, 320, 3)
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, env.render())
    env.set_goal(env.centre + np.array([0, 0, 0.15]), np.eye(3))
    with_other_goal = env.render()
    assert (picture != with_other_goal).any(-1).mean() > 0.003
    env.step(np.ones(6))
    assert (with_other_goal != env.render()).any(-1).mean() > 0.003
    env.close()


def test_without_opengl_one_line_says_what_to_install(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(offscreen.sys, "platform", "linux")
    tried = []
    monkeypatch.setattr(offscreen, "_works", lambda name: bool(tried.append(name)))
    offscreen.offscreen_backend.cache_clear()
    env = UR5eReachEnv(render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="libegl1 libosmesa6") as caught:
        env.render()
    assert "\n" not in str(caught.value)
    assert tried == ["egl", "osmesa"]
    monkeypatch.setattr(offscreen, "_works", lambda name: name == "osmesa")
    assert offscreen.offscreen_backend() == "osmesa"
    offscreen.offscreen_backend.cache_clear()


def test_opengl_is_not_touched_before_the_first_picture():
    program = (
        "import sys; from symbreak.tasks.ur5e import UR5eReachEnv; env = UR5eReachEnv(render_mode='rgb_array'); "
        "env.reset(seed=0); env.step(env.action_space.sample()); sys.exit('OpenGL' in sys.modules)"
    )
    environment = {key: value for key, value in os.environ.items() if key != "MUJOCO_GL"}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0
