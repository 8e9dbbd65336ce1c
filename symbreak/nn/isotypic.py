"""Between component order, in which networks store activations, and irreducible coordinates, in which they mix them.

A block of m copies of an n-dimensional atom is n rows of m columns. In irreducible (isotypic) coordinates all copies of
one irreducible representation of dimension d stand together as d rows of M columns; an equivariant map mixes only columns.

Rows are kept as separate one-dimensional arrays. Under `vmap` each is then a plain matrix (batch, columns): every product
is one matrix product without transposed copies, and sums of rows fuse with their neighbours. `lax.split` and concatenation
are used instead of indexing because they are each other's gradient, where that of a slice is a padded array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from symbreak.symmetry.basis import Irrep, Splitting, split_into_irreducibles
from symbreak.symmetry.rep import Rep

Rows = list[Array]  # d arrays of M columns

# Blocks with fewer copies, or with denser transforms, are multiplied by a constant matrix: written-out sums of short rows
# cost more than they save.
FEWEST_COPIES = 16
MOST_ENTRIES = 64


@dataclass(frozen=True, eq=False)
class Isotypic:
    """The irreducible coordinates of one representation, in a basis shared with others."""

    rep: Rep
    irreps: tuple[Irrep, ...]
    splittings: tuple[Splitting, ...]  # one per block of rep
    multiplicity: tuple[int, ...]  # columns per irrep

    def split(self, x: Float[Array, " size"]) -> list[Rows]:
        """Component order → rows per irrep (no rows where it does not occur)."""
        pieces: list[list[Rows]] = [[] for _ in self.irreps]
        sizes = [atom.size * count for atom, count in self.rep.blocks]
        for (_, count), splitting, block in zip(self.rep.blocks, self.splittings, divide(x, sizes), strict=True):
            rows = _transformed(splitting.transform, divide_evenly(block, count))
            for irrep, start in splitting.pieces:
                pieces[irrep].append(rows[start : start + self.irreps[irrep].size])
        return [[joined(row) for row in zip(*parts, strict=True)] for parts in pieces]

    def join(self, parts: Sequence[Rows]) -> Float[Array, " size"]:
        """Rows per irrep → component order."""
        copies: list[list[int]] = [[] for _ in self.irreps]
        for (_, count), splitting in zip(self.rep.blocks, self.splittings, strict=True):
            for irrep, _ in splitting.pieces:
                copies[irrep].append(count)
        columns = [
            iter(list(zip(*(divide(row, counts) for row in rows), strict=True)))
            for rows, counts in zip(parts, copies, strict=True)
        ]
        result: Rows = []
        for splitting in self.splittings:
            rows = [row for irrep, _ in splitting.pieces for row in next(columns[irrep])]
            result += _transformed(splitting.transform.T, rows)
        return joined(result)

    @cached_property
    def matrix(self) -> np.ndarray:
        """The orthogonal matrix that lists all rows of all irreps one after the other."""
        return np.concatenate([reader.reshape(-1, self.rep.size) for reader in self.readers])

    @cached_property
    def readers(self) -> list[np.ndarray]:
        """For each irrep the array (d, M, size) that reads its coordinates from a vector in component order."""
        readers = [[np.zeros((irrep.size, 0, self.rep.size))] for irrep in self.irreps]
        start = 0
        for (atom, count), splitting in zip(self.rep.blocks, self.splittings, strict=True):
            for index, offset in splitting.pieces:
                size = self.irreps[index].size
                reader = np.zeros((size, count, self.rep.size))
                for copy in range(count):
                    columns = start + np.arange(atom.size) * count + copy
                    reader[:, copy, columns] = splitting.transform[offset : offset + size]
                readers[index].append(reader)
            start += atom.size * count
        return [np.concatenate(parts, axis=1) for parts in readers]


def divide(x: Array, sizes: Sequence[int]) -> Rows:
    """Consecutive parts of a vector."""
    return [x] if len(sizes) == 1 else list(lax.split(x, sizes)) if len(sizes) else []


def divide_evenly(x: Array, size: int) -> Rows:
    return divide(x, [size] * (x.shape[0] // size))


def joined(rows: Sequence[Array]) -> Array:
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows)


def _transformed(matrix: np.ndarray, rows: Rows) -> Rows:
    """matrix @ rows for a small constant matrix."""
    entries = np.abs(matrix) > 1e-12
    if np.array_equal(matrix, np.eye(len(matrix))):
        return rows
    copies = rows[0].shape[0]
    if copies < FEWEST_COPIES or np.count_nonzero(entries) > MOST_ENTRIES:
        constant = jnp.asarray(np.kron(matrix, np.eye(copies)).T, rows[0].dtype)
        return divide_evenly(joined(rows) @ constant, copies)
    return [weighted_sum([(float(row[j]), rows[j]) for j in np.flatnonzero(row_entries)]) for row, row_entries in zip(matrix, entries, strict=True)]


def weighted_sum(terms: Sequence[tuple[float, Array]]) -> Array:
    scaled = [row if weight == 1 else weight * row for weight, row in terms]
    return sum(scaled[1:], scaled[0])


@lru_cache(maxsize=4096)
def isotypic(*reps: Rep) -> tuple[Isotypic, ...]:
    """Irreducible coordinates of several representations in one shared basis, set by their order."""
    irreps, splittings = split_into_irreducibles(tuple(atom for rep in reps for atom in rep.distinct))
    result = []
    for rep in reps:
        multiplicity = [0] * len(irreps)
        for atom, count in rep.blocks:
            for irrep, _ in splittings[atom].pieces:
                multiplicity[irrep] += count
        blocks = tuple(splittings[atom] for atom, _ in rep.blocks)
        result.append(Isotypic(rep, irreps, blocks, tuple(multiplicity)))
    return tuple(result)
