"""Four ways to be linear: `Dense` ignores the symmetry, `Equivariant` respects it, `Residual` and `Relaxed` bend it.

All map a vector of one representation to a vector of another, both in stored order (see `isotypic.storage_order`), and
are made by the same call `family(source, target, key=…, scale=…)`. Every leaf is a trainable float array; bases are
constants.
"""

from __future__ import annotations

import math
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.isotypic import isotypic
from symbreak.nn.keys import Key, named_key
from symbreak.nn.rows import Rows, divide, divide_evenly, joined, total
from symbreak.symmetry.basis import Irrep
from symbreak.symmetry.rep import Rep

# With fewer columns, one product with a larger matrix that is mostly zeros costs less than several small ones.
FEWEST_COLUMNS = 16
FEWEST_COMPLEX_COLUMNS = 48


class Linear(eqx.Module):
    """A learned affine map from `source` to `target`."""

    source: eqx.AbstractVar[Rep]
    target: eqx.AbstractVar[Rep]

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        raise NotImplementedError


class Dense(Linear):
    """Any affine map: the symmetry is ignored.

    The bias starts at random like the weights. Without it ReLU units of a few coordinates all bend at the origin, and
    on grid-worlds the values of one seed in three ran away (docs/reproduction.md).
    """

    kernel: Float[Array, "source target"]
    bias: Float[Array, " target"]
    source: Rep = eqx.field(static=True)
    target: Rep = eqx.field(static=True)

    def __init__(self, source: Rep, target: Rep, *, key: Key, scale: float = 1.0) -> None:
        self.source, self.target = source, target
        spread = scale / np.sqrt(source.size)
        self.kernel = jax.random.normal(key, (source.size, target.size)) * spread
        self.bias = jax.random.normal(named_key(key, "bias"), (target.size,)) * spread

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        return x @ self.kernel + self.bias


class Equivariant(Linear):
    """Any affine map that commutes with the group: for each irrep a matrix over its division algebra.

    One weight per irrep that both sides contain; `weight[k]` mixes its copies after the k-th commuting matrix. The bias
    lies on invariants only.
    """

    weights: tuple[Float[Array, "algebra _ _"], ...]
    bias: Float[Array, " invariants"]
    source: Rep = eqx.field(static=True)
    target: Rep = eqx.field(static=True)

    def __init__(self, source: Rep, target: Rep, *, key: Key, scale: float = 1.0) -> None:
        self.source, self.target = source, target
        entry, leave = isotypic(source, target)
        shapes, spreads = [], []
        for index in shared_irreps(source, target):
            algebra = len(entry.irreps[index].endomorphisms)
            shapes.append((algebra, entry.multiplicity[index], leave.multiplicity[index]))
            # Keeps the variance of a coordinate.
            spreads.append(np.full(math.prod(shapes[-1]), scale / np.sqrt(algebra * entry.multiplicity[index])))
        flat = np.concatenate([*spreads, np.zeros(0)])
        draws = divide(jax.random.normal(key, flat.shape) * flat, [len(part) for part in spreads])
        self.weights = tuple(draw.reshape(shape) for draw, shape in zip(draws, shapes, strict=True))
        invariants = [m for m, irrep in zip(leave.multiplicity, leave.irreps, strict=True) if irrep.is_trivial]
        # Of the same mean square over all outputs as the bias of a dense layer.
        spread = scale * np.sqrt(target.size / (source.size * max(1, sum(invariants))))
        self.bias = jax.random.normal(named_key(key, "bias"), (sum(invariants),)) * spread

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        entry, leave = isotypic(self.source, self.target)
        parts = entry.split(x)
        mixed = [
            [jnp.zeros(m, x.dtype)] * irrep.size if m else []
            for irrep, m in zip(leave.irreps, leave.multiplicity, strict=True)
        ]
        for index, weight in zip(shared_irreps(self.source, self.target), self.weights, strict=True):
            mixed[index] = _mix(leave.irreps[index], weight, parts[index])
        for index, irrep in enumerate(leave.irreps):
            if irrep.is_trivial and mixed[index]:
                mixed[index] = [mixed[index][0] + self.bias]
        return leave.join(mixed)


@lru_cache(maxsize=4096)
def shared_irreps(source: Rep, target: Rep) -> tuple[int, ...]:
    """Irreps in both representations: only these carry weights."""
    entry, leave = isotypic(source, target)
    return tuple(i for i in range(len(entry.irreps)) if entry.multiplicity[i] and leave.multiplicity[i])


def _mix(irrep: Irrep, weight: Array, rows: Rows) -> Rows:
    """Σ_k (E_k rows) W_k."""
    algebra, *columns = weight.shape
    if irrep.size == 1 or (algebra == 1 and min(columns) >= FEWEST_COLUMNS):
        return [row @ weight[0] for row in rows]
    if irrep.size == algebra == 2 and min(columns) >= FEWEST_COMPLEX_COLUMNS:
        # The product of two complex matrices by three real ones instead of four.
        first, second = rows
        real, imaginary = weight[0], float(irrep.endomorphisms[1, 1, 0]) * weight[1]
        both = (first + second) @ real
        return [both - second @ (real + imaginary), both + first @ (imaginary - real)]
    turned = [
        jnp.asarray(turn.T, weight.dtype)[:, None, :, None] * mixing[None, :, None, :]
        for turn, mixing in zip(irrep.endomorphisms, weight, strict=True)
    ]
    matrix = total(turned).reshape(irrep.size * columns[0], irrep.size * columns[1])
    return divide_evenly(joined(rows) @ matrix, columns[1])


class Residual(Linear):
    """An equivariant path plus a free one that starts a thousand times smaller (a residual pathway prior)."""

    equivariant: Equivariant
    free: Dense
    source: Rep = eqx.field(static=True)
    target: Rep = eqx.field(static=True)

    def __init__(self, source: Rep, target: Rep, *, key: Key, scale: float = 1.0) -> None:
        self.source, self.target = source, target
        self.equivariant = Equivariant(source, target, key=named_key(key, "equivariant"), scale=scale)
        self.free = Dense(source, target, key=named_key(key, "free"), scale=1e-3 * scale)

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        return self.equivariant(x) + self.free(x)


class Relaxed(Linear):
    """Equivariant maps rescaled per output: with every scale equal it is equivariant, and it starts so.

    `per_element`, onto regular representations, one scale per group element and bank is shared by all channels;
    otherwise each output component has its own.
    """

    banks: tuple[Equivariant, ...]
    scales: Float[Array, "banks scales"]
    source: Rep = eqx.field(static=True)
    target: Rep = eqx.field(static=True)
    per_element: bool = eqx.field(static=True)

    def __init__(
        self, source: Rep, target: Rep, *, key: Key, scale: float = 1.0, banks: int = 1, per_element: bool = True
    ) -> None:
        self.source, self.target, self.per_element = source, target, per_element
        self.banks = tuple(
            Equivariant(source, target, key=named_key(key, bank), scale=scale / np.sqrt(banks)) for bank in range(banks)
        )
        self.scales = jnp.ones((banks, int(self._index.max()) + 1))

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        scaled = [scale[self._index] * bank(x) for bank, scale in zip(self.banks, self.scales, strict=True)]
        return total(scaled)

    @property
    def _index(self) -> np.ndarray:
        """Which scale each output component uses, in stored order."""
        group, target = self.target.group, self.target
        if not self.per_element or not group.is_finite or any(atom != group.regular for atom in target.distinct):
            return np.arange(target.size)
        return np.concatenate([np.repeat(np.arange(atom.size), count) for atom, count in target.blocks])


def reference_matrix(layer: Equivariant) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and bias of an equivariant layer, assembled the slow way in float64; tests compare the layer with it.

    They act on flat vectors, copy after copy, as the representations' own matrices do.
    """
    entry, leave = isotypic(layer.source, layer.target)
    matrix = np.zeros((layer.target.size, layer.source.size))
    bias = np.zeros(layer.target.size)
    for index, weight in zip(shared_irreps(layer.source, layer.target), layer.weights, strict=True):
        turns = entry.irreps[index].endomorphisms
        mixed = np.einsum("kij,kmn,jms->ins", turns, np.asarray(weight, np.float64), entry.readers[index])
        matrix += np.einsum("int,ins->ts", leave.readers[index], mixed)
    for index, irrep in enumerate(leave.irreps):
        if irrep.is_trivial:
            bias += np.einsum("nt,n->t", leave.readers[index][0], np.asarray(layer.bias, np.float64))
    rows, columns = np.argsort(layer.target.component_order), np.argsort(layer.source.component_order)
    return matrix[np.ix_(rows, columns)], bias[rows]
