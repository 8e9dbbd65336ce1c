"""Group elements as recipes: how they multiply, how all of them are found, how one is drawn at random.

An element is kept as a product of generators and exponentials rather than as a matrix, so that every representation of
the group can read it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm

from symbreak.errors import InputError

Matrix = np.ndarray
Word = tuple[tuple[int, int], ...]  # (generator, power) pairs whose product is the identity

LARGEST_FINITE_ORDER = 1024
# Matrices closer than this are the same element. Users type matrices with seven digits, and the error grows with the
# length of a product; two different elements of a group of up to a thousand differ by far more.
SAME_ELEMENT = 1e-3


@dataclass(frozen=True)
class Element:
    """A product of steps, leftmost applied last; a step is a generator's index or Lie-algebra coefficients."""

    steps: tuple[int | tuple[float, ...], ...] = ()

    def __matmul__(self, other: Element) -> Element:
        return Element(self.steps + other.steps)


def frozen(matrix: Matrix) -> Matrix:
    """A read-only float64 copy, safe to share and to hash."""
    copy = np.array(matrix, dtype=np.float64)
    copy += 0.0  # turns -0.0 into 0.0, so that equal matrices have equal bytes
    copy.setflags(write=False)
    return copy


def frozen_squares(matrices: Sequence[Matrix], what: str) -> tuple[Matrix, ...]:
    """Read-only float64 copies of what a user gave; refused unless each is a square matrix of real numbers."""
    copies = []
    for i, matrix in enumerate(matrices):
        try:
            array = np.atleast_2d(np.asarray(matrix))
        except ValueError as error:
            raise InputError(f"{what}: matrix {i} has rows of different lengths; give a square one") from error
        if array.dtype.kind not in "biuf" or array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
            raise InputError(
                f"{what}: matrix {i} must be a square one of real numbers, got shape {array.shape} of {array.dtype}"
            )
        copies.append(frozen(array))
    return tuple(copies)


def evaluate(matrices: Sequence[Matrix], lie: Sequence[Matrix], element: Element, size: int) -> Matrix:
    """The matrix of an element in the representation with these generator images."""
    result = np.eye(size)
    for step in element.steps:
        if isinstance(step, int):
            result = result @ matrices[step]
        else:
            result = result @ expm(sum((c * m for c, m in zip(step, lie, strict=True)), np.zeros((size, size))))
    return result


@dataclass(frozen=True, eq=False)
class Enumeration:
    """All products of finitely many matrices, identity first, found breadth first.

    `right[i, j]` says which element element_i · generator_j is.
    """

    elements: tuple[Element, ...]
    matrices: tuple[Matrix, ...]
    right: np.ndarray

    def table(self) -> np.ndarray:
        """Entry (i, j) is the index of element_i · element_j."""
        table = np.empty((len(self.elements), len(self.elements)), dtype=int)
        position = {element: i for i, element in enumerate(self.elements)}
        for j, element in enumerate(self.elements):
            if not element.steps:
                table[:, j] = np.arange(len(self.elements))
            else:
                *before, last = element.steps  # a shorter product, so its column is already there
                table[:, j] = self.right[table[:, position[Element(tuple(before))]], last]
        return table


def enumerate_products(generators: Sequence[Matrix], size: int, what: str) -> Enumeration:
    """Every element that the generators give; refused when there are more than a finite group should have."""
    legacy = np.random.RandomState(0)  # noqa: NPY002 - the only NumPy generator whose stream is frozen for ever
    probe = legacy.standard_normal((size, size))
    # One number per matrix finds the few candidates without comparing with every matrix found so far.
    reach = SAME_ELEMENT * np.abs(probe).sum()
    elements, matrices, numbers = [Element()], [np.eye(size)], [float(np.trace(probe))]
    right: list[list[int]] = []
    while len(right) < len(elements):
        here = len(right)
        row = []
        for j, generator in enumerate(generators):
            matrix = matrices[here] @ generator
            number = float(np.sum(probe * matrix))
            near = np.flatnonzero(np.abs(np.array(numbers) - number) <= reach)
            known = next((int(i) for i in near if np.abs(matrices[i] - matrix).max() < SAME_ELEMENT), None)
            if known is None:
                known = len(elements)
                elements.append(elements[here] @ Element((j,)))
                matrices.append(matrix)
                numbers.append(number)
            if known >= LARGEST_FINITE_ORDER:
                raise InputError(
                    f"{what}: the generators give more than {LARGEST_FINITE_ORDER} elements; "
                    "check them, or describe a continuous group by Lie generators"
                )
            row.append(known)
        right.append(row)
    return Enumeration(tuple(elements), tuple(matrices), np.array(right, dtype=int).reshape(len(elements), -1))


def period(generator: Matrix) -> float | None:
    """The smallest t > 0 with exp(t·generator) = 1 for a skew-symmetric generator; None if there is none."""
    common, frequencies = 0.0, np.abs(np.linalg.eigvalsh(1j * generator))
    smallest = 1e-4 * frequencies.max()
    for frequency in frequencies[frequencies > smallest].tolist():
        while frequency > smallest:  # Euclid's algorithm; the nearest multiple, since frequencies are not quite exact
            common, frequency = frequency, abs(math.remainder(common, frequency))
    return 2 * math.pi / common if common > 10 * smallest else None


def random_turns(circle: tuple[int, ...], lie: Sequence[Matrix], rng: np.random.Generator) -> list[tuple[float, ...]]:
    """Lie coefficients whose exponentials multiply to a random element of one compact factor."""

    def spread(values: np.ndarray) -> tuple[float, ...]:
        coefficients = np.zeros(len(lie))
        coefficients[list(circle)] = values
        return tuple(coefficients.tolist())

    if len(circle) == 1:
        half = (period(lie[circle[0]]) or 2 * math.pi) / 2
        return [spread(rng.uniform(-half, half, 1))]
    if len(circle) == 3:  # a uniformly distributed unit quaternion as a rotation vector
        quaternion = rng.normal(size=4)
        quaternion /= np.linalg.norm(quaternion)
        angle = 2 * np.arctan2(np.linalg.norm(quaternion[1:]), quaternion[0])
        return [spread(angle * quaternion[1:] / max(np.linalg.norm(quaternion[1:]), 1e-300))]
    return [spread(rng.normal(size=len(circle)) * np.pi) for _ in range(4)]
