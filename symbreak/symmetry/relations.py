"""What the images of a group's generators must satisfy to be an orthogonal representation.

Finite generators: orthogonal, and every relation of the group holds. Lie generators: skew-symmetric, with the group's
brackets, its conjugation by the finite generators, and its period where a turn by 2π is the identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import expm

from symbreak.errors import InputError

if TYPE_CHECKING:
    from symbreak.symmetry.group import Element, Group, Matrix, Word

TOLERANCE = 1e-6
LARGEST_FINITE_ORDER = 1024


def evaluate(matrices: Sequence[Matrix], lie: Sequence[Matrix], element: Element, size: int) -> Matrix:
    """The matrix of an element in the representation with these generator images."""
    result = np.eye(size)
    for step in element.steps:
        if isinstance(step, int):
            result = result @ matrices[step]
        else:
            result = result @ expm(sum((c * m for c, m in zip(step, lie, strict=True)), np.zeros((size, size))))
    return result


def require_orthogonal(group: Group, matrices: Sequence[Matrix], lie: Sequence[Matrix], what: str) -> None:
    for i, matrix in enumerate(matrices):
        residual = np.abs(matrix @ matrix.T - np.eye(len(matrix))).max()
        if not residual < TOLERANCE:
            raise InputError(
                f"{what}: generator {i} of {group.name} is not orthogonal (residual {residual:.2g}); "
                "rescale the field so that the symmetry preserves lengths"
            )
    for i, matrix in enumerate(lie):
        residual = np.abs(matrix + matrix.T).max()
        if not residual < TOLERANCE:
            raise InputError(f"{what}: Lie generator {i} of {group.name} is not skew-symmetric (residual {residual:.2g})")


def _relations(group: Group) -> list[tuple[str, Word]]:
    if group.relations or not group.matrices:
        return [("·".join(f"g{i}^{p}" for i, p in word) + " = 1", word) for word in group.relations]
    inverse = [_order_of(matrix) - 1 for matrix in group.matrices]
    words = []
    for element in group.discrete:
        for generator in range(len(group.matrices)):
            word = tuple((step, 1) for step in (*element.steps, generator) if isinstance(step, int))
            product = evaluate(group.matrices, group.lie, element, group.size) @ group.matrices[generator]
            steps = [step for step in group.discrete[group.index(product)].steps if isinstance(step, int)]
            relation = word + tuple((step, inverse[step]) for step in reversed(steps))
            words.append(("·".join(f"g{i}^{p}" for i, p in relation) + " = 1", relation))
    return words


def _order_of(matrix: Matrix) -> int:
    power = matrix
    for order in range(1, LARGEST_FINITE_ORDER + 1):
        if np.abs(power - np.eye(len(matrix))).max() < TOLERANCE:
            return order
        power = power @ matrix
    raise InputError(f"a generator has no power up to {LARGEST_FINITE_ORDER} that is the identity")


def check_representation(group: Group, matrices: Sequence[Matrix], lie: Sequence[Matrix], what: str) -> None:
    """Refuse images of the generators that are not an orthogonal representation of `group`."""
    if len(matrices) != len(group.matrices) or len(lie) != len(group.lie):
        raise InputError(
            f"{what}: got {len(matrices)} generator and {len(lie)} Lie images, but {group.name} has "
            f"{len(group.matrices)} and {len(group.lie)}; give one matrix each"
        )
    require_orthogonal(group, matrices, lie, what)
    size = len((*matrices, *lie)[0])

    def refuse(relation: str, residual: float) -> None:
        if not residual < TOLERANCE:
            raise InputError(
                f"{what} is no representation of {group.name}: relation {relation} has residual {residual:.2g}"
            )

    for relation, word in _relations(group):
        product = np.eye(size)
        for generator, power in word:
            product = product @ np.linalg.matrix_power(matrices[generator], power)
        refuse(relation, np.abs(product - np.eye(size)).max())
    basis = np.stack([m.ravel() for m in group.lie], axis=1) if group.lie else np.zeros((0, 0))

    def image(matrix: Matrix) -> Matrix:
        coefficients, *_ = np.linalg.lstsq(basis, matrix.ravel(), rcond=None)
        return sum((c * m for c, m in zip(coefficients, lie, strict=True)), np.zeros((size, size)))

    for (i, a), (j, b) in itertools.combinations(enumerate(group.lie), 2):
        bracket = lie[i] @ lie[j] - lie[j] @ lie[i]
        refuse(f"[A{i},A{j}]", np.abs(bracket - image(a @ b - b @ a)).max())
    for i, generator in enumerate(group.matrices):
        for j, a in enumerate(group.lie):
            moved = matrices[i] @ lie[j] @ matrices[i].T
            refuse(f"g{i}·A{j}·g{i}^-1", np.abs(moved - image(generator @ a @ generator.T)).max())
    for i, matrix in enumerate(lie):
        closed = np.abs(expm(2 * np.pi * group.lie[i]) - np.eye(group.size)).max() < TOLERANCE
        if closed:
            refuse(f"exp(2π·A{i}) = 1", np.abs(expm(2 * np.pi * matrix) - np.eye(size)).max())
