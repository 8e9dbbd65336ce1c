"""The diagnostic environments are what they claim: fit to learn in, mirrored, and broken in one known place."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from symbreak.errors import InputError
from symbreak.tasks import check_environment
from symbreak.tasks.diagnostic import PROBES, DiagnosticEnv, diagnostic_task, in_patch, mirror

KINDS = {"discrete": False, "continuous": True}


def step_from(env, place, action):
    env.reset(seed=0)
    env.unwrapped._place = tuple(map(float, place))
    observation, reward, terminated, *_ = env.step(action)
    return observation, reward, terminated


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("probe", PROBES)
def test_it_is_an_environment_that_fits_its_symmetry(probe, kind):
    task = diagnostic_task(probe, KINDS[kind])
    check_environment(task.make(), task.symmetry())
    check_env(task.make(), skip_render_check=True)
    assert isinstance(task.make().action_space, gym.spaces.Box) == KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("probe", PROBES)
def test_a_step_from_the_image_is_the_image_of_the_step(probe, kind):
    symmetry, env = mirror(KINDS[kind]), DiagnosticEnv(probe, KINDS[kind])
    element = symmetry.group.generators[0]
    matrix, rng = symmetry.observation.matrix(element), np.random.default_rng(0)
    gaps, inside = [], []
    for _ in range(300):
        place = rng.uniform(-1, 1, size=2)
        if KINDS[kind]:
            action = rng.uniform(-1, 1, size=2)
            image = symmetry.action.matrix(element) @ action
        else:
            action = int(rng.integers(3))
            image = symmetry.action_permutation(element)[action]
        straight, moved = step_from(env, place, action), step_from(env, matrix @ place, image)
        gaps.append(max(np.abs(matrix @ straight[0] - moved[0]).max(), abs(straight[1] - moved[1])))
        assert straight[2] == moved[2]
        inside.append(in_patch(*place) or in_patch(-place[0], place[1]))
    gaps, inside = np.array(gaps), np.array(inside)
    if probe == "patch":
        assert gaps[~inside].max() < 1e-6
        assert gaps[inside].min() > 0.05
        assert 0.02 < inside.mean() < 0.4
    else:
        assert gaps.max() < 1e-6


def test_returns_by_hand():
    """One value per probe that an agent without the ability it tests would miss."""
    both, action = DiagnosticEnv("both"), DiagnosticEnv("action", True)
    assert [step_from(both, (1, 0), push)[1] for push in (0, 1, 2)] == [-3, 0, 1]
    assert [step_from(both, (-1, 0), push)[1] for push in (0, 1, 2)] == [1, 0, -3]
    assert step_from(action, (0, 0), np.array([0.0, 0.5]))[1] == 1
    assert step_from(action, (0, 0), np.array([0.5, 0.0]))[1] == pytest.approx(0.5)
    assert step_from(DiagnosticEnv("observation"), (0, -1), 0)[1:] == (-1, True)
    first, second = DiagnosticEnv("discount"), DiagnosticEnv("discount")
    assert step_from(first, (0, -1), 1)[1:] == (0, False)
    assert step_from(second, (0, 1), 1)[1:] == (1, True)
    patch = DiagnosticEnv("patch")
    assert step_from(patch, (0.5, -0.5), 0)[1] == pytest.approx(0.9)  # outside: left is the way to the middle
    assert step_from(patch, (0.5, 0.5), 2)[1] == pytest.approx(0.9)  # inside: against the wind
    assert step_from(patch, (0.5, 0.5), 0)[1] == pytest.approx(0.3)


def test_the_patch_is_cut_off_and_never_ends():
    env = DiagnosticEnv("patch")
    env.reset(seed=0)
    ends = [env.step(1)[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]


def test_an_unknown_probe_is_refused():
    with pytest.raises(InputError, match="patch"):
        diagnostic_task("patches")
