"""Grid-worlds as data: every transition once, and a predictor that is right everywhere."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.models.learner import Learner
from symbreak.models.predictor import CellOutcome
from symbreak.tasks.gridworld import GridWorld


class Truth(eqx.Module):
    """What really follows, as a network would say it: logits of the next cell and, on request, of the reward."""

    sharpness: jax.Array  # a leaf, as every model has
    world: GridWorld = eqx.field(static=True)
    outcome: CellOutcome = eqx.field(static=True)

    def __call__(self, x):
        agent, goal = self.world.locate(x[:4])
        action = jnp.argmax(x[4:])
        table = self.world.transition_table()
        after = jnp.asarray(table.next_cell)[agent, action, 0]
        place = self.outcome.place(self.world.observe(after, goal))
        logits = self.sharpness * jax.nn.one_hot(place, self.outcome.cells)
        if not self.outcome.rewards:
            return logits
        reward = jnp.where(after == goal, 1.0, jnp.asarray(table.entry_reward)[after])
        kind = jnp.argmin(jnp.abs(jnp.asarray(self.outcome.reward_values) - reward))
        return jnp.concatenate([logits, self.sharpness * jax.nn.one_hot(kind, self.outcome.rewards)])


@pytest.fixture
def knowing():
    """A gate's state whose free predictor is right everywhere."""

    def know(gate, state, world):
        truth = Truth(jnp.asarray(100.0), world, gate.outcome)
        free = Learner(truth, state.predictors.free.moments, state.predictors.free.optimiser)
        return eqx.tree_at(lambda s: s.predictors.free, state, free)

    return know


@pytest.fixture(scope="session")
def transitions():
    """All that can happen in a deterministic grid-world, each pair once, the agent never on its goal."""

    def of(world, states=None, actions=None) -> Transition:
        tables = world.tabular()
        if states is None:
            states, actions = (part.ravel() for part in np.meshgrid(np.flatnonzero(tables.free), np.arange(4)))
        after = tables.next_state[states, actions, 0]
        agent, goal = np.divmod(states, world.cells)
        return Transition(
            jnp.asarray(world.observe(agent, goal)),
            jnp.asarray(actions, jnp.int32),
            jnp.asarray(tables.reward[states, actions], jnp.float32),
            jnp.asarray(world.observe(after // world.cells, goal)),
            jnp.where(jnp.asarray(tables.terminal[after]), 0.0, 0.99),
        )

    return of


@pytest.fixture(scope="session")
def single_obstacle():
    """A 5×5 grid whose only obstacle stands beside the centre, so that each orbit of blocked moves has one of them."""
    for seed in range(100):
        world = GridWorld(size=5, obstacles=1, layout_seed=seed)
        if np.flatnonzero(world.floor().blocked)[0] == 2 * 5 + 3:
            return world
    raise AssertionError("no seed puts the obstacle there")
