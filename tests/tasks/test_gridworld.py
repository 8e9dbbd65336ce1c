"""The grid-world follows its rules, commutes with quarter turns when empty, and equals its exported tables."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config

from symbreak.errors import InputError
from symbreak.symmetry import C, Layout, Symmetry
from symbreak.tasks.gridworld import GridState, GridWorld

UP, LEFT, DOWN, RIGHT = range(4)
VARIANTS = [
    GridWorld(),
    GridWorld(obstacles=40, layout_seed=3),
    GridWorld(obstacles=30, passable_penalty=True),
    GridWorld(size=6, obstacles=9, layout_seed=1),
]


class Stepped(NamedTuple):
    """What one step does from every state (agent * cells + goal) with every action."""

    next_state: np.ndarray
    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray


def step_all(world: GridWorld, key: int = 0) -> Stepped:
    def one(state_index, action):
        state = GridState(state_index // world.cells, state_index % world.cells, jnp.int32(0))
        state, observation, reward, terminated, _, _ = world.step(jax.random.key(key), state, action)
        return Stepped(state.agent * world.cells + state.goal, observation, reward, terminated)

    every_action = jax.vmap(one, in_axes=(None, 0))
    every_pair = jax.jit(jax.vmap(every_action, in_axes=(0, None)))
    return jax.tree.map(np.asarray, every_pair(jnp.arange(world.cells**2), jnp.arange(4)))


def disagreements(stepped: Stepped, states: np.ndarray, actions: np.ndarray, rotation: np.ndarray) -> dict[str, int]:
    """How many pairs, per part of a step, do not commute with one group element."""
    image = Stepped(*(part[states][:, actions] for part in stepped))
    return {
        "state": int((image.next_state != states[stepped.next_state]).sum()),
        "observation": int((image.observation != stepped.observation @ rotation.T).any(axis=-1).sum()),
        "reward": int((image.reward != stepped.reward).sum()),
        "termination": int((image.terminated != stepped.terminated).sum()),
    }


def turned(world: GridWorld, stepped: Stepped, turns: int, action_turns: int | None = None) -> dict[str, int]:
    quarter = np.kron(np.eye(2), [[0, -1], [1, 0]]).astype(np.float32)
    actions = (np.arange(4) + (turns if action_turns is None else action_turns)) % 4
    return disagreements(
        stepped, world.state_permutation(turns), actions, np.linalg.matrix_power(quarter, turns).astype(np.float32)
    )


# --- symmetry -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("size", [15, 6])
def test_empty_grid_commutes_with_every_element_at_every_pair(size, turns):
    world = GridWorld(size=size)
    assert turned(world, step_all(world), turns) == {"state": 0, "observation": 0, "reward": 0, "termination": 0}


@pytest.mark.parametrize("turns", [1, 3])
def test_inverted_action_order_is_caught(turns):
    world = GridWorld()
    wrong = turned(world, step_all(world), turns, action_turns=-turns)
    # Half of the actions go the other way, from every cell but those at the edge where both bump.
    assert wrong["state"] > world.cells**2
    assert wrong["reward"] > 0
    assert wrong["termination"] > 0


def test_obstacles_break_the_dynamics_and_penalties_the_reward_where_the_dynamics_hold():
    def broken_pairs(world):
        stepped, states = step_all(world), world.state_permutation(1)
        image = Stepped(*(part[states][:, [1, 2, 3, 0]] for part in stepped))
        return image.next_state != states[stepped.next_state], image.reward != stepped.reward

    dynamics, reward = broken_pairs(GridWorld(obstacles=10))
    assert dynamics.any()
    assert not (reward & ~dynamics).any()
    dynamics, reward = broken_pairs(GridWorld(obstacles=10, passable_penalty=True))
    assert (reward & ~dynamics).any()


def test_observations_off_centre_are_caught():
    world = GridWorld()
    stepped = step_all(world)
    shifted = stepped._replace(observation=stepped.observation + np.float32(1 / 7))
    quarter = np.kron(np.eye(2), [[0, -1], [1, 0]]).astype(np.float32)
    wrong = disagreements(shifted, world.state_permutation(1), (np.arange(4) + 1) % 4, quarter)
    assert wrong["observation"] == stepped.reward.size


def test_slip_commutes_with_quarter_turns_in_every_bit():
    tables = GridWorld(slip=0.35).tabular()
    broken = GridWorld(slip=0.35, obstacles=1).tabular()
    for states, actions in zip(tables.state_permutations, tables.action_permutations, strict=True):
        # Outcome k is k quarter turns away from the chosen direction, so outcomes correspond one to one.
        np.testing.assert_array_equal(tables.next_state[states][:, actions], states[tables.next_state])
        np.testing.assert_array_equal(tables.reward[states][:, actions], tables.reward)
    states, actions = broken.state_permutations[1], broken.action_permutations[1]
    assert (broken.next_state[states][:, actions] != states[broken.next_state]).any()


def test_declared_symmetry_acts_as_the_tables_do():
    group = C(4)
    symmetry = Symmetry(
        observation=Layout({"agent": group.rotation(1), "goal": group.rotation(1)}),
        action=Layout({"direction": group.regular}),
        discrete=True,
    )
    world = GridWorld()
    agent, goal = np.divmod(np.arange(world.cells**2), world.cells)
    tables = world.tabular()
    generator = group.generators[0]
    image = world.observe(agent, goal) @ symmetry.observation.matrix(generator).T
    np.testing.assert_array_equal(np.stack(world.locate(image)), np.divmod(tables.state_permutations[1], world.cells))
    np.testing.assert_array_equal(symmetry.action_permutation(generator), tables.action_permutations[1])
    assert (symmetry.action_permutation(generator) != tables.action_permutations[3]).any()


def test_the_225_cells_form_56_orbits_of_four_and_the_centre():
    world = GridWorld()
    orbits = {tuple(sorted({int(world.cell_permutation(turns)[cell]) for turns in range(4)})) for cell in range(225)}
    assert sorted(len(orbit) for orbit in orbits) == [1] + 56 * [4]
    assert (7 * 15 + 7,) in orbits
    # An even grid has no centre cell.
    even = GridWorld(size=6)
    assert not (even.cell_permutation(1) == np.arange(36)).any()


def test_permutations_are_a_group_action():
    world = GridWorld(size=5)
    turn = world.state_permutation(1)
    np.testing.assert_array_equal(turn[turn], world.state_permutation(2))
    np.testing.assert_array_equal(turn[world.state_permutation(-1)], np.arange(world.cells**2))
    assert (world.state_permutation(1) != world.state_permutation(3)).any()


# --- coordinates ----------------------------------------------------------------------------------------------------


def test_actions_move_where_their_names_say():
    world = GridWorld()
    centre, corner = 7 * 15 + 7, 0
    moves = [world.locate(step_all(world).observation[centre * 225 + corner, action])[0] for action in range(4)]
    x, y = (world.coordinates()[np.array(moves)] * 7).T
    np.testing.assert_allclose(x, [0, -1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(y, [1, 0, -1, 0], atol=1e-6)


@pytest.mark.parametrize("size", [2, 5, 6, 15])
def test_observations_are_centred_bounded_and_invertible(size):
    world = GridWorld(size=size)
    agent, goal = np.divmod(np.arange(world.cells**2), world.cells)
    observation = world.observe(agent, goal)
    assert observation.dtype == np.float32
    np.testing.assert_allclose(observation.mean(axis=0), 0, atol=1e-6)
    assert np.abs(observation).max() == 1
    np.testing.assert_array_equal(world.locate(observation), (agent, goal))
    traced = jax.jit(world.observe)(jnp.asarray(agent), jnp.asarray(goal))
    np.testing.assert_array_equal(traced, observation)
    np.testing.assert_array_equal(jax.jit(world.locate)(traced), (agent, goal))


# --- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", VARIANTS)
def test_exported_tables_equal_the_stepped_world_at_every_pair(world):
    stepped, tables = step_all(world), world.tabular()
    np.testing.assert_array_equal(stepped.next_state, tables.next_state[..., 0])
    np.testing.assert_array_equal(stepped.reward, tables.reward.astype(np.float32))
    np.testing.assert_array_equal(stepped.terminated, tables.terminal[tables.next_state[..., 0]])
    other = GridWorld(size=world.size, obstacles=world.obstacles + 1, layout_seed=9).tabular()
    assert (stepped.next_state != other.next_state[..., 0]).any()


def test_exported_slip_is_the_distribution_of_stepping():
    world = GridWorld(size=4, obstacles=4, passable_penalty=True, slip=0.35)
    tables, samples, pairs = world.tabular(), 4000, world.cells**2 * 4
    state, action = jnp.divmod(jnp.arange(pairs), 4)

    def tally(total, key):
        def one(key, state, action):
            begin = GridState(state // world.cells, state % world.cells, jnp.int32(0))
            following, _, reward, *_ = world.step(key, begin, action)
            return following.agent, reward

        agent, reward = jax.vmap(one)(jax.random.split(key, pairs), state, action)
        counts, rewards = total
        return (counts.at[jnp.arange(pairs), agent].add(1), rewards + reward), None

    start = jnp.zeros((pairs, world.cells)), jnp.zeros(pairs)
    counts, rewards = jax.jit(lambda keys: jax.lax.scan(tally, start, keys)[0])(
        jax.random.split(jax.random.key(1), samples)
    )
    frequency, mean_reward = np.asarray(counts) / samples, np.asarray(rewards) / samples

    def expected(probability):
        exact = np.zeros((pairs, world.cells))
        np.add.at(exact, (np.arange(pairs)[:, None], tables.next_state.reshape(pairs, 4) // world.cells), probability)
        return exact

    exact = expected(tables.probability.reshape(pairs, 4))
    assert np.abs(frequency - exact).max() < 0.04  # five standard deviations
    np.testing.assert_allclose(mean_reward, tables.reward.reshape(-1), atol=0.04)
    # Had the slip been shared by all four directions, the intended one would have been seen more often.
    assert np.abs(frequency - expected(np.array([0.7375, 0.0875, 0.0875, 0.0875]))).max() > 0.06


def test_slip_probabilities():
    np.testing.assert_allclose(GridWorld(slip=0.35).transition_table().probability, [0.65, *3 * [0.35 / 3]])
    assert GridWorld().transition_table().probability.tolist() == [1.0]


@pytest.mark.parametrize("world", VARIANTS)
def test_next_state_of_a_terminal_transition_is_the_goal_cell(world):
    stepped = step_all(world)
    agent, goal = world.locate(stepped.observation)
    np.testing.assert_array_equal(agent == goal, stepped.terminated)
    reached = stepped.reward == 1
    assert reached.any()
    assert stepped.terminated[reached].all()
    # All other terminated rows are episodes that had finished before: they stay and earn nothing.
    finished = world.tabular().terminal
    assert (stepped.terminated & ~reached).sum() == 4 * finished.sum()
    assert (stepped.reward[finished] == 0).all()


def test_a_goal_on_a_blocked_cell_is_unreachable_and_an_agent_there_walks_off():
    world = GridWorld(obstacles=10)
    stepped, blocked = step_all(world), np.flatnonzero(world.floor().blocked)
    agent, goal = np.divmod(np.arange(world.cells**2), world.cells)
    to_blocked = np.isin(goal, blocked) & (agent != goal)
    assert not stepped.terminated[to_blocked].any()
    assert stepped.terminated[~to_blocked & (agent != goal)].any()
    from_blocked = np.isin(agent, blocked) & (agent != goal)
    assert (stepped.next_state[from_blocked] // world.cells != agent[from_blocked, None]).any()


def test_a_step_onto_a_penalty_cell_costs_half_a_point_unless_it_is_the_goal():
    world = GridWorld(obstacles=10, passable_penalty=True)
    stepped, penalty = step_all(world), world.floor().penalty.reshape(-1)
    agent, goal = np.divmod(stepped.next_state, world.cells)
    running = ~world.tabular().terminal[:, None] & np.ones(4, bool)
    on_penalty = penalty[agent] & (agent != goal) & running
    assert (stepped.reward[on_penalty] == -0.5).all()
    assert (stepped.reward[running & ~on_penalty & (agent != goal)] == np.float32(-0.01)).all()
    assert (stepped.reward[running & (agent == goal)] == 1).all()
    assert world.reward_values == (-0.5, -0.01, 1.0)
    assert set(np.unique(stepped.reward[running])) == {np.float32(value) for value in world.reward_values}
    assert GridWorld(obstacles=10).reward_values == (-0.01, 1.0)


def play(world, agent, goal, actions):
    """Terminated and truncated after each action."""
    state, flags = GridState(jnp.int32(agent), jnp.int32(goal), jnp.int32(0)), []
    step = jax.jit(world.step)
    for action in actions:
        state, _, _, terminated, truncated, info = step(jax.random.key(0), state, action)
        assert info["is_success"] == terminated
        flags.append((bool(terminated), bool(truncated)))
    return flags


def test_the_horizon_truncates_and_never_terminates():
    flags = play(GridWorld(horizon=5), agent=0, goal=200, actions=5 * [UP])
    assert flags == 4 * [(False, False)] + [(False, True)]
    assert play(GridWorld(horizon=6), agent=0, goal=200, actions=5 * [UP])[-1] == (False, False)


def test_reaching_the_goal_as_the_horizon_ends_is_termination():
    actions = [UP, UP, RIGHT]
    assert play(GridWorld(horizon=3), agent=0, goal=1, actions=actions)[-1] == (True, False)
    assert play(GridWorld(horizon=3), agent=0, goal=2, actions=actions)[-1] == (False, True)


# --- episodes -------------------------------------------------------------------------------------------------------


def pair_frequencies(world, draw, samples):
    state = jax.vmap(draw)(jax.random.split(jax.random.key(0), samples))
    return np.bincount(np.asarray(state.agent * world.cells + state.goal), minlength=world.cells**2) / samples


def test_start_and_goal_are_uniform_over_distinct_free_cells():
    world = GridWorld(size=3, obstacles=4, passable_penalty=True)
    allowed, samples = world.tabular().free, 60_000
    uniform = allowed / allowed.sum()
    tolerance = 5 * np.sqrt(uniform.max() / samples)
    frequency = pair_frequencies(world, lambda key: world.reset(key)[0], samples)
    assert (frequency[~allowed] == 0).all()
    assert np.abs(frequency - uniform).max() < tolerance

    def moved_on_when_equal(key):
        start_key, goal_key = jax.random.split(key)
        free = jnp.asarray(world.free_cells())
        start, goal = (jax.random.randint(each, (), 0, free.size) for each in (start_key, goal_key))
        return GridState(free[start], free[jnp.where(goal == start, (goal + 1) % free.size, goal)], jnp.int32(0))

    assert np.abs(pair_frequencies(world, moved_on_when_equal, samples) - uniform).max() > tolerance


def test_penalty_cells_may_be_start_and_goal():
    world = GridWorld(size=4, obstacles=6, passable_penalty=True)
    penalty = np.flatnonzero(world.floor().penalty)
    state = jax.vmap(lambda key: world.reset(key)[0])(jax.random.split(jax.random.key(0), 500))
    assert np.isin(penalty, state.agent).all()
    assert np.isin(penalty, state.goal).all()


def test_jit_vmap_and_scan_agree_with_single_steps():
    world = GridWorld(obstacles=30, slip=0.35)
    keys = jax.random.split(jax.random.key(3), 8)
    batch, observation = jax.jit(jax.vmap(world.reset))(keys)
    actions = jnp.arange(8) % 4
    batched = jax.jit(jax.vmap(world.step))(keys, batch, actions)
    for index in range(8):
        alone = world.step(keys[index], jax.tree.map(lambda leaf, i=index: leaf[i], batch), actions[index])
        for left, right in zip(jax.tree.leaves(alone), jax.tree.leaves(batched), strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right[index])
    assert observation.shape == (8, 4)

    def scanned(state, key):
        state, *_ = world.step(key, state, 0)
        return state, None

    start, _ = world.reset(keys[0])
    after_scan, _ = jax.lax.scan(scanned, start, keys)
    for key in keys:
        start, *_ = world.step(key, start, 0)
    assert jax.tree.map(int, after_scan) == jax.tree.map(int, start)


def test_a_world_is_static_and_steps_have_fixed_types():
    begin = jax.jit(lambda world, key: world.reset(key), static_argnums=0)
    state, observation = begin(GridWorld(obstacles=10), jax.random.key(0))
    _, observation, reward, terminated, truncated, _ = GridWorld(obstacles=10).step(jax.random.key(1), state, 2)
    assert (observation.dtype, reward.dtype, state.agent.dtype) == (jnp.float32, jnp.float32, jnp.int32)
    assert (terminated.dtype, truncated.dtype) == (jnp.bool_, jnp.bool_)
    assert hash(GridWorld(size=7)) == hash(GridWorld(size=7)) != hash(GridWorld(size=8))


def test_keys_decide_and_only_slip_reads_the_step_key():
    world = GridWorld(obstacles=10)
    states = [world.reset(jax.random.key(seed))[0] for seed in (0, 0, 1)]
    assert jax.tree.map(int, states[0]) == jax.tree.map(int, states[1]) != jax.tree.map(int, states[2])
    np.testing.assert_array_equal(step_all(world, key=0).next_state, step_all(world, key=1).next_state)
    slippery = GridWorld(obstacles=10, slip=0.35)
    assert any(
        (step_all(slippery, key=0).next_state != step_all(slippery, key=seed).next_state).any() for seed in range(1, 9)
    )


# --- tables and mistakes --------------------------------------------------------------------------------------------


@pytest.fixture
def as_a_user():
    """Without the run-time type checks of the tests, which would refuse a wrong type before the package can."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def test_tables_are_a_markov_decision_process_and_cannot_be_changed():
    tables = GridWorld(obstacles=20, slip=0.35).tabular()
    assert tables.next_state.dtype == np.int32
    assert tables.probability.dtype == tables.reward.dtype == np.float64
    np.testing.assert_allclose(tables.probability.sum(axis=-1), 1)
    assert tables.free.sum() == 205 * 204
    assert not (tables.free & tables.terminal).any()
    # No episode leaves the free cells: successors of free states are free or terminal.
    successors = tables.next_state[tables.free]
    assert (tables.free | tables.terminal)[successors].all()
    assert not tables.free[successors].all()
    for array in (tables.next_state, tables.probability, tables.reward, tables.free):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"size": 1}, "size=1"),
        ({"size": 15.0}, "size=15.0"),
        ({"size": True}, "size=True"),
        ({"obstacles": -1}, "obstacles=-1"),
        ({"obstacles": 224}, "obstacles=224"),
        ({"size": 3, "obstacles": 8}, "at most 7"),
        ({"layout_seed": -1}, "layout_seed=-1"),
        ({"horizon": 0}, "horizon=0"),
        ({"slip": 1.5}, "slip=1.5"),
        ({"slip": float("nan")}, "slip=nan"),
        ({"slip": "0.35"}, "slip='0.35'"),
        ({"passable_penalty": 1}, "passable_penalty=1"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_mistakes_are_refused_by_name(fields, named):
    with pytest.raises(InputError, match=named) as caught:
        GridWorld(**fields)
    assert "\n" not in str(caught.value)
    assert "use" in str(caught.value) or "must" in str(caught.value)


def test_the_limits_themselves_are_accepted():
    GridWorld(size=2, obstacles=2, slip=1.0, horizon=1)
    with pytest.raises(InputError, match="too many for tables"):
        GridWorld(size=100).tabular()
