"""Hopper, Swimmer and Ant on the real simulator: a symmetry commutes with one step, or it is not one.

Each comparison steps from a visited state s with action a and from the image gs with ga, both set exactly and with the
solver's warm start cleared.
"""

from dataclasses import dataclass

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from symbreak.symmetry import Field, Layout, Symmetry
from symbreak.tasks import get_task
from symbreak.tasks.locomotion import rotation_matrix
from symbreak.tasks.symmetries import ANKLE_TORQUES, ANKLES, HIP_TORQUES, HIPS

STATES = 50


@dataclass
class Comparison:
    """What one step from s and from gs gave, per state: what came of gs, and the image of what came of s."""

    change: np.ndarray  # of s in its step
    state_error: np.ndarray
    reward_error: np.ndarray
    termination_differs: np.ndarray
    further_outside: np.ndarray  # by how much gs lies further outside the joint limits than s, in rad


def positions(task: str, observation: np.ndarray) -> np.ndarray:
    """qpos of an observation, at the origin of the plane."""
    if task == "hopper":
        return np.concatenate([[0.0], observation[:5]])
    if task == "swimmer":
        return np.concatenate([[0.0, 0.0], observation[:3]])
    if len(observation) == 27:
        return np.concatenate([[0.0, 0.0], observation[:13]])
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, observation[1:10])
    return np.concatenate([[0.0, 0.0], observation[:1], quaternion, observation[10:18]])


def put(simulator: gym.Env, qpos: np.ndarray, qvel: np.ndarray) -> None:
    mujoco.mj_resetData(simulator.model, simulator.data)
    simulator.set_state(qpos, qvel)
    simulator.data.qacc_warmstart[:] = 0.0


def outside_limits(simulator: gym.Env) -> float:
    """By how much the worst joint lies outside its range: limits are soft, so this happens."""
    model, data = simulator.model, simulator.data
    limited = np.flatnonzero(model.jnt_limited)
    angle, (low, high) = data.qpos[model.jnt_qposadr[limited]], model.jnt_range[limited].T
    return float(np.max(np.maximum(low - angle, angle - high), initial=0.0))


def compare(task: str, view: str, symmetry: Symmetry | None = None, element=None) -> Comparison:
    env = get_task(task).make(view)
    symmetry = symmetry or get_task(task).symmetry(view)
    element = element or symmetry.group.generators[0]
    on_observation, on_action = symmetry.observation.matrix(element), symmetry.action.matrix(element)
    simulator = env.unwrapped
    see = getattr(env, "observation", lambda observation: observation)
    rows = []
    env.action_space.seed(0)
    env.reset(seed=0)
    while len(rows) < STATES:
        for _ in range(4):
            _, _, terminated, _, _ = env.step(env.action_space.sample())
            if terminated:
                env.reset()
        visited = (simulator.data.qpos.copy(), simulator.data.qvel.copy())
        action = env.action_space.sample().astype(np.float64)
        put(simulator, *visited)
        before, outside = see(simulator._get_obs()), outside_limits(simulator)
        after, reward, terminated, _, _ = simulator.step(action)
        after = see(after)

        image = on_observation @ before
        put(simulator, positions(task, image), image[-simulator.model.nv :])
        further_outside = outside_limits(simulator) - outside
        np.testing.assert_allclose(see(simulator._get_obs()), image, atol=1e-9)  # the image was really set
        image_after, image_reward, image_terminated, _, _ = simulator.step(on_action @ action)
        error = see(image_after) - on_observation @ after
        rows.append((after - before, error, image_reward - reward, image_terminated != terminated, further_outside))
        put(simulator, *visited)
    env.close()
    return Comparison(*(np.abs(np.array(column)) for column in zip(*rows, strict=True)))


@pytest.mark.parametrize("task", ["swimmer", "ant"])
def test_a_step_commutes_with_every_element_of_the_exact_symmetry(task):
    for element in get_task(task).symmetry("exact").group.elements()[1:]:
        result = compare(task, "exact", element=element)
        assert result.state_error.max() <= 1e-9
        assert result.reward_error.max() <= 1e-9
        assert not result.termination_differs.any()
        assert result.further_outside.max() <= 1e-9  # so images can occur
        assert np.median(result.change.max(axis=1)) > 0.1  # the states do move, so there was something to get wrong


def test_the_papers_ant_is_not_a_symmetry():
    result = compare("ant", "paper")
    assert 10 < np.median(result.state_error.max(axis=1)) < 60
    assert result.further_outside.min() > 0  # no image lies inside
    assert np.median(result.further_outside) > 1.0


def test_the_papers_swimmer_is_wrong_about_the_sideways_velocity():
    result = compare("swimmer", "paper")
    names = get_task("swimmer").symmetry("paper").observation.names
    median = np.median(result.state_error, axis=0)
    sideways = 4
    assert names[3] == "tip.velocity.y"  # the fourth field; the second spans two numbers
    assert np.argmax(median) == sideways
    assert median[sideways] > np.median(result.change, axis=0)[sideways]


def test_hopper_breaks_almost_everywhere():
    result = compare("hopper", "paper")
    assert np.mean(result.reward_error > 1e-3) > 0.9
    assert np.mean(result.state_error.max(axis=1) > 1e-3) > 0.5


def changed(symmetry: Symmetry, observation: dict[str, Field] | None = None, action: dict[str, Field] | None = None):
    """The symmetry with some fields of its layouts replaced."""
    layouts = [
        Layout(layout.fields | (changes or {}), size=layout.size)
        for layout, changes in ((symmetry.observation, observation), (symmetry.action, action))
    ]
    return Symmetry(*layouts, name="wrong")


def wrong_ants():
    exact = get_task("ant").symmetry("exact")
    turn, fields = exact.group, exact.observation.fields
    hips, ankles = fields["hips.angle"].rep, fields["ankles.angle"].rep
    backwards = turn.permutation("backwards", [(1, 2, 3, 0)])
    still = {name: Field(field.rep.size * turn.trivial, field.indices) for name, field in fields.items()}
    yield (
        "ankles without signs",
        changed(
            exact,
            {name: Field(hips, fields[name].indices) for name in ("ankles.angle", "ankles.rate")},
            {"ankles.torque": Field(hips, ANKLE_TORQUES)},
        ),
    )
    yield (
        "torques in the order of the joints",
        changed(exact, None, {"ankles.torque": Field(ankles, (1, 3, 5, 7)), "hips.torque": Field(hips, (0, 2, 4, 6))}),
    )
    yield "torso left as it is", changed(exact, {n: still[n] for n in ("torso.rotation.sides", "torso.rate.sides")})
    yield "rate of the torso left as it is", changed(exact, {"torso.rate.sides": still["torso.rate.sides"]})
    yield (
        "legs rolled backwards",
        changed(
            exact,
            {name: Field(backwards, fields[name].indices) for name in ("hips.angle", "hips.rate")},
            {"hips.torque": Field(backwards, HIP_TORQUES)},
        ),
    )


@pytest.mark.parametrize(
    ("mistake", "symmetry"), list(wrong_ants()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_plausible_mistake_in_the_ant_shows(mistake, symmetry):
    assert np.median(compare("ant", "exact", symmetry).state_error.max(axis=1)) > 1e-3


def test_the_ants_indices_name_the_joints_they_should():
    env = get_task("ant").make()
    model = env.unwrapped.model
    name = lambda kind, index: mujoco.mj_id2name(model, kind, index)  # noqa: E731
    for leg in range(4):
        for part, joints, torques in (("hip", HIPS, HIP_TORQUES), ("ankle", ANKLES, ANKLE_TORQUES)):
            joint = model.joint(f"{part}_{leg + 1}")
            assert joint.qposadr[0] == 7 + joints[leg]  # after position and quaternion
            assert joint.dofadr[0] == 6 + joints[leg]
            driven = model.actuator_trnid[torques[leg], 0]
            assert name(mujoco.mjtObj.mjOBJ_JOINT, driven) == f"{part}_{leg + 1}"
    env.close()


def test_the_matrix_is_the_torsos_own_and_has_order_four():
    plain, matrix = get_task("ant").make("paper"), get_task("ant").make("exact")
    (seen, _), (seen_matrix, _) = plain.reset(seed=3), matrix.reset(seed=3)
    np.testing.assert_array_equal(np.delete(seen_matrix, range(1, 10)), np.delete(seen, range(1, 5)))
    np.testing.assert_allclose(seen_matrix[1:10], matrix.unwrapped.data.body("torso").xmat, atol=1e-12)

    quarter = np.array([np.sqrt(0.5), 0, 0, -np.sqrt(0.5)])
    product, image = np.zeros(4), seen[1:5] / np.linalg.norm(seen[1:5])
    for _ in range(4):
        mujoco.mju_mulQuat(product, image, quarter)
        image = product.copy()
    np.testing.assert_allclose(rotation_matrix(image), rotation_matrix(seen[1:5]), atol=1e-12)
    assert not np.allclose(image, seen[1:5], atol=1e-3)  # on the quaternion four quarter turns are a change of sign
    plain.close()
    matrix.close()


@pytest.mark.parametrize("scale", [0.5, 1.0, -3.0])
def test_a_quaternions_length_and_sign_do_not_matter(scale):
    quaternion = np.random.default_rng(0).normal(size=4)
    rotation = rotation_matrix(quaternion)
    np.testing.assert_allclose(rotation_matrix(scale * quaternion), rotation, atol=1e-12)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) > 0
