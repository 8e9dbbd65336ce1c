"""Policies and critics transform as actions and values do; a width follows the magnitude of its action."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.models.critic import HEAD_SCALE, make_action_values, make_twin_critic
from symbreak.models.policy import make_policy
from symbreak.nn.linear import Dense, Equivariant
from symbreak.symmetry import SO3, Field, Layout, Symmetry, Z
from symbreak.tasks.symmetries import grid

mirror, turn, space = Z(2), Z(4), SO3()
SYMMETRIES = {
    # Indices out of order: the user's vector is not the representation's.
    "mirror": Symmetry(
        Layout({"x": Field(2 * mirror.sign, (0, 2)), "y": Field(mirror.trivial, (1,))}),
        Layout({"push": Field(mirror.sign, (1,)), "lift": Field(mirror.trivial, (0,))}),
    ),
    "turn": Symmetry(
        Layout({"legs": turn.vector, "z": turn.trivial}), Layout({"torque": Field(turn.vector, (2, 0, 3, 1))})
    ),
    "space": Symmetry(
        Layout({"here": space.vector, "goal": space.vector}),
        Layout({"grip": Field(space.trivial, (0,)), "move": Field(space.vector, (1, 2, 3))}),
    ),
}
WIDTH = {"mirror": 16, "turn": 32, "space": 64}


@pytest.fixture(scope="module", params=SYMMETRIES)
def case(request):
    return request.param, SYMMETRIES[request.param]


def answers(policy, observations):
    """mean, std, mode of a batch."""

    @jax.jit
    @jax.vmap
    def numbers(observation):
        distribution = policy(observation)
        return distribution.mean, distribution.std, distribution.mode()

    return [np.asarray(part, np.float64) for part in numbers(jnp.asarray(observations, jnp.float32))]


def errors(policy, symmetry, seed=0):
    """Relative errors of mean, std and mode under one group element."""
    rng = np.random.default_rng(seed)
    element = symmetry.group.sample(rng) if not symmetry.group.is_finite else symmetry.group.generators[0]
    observations = rng.normal(size=(6, symmetry.observation.size))
    straight = answers(policy, observations)
    images = answers(policy, observations @ symmetry.observation.matrix(element).T)
    action = symmetry.action.matrix(element)
    # Where the action is permuted with signs, its width is permuted; a vector's width is one number.
    magnitude = np.eye(len(action)) if not symmetry.group.is_finite else np.abs(action)
    wanted = [straight[0] @ action.T, straight[1] @ magnitude.T, straight[2] @ action.T]
    return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(images, wanted, strict=True)], straight


def test_an_equivariant_policy_turns_with_its_observation(case, filled):
    name, symmetry = case
    make = {
        family: filled(lambda f=family: make_policy(f, symmetry, key=jax.random.key(0), width=WIDTH[name]))
        for family in (Equivariant, Dense)
    }
    found, (mean, std, _) = errors(make[Equivariant], symmetry)
    assert max(found) < 1e-4
    assert np.ptp(mean, axis=0).min() > 1e-2  # not a constant
    assert np.ptp(std, axis=0).min() > 1e-3
    if name == "space":
        assert np.ptp(std[:, 1:], axis=1).max() == 0  # one width for the whole vector
    else:
        assert np.ptp(std, axis=1).min() > 1e-3
    free, _ = errors(make[Dense], symmetry)
    assert min(free) > 1e-2


def test_an_elementwise_squash_of_a_vector_is_not_equivariant(filled):
    symmetry = SYMMETRIES["space"]
    policy = filled(lambda: make_policy(Equivariant, symmetry, key=jax.random.key(0), width=64, radial=False))
    (mean, std, mode), _ = errors(policy, symmetry)
    assert max(mean, std) < 1e-4
    assert mode > 1e-2
    assert policy.radial == ()


def test_twin_critics_are_invariant_and_independent(case, filled):
    name, symmetry = case
    rng = np.random.default_rng(0)
    element = symmetry.group.sample(rng) if not symmetry.group.is_finite else symmetry.group.generators[0]
    observation, action = rng.normal(size=(6, symmetry.observation.size)), rng.normal(size=(6, symmetry.action.size))
    pairs = np.concatenate([observation, action], axis=1)
    images = np.concatenate(
        [observation @ symmetry.observation.matrix(element).T, action @ symmetry.action.matrix(element).T], axis=1
    )
    for family in (Equivariant, Dense):
        critic = filled(lambda f=family: make_twin_critic(f, symmetry, key=jax.random.key(0), width=WIDTH[name]))
        values = jax.jit(lambda x, c=critic: jax.vmap(lambda twin: jax.vmap(twin)(x)[:, 0])(c))
        straight, moved = (np.asarray(values(jnp.asarray(x, jnp.float32))) for x in (pairs, images))
        error = np.linalg.norm(straight - moved) / np.linalg.norm(straight)
        assert error < 1e-4 if family is Equivariant else error > 1e-2
        assert straight.shape == (2, 6)
        assert np.abs(straight[0] - straight[1]).min() > 1e-3
        assert np.ptp(straight, axis=1).min() > 1e-2


def test_action_values_turn_with_the_grid(filled):
    symmetry = grid()
    observations = np.random.default_rng(0).normal(size=(6, 4))
    for family in (Equivariant, Dense):
        model = filled(lambda f=family: make_action_values(f, symmetry, key=jax.random.key(0), width=16))
        values = jax.jit(jax.vmap(model))
        for element in symmetry.group.elements()[1:]:
            straight = np.asarray(values(jnp.asarray(observations, jnp.float32)))
            matrix = symmetry.observation.matrix(element)
            moved = np.asarray(values(jnp.asarray(observations @ matrix.T, jnp.float32)))
            # Q(gs, ga) = Q(s, a)
            error = np.abs(moved[:, symmetry.action_permutation(element)] - straight).max() / np.abs(straight).max()
            assert error < 1e-4 if family is Equivariant else error > 1e-2


def test_values_and_policies_start_small():
    """A value that starts at order one stays above every possible return for tens of thousands of steps."""
    symmetry = grid()
    observations = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, size=(64, 4)), jnp.float32)
    for family in (Equivariant, Dense):
        model = make_action_values(family, symmetry, key=jax.random.key(0), width=64)
        values = np.asarray(jax.jit(jax.vmap(model))(observations))
        assert 1e-4 < np.abs(values).max() < 0.1
        hidden = np.asarray(jax.jit(jax.vmap(model.features))(observations))
        assert np.abs(hidden).max() > 10 * np.abs(values).max()  # it is the head that is small
    symmetry = SYMMETRIES["mirror"]
    pairs = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, size=(64, 5)), jnp.float32)
    for family in (Equivariant, Dense):
        twins = make_twin_critic(family, symmetry, key=jax.random.key(0), width=64)
        policy = make_policy(family, symmetry, key=jax.random.key(0), width=64)
        values = jax.jit(lambda x, c=twins: jax.vmap(lambda twin: jax.vmap(twin)(x)[:, 0])(c))(pairs)
        raw = jax.jit(jax.vmap(policy.model))(pairs[:, :3])
        for small in (values, raw):
            assert 1e-4 < np.abs(np.asarray(small)).max() < 0.1
    assert HEAD_SCALE == 0.01
