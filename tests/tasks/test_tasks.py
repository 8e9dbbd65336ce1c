"""Every task behind one door: names, facts, environments, symmetries that fit, determinism, pictures."""

import dataclasses
import warnings

import gymnasium as gym
import matplotlib.image
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from symbreak.errors import EnvironmentFault, InputError
from symbreak.symmetry import Symmetry, Z
from symbreak.tasks import (
    TASK_NAMES,
    Task,
    check_environment,
    describe_tasks,
    draw_tasks,
    fetch,
    get_task,
    offscreen,
    user_task,
)
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.task import _factory

VIEWS = [(name, view) for name in TASK_NAMES for view in get_task(name).symmetries]
ROBOTS = ("hopper", "swimmer", "ant", "fetch-reach", "ur5e-reach")
IDS = ("GridWorld", "UR5eReach", "Ant", "AntRotation", "FetchReach")


@pytest.fixture
def gl():
    """Off-screen OpenGL, without which there are no pictures of robots."""
    try:
        offscreen.offscreen_backend()
    except EnvironmentFault as fault:
        pytest.skip(str(fault))


# --- names and facts -------------------------------------------------------------------------------------------------


def test_the_tasks_of_the_paper_are_listed():
    grids = ["grid-0", "grid-10", "grid-20", "grid-30", "grid-40", "grid-10-reward", "grid-30-reward", "grid-40-slip"]
    assert list(TASK_NAMES) == [*grids, *ROBOTS]


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("grid-0", GridWorld(obstacles=0)),
        ("grid-7", GridWorld(obstacles=7)),
        ("grid-30-reward", GridWorld(obstacles=30, passable_penalty=True)),
        ("grid-40-slip", GridWorld(obstacles=40, slip=0.35)),
        ("grid-20-floor3", GridWorld(obstacles=20, layout_seed=3)),
        ("grid-40-slip-floor12", GridWorld(obstacles=40, slip=0.35, layout_seed=12)),
    ],
)
def test_a_grids_name_says_what_it_is(name, world):
    task = get_task(name)
    env = task.make()
    assert env.unwrapped.world == world
    assert task.jax_env() == world
    assert task.jax_env(layout_seed=3) == dataclasses.replace(world, layout_seed=3)
    assert task.make(layout_seed=3).unwrapped.world.layout_seed == 3


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("antt", "ant"),
        ("fetch", "fetch-reach"),
        ("ur5-reach", "ur5e-reach"),
        ("grid40", "grid-40"),
        ("grid-40-slippery", "grid-40-slip"),
        ("grid-05", "grid-0"),
        ("grid-20-floor0", "grid-20"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, suggested):
    with pytest.raises(InputError) as caught:
        get_task(name)
    assert suggested in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_like_no_other_is_refused_with_all():
    with pytest.raises(InputError, match=r"grid-0, .*ur5e-reach"):
        get_task("xyzzy")


def test_facts_are_those_of_the_paper():
    facts = {
        name: (t.algorithm, t.horizon, t.training_steps, t.random_steps, t.threshold_deviations, t.discount)
        for name, t in ((name, get_task(name)) for name in TASK_NAMES)
    }
    for name in TASK_NAMES:
        if name.startswith("grid"):
            assert facts[name] == ("dqn", 100, 100_000, 1_000, 1.5, 0.99)
    assert facts["hopper"] == ("sac", 1000, 1_000_000, 10_000, 1.0, 0.99)
    assert facts["swimmer"] == facts["ant"] == ("sac", 1000, 1_000_000, 10_000, 1.5, 0.99)
    assert facts["fetch-reach"] == ("sac", 50, 30_000, 1_000, -0.5, 0.99)
    assert facts["ur5e-reach"] == ("sac", 100, 500_000, 10_000, -0.5, 0.99)
    levels = {name: get_task(name).quantile_level for name in TASK_NAMES}
    assert {name for name, level in levels.items() if level == 0.6} == {"grid-30", "grid-30-reward"}
    assert {name for name, level in levels.items() if level == 0.3} == {"grid-40", "grid-40-slip"}
    warm_ups = {name: get_task(name).paper_warm_up_steps for name in TASK_NAMES}
    assert warm_ups["grid-30"] == 20_000
    assert warm_ups["grid-40"] == 40_000
    for name in ROBOTS:  # a tenth of the budget, at most 20,000
        assert warm_ups[name] == min(get_task(name).training_steps // 10, 20_000)


def test_which_symmetries_a_task_has():
    exact = {name for name in TASK_NAMES if "exact" in get_task(name).symmetries}
    assert exact == {"grid-0", "swimmer", "ant"}
    assert all(get_task(name).symmetries[0] == "paper" for name in TASK_NAMES)
    assert get_task("ur5e-reach").symmetries == ("paper", "world")
    with pytest.raises(InputError, match="'hopper' has no symmetry 'exact': choose one of paper"):
        get_task("hopper").make("exact")


def test_only_grids_run_in_the_compiled_loop():
    assert {name for name in TASK_NAMES if get_task(name).jax_env is not None} == set(TASK_NAMES) - set(ROBOTS)


# --- environments and symmetries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_the_symmetry_fits_the_environment_and_carries_its_name(name, view):
    task = get_task(name)
    symmetry, env = task.symmetry(view), task.make(view)
    assert symmetry.name == view
    assert symmetry is task.symmetry(view)
    discrete = isinstance(env.action_space, gym.spaces.Discrete)
    size = int(env.action_space.n) if discrete else env.action_space.shape[0]
    symmetry.require(env.observation_space.shape[0], size, discrete)
    assert discrete == (task.algorithm == "dqn")
    env.close()


@pytest.mark.parametrize(
    ("name", "view", "group", "observation", "action"),
    [
        ("grid-0", "paper", "C4", "2rotation(1)", "V"),
        ("hopper", "paper", "C2", "R + 5P + R + 4P", "3P"),
        ("swimmer", "paper", "C2", "3P + 2R + 3P", "2P"),
        ("swimmer", "exact", "C2", "3P + R + 4P", "2P"),
        ("ant", "paper", "C4", "5R + 2V + 6R + 2V", "2V"),
        ("fetch-reach", "paper", "SO(3)", "3V", "V + R"),
        ("ur5e-reach", "paper", "SO(3)", "8V", "6R"),
        ("ur5e-reach", "world", "SO(3)", "8V", "2V"),
    ],
)
def test_representations_are_those_declared(name, view, group, observation, action):
    symmetry = get_task(name).symmetry(view)
    assert symmetry.group.name == group
    assert str(symmetry.observation.rep) == observation
    assert str(symmetry.action.rep) == action


def test_the_grids_symmetry_is_the_grids_quarter_turn():
    """Matrices and permutations say the same: all states, all elements. Turning the actions back does not."""
    world, symmetry = GridWorld(obstacles=0), get_task("grid-0").symmetry("exact")
    tables = world.tabular()
    cells = np.arange(world.cells)
    seen = world.observe(np.repeat(cells, world.cells), np.tile(cells, world.cells)).astype(np.float64)
    for turns, element in enumerate(symmetry.group.elements()):
        turned = seen @ symmetry.observation.matrix(element).T
        np.testing.assert_allclose(turned, seen[tables.state_permutations[turns]], atol=1e-7)
        moved = symmetry.action_permutation(element)
        np.testing.assert_array_equal(moved, tables.action_permutations[turns])
        after = tables.next_state[..., 0]
        image = tables.state_permutations[turns][after]
        np.testing.assert_array_equal(after[tables.state_permutations[turns]][:, moved], image)
        if turns == 1:
            backwards = np.argsort(moved)
            assert np.mean(after[tables.state_permutations[turns]][:, backwards] != image) > 0.9


def test_the_ur5es_fields_are_where_its_environment_puts_them():
    from symbreak.tasks.ur5e import FIELDS

    layout = get_task("ur5e-reach").symmetry().observation
    assert {name: tuple(range(24))[place] for name, place in FIELDS.items()} == {
        name: field.indices for name, field in layout.fields.items()
    }


@pytest.mark.parametrize("name", IDS)
def test_an_id_is_registered_and_survives_its_spec(name):
    env = gym.make(f"symbreak/{name}-v0")
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.observation_space == env.observation_space
    np.testing.assert_array_equal(env.reset(seed=0)[0], again.reset(seed=0)[0])
    env.close()
    again.close()


def test_options_reach_the_environment_and_wrong_ones_are_refused():
    assert get_task("ant").make(reset_noise_scale=0.0).reset(seed=0)[0][0] == 0.75
    with pytest.raises(InputError, match="'hopper' does not take these options"):
        get_task("hopper").make(gravity="upwards")


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_gymnasiums_checker_is_clean(name, view):
    env = get_task(name).make(view)
    with warnings.catch_warnings():
        # Said of every MuJoCo environment of Gymnasium's own, and of everything with a time limit.
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value is .*infinity")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(env, skip_render_check=True)
    env.close()


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_stable_baselines_checker_is_clean(name, view):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    env = get_task(name).make(view)
    checker.check_env(env, warn=True, skip_render_check=True)
    env.close()


# --- the same seed and actions, the same episode ---------------------------------------------------------------------


def episode(env: gym.Env, seed: int, steps: int = 60, draw: bool = False) -> list[bytes]:
    """Every bit that comes out of an episode and of the start of the next."""
    rng = np.random.default_rng(7)
    observation, _ = env.reset(seed=seed)
    seen = [observation.tobytes()]
    for _ in range(steps):
        discrete = isinstance(env.action_space, gym.spaces.Discrete)
        action = rng.integers(4) if discrete else rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(observation.tobytes() + np.float64(reward).tobytes() + bytes([terminated, truncated]))
        if draw:
            env.render()
        if terminated or truncated:
            observation, _ = env.reset()  # the random stream goes on
            seen.append(observation.tobytes())
    return seen


@pytest.mark.parametrize(("name", "view"), [("grid-20", "paper"), ("grid-40-slip", "paper"), *VIEWS[9:]])
def test_an_episode_repeats_bit_for_bit(name, view):
    used, fresh = get_task(name).make(view), get_task(name).make(view)
    steps = 15 if name == "ur5e-reach" else 60  # beyond the end of a Fetch episode
    episode(used, seed=1, steps=steps)  # a past that must leave no trace
    first = episode(used, seed=0, steps=steps)
    assert first == episode(used, seed=0, steps=steps)
    assert first == episode(fresh, seed=0, steps=steps)
    assert first != episode(fresh, seed=2, steps=steps)
    used.close()
    fresh.close()


@pytest.mark.usefixtures("gl")
@pytest.mark.parametrize("name", ["grid-20", *ROBOTS])
def test_drawing_leaves_no_trace_in_an_episode(name):
    drawn, plain = get_task(name).make(render_mode="rgb_array"), get_task(name).make()
    assert episode(drawn, seed=0, steps=3, draw=True) == episode(plain, seed=0, steps=3)
    drawn.close()
    plain.close()


# --- listing and pictures --------------------------------------------------------------------------------------------


def test_the_listing_has_what_a_user_asks_for():
    rows = {row["name"]: row for row in describe_tasks()}
    assert tuple(rows) == TASK_NAMES
    assert (rows["ant"]["observation"], rows["ant"]["action"]) == ("Box(27,)", "Box(8,)")
    assert rows["ant"]["symmetries"] == {"paper": "C4 on 27 numbers", "exact": "C4 on 32 numbers"}
    assert rows["grid-0"]["action"] == "Discrete(4)"
    assert (rows["fetch-reach"]["horizon"], rows["fetch-reach"]["algorithm"]) == (50, "sac")
    assert all(row["description"] for row in rows.values())


@pytest.mark.usefixtures("gl")
def test_every_task_can_be_drawn(tmp_path):
    files = draw_tasks(tmp_path / "pictures")
    assert [file.stem for file in files] == list(TASK_NAMES)
    pictures = {file.stem: matplotlib.image.imread(file) for file in files}
    for name, picture in pictures.items():
        assert min(picture.shape[:2]) >= 300
        assert picture[..., :3].std(axis=(0, 1)).min() > 0.02, f"{name} is blank"
    assert not np.array_equal(pictures["grid-10"], pictures["grid-10-reward"])


def test_without_opengl_one_line_says_what_to_install(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(offscreen, "_works", lambda name: False)
    monkeypatch.setattr(offscreen.sys, "platform", "linux")
    offscreen.offscreen_backend.cache_clear()
    try:
        with pytest.raises(EnvironmentFault, match="apt-get install libegl1 libosmesa6"):
            get_task("ant").make(render_mode="rgb_array")
        get_task("ant").make().close()  # training needs no picture
    finally:
        offscreen.offscreen_backend.cache_clear()


# --- a user's own ----------------------------------------------------------------------------------------------------


def pole() -> Symmetry:
    """Left-right mirror of the cart-pole: everything changes sign, the two pushes change places."""
    mirror = Z(2)
    return Symmetry(4 * mirror.sign, mirror.permutation("pushes", [(1, 0)]), discrete=True, name="mirror")


def pendulum() -> Symmetry:
    mirror = Z(2)
    return Symmetry(mirror.trivial + 2 * mirror.sign, mirror.sign, name="mirror")


def test_a_registered_environment_becomes_a_task():
    task = user_task("CartPole-v1", pole())
    assert isinstance(task, Task)
    assert (task.name, task.algorithm, task.horizon) == ("CartPole-v1", "dqn", 500)
    assert task.symmetries == ("mirror",)
    assert task.symmetry() == pole()
    env = task.make()
    check_environment(env, task.symmetry())
    assert dataclasses.replace(task, discount=0.9).discount == 0.9
    continuous = user_task("Pendulum-v1", pendulum(), name="swing")
    assert (continuous.name, continuous.algorithm) == ("swing", "sac")


def test_an_environment_or_what_makes_one_becomes_a_task():
    from gymnasium.envs.classic_control import PendulumEnv

    def unrecorded():
        return gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda reward: reward / 10)

    made = [gym.make("Pendulum-v1"), PendulumEnv, unrecorded]
    for environment in made:
        task = user_task(environment, pendulum())
        one, two = task.make(), task.make()
        assert one.unwrapped is not two.unwrapped
        assert type(one.unwrapped) is PendulumEnv


class Unrecorded(gym.Wrapper):
    """A wrapper that does not record how it was made."""


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (lambda: "CartPool-v1", "did you mean CartPole-v1"),
        (lambda: "nowhere.to.be.found:Thing-v0", "registers it"),
        (lambda: gym.envs.classic_control.CartPoleEnv(), "pass the class or a function"),
        (lambda: Unrecorded(gym.make("CartPole-v1")), "pass a function that applies it"),
    ],
)
def test_an_environment_that_cannot_be_made_again_is_refused(environment, message):
    with pytest.raises(InputError) as caught:
        user_task(environment(), pole())
    assert message in str(caught.value)


@pytest.mark.parametrize("given", ["class", "id"])
def test_what_a_constructor_raises_is_an_environment_fault(given):
    class Unfinished(gym.Env):
        def __init__(self):
            raise ValueError("no\nlicence")

    gym.register("Unfinished-v0", Unfinished)
    try:
        with pytest.raises(EnvironmentFault, match=r"^making the environment raised ValueError: no licence"):
            user_task(Unfinished if given == "class" else "Unfinished-v0", pole())
    finally:
        gym.registry.pop("Unfinished-v0")


def test_what_is_no_environment_is_refused():
    with pytest.raises(InputError, match="int is no environment"):
        _factory(3)


def test_a_symmetry_that_does_not_fit_is_refused_with_both_sides():
    with pytest.raises(InputError) as caught:
        user_task("CartPole-v1", pendulum())
    assert "observation has 4" in str(caught.value)
    assert "the symmetry 3" in str(caught.value)
    assert "discrete" in str(caught.value)
    with pytest.raises(EnvironmentFault, match="observation_space is Dict"):
        user_task(fetch._robot, pendulum())  # as gymnasium-robotics made it
