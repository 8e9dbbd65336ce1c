"""Whose density an action has, where candidates come from, how random actions are spread, what ε does."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from symbreak.agents.methods import METHODS
from symbreak.agents.sac import SAC, SACConfig
from symbreak.gates import FixedGate
from symbreak.symmetry import SO3, Field, Layout, Symmetry


def models(learners):
    return tuple(learner.model for learner in learners)


def test_log_prob_is_that_of_the_selected_expert(small_agent, drawn_state, random_batch):
    agent = small_agent("sac", "partial-fixed", gate=0.5, routing="hard")
    state = drawn_state(agent)
    observations = random_batch(agent, size=64).observation

    @jax.jit
    def numbers(policies):
        action, log_prob, gate = agent._act(policies, None, observations, jax.random.key(0))
        experts = [jax.vmap(lambda s, a, p=policy: p(s).log_prob(a))(observations, action) for policy in policies]
        return log_prob, gate, *experts

    log_prob, gate, equivariant, free = (np.asarray(part) for part in numbers(models(state.policies)))
    assert 16 < gate.sum() < 48
    np.testing.assert_allclose(log_prob, np.where(gate == 1, free, equivariant), atol=2e-3)
    assert np.abs(log_prob - np.where(gate == 0, free, equivariant)).max() > 0.1
    mixture = np.logaddexp(equivariant, free) - np.log(2)  # the density of "either", which nobody is asked for
    assert np.abs(log_prob - mixture).max() > 0.1


@pytest.mark.parametrize("count", [4, 8])
def test_half_of_the_candidates_come_from_each_expert(count, small_agent, drawn_state):
    agent = small_agent("sac", replace(METHODS["partial"], candidates=count))
    state = drawn_state(agent)

    def pointing(policy, height):
        """Always near tanh(height) in the invariant entry of the action."""
        zero = jax.tree.map(jnp.zeros_like, policy)
        bias = jnp.zeros_like(policy.model.network.head.bias)
        free = policy.model.network.head.bias.size == 4
        # Free heads have one bias per output (push, lift, two widths), equivariant ones per invariant.
        values = jnp.array([0.0, height, -5, -5]) if free else jnp.array([height, -5, -5])[: bias.size]
        return eqx.tree_at(lambda p: p.model.network.head.bias, zero, values)

    policies = pointing(state.policies[0].model, -1.5), pointing(state.policies[1].model, 1.5)
    propose = agent._proposer(policies)
    for seed in range(3):
        candidates = np.asarray(propose(jax.random.key(seed), jnp.zeros(2)))
        assert candidates.shape == (count, 2)
        assert (candidates[:, 1] < -0.8).sum() == count // 2
        assert (candidates[:, 1] > 0.8).sum() == count // 2
        assert len(np.unique(candidates[:, 0])) == count  # all drawn anew


def test_a_sampled_maximum_opens_for_the_most_broken_candidate(small_agent, drawn_state):
    agent = small_agent("sac", "partial-max4", state_gate="sampled_max")
    state = drawn_state(agent)
    assert state.gate.state_gate is None
    propose = lambda key, observation: jnp.array([[0.1, 0.2], [-0.9, 0.5], [0.3, -0.4], [0.8, 0.8]])  # noqa: E731
    observation = jnp.array([0.3, -0.2])
    found = agent.gate.of_state(state.gate, observation, propose, jax.random.key(0))
    each = [float(agent.gate.of_pair(state.gate, observation, a)) for a in propose(None, None)]
    assert float(found) == pytest.approx(max(each))
    assert max(each) > np.mean(each) + 1e-3


space = SO3()
REACH = Symmetry(
    Layout({"here": space.vector, "goal": space.vector}),
    Layout({"grip": Field(space.trivial, (1,)), "move": Field(space.vector, (0, 2, 3))}),
)


@pytest.mark.parametrize("radial", [True, False])
def test_random_actions_are_uniform_in_the_ball_or_in_the_box(radial):
    agent = SAC(REACH, METHODS["vanilla"], FixedGate(0.0), SACConfig(width=8, radial=radial))
    state, keys = agent.init(jax.random.key(1)), jax.random.split(jax.random.key(0), 20_000)
    first = jax.jit(jax.vmap(lambda key: agent.explore(state, jnp.zeros(6), jnp.int32(0), key)))
    actions = np.asarray(first(keys))
    if radial:
        alone = np.asarray(jax.vmap(agent.random)(keys[:500]))
        assert np.linalg.norm(alone[:, [0, 2, 3]], axis=1).max() <= 1
    grip, move = actions[:, 1], actions[:, [0, 2, 3]]
    radius = np.linalg.norm(move, axis=1)
    assert kstest(grip, "uniform", (-1, 2)).pvalue > 1e-3
    if radial:
        assert radius.max() <= 1
        assert kstest(radius**3, "uniform").pvalue > 1e-3
        assert kstest(move[:, 1] / radius, "uniform", (-1, 2)).pvalue > 1e-3  # heights on a sphere are uniform
        assert kstest(radius, "uniform").pvalue < 1e-6  # uniform lengths would crowd the centre
    else:
        assert all(kstest(move[:, i], "uniform", (-1, 2)).pvalue > 1e-3 for i in range(3))
        assert radius.max() > 1.2


def test_the_first_actions_are_random_and_the_later_ones_the_policys(small_agent, drawn_state):
    agent = small_agent("sac", "vanilla", config={"learning_starts": 100})
    state = drawn_state(agent)
    narrow = eqx.tree_at(
        lambda s: s.policies[0].model.model.network.head.bias,
        jax.tree.map(lambda leaf: jnp.zeros_like(leaf), state),
        jnp.array([0.5, -0.5, -8.0, -8.0]),
    )
    explore = jax.jit(lambda step, keys: jax.vmap(lambda k: agent.explore(narrow, jnp.zeros(2), step, k))(keys))
    keys = jax.random.split(jax.random.key(0), 500)
    assert np.std(explore(99, keys), axis=0).min() > 0.5
    np.testing.assert_allclose(explore(100, keys), np.tile(np.tanh([0.5, -0.5]), (500, 1)), atol=0.01)
    mode, gate = agent.exploit(narrow, jnp.zeros(2), keys[0])
    np.testing.assert_allclose(mode, np.tanh([0.5, -0.5]), rtol=1e-5)
    assert float(gate) == 0


def test_epsilon_falls_linearly_and_greedy_actions_use_the_gated_values(small_agent, drawn_state, constant):
    agent = small_agent("dqn", "partial-fixed", gate=1.0, routing="hard", config={"exploration_steps": 1_000})
    state = drawn_state(agent)
    experts = tuple(
        eqx.tree_at(lambda e: e.model, expert, constant(expert.model, *values))
        for expert, values in zip(state.experts, ([3.0] * 4, [0.0, 0.0, 1.0, 0.5]), strict=True)
    )
    state = eqx.tree_at(lambda s: s.experts, state, experts)
    keys = jax.random.split(jax.random.key(0), 4_000)
    explore = jax.jit(lambda step: jax.vmap(lambda k: agent.explore(state, jnp.zeros(4), step, k))(keys))
    for step, epsilon in ((0, 1.0), (500, 0.525), (1_000, 0.05), (50_000, 0.05)):
        share = np.mean(np.asarray(explore(step)) == 2)
        assert share == pytest.approx(1 - epsilon + epsilon / 4, abs=0.03)
    action, gate = agent.exploit(state, jnp.zeros(4), keys[0])
    assert (int(action), float(gate)) == (2, 1)
    assert np.asarray(agent.values(state, jnp.zeros(4))).tolist() == [0, 0, 1, 0.5]
    # At gate zero the equivariant expert decides, and all its actions are alike.
    closed = replace(agent, gate=FixedGate(0.0, 4))
    np.testing.assert_allclose(closed.values(state, jnp.zeros(4)), 3, rtol=1e-6)


def test_evaluation_decides_where_acting_draws(small_agent, drawn_state, constant):
    agent = small_agent("dqn", "partial-fixed", gate=0.4, routing="hard")
    state = drawn_state(agent)
    experts = tuple(
        eqx.tree_at(lambda e: e.model, expert, constant(expert.model, *values))
        for expert, values in zip(state.experts, ([0.5] * 4, [0.0, 0.0, 1.0, 0.0]), strict=True)
    )
    state = eqx.tree_at(lambda s: s.experts, state, experts)
    keys = jax.random.split(jax.random.key(0), 400)

    def actions(agent):
        return np.asarray(jax.jit(jax.vmap(lambda k: agent.exploit(state, jnp.zeros(4), k)[0]))(keys))

    assert set(actions(agent)) == {0}  # 0.4 is closed: the first of equal values
    sampled = replace(agent, method=replace(agent.method, sample_when_evaluating=True))
    # The paper draws a gate for each action: action 2 wins when its own gate opens, or those of 0 and 1 do.
    assert np.mean(actions(sampled) == 2) == pytest.approx(0.4 + 0.6 * 0.4**2, abs=0.08)
