"""Optimisers clip a global norm, targets follow by a fixed share, every leaf of a model is trained."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symbreak.models.learner import Learner, Optimiser, polyak


class Pair(eqx.Module):
    first: jnp.ndarray
    second: jnp.ndarray


def pair(first, second) -> Pair:
    return Pair(jnp.asarray(first, jnp.float32), jnp.asarray(second, jnp.float32))


def first_moments(learner):
    """What Adam has taken in after one step: (1 − b1) times the gradient it saw."""
    return learner.moments.first


def test_a_gradient_is_clipped_by_its_global_norm():
    gradient = pair([3.0, 0.0], [0.0, 4.0])  # norm 5 together, 3 and 4 apart
    free = Learner.create(pair([0, 0], [0, 0]), Optimiser(0.1)).step(gradient)
    clipped = Learner.create(pair([0, 0], [0, 0]), Optimiser(0.1, largest_norm=0.5)).step(gradient)
    np.testing.assert_allclose(first_moments(free).first, [0.3, 0], rtol=1e-6)
    np.testing.assert_allclose(first_moments(clipped).first, [0.03, 0], rtol=1e-5)
    np.testing.assert_allclose(first_moments(clipped).second, [0, 0.04], rtol=1e-5)
    small = Learner.create(pair([0, 0], [0, 0]), Optimiser(0.1, largest_norm=50.0)).step(gradient)
    np.testing.assert_array_equal(first_moments(small).first, first_moments(free).first)


def test_the_first_decay_is_adams_memory_of_the_mean():
    gradient = pair([1.0], [2.0])
    for decay in (0.9, 0.5):
        learner = Learner.create(pair([0], [0]), Optimiser(0.1, first_decay=decay)).step(gradient)
        np.testing.assert_allclose(first_moments(learner).second, [2 * (1 - decay)], rtol=1e-6)
        # Adam's first step has the size of the rate, whatever the gradient.
        np.testing.assert_allclose(learner.model.first, [-0.1], rtol=1e-4)


@pytest.mark.parametrize("limit", [None, 0.5])
def test_many_steps_are_those_of_a_library(limit):
    rng = np.random.default_rng(0)
    start = pair(rng.normal(size=5), rng.normal(size=3))
    adam = optax.adam(0.1, b1=0.7)
    adam = adam if limit is None else optax.chain(optax.clip_by_global_norm(limit), adam)
    learner, model = Learner.create(start, Optimiser(0.1, limit, 0.7)), start
    state = adam.init(model)
    for scale in (1.0, 30.0, 1e-3, 0.0, 2.0):  # beyond the limit, far below it, none at all
        gradient = pair(scale * rng.normal(size=5), scale * rng.normal(size=3))
        learner = learner.step(gradient)
        updates, state = adam.update(gradient, state, model)
        model = optax.apply_updates(model, updates)
        np.testing.assert_allclose(learner.model.first, model.first, rtol=1e-5)
        np.testing.assert_allclose(learner.model.second, model.second, rtol=1e-5)
    assert int(learner.moments.count) == 5


def test_a_model_without_gradient_does_not_move_by_a_bit():
    model = pair([0.1, -0.7], [1e-8, 3.0])
    learner = Learner.create(model, Optimiser(0.1, largest_norm=0.5))
    for _ in range(3):
        learner = learner.step(pair([0, 0], [0, 0]))
    assert jnp.array_equal(learner.model.first, model.first)
    assert jnp.array_equal(learner.model.second, model.second)
    assert not jnp.array_equal(learner.step(pair([0, 1], [0, 0])).model.first, model.first)


def test_polyak_moves_by_its_rate():
    target, source = pair([0.0], [1.0]), pair([1.0], [1.0])
    for _ in range(10):
        target = polyak(target, source, 0.005)
    assert float(target.first[0]) == pytest.approx(1 - 0.995**10, rel=1e-4)
    assert float(target.second[0]) == pytest.approx(1)
    assert float(target.first[0]) != pytest.approx(1 - 0.005**10, rel=1e-4)  # the rate is on the new value
