"""The average of a predictor over the group: what an equivariant model would say if every image counted the same.

A trained equivariant predictor fits the mean over an orbit *weighted by visits*, which drifts with the policy. The
group average of the free predictor, P̄(s'|s,a) = mean_g P̂(gs'|gs,ga), is the definition itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.keys import Key
from symbreak.symmetry.layout import Layout, Symmetry

POOL = 64  # elements of a continuous group to draw from


@dataclass(frozen=True, eq=False)
class Images:
    """Matrices of group elements on observations, actions and (inverted) on predictions."""

    observation: Float[np.ndarray | Array, "elements observation observation"]
    action: Float[np.ndarray | Array, "elements action action"]
    back: Float[np.ndarray | Array, "elements outcome outcome"]
    finite: bool

    def chosen(self, few: int, key: Key) -> Images:
        """All elements of a finite group; a few drawn ones of a continuous group.

        Each is the product of two from the pool. A pool of some dozens is itself lopsided: its mean matrix is not that
        of the group, but the square of it almost is.
        """
        if self.finite:
            return self
        first, second = jax.random.randint(key, (2, few), 0, len(self.observation))
        observation, action, back = (jnp.asarray(part) for part in (self.observation, self.action, self.back))
        return Images(
            observation[first] @ observation[second], action[first] @ action[second], back[second] @ back[first], False
        )

    def returned(self, decoded: Float[Array, "elements outcome"]) -> Float[Array, "elements outcome"]:
        """Predictions at the images, moved back."""
        if isinstance(self.back, np.ndarray) and np.all((self.back == 0) | (self.back == 1)):
            orders = np.argmax(self.back, axis=2)
            return jnp.stack([_permuted(row, order) for row, order in zip(decoded, orders, strict=True)])
        return jnp.einsum("gij,gj->gi", jnp.asarray(self.back, decoded.dtype), decoded)


def _permuted(x: Array, order: np.ndarray) -> Array:
    """x[order], by slices where whole blocks move: a gather is slow on CPU."""
    borders = np.flatnonzero(np.diff(order) != 1) + 1
    if len(borders) > 32:
        return x[order]
    return jnp.concatenate([x[run[0] : run[-1] + 1] for run in np.split(order, borders)])


@lru_cache(maxsize=32)
def images(symmetry: Symmetry, outcome: Layout) -> Images:
    group = symmetry.group
    if group.is_finite:
        elements = group.elements()
    else:
        rng = np.random.default_rng(0)
        elements = tuple(group.sample(rng) for _ in range(POOL))
    return Images(
        np.stack([symmetry.observation.matrix(g) for g in elements]),
        np.stack([symmetry.action.matrix(g) for g in elements]),
        np.stack([outcome.matrix(g).T for g in elements]),
        group.is_finite,
    )
