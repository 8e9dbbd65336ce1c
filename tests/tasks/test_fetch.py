"""Fetch reach: the nine numbers are those of the real environment, about the right centre."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.tasks import fetch, get_task


@pytest.fixture
def env():
    env = get_task("fetch-reach").make()
    yield env
    env.close()


def test_it_is_the_environment_of_gymnasium_robotics(env):
    fetch._silence_notice()
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    original = gym.make("FetchReachDense-v4")
    seen, _ = env.reset(seed=5)
    shown, _ = original.reset(seed=5)
    env.action_space.seed(5)
    for _ in range(20):
        own = shown["observation"]
        goal = shown["desired_goal"]
        np.testing.assert_array_equal(
            seen, np.concatenate([own[:3] - env.unwrapped.centre, own[5:8], goal - env.unwrapped.centre])
        )
        action = env.action_space.sample()
        seen, reward, *_ = env.step(action)
        shown, expected, *_ = original.step(action)
        assert reward == expected
    original.close()


def test_rotations_turn_about_where_the_gripper_starts(env):
    """The start is a fixed point of every rotation, so images of first observations can occur."""
    symmetry = get_task("fetch-reach").symmetry()
    rng = np.random.default_rng(0)
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        image = symmetry.observation.matrix(symmetry.group.sample(rng)) @ seen
        np.testing.assert_allclose(image[:6], seen[:6], atol=1e-4)
        assert np.linalg.norm(image[6:] - seen[6:]) > 1e-3  # the goal does turn
        # In world coordinates, which are not centred, the start would turn away by decimetres.
        uncentred = seen[:3] + env.unwrapped.centre
        assert np.linalg.norm(image[:3] - uncentred) > 0.1


def test_reward_and_success_follow_from_the_observation(env):
    seen, info = env.reset(seed=1)
    assert info["is_success"] is False
    reached = []
    for _ in range(50):
        toward = np.clip(20 * (seen[6:] - seen[:3]), -1, 1)
        seen, reward, terminated, truncated, info = env.step(np.append(toward, 0.0).astype(np.float32))
        distance = np.linalg.norm(seen[:3] - seen[6:])
        assert reward == pytest.approx(-distance, abs=1e-12)
        assert info["is_success"] is bool(distance < 0.05)
        assert not terminated
        reached.append(info["is_success"])
    assert truncated
    assert reached[-1]
    assert not reached[0]


def shifted_paths(env, symmetry, element, rng):
    """Paths under random small actions, and under their images with the goal turned along."""
    actions = np.zeros((10, 4))
    actions[:, :3] = rng.uniform(-0.5, 0.5, (10, 3))
    goal = rng.uniform(-0.1, 0.1, 3)
    on_observation, on_action = symmetry.observation.matrix(element), symmetry.action.matrix(element)

    def path(goal, actions):
        env.reset(seed=0)
        env.unwrapped.goal = goal + env.unwrapped.centre
        return np.array([env.step(action)[0] for action in actions])

    return path(goal, actions) @ on_observation.T, path(on_observation[6:, 6:] @ goal, actions @ on_action.T)


def test_the_symmetry_holds_approximately_near_the_centre(env):
    symmetry = get_task("fetch-reach").symmetry()
    rng = np.random.default_rng(0)
    errors, mismatches = [], []
    for _ in range(6):
        element = symmetry.group.sample(rng)
        expected, found = shifted_paths(env, symmetry, element, rng)
        size = np.abs(expected[:, :3]).max()
        errors.append(np.abs(found - expected)[:, :3].max() / size)
        # Against a different rotation the paths disagree by their own size.
        other = symmetry.observation.matrix(symmetry.group.sample(rng))
        mismatches.append(np.abs(found - expected @ other.T)[:, :3].max() / size)
    assert np.median(errors) < 0.06
    assert np.median(mismatches) > 0.3


def test_the_fingers_do_nothing(env):
    def first(fingers):
        env.reset(seed=0)
        return env.step(np.array([0.3, 0.2, 0.1, fingers], np.float32))[0]

    np.testing.assert_array_equal(first(-1.0), first(1.0))


@pytest.mark.parametrize(
    ("installed", "fits"), [("3.3.0", True), ("3.11.0", True), ("3.12.0", False), ("4.0.1", False)]
)
def test_a_mujoco_that_is_too_new_is_refused(monkeypatch, installed, fits):
    monkeypatch.setattr(fetch, "version", lambda name: installed)
    if fits:
        fetch.FetchReachEnv().close()
    else:
        with pytest.raises(InputError, match=r"mujoco<3\.12"):
            fetch.FetchReachEnv()


def test_making_it_prints_nothing():
    code = "from symbreak.tasks import get_task; get_task('fetch-reach').make().close()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
