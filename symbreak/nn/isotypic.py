"""Between component order, in which networks store activations, and irreducible coordinates, in which they mix them.

A block of m copies of an n-dimensional atom is n rows of m columns. In irreducible (isotypic) coordinates all copies of
one irreducible representation of dimension d stand together as d rows of M columns; an equivariant map mixes only columns.

Rows are separate one-dimensional arrays. Under `vmap` each is then a plain matrix (batch, columns): every product of
matrices runs without transposed copies, and sums of rows fuse with their neighbours. `lax.split` and concatenation stand
where slices could, because they are each other's gradient; that of a slice is an array padded with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from symbreak.symmetry.basis import Irrep, Splitting, canonical_basis, split_into_irreducibles
from symbreak.symmetry.elements import frozen
from symbreak.symmetry.rep import Rep

Rows = list[Array]  # d arrays of M columns

# A block with fewer copies or a denser transform is narrow: written-out sums of short rows cost more than they save.
FEWEST_COPIES = 16
MOST_ENTRIES = 64


@dataclass(frozen=True, eq=False)
class Block:
    """One block of a representation: its place in component order and its irreducible pieces."""

    copies: int
    start: int
    splitting: Splitting

    @property
    def size(self) -> int:
        return len(self.splitting.transform) * self.copies

    @cached_property
    def is_reordered(self) -> bool:
        """The coordinates are irreducible already."""
        return bool(np.all(np.max(self.splitting.transform, axis=1) == 1))

    @property
    def is_wide(self) -> bool:
        entries = np.count_nonzero(np.abs(self.splitting.transform) > 1e-12)
        return self.copies >= FEWEST_COPIES and bool(entries <= MOST_ENTRIES)


@dataclass(frozen=True, eq=False)
class Isotypic:
    """The irreducible coordinates of one representation, in a basis shared with others.

    Columns of an irrep come from the wide blocks first, then from the narrow ones. Wide blocks are transformed by
    written-out sums, the narrow ones all together by one constant orthogonal matrix.
    """

    rep: Rep
    irreps: tuple[Irrep, ...]
    blocks: tuple[Block, ...]

    @cached_property
    def wide(self) -> tuple[Block, ...]:
        reordered = all(block.is_wide or block.is_reordered for block in self.blocks)
        return tuple(block for block in self.blocks if reordered or block.is_wide)

    @cached_property
    def narrow(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block not in self.wide)

    @cached_property
    def multiplicity(self) -> tuple[int, ...]:
        """Columns per irrep."""
        return tuple(sum(self._copies(index, self.blocks)) for index in range(len(self.irreps)))

    def split(self, x: Float[Array, " size"]) -> list[Rows]:
        """Component order → rows per irrep; none where it does not occur."""
        source = dict(zip(self.blocks, divide(x, [block.size for block in self.blocks]), strict=True))
        columns: list[list[Rows]] = [[[] for _ in range(irrep.size)] for irrep in self.irreps]
        for block in self.wide:
            rows = _sums(block.splitting.transform, divide_evenly(source[block], block.copies))
            for index, start in block.splitting.pieces:
                for i, row in enumerate(columns[index]):
                    row.append(rows[start + i])
        if self.narrow:
            narrow = joined([source[block] for block in self.narrow]) @ jnp.asarray(self._narrow_matrix.T, x.dtype)
            pieces = iter(divide(narrow, self._narrow_widths))
            for index, rows in enumerate(columns):
                if self._copies(index, self.narrow):
                    for row in rows:
                        row.append(next(pieces))
        return [[joined(row) for row in rows if row] for rows in columns]

    def join(self, parts: Sequence[Rows]) -> Float[Array, " size"]:
        """Rows per irrep → component order."""
        columns: list[list[Rows]] = []  # per irrep and row
        for index, rows in enumerate(parts):
            narrow = sum(self._copies(index, self.narrow))
            widths = self._copies(index, self.wide) + ([narrow] if narrow else [])
            columns.append([divide(row, widths) for row in rows])
        target: dict[Block, Array] = {}
        for block in self.wide:
            rows = [row.pop(0) for index, _ in block.splitting.pieces for row in columns[index]]
            target[block] = joined(_sums(block.splitting.transform.T, rows))
        if self.narrow:
            rows = [piece for irrep in columns for row in irrep for piece in row]
            narrow = joined(rows) @ jnp.asarray(self._narrow_matrix, rows[0].dtype)
            target |= zip(self.narrow, divide(narrow, [block.size for block in self.narrow]), strict=True)
        return joined([target[block] for block in self.blocks])

    @cached_property
    def readers(self) -> list[np.ndarray]:
        """For each irrep the array (d, M, size) that reads its coordinates from a vector in component order."""
        readers = [[np.zeros((irrep.size, 0, self.rep.size))] for irrep in self.irreps]
        for block in self.wide + self.narrow:
            for index, offset in block.splitting.pieces:
                size = self.irreps[index].size
                reader = np.zeros((size, block.copies, self.rep.size))
                for copy in range(block.copies):
                    components = block.start + np.arange(len(block.splitting.transform)) * block.copies + copy
                    reader[:, copy, components] = block.splitting.transform[offset : offset + size]
                readers[index].append(reader)
        return [np.concatenate(parts, axis=1) for parts in readers]

    def _copies(self, index: int, blocks: Sequence[Block]) -> list[int]:
        """Columns of one irrep, piece after piece."""
        return [block.copies for block in blocks for irrep, _ in block.splitting.pieces if irrep == index]

    @cached_property
    def _narrow_widths(self) -> list[int]:
        totals = [(irrep.size, sum(self._copies(index, self.narrow))) for index, irrep in enumerate(self.irreps)]
        return [columns for size, columns in totals for _ in range(size) if columns]

    @cached_property
    def _narrow_matrix(self) -> np.ndarray:
        """Lists the irreducible coordinates of the narrow blocks row after row."""
        components = np.concatenate([block.start + np.arange(block.size) for block in self.narrow])
        rows = []
        for index, reader in enumerate(self.readers):
            first = sum(self._copies(index, self.wide))
            rows.append(reader[:, first:, components].reshape(-1, len(components)))
        return np.concatenate(rows)


def divide(x: Array, sizes: Sequence[int]) -> Rows:
    """Consecutive parts of a vector."""
    return [x] if len(sizes) == 1 else list(lax.split(x, sizes))


def divide_evenly(x: Array, size: int) -> Rows:
    return divide(x, [size] * (x.shape[0] // size))


def joined(rows: Sequence[Array]) -> Array:
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows)


def _sums(matrix: np.ndarray, rows: Rows) -> Rows:
    """matrix @ rows, written out, for a constant matrix with few entries."""
    result = []
    for weights in matrix:
        terms = [rows[j] if weights[j] == 1 else float(weights[j]) * rows[j] for j in np.flatnonzero(np.abs(weights) > 1e-12)]
        result.append(sum(terms[1:], terms[0]))
    return result


@lru_cache(maxsize=4096)
def isotypic(*reps: Rep) -> tuple[Isotypic, ...]:
    """Irreducible coordinates of several representations in one shared basis, set by their order."""
    irreps, found = split_into_irreducibles(tuple(atom for rep in reps for atom in rep.distinct))
    splittings = {atom: _with_simple_columns(splitting, irreps) for atom, splitting in found.items()}
    result = []
    for rep in reps:
        starts = np.cumsum([0, *(atom.size * count for atom, count in rep.blocks)]).tolist()
        blocks = [Block(count, start, splittings[atom]) for (atom, count), start in zip(rep.blocks, starts, strict=False)]
        result.append(Isotypic(rep, irreps, tuple(blocks)))
    return tuple(result)


def _with_simple_columns(splitting: Splitting, irreps: tuple[Irrep, ...]) -> Splitting:
    """The same splitting with equivalent pieces mixed so that each reads as few coordinates as possible.

    Any orthogonal mix of them is a splitting too. An atom given in irreducible coordinates is merely reordered.
    """
    transform = splitting.transform.copy()
    for index, irrep in enumerate(irreps):
        starts = [start for found, start in splitting.pieces if found == index]
        if starts:
            rows = np.add.outer(starts, np.arange(irrep.size))
            first = transform[rows[:, 0]]
            transform[rows] = np.einsum("kl,ldn->kdn", canonical_basis(first) @ first.T, transform[rows])
    transform[np.abs(transform) < 1e-12] = 0
    transform[np.abs(transform - 1) < 1e-12] = 1
    return Splitting(frozen(transform), splitting.pieces)
