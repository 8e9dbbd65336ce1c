"""The closed form of a product of Gaussian experts against its definition."""

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.theory import Gaussian, product_of_experts, soft_policy


def random_gaussian(rng, size):
    root = rng.normal(size=(size, size))
    return Gaussian.of(rng.normal(size=size), root @ root.T + 0.1 * np.eye(size))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("gate", [0.1, 0.5, 0.9])
def test_log_density_is_the_geometric_mixture_up_to_a_constant(size, gate):
    rng = np.random.default_rng(size)
    equivariant, free = random_gaussian(rng, size), random_gaussian(rng, size)
    points = 3.0 * rng.normal(size=(200, size))
    mixed = (1.0 - gate) * equivariant.log_density(points) + gate * free.log_density(points)
    blend = product_of_experts(equivariant, free, gate)
    assert np.ptp(blend.log_density(points) - mixed) < 1e-9
    exchanged = product_of_experts(free, equivariant, gate)
    if gate != 0.5:  # control: experts exchanged
        assert np.ptp(exchanged.log_density(points) - mixed) > 1e-2


def test_densities_integrate_to_one():
    line = np.linspace(-60.0, 60.0, 200_001)
    blend = product_of_experts(Gaussian.of([1.0], [4.0]), Gaussian.of([-2.0], [0.25]), 0.3)
    density = np.exp(blend.log_density(line[:, None]))
    assert np.trapezoid(density, line) == pytest.approx(1.0, abs=1e-9)
    assert np.trapezoid(line * density, line) == pytest.approx(float(blend.mean[0]), abs=1e-9)


def test_by_hand():
    # Precisions 1/4 and 4 mixed half and half: 17/8; mean (½·1/4·1 + ½·4·(−2)) / (17/8).
    blend = product_of_experts(Gaussian.of([1.0], [4.0]), Gaussian.of([-2.0], [0.25]), 0.5)
    assert blend.covariance[0, 0] == pytest.approx(8.0 / 17.0)
    assert blend.mean[0] == pytest.approx((0.125 - 4.0) * 8.0 / 17.0)


def test_a_hard_gate_is_an_expert():
    rng = np.random.default_rng(0)
    equivariant, free = random_gaussian(rng, 3), random_gaussian(rng, 3)
    assert product_of_experts(equivariant, free, 0.0) is equivariant
    assert product_of_experts(equivariant, free, 1.0) is free


def test_soft_improvement_of_mixed_values_is_the_product_of_the_experts_policies():
    rng = np.random.default_rng(1)
    equivariant_q, free_q = rng.normal(size=(2, 6, 4))
    gate = rng.random((6, 1))  # depends on the state only
    blend = soft_policy((1.0 - gate) * equivariant_q + gate * free_q, 0.5)
    product = soft_policy(equivariant_q, 0.5) ** (1.0 - gate) * soft_policy(free_q, 0.5) ** gate
    np.testing.assert_allclose(blend, product / product.sum(axis=1, keepdims=True), atol=1e-12)
    arithmetic = (1.0 - gate) * soft_policy(equivariant_q, 0.5) + gate * soft_policy(free_q, 0.5)
    assert np.abs(blend - arithmetic).max() > 1e-3  # control: a mixture of policies is something else


def test_what_is_no_gaussian_is_refused():
    with pytest.raises(InputError, match="positive definite"):
        Gaussian.of([0.0, 0.0], [1.0, 0.0])
    with pytest.raises(InputError, match="covariance"):
        Gaussian.of([0.0, 0.0], np.eye(3))
    with pytest.raises(InputError, match="gate"):
        product_of_experts(Gaussian.of([0.0], [1.0]), Gaussian.of([0.0], [1.0]), 1.5)
