"""Group elements as recipes: how they multiply, how all of them are found, how one is drawn at random.

An element is kept as a product of generators and exponentials rather than as a matrix, so that every representation of
the group can read it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from symbreak.errors import InputError

Matrix = np.ndarray
# Matrices as a user gives them: a list of arrays or of nested lists, or one stacked array.
Matrices = Sequence[ArrayLike] | np.ndarray
Word = tuple[tuple[int, int], ...]  # (generator, power) pairs whose product is the identity

LARGEST_FINITE_ORDER = 1024
# Matrices closer than this (root of summed squares) are the same element. Users type matrices with seven digits, and
# the error grows with the length of a product; different elements of a group of a thousand differ by far more, and so
# do, within as many powers, the turns by an angle that never comes back.
SAME_ELEMENT = 2e-5


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


def frozen_squares(matrices: Matrices, what: str) -> tuple[Matrix, ...]:
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


def whole_numbers(values: Iterable[int], what: str) -> tuple[int, ...]:
    """Indices as a user gives them, also NumPy's; refused unless each is a whole number."""
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError as error:
        raise InputError(f"{what}: {values!r} is no list of whole numbers; give one, like [1, 0]") from error


def exponential(generator: Matrix) -> Matrix:
    """exp of a skew-symmetric matrix: orthogonal, to the last digit."""
    frequencies, vectors = np.linalg.eigh(1j * generator)
    return np.real((vectors * np.exp(-1j * frequencies)) @ vectors.conj().T)


def evaluate(matrices: Sequence[Matrix], lie: Sequence[Matrix], element: Element, size: int) -> Matrix:
    """The matrix of an element in the representation with these generator images."""
    result = np.eye(size)
    for step in element.steps:
        if isinstance(step, int):
            result = result @ matrices[step]
        else:
            result = result @ exponential(np.einsum("k,kij->ij", np.array(step), np.array(lie)))
    return result


@dataclass(frozen=True, eq=False)
class Enumeration:
    """All products of finitely many matrices, identity first, found breadth first.

    `right[i, j]` says which element element_i · generator_j is.
    """

    elements: tuple[Element, ...]
    matrices: tuple[Matrix, ...]
    right: np.ndarray
    parents: np.ndarray  # element_j is element_parents[j, 0] · generator_parents[j, 1], for every j but the identity

    def table(self) -> np.ndarray:
        """Entry (i, j) is the index of element_i · element_j."""
        columns = [np.arange(len(self.elements))]
        for parent, generator in self.parents[1:]:
            columns.append(self.right[columns[parent], generator])
        return np.stack(columns, axis=1)


def enumerate_products(generators: Sequence[Matrix], size: int, what: str) -> Enumeration:
    """Every element that the generators give; refused when there are more than a finite group should have."""
    legacy = np.random.RandomState(0)  # the only NumPy generator whose stream is frozen for ever
    probe = legacy.standard_normal((size, size))
    # One number per matrix finds the few candidates without comparing with every matrix found so far.
    reach = SAME_ELEMENT * np.linalg.norm(probe)
    elements, matrices, numbers, parents = [Element()], [np.eye(size)], [float(np.trace(probe))], [(0, 0)]
    right: list[list[int]] = []
    while len(right) < len(elements):
        here = len(right)
        row = []
        for j, generator in enumerate(generators):
            matrix = matrices[here] @ generator
            number = float(np.sum(probe * matrix))
            near = np.flatnonzero(np.abs(np.array(numbers) - number) <= reach)
            known = next((int(i) for i in near if np.linalg.norm(matrices[i] - matrix) < SAME_ELEMENT), None)
            if known is None:
                known = len(elements)
                elements.append(elements[here] @ Element((j,)))
                matrices.append(matrix)
                numbers.append(number)
                parents.append((here, j))
            if known >= LARGEST_FINITE_ORDER:
                raise InputError(
                    f"{what}: the generators give more than {LARGEST_FINITE_ORDER} elements; "
                    "check them, or describe a continuous group by Lie generators"
                )
            row.append(known)
        right.append(row)
    right_table = np.array(right, dtype=int).reshape(len(elements), -1)
    return Enumeration(tuple(elements), tuple(matrices), right_table, np.array(parents))


def period(generator: Matrix) -> float | None:
    """The smallest t > 0 with exp(t·generator) = 1 for a skew-symmetric generator; None if there is none."""
    common, frequencies = 0.0, np.abs(np.linalg.eigvalsh(1j * generator))
    smallest = 1e-4 * frequencies.max()
    for frequency in frequencies[frequencies > smallest].tolist():
        while frequency > smallest:  # Euclid's algorithm; the nearest multiple, since frequencies are not quite exact
            common, frequency = frequency, abs(math.remainder(common, frequency))
    return 2 * math.pi / common if common > 10 * smallest else None


def random_turns(
    circle: tuple[int, ...], periods: Sequence[float | None], rng: np.random.Generator
) -> list[tuple[float, ...]]:
    """Lie coefficients whose exponentials multiply to a random element of one compact factor."""
    if len(circle) == 1:
        half = (periods[circle[0]] or 2 * math.pi) / 2
        turns = rng.uniform(-half, half, size=(1, 1))
    elif len(circle) == 3:  # a uniformly distributed unit quaternion as a rotation vector
        quaternion = rng.normal(size=4)
        length = np.linalg.norm(quaternion[1:])
        turns = 2 * np.arctan2(length, quaternion[:1])[:, None] * quaternion[1:] / max(length, 1e-300)
    else:
        turns = rng.normal(size=(4, len(circle))) * math.pi
    coefficients = np.zeros((len(turns), len(periods)))
    coefficients[:, list(circle)] = turns
    return [tuple(row) for row in coefficients.tolist()]
