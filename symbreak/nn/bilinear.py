"""Products of representations: what lets an equivariant network see angles and lengths.

Linear and gated layers alone are blind for groups without invariant linear functions (a map V → R under SO(3) is zero).
Where the group permutes coordinates, copies of an atom are multiplied coordinate by coordinate. Elsewhere irreducible
coordinates are multiplied through their coupling coefficients; an invariant is multiplied only by another, since gates
multiply everything else by invariants. Which copies meet is a fixed rule, not chance: the first with the last, the
second with the last but one. A product is a handful of elementwise operations; no matrix is built per sample.
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

from symbreak.nn.isotypic import Isotypic, isotypic
from symbreak.nn.keys import Key
from symbreak.nn.rows import Rows, divide, divide_evenly, joined, total
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

    @property
    def terms(self) -> int:
        return int(np.count_nonzero(self.coupling))


@lru_cache(maxsize=512)
def product_paths(rep: Rep) -> tuple[Path, ...]:
    """The couplings between irreps that are used, target after target; the cheapest where there are many."""
    (side,) = isotypic(rep)
    result: list[Path] = []
    for target, columns in enumerate(side.multiplicity):
        found = sorted(_couplings_to(side, target), key=lambda path: path.terms) if columns else []
        terms = np.cumsum([path.terms for path in found])
        start = 0
        for path in found[: max(1, int(np.sum(terms <= MOST_TERMS)))]:
            start = start if start + path.copies <= columns else 0
            result.append(Path(path.first, path.second, target, path.coupling, path.copies, start))
            start += path.copies
    return tuple(result)


def _couplings_to(side: Isotypic, target: int) -> list[Path]:
    goal, finite = side.irreps[target], len(side.rep.group.matrices)
    present = [i for i, m in enumerate(side.multiplicity) if m and (goal.is_trivial or not side.irreps[i].is_trivial)]
    paths = []
    for position, first in enumerate(present):
        for second in present[position:]:
            irreps = (side.irreps[first], side.irreps[second], goal)
            found = np.sqrt(goal.size) * couplings(*irreps, finite)
            # Linear layers turn a complex or quaternionic irrep within itself, and with it one coupling into others.
            distinct = -(-len(found) // max(len(irrep.endomorphisms) for irrep in irreps))
            copies = min(side.multiplicity[i] for i in (first, second, target))
            paths += [
                Path(first, second, target, np.where(np.abs(coupling) < 1e-12, 0, coupling), copies, 0)
                for coupling in found[:distinct]
            ]
    return paths


class Bilinear(eqx.Module):
    """x ↦ x + weighted products of x with itself, in the same representation."""

    weights: tuple[Float[Array, " copies"], ...]  # one per block of permuted coordinates, or one per path
    rep: Rep = eqx.field(static=True)

    def __init__(self, rep: Rep, *, key: Key, scale: float = 0.3) -> None:
        self.rep = rep
        copies = [count for _, count in rep.blocks]
        sizes = copies if rep.is_permutation else [path.copies for path in product_paths(rep)]
        self.weights = tuple(divide(jax.random.normal(key, (sum(sizes),)) * scale, sizes))

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        if self.rep.is_permutation:
            return self._with_pointwise_products(x)
        (side,) = isotypic(self.rep)
        return side.join(self._with_coupled_products(side.split(x)))

    def _with_pointwise_products(self, x: Array) -> Array:
        blocks = divide(x, [atom.size * count for atom, count in self.rep.blocks])
        result: Rows = []
        for weight, block in zip(self.weights, blocks, strict=True):
            result += [_with_ends_multiplied(weight, row) for row in divide_evenly(block, len(weight))]
        return joined(result)

    def _with_coupled_products(self, parts: list[Rows]) -> list[Rows]:
        result = list(parts)
        for path, weight in zip(product_paths(self.rep), self.weights, strict=True):
            first = [_first(row, path.copies) for row in parts[path.first]]
            second = [_first(lax.rev(row, [0]), path.copies) for row in parts[path.second]]
            products = _weighted(path.coupling, weight, first, second)
            after = len(result[path.target][0]) - path.start - path.copies
            result[path.target] = [
                row + jnp.pad(product, (path.start, after))
                for row, product in zip(result[path.target], products, strict=True)
            ]
        return result


def _with_ends_multiplied(weight: Array, row: Array) -> Array:
    """Each column plus its weighted product with the one as far from the other end; an odd middle one meets itself."""
    return row + weight * row * lax.rev(row, [0])


def _first(row: Array, columns: int) -> Array:
    return row if columns == len(row) else divide(row, [columns, len(row) - columns])[0]


def _weighted(coupling: np.ndarray, weight: Array, first: Rows, second: Rows) -> Rows:
    """The weighted products; the weight multiplies whichever has fewest rows."""
    if len(first) <= len(coupling):
        return _couple(coupling, [weight * row for row in first], second)
    return [weight * row for row in _couple(coupling, first, second)]


def _couple(coupling: np.ndarray, first: Rows, second: Rows) -> Rows:
    return [
        total([float(matrix[i, j]) * first[i] * second[j] for i, j in np.argwhere(matrix).tolist()])
        for matrix in coupling
    ]
