"""Nonlinearities that commute with the group: pointwise where it permutes coordinates, gated elsewhere."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from symbreak.errors import InputError
from symbreak.nn.isotypic import Rows, divide, divide_evenly, joined
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
    gates = sum(count for atom, count in rep.blocks if not atom.is_permutation)
    return rep + gates * rep.group.trivial if gates else rep


def gated(rep: Rep, x: Float[Array, " with_gates"]) -> Float[Array, " size"]:
    """x·σ(x) on permutation atoms; every other copy of an atom is scaled by σ of its own gate."""
    sizes = [atom.size * count for atom, count in rep.blocks]
    gates = [count for atom, count in rep.blocks if not atom.is_permutation]
    parts = divide(x, sizes + gates)
    factors = iter(parts[len(sizes) :])
    result: Rows = []
    for (atom, count), block in zip(rep.blocks, parts, strict=False):
        if atom.is_permutation:
            result.append(jax.nn.silu(block))
        else:
            factor = jax.nn.sigmoid(next(factors))
            result += [factor * row for row in divide_evenly(block, count)]
    return joined(result)
