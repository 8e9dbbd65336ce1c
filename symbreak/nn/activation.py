"""Nonlinearities that commute with the group: pointwise where it permutes coordinates, gated elsewhere."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from symbreak.errors import InputError
from symbreak.nn.isotypic import isotypic
from symbreak.nn.rows import Rows, divide, divide_evenly, joined
from symbreak.symmetry.rep import Rep


def require_pointwise(rep: Rep) -> None:
    """Refuse a pointwise nonlinearity where the group does more than permute coordinates."""
    for atom in rep.distinct:
        if not atom.is_permutation:
            raise InputError(
                f"a pointwise nonlinearity on {atom.name} of {rep.group} breaks the symmetry: "
                "the group does not permute its coordinates; use a gated one"
            )


def with_gates(rep: Rep) -> Rep:
    """The representation followed by one invariant for each copy of an atom that cannot gate itself."""
    gates = sum(_gates(rep))
    return rep + gates * rep.group.trivial if gates else rep


def _gates(rep: Rep) -> list[int]:
    return [count for atom, count in rep.blocks if not atom.is_permutation]


def gated(rep: Rep, x: Float[Array, " with_gates"]) -> Float[Array, " size"]:
    """x·σ(x) on permutation atoms; every other copy of an atom is scaled by σ of its own gate."""
    if rep.is_permutation:
        return _silu(x)
    (side,) = isotypic(rep)
    return _gated_components(rep, x) if side.stored is None else _gated_irreducibles(rep, x)


def _gated_components(rep: Rep, x: Array) -> Array:
    sizes = [atom.size * count for atom, count in rep.blocks]
    blocks = divide(x, sizes + _gates(rep))
    gates = iter(blocks[len(sizes) :])
    result: Rows = []
    for (atom, count), block in zip(rep.blocks, blocks, strict=False):
        if atom.is_permutation:
            result.append(_silu(block))
        else:
            factor = _sigmoid(next(gates))
            result += [factor * row for row in divide_evenly(block, count)]
    return joined(result)


def _gated_irreducibles(rep: Rep, x: Array) -> Array:
    (inside,), (outside,) = isotypic(rep), isotypic(with_gates(rep))
    parts = outside.split(x)
    trivial = next(index for index, irrep in enumerate(outside.irreps) if irrep.is_trivial)
    invariants = divide(parts[trivial][0], inside.copies(trivial, inside.blocks) + _gates(rep))
    gates = iter(invariants[len(invariants) - len(_gates(rep)) :])
    own = iter(invariants)
    factors: list[Rows] = [[] for _ in inside.irreps]  # per irrep, one for each piece of its columns
    for (atom, _), block in zip(rep.blocks, inside.blocks, strict=True):
        # Of the permutations only those that move nothing have irreducible coordinates; they gate themselves.
        gate = [] if atom.is_permutation else [_sigmoid(next(gates))]
        for index, _ in block.splitting.pieces:
            itself = [next(own)] if index == trivial else []
            factors[index] += gate or [_sigmoid(row) for row in itself]
    if inside.multiplicity[trivial]:
        parts[trivial] = divide(parts[trivial][0], [inside.multiplicity[trivial], sum(_gates(rep))])[:1]
    scaled: list[Rows] = []
    for rows, columns in zip(parts, factors, strict=True):
        factor = joined(columns) if columns else None
        scaled.append([] if factor is None else [row * factor for row in rows])
    return inside.join(scaled)


def _sigmoid(x: Array) -> Array:
    """σ through tanh, which takes less time than an exponential and a division."""
    return 0.5 * (1 + jnp.tanh(0.5 * x))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)
