"""From pairs to states: a policy's gate must open when *some* action breaks the symmetry."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def expectile_loss(target: Float[Array, "*#n"], estimate: Float[Array, "*#n"], level: float) -> Float[Array, ""]:
    """|level − 1[u < 0]|·u² with u = target − estimate: near level 1 the best estimate is the largest target."""
    gap = jax.lax.stop_gradient(target) - estimate
    return jnp.mean(jnp.where(gap < 0, 1 - level, level) * gap**2)
