"""What the images of a group's generators must satisfy to be an orthogonal representation.

Finite generators: orthogonal, and every relation of the group holds. Lie generators: skew-symmetric, with the group's
brackets, its conjugation by the finite generators, its periods where a turn comes back to the identity, and its
crossings where a turn is a product of finite generators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from symbreak.errors import InputError
from symbreak.symmetry.elements import Enumeration, Matrix, Word, evaluate, exponential, period

if TYPE_CHECKING:
    from symbreak.symmetry.group import Group

TOLERANCE = 1e-6


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
            raise InputError(
                f"{what}: Lie generator {i} of {group.name} is not skew-symmetric (residual {residual:.2g}); "
                "rescale the field so that the symmetry preserves lengths"
            )


def words_from_table(enumeration: Enumeration) -> tuple[Word, ...]:
    """Relations that define a finite group, read off its multiplication table; always enough, rarely the fewest."""
    words = []
    for element, row in zip(enumeration.elements, enumeration.right, strict=True):
        for generator, target in enumerate(row.tolist()):
            longer = (*element.steps, generator)
            shorter = enumeration.elements[target].steps
            if longer != shorter:  # otherwise the product is what defines the element, and says nothing
                letters = [(step, 1) for step in longer] + [(step, -1) for step in reversed(shorter)]
                words.append(_merged([(step, power) for step, power in letters if isinstance(step, int)]))
    return tuple(words)


def _merged(letters: Sequence[tuple[int, int]]) -> Word:
    """The same word with neighbouring powers of one generator added up."""
    word: list[tuple[int, int]] = []
    for generator, power in letters:
        if word and word[-1][0] == generator:
            power += word.pop()[1]
        if power:
            word.append((generator, power))
    return tuple(word)


def crossings(enumeration: Enumeration, lie: Sequence[Matrix]) -> tuple[tuple[int, int, float], ...]:
    """(element, Lie generator, t) wherever a product of finite generators equals exp(t·generator)."""
    found = []
    for j, generator in enumerate(lie):
        turn = period(generator)
        if turn is None:
            continue
        frequencies, vectors = np.linalg.eigh(1j * generator)
        # An element on the circle has an order that divides the number of elements, so only these t can meet it.
        times = turn * np.arange(1, len(enumeration.elements)) / len(enumeration.elements)
        phases = np.exp(-1j * np.outer(times, frequencies))
        for i, matrix in enumerate(enumeration.matrices[1:], start=1):
            # A unitary matrix with this diagonal is this diagonal matrix.
            diagonal = np.einsum("ki,kl,li->i", vectors.conj(), matrix, vectors)
            gaps = np.abs(phases - diagonal).max(axis=1)
            if gaps.min() < TOLERANCE:
                found.append((i, j, float(times[np.argmin(gaps)])))
    return tuple(found)


def _spelled(word: Word) -> str:
    return "·".join(f"g{i}" if power == 1 else f"g{i}^{power}" for i, power in word)


def _refuse(group: Group, what: str, relation: str, difference: Matrix) -> None:
    residual = np.abs(difference).max()
    if not residual < TOLERANCE:
        raise InputError(
            f"{what} is no representation of {group.name}: relation {relation} has residual {residual:.2g}; "
            "check matrices, order and signs"
        )


def _image(group: Group, lie: Sequence[Matrix], matrix: Matrix) -> Matrix:
    """What a combination of the group's Lie generators becomes in the representation with these images."""
    basis = np.stack([m.ravel() for m in group.lie], axis=1)
    coefficients, *_ = np.linalg.lstsq(basis, matrix.ravel(), rcond=None)
    return np.einsum("k,kij->ij", coefficients, np.array(lie))


def check_representation(group: Group, matrices: Sequence[Matrix], lie: Sequence[Matrix], what: str) -> None:
    """Refuse images of the generators that are not an orthogonal representation of `group`."""
    if len(matrices) != len(group.matrices) or len(lie) != len(group.lie):
        raise InputError(
            f"{what}: got {len(matrices)} generator and {len(lie)} Lie images, but {group.name} has "
            f"{len(group.matrices)} and {len(group.lie)}; give one matrix each"
        )
    require_orthogonal(group, matrices, lie, what)
    size = len((*matrices, *lie)[0])
    one = np.eye(size)
    for word in group.relations:
        powers = [np.linalg.matrix_power(matrices[i] if power > 0 else matrices[i].T, abs(power)) for i, power in word]
        _refuse(group, what, f"{_spelled(word)} = 1", reduce(np.matmul, powers, one) - one)
    for (i, a), (j, b) in itertools.combinations(enumerate(group.lie), 2):
        bracket = lie[i] @ lie[j] - lie[j] @ lie[i]
        _refuse(group, what, f"[A{i},A{j}]", bracket - _image(group, lie, a @ b - b @ a))
    for i, generator in enumerate(group.matrices):
        for j, a in enumerate(group.lie):
            moved = matrices[i] @ lie[j] @ matrices[i].T
            _refuse(group, what, f"g{i}·A{j}·g{i}^-1", moved - _image(group, lie, generator @ a @ generator.T))
    for i, turn in enumerate(group.periods):
        if turn is not None:
            phases = np.exp(1j * turn * np.linalg.eigvalsh(1j * lie[i]))
            _refuse(group, what, f"exp({turn / math.pi:.4g}π·A{i}) = 1", phases - 1)
    for i, j, time in group.crossings:
        word = _spelled(_merged([(step, 1) for step in group.discrete[i].steps if isinstance(step, int)]))
        difference = evaluate(matrices, lie, group.discrete[i], size) - exponential(time * lie[j])
        _refuse(group, what, f"{word} = exp({time / math.pi:.4g}π·A{j})", difference)
