"""The disagreement of a right predictor is the tabular total variation; what is not predicted stays invisible."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.errors import InputError
from symbreak.gates import FixedGate, GateConfig, LearnedGate, caveats
from symbreak.gates.predictors import Predictors
from symbreak.gates.threshold import ThresholdRule
from symbreak.models.learner import Learner
from symbreak.models.predictor import CellOutcome, IncrementOutcome
from symbreak.symmetry import SO3, Layout, Symmetry, Z
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.symmetries import grid
from symbreak.theory import PermutationAction, TabularMDP, discrepancy, group_average

CONFIG = GateConfig(
    encoding="raw", standardise=False, width=8, predictor_width=8, threshold=ThresholdRule("absolute"), warmup=0
)


def gate_on(world, **settings) -> LearnedGate:
    head = "categorical" if settings.pop("reward", False) else "none"
    return LearnedGate(grid(), CellOutcome(grid(), world.size, head, world.reward_values), replace(CONFIG, **settings))


@pytest.fixture(scope="module")
def blank():
    """The state of such gates; only the free predictor differs between them, and the tests put in their own."""
    return gate_on(GridWorld(size=3)).init(jax.random.key(0))


def everywhere(world):
    """Index and observation of every state in which the agent is not on its goal."""
    tables = world.tabular()
    states = np.flatnonzero(~tables.terminal)
    agent, goal = np.divmod(states, world.cells)
    return states, jnp.asarray(world.observe(agent, goal))


def distances(gate, state, observations):
    ask = lambda s: jax.vmap(lambda a: gate.disagreement(state, s, a, jax.random.key(0)))(jnp.arange(4))  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(ask))(observations))


def tabular(world):
    tables = world.tabular()
    mdp, action = TabularMDP.from_tables(tables, 0.99), PermutationAction.from_tables(tables)
    return discrepancy(mdp, group_average(mdp, action))


@pytest.mark.parametrize("obstacles", [0, 1, 6])
def test_averaged_disagreement_of_a_right_predictor_is_the_total_variation(knowing, blank, obstacles):
    world = GridWorld(size=5, obstacles=obstacles, layout_seed=3)
    gate = gate_on(world)
    states, observations = everywhere(world)
    found = distances(gate, knowing(gate, blank, world), observations)
    wanted = tabular(world).transition[states]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert (wanted.max() > 0) == (obstacles > 0)
    if obstacles:
        # Predictions not carried back by the inverse element give something else.
        turned = np.stack([wanted[:, (np.arange(4) + 1) % 4]])
        assert np.abs(found - turned).max() > 0.1


def test_one_blocked_pair_in_an_orbit_of_four(knowing, blank, single_obstacle):
    world, gate = single_obstacle, gate_on(single_obstacle)
    centre, corner = 2 * 5 + 2, 0
    observations = jnp.asarray(world.observe(centre, corner))[None]
    found = distances(gate, knowing(gate, blank, world), observations)[0]
    assert found.tolist() == pytest.approx([0.25, 0.25, 0.25, 0.75])  # right is blocked; up, left, down are its images


def test_reward_breaking_is_invisible_without_a_reward_head(knowing, blank):
    world = GridWorld(size=5, obstacles=2, layout_seed=1, passable_penalty=True)
    # One of the two is passable at a penalty: look only at what it breaks.
    states, observations = everywhere(world)
    truth = tabular(world)
    reward_only = (truth.reward[states] > 1e-9) & (truth.transition[states] < 1e-9)
    assert reward_only.any()
    blind, seeing = gate_on(world), gate_on(world, reward=True)
    unseen = distances(blind, knowing(blind, blank, world), observations)
    seen = distances(seeing, knowing(seeing, blank, world), observations)
    assert unseen[reward_only].max() < 1e-6
    assert seen[reward_only].min() > 0.2
    assert seen[reward_only].max() == pytest.approx(0.75)
    symmetric = (truth.reward[states] < 1e-9) & (truth.transition[states] < 1e-9)
    assert seen[symmetric].max() < 1e-6
    assert caveats(blind) == ("reward symmetry unchecked",)
    assert caveats(seeing) == ()
    assert caveats(FixedGate(0.5)) == ()


def test_a_direct_gate_is_the_label_itself(knowing, blank, single_obstacle):
    world = single_obstacle
    gate = gate_on(world, classifier="direct", prior=0.3)
    observation = jnp.asarray(world.observe(2 * 5 + 2, 0))
    known = knowing(gate, blank, world)
    ask = jax.jit(lambda state, s: gate.of_actions(state, s))
    assert ask(known, observation).tolist() == pytest.approx([0.3] * 4)  # no threshold yet: the prior
    known = eqx.tree_at(lambda s: (s.threshold.value, s.threshold.known), known, (jnp.asarray(0.45), jnp.asarray(True)))
    assert ask(known, observation).tolist() == [0, 0, 0, 1]


class Pull(eqx.Module):
    """A force towards the origin, and a wind that no rotation respects."""

    wind: jax.Array

    def __call__(self, x):
        return -0.5 * x[:3] + 0.1 * x[3:] + self.wind


def test_a_continuous_group_is_averaged_over_drawn_elements():
    space = SO3()
    symmetry = Symmetry(Layout({"place": space.vector}), Layout({"push": space.vector}))
    predictors = Predictors(symmetry, IncrementOutcome(symmetry, scaled=False), replace(CONFIG, few=4))
    state = predictors.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    pairs = jnp.asarray(rng.normal(size=(8, 2, 3)), jnp.float32)

    @jax.jit
    def spread(wind, key):
        free = Learner(Pull(wind), state.free.moments, state.free.optimiser)
        known = eqx.tree_at(lambda s: s.free, state, free)
        return jax.vmap(lambda pair: predictors.disagreement(known, pair[0], pair[1], key))(pairs)

    calm = np.asarray(spread(jnp.zeros(3), jax.random.key(1)))
    windy = np.asarray([spread(jnp.array([0.0, 0, 2.0]), jax.random.key(k)) for k in range(40)])
    assert calm.max() < 1e-9
    assert windy.min() > 0.1
    # E|w − mean of k turned w|² = |w|²(1 + 1/k) for uniform turns.
    assert windy.mean() == pytest.approx(4 * (1 + 1 / 4), rel=0.15)


@pytest.mark.parametrize("heads", [False, True])
def test_the_error_is_the_mean_squared_distance_from_what_happened(heads):
    """In the units of the disagreement; the end of an episode is 0 or 1, its prediction a probability."""
    mirror = Z(2)
    symmetry = Symmetry(Layout({"x": mirror.sign, "y": mirror.trivial}), Layout({"push": mirror.sign}))
    outcome = IncrementOutcome(symmetry, reward_head=heads, termination_head=heads)
    predictors = Predictors(symmetry, outcome, CONFIG)
    rng = np.random.default_rng(3)
    before, action, change = (rng.normal(size=(16, size)).astype(np.float32) for size in (2, 1, 2))
    reward, discount = rng.normal(size=16).astype(np.float32), np.where(np.arange(16) < 5, 0.0, 0.9)
    batch = Transition(*map(jnp.asarray, (before, action, reward, before + 3 * change, discount.astype(np.float32))))
    state = predictors.observe(predictors.init(jax.random.key(0)), batch)
    said = np.asarray(jax.vmap(state.free.model)(jnp.concatenate([batch.observation, batch.action], 1)), np.float64)
    unit = np.asarray(predictors.scale(state), np.float64)
    facts = np.concatenate([3 * change, reward[:, None]], 1) if heads else 3 * change
    wanted = np.sum((said[:, : facts.shape[1]] - facts / unit) ** 2, axis=1)
    if heads:
        wanted += (1 / (1 + np.exp(-said[:, -1])) - (discount == 0)) ** 2
    assert float(predictors.error(state, batch)) == pytest.approx(wanted.mean(), rel=1e-4)


def test_a_grid_world_has_no_error_in_units_of_its_disagreement(blank, transitions):
    world = GridWorld(size=3)
    with pytest.raises(InputError, match="absolute"):
        gate_on(world).predictors.error(blank.predictors, transitions(world))


ORBIT_GOAL = 0  # the goal turns with the agent


def test_a_trained_equivariant_predictor_fits_the_mean_weighted_by_counts(transitions, single_obstacle):
    """With equal counts it is the group's mean; with more visits to the blocked pair it is not."""
    world = single_obstacle
    config = replace(CONFIG, disagreement="trained", predictor_rate=1e-2, predictor_width=16)
    predictors = Predictors(grid(), CellOutcome(grid(), 5), config)
    turns = np.array([world.state_permutation(k)[12 * 25 + ORBIT_GOAL] for k in range(4)])
    here = int(predictors.outcome.place(jnp.asarray(world.observe(12, ORBIT_GOAL))))

    @jax.jit
    def fitted(state, batch: Transition):
        state = jax.lax.scan(lambda s, _: predictors.train(s, batch), state, length=400)[0]

        def one(observation, action):
            pair = jnp.concatenate([observation, predictors.vector(action)])
            predicted = predictors.outcome.decode(state.equivariant.model(pair))
            return predicted, predictors.disagreement(state, observation, action, jax.random.key(0))

        return jax.vmap(one)(batch.observation, batch.action)

    start = predictors.init(jax.random.key(0))
    for weights, stays in (((2, 2, 2, 2), 0.25), ((5, 1, 1, 1), 5 / 8)):
        members = np.repeat(np.arange(4), weights)
        predicted, distance = fitted(start, transitions(world, turns[members], (3 + members) % 4))
        np.testing.assert_allclose(predicted.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(predicted[:, here], stays, atol=0.02)  # the centre is its own image
        np.testing.assert_allclose(distance, np.where(members == 0, 1 - stays, stays), atol=0.05)
