"""Activations as rows: one-dimensional arrays that are cut, joined and summed.

Under `vmap` a row is a plain matrix (batch, columns): products of matrices run without transposed copies, and sums of
rows fuse with their neighbours. `lax.split` and concatenation stand where slices could, because they are each other's
gradient; that of a slice is an array padded with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

Rows = list[Array]


def divide(x: Array, sizes: Sequence[int]) -> Rows:
    """Consecutive parts of a vector."""
    return [x] if len(sizes) == 1 else list(lax.split(x, sizes)) if sizes else []


def divide_evenly(x: Array, size: int) -> Rows:
    """Consecutive parts of one size."""
    return divide(x, [size] * (x.shape[0] // size))


def joined(rows: Sequence[Array]) -> Array:
    """Rows one after the other."""
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows)


def total(terms: Sequence[Array]) -> Array:
    """The sum, without the zero that `sum` starts from."""
    return sum(terms[1:], terms[0])


def weighted_sums(matrix: np.ndarray, rows: Rows) -> Rows:
    """matrix @ rows, written out, for a constant matrix with few entries."""
    result = []
    for weights in matrix:
        entries = np.flatnonzero(weights)
        result.append(total([rows[j] if weights[j] == 1 else float(weights[j]) * rows[j] for j in entries]))
    return result


def reordered(x: Array, order: np.ndarray | Sequence[int]) -> Array:
    """x[order] for a permutation, as a product with its matrix.

    A gather would leave the batch with its axes exchanged, and every product after it several times slower. Sums of one
    entry and zeros are exact.
    """
    index = np.asarray(order)
    if np.array_equal(index, np.arange(len(index))):
        return x
    return x @ jnp.asarray(np.eye(len(index), dtype=x.dtype)[:, index])
