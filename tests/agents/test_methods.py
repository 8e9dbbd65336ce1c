"""A method is an entry of one table: each one trains, and a new one needs nothing else."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.methods import METHODS, PAPER_METHODS, Method, Single, as_published, get_method
from symbreak.errors import InputError
from symbreak.nn.linear import Dense, Equivariant, Linear, Relaxed, Residual
from symbreak.symmetry.rep import Rep
from symbreak.tasks import get_task
from symbreak.training.build import build_agent


def test_the_six_methods_are_what_the_table_says():
    families = {name: [expert.family for expert in METHODS[name].heads.experts] for name in PAPER_METHODS}
    assert families == {
        "vanilla": [Dense],
        "exact": [Equivariant],
        "rpp": [Residual],
        "approximate": [Relaxed],
        "augmented": [Dense],
        "partial": [Equivariant, Dense],
    }
    assert [name for name in PAPER_METHODS if METHODS[name].augment] == ["augmented"]
    assert [name for name in PAPER_METHODS if METHODS[name].heads.gated] == ["partial"]
    assert [name for name in METHODS if not METHODS[name].uses_symmetry] == ["vanilla"]
    assert (METHODS["rpp"].adam_b1, METHODS["rpp"].actor_penalty) == (0.5, 1e-6)
    assert METHODS["vanilla"].actor_penalty == 0
    assert [METHODS[f"partial-max{k}"].candidates for k in (4, 8)] == [4, 8]


def test_a_gated_method_contains_the_networks_of_the_single_ones():
    roles = {name: [expert.role for expert in METHODS[name].heads.experts] for name in ("exact", "vanilla", "partial")}
    assert roles["partial"] == roles["exact"] + roles["vanilla"]


def test_an_unknown_method_is_refused_with_the_nearest_names():
    with pytest.raises(InputError, match="partial"):
        get_method("partail")
    assert get_method("partial") is METHODS["partial"]


def test_the_published_inference_samples_the_gate():
    assert as_published(METHODS["partial"]).sample_when_evaluating
    assert not METHODS["partial"].sample_when_evaluating


def test_a_coin_sends_pairs_to_either_expert_in_evaluations_too(drawn_state):
    agent = build_agent(get_task("grid-20"), "partial-coin", steps=100, config={"width": 16})
    method, partly = agent.method, METHODS["partial"]
    assert (method.routing, method.heads) == (partly.routing, partly.heads)
    state, observation = drawn_state(agent), jnp.asarray([0.1, -0.2, 0.5, 0.3])
    np.testing.assert_array_equal(agent.gate.of_actions(state.gate, observation), np.full(4, 0.5))
    keys = jax.random.split(jax.random.key(0), 100)
    used = jax.vmap(lambda key: agent.exploit(state, observation, key)[1])(keys)
    assert set(np.asarray(used)) == {0, 1}


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_what_an_update_reports_is_documented(algorithm, small_agent, random_batch):
    agent = small_agent(algorithm)
    state, batch, key = jax.eval_shape(agent.init, jax.random.key(0)), random_batch(agent), jax.random.key(0)
    names = jax.eval_shape(lambda s: agent.update(s, lambda _: batch, jnp.int32(1), key), state)[1].keys()
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    documented = set(re.findall(r"`(\w+/\w+)`", page))
    assert {"critic/loss", "gate/rate"} <= names <= documented


class Halved(Linear):
    """A toy family: a dense layer that only trusts half of what it computes."""

    inner: Dense

    def __init__(self, source: Rep, target: Rep, *, key, scale: float = 1.0) -> None:
        self.inner = Dense(source, target, key=key, scale=scale)

    @property
    def source(self) -> Rep:
        return self.inner.source

    @property
    def target(self) -> Rep:
        return self.inner.target

    def __call__(self, x):
        return 0.5 * self.inner(x)


def test_a_seventh_method_is_one_entry(monkeypatch, drawn_state, random_batch):
    monkeypatch.setitem(METHODS, "toy", Method(Single("toy", Halved)))
    agent = build_agent(get_task("grid-0"), "toy", steps=100, config={"width": 16, "batch": 16})
    state, batch = drawn_state(agent), random_batch(agent)
    update = jax.jit(lambda s, n: agent.update(s, lambda _: batch, n, jax.random.fold_in(jax.random.key(0), n)))
    losses = []
    for number in range(3):
        state, metrics = update(state, jnp.int32(number))
        losses.append(float(metrics["critic/loss"]))
    assert np.isfinite(losses).all()
    assert isinstance(state.experts[0].model.network.head, Halved)
    moved = jax.tree.leaves(state.experts[0].model)[0] - jax.tree.leaves(drawn_state(agent).experts[0].model)[0]
    assert np.any(moved)
    with pytest.raises(InputError):
        build_agent(get_task("grid-0"), "toys-that-are-not-there")


def test_the_residual_penalty_is_on_the_actor_only(small_agent, drawn_state, random_batch):
    """α·|θ|² with α = 1e-6: its gradient is 2α·θ on every parameter of the policy."""
    plain, heavy = (small_agent("sac", Method(Single("free", Dense), actor_penalty=penalty)) for penalty in (0.0, 10.0))
    state, batch = drawn_state(plain), random_batch(plain)
    policies, critics = (state.policies[0].model,), (state.critics[0].model,)

    @jax.jit
    def gradients(state):
        temperature = state.temperature.model
        return [
            jax.grad(lambda p, a=agent: a.actor_loss(p, critics, None, temperature, batch, jax.random.key(0))[0])(
                policies
            )
            for agent in (plain, heavy)
        ]

    without, with_penalty = gradients(state)
    difference = jax.tree.map(lambda a, b: a - b, with_penalty, without)
    for found, parameter in zip(jax.tree.leaves(difference), jax.tree.leaves(policies), strict=True):
        np.testing.assert_allclose(found, 20 * parameter, atol=1e-4)


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_two_seeds_differ_after_one_update_and_equal_seeds_do_not(algorithm, small_agent, drawn_state, random_batch):
    agent = small_agent(algorithm, "vanilla")
    state, data = drawn_state(agent), random_batch(agent, size=64)

    def sample(key):
        index = jax.random.randint(key, (16,), 0, 64)
        return jax.tree.map(lambda leaf: leaf[index], data)

    update = jax.jit(lambda s, key: agent.update(s, sample, jnp.int32(1), key)[0])
    first, second, again = (jax.tree.leaves(update(state, jax.random.key(seed))) for seed in (0, 1, 0))
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    shapes = jax.eval_shape(agent.init, jax.random.key(0))
    assert jax.tree.structure(shapes) == jax.tree.structure(eqx.filter(state, eqx.is_array))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
@pytest.mark.parametrize("name", [name for name in METHODS if not name.startswith("oracle")])
def test_every_method_trains_without_a_bad_number(name, algorithm, small_agent, random_batch):
    agent = small_agent(algorithm, name, **({"state_gate": METHODS[name].state_gate} if algorithm == "sac" else {}))
    state, data = agent.init(jax.random.key(0)), random_batch(agent, size=64)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # compiles in a third of the time
    def run(state):
        def step(state, number):
            def sample(key):
                index = jax.random.randint(key, (16,), 0, 64)
                return jax.tree.map(lambda leaf: leaf[index], data)

            return agent.update(state, sample, number, jax.random.fold_in(jax.random.key(1), number))

        return jax.lax.scan(step, state, jnp.arange(1, 101))

    final, metrics = run(state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(final) if eqx.is_inexact_array(leaf))
    assert np.isfinite(metrics["critic/loss"]).all()
    moved = [not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(final), strict=True)]
    assert np.mean(moved) > 0.5
