"""A gate fixed at 0 or 1 is the exact or the vanilla agent bit for bit; between them, what a draw means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition, draw, mix
from symbreak.gates.gate import AbstractGate
from symbreak.models.critic import make_twin_critic
from symbreak.nn.linear import Dense, Equivariant
from symbreak.storage.replay import Replay
from symbreak.tasks.gridworld import GridWorld
from symbreak.training.compiled import CompiledLoop

ROUTES = {0.0: ("exact", 0), 1.0: ("vanilla", 1)}
# Two programs round alike where their loops are compiled alike; an optimiser unrolls very short ones, and then one more
# operation beside a sum over the batch can change its order (seen at batch 16 and 32 with width 16, never above).
TINY, TINY_OPTIONS = {"batch": 8, "width": 16}, {"xla_backend_optimization_level": 0}
REAL, REAL_OPTIONS = {"batch": 256, "width": 256}, {}


def same(first, second) -> bool:
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


class Setting(eqx.Module):
    probability: jax.Array


@dataclass(frozen=True)
class Dial(AbstractGate):
    """A fixed gate whose probability is an argument of the program: one compilation serves both ends."""

    actions: int = 4
    unchecked = ()

    def init(self, key):
        return Setting(jnp.zeros(()))

    def of_pair(self, state, observation, action, *, target=False):
        return state.probability

    def of_actions(self, state, observation, *, target=False):
        return jnp.broadcast_to(state.probability, (self.actions,))

    def of_state(self, state, observation, propose, key):
        return state.probability

    def update(self, state, sample, batch, step, key, propose):
        return state, {}


def learned_parts(state):
    """What of a state belongs to each expert."""
    names = ("experts", "targets") if hasattr(state, "experts") else ("critics", "targets", "policies")
    return {name: getattr(state, name) for name in names}


def joined(gated, equivariant, free):
    """The gated state with the experts of two single ones."""
    for name in learned_parts(gated):
        parts = (getattr(equivariant, name)[0], getattr(free, name)[0])
        gated = eqx.tree_at(lambda s, n=name: getattr(s, n), gated, parts)
    return lukewarm(gated)


def lukewarm(state):
    """With one temperature for all: it belongs to no expert."""
    return (
        eqx.tree_at(lambda s: s.temperature.model.logarithm, state, jnp.zeros(())) if has_temperature(state) else state
    )


def has_temperature(state) -> bool:
    return hasattr(state, "temperature")


def player(agent, options):
    """Six updates from a replay, each followed by an exploring and an exploiting action."""

    def run(state, replay, key):
        def step(state, number):
            step_key = jax.random.fold_in(key, number)
            state, metrics = agent.update(state, lambda k: replay.sample(k, agent.config.batch), number, step_key)
            observation = replay.data.observation[number]
            explored = agent.explore(state, observation, jnp.int32(90), step_key)
            exploited, _ = agent.exploit(state, observation, step_key)
            losses = [metrics[name] for name in ("critic/loss", "actor/loss") if name in metrics]
            return state, (explored, exploited, losses)

        return jax.lax.scan(step, state, jnp.arange(6, dtype=jnp.int32))

    return jax.jit(run, compiler_options=options)


def check_routes(runs):
    """`runs`: by name or probability, the state before, the state after, and what was done in between."""
    for probability, (name, selected) in ROUTES.items():
        gated_start, gated, gated_record = runs[probability]
        single_start, single, record = runs[name]
        for part, end in learned_parts(gated).items():
            start = getattr(gated_start, part)
            assert same(start[selected], getattr(single_start, part)[0]), part
            assert same(end[selected], getattr(single, part)[0]), part
            assert not same(end[selected], start[selected]), part
        if has_temperature(single):
            assert same(gated.temperature, single.temperature)
        assert same(gated_record, record)
        other, _ = ROUTES[1 - probability]
        assert not same(gated_record, runs[other][2])
        # The expert that was never asked has not moved. Targets are averages of equals, which may round.
        for part in set(learned_parts(gated)) - {"targets"}:
            idle = getattr(gated, part)[1 - selected].model, getattr(gated_start, part)[1 - selected].model
            assert same(*idle), part


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_gate_at_either_end_is_the_single_agent_bit_for_bit(algorithm, small_agent, drawn_state, random_batch):
    agents = {name: small_agent(algorithm, name, config=TINY) for name in ("exact", "vanilla")}
    gated = small_agent(algorithm, "partial-fixed", gate=0.5, routing="hard", config=TINY)
    gated = replace(gated, gate=Dial(4 if algorithm == "dqn" else 0))
    data = Replay(random_batch(gated, size=64), jnp.int32(64))
    key, starts = jax.random.key(6), {name: lukewarm(drawn_state(agent)) for name, agent in agents.items()}
    runs = {
        name: (starts[name], *player(agent, TINY_OPTIONS)(starts[name], data, key)) for name, agent in agents.items()
    }
    start, run = joined(drawn_state(gated), starts["exact"], starts["vanilla"]), player(gated, TINY_OPTIONS)
    for probability in ROUTES:
        turned = eqx.tree_at(lambda s: s.gate.probability, start, jnp.asarray(probability))
        runs[probability] = turned, *run(turned, data, key)
    check_routes(runs)
    halfway = eqx.tree_at(lambda s: s.gate.probability, start, jnp.asarray(0.5))
    with pytest.raises(AssertionError):
        check_routes(runs | {1.0: (halfway, *run(halfway, data, key))})


def test_a_gated_agent_starts_with_the_networks_of_the_single_ones(small_agent):
    key = jax.random.key(5)
    exact, vanilla, gated = (
        small_agent("dqn", name, config=TINY).init(key) for name in ("exact", "vanilla", "partial-fixed")
    )
    assert same([expert.model for expert in gated.experts], [exact.experts[0].model, vanilla.experts[0].model])
    assert same(gated.targets, [exact.targets[0], vanilla.targets[0]])


@pytest.mark.slow
def test_the_same_for_sac_at_the_size_of_a_real_run(small_agent, random_batch):
    agents = {name: small_agent("sac", name, config=REAL) for name in ("exact", "vanilla")}
    agents |= {p: small_agent("sac", "partial-fixed", gate=p, routing="hard", config=REAL) for p in ROUTES}
    data = Replay(random_batch(agents["exact"], size=64), jnp.int32(64))
    runs = {}
    for name, agent in agents.items():
        start = agent.init(jax.random.key(5))
        runs[name] = start, *player(agent, REAL_OPTIONS)(start, data, jax.random.key(6))
    check_routes(runs)


@pytest.mark.slow
def test_the_same_for_dqn_in_a_real_loop(small_agent):
    """Sixty environment steps with exploration, replay and forty updates."""
    agents = {name: small_agent("dqn", name, config=REAL) for name in ("exact", "vanilla")}
    agents |= {p: small_agent("dqn", "partial-fixed", gate=p, routing="hard", config=REAL) for p in ROUTES}
    runs = {}
    for name, agent in agents.items():
        loop, key = CompiledLoop(agent, GridWorld(size=5, obstacles=3, layout_seed=1)), jax.random.key(5)
        # Compiled, the initialisation takes longer than all the rest.
        start = CompiledLoop.init.__wrapped__(loop, key)
        start = jax.tree.map(lambda leaf: leaf + 0 if eqx.is_inexact_array(leaf) else jnp.array(leaf), start)
        first = jax.tree.map(np.asarray, start.agent)
        state, metrics = loop.advance(start, jnp.int32(0), 60, key)
        record = state.replay, state.environment, metrics["critic/loss"]  # the replay shows the actions
        runs[name] = first, state.agent, record
    check_routes(runs)


def loss_and_gradient(agent, state, batch, key):
    """What an update learns from, before an optimiser makes steps of it."""
    if hasattr(state, "experts"):
        models = tuple(expert.model for expert in state.experts)
        return jax.value_and_grad(lambda m: agent.critic_loss(m, state.targets, state.gate, batch, key)[0])(models)
    critics, policies = (tuple(part.model for part in parts) for parts in (state.critics, state.policies))
    rest = state.gate, state.temperature.model, batch, key
    critic = jax.value_and_grad(lambda m: agent.critic_loss(m, state.targets, policies, *rest)[0])(critics)
    return critic, jax.value_and_grad(lambda m: agent.actor_loss(m, critics, *rest)[0])(policies)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("sac", marks=pytest.mark.slow)])
def test_asking_an_expert_only_where_it_counts_changes_no_more_than_rounding(
    algorithm, dtype, small_agent, drawn_state, random_batch
):
    with jax.enable_x64(dtype == "float64"):
        agent = small_agent(algorithm, "partial-fixed", gate=0.5, routing="hard", config=TINY)
        agent = replace(agent, gate=Dial(4 if algorithm == "dqn" else 0))
        routed = replace(agent, config=replace(agent.config, route=True))
        batch = random_batch(agent, size=16)
        batch = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, batch)
        ask = [
            jax.jit(lambda s, k, a=a: loss_and_gradient(a, s, batch, k), compiler_options=TINY_OPTIONS)
            for a in (agent, routed)
        ]
        limit, start = {"float32": 1e-6, "float64": 1e-12}[dtype], lukewarm(drawn_state(agent))

        def flat(tree):
            return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves(tree)])

        for probability in (0.0, 0.2, 1.0):
            state = eqx.tree_at(lambda s: s.gate.probability, start, jnp.asarray(probability, dtype))
            whole, part = (flat(one(state, jax.random.key(2))) for one in ask)
            assert np.linalg.norm(whole - part) < limit * np.linalg.norm(whole)
            other = flat(ask[1](state, jax.random.key(3)))  # another draw
            if algorithm == "sac" or probability == 0.2:
                assert np.linalg.norm(whole - other) > 1e3 * limit * np.linalg.norm(whole)


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


def test_one_draw_of_the_gate_reaches_both_critics(small_agent, drawn_state, constant):
    """Each pair is worth 0 to both equivariant twins and 1 to both free ones: losses and minima tell draws apart."""
    agent = small_agent("sac", "partial-fixed", gate=0.5, routing="hard")
    critics, state, size = twins(agent, constant, [0.0, 0.0], [1.0, 1.0]), drawn_state(agent), 2_000
    policies = tuple(learner.model for learner in state.policies)
    cold = eqx.tree_at(lambda t: t.logarithm, state.temperature.model, jnp.asarray(-40.0))  # no entropy term
    zeros = jnp.zeros((size, 2))
    batch = Transition(zeros, zeros, jnp.zeros(size), zeros, jnp.ones(size))

    @jax.jit
    def numbers(key):
        one = jax.tree.map(lambda leaf: leaf[:1], eqx.tree_at(lambda b: b.discount, batch, jnp.zeros(size)))
        loss = lambda k: agent.critic_loss(critics, critics, policies, None, cold, one, k)[0]  # noqa: E731
        target = agent.target(critics, policies, None, cold, batch, key)
        actor = agent.actor_loss(policies, critics, None, cold, batch, key)[0]
        return jax.vmap(loss)(jax.random.split(key, 64)), target, actor

    losses, target, actor = numbers(jax.random.key(0))
    assert set(np.asarray(losses).tolist()) == {0.0, 1.0}  # a draw for each twin would also give one half
    assert set(np.round(target, 6).tolist()) == {0.0, 1.0}
    assert float(target.mean()) == pytest.approx(0.5, abs=0.05)  # the minimum of two draws would be one quarter
    assert float(actor) == pytest.approx(-0.5, abs=0.05)
    apart = draw("hard", jnp.full((2, size), 0.5), jax.random.key(0))
    assert float(apart.min(axis=0).mean()) == pytest.approx(0.25, abs=0.05)


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
