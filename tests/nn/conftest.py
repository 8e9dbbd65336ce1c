"""The groups that every layer is tried on, and the one way in which equivariance is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.nn.isotypic import storage_order
from symbreak.symmetry import SO2, SO3, C, D, Group, Rep, Z, product

_I = np.array([[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, -1], [0, 0, 1, 0]], float)
_J = np.array([[0, 0, -1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, -1, 0, 0]], float)

GROUPS: dict[str, Callable[[], Group]] = {
    "C4": lambda: C(4),
    "Z2": lambda: Z(2),
    "Z4": lambda: Z(4),
    "D4": lambda: D(4),
    "SO2": SO2,
    "SO3": SO3,
    "product": lambda: product(Z(2), C(3)),
    "quaternion": lambda: Group("Q8", [_I, _J]),
}


@pytest.fixture(params=GROUPS)
def group(request: pytest.FixtureRequest) -> Group:
    return GROUPS[request.param]()


@pytest.fixture(params=["float32", "float64"])
def tolerance(request: pytest.FixtureRequest) -> Iterator[float]:
    """Runs the test in both precisions; the value is the relative error that is allowed."""
    if request.param == "float32":
        yield 1e-4
    else:
        with jax.enable_x64(True):
            yield 1e-9


class Measure:
    """What equivariance and sight are, in numbers. `stored`: the function takes and gives vectors in stored order."""

    def __init__(self) -> None:
        self._compiled: dict[int, tuple[Callable, Callable]] = {}

    def _batched(self, function: Callable) -> Callable:
        """One compilation for all measurements of a function; it is kept, so that its id stays its own."""
        if id(function) not in self._compiled:
            quick = {
                "xla_backend_optimization_level": 0
            }  # compiles in a third of the time; speed is measured elsewhere
            self._compiled[id(function)] = (function, jax.jit(jax.vmap(function), compiler_options=quick))
        return self._compiled[id(function)][1]

    def run(self, function: Callable, source: Rep, target: Rep, x: np.ndarray, stored: bool) -> np.ndarray:
        """Outputs for rows of flat inputs, copy after copy on both sides."""
        before = storage_order(source) if stored else np.arange(source.size)
        after = np.argsort(storage_order(target)) if stored else np.arange(target.size)
        return np.asarray(self._batched(function)(jnp.asarray(x[:, before])), np.float64)[:, after]

    def error(self, function: Callable, source: Rep, target: Rep, stored: bool = False, images: int = 4) -> float:
        """Largest |ρ_target(g) f(x) − f(ρ_source(g) x)| over |f(x)|, over several x and g."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(images, source.size))
        generators = source.group.generators  # a drawn element may be the identity, a generator is not
        elements = [generators[i] if i < len(generators) else source.group.sample(rng) for i in range(images)]
        moved = np.stack([source.matrix(g) @ row for g, row in zip(elements, x, strict=True)])
        outputs = self.run(function, source, target, np.concatenate([x, moved]), stored)
        plain, image = outputs[:images], outputs[images:]
        expected = np.stack([target.matrix(g) @ row for g, row in zip(elements, plain, strict=True)])
        return float((np.abs(expected - image).max(axis=1) / np.linalg.norm(plain, axis=1)).max())

    def spread(self, function: Callable, source: Rep) -> float:
        """Relative variation of the outputs' length, which is invariant, between random inputs of equal length."""
        x = np.random.default_rng(1).normal(size=(8, source.size))
        x /= np.linalg.norm(x, axis=1, keepdims=True) / np.sqrt(source.size)
        lengths = np.linalg.norm(np.asarray(self._batched(function)(jnp.asarray(x)), np.float64), axis=1)
        return float(lengths.std() / lengths.mean())


@pytest.fixture
def measure() -> Measure:
    return Measure()


def _drawn(make: Callable, *arguments: object, **options: object):
    """A module as training may leave it: random weights of its own shapes, biases too, without compiling its draw."""
    shapes = jax.eval_shape(lambda key: make(*arguments, **options, key=key), jax.random.key(0))
    rng = np.random.default_rng(4)

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        spread = 1 / np.sqrt(max(1, np.prod(leaf.shape[:-1]))) if len(leaf.shape) > 1 else 0.3
        return jnp.asarray(spread * rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree.map(fill, shapes)


@pytest.fixture
def drawn() -> Callable:
    return _drawn
