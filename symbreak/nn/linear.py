"""Four ways to be linear: `Dense` ignores the symmetry, `Equivariant` respects it, `Residual` and `Relaxed` bend it.

All map a vector of one representation to a vector of another, both in component order (see `isotypic`), and are made by
the same call `family(source, target, key=…, scale=…)`. Every leaf is a trainable float array; bases are constants.
"""

from __future__ import annotations

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.isotypic import FEWEST_COPIES, Rows, divide_evenly, isotypic, joined
from symbreak.nn.keys import Key, named_key
from symbreak.symmetry.basis import Irrep
from symbreak.symmetry.rep import Rep


class Linear(eqx.Module):
    """A learned affine map from `source` to `target`."""

    source: eqx.AbstractVar[Rep]
    target: eqx.AbstractVar[Rep]

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        raise NotImplementedError


class Dense(Linear):
    """Any affine map: the symmetry is ignored."""

    kernel: Float[Array, "source target"]
    bias: Float[Array, " target"]
    source: Rep = eqx.field(static=True)
    target: Rep = eqx.field(static=True)

    def __init__(self, source: Rep, target: Rep, *, key: Key, scale: float = 1.0) -> None:
        self.source, self.target = source, target
        self.kernel = jax.random.normal(key, (source.size, target.size)) * (scale / np.sqrt(source.size))
        self.bias = jnp.zeros(target.size)

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
        weights = []
        for index in shared_irreps(source, target):
            algebra = len(entry.irreps[index].endomorphisms)
            shape = (algebra, entry.multiplicity[index], leave.multiplicity[index])
            spread = scale / np.sqrt(algebra * shape[1])  # keeps the variance of a coordinate
            weights.append(jax.random.normal(named_key(key, index), shape) * spread)
        self.weights = tuple(weights)
        self.bias = jnp.zeros(sum(m for m, irrep in zip(leave.multiplicity, leave.irreps, strict=True) if irrep.is_trivial))

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
    algebra, _, columns = weight.shape
    if algebra == 1 and (irrep.size == 1 or min(weight.shape[1:]) >= FEWEST_COPIES):
        return [row @ weight[0] for row in rows]
    if algebra == 2 and irrep.size == 2 and min(weight.shape[1:]) >= 48:
        # A product of complex numbers from three real ones.
        first, second = rows
        real, imaginary = weight[0], float(irrep.endomorphisms[1, 1, 0]) * weight[1]
        both = (first + second) @ real
        return [both - second @ (real + imaginary), both + first @ (imaginary - real)]
    turned = [
        jnp.asarray(turn.T, weight.dtype)[:, None, :, None] * mixing[None, :, None, :]
        for turn, mixing in zip(irrep.endomorphisms, weight, strict=True)
    ]
    matrix = sum(turned[1:], turned[0]).reshape(len(rows) * weight.shape[1], -1)
    return divide_evenly(joined(rows) @ matrix, columns)


class Residual(Linear):
    """An equivariant path plus a free one that starts a thousand times smaller (a residual pathway prior)."""

    equivariant: Equivariant
    free: Dense

    def __init__(self, source: Rep, target: Rep, *, key: Key, scale: float = 1.0) -> None:
        self.equivariant = Equivariant(source, target, key=named_key(key, "equivariant"), scale=scale)
        self.free = Dense(source, target, key=named_key(key, "free"), scale=1e-3 * scale)

    @property
    def source(self) -> Rep:
        return self.equivariant.source

    @property
    def target(self) -> Rep:
        return self.equivariant.target

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        return self.equivariant(x) + self.free(x)


class Relaxed(Linear):
    """Equivariant maps rescaled per output: with every scale equal it is equivariant, and it starts so.

    On regular representations one scale per group element and bank is shared by all channels; elsewhere each output
    component has its own.
    """

    banks: tuple[Equivariant, ...]
    scales: Float[Array, "banks scales"]

    def __init__(self, source: Rep, target: Rep, *, key: Key, scale: float = 1.0, banks: int = 1) -> None:
        self.banks = tuple(
            Equivariant(source, target, key=named_key(key, bank), scale=scale / np.sqrt(banks)) for bank in range(banks)
        )
        self.scales = jnp.ones((banks, int(_scale_index(target).max()) + 1))

    @property
    def source(self) -> Rep:
        return self.banks[0].source

    @property
    def target(self) -> Rep:
        return self.banks[0].target

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        index = _scale_index(self.target)
        scaled = [scale[index] * bank(x) for bank, scale in zip(self.banks, self.scales, strict=True)]
        return sum(scaled[1:], scaled[0])


def _scale_index(target: Rep) -> np.ndarray:
    """Which scale each output component uses, in component order."""
    if not target.group.is_finite or any(atom != target.group.regular for atom in target.distinct):
        return np.arange(target.size)
    elements = [np.repeat(np.arange(atom.size), count) for atom, count in target.blocks]
    return np.concatenate(elements)


def reference_matrix(layer: Equivariant) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and bias of an equivariant layer, assembled the slow way in float64; tests compare the layer with it."""
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
    return matrix, bias
