"""How a gate learns: nothing before the warm-up ends, as often as configured, and nothing where nothing is broken."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.gates import GateConfig, LearnedGate
from symbreak.gates.threshold import ThresholdRule, ThresholdState, observe
from symbreak.models.predictor import CellOutcome, IncrementOutcome
from symbreak.symmetry import Layout, Symmetry, Z
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.symmetries import grid
from symbreak.theory import PermutationAction, TabularMDP, minority_gate

WARMUP, BATCH = 40, 32
DISCRETE = LearnedGate(
    grid(),
    CellOutcome(grid(), 5),
    GateConfig(
        encoding="fourier",
        standardise=False,
        threshold=ThresholdRule("absolute"),
        warmup=WARMUP,
        prior=0.3,
        rate=2e-3,
        predictor_rate=2e-3,
        predictor_steps=2,
        predictor_every=3,
        width=32,
        predictor_width=64,
    ),
)
mirror = Z(2)
CONTINUOUS = LearnedGate(
    Symmetry(Layout({"x": mirror.sign, "y": mirror.trivial}), Layout({"push": mirror.sign})),
    IncrementOutcome(Symmetry(Layout({"x": mirror.sign, "y": mirror.trivial}), Layout({"push": mirror.sign}))),
    GateConfig(
        disagreement="trained",
        threshold=ThresholdRule("sigma", every=10),
        warmup=WARMUP,
        prior=0.7685,
        gate_every=2,
        width=8,
        predictor_width=16,
        state_gate="expectile",
        polyak=0.1,
    ),
)


def propose(key, observation):
    return jax.random.uniform(key, (4, 1), minval=-1.0, maxval=1.0)


class Driver:
    """A gate that learns from a fixed set of transitions; one compiled function makes any number of steps."""

    def __init__(self, gate, data, propose=None):
        self.gate, self.data = gate, data

        def sample(data, key):
            index = jax.random.randint(key, (BATCH,), 0, len(data.reward))
            return jax.tree.map(lambda leaf: leaf[index], data)

        def step(data, state, number):
            batch_key, update_key = jax.random.split(jax.random.fold_in(jax.random.key(1), number))
            batch = sample(data, batch_key)
            return gate.update(state, lambda k: sample(data, k), batch, number, update_key, propose)

        def run(data, state, first, last):
            shapes = jax.eval_shape(step, data, state, first)[1]
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            return jax.lax.fori_loop(first, last + 1, lambda n, carry: step(data, carry[0], n), (state, nothing))

        self._run = jax.jit(run)
        self.start = gate.init(jax.random.key(0))

    def run(self, first, last, state=None, data=None):
        """The state after environment steps first … last, and the metrics of the last of them."""
        return self._run(data or self.data, state or self.start, jnp.int32(first), jnp.int32(last))

    def trajectory(self, first, last):
        """State and metrics after each of the environment steps first … last."""
        found = [self.run(first, first)]
        for number in range(first + 1, last + 1):
            found.append(self.run(number, number, found[-1][0]))
        return found


@pytest.fixture(scope="module")
def discrete(transitions):
    return Driver(DISCRETE, transitions(GridWorld(size=5)))


@pytest.fixture(scope="module")
def continuous():
    rng = np.random.default_rng(0)
    place, push = rng.uniform(-1, 1, size=(256, 2)), rng.uniform(-1, 1, size=(256, 1))
    inside = (place[:, 0] > 0.5) & (place[:, 1] > 0)
    after = place + np.concatenate([0.1 * push, np.zeros((256, 1))], axis=1) + 0.5 * inside[:, None] * [1, 0]
    arrays = (place, push, place[:, 1], after, np.full(256, 0.9))
    return Driver(CONTINUOUS, Transition(*(jnp.asarray(array, jnp.float32) for array in arrays)), propose)


def same(first, second) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def learned_parts(state):
    return {"classifier": state.classifier, "target": state.target, "state gate": state.state_gate}


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_before_the_warm_up_ends_the_gate_and_its_optimiser_do_not_move(kind, request):
    driver = request.getfixturevalue(kind)
    before, metrics = driver.run(1, WARMUP - 1)
    for part, value in learned_parts(before).items():
        assert same(value, learned_parts(driver.start)[part]), part
    assert int(before.threshold.statistics.count) == 0
    assert not bool(before.threshold.known)
    assert not same(before.predictors.free, driver.start.predictors.free)  # the predictors do learn meanwhile
    assert np.isnan(metrics["gate/rate"])
    after, metrics = driver.run(WARMUP, WARMUP, before)
    for part, value in learned_parts(after).items():
        assert value is None or not same(value, learned_parts(before)[part]), part
    assert np.isfinite(metrics["gate/rate"])


def test_until_then_the_gate_answers_its_prior_everywhere(discrete, continuous):
    rng = np.random.default_rng(0)
    before, _ = discrete.run(1, WARMUP - 1)
    observations = jnp.asarray(rng.uniform(-1, 1, size=(16, 4)), jnp.float32)
    for target in (False, True):
        gates = jax.vmap(lambda s, t=target: DISCRETE.of_actions(before, s, target=t))(observations)
        np.testing.assert_allclose(gates, 0.3, rtol=1e-6)
    before, _ = continuous.run(1, WARMUP - 1)
    observations = jnp.asarray(rng.uniform(-1, 1, size=(16, 2)), jnp.float32)

    @jax.jit
    def of_states(state):
        return jax.vmap(lambda s: CONTINUOUS.of_state(state, s, propose, jax.random.key(0)))(observations)

    np.testing.assert_allclose(of_states(before), 1 / (1 + np.exp(-1.2)), rtol=1e-4)
    after, _ = continuous.run(WARMUP, WARMUP + 20, before)
    assert np.abs(np.asarray(of_states(after)) - 0.7685).max() > 1e-4


def steps_of(learner) -> int:
    """How many gradient steps an optimiser has made."""
    return int(learner.moments.count)


def test_predictors_and_gate_learn_as_often_as_configured(discrete, continuous):
    taken = discrete.trajectory(1, 60)
    state = taken[-1][0]
    assert steps_of(state.predictors.free) == 2 * (60 // 3)
    assert steps_of(state.classifier) == 60 - WARMUP + 1
    trained = [number for number, (_, metrics) in enumerate(taken, 1) if np.isfinite(metrics["gate/predictor_loss"])]
    assert trained == list(range(3, 61, 3))
    state, _ = continuous.run(1, 60)
    assert steps_of(state.predictors.free) == steps_of(state.predictors.equivariant) == 60
    assert steps_of(state.classifier) == steps_of(state.state_gate) == (60 - WARMUP) // 2 + 1


def test_the_target_gate_is_the_exponential_average_of_the_gate(continuous):
    states = [state for state, _ in continuous.trajectory(WARMUP, WARMUP + 12)]
    wanted = continuous.start.target
    previous = continuous.start.classifier
    for state in states:
        if not same(state.classifier, previous):
            wanted = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, wanted, state.classifier.model)
        previous = state.classifier
    for found, expected in zip(jax.tree.leaves(states[-1].target), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # Closed form of a single parameter: (1 − ρ)ⁿ·θ₀ + Σ ρ(1 − ρ)ⁿ⁻ᵏ·θₖ over the n = 7 updates.
    bias = [continuous.start.classifier.model.network.head.bias[0]]
    bias += [s.classifier.model.network.head.bias[0] for s in states[::2]]
    closed = 0.9**7 * bias[0] + sum(0.1 * 0.9 ** (7 - k) * bias[k] for k in range(1, 8))
    found = float(states[-1].target.network.head.bias[0])
    assert found == pytest.approx(float(closed), abs=1e-6)
    assert found != pytest.approx(float(bias[-1]), abs=1e-6)  # it lags
    other_rate = 0.995**7 * bias[0] + sum(0.005 * 0.995 ** (7 - k) * bias[k] for k in range(1, 8))
    assert found != pytest.approx(float(other_rate), abs=1e-6)


def test_disagreement_from_before_the_warm_up_is_not_in_the_threshold(continuous):
    """Untrained predictors disagree wildly; counting that would keep the threshold too high for ever."""
    huge = eqx.tree_at(
        lambda s: s.predictors.free.model,
        continuous.start,
        jax.tree.map(lambda leaf: 3 * leaf + 1, continuous.start.predictors.free.model),
    )
    state, _ = continuous.run(1, WARMUP - 1, huge)
    small = eqx.tree_at(lambda s: s.predictors, state, continuous.run(1, WARMUP - 1)[0].predictors)
    found, metrics = continuous.run(WARMUP, WARMUP + 20, small)
    reference, _ = continuous.run(WARMUP, WARMUP + 20, continuous.run(1, WARMUP - 1)[0])
    assert float(found.threshold.value) == float(reference.threshold.value)
    assert float(found.threshold.value) < 20 * float(metrics["gate/disagreement"])
    # The same rule fed with the early values as well stays far above everything that follows.
    rule, inflated = CONTINUOUS.config.threshold, ThresholdState.empty()
    for number in range(10, 500, 10):
        values = jnp.full(BATCH, 1e3 if number < WARMUP else 0.1)
        inflated, _ = observe(rule, inflated, values, jnp.int32(number))
    assert float(inflated.value) > 100


def test_a_disagreement_that_is_no_number_is_reported(discrete):
    sick = eqx.tree_at(
        lambda s: s.predictors.free.model.network.head.bias,
        discrete.start,
        discrete.start.predictors.free.model.network.head.bias.at[0].set(jnp.nan),
    )
    _, metrics = discrete.run(WARMUP, WARMUP, sick)
    assert float(metrics["gate/finite"]) == 0
    assert float(metrics["gate/labels"]) == 0  # not a number is above no threshold: it would look symmetric
    _, healthy = discrete.run(WARMUP, WARMUP)
    assert float(healthy["gate/finite"]) == 1


@pytest.fixture(scope="module")
def trained(discrete, transitions):
    """Gates after the same training on a floor without and one with obstacles, at every pair that can occur."""

    def gates(world):
        state, _ = discrete.run(1, 3_000, data=transitions(world))
        tables = world.tabular()
        agent, goal = np.divmod(np.flatnonzero(tables.free), world.cells)
        ask = jax.vmap(lambda s: DISCRETE.of_actions(state, s))
        return np.asarray(ask(jnp.asarray(world.observe(agent, goal))))

    return gates


def test_without_obstacles_the_gate_closes(trained):
    gates = trained(GridWorld(size=5))
    assert gates.mean() <= 0.05
    assert abs(DISCRETE.config.prior - gates.mean()) > 0.2  # it was open before


def test_with_obstacles_it_opens_where_the_symmetry_breaks(trained):
    world = GridWorld(size=5, obstacles=1, layout_seed=3)
    gates = trained(world)
    tables = world.tabular()
    truth = minority_gate(TabularMDP.from_tables(tables, 0.99), PermutationAction.from_tables(tables), tables.free)
    broken = truth[np.flatnonzero(tables.free)]
    assert gates[broken].mean() > 0.6
    assert gates[~broken].mean() < 0.15


def test_a_frozen_gate_would_fail_both(discrete, transitions):
    gate = replace(DISCRETE, config=replace(DISCRETE.config, warmup=10**6))
    state = gate.init(jax.random.key(0))
    gates = gate.of_actions(state, transitions(GridWorld(size=5)).observation[0])
    assert 0.05 < float(gates.mean()) < 0.6
