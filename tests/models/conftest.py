"""Models whose outputs are of order one, so that an error relative to the output means something."""

from __future__ import annotations

import jax
import numpy as np
import pytest


def _filled(make, seed: int = 0):
    """What `make()` would build, with every parameter drawn anew at order one.

    Only shapes are traced: drawing hundreds of small arrays inside a compiled function costs seconds of compilation.
    """
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(make)

    def draw(leaf):
        size = np.prod(leaf.shape[:-1]) if len(leaf.shape) > 1 else 4.0
        return jax.numpy.asarray(rng.normal(size=leaf.shape) / np.sqrt(max(size, 1.0)), leaf.dtype)

    return jax.tree.map(draw, shapes)


@pytest.fixture
def filled():
    return _filled
