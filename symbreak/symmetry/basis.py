"""Linear maps that commute with a group, and the split of a representation into irreducible ones.

Everything is solved once in float64, on single atoms (multiplicities become coefficients), and cached. The results are
canonical: they depend on the subspace found, not on the order in which LAPACK lists it, so that coefficients stored on
one machine mean the same on another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from symbreak.errors import InputError
from symbreak.symmetry.elements import Matrix, frozen
from symbreak.symmetry.group import Group
from symbreak.symmetry.rep import Atom

# Singular values below this are zero: above what matrices typed with seven digits leave, below the smallest that a
# group of a thousand elements can have.
RANK_TOLERANCE = 1e-4


def canonical_basis(vectors: Matrix) -> Matrix:
    """Orthonormal rows spanning the same space as the given orthonormal rows, chosen by the space alone."""
    projector = vectors.T @ vectors
    rows = []
    for _ in range(len(vectors)):
        diagonal = np.diagonal(projector)
        pivot = int(np.argmax(diagonal >= diagonal.max() - 1e-6))  # the first of the (nearly) largest
        row = projector[pivot] / np.sqrt(diagonal[pivot])
        projector = projector - np.outer(row, row)
        rows.append(row)
    return np.array(rows).reshape(len(vectors), vectors.shape[1])


def solve_intertwiners(source: tuple[Matrix, ...], target: tuple[Matrix, ...]) -> Matrix:
    """All W with target·W = W·source for each pair of images, finite or Lie: orthonormal, (count, rows, columns)."""
    rows, columns = len(target[0]), len(source[0])
    squares = np.zeros((rows * columns, rows * columns))
    for a, b in zip(source, target, strict=True):
        constraint = np.kron(b, np.eye(columns)) - np.kron(np.eye(rows), a.T)
        squares += constraint.T @ constraint
    # The eigenvectors span the null space of the stacked constraints, at a tenth of the cost of an SVD.
    values, vectors = np.linalg.eigh(squares)
    count = int(np.sum(values < RANK_TOLERANCE**2 * max(1.0, values[-1])))
    return canonical_basis(vectors[:, :count].T).reshape(-1, rows, columns)


@lru_cache(maxsize=4096)
def intertwiners(source: Atom, target: Atom) -> Matrix:
    """Orthonormal basis of the equivariant linear maps from `source` to `target`, as (count, rows, columns)."""
    _require_one_group((source, target))
    return frozen(solve_intertwiners(source.matrices + source.lie, target.matrices + target.lie))


def group_mean(source: Atom, target: Atom) -> Matrix:
    """The same space for a finite group, spanned by averages of the elementary maps over all elements."""
    _require_one_group((source, target))
    elements = source.group.elements()
    columns, rows = source.size, target.size
    mean = sum(np.kron(target.matrix(g), source.matrix(g)) for g in elements) / len(elements)
    _, singular, vectors = np.linalg.svd(np.asarray(mean))
    return canonical_basis(vectors[singular > 0.5]).reshape(-1, rows, columns)


def _require_one_group(atoms: tuple[Atom, ...]) -> None:
    if len({atom.group for atom in atoms}) > 1:
        described = ", ".join(f"{atom.name} of {atom.group}" for atom in atoms)
        raise InputError(f"maps between representations of different groups ({described}): use atoms of one group")


# --- irreducible pieces ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Irrep:
    """A real irreducible representation with the division algebra of maps that commute with it.

    `endomorphisms` holds 1, 2 or 4 orthogonal matrices (real, complex, quaternionic type), the identity first.
    """

    images: tuple[Matrix, ...]
    endomorphisms: Matrix
    is_trivial: bool

    @property
    def size(self) -> int:
        return self.endomorphisms.shape[-1]

    @property
    def type(self) -> str:
        return {1: "real", 2: "complex", 4: "quaternionic"}[len(self.endomorphisms)]


@dataclass(frozen=True, eq=False)
class Splitting:
    """`transform @ x` lists an atom's irreducible coordinates, piece after piece; `pieces` are (irrep, start)."""

    transform: Matrix
    pieces: tuple[tuple[int, int], ...]


def _commuting_symmetric(atom: Atom, seed: int) -> Matrix:
    """A random symmetric matrix that commutes with the atom; its eigenspaces are, almost surely, irreducible."""
    legacy = np.random.RandomState(seed)  # the only NumPy generator whose stream is frozen for ever
    start = legacy.standard_normal((atom.size, atom.size))
    start = start + start.T
    if atom.group.is_finite:
        matrices = [atom.matrix(g) for g in atom.group.elements()]
        return sum((m @ start @ m.T for m in matrices), np.zeros_like(start)) / len(matrices)
    basis = intertwiners(atom, atom)
    mean = np.einsum("k,kij->ij", np.einsum("kij,ij->k", basis, start), basis)
    return (mean + mean.T) / 2


@lru_cache(maxsize=1024)
def irreducible_subspaces(atom: Atom) -> tuple[Matrix, ...]:
    """Orthonormal columns of each irreducible invariant subspace."""
    for seed in range(0, 16, 2):
        values, vectors = np.linalg.eigh(_commuting_symmetric(atom, seed))
        borders = np.flatnonzero(np.diff(values) > 1e-5 * max(1.0, np.abs(values).max())) + 1
        subspaces = np.split(vectors, borders, axis=1)
        # Two pieces may meet in one eigenvalue by chance: a second matrix tells them apart, and a new draw parts them.
        witness = _commuting_symmetric(atom, seed + 1)
        if all(_is_irreducible(atom, subspace, witness) for subspace in subspaces):
            return tuple(frozen(canonical_basis(subspace.T).T) for subspace in subspaces)
    raise InputError(
        f"{atom} of {atom.group} cannot be split into irreducible parts: give its matrices with more digits"
    )


def _is_irreducible(atom: Atom, subspace: Matrix, witness: Matrix) -> bool:
    inside = subspace.T @ witness @ subspace
    scale = 1e-4 * max(1.0, np.abs(witness).max())
    if np.abs(inside - np.eye(len(inside)) * inside[0, 0]).max() > scale:
        return False
    moved = [m @ subspace for m in (*atom.matrices, *atom.lie)]
    return all(np.abs(m - subspace @ (subspace.T @ m)).max() < 1e-4 * max(1.0, np.abs(m).max()) for m in moved)


def _images(atom: Atom, subspace: Matrix) -> tuple[Matrix, ...]:
    return tuple(frozen(subspace.T @ m @ subspace) for m in (*atom.matrices, *atom.lie))


def _make_irrep(group: Group, images: tuple[Matrix, ...]) -> Irrep:
    size = len(images[0])
    commuting = solve_intertwiners(images, images).reshape(-1, size * size)
    identity = np.eye(size).ravel() / np.sqrt(size)
    rest = commuting - np.outer(commuting @ identity, identity)
    _, singular, vectors = np.linalg.svd(rest)
    others = canonical_basis(vectors[: int(np.sum(singular > 0.5))])
    endomorphisms = np.concatenate([identity[None], others]).reshape(-1, size, size) * np.sqrt(size)
    finite = len(group.matrices)
    fixed = [m - 1 for m in images[:finite]] + list(images[finite:])
    trivial = size == 1 and all(np.abs(m).max() < RANK_TOLERANCE for m in fixed)
    return Irrep(images, frozen(endomorphisms), trivial)


def _find(irreps: list[Irrep], images: tuple[Matrix, ...]) -> tuple[int, Matrix]:
    """Which irrep has these images, and the orthogonal map from it to them; a new number if none has."""
    for index, irrep in enumerate(irreps):
        if irrep.size == len(images[0]):
            maps = solve_intertwiners(irrep.images, images)
            if len(maps):
                return index, maps[0] * np.sqrt(irrep.size)
    return len(irreps), np.eye(len(images[0]))


@lru_cache(maxsize=1024)
def split_into_irreducibles(atoms: tuple[Atom, ...]) -> tuple[tuple[Irrep, ...], dict[Atom, Splitting]]:
    """The irreducible representations in some atoms, and for each atom the orthogonal change of basis that shows them.

    Equivalent pieces, of one atom or of several, have equal matrices after the change of basis; the first one seen sets
    them. The result therefore depends only on the sequence of atoms.
    """
    _require_one_group(atoms)
    irreps: list[Irrep] = []
    splittings: dict[Atom, Splitting] = {}
    for atom in dict.fromkeys(atoms):
        rows, pieces, start = [], [], 0
        for subspace in irreducible_subspaces(atom):
            images = _images(atom, subspace)
            index, alignment = _find(irreps, images)
            if index == len(irreps):
                irreps.append(_make_irrep(atom.group, images))
            rows.append((subspace @ alignment).T)
            pieces.append((index, start))
            start += irreps[index].size
        splittings[atom] = Splitting(frozen(np.concatenate(rows)), tuple(pieces))
    return tuple(irreps), splittings


@lru_cache(maxsize=4096)
def couplings(first: Irrep, second: Irrep, target: Irrep, finite: int) -> Matrix:
    """Bilinear equivariant maps first × second → target, (count, target, first, second); `finite` images are finite."""
    one, two = np.eye(first.size), np.eye(second.size)
    products = [
        np.kron(a, b) if i < finite else np.kron(a, two) + np.kron(one, b)
        for i, (a, b) in enumerate(zip(first.images, second.images, strict=True))
    ]
    maps = solve_intertwiners(tuple(products), target.images)
    return frozen(maps.reshape(-1, target.size, first.size, second.size))
