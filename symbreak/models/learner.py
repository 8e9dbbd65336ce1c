"""A model together with the optimiser that trains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

M = TypeVar("M", bound=eqx.Module)


SECOND_DECAY, SMALLEST = 0.999, 1e-8  # Adam's usual memory of squares, and what keeps it from dividing by zero


@dataclass(frozen=True)
class Optimiser:
    """Adam, after clipping the gradient's global norm where a limit is given."""

    rate: float = 3e-4
    largest_norm: float | None = None
    first_decay: float = 0.9


class Moments(eqx.Module, Generic[M]):
    """How many steps were made, and the decaying means of gradients and of their squares."""

    count: Int[Array, ""]
    first: M
    second: M


class Learner(eqx.Module, Generic[M]):
    """A model, every leaf of which is trained, with its optimiser's moments."""

    model: M
    moments: Moments[M]
    optimiser: Optimiser = eqx.field(static=True)

    @classmethod
    def create(cls, model: M, optimiser: Optimiser) -> Learner[M]:
        zeros = jax.tree.map(jnp.zeros_like, model)
        return cls(model, Moments(jnp.zeros((), jnp.int32), zeros, zeros), optimiser)

    def step(self, gradient: M) -> Learner[M]:
        """One step of Adam. All that is the same for every parameter is computed once, not once for each of them."""
        rate, limit, decay = self.optimiser.rate, self.optimiser.largest_norm, self.optimiser.first_decay
        scale = 1.0 if limit is None else limit / jnp.maximum(limit, optax.tree_utils.tree_norm(gradient))
        count = self.moments.count + 1
        first_weight, second_weight = 1 - decay**count, 1 - SECOND_DECAY**count  # of what the means have seen so far
        length, floor = rate * jnp.sqrt(second_weight) / first_weight, SMALLEST * jnp.sqrt(second_weight)
        first = jax.tree.map(lambda m, g: decay * m + (1 - decay) * scale * g, self.moments.first, gradient)
        second = jax.tree.map(
            lambda v, g: SECOND_DECAY * v + (1 - SECOND_DECAY) * (scale * g) ** 2, self.moments.second, gradient
        )
        model = jax.tree.map(lambda p, m, v: p - length * m / (jnp.sqrt(v) + floor), self.model, first, second)
        return Learner(model, Moments(count, first, second), self.optimiser)


def polyak(target: M, source: M, rate: float) -> M:
    """Move the target's parameters towards the source's by `rate`."""

    def mix(old: Array, new: Array) -> Array:
        return (1 - rate) * old + rate * new

    return jax.tree.map(mix, target, source)
