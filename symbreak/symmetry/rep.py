"""Representations as values: atoms, and sums of atoms written `4 * P + 2 * V`.

An atom is one indivisible name for a block of coordinates (it may still be reducible: V⊗V is an atom). A `Rep` is an
ordered sum of atoms with multiplicities; on a flat vector the copies of an atom stand one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from symbreak.errors import InputError
from symbreak.symmetry.elements import Element, Matrices, Matrix, evaluate, frozen_squares
from symbreak.symmetry.group import Group
from symbreak.symmetry.relations import TOLERANCE, check_representation


class Atom:
    """An orthogonal representation of `group` by the images of its generators, verified when made.

    `entries` are names of its coordinates, for messages alone; atoms that differ in them only are equal.
    """

    def __init__(
        self, group: Group, name: str, matrices: Matrices, lie: Matrices = (), entries: Sequence[str] = ()
    ) -> None:
        self.group = group
        self.name = name
        self.entries = tuple(entries)
        self.matrices = frozen_squares(matrices, f"atom {name!r}")
        self.lie = frozen_squares(lie, f"atom {name!r}, Lie generators")
        shapes = {m.shape for m in (*self.matrices, *self.lie)}
        if len(shapes) != 1:
            raise InputError(
                f"atom {name!r}: give matrices of one size, one per generator; got shapes {sorted(shapes)}"
            )
        self.size = next(iter(shapes))[0]
        check_representation(group, self.matrices, self.lie, f"atom {name!r}")

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (self.group, self.size, *(m.tobytes() for m in (*self.matrices, *self.lie)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return self.name

    def matrix(self, element: Element) -> Matrix:
        return evaluate(self.matrices, self.lie, element, self.size)

    @cached_property
    def is_signed_permutation(self) -> bool:
        """Every element moves each coordinate to one place, up to sign."""
        moves = all(np.all(np.minimum(np.abs(m), np.abs(np.abs(m) - 1)) < TOLERANCE) for m in self.matrices)
        return moves and all(np.all(np.abs(m) < TOLERANCE) for m in self.lie)

    @cached_property
    def is_permutation(self) -> bool:
        """Pointwise nonlinearities commute with the group on this atom."""
        return self.is_signed_permutation and all(np.all(m > -0.5) for m in self.matrices)

    @cached_property
    def is_trivial(self) -> bool:
        return self.is_permutation and all(np.all(np.diagonal(m) > 0.5) for m in self.matrices)

    @cached_property
    def magnitude(self) -> Atom:
        """How a positive scale of the coordinates transforms: |ρ| for signed permutations, else one scalar."""
        if not self.is_signed_permutation:
            return self.group.trivial
        return Atom(self.group, f"|{self.name}|", [np.abs(np.round(m)) for m in self.matrices], self.lie)

    def __add__(self, other: Atom | Rep) -> Rep:
        return Rep(((self, 1),)) + other

    def __mul__(self, other: int | Atom) -> Rep | Atom:
        if isinstance(other, Atom):
            return self.tensor(other)
        return Rep(((self, other),))

    def __rmul__(self, count: int) -> Rep:
        return Rep(((self, count),))

    def __pow__(self, power: int) -> Atom:
        """The product of `power` copies; the power 0 is the trivial atom."""
        if power < 0:
            raise InputError(f"{self.name}**{power}: a tensor power is not negative")
        result = self.group.trivial if power == 0 else self
        for _ in range(power - 1):
            result = result.tensor(self)
        return result

    def tensor(self, other: Atom) -> Atom:
        """The product representation on pairs of coordinates, first index slowest."""
        if other.group != self.group:
            raise InputError(f"{self.name} ⊗ {other.name}: the groups {self.group} and {other.group} differ")
        one, two = np.eye(self.size), np.eye(other.size)
        matrices = [np.kron(a, b) for a, b in zip(self.matrices, other.matrices, strict=True)]
        lie = [np.kron(a, two) + np.kron(one, b) for a, b in zip(self.lie, other.lie, strict=True)]
        return Atom(self.group, f"{self.name}⊗{other.name}", matrices, lie)


class Rep:
    """An ordered sum of atoms with multiplicities."""

    def __init__(self, blocks: Sequence[tuple[Atom, int]]) -> None:
        merged: list[tuple[Atom, int]] = []
        for atom, count in blocks:
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise InputError(f"{count!r} copies of {atom.name}: a multiplicity is a whole number")
            if merged and merged[-1][0] == atom:
                merged[-1] = (atom, merged[-1][1] + count)
            elif count:
                merged.append((atom, count))
        if not merged:
            raise InputError("an empty representation has no group: give at least one atom")
        if len({atom.group for atom, _ in merged}) != 1:
            raise InputError(f"atoms of different groups in one sum: {sorted({a.group.name for a, _ in merged})}")
        self.blocks = tuple(merged)
        self.group = merged[0][0].group
        self.size = sum(atom.size * count for atom, count in merged)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rep) and self.blocks == other.blocks

    def __hash__(self) -> int:
        return hash(self.blocks)

    def __repr__(self) -> str:
        return " + ".join(f"{count}{atom}" if count > 1 else str(atom) for atom, count in self.blocks)

    def __add__(self, other: Atom | Rep) -> Rep:
        return Rep(self.blocks + as_rep(other).blocks)

    def __rmul__(self, count: int) -> Rep:
        return Rep(self.blocks * count)

    def atoms(self) -> Iterator[Atom]:
        """Every copy of every atom, in order."""
        for atom, count in self.blocks:
            yield from [atom] * count

    @property
    def distinct(self) -> tuple[Atom, ...]:
        return tuple(dict.fromkeys(atom for atom, _ in self.blocks))

    @property
    def is_permutation(self) -> bool:
        return all(atom.is_permutation for atom in self.distinct)

    def matrix(self, element: Element) -> Matrix:
        return np.asarray(block_diag(*(np.kron(np.eye(count), atom.matrix(element)) for atom, count in self.blocks)))

    @cached_property
    def component_order(self) -> np.ndarray:
        """Index that turns "copy after copy" into "component after component" within each block.

        Networks store a block of m copies of an n-dimensional atom as an (n, m) array, so that channels are contiguous.
        """
        order, start = [], 0
        for atom, count in self.blocks:
            order.append(start + np.arange(atom.size * count).reshape(count, atom.size).T.ravel())
            start += atom.size * count
        return np.concatenate(order)

    @property
    def magnitude(self) -> Rep:
        """The representation of a positive scale of each coordinate (a policy's standard deviation)."""
        return Rep([(atom.magnitude, count) for atom, count in self.blocks])

    @cached_property
    def magnitude_index(self) -> np.ndarray:
        """Which entry of a `magnitude` vector scales each coordinate."""
        index, start = [], 0
        for atom in self.atoms():
            index.append(start + (np.arange(atom.size) if atom.is_signed_permutation else np.zeros(atom.size, int)))
            start += atom.magnitude.size
        return np.concatenate(index)


def as_rep(value: Atom | Rep) -> Rep:
    return value if isinstance(value, Rep) else Rep(((value, 1),))
