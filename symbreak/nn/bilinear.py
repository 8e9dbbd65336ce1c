"""Products of representations: what lets an equivariant network see angles and lengths.

Linear and gated layers alone are blind for groups without invariant linear functions (a map V → R under SO(3) is zero).
A bilinear layer multiplies pairs of irreducible coordinates by their coupling coefficients. Which pairs is a fixed rule,
not chance; each product is a handful of elementwise operations, and no matrix is built per sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.isotypic import Isotypic, Rows, isotypic, joined
from symbreak.nn.keys import Key, named_key
from symbreak.symmetry.basis import couplings
from symbreak.symmetry.rep import Rep

# Products of larger irreps cost more than they add.
LARGEST_COUPLING = 110


@dataclass(frozen=True, eq=False)
class Path:
    """first × second → target through one coupling; `shift` says which copies meet."""

    first: int
    second: int
    target: int
    coupling: np.ndarray  # (target, first, second)
    shift: int


@lru_cache(maxsize=512)
def product_paths(rep: Rep) -> tuple[Path, ...]:
    """All couplings between the irreps of a representation, in a fixed order."""
    (side,) = isotypic(rep)
    present = [index for index, count in enumerate(side.multiplicity) if count]
    finite = len(rep.group.matrices)
    paths = []
    for target in present:
        for position, first in enumerate(present):
            for second in present[position:]:
                irreps = [side.irreps[i] for i in (first, second, target)]
                if np.prod([irrep.size for irrep in irreps]) > LARGEST_COUPLING:
                    continue
                for coupling in couplings(*irreps, finite):
                    scaled = coupling * np.sqrt(irreps[2].size)
                    paths.append(Path(first, second, target, scaled, shift=1 + len(paths)))
    return tuple(paths)


class Bilinear(eqx.Module):
    """x ↦ weighted products of x with itself, in the same representation."""

    weights: tuple[Float[Array, " copies"], ...]
    rep: Rep = eqx.field(static=True)

    def __init__(self, rep: Rep, *, key: Key, scale: float = 0.1) -> None:
        self.rep = rep
        (side,) = isotypic(rep)
        paths = product_paths(rep)
        count = [sum(path.target == index for path in paths) for index in range(len(side.irreps))]
        self.weights = tuple(
            jax.random.normal(named_key(key, i), (side.multiplicity[path.target],)) * (scale / np.sqrt(count[path.target]))
            for i, path in enumerate(paths)
        )

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        (side,) = isotypic(self.rep)
        return side.join(self.products(side, side.split(x)))

    def products(self, side: Isotypic, parts: list[Rows]) -> list[Rows]:
        """The same on irreducible coordinates."""
        result: list[list[Rows]] = [[] for _ in side.irreps]
        for path, weight in zip(product_paths(self.rep), self.weights, strict=True):
            copies = len(weight)
            first = [_cycle(row, 0, copies) for row in parts[path.first]]
            second = [_cycle(row, path.shift, copies) for row in parts[path.second]]
            result[path.target].append([weight * row for row in _couple(path.coupling, first, second)])
        return [
            [sum(terms[1:], terms[0]) for terms in zip(*rows, strict=True)] if rows else [jnp.zeros_like(row) for row in part]
            for rows, part in zip(result, parts, strict=True)
        ]


def _cycle(row: Array, shift: int, copies: int) -> Array:
    """Columns shift, shift+1, … taken cyclically; contiguous pieces, since a gather is slow on CPU."""
    available = row.shape[0]
    pieces, start = [], shift % available
    while copies > 0:
        taken = min(copies, available - start)
        pieces.append(row[start : start + taken])
        copies -= taken
        start = 0
    return joined(pieces)


def _couple(coupling: np.ndarray, first: Rows, second: Rows) -> Rows:
    rows = []
    for matrix in coupling:
        entries = [(i, j) for i, j in np.argwhere(np.abs(matrix) > 1e-12).tolist()]
        terms = [float(matrix[i, j]) * first[i] * second[j] for i, j in entries]
        rows.append(sum(terms[1:], terms[0]))
    return rows
