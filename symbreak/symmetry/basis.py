"""Linear maps that commute with a group, and the split of a representation into irreducible ones.

Everything is solved once in float64, on single atoms (multiplicities become coefficients), and cached. The results are
canonical: they depend on the subspace found, not on the order in which LAPACK lists it, so that coefficients stored on
one machine mean the same on another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from symbreak.symmetry.group import Group, Matrix, frozen
from symbreak.symmetry.rep import Atom

RANK_TOLERANCE = 1e-8


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


def _null_space(constraints: Matrix) -> Matrix:
    _, singular, rows = np.linalg.svd(constraints)
    rank = int(np.sum(singular > RANK_TOLERANCE * max(1.0, singular[0])))
    return canonical_basis(rows[rank:])


def solve_intertwiners(source: tuple[Matrix, ...], target: tuple[Matrix, ...]) -> Matrix:
    """All W with target·W = W·source for each pair of images (finite or Lie), orthonormal, as (count, rows, columns)."""
    rows, columns = len(target[0]), len(source[0])
    constraints = [
        np.kron(b, np.eye(columns)) - np.kron(np.eye(rows), a.T) for a, b in zip(source, target, strict=True)
    ]
    return _null_space(np.concatenate(constraints)).reshape(-1, rows, columns)


@lru_cache(maxsize=4096)
def intertwiners(source: Atom, target: Atom) -> Matrix:
    """Orthonormal basis of the equivariant linear maps from `source` to `target`."""
    return frozen(solve_intertwiners(source.matrices + source.lie, target.matrices + target.lie))


def group_mean(source: Atom, target: Atom) -> Matrix:
    """The same space for a finite group, spanned by averages of the elementary maps over all elements."""
    elements = source.group.elements()
    columns, rows = source.size, target.size
    mean = sum(np.kron(target.matrix(g), source.matrix(g)) for g in elements) / len(elements)
    _, singular, vectors = np.linalg.svd(np.asarray(mean))
    return canonical_basis(vectors[singular > 0.5]).reshape(-1, rows, columns)


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


def _commuting_symmetric(atom: Atom) -> Matrix:
    """A symmetric matrix that commutes with the atom and has no eigenvalue in common between two irreducible parts."""
    legacy = np.random.RandomState(0)  # noqa: NPY002 - the only NumPy generator whose stream is frozen for ever
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
    values, vectors = np.linalg.eigh(_commuting_symmetric(atom))
    borders = np.flatnonzero(np.diff(values) > 1e-7 * max(1.0, np.abs(values).max())) + 1
    return tuple(frozen(canonical_basis(part.T).T) for part in np.split(vectors, borders, axis=1))


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
    trivial = size == 1 and all(np.allclose(m, 1) for m in images[:finite]) and not np.any(images[finite:])
    return Irrep(images, frozen(endomorphisms), trivial)


@lru_cache(maxsize=1024)
def split_into_irreducibles(atoms: tuple[Atom, ...]) -> tuple[tuple[Irrep, ...], dict[Atom, Splitting]]:
    """The irreducible representations in some atoms, and for each atom the orthogonal change of basis that shows them.

    Equivalent pieces, of one atom or of several, have equal matrices after the change of basis; the first one seen sets
    them. The result therefore depends only on the sequence of atoms.
    """
    irreps: list[Irrep] = []
    splittings: dict[Atom, Splitting] = {}
    for atom in dict.fromkeys(atoms):
        rows, pieces, start = [], [], 0
        for subspace in irreducible_subspaces(atom):
            images = _images(atom, subspace)
            for index, irrep in enumerate(irreps):
                maps = solve_intertwiners(irrep.images, images) if irrep.size == len(images[0]) else []
                if len(maps):
                    aligned = subspace @ maps[0] * np.sqrt(irrep.size)
                    break
            else:
                index, aligned = len(irreps), subspace
                irreps.append(_make_irrep(atom.group, images))
            rows.append(aligned.T)
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
