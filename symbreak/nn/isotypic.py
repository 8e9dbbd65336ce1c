"""Between component order, in which networks store activations, and irreducible coordinates, in which they mix them.

A block of m copies of an n-dimensional atom is an (n, m) array. In irreducible (isotypic) coordinates all copies of one
irreducible representation of dimension d stand together as a (d, M) array; an equivariant map mixes only columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.symmetry.basis import Irrep, Splitting, split_into_irreducibles
from symbreak.symmetry.rep import Rep

# Above this many nonzero entries a matrix product is faster than the written-out sums.
LARGEST_UNROLLED = 64


@dataclass(frozen=True, eq=False)
class Isotypic:
    """The irreducible coordinates of one representation, in a basis shared with others."""

    rep: Rep
    irreps: tuple[Irrep, ...]
    splittings: tuple[Splitting, ...]  # one per block of rep
    multiplicity: tuple[int, ...]  # columns per irrep

    def split(self, x: Float[Array, " size"]) -> list[Array]:
        """Component order → one (d, M) array per irrep."""
        columns: list[list[Array]] = [[] for _ in self.irreps]
        start = 0
        for (atom, count), splitting in zip(self.rep.blocks, self.splittings, strict=True):
            block = x[start : start + atom.size * count].reshape(atom.size, count)
            start += atom.size * count
            rows = _apply(splitting.transform, block)
            for irrep, offset in splitting.pieces:
                columns[irrep].append(rows[offset : offset + self.irreps[irrep].size])
        empty = [jnp.zeros((irrep.size, 0), x.dtype) for irrep in self.irreps]
        return [
            _beside(parts) if parts else none for parts, none in zip(columns, empty, strict=True)
        ]

    def join(self, parts: list[Array]) -> Float[Array, " size"]:
        """One (d, M) array per irrep → component order."""
        used = [0] * len(self.irreps)
        blocks = []
        for (_, count), splitting in zip(self.rep.blocks, self.splittings, strict=True):
            pieces = []
            for irrep, _ in splitting.pieces:
                pieces.append(parts[irrep][:, used[irrep] : used[irrep] + count])
                used[irrep] += count
            rows = pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis=0)
            blocks.append(_apply(splitting.transform.T, rows).reshape(-1))
        return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks)


def _beside(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)


def _apply(matrix: np.ndarray, block: Array) -> Array:
    """matrix @ block for a small constant matrix; written out, XLA fuses it with its neighbours."""
    if np.array_equal(matrix, np.eye(len(matrix))):
        return block
    if np.count_nonzero(np.abs(matrix) > 1e-12) > LARGEST_UNROLLED:
        return jnp.asarray(matrix, block.dtype) @ block
    rows = []
    for row in matrix:
        terms = [block[j] if entry == 1 else float(entry) * block[j] for j, entry in enumerate(row) if abs(entry) > 1e-12]
        rows.append(sum(terms[1:], terms[0]))
    return jnp.stack(rows)


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
