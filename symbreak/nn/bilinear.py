"""Products of representations: what lets an equivariant network see angles and lengths.

Linear and gated layers alone are blind for groups without invariant linear functions (a map V → R under SO(3) is zero).
Where the group permutes coordinates, copies of an atom are multiplied coordinate by coordinate. Elsewhere irreducible
coordinates are multiplied through their coupling coefficients; invariants take no part in that, since gates multiply by
them already. Which copies meet is a fixed rule, not chance: the first with the last, the second with the last but one.
A product is a handful of elementwise operations; no matrix is built per sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from symbreak.nn.isotypic import Isotypic, Rows, divide, divide_evenly, isotypic, joined
from symbreak.nn.keys import Key, named_key
from symbreak.symmetry.basis import couplings
from symbreak.symmetry.rep import Rep

# Written-out products per irrep: couplings of large irreps cost more, in time and in compiling, than they add.
MOST_TERMS = 20


@dataclass(frozen=True, eq=False)
class Path:
    """first × second → target through one coupling, on `copies` columns of the target from `start`."""

    first: int
    second: int
    target: int
    coupling: np.ndarray  # (target, first, second)
    copies: int
    start: int


@lru_cache(maxsize=512)
def product_paths(rep: Rep) -> tuple[Path, ...]:
    """The couplings between irreps that are used, target after target; none where all atoms are permutations."""
    (side,) = isotypic(rep)
    if rep.is_permutation:
        return ()
    return tuple(path for target, columns in enumerate(side.multiplicity) if columns for path in _paths_to(side, target))


def _paths_to(side: Isotypic, target: int) -> list[Path]:
    finite = len(side.rep.group.matrices)
    trivial = side.irreps[target].is_trivial
    present = [i for i, count in enumerate(side.multiplicity) if count and (trivial or not side.irreps[i].is_trivial)]
    found = [
        (first, second, coupling * np.sqrt(side.irreps[target].size))
        for position, first in enumerate(present)
        for second in present[position:]
        for coupling in couplings(side.irreps[first], side.irreps[second], side.irreps[target], finite)
    ]
    found.sort(key=lambda path: _terms(path[2]))
    total = np.cumsum([_terms(coupling) for _, _, coupling in found])
    result, start = [], 0
    for first, second, coupling in found[: max(1, int(np.sum(total <= MOST_TERMS)))]:
        copies = min(side.multiplicity[i] for i in (first, second, target))
        start = start if start + copies <= side.multiplicity[target] else 0
        result.append(Path(first, second, target, coupling, copies, start))
        start += copies
    return result


def _terms(coupling: np.ndarray) -> int:
    return int(np.count_nonzero(np.abs(coupling) > 1e-12))


class Bilinear(eqx.Module):
    """x ↦ x + weighted products of x with itself, in the same representation."""

    weights: tuple[Float[Array, " copies"], ...]  # one per block of permuted coordinates, or one per path
    rep: Rep = eqx.field(static=True)

    def __init__(self, rep: Rep, *, key: Key, scale: float = 0.3) -> None:
        self.rep = rep
        sizes = [count for _, count in rep.blocks] if rep.is_permutation else [path.copies for path in product_paths(rep)]
        self.weights = tuple(jax.random.normal(named_key(key, i), (size,)) * scale for i, size in enumerate(sizes))

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        if self.rep.is_permutation:
            return self._with_pointwise_products(x)
        (side,) = isotypic(self.rep)
        return side.join(self._with_coupled_products(side.split(x)))

    def _with_pointwise_products(self, x: Array) -> Array:
        blocks = divide(x, [atom.size * count for atom, count in self.rep.blocks])
        result: Rows = []
        for weight, block in zip(self.weights, blocks, strict=True):
            result += [row + weight * row * lax.rev(row, [0]) for row in divide_evenly(block, len(weight))]
        return joined(result)

    def _with_coupled_products(self, parts: list[Rows]) -> list[Rows]:
        result = list(parts)
        for path, weight in zip(product_paths(self.rep), self.weights, strict=True):
            first = [_first(row, path.copies) for row in parts[path.first]]
            second = [weight * _first(lax.rev(row, [0]), path.copies) for row in parts[path.second]]
            products = _couple(path.coupling, first, second)
            result[path.target] = [
                row + jnp.pad(product, (path.start, len(row) - path.copies - path.start))
                for row, product in zip(result[path.target], products, strict=True)
            ]
        return result


def _first(row: Array, columns: int) -> Array:
    return row if columns == len(row) else divide(row, [columns, len(row) - columns])[0]


def _couple(coupling: np.ndarray, first: Rows, second: Rows) -> Rows:
    rows = []
    for matrix in coupling:
        entries = np.argwhere(np.abs(matrix) > 1e-12).tolist()
        terms = [float(matrix[i, j]) * first[i] * second[j] for i, j in entries]
        rows.append(sum(terms[1:], terms[0]))
    return rows
