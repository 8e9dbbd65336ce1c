"""Tiny agents, states and batches. States are drawn with NumPy: only their shapes are traced, nothing is compiled."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.agents.dqn import DQN, DQNConfig
from symbreak.agents.methods import METHODS
from symbreak.agents.sac import SAC, SACConfig
from symbreak.gates import FixedGate, GateConfig, LearnedGate
from symbreak.gates.threshold import ThresholdRule
from symbreak.models.predictor import CellOutcome, IncrementOutcome
from symbreak.symmetry import Field, Layout, Symmetry, Z
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.symmetries import grid

SIZE, BATCH = 5, 16
DQN_SMALL = DQNConfig(batch=BATCH, width=16, capacity=64, learning_starts=20, exploration_steps=100)
SAC_SMALL = SACConfig(batch=BATCH, width=16, capacity=64, learning_starts=20)


def _point() -> Symmetry:
    """A point in a plane that may be mirrored; indices out of order on purpose."""
    mirror = Z(2)
    observation = Layout({"x": Field(mirror.sign, (1,)), "y": Field(mirror.trivial, (0,))})
    action = Layout({"push": Field(mirror.sign, (0,)), "lift": Field(mirror.trivial, (1,))})
    return Symmetry(observation, action, name="mirror")


def _gate_config(discrete: bool, **settings) -> GateConfig:
    small = {
        "disagreement": "trained",
        "threshold": ThresholdRule("sigma", deviations=0.0, every=1),
        "warmup": 0,
        "width": 8,
        "predictor_width": 16,
        "standardise": not discrete,
        "state_gate": "none" if discrete else "expectile",
    }
    return GateConfig(**small | settings)


def _small_agent(algorithm: str, method="partial", gate=None, routing=None, config=None, **gate_settings):
    """A DQN on a 5×5 grid or a SAC on a mirrored point; a number as gate fixes its probability."""
    from dataclasses import replace

    chosen = METHODS[method] if isinstance(method, str) else method
    if routing is not None:
        chosen = replace(chosen, routing=routing)
    discrete = algorithm == "dqn"
    symmetry = grid() if discrete else _point()
    if isinstance(gate, int | float):
        gate = FixedGate(float(gate), symmetry.action.size if discrete else 0)
    elif gate is None and chosen.gate == "learned":
        outcome = CellOutcome(symmetry, SIZE) if discrete else IncrementOutcome(symmetry)
        gate = LearnedGate(symmetry, outcome, _gate_config(discrete, **gate_settings))
    elif gate is None:
        gate = FixedGate(0.0, symmetry.action.size if discrete else 0)
    if discrete:
        return DQN(symmetry, chosen, gate, replace(DQN_SMALL, **config or {}))
    return SAC(symmetry, chosen, gate, replace(SAC_SMALL, **config or {}))


def _drawn_state(agent, seed: int = 0):
    """A state of the agent with parameters of order one, fresh optimisers and empty statistics."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        name = jax.tree_util.keystr(path)
        learned = jnp.issubdtype(leaf.dtype, jnp.floating) and not any(
            part in name for part in ("moments", "inputs", "outcomes", "threshold")
        )
        if not learned:
            return jnp.zeros(leaf.shape, leaf.dtype)
        fan_in = np.prod(leaf.shape[:-1]) if len(leaf.shape) > 1 else 4
        return jnp.asarray(rng.normal(size=leaf.shape) / np.sqrt(max(fan_in, 1)), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(agent.init, jax.random.key(0)))


def _random_batch(agent, seed: int = 0, size: int = BATCH) -> Transition:
    rng = np.random.default_rng(seed)
    if agent.symmetry.discrete:
        world = GridWorld(size=SIZE, obstacles=3, layout_seed=1)
        tables = world.tabular()
        states = rng.choice(np.flatnonzero(tables.free), size)
        action = rng.integers(4, size=size)
        after = tables.next_state[states, action, 0]
        before = world.observe(states // world.cells, states % world.cells)
        following = world.observe(after // world.cells, after % world.cells)
        reward, action = tables.reward[states, action], jnp.asarray(action, jnp.int32)
    else:
        before = rng.uniform(-1, 1, size=(size, agent.symmetry.observation.size))
        action = jnp.asarray(rng.uniform(-1, 1, size=(size, agent.symmetry.action.size)), jnp.float32)
        following = before + 0.1 * rng.normal(size=before.shape)
        reward = rng.normal(size=size)
    discount = np.where(rng.uniform(size=size) < 0.2, 0.0, 0.9)
    arrays = (jnp.asarray(part, jnp.float32) for part in (before, reward, following, discount))
    before, reward, following, discount = arrays
    return Transition(before, action, reward, following, discount)


def _constant(model, *values):
    """The model with every parameter zero but the head's bias, which makes it answer `values`."""
    zero = jax.tree.map(jnp.zeros_like, model)
    bias = model.network.head.bias
    # An equivariant head writes its bias in irreducible coordinates; these are scaled to the wanted value.
    unit = eqx.tree_at(lambda m: m.network.head.bias, zero, jnp.ones_like(bias))
    if bias.shape[-1] == len(values):
        one = jnp.ones(())
    else:
        assert len(set(values)) == 1, "an equivariant head can only answer the same everywhere"
        one, values = unit(jnp.zeros(len(model.source)))[0], values[: bias.shape[-1]]
    wanted = jnp.broadcast_to(jnp.asarray(values, bias.dtype), bias.shape) / one
    return eqx.tree_at(lambda m: m.network.head.bias, zero, wanted)


@pytest.fixture(scope="session")
def small_agent():
    return _small_agent


@pytest.fixture(scope="session")
def drawn_state():
    return _drawn_state


@pytest.fixture(scope="session")
def random_batch():
    return _random_batch


@pytest.fixture(scope="session")
def constant():
    return _constant
