"""Between the order in which networks store activations and irreducible coordinates, in which they mix them.

In irreducible (isotypic) coordinates all copies of one irreducible representation of dimension d stand together as d
rows of M columns; an equivariant map mixes only columns. Where the atoms' own coordinates are irreducible, activations
are stored in this very order, and nothing has to be computed to get there. Elsewhere they are stored component after
component: a block of m copies of an n-dimensional atom is n rows of m columns. `storage_order` says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.rows import Rows, divide, divide_evenly, joined, weighted_sums
from symbreak.symmetry.basis import Irrep, Splitting, canonical_basis, split_into_irreducibles
from symbreak.symmetry.elements import frozen
from symbreak.symmetry.rep import Rep

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

    @property
    def is_irreducible(self) -> bool:
        """The atom's coordinates are irreducible ones, up to their order."""
        return bool(np.all(np.max(self.splitting.transform, axis=1) == 1))

    @property
    def is_wide(self) -> bool:
        return self.copies >= FEWEST_COPIES and int(np.count_nonzero(self.splitting.transform)) <= MOST_ENTRIES


@dataclass(frozen=True, eq=False)
class Isotypic:
    """The irreducible coordinates of one representation, in a basis shared with others.

    `stored` lists the irreps in the order in which their rows are stored. Where it is None, activations come component
    after component: wide blocks are transformed by written-out sums, the narrow ones together by one constant
    orthogonal matrix, and the columns of an irrep come from the wide blocks first. `detour` brings stored order to
    component order for a representation that is stored in irreducible coordinates of another basis than the shared one.
    """

    rep: Rep
    irreps: tuple[Irrep, ...]
    blocks: tuple[Block, ...]
    stored: tuple[int, ...] | None
    detour: np.ndarray | None

    @cached_property
    def wide(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.is_wide or self.stored is not None)

    @cached_property
    def narrow(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block not in self.wide)

    def copies(self, index: int, blocks: Sequence[Block]) -> list[int]:
        """Columns of one irrep in these blocks, piece after piece."""
        return [block.copies for block in blocks for irrep, _ in block.splitting.pieces if irrep == index]

    @cached_property
    def multiplicity(self) -> tuple[int, ...]:
        """Columns per irrep."""
        return tuple(sum(self.copies(index, self.blocks)) for index in range(len(self.irreps)))

    def split(self, x: Float[Array, " size"]) -> list[Rows]:
        """Stored order → rows per irrep; none where it does not occur."""
        if self.stored is None:
            return self._split_components(x if self.detour is None else x[self.detour])
        parts: list[Rows] = [[] for _ in self.irreps]
        rows = iter(divide(x, [self.multiplicity[i] for i in self.stored for _ in range(self.irreps[i].size)]))
        for index in self.stored:
            parts[index] = [next(rows) for _ in range(self.irreps[index].size)]
        return parts

    def join(self, parts: Sequence[Rows]) -> Float[Array, " size"]:
        """Rows per irrep → stored order."""
        if self.stored is None:
            x = self._join_components(parts)
            return x if self.detour is None else x[np.argsort(self.detour)]
        return joined([row for index in self.stored for row in parts[index]])

    def _split_components(self, x: Array) -> list[Rows]:
        source = dict(zip(self.blocks, divide(x, [block.size for block in self.blocks]), strict=True))
        columns: list[list[Rows]] = [[[] for _ in range(irrep.size)] for irrep in self.irreps]
        for block in self.wide:
            rows = weighted_sums(block.splitting.transform, divide_evenly(source[block], block.copies))
            for index, start in block.splitting.pieces:
                for i, row in enumerate(columns[index]):
                    row.append(rows[start + i])
        if self.narrow:
            narrow = joined([source[block] for block in self.narrow]) @ jnp.asarray(self._narrow_matrix.T, x.dtype)
            pieces = iter(divide(narrow, self._narrow_widths))
            for index, rows_so_far in enumerate(columns):
                if self.copies(index, self.narrow):
                    for row in rows_so_far:
                        row.append(next(pieces))
        return [[joined(row) for row in rows if row] for rows in columns]

    def _join_components(self, parts: Sequence[Rows]) -> Array:
        columns: list[list[Rows]] = []  # per irrep and row
        for index, rows in enumerate(parts):
            narrow = sum(self.copies(index, self.narrow))
            widths = self.copies(index, self.wide) + ([narrow] if narrow else [])
            columns.append([divide(row, widths) for row in rows])
        target: dict[Block, Array] = {}
        for block in self.wide:
            rows = [row.pop(0) for index, _ in block.splitting.pieces for row in columns[index]]
            target[block] = joined(weighted_sums(block.splitting.transform.T, rows))
        if self.narrow:
            rows = [piece for rows_left in columns for row in rows_left for piece in row]
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

    @cached_property
    def _narrow_widths(self) -> list[int]:
        totals = [(irrep.size, sum(self.copies(index, self.narrow))) for index, irrep in enumerate(self.irreps)]
        return [columns for size, columns in totals for _ in range(size) if columns]

    @cached_property
    def _narrow_matrix(self) -> np.ndarray:
        """Lists the irreducible coordinates of the narrow blocks row after row."""
        components = np.concatenate([block.start + np.arange(block.size) for block in self.narrow])
        rows = []
        for index, reader in enumerate(self.readers):
            first = sum(self.copies(index, self.wide))
            rows.append(reader[:, first:, components].reshape(-1, len(components)))
        return np.concatenate(rows)


@lru_cache(maxsize=4096)
def isotypic(*reps: Rep) -> tuple[Isotypic, ...]:
    """Irreducible coordinates of several representations in one shared basis, set by their order."""
    group = reps[0].group
    # The group's own atoms come first, so that almost all layers of it share one basis.
    atoms = (group.trivial, group.vector, *(atom for rep in reps for atom in rep.distinct))
    irreps, found = split_into_irreducibles(atoms)
    splittings = {atom: _with_simple_columns(splitting, irreps) for atom, splitting in found.items()}
    result = []
    for rep in reps:
        starts = np.cumsum([0, *(atom.size * count for atom, count in rep.blocks)]).tolist()
        blocks = [
            Block(count, start, splittings[atom]) for (atom, count), start in zip(rep.blocks, starts, strict=False)
        ]
        stored = detour = None
        if len(reps) == 1:
            if all(block.is_irreducible for block in blocks):
                stored = _by_first_occurrence(blocks)
        else:
            (alone,) = isotypic(rep)
            pairs = zip(blocks, alone.blocks, strict=True)
            if alone.stored is not None:
                if all(np.array_equal(a.splitting.transform, b.splitting.transform) for a, b in pairs):
                    stored = _by_first_occurrence(blocks)
                else:
                    detour = np.argsort(_irreducible_order(alone))
        result.append(Isotypic(rep, irreps, tuple(blocks), stored, detour))
    return tuple(result)


def storage_order(rep: Rep) -> np.ndarray:
    """Index that brings a flat vector, copy after copy, into the order in which networks store it."""
    (alone,) = isotypic(rep)
    return rep.component_order if alone.stored is None else rep.component_order[_irreducible_order(alone)]


def _by_first_occurrence(blocks: Sequence[Block]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(index for block in blocks for index, _ in block.splitting.pieces))


def _irreducible_order(side: Isotypic) -> np.ndarray:
    """Index that brings component order into the stored order of irreducible coordinates."""
    assert side.stored is not None
    return np.concatenate([np.argmax(side.readers[index], axis=2).ravel() for index in side.stored])


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
