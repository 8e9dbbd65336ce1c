"""The product of two Gaussian experts, in closed form.

A soft policy improvement on (1−λ)Q_E + λQ_N with λ constant in the action gives π ∝ π_E^(1−λ) π_N^λ. For Gaussians that
product is a Gaussian again: precisions mix linearly, and means mix weighted by precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from symbreak.errors import InputError


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A normal distribution on vectors."""

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @classmethod
    def of(cls, mean: ArrayLike, covariance: ArrayLike) -> Gaussian:
        """From a mean and a covariance matrix, or a vector of variances."""
        centre, spread = np.atleast_1d(np.asarray(mean, np.float64)), np.asarray(covariance, np.float64)
        matrix = np.diag(np.atleast_1d(spread)) if spread.ndim < 2 else spread
        if matrix.shape != (centre.size, centre.size) or not np.allclose(matrix, matrix.T):
            raise InputError(f"covariance {matrix.shape} must be symmetric with one row per entry of the mean")
        if np.linalg.eigvalsh(matrix).min() <= 0.0:
            raise InputError("covariance is not positive definite; a deterministic expert has no density to multiply")
        return cls(centre, matrix)

    def log_density(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """log N(x; mean, covariance) for each row x of `points`."""
        offset = points - self.mean
        _, log_determinant = np.linalg.slogdet(self.covariance)
        distance = np.einsum("...i,...i->...", offset, np.linalg.solve(self.covariance, offset.T).T)
        return -0.5 * (distance + log_determinant + self.mean.size * np.log(2.0 * np.pi))


def product_of_experts(equivariant: Gaussian, free: Gaussian, gate: float) -> Gaussian:
    """The normalised p_E^(1−gate) p_N^gate; gate 0 and 1 return the experts themselves."""
    if not 0.0 <= gate <= 1.0:
        raise InputError(f"the gate is {gate}; a product of experts needs one in [0, 1]")
    if gate in (0.0, 1.0):
        return free if gate else equivariant
    precision_equivariant = (1.0 - gate) * np.linalg.inv(equivariant.covariance)
    precision_free = gate * np.linalg.inv(free.covariance)
    covariance = np.linalg.inv(precision_equivariant + precision_free)
    mean = covariance @ (precision_equivariant @ equivariant.mean + precision_free @ free.mean)
    return Gaussian(mean, 0.5 * (covariance + covariance.T))
