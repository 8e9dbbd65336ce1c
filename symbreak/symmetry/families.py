"""The usual groups, and products of groups."""

from __future__ import annotations

from functools import lru_cache
from numbers import Integral

import numpy as np
from scipy.linalg import block_diag

from symbreak.errors import InputError
from symbreak.symmetry.elements import Matrix, Word
from symbreak.symmetry.group import Group, turn


@lru_cache(typed=True)
def C(n: int) -> Group:
    """Cyclic group of n elements; its base representation shifts coordinates, (ρx)_i = x_{i-1}."""
    if not isinstance(n, Integral) or n < 2:
        raise InputError(f"C({n!r}): a cyclic group needs a whole number n ≥ 2")
    return Group(f"C{n}", [np.roll(np.eye(n), 1, axis=0)], relations=[((0, n),)])


def Z(n: int) -> Group:
    """The same as C(n)."""
    return C(n)


@lru_cache(typed=True)
def D(n: int) -> Group:
    """Symmetries of the regular n-gon (2n elements): rotation and reflection of the plane."""
    if not isinstance(n, Integral) or n < 3:
        raise InputError(f"D({n!r}): a dihedral group needs a whole number n ≥ 3; for less use Z(2) or a product")
    words: list[Word] = [((0, n),), ((1, 2),), ((0, 1), (1, 1), (0, 1), (1, 1))]
    return Group(f"D{n}", [turn(2 * np.pi / n), np.diag([1.0, -1.0])], relations=words)


@lru_cache
def SO2() -> Group:
    """Rotations of the plane."""
    return Group("SO(2)", lie=[np.array([[0.0, -1.0], [1.0, 0.0]])], circles=[(0,)])


@lru_cache
def SO3() -> Group:
    """Rotations of space; Lie generators turn about x, y and z."""
    lie = np.zeros((3, 3, 3))
    for i, j, k in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]:
        lie[i, k, j], lie[i, j, k] = 1.0, -1.0
    return Group("SO(3)", lie=list(lie), circles=[(0, 1, 2)])


def _beside(first: Matrix, second: Matrix) -> Matrix:
    return np.asarray(block_diag(first, second))


@lru_cache
def product(first: Group, second: Group) -> Group:
    """Direct product: the elements of both groups, acting on separate coordinates and commuting."""
    one, two = np.eye(first.size), np.eye(second.size)
    zero_one, zero_two = np.zeros_like(one), np.zeros_like(two)
    count = len(first.matrices)
    words: list[Word] = [*first.relations, *(tuple((i + count, p) for i, p in word) for word in second.relations)]
    for i in range(count):
        words += [((i, 1), (j, 1), (i, -1), (j, -1)) for j in range(count, count + len(second.matrices))]
    return Group(
        f"{first.name}×{second.name}",
        [_beside(m, two) for m in first.matrices] + [_beside(one, m) for m in second.matrices],
        lie=[_beside(m, zero_two) for m in first.lie] + [_beside(zero_one, m) for m in second.lie],
        relations=words,
        circles=[*first.circles, *(tuple(i + len(first.lie) for i in circle) for circle in second.circles)],
        factors=(first, second),
    )
