"""The ablations that share trunks: they learn, the values train the trunk, and the policies' copy follows it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.agents.trunk import Trunked
from symbreak.tasks.diagnostic import diagnostic_task
from symbreak.training.build import build_agent

SMALL = {"width": 24, "batch": 8, "learning_starts": 1, "route": False}
GATE = {"width": 8, "predictor_width": 24, "warmup": 1, "predictor_every": 1, "gate_every": 1}


def leaves_differ(first, second) -> bool:
    return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("heads", [False, True])
def test_shared_trunks_learn_and_stay_one(heads):
    method = "partial-shared-all" if heads else "partial-shared-predictors"
    agent = build_agent(diagnostic_task("patch", continuous=True), method, steps=100, config=SMALL, gate=GATE)
    before = jax.jit(agent.init)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 3)
    observation, after, action = (jax.random.uniform(key, (8, 2), minval=-1, maxval=1) for key in keys)
    batch = Transition(observation, action, jnp.ones(8), after, jnp.full(8, 0.9))
    state, metrics = jax.jit(lambda s: agent.update(s, lambda key: batch, jnp.int32(10), jax.random.key(2)))(before)
    assert all(np.isfinite(value) for value in metrics.values())
    assert leaves_differ(before.gate.predictors.equivariant.model, state.gate.predictors.equivariant.model)
    critic, policy = state.critics[0].model, state.policies[0].model
    assert isinstance(critic, Trunked) == isinstance(policy, Trunked) == heads
    if heads:
        assert leaves_differ(before.critics[0].model.trunk, critic.trunk)
        assert not leaves_differ(critic.trunk, policy.trunk)
