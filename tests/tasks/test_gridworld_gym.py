"""The Gymnasium environment passes the checkers, repeats itself under a seed and equals the JAX one."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from jaxtyping import config

from symbreak.errors import InputError
from symbreak.tasks.gridworld import GridState
from symbreak.tasks.gridworld_gym import GridWorldEnv

VARIANTS = [{}, {"obstacles": 40}, {"obstacles": 30, "passable_penalty": True}, {"obstacles": 40, "slip": 0.35}]


@pytest.fixture
def make():
    """Make a registered environment, under an id of these tests only."""
    name = "symbreak-test/GridWorld-v0"
    gym.register(name, entry_point="symbreak.tasks.gridworld_gym:GridWorldEnv")
    yield lambda **arguments: gym.make(name, **arguments)
    del gym.registry[name]


@pytest.mark.parametrize("arguments", VARIANTS)
def test_gymnasium_checker_is_clean(make, arguments):
    check_env(make(**arguments, render_mode="rgb_array").unwrapped)


def test_gymnasium_checker_sees_a_random_start_that_ignores_its_seed(make):
    env = make().unwrapped
    place = env.reset
    env.reset = lambda *, seed=None, options=None: place(options=options)
    with pytest.raises(AssertionError, match="seed"):
        check_env(env)


@pytest.mark.parametrize("arguments", VARIANTS)
def test_stable_baselines_checker_is_clean(arguments):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(GridWorldEnv(**arguments, render_mode="rgb_array"))


def episode(env, seed, steps=60):
    observation, info = env.reset(seed=seed)
    record = [observation.tolist(), info]
    actions = np.random.default_rng(0).integers(4, size=steps)
    for action in actions:
        observation, *rest = env.step(action)
        record += [observation.tolist(), *rest]
        if rest[1] or rest[2]:
            observation, _ = env.reset()
    return record


@pytest.mark.parametrize("arguments", VARIANTS)
def test_a_seed_repeats_everything_and_another_does_not(arguments):
    assert episode(GridWorldEnv(**arguments), 7) == episode(GridWorldEnv(**arguments), 7)
    assert episode(GridWorldEnv(**arguments), 7) != episode(GridWorldEnv(**arguments), 8)


def test_host_and_jax_agree_at_every_pair_of_a_small_world():
    env = GridWorldEnv(size=5, obstacles=7, passable_penalty=True, layout_seed=2)

    @jax.jit
    @jax.vmap
    def step(agent, goal, action):
        return env.world.step(jax.random.key(0), GridState(agent, goal, jnp.int32(0)), action)

    free = env.world.free_cells()
    agent, goal, action = (axis.reshape(-1) for axis in np.meshgrid(free, free, np.arange(4), indexing="ij"))
    distinct = agent != goal
    agent, goal, action = agent[distinct], goal[distinct], action[distinct]
    _, observation, reward, terminated, truncated, _ = step(agent, goal, action)
    hosted = []
    for a, g, move in zip(agent, goal, action, strict=True):
        env.reset(options={"agent": a, "goal": g})
        hosted.append(env.step(move))
    np.testing.assert_array_equal([row[0] for row in hosted], observation)
    np.testing.assert_array_equal(np.float32([row[1] for row in hosted]), reward)
    np.testing.assert_array_equal([row[2] for row in hosted], terminated)
    np.testing.assert_array_equal([row[3] for row in hosted], truncated)
    assert [row[4] for row in hosted] == [{"is_success": bool(flag)} for flag in terminated]
    assert terminated.any()
    # The same moves one floor further on end elsewhere.
    other = GridWorldEnv(size=5, obstacles=7, passable_penalty=True, layout_seed=3).world
    assert (other.transition_table().next_cell != env.world.transition_table().next_cell).any()


def test_host_and_jax_agree_over_whole_episodes():
    env = GridWorldEnv(obstacles=30, passable_penalty=True, horizon=25)
    step, random, ends = jax.jit(env.world.step), np.random.default_rng(0), set()
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        agent, goal = env.world.locate(observation)
        state = GridState(jnp.int32(agent), jnp.int32(goal), jnp.int32(0))
        ended = False
        while not ended:
            # Mostly towards the goal, so that some episodes end there.
            x, y = observation[2:] - observation[:2]
            wanted = (3 if x > 0 else 1) if abs(x) > abs(y) else (0 if y > 0 else 2)
            action = wanted if random.random() < 0.8 else random.integers(4)
            observation, reward, terminated, truncated, _ = env.step(action)
            state, seen, worth, *flags, _ = step(jax.random.key(0), state, int(action))
            np.testing.assert_array_equal(observation, seen)
            assert np.float32(reward) == worth
            assert (terminated, truncated) == tuple(bool(flag) for flag in flags)
            ended = terminated or truncated
        ends.add((terminated, truncated))
    assert ends == {(True, False), (False, True)}


def test_host_slip_has_the_declared_probabilities():
    env = GridWorldEnv(slip=0.35)
    env.reset(seed=0)
    centre, samples = 7 * 15 + 7, 6_000
    counts = np.zeros(225)
    for _ in range(samples):
        env.reset(options={"agent": centre, "goal": 0})
        observation, *_ = env.step(1)
        counts[env.world.locate(observation)[0]] += 1
    around = centre + np.array([-1, 15, 1, -15])  # left as chosen, then down, right, up
    np.testing.assert_allclose(counts[around] / samples, [0.65, *3 * [0.35 / 3]], atol=0.025)
    assert counts[around].sum() == samples


def test_starts_are_distinct_free_cells_and_vary():
    env = GridWorldEnv(obstacles=40)
    starts = {tuple(map(int, env.world.locate(env.reset(seed=seed)[0]))) for seed in range(200)}
    cells = np.array(list(starts))
    assert len(starts) > 190
    assert np.isin(cells, env.world.free_cells()).all()
    assert (cells[:, 0] != cells[:, 1]).all()


def test_each_observation_is_its_own_array():
    env = GridWorldEnv()
    first, _ = env.reset(seed=0)
    kept = first.copy()
    second, *_ = env.step(0)
    second[:] = 9
    np.testing.assert_array_equal(first, kept)
    assert np.abs(env.step(0)[0]).max() <= 1


def test_reaching_the_goal_as_the_horizon_ends_is_termination():
    env = GridWorldEnv(size=3, horizon=2)
    for goal, ending in [(1, (True, False)), (2, (False, True))]:
        env.reset(options={"agent": 0, "goal": goal})
        assert env.step(0)[2:4] == (False, False)
        assert env.step(3)[2:4] == ending


def test_a_finished_episode_stays_finished():
    env = GridWorldEnv(size=3)
    env.reset(options={"agent": 0, "goal": 1})
    assert env.step(3)[1:4] == (1.0, True, False)
    assert env.step(3)[1:4] == (0.0, True, False)


@pytest.fixture
def as_a_user():
    """Without the run-time type checks of the tests, which would refuse a wrong type before the package can."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("as_a_user")
def test_mistakes_are_refused_by_name():
    env = GridWorldEnv(obstacles=10)
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(0)
    env.reset(seed=0)
    blocked, (free, other, *_) = int(np.flatnonzero(env.world.floor().blocked)[0]), env.world.free_cells().tolist()
    for options, named in [
        ({"agent": blocked, "goal": free}, f"agent={blocked}"),
        ({"agent": free}, "both 'agent' and 'goal'"),
        ({"agent": free, "gaol": other}, "gaol"),
        ({"agent": free, "goal": free}, "distinct"),
    ]:
        with pytest.raises(InputError, match=named):
            env.reset(options=options)
    env.reset(options={"agent": free, "goal": other})
    for action in (4, -1, 0.5, None):
        with pytest.raises(InputError, match="does not exist"):
            env.step(action)
    with pytest.raises(InputError, match=r"'obstacle'.*obstacles"):
        GridWorldEnv(obstacle=10)
    with pytest.raises(InputError, match="at most 223"):
        GridWorldEnv(obstacles=300)
    with pytest.raises(InputError, match="render_mode='ascii'"):
        GridWorldEnv(render_mode="ascii")


def test_pictures_follow_the_agent():
    env = GridWorldEnv(obstacles=10, render_mode="rgb_array")
    empty = env.render()
    env.reset(options={"agent": int(env.world.free_cells()[0]), "goal": int(env.world.free_cells()[9])})
    start = env.render()
    assert (start != empty).any()
    for action in (0, 1):  # into the corner walls: nothing changes
        env.step(action)
    np.testing.assert_array_equal(env.render(), start)
    moved = [env.step(action) and (env.render() != start).any() for action in (3, 2)]
    assert any(moved)
    with pytest.warns(UserWarning, match="render_mode"):
        assert GridWorldEnv().render() is None


def test_a_window_needs_pygame(monkeypatch):
    monkeypatch.setitem(GridWorldEnv.metadata, "render_modes", ["rgb_array"])
    with pytest.raises(InputError, match="pygame"):
        GridWorldEnv(render_mode="human")
    GridWorldEnv(render_mode="rgb_array")


def test_the_window_shows_the_picture(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    env = GridWorldEnv(obstacles=10, render_mode="human")
    env.reset(seed=0)
    before = pygame.surfarray.array3d(pygame.display.get_surface()).copy()
    for action in (0, 1):
        env.step(action)
    after = pygame.surfarray.array3d(pygame.display.get_surface())
    assert before.shape == (360, 360, 3)
    assert (before != after).any()
    env.close()
    env.close()
