"""What loops store and when they let an agent learn: true final observations, environment steps, finite numbers."""

from __future__ import annotations

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.agents.dqn import DQN, DQNConfig
from symbreak.agents.methods import METHODS
from symbreak.agents.sac import SAC, SACConfig
from symbreak.errors import EnvironmentFault, NumericFault
from symbreak.gates import FixedGate, GateConfig, LearnedGate
from symbreak.gates.threshold import ThresholdRule
from symbreak.models.predictor import CellOutcome, IncrementOutcome
from symbreak.tasks.diagnostic import diagnostic_task, mirror
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.symmetries import grid
from symbreak.training.compiled import CompiledLoop
from symbreak.training.hosted import HostedLoop
from symbreak.training.tally import Tally, require_finite_metrics

GAMMA, CHUNK, STARTS, WARMUP = 0.9, 10, 10, 25
WORLD = GridWorld(size=3, horizon=3)
KEY = jax.random.key(4)
CONFIG = DQNConfig(batch=8, width=8, capacity=64, learning_starts=STARTS, discount=GAMMA, exploration_steps=1_000)
GATE = GateConfig(
    threshold=ThresholdRule("absolute"), standardise=False, warmup=WARMUP, width=8, predictor_width=8, rate=1e-2
)


def same(first, second) -> bool:
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def copied(tree):
    """Buffers of its own, since loops give theirs away."""
    return jax.tree.map(jnp.array, tree)


# --- environments in JAX ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loop():
    gate = LearnedGate(grid(), CellOutcome(grid(), 3), GATE)
    return CompiledLoop(DQN(grid(), METHODS["partial"], gate, CONFIG), WORLD)


@pytest.fixture(scope="module")
def played(loop):
    """The states after 0, 10, 20, 30 and 40 environment steps, and the metrics of the last ten of each."""
    state = CompiledLoop.init.__wrapped__(loop, KEY)
    states, metrics = [copied(state)], [{}]
    for start in range(0, 40, CHUNK):
        state, found = loop.advance(copied(state), jnp.int32(start), CHUNK, KEY)
        states.append(copied(state))
        metrics.append(found)
    return states, metrics


def stored(replay) -> dict[str, np.ndarray]:
    count = int(replay.inserted)
    data = replay.data
    agent, goal = WORLD.locate(np.asarray(data.observation)[:count])
    after, goal_after = WORLD.locate(np.asarray(data.next_observation)[:count])
    step = WORLD.transition_table().next_cell[agent, np.asarray(data.action)[:count], 0]
    arrays = {"agent": agent, "goal": goal, "after": after, "goal after": goal_after, "step": step}
    return arrays | {"discount": np.asarray(data.discount)[:count], "reward": np.asarray(data.reward)[:count]}


def test_stored_transitions_are_steps_of_the_world_also_at_the_end_of_an_episode(played):
    rows = stored(played[0][-1].replay)
    assert len(rows["agent"]) == 40
    np.testing.assert_array_equal(rows["after"], rows["step"])
    np.testing.assert_array_equal(rows["goal"], rows["goal after"])
    following = np.roll(rows["agent"], -1)[:-1]
    border = (following != rows["after"][:-1]) | (np.roll(rows["goal"], -1)[:-1] != rows["goal"][:-1])
    truncated = border & (rows["discount"][:-1] > 0)
    assert truncated.sum() >= 3  # episodes of three steps: most are cut off
    # Had the first observation of the next episode been stored instead, these would not be steps.
    assert (following[truncated] != rows["step"][:-1][truncated]).any()


def test_only_termination_ends_the_bootstrapping(played):
    rows = stored(played[0][-1].replay)
    ended = rows["after"] == rows["goal"]
    assert ended.any()
    np.testing.assert_allclose(rows["discount"], np.where(ended, 0, GAMMA), rtol=1e-6)
    np.testing.assert_allclose(rows["reward"], np.where(ended, 1, -0.01), rtol=1e-6)


def updates(state) -> int:
    return int(state.agent.experts[0].moments.count)


def test_learning_and_the_warm_up_are_counted_in_environment_steps(played):
    states, metrics = played
    # The first update comes with the tenth step, the gate's first with the 25th, not with the 25th update.
    assert [updates(state) for state in states] == [0, 1, 11, 21, 31]
    gates = [state.agent.gate.classifier for state in states]
    assert same(gates[0], gates[1])
    assert same(gates[0], gates[2])
    assert not same(gates[0], gates[3])
    assert int(gates[3].moments.count) == 30 - WARMUP + 1
    assert updates(states[3]) < WARMUP  # counted in updates it would not have begun
    assert np.isnan(metrics[2]["gate/rate"])
    assert np.isfinite(metrics[3]["gate/rate"])


def test_a_scan_of_ten_steps_is_ten_steps(loop, played):
    first, count = played[0][1], jnp.int32(CHUNK)
    state, tally = copied(first), loop.empty_tally(first)
    before = CompiledLoop.run._cache_size()
    for number in range(CHUNK, 2 * CHUNK):
        state, tally = loop.run(state, tally, jnp.int32(number), jnp.int32(1), KEY)
    assert CompiledLoop.run._cache_size() <= before + 1
    assert same(state, played[0][2])
    # The sums are taken step by step too.
    _, together = loop.run(copied(first), loop.empty_tally(first), count, count, KEY)
    assert same(tally, together)
    assert not same(tally, loop.empty_tally(played[0][1]))


def test_a_disagreement_that_is_no_number_shows_in_the_metrics_and_stops_a_run(loop, played):
    states, metrics = played
    assert float(metrics[3]["gate/finite"]) == 1
    sick = eqx.tree_at(
        lambda s: s.agent.gate.predictors.free.model.network.head.bias,
        copied(states[2]),
        jnp.full_like(states[2].agent.gate.predictors.free.model.network.head.bias, jnp.inf),
    )
    _, tally = loop.run(sick, loop.empty_tally(sick), jnp.int32(20), jnp.int32(CHUNK), KEY)
    with pytest.raises(NumericFault, match="disagreement"):
        require_finite_metrics(*tally.read(), 30)


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_loss_that_is_no_number_shows_in_its_sum_and_a_metric_without_a_value_does_not(value):
    tally = Tally.empty(["critic/loss", "gate/rate"])
    tally = tally.add({"critic/loss": jnp.ones(()), "gate/rate": jnp.full((), jnp.nan)})
    require_finite_metrics(*tally.read(), 1)
    assert float(tally.counts["gate/rate"]) == 0
    tally = tally.add({"critic/loss": jnp.full((), value), "gate/rate": jnp.ones(())})
    with pytest.raises(NumericFault, match="critic/loss is not finite before step 2"):
        require_finite_metrics(*tally.read(), 2)


# --- environments of Gymnasium ----------------------------------------------------------------------------------------


class Counter(gym.Env):
    """Tells its own time: the observation is (steps since reset, number of the episode), cut off after `limit`."""

    observation_space = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)

    def __init__(self, limit=5, ends=False, continuous=False, poison=None):
        self.limit, self.ends, self.poison = limit, ends, poison
        self.action_space = (
            gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
            if continuous
            else gym.spaces.Discrete(3)
        )
        self.episode, self.actions = 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.episode = 0, self.episode + 1
        return np.array([0, self.episode], np.float32), {}

    def step(self, action):
        self.actions.append(np.array(action))
        self.time += 1
        over = self.time >= self.limit
        observation = np.array([self.time, self.episode], np.float32)
        if self.poison == len(self.actions):
            observation[1] = np.nan
        return observation, 1.0, over and self.ends, over and not self.ends, {}


def vanilla(**settings):
    symmetry = mirror(False)
    config = DQNConfig(**{"batch": 8, "width": 8, "capacity": 64, "learning_starts": 12, "discount": GAMMA} | settings)
    return DQN(symmetry, METHODS["vanilla"], FixedGate(0.0, 3), config)


@pytest.mark.parametrize("ends", [False, True])
def test_the_true_final_observation_is_stored_and_no_step_across_a_reset(ends):
    loop = HostedLoop(vanilla(), lambda: Counter(ends=ends))
    loop.advance(17)
    data = jax.tree.map(lambda leaf: np.asarray(leaf)[:17], loop.state.replay.data)
    assert int(loop.state.replay.inserted) == 17
    np.testing.assert_array_equal(data.observation[:, 0], np.arange(17) % 5)
    np.testing.assert_array_equal(data.next_observation[:, 0], np.arange(17) % 5 + 1)
    np.testing.assert_array_equal(data.next_observation[:, 1], data.observation[:, 1])
    last = np.arange(17) % 5 == 4
    np.testing.assert_allclose(data.discount, np.where(last & ends, 0, GAMMA), rtol=1e-6)
    assert list(loop.returns) == [5, 5, 5]
    assert int(loop.state.agent.experts[0].moments.count) == 17 - 12 + 1


def test_an_evaluation_does_not_wait_for_an_end_that_never_comes(monkeypatch):
    monkeypatch.setattr("symbreak.training.guarded.LONGEST_EPISODE", 20)
    endless = HostedLoop(vanilla(), lambda: Counter(limit=10**9))
    endless.advance(50)  # training goes on in one episode
    with pytest.raises(
        EnvironmentFault, match=r"within 20 steps of an evaluation; .* max_episode_steps or .*TimeLimit"
    ):
        endless.evaluate(1)
    longest = HostedLoop(vanilla(), lambda: Counter(limit=20))
    assert longest.evaluate(2)["eval/length"] == 20
    gym.register("Endless-v0", lambda: Counter(limit=10**9), max_episode_steps=30)
    for declared in (lambda: gym.make("Endless-v0"), lambda: gym.wrappers.TimeLimit(Counter(limit=10**9), 30)):
        assert HostedLoop(vanilla(), declared).evaluate(1)["eval/length"] == 30


def copies(program, rows: int) -> list[str]:
    """Copies of arrays with so many rows in a compiled program."""
    lines = program.compile().as_text().splitlines()
    return [line for line in lines if " copy(" in line and f"[{rows}" in line.split(" copy(")[0]]


def test_a_step_never_copies_the_replay():
    rows = 4099  # of nothing else in the program
    loop = HostedLoop(vanilla(capacity=rows), lambda: Counter(limit=5))
    seen = loop.seats[0].observation
    move = (seen, np.array(loop.action), np.float32(0), seen, np.float32(0))
    program = type(loop.device).think.lower(
        loop.device, loop._structure, loop._leaves, move, seen, np.int32(20), True, loop.key
    )
    assert not copies(program, rows)
    kept = jax.jit(lambda replay: replay.insert(Transition(*move)))  # its argument is not given away
    assert copies(kept.lower(loop.state.replay), rows)


def test_several_environments_take_turns_and_none_mixes_with_another():
    loop = HostedLoop(vanilla(), lambda: Counter(limit=5), copies=3)
    loop.advance(31)
    data = jax.tree.map(lambda leaf: np.asarray(leaf)[:31], loop.state.replay.data)
    turn = np.arange(31) // 3  # of each environment, which are asked one after the other
    np.testing.assert_array_equal(data.observation[:, 0], turn % 5)
    np.testing.assert_array_equal(data.next_observation[:, 0], turn % 5 + 1)
    np.testing.assert_array_equal(data.observation[:, 1], 1 + turn // 5)
    np.testing.assert_array_equal(data.next_observation[:, 1], data.observation[:, 1])
    assert [seat.number for seat in loop.seats] == [6, 7, 8]  # every episode has a number, and a seed, of its own
    assert int(loop.state.agent.experts[0].moments.count) == 31 - 12 + 1
    played = np.concatenate([np.array(seat.environment.environment.actions) for seat in loop.seats])
    stored = np.concatenate([data.action[n::3] for n in range(3)])
    np.testing.assert_array_equal(played, stored)


def test_several_environments_choose_from_what_they_show():
    class Copying:  # an agent whose action tells what it was shown
        symmetry, config = mirror(True), SACConfig(batch=8, width=8, capacity=64, learning_starts=99)

        def init(self, key):
            return jnp.zeros(())

        def update(self, agent, sample, step, key):
            return agent, {"x": jnp.zeros(())}

        def explore(self, agent, observation, step, key):
            return observation / 100

    loop = HostedLoop(Copying(), lambda: Counter(continuous=True), copies=3)
    loop.seats[1].begin(7, 0)  # another time than its neighbours', so that a mix-up shows
    loop.run(20)
    data = jax.tree.map(lambda leaf: np.asarray(leaf)[:20], loop.state.replay.data)
    np.testing.assert_allclose(data.action, data.observation / 100, rtol=1e-6)


def test_actions_fill_the_box_of_the_environment():
    symmetry = mirror(True)
    agent = SAC(
        symmetry, METHODS["vanilla"], FixedGate(0.0), SACConfig(batch=8, width=8, capacity=64, learning_starts=99)
    )
    loop = HostedLoop(agent, lambda: Counter(continuous=True))
    loop.advance(60)
    played = np.array(loop.seats[0].environment.environment.actions)
    asked = np.asarray(loop.state.replay.data.action)[:60]
    np.testing.assert_allclose(played, asked * [2, 5] + [0, 5], rtol=1e-5)
    assert np.abs(asked).max() <= 1
    assert played[:, 1].min() < 2
    assert played[:, 1].max() > 8


def test_equal_seeds_are_equal_runs_and_evaluation_leaves_no_trace():
    plain, evaluated, other = (HostedLoop(vanilla(), Counter, seed=seed) for seed in (0, 0, 1))
    for loop in (plain, evaluated, other):
        loop.advance(15)
        if loop is evaluated:
            result = loop.evaluate(3)
            assert result["eval/length"] == 5
        loop.advance(5)
    assert same(plain.state, evaluated.state)
    assert not same(plain.state.agent, other.state.agent)


def test_a_bad_number_from_the_environment_stops_before_it_is_stored():
    loop = HostedLoop(vanilla(), lambda: Counter(poison=7))
    with pytest.raises(NumericFault, match=r"observation\[1\] .* is nan after step 7"):
        loop.advance(10)
    assert int(loop.state.replay.inserted) == 6
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(loop.state.replay.data))


@pytest.mark.slow
def test_a_disagreement_that_is_no_number_stops_a_hosted_run():
    symmetry = mirror(False)
    config = GateConfig(warmup=5, width=8, predictor_width=8, threshold=ThresholdRule(every=1))
    gate = LearnedGate(symmetry, IncrementOutcome(symmetry), config)
    agent = DQN(symmetry, METHODS["partial"], gate, DQNConfig(batch=8, width=8, capacity=64, learning_starts=4))
    loop = HostedLoop(agent, diagnostic_task("patch").make)
    assert loop.advance(8)["gate/finite"] == 1
    sick = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), loop.state.agent.gate.predictors.free.model)
    loop.state = eqx.tree_at(lambda s: s.agent.gate.predictors.free.model, loop.state, sick)
    with pytest.raises(NumericFault, match="disagreement is not finite"):
        loop.advance(3)
