"""A gate fixed at 0 or 1 is the exact or the vanilla agent bit for bit; between them, what a draw means."""

from __future__ import annotations

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition, draw, mix
from symbreak.models.critic import make_twin_critic
from symbreak.nn.linear import Dense, Equivariant
from symbreak.tasks.gridworld import GridWorld
from symbreak.training.compiled import CompiledLoop
from symbreak.training.replay import Replay

pytestmark = pytest.mark.slow  # minutes of compiling

ROUTES = {0.0: ("exact", 0), 1.0: ("vanilla", 1)}


def same(first, second) -> bool:
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


# Two programs round alike where their loops are compiled alike. Very short loops are unrolled, and then one more
# operation beside a sum over the batch can change its order (seen at batch 16 and 32 with width 16, never above).
SIZE = {"batch": 64, "width": 64}


def played_grid(agent):
    """Sixty environment steps with exploration, replay and forty updates."""
    loop, key = CompiledLoop(agent, GridWorld(size=5, obstacles=3, layout_seed=1)), jax.random.key(5)
    # Compiled, the initialisation takes longer than all the rest.
    start = CompiledLoop.init.__wrapped__(loop, key)
    start = jax.tree.map(lambda leaf: leaf + 0 if eqx.is_inexact_array(leaf) else jnp.array(leaf), start)
    first = [expert.model for expert in start.agent.experts]
    first = jax.tree.map(np.asarray, first)
    state, metrics = loop.advance(start, jnp.int32(0), 60, key)
    return first, state, metrics


@pytest.fixture(scope="module")
def grid_runs(small_agent):
    agents = {name: small_agent("dqn", name, config=SIZE) for name in ("exact", "vanilla")}
    agents |= {p: small_agent("dqn", "partial-fixed", gate=p, routing="hard", config=SIZE) for p in ROUTES}
    return {name: played_grid(agent) for name, agent in agents.items()}


@pytest.mark.parametrize("probability", ROUTES)
def test_a_fixed_gate_makes_the_single_dqn_bit_for_bit(probability, grid_runs):
    name, selected = ROUTES[probability]
    gated_start, gated, gated_metrics = grid_runs[probability]
    single_start, single, metrics = grid_runs[name]
    assert same(gated_start[selected], single_start[0])  # networks are named by role
    assert same(gated.agent.experts[selected], single.agent.experts[0])
    assert same(gated.agent.targets[selected], single.agent.targets[0])
    assert same(gated.replay, single.replay)  # the same actions were explored
    assert same(gated.environment, single.environment)
    assert float(gated_metrics["critic/loss"]) == float(metrics["critic/loss"])
    assert same(gated.agent.experts[1 - selected].model, gated_start[1 - selected])  # the other one never moved
    assert not same(single.agent.experts[0].model, single_start[0])
    other, _ = ROUTES[1 - probability]
    assert not same(gated.replay, grid_runs[other][1].replay)


def played_point(agent, data):
    """Eight updates from a replay, each followed by an exploring and an exploiting action."""

    @jax.jit
    def run(state, replay, key):
        def step(state, number):
            step_key = jax.random.fold_in(key, number)
            sample = lambda k: replay.sample(k, agent.config.batch)  # noqa: E731
            state, metrics = agent.update(state, sample, number, step_key)
            observation = replay.data.observation[number]
            explored = agent.explore(state, observation, jnp.int32(30), step_key)
            exploited, _ = agent.exploit(state, observation, step_key)
            return state, (explored, exploited, metrics["critic/loss"], metrics["actor/loss"])

        return jax.lax.scan(step, state, jnp.arange(8, dtype=jnp.int32))

    start = agent.init(jax.random.key(5))
    return start, *run(start, data, jax.random.key(6))


@pytest.fixture(scope="module")
def point_runs(small_agent, random_batch):
    return all_point_runs(small_agent, random_batch, SIZE)


def all_point_runs(small_agent, random_batch, size):
    data = Replay(random_batch(small_agent("sac", "exact"), size=64), jnp.int32(64))
    agents = {name: small_agent("sac", name, config=size) for name in ("exact", "vanilla")}
    agents |= {p: small_agent("sac", "partial-fixed", gate=p, routing="hard", config=size) for p in ROUTES}
    return {name: played_point(agent, data) for name, agent in agents.items()}


@pytest.mark.parametrize("probability", ROUTES)
def test_a_fixed_gate_makes_the_single_sac_bit_for_bit(probability, point_runs):
    check_sac(probability, point_runs)


@pytest.mark.slow
def test_the_same_at_the_size_of_a_real_run(small_agent, random_batch):
    runs = all_point_runs(small_agent, random_batch, {"batch": 256, "width": 256})
    for probability in ROUTES:
        check_sac(probability, runs)


def check_sac(probability, point_runs):
    name, selected = ROUTES[probability]
    gated_start, gated, gated_record = point_runs[probability]
    single_start, single, record = point_runs[name]
    for part in ("critics", "policies"):
        start, end = getattr(gated_start, part), getattr(gated, part)
        assert same(start[selected], getattr(single_start, part)[0])
        assert same(end[selected], getattr(single, part)[0])
        assert same(end[1 - selected].model, start[1 - selected].model)
        assert not same(end[selected].model, start[selected].model)
    assert same(gated.targets[selected], single.targets[0])
    assert same(gated.temperature, single.temperature)
    assert same(gated_record, record)
    other, _ = ROUTES[1 - probability]
    assert not same(gated_record, point_runs[other][2])


def test_a_hard_draw_is_binary_with_its_probability_and_a_soft_one_is_the_probability():
    probability = jnp.full(20_000, 0.3)
    hard = draw("hard", probability, jax.random.key(0))
    assert set(np.unique(hard)) == {0.0, 1.0}
    assert float(hard.mean()) == pytest.approx(0.3, abs=0.02)
    assert same(draw("soft", probability, jax.random.key(0)), probability)
    equivariant, free = jnp.full(4, 2.0), jnp.full(4, 10.0)
    gate = jnp.array([0.0, 1.0, 0.0, 1.0])
    assert mix("hard", (equivariant, free), gate).tolist() == [2, 10, 2, 10]
    assert mix("soft", (equivariant, free), jnp.full(4, 0.25)).tolist() == [4] * 4
    assert mix("hard", (free,), gate).tolist() == [10] * 4  # a single expert is never asked whether


def test_the_dqn_target_under_a_random_gate_has_the_enumerated_expectation(small_agent, drawn_state, constant):
    probability, equivariant, free = 0.3, 1.0, np.array([0.0, 2.0, 1.5, 0.5])
    agent = small_agent("dqn", "partial-fixed", gate=probability, routing="hard")
    state = drawn_state(agent)
    targets = (constant(state.targets[0], *[equivariant] * 4), constant(state.targets[1], *free))
    size = 4096
    batch = Transition(
        jnp.zeros((size, 4)), jnp.zeros(size, jnp.int32), jnp.full(size, 0.5), jnp.zeros((size, 4)), jnp.full(size, 0.9)
    )
    ask = jax.jit(lambda key: agent.target(targets, None, batch, key))
    found = np.concatenate([ask(jax.random.key(seed)) for seed in range(16)])
    expected = 0.0
    for gates in product((0, 1), repeat=4):
        chance = np.prod([probability if gate else 1 - probability for gate in gates])
        expected += chance * max(value if gate else equivariant for gate, value in zip(gates, free, strict=True))
    error = 4 * found.std() / np.sqrt(len(found))
    assert found.mean() == pytest.approx(0.5 + 0.9 * expected, abs=error)
    one_draw_for_all = (1 - probability) * equivariant + probability * free.max()
    blended = ((1 - probability) * equivariant + probability * free).max()
    for wrong in (one_draw_for_all, blended):
        assert abs(0.5 + 0.9 * wrong - found.mean()) > 3 * error


def twins(agent, constant, equivariant, free):
    """Twin critics of both experts that answer constants."""
    shapes = [
        jax.eval_shape(lambda f=family: make_twin_critic(f, agent.symmetry, key=jax.random.key(0), width=16))
        for family in (Equivariant, Dense)
    ]
    made = []
    for shape, values in zip(shapes, (equivariant, free), strict=True):
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shape)
        made.append(eqx.tree_at(lambda m: m.network.head.bias, zero, jnp.asarray(values)[:, None]))
    return tuple(made)


def test_one_draw_of_the_gate_reaches_both_critics(small_agent, constant):
    agent = small_agent("sac", "partial-fixed", gate=0.5, routing="hard")
    critics = twins(agent, constant, [0.0, 0.0], [1.0, 1.0])
    observation, action = jnp.zeros((256, 2)), jnp.zeros((256, 2))
    gate = draw("hard", jnp.full(256, 0.5), jax.random.key(0))
    values = np.asarray(agent._critic_values(critics, observation, action, gate))
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], gate)
    apart = draw("hard", jnp.full((2, 256), 0.5), jax.random.key(0))  # a draw for each twin would differ
    assert (np.asarray(apart[0]) != np.asarray(apart[1])).any()


def test_the_minimum_is_taken_after_mixing(small_agent, drawn_state, constant):
    agent = small_agent("sac", "partial-fixed", gate=0.5, routing="soft")
    state = drawn_state(agent)
    critics = twins(agent, constant, [1.0, 5.0], [4.0, 2.0])
    cold = eqx.tree_at(lambda t: t.logarithm, state.temperature.model, jnp.asarray(-40.0))  # no entropy term
    policies = tuple(learner.model for learner in state.policies)
    batch = Transition(jnp.zeros((4, 2)), jnp.zeros((4, 2)), jnp.full(4, 0.5), jnp.zeros((4, 2)), jnp.full(4, 0.9))
    after, before = min(0.5 * 1 + 0.5 * 4, 0.5 * 5 + 0.5 * 2), 0.5 * min(1, 5) + 0.5 * min(4, 2)
    target = agent.target(critics, policies, None, cold, batch, jax.random.key(0))
    np.testing.assert_allclose(target, 0.5 + 0.9 * after, rtol=1e-5)
    loss, _ = agent.actor_loss(policies, critics, None, cold, batch, jax.random.key(0))
    assert float(loss) == pytest.approx(-after, rel=1e-5)
    assert after != before
