"""Augmentation moves each transition by an element of its own, the same one for state, action and next state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from symbreak.agents.agent import Transition, augment
from symbreak.symmetry import SO3, Field, Layout, Symmetry
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.symmetries import grid

space = SO3()
REACH = Symmetry(
    Layout({"here": Field(space.vector, (1, 2, 3)), "height": Field(space.trivial, (0,))}),
    Layout({"move": space.vector}),
)


def grid_batch(world, size, seed=0) -> Transition:
    tables, rng = world.tabular(), np.random.default_rng(seed)
    states, action = rng.choice(np.flatnonzero(tables.free), size), rng.integers(4, size=size)
    after = tables.next_state[states, action, 0]
    return Transition(
        jnp.asarray(world.observe(*np.divmod(states, world.cells))),
        jnp.asarray(action, jnp.int32),
        jnp.asarray(tables.reward[states, action], jnp.float32),
        jnp.asarray(world.observe(*np.divmod(after, world.cells))),
        jnp.where(jnp.asarray(tables.terminal[after]), 0.0, 0.99),
    )


def explained(world, batch: Transition) -> np.ndarray:
    """Which transitions are steps that this world makes."""
    agent, goal = world.locate(np.asarray(batch.observation))
    after, goal_after = world.locate(np.asarray(batch.next_observation))
    step = world.transition_table().next_cell[agent, np.asarray(batch.action), 0]
    return (step == after) & (goal == goal_after)


def test_on_an_empty_grid_augmented_transitions_are_transitions():
    world = GridWorld(size=5)
    batch = grid_batch(world, 400)
    moved = augment(grid(), batch, jax.random.key(0))
    assert explained(world, moved).all()
    assert np.array_equal(moved.reward, batch.reward)
    assert np.array_equal(moved.discount, batch.discount)
    assert moved.action.dtype == batch.action.dtype
    # Actions turned the other way, or left alone, do not fit the turned states.
    for wrong in ((2 * batch.action - moved.action) % 4, batch.action):
        spoilt = Transition(moved.observation, wrong, moved.reward, moved.next_observation, moved.discount)
        assert not explained(world, spoilt).all()


def test_on_a_grid_with_obstacles_some_are_not():
    world = GridWorld(size=5, obstacles=4, layout_seed=1)
    batch = grid_batch(world, 400)
    assert explained(world, batch).all()
    assert not explained(world, augment(grid(), batch, jax.random.key(0))).all()


def test_every_sample_draws_its_own_element_uniformly():
    world = GridWorld(size=5)
    batch = grid_batch(world, 4_000)
    turns = np.asarray(augment(grid(), batch, jax.random.key(0)).action - batch.action) % 4
    assert chisquare(np.bincount(turns, minlength=4)).pvalue > 1e-3
    again = np.asarray(augment(grid(), batch, jax.random.key(1)).action - batch.action) % 4
    assert 0.2 < np.mean(turns == again) < 0.3  # one draw for the whole batch would give 0 or 1


def test_a_continuous_group_is_drawn_evenly():
    rng = np.random.default_rng(0)
    size = 4_000
    arrays = (rng.normal(size=(size, 4)), rng.normal(size=(size, 3)), rng.normal(size=size), rng.normal(size=(size, 4)))
    before, action, reward, after = (jnp.asarray(part, jnp.float32) for part in arrays)
    # Every state looks the same way, so that directions after moving show how even the draw is.
    before = before.at[:, 1:].set(jnp.array([0.0, 0.0, 1.0]))
    batch = Transition(before, action, reward, after, jnp.full(size, 0.9))
    moved = augment(REACH, batch, jax.random.key(0))
    assert np.array_equal(moved.observation[:, 0], before[:, 0])  # the invariant entry stays

    def products(batch):
        parts = batch.observation[:, 1:], batch.action, batch.next_observation[:, 1:]
        return np.stack([np.sum(np.asarray(p) * np.asarray(q), axis=1) for p in parts for q in parts])

    np.testing.assert_allclose(products(moved), products(batch), atol=1e-4)  # one rotation for all three
    heights = np.asarray(moved.observation[:, 3])
    assert kstest(heights, "uniform", (-1, 2)).pvalue > 1e-3
    assert len(np.unique(np.round(heights, 5))) > 2_000
    assert np.abs(np.asarray(moved.observation[:, 1:]).mean(axis=0)).max() < 0.06
    assert kstest(np.asarray(moved.observation[:, 3]) ** 2, "uniform").pvalue < 1e-6


@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("sac", marks=pytest.mark.slow)])
def test_only_the_augmented_method_learns_from_moved_transitions(algorithm, small_agent, drawn_state, random_batch):
    plain, augmented = (small_agent(algorithm, name) for name in ("vanilla", "augmented"))
    state, batch = drawn_state(plain), random_batch(plain)

    def learned(agent):
        update = jax.jit(lambda s: agent.update(s, lambda _: batch, jnp.int32(1), jax.random.key(0))[0])
        learners = update(state).experts if algorithm == "dqn" else update(state).critics
        return jax.tree.leaves(learners[0].model)

    pairs = zip(learned(plain), learned(augmented), strict=True)
    assert not all(np.array_equal(a, b) for a, b in pairs)
    assert jax.tree.structure(jax.eval_shape(plain.init, jax.random.key(0))) == jax.tree.structure(
        jax.eval_shape(augmented.init, jax.random.key(0))
    )
