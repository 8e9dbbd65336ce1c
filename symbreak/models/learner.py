"""A model together with the optimiser that trains it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import equinox as eqx
import jax
import optax
from jaxtyping import Array

M = TypeVar("M", bound=eqx.Module)


@dataclass(frozen=True)
class Optimiser:
    """Adam, after clipping the gradient's global norm where a limit is given."""

    rate: float = 3e-4
    largest_norm: float | None = None
    first_decay: float = 0.9

    @cached_property
    def transformation(self) -> optax.GradientTransformation:
        adam = optax.adam(self.rate, b1=self.first_decay)
        return adam if self.largest_norm is None else optax.chain(optax.clip_by_global_norm(self.largest_norm), adam)


class Learner(eqx.Module, Generic[M]):
    """A model, every leaf of which is trained, with its optimiser's moments."""

    model: M
    moments: optax.OptState
    optimiser: Optimiser = eqx.field(static=True)

    @classmethod
    def create(cls, model: M, optimiser: Optimiser) -> Learner[M]:
        return cls(model, optimiser.transformation.init(model), optimiser)  # pyright: ignore[reportArgumentType]

    def step(self, gradient: M) -> Learner[M]:
        updates, moments = self.optimiser.transformation.update(gradient, self.moments, self.model)  # pyright: ignore
        return Learner(optax.apply_updates(self.model, updates), moments, self.optimiser)  # pyright: ignore


def polyak(target: M, source: M, rate: float) -> M:
    """Move the target's parameters towards the source's by `rate`."""

    def mix(old: Array, new: Array) -> Array:
        return (1 - rate) * old + rate * new

    return jax.tree.map(mix, target, source)
