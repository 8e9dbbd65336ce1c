"""Squashed Gaussians over bounded actions, and their product.

A Gaussian draw u is squashed to an action: elementwise a = tanh(u), or radially a = tanh(|u|)·u/|u| on blocks that turn
as vectors, where an elementwise tanh would not commute with the rotation.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.keys import Key, named_key
from symbreak.symmetry.layout import Layout

Blocks = tuple[tuple[int, ...], ...]
SMALLEST_STD, LARGEST_STD = float(np.exp(-10.0)), float(np.exp(2.0))


def radial_blocks(action: Layout) -> Blocks:
    """The index blocks of an action that turn as vectors and are therefore squashed by their length."""
    blocks, position = [], 0
    for atom in action.rep.atoms():
        indices = action.order[position : position + atom.size]
        position += atom.size
        if not atom.is_signed_permutation:
            blocks.append(tuple(indices))
    return tuple(blocks)


class SquashedGaussian(eqx.Module):
    """Independent Gaussians, squashed to (-1, 1) or, for each of `radial`, to the open unit ball."""

    mean: Float[Array, " action"]
    std: Float[Array, " action"]
    radial: Blocks = eqx.field(static=True)

    def mode(self) -> Float[Array, " action"]:
        return squash(self.mean, self.radial)

    def sample(self, key: Key) -> tuple[Float[Array, " action"], Float[Array, ""]]:
        """An action, differentiable in mean and std, and the logarithm of its density."""
        return self.moved(jax.random.normal(key, self.mean.shape, self.mean.dtype))

    def moved(self, noise: Float[Array, " action"]) -> tuple[Float[Array, " action"], Float[Array, ""]]:
        """The same for given standard normal noise."""
        before = self.mean + self.std * noise
        gaussian = -0.5 * noise**2 - jnp.log(self.std) - 0.5 * jnp.log(2 * jnp.pi)
        return squash(before, self.radial), jnp.sum(gaussian) - log_volume(before, self.radial)

    def log_prob(self, action: Float[Array, " action"]) -> Float[Array, ""]:
        before = unsquash(action, self.radial)
        gaussian = -0.5 * ((before - self.mean) / self.std) ** 2 - jnp.log(self.std) - 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(gaussian) - log_volume(before, self.radial)


def blend(first: SquashedGaussian, second: SquashedGaussian, weight: Float[Array, ""]) -> SquashedGaussian:
    """The normalised product first^(1-weight)·second^weight, again a squashed Gaussian."""
    precision = (1 - weight) / first.std**2 + weight / second.std**2
    mean = ((1 - weight) * first.mean / first.std**2 + weight * second.mean / second.std**2) / precision
    return SquashedGaussian(mean, 1 / jnp.sqrt(precision), first.radial)


def select(first: SquashedGaussian, second: SquashedGaussian, gate: Float[Array, ""]) -> SquashedGaussian:
    """`second` where the gate is 1, `first` where it is 0, bit for bit."""
    mean = jnp.where(gate > 0.5, second.mean, first.mean)
    return SquashedGaussian(mean, jnp.where(gate > 0.5, second.std, first.std), first.radial)


def random_action(size: int, radial: Blocks, key: Key) -> Float[Array, " action"]:
    """Uniform in the box, and in the ball where actions are squashed by their length."""
    box_key, radius_key = jax.random.split(key)
    action = jax.random.uniform(box_key, (size,), minval=-1.0, maxval=1.0)
    for number, block in enumerate(radial):
        index = jnp.array(block)
        direction = jax.random.normal(named_key(box_key, number), (len(block),))
        radius = jax.random.uniform(named_key(radius_key, number)) ** (1 / len(block))
        action = action.at[index].set(radius * direction / jnp.linalg.norm(direction))
    return action


def positive_std(raw: Float[Array, " action"]) -> Float[Array, " action"]:
    return jnp.clip(jax.nn.softplus(raw), SMALLEST_STD, LARGEST_STD)


def _elementwise(size: int, radial: Blocks) -> np.ndarray:
    inside = {index for block in radial for index in block}
    return np.array([index for index in range(size) if index not in inside], dtype=int)


def squash(u: Float[Array, " action"], radial: Blocks) -> Float[Array, " action"]:
    action = jnp.tanh(u)
    for block in radial:
        index = np.array(block)
        radius = _length(u[index])
        action = action.at[index].set(jnp.tanh(radius) / radius * u[index])
    return action


def unsquash(action: Float[Array, " action"], radial: Blocks) -> Float[Array, " action"]:
    edge = 1 - 1e-6  # the density is that of the open set; its edge is never drawn, but may be asked for
    u = jnp.arctanh(jnp.clip(action, -edge, edge))
    for block in radial:
        index = np.array(block)
        radius = _length(action[index])
        u = u.at[index].set(jnp.arctanh(jnp.minimum(radius, edge)) / radius * action[index])
    return u


def log_volume(u: Float[Array, " action"], radial: Blocks) -> Float[Array, ""]:
    """log |det ∂a/∂u|; for a block of n with r = |u|: log(1 - tanh² r) + (n - 1)·log(tanh r / r)."""
    plain = _elementwise(len(u), radial)
    total = jnp.sum(_log_slope(u[plain]))
    for block in radial:
        radius = _length(u[np.array(block)])
        total = total + _log_slope(radius) + (len(block) - 1) * jnp.log(jnp.tanh(radius) / radius)
    return total


def _log_slope(u: Array) -> Array:
    """log(1 - tanh² u), without cancellation for large |u|."""
    return 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))


def _length(x: Array) -> Array:
    # The small constant keeps the gradient finite at zero; it changes lengths by less than 1e-6.
    return jnp.sqrt(jnp.sum(x**2) + 1e-12)
