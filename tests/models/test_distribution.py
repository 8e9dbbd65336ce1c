"""Squashed Gaussians are densities: they integrate to one, and their volumes are those of the squash."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.models.distribution import (
    LARGEST_STD,
    SMALLEST_STD,
    SquashedGaussian,
    blend,
    log_volume,
    positive_std,
    radial_blocks,
    select,
    squash,
    unsquash,
)
from symbreak.symmetry import SO3, Field, Layout, Z

pytestmark = pytest.mark.usefixtures("x64")

PAIR, TRIPLE = ((0, 1),), ((0, 1, 2),)


def gaussian(mean, std, radial=()):
    return SquashedGaussian(jnp.array(mean, float), jnp.array(std, float), radial)


def line(points=400):
    """Nodes and weights on (-1, 1)."""
    return np.polynomial.legendre.leggauss(points)


def square(points=200):
    node, weight = line(points)
    return np.stack(np.meshgrid(node, node), -1).reshape(-1, 2), np.outer(weight, weight).ravel()


def disc(points=200):
    """Polar nodes on the unit disc."""
    node, weight = line(points)
    radius, angle = (node + 1) / 2, np.pi * (node + 1)
    places = np.stack([np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle))], -1)
    return places.reshape(-1, 2), np.outer(radius * weight / 2, np.pi * weight).ravel()


def ball(points=48):
    node, weight = line(points)
    radius, angle, height = (node + 1) / 2, np.pi * (node + 1), node
    r, phi, z = np.meshgrid(radius, angle, height, indexing="ij")
    around = np.sqrt(1 - z**2)
    places = np.stack([r * around * np.cos(phi), r * around * np.sin(phi), r * z], -1).reshape(-1, 3)
    return places, np.einsum("i,j,k->ijk", radius**2 * weight / 2, np.pi * weight, weight).ravel()


CASES = {
    "line": (gaussian([0.4], [0.6]), lambda: (line()[0][:, None], line()[1])),
    "square": (gaussian([0.4, -0.2], [0.6, 0.8]), square),
    "disc": (gaussian([0.4, -0.2], [0.5, 0.5], PAIR), disc),
    "ball": (gaussian([0.4, -0.2, 0.3], [0.4, 0.4, 0.4], TRIPLE), ball),
}


def mass(log_density, nodes, weights) -> float:
    return float(np.exp(np.asarray(jax.jit(jax.vmap(log_density))(jnp.asarray(nodes)))) @ weights)


@pytest.mark.parametrize("name", CASES)
def test_a_density_integrates_to_one(name):
    distribution, rule = CASES[name]
    assert mass(distribution.log_prob, *rule()) == pytest.approx(1, abs=1e-5)


def test_without_the_volume_or_with_the_other_squash_it_does_not():
    distribution, rule = CASES["disc"]
    nodes, weights = rule()

    def without_volume(action):
        return distribution.log_prob(action) + log_volume(unsquash(action, PAIR), PAIR)

    def with_elementwise_volume(action):
        before = unsquash(action, PAIR)
        return distribution.log_prob(action) + log_volume(before, PAIR) - log_volume(before, ())

    assert abs(mass(without_volume, nodes, weights) - 1) > 0.1
    assert abs(mass(with_elementwise_volume, nodes, weights) - 1) > 0.01
    # The elementwise density lives on the square: on the disc alone some of its mass is missing.
    assert mass(CASES["square"][0].log_prob, nodes, weights) < 0.99


def test_log_volume_is_the_jacobian_of_the_squash():
    rng = np.random.default_rng(0)
    for radial in ((), TRIPLE, ((0, 2), (1, 3, 4))):
        points = rng.normal(size=(20, 6)) * np.geomspace(1e-3, 1.5, 20)[:, None]

        @jax.jit
        @jax.vmap
        def numbers(u, r=radial):
            return jax.jacfwd(squash)(u, r), log_volume(u, r), unsquash(squash(u, r), r)

        jacobian, volume, back = numbers(points)
        # Lengths are off by a millionth on purpose.
        np.testing.assert_allclose(volume, np.linalg.slogdet(np.asarray(jacobian))[1], atol=2e-6)
        np.testing.assert_allclose(back, points, atol=1e-5)


def test_the_radial_volume_of_a_vector_in_space_has_the_stated_form():
    u = jnp.array([0.3, -1.1, 0.7])
    r = float(jnp.linalg.norm(u))
    stated = np.log(1 - np.tanh(r) ** 2) + 2 * np.log(np.tanh(r) / r)
    assert float(log_volume(u, TRIPLE)) == pytest.approx(stated, abs=1e-9)
    one_factor = np.log(1 - np.tanh(r) ** 2) + np.log(np.tanh(r) / r)  # right in the plane only
    assert abs(float(log_volume(u, TRIPLE)) - one_factor) > 0.1


def test_the_radial_squash_stays_in_the_ball_and_commutes_with_rotations():
    rng = np.random.default_rng(1)
    rotation = SO3().vector.matrix(SO3().sample(rng))
    points = rng.normal(size=(50, 3)) * 2
    radial = jax.jit(jax.vmap(lambda u: squash(u, TRIPLE)))
    assert np.linalg.norm(radial(points), axis=1).max() < 1
    np.testing.assert_allclose(radial(points @ rotation.T), np.asarray(radial(points)) @ rotation.T, atol=1e-12)
    elementwise = np.tanh(points @ rotation.T) - np.tanh(points) @ rotation.T
    assert np.abs(elementwise).max() > 0.1


@pytest.mark.parametrize("name", CASES)
def test_a_sample_comes_with_its_own_log_density_and_a_gradient(name):
    distribution, _ = CASES[name]
    keys = jax.random.split(jax.random.key(0), 32)

    def moved(mean, key):
        return jnp.sum(SquashedGaussian(mean, distribution.std, distribution.radial).sample(key)[0])

    @jax.jit
    @jax.vmap
    def numbers(key):
        action, log_prob = distribution.sample(key)
        return log_prob, distribution.log_prob(action), jax.grad(moved)(distribution.mean, key)

    drawn, asked, gradient = numbers(keys)
    np.testing.assert_allclose(drawn, asked, atol=1e-5)
    assert np.abs(gradient).min() > 0


def test_gradients_stay_finite_at_the_origin_and_far_out():
    for radial in ((), TRIPLE):
        points = np.array([0.0, 1e-8, 30.0])[:, None] * np.ones(3)
        gradient = jax.jit(jax.vmap(jax.grad(lambda u, r=radial: log_volume(u, r) + jnp.sum(squash(u, r)))))(points)
        assert np.isfinite(gradient).all()


def test_blend_is_the_normalised_product_of_the_experts():
    for radial in ((), PAIR):
        first, second = gaussian([0.4, -0.2], [0.5, 0.5], radial), gaussian([-0.9, 0.5], [0.3, 0.3], radial)
        product = blend(first, second, jnp.array(0.3))
        assert float(product.std[0]) == pytest.approx((0.7 / 0.25 + 0.3 / 0.09) ** -0.5)
        assert float(product.mean[0]) == pytest.approx(
            (0.7 * 0.4 / 0.25 - 0.3 * 0.9 / 0.09) / (0.7 / 0.25 + 0.3 / 0.09)
        )
        actions = np.random.default_rng(0).uniform(-0.6, 0.6, size=(40, 2))
        log_density = jax.jit(lambda d, a: jax.vmap(d.log_prob)(a))
        wanted = 0.7 * log_density(first, actions) + 0.3 * log_density(second, actions)

        def spread(candidate, wanted=wanted, actions=actions, log_density=log_density):
            """How far a density is from being proportional to first^0.7·second^0.3."""
            return float(np.ptp(log_density(candidate, actions) - wanted))

        assert spread(product) < 1e-9
        averaged = SquashedGaussian(0.7 * first.mean + 0.3 * second.mean, product.std, radial)
        assert spread(averaged) > 0.1


def test_a_binary_gate_selects_one_expert_bit_for_bit():
    first, second = gaussian([0.4, -0.2], [0.5, 0.5]), gaussian([-0.9, 0.5], [0.3, 0.3])
    for gate, expert in ((0.0, first), (1.0, second)):
        chosen = select(first, second, jnp.array(gate))
        assert jnp.array_equal(chosen.mean, expert.mean)
        assert jnp.array_equal(chosen.std, expert.std)
        blended = blend(first, second, jnp.array(gate))
        np.testing.assert_allclose(blended.mean, expert.mean, rtol=1e-12)
        np.testing.assert_allclose(blended.std, expert.std, rtol=1e-12)
    assert not jnp.array_equal(select(first, second, jnp.array(1.0)).mean, first.mean)


def test_standard_deviations_are_softplus_within_bounds():
    std = positive_std(jnp.array([-1e3, 0.0, 3.0, 1e3]))
    np.testing.assert_allclose(std, [SMALLEST_STD, np.log(2), np.log1p(np.exp(3)), LARGEST_STD], rtol=1e-9)
    assert pytest.approx((np.exp(-10), np.exp(2))) == (SMALLEST_STD, LARGEST_STD)


def test_only_blocks_that_turn_as_vectors_are_radial():
    space, mirror = SO3(), Z(4)
    action = Layout({"grip": Field(space.trivial, (1,)), "move": Field(space.vector, (0, 2, 3))})
    assert radial_blocks(action) == ((0, 2, 3),)
    assert radial_blocks(Layout({"legs": mirror.vector, "flip": mirror.sign})) == ()
