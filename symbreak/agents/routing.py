"""Ask an expert only where it counts.

A hard gate sends each sample to one expert, so the other's answer there is thrown away. `routed` evaluates a model on
the samples that want it and costs accordingly: samples are sorted so that these come first, and of a few programs with
fixed sizes the smallest that holds them all is run, forwards and backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

Apply = Callable[[Any, Array], Any]  # model, rows of inputs → rows of outputs (any pytree)

# Of the batch. Each is a program of its own to compile; these hold what gates of 0.05, 0.15 and 0.5 draw.
SHARES = (0.0, 0.09375, 0.21875, 0.625, 1.0)


def answers(
    apply: Apply, models: tuple[Any, ...], inputs: Array, wanted: Bool[Array, " batch"], *, route: bool
) -> tuple[Any, ...]:
    """What each expert says of each row; with `route` the free one, which costs more, only in the wanted rows."""
    if len(models) == 1 or not route:
        return tuple(apply(model, inputs) for model in models)
    equivariant, free = models
    return apply(equivariant, inputs), routed(apply, free, inputs, wanted)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def routed(apply: Apply, model: Any, inputs: Array, wanted: Bool[Array, " batch"]) -> Any:
    """`apply(model, inputs)` in the wanted rows, zero in the others; so are the gradients."""
    shapes = jax.eval_shape(apply, model, inputs)

    def run(size: int, order: Array) -> Any:
        if not size:
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        rows = order[:size]
        return jax.tree.map(lambda leaf, some: _spread(some, rows, wanted, leaf), shapes, apply(model, inputs[rows]))

    return _smallest(run, wanted)


def _forwards(apply: Apply, model: Any, inputs: Array, wanted: Array) -> tuple[Any, Any]:
    return routed(apply, model, inputs, wanted), (model, inputs, wanted)


def _backwards(apply: Apply, kept: Any, cotangent: Any) -> tuple[Any, Array, None]:
    """The forward pass is made again: on a few rows that is cheaper than keeping what every size would need."""
    model, inputs, wanted = kept

    def run(size: int, order: Array) -> tuple[Any, Array]:
        if not size:
            return jax.tree.map(jnp.zeros_like, (model, inputs))
        rows = order[:size]
        some = jax.tree.map(lambda leaf: jnp.where(_as_column(wanted[rows], leaf), leaf[rows], 0), cotangent)
        to_model, to_rows = jax.vjp(apply, model, inputs[rows])[1](some)
        return to_model, _spread(to_rows, rows, wanted, inputs)

    return *_smallest(run, wanted), None


routed.defvjp(_forwards, _backwards)


def _smallest(run: Callable[[int, Array], Any], wanted: Array) -> Any:
    """`run(size, order)` with the smallest size that holds all wanted rows, which come first in `order`."""
    sizes = [round(share * len(wanted)) for share in SHARES]
    order = jnp.argsort(~wanted, stable=True)
    number = jnp.searchsorted(jnp.array(sizes), jnp.sum(wanted))
    return jax.lax.switch(number, [partial(run, size) for size in sizes], order)


def _spread(some: Array, rows: Array, wanted: Array, like: Any) -> Array:
    """Rows put back to their places, zero elsewhere."""
    kept = jnp.where(_as_column(wanted[rows], some), some, 0)
    return jnp.zeros(like.shape, like.dtype).at[rows].set(kept)


def _as_column(flags: Array, like: Array) -> Array:
    return flags.reshape(-1, *[1] * (like.ndim - 1))
