"""Replay on the device: a ring of transitions."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from symbreak.agents.agent import Transition
from symbreak.nn.keys import Key


class Replay(eqx.Module):
    """The last `capacity` transitions; `inserted` counts all that ever came."""

    data: Transition
    inserted: Int[Array, ""]

    @classmethod
    def empty(cls, capacity: int, example: Transition) -> Replay:
        data = jax.tree.map(lambda leaf: jnp.zeros((capacity, *jnp.shape(leaf)), jnp.asarray(leaf).dtype), example)
        return cls(data, jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        return self.data.reward.shape[0]

    def insert(self, transition: Transition) -> Replay:
        position = self.inserted % self.capacity
        data = jax.tree.map(lambda ring, leaf: ring.at[position].set(leaf), self.data, transition)
        return Replay(data, self.inserted + 1)

    def spread(self, most: int) -> Transition:
        """At most so many of the stored transitions, evenly from the oldest to the newest: nothing is drawn."""
        stored = min(int(self.inserted), self.capacity)
        oldest, count = int(self.inserted) - stored, min(stored, most)
        index = (oldest + np.arange(count) * stored // count) % self.capacity
        return jax.tree.map(lambda ring: ring[index], self.data)

    def sample(self, key: Key, batch: int) -> Transition:
        """Uniformly drawn with replacement from what is stored."""
        index = jax.random.randint(key, (batch,), 0, jnp.minimum(self.inserted, self.capacity))
        return jax.tree.map(lambda ring: ring[index], self.data)
