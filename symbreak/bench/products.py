"""The matrix products inside a function, and how long they take alone: what the function could cost at best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from symbreak.bench.timing import interleaved

Shape = tuple[int, int, int]  # rows, summed, columns


def products(function: Callable[..., Any], *arguments: Any) -> Counter[Shape]:
    """How often a product of each shape is computed; a batch of products counts as many."""
    import jax

    counts: Counter[Shape] = Counter()
    for equation in _equations(jax.make_jaxpr(function)(*arguments).jaxpr):
        if equation.primitive.name == "dot_general":
            left, right = (variable.aval.shape for variable in equation.invars)
            (summed, _), (batched, _) = equation.params["dimension_numbers"]
            number, depth = (math.prod(left[i] for i in axes) for axes in (batched, summed))
            rows = math.prod(left) // (number * depth)
            counts[rows, depth, math.prod(right) // (number * depth)] += number
    return counts


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


def gemm_share(
    update: Callable[[Any, Any], tuple[Any, Any]], state: Any, batch: Any, repeats: int = 30
) -> dict[str, float]:
    """Seconds of an update, of its matrix products alone, and their ratio: the share of the core's limit it reaches.

    The products are timed as plain ones, row by column, each shape on its own. All take turns.
    """
    import jax
    import jax.numpy as jnp

    counts = products(update, state, batch)
    step = jax.jit(update, donate_argnums=0).lower(state, batch).compile()
    latest = [jax.tree.map(jnp.copy, state)]

    def whole() -> object:
        latest[0], metrics = step(latest[0], batch)
        return metrics

    calls: dict[str, Callable[[], object]] = {"whole": whole}
    multiply = jax.jit(jnp.matmul)
    for rows, depth, columns in counts:
        left = jax.random.normal(jax.random.key(0), (rows, depth))
        right = jax.random.normal(jax.random.key(1), (depth, columns))
        calls[str((rows, depth, columns))] = lambda left=left, right=right: multiply(left, right)
    inner = {name: 3 if name == "whole" else 20 for name in calls}
    times = interleaved(calls, repeats, inner)
    alone = sum(number * times[str(shape)] for shape, number in counts.items())
    return {"update_s": times["whole"], "products_s": alone, "gemm_share": alone / times["whole"]}
