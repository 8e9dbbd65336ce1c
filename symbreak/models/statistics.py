"""Running mean and variance of batches, merged as they come."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbreak.symmetry.layout import Layout

MANY = 2**30  # half of what 32 bits can count


class Running(eqx.Module):
    """Count, mean and population variance of all values seen.

    The count is an integer, which does not saturate, and at most `MANY` old values count: beyond, they fade.
    """

    count: Int[Array, ""]
    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]

    @classmethod
    def empty(cls, shape: tuple[int, ...] = ()) -> Running:
        return cls(jnp.zeros((), jnp.int32), jnp.zeros(shape), jnp.zeros(shape))

    def merge(self, values: Float[Array, "batch *shape"]) -> Running:  # noqa: UP037
        """Statistics of the old values and this batch together (Chan, Golub and LeVeque's pairwise rule)."""
        count = jnp.minimum(self.count, MANY) + len(values)
        share = len(values) / count.astype(self.mean.dtype)
        mean, variance = jnp.mean(values, axis=0), jnp.var(values, axis=0)
        step = mean - self.mean
        merged = (1 - share) * self.variance + share * variance + (1 - share) * share * step**2
        return Running(count, self.mean + share * step, merged)

    @property
    def std(self) -> Float[Array, "*shape"]:
        return jnp.sqrt(self.variance)


def symmetric_scale(running: Running, layout: Layout, floor: float = 1e-3) -> Float[Array, " size"]:
    """Root mean square deviation of each entry from its symmetric mean, shared within each copy of an atom.

    Dividing by it commutes with the group; with nothing seen yet it is one.
    """
    groups = _atom_index(layout)
    second = running.variance + (running.mean - symmetric_mean(running, layout)) ** 2
    average = np.zeros((groups.max() + 1, len(groups)))
    average[groups, np.arange(len(groups))] = 1.0
    average /= average.sum(axis=1, keepdims=True)
    shared = (jnp.asarray(average, second.dtype) @ second)[groups]
    return jnp.where(running.count > 0, jnp.sqrt(shared) + floor, 1.0)


def symmetric_mean(running: Running, layout: Layout) -> Float[Array, " size"]:
    """The mean on invariant entries, zero on the others: subtracting it commutes with the group."""
    invariant = np.zeros(layout.size)
    position = 0
    for atom in layout.rep.atoms():
        for index in layout.order[position : position + atom.size]:
            invariant[index] = float(atom.is_trivial)
        position += atom.size
    return running.mean * jnp.asarray(invariant, running.mean.dtype)


def _atom_index(layout: Layout) -> np.ndarray:
    """Which copy of which atom each entry belongs to."""
    index, position = np.zeros(layout.size, dtype=int), 0
    for number, atom in enumerate(layout.rep.atoms()):
        index[list(layout.order[position : position + atom.size])] = number
        position += atom.size
    return index
