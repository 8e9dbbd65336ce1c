"""What both algorithms share: transitions, experts, and how a gate chooses between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.keys import Key
from symbreak.nn.mlp import Family
from symbreak.symmetry.layout import Symmetry

Metrics = dict[str, Array]
Routing = Literal["hard", "soft"]
POOL = 256  # elements of a continuous group that augmentation draws from


class Transition(eqx.Module):
    """One step, or a batch of them. `discount` is γ, or 0 where the episode terminated (truncation does not count)."""

    # Arrays of the device, or of the host about to go there.
    observation: Float[Any, "*batch observation"]
    action: Any
    reward: Float[Any, "*batch"]
    next_observation: Float[Any, "*batch observation"]
    discount: Float[Any, "*batch"]


Sampler = Callable[[Key], Transition]


@dataclass(frozen=True)
class Expert:
    """A family of networks and the name of the stream that initialises it."""

    role: str
    family: Family


@dataclass(frozen=True)
class Heads:
    """The experts of a method: a single one, or an equivariant and a free one with a gate between them."""

    experts: tuple[Expert, ...]

    @property
    def gated(self) -> bool:
        return len(self.experts) == 2


def draw(routing: Routing, probability: Float[Array, "*n"], key: Key) -> Float[Array, "*n"]:
    """What the gate says this time: 0 or 1 when routing is hard, the probability itself when it is soft."""
    if routing == "soft":
        return probability
    return jax.random.bernoulli(key, probability).astype(probability.dtype)


def mix(routing: Routing, outputs: tuple[Array, ...], gate: Array) -> Array:
    """The free expert's output where the gate is 1, the equivariant one's where it is 0."""
    if len(outputs) == 1:
        return outputs[0]
    equivariant, free = outputs
    if routing == "soft":
        return (1 - gate) * equivariant + gate * free
    return jnp.where(gate > 0.5, free, equivariant)


@lru_cache(maxsize=32)
def _pool(symmetry: Symmetry) -> tuple[np.ndarray, np.ndarray]:
    group = symmetry.group
    rng = np.random.default_rng(0)
    elements = group.elements() if group.is_finite else tuple(group.sample(rng) for _ in range(POOL))
    observation = np.stack([symmetry.observation.matrix(g) for g in elements])
    if symmetry.discrete:
        return observation, np.stack([symmetry.action_permutation(g) for g in elements])
    return observation, np.stack([symmetry.action.matrix(g) for g in elements])


def augment(symmetry: Symmetry, batch: Transition, key: Key) -> Transition:
    """Each transition moved by its own uniformly drawn group element; reward and discount stay.

    Of a continuous group the element is a product of two from a pool, which is far more even than the pool itself.
    """
    observations, actions = (jnp.asarray(matrices) for matrices in _pool(symmetry))
    rounds = 1 if symmetry.group.is_finite else 2
    chosen = jax.random.randint(key, (rounds, *batch.reward.shape), 0, len(observations))

    def move(transition: Transition, index: Array) -> Transition:
        matrix = observations[index].astype(transition.observation.dtype)
        if symmetry.discrete:
            action = actions[index, transition.action].astype(transition.action.dtype)
        else:
            action = actions[index].astype(transition.action.dtype) @ transition.action
        return Transition(
            matrix @ transition.observation,
            action,
            transition.reward,
            matrix @ transition.next_observation,
            transition.discount,
        )

    for index in chosen:
        batch = jax.vmap(move)(batch, index)
    return batch
