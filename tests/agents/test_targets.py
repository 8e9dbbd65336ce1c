"""Values by hand: chains that end, that never end and that are cut off; the soft value of a bandit."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition

GAMMA = 0.9


@pytest.fixture(scope="module")
def solved(small_agent):
    """Values that DQN settles on when it sees the same few transitions again and again."""
    agent = small_agent("dqn", "vanilla", config={"rate": 5e-3, "polyak": 0.05, "discount": GAMMA})

    @jax.jit
    def run(state, batch):
        step = lambda s, n: (agent.update(s, lambda _: batch, n, jax.random.key(0))[0], None)  # noqa: E731
        return jax.lax.scan(step, state, jnp.arange(1_500))[0]

    start = agent.init(jax.random.key(0))
    places = np.eye(4, dtype=np.float32)[:3]  # three states that a network can tell apart

    def solve(*chain):
        """chain: (state, reward, next state, discount) with equal shares of the batch."""
        before, reward, after, discount = (np.array(part) for part in zip(*chain, strict=True))
        rows = np.tile(np.arange(len(chain)), 60 // len(chain))
        action = np.arange(60) // len(chain) % 4
        batch = Transition(
            jnp.asarray(places[before[rows]]),
            jnp.asarray(action, jnp.int32),
            jnp.asarray(reward[rows], jnp.float32),
            jnp.asarray(places[after[rows]]),
            jnp.asarray(discount[rows], jnp.float32),
        )
        final = run(start, batch)
        return np.asarray(jax.vmap(lambda s: agent.values(final, s))(jnp.asarray(places))).mean(axis=1)

    return solve


def test_a_chain_of_two_states_ends_without_bootstrapping(solved):
    # The state after the end is one with a value of its own: what would be added if termination were ignored.
    values = solved((0, 0.5, 1, GAMMA), (1, 1.0, 0, 0.0))
    assert values[1] == pytest.approx(1.0, abs=0.02)
    assert values[0] == pytest.approx(0.5 + GAMMA, abs=0.03)
    ignored = solved((0, 0.5, 1, GAMMA), (1, 1.0, 0, GAMMA))
    assert ignored[1] == pytest.approx((1 + 0.5 * GAMMA) / (1 - GAMMA**2), rel=0.03)
    assert ignored[1] > 5


def test_an_endless_chain_with_a_time_limit_keeps_its_value(solved):
    # One step in five meets the time limit; the state does not say which.
    truncated = solved(*[(2, 1.0, 2, GAMMA)] * 4, (2, 1.0, 2, GAMMA))
    assert truncated[2] == pytest.approx(1 / (1 - GAMMA), rel=0.03)
    terminated = solved(*[(2, 1.0, 2, GAMMA)] * 4, (2, 1.0, 2, 0.0))
    assert terminated[2] == pytest.approx(1 / (1 - 0.8 * GAMMA), rel=0.03)


def nodes(count=200):
    """Gauss-Hermite nodes and weights of a standard normal."""
    x, weight = np.polynomial.hermite_e.hermegauss(count)
    return x, weight / weight.sum()


def entropy(mean: float, std: float) -> float:
    """Of a squashed one-dimensional Gaussian: Gaussian entropy plus the mean log slope of tanh."""
    x, weight = nodes()
    return 0.5 * np.log(2 * np.pi * np.e * std**2) + weight @ np.log(1 - np.tanh(mean + std * x) ** 2 + 1e-300)


def linear_critic(critic, slope: float):
    """Twins that answer slope·(second action), written as a difference of two ReLUs."""
    zero = jax.tree.map(jnp.zeros_like, critic)
    first = zero.network.blocks[0].linear.kernel.at[:, 3, 0].set(1.0).at[:, 3, 1].set(-1.0)
    second = zero.network.blocks[1].linear.kernel.at[:, 0, 0].set(1.0).at[:, 1, 1].set(1.0)
    head = zero.network.head.kernel.at[:, 0, 0].set(slope).at[:, 1, 0].set(-slope)
    return eqx.tree_at(
        lambda m: (m.network.blocks[0].linear.kernel, m.network.blocks[1].linear.kernel, m.network.head.kernel),
        zero,
        (first, second, head),
    )


def test_the_soft_value_of_a_one_step_bandit(small_agent, drawn_state):
    """V = E[Q − α·log π] for a known policy, at most α·log ∫exp(Q/α), and nearly that after the actor has learned."""
    agent = small_agent("sac", "vanilla", config={"rate": 1e-2})
    state = drawn_state(agent)
    alpha, slope, size = 0.5, 1.0, 4096
    temperature = eqx.tree_at(lambda t: t.logarithm, state.temperature.model, jnp.log(alpha))
    critics = (linear_critic(state.critics[0].model, slope),)
    policy = jax.tree.map(jnp.zeros_like, state.policies[0].model)
    raw = [np.log(np.expm1(std)) for std in (0.4, 0.6)]
    bias = jnp.asarray([0.2, 0.3, *raw])  # two means, two widths
    policy = eqx.tree_at(lambda p: p.model.network.head.bias, policy, bias)
    zeros = jnp.zeros((size, 2))
    batch = Transition(zeros, zeros, jnp.full(size, 2.0), zeros, jnp.full(size, GAMMA))
    target = jax.jit(lambda policy, key, batch: agent.target(critics, (policy,), None, temperature, batch, key))

    x, weight = nodes()
    expected_q = slope * weight @ np.tanh(0.3 + 0.6 * x)
    soft = expected_q + alpha * (entropy(0.2, 0.4) + entropy(0.3, 0.6))
    found = np.concatenate([target(policy, jax.random.key(seed), batch) for seed in range(4)])
    error = 4 * found.std() / np.sqrt(found.size)
    assert found.mean() == pytest.approx(2 + GAMMA * soft, abs=error)
    for wrong in (expected_q, 2 * expected_q - soft):  # without the entropy, and with its sign the other way
        assert abs(2 + GAMMA * wrong - found.mean()) > 3 * error
    ended = eqx.tree_at(lambda b: b.discount, batch, jnp.zeros(size))
    assert set(np.asarray(target(policy, jax.random.key(0), ended)).tolist()) == {2.0}

    best = alpha * (np.log(2) + np.log(2 * np.sinh(slope / alpha) * alpha / slope))
    assert soft < best - 0.02
    few = jax.tree.map(lambda leaf: leaf[:64], batch)

    @jax.jit
    def improved(learner):
        def step(learner, key):
            loss = lambda p: agent.actor_loss((p,), critics, None, temperature, few, key)[0]  # noqa: E731
            return learner.step(jax.grad(loss)(learner.model)), None

        return jax.lax.scan(step, learner, jax.random.split(jax.random.key(1), 600))[0]

    learner = eqx.tree_at(lambda learner: learner.model, state.policies[0], policy)
    after = (np.mean(target(improved(learner).model, jax.random.key(9), batch)) - 2) / GAMMA
    assert after == pytest.approx(best, abs=0.05)
    assert after > soft


@pytest.mark.parametrize("alpha", [1.0, 0.01])
def test_the_temperature_is_what_keeps_the_entropy_at_its_target(small_agent, drawn_state, alpha):
    """Its logarithm rises with the missing entropy, at every temperature at the same rate, and rests at the target."""
    agent = small_agent("sac", "vanilla")
    start = eqx.tree_at(lambda t: t.logarithm, drawn_state(agent).temperature.model, jnp.log(alpha))
    wanted = -0.5 * agent.symmetry.action.size
    for missing in (3.0, 0.0, -3.0):
        slope = jax.grad(agent.temperature_loss)(start, jnp.asarray(missing - wanted)).logarithm
        assert slope == pytest.approx(-missing)
