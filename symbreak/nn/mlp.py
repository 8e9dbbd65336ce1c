"""Networks of any linear family, acting on one flat vector in its own order.

A network is hidden blocks and a linear head. Three kinds of block exist: plain (dense, ReLU), regular (equivariant maps
between copies of the regular representation, ReLU) and EMLP (equivariant map, plus bilinear products, gated).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from symbreak.errors import InputError
from symbreak.nn.activation import gated, require_pointwise, with_gates
from symbreak.nn.bilinear import Bilinear, product_paths
from symbreak.nn.hidden import WIDTH, Style, hidden_rep
from symbreak.nn.isotypic import isotypic, storage_order
from symbreak.nn.keys import Key, named_key
from symbreak.nn.linear import Dense, Linear, Relaxed, Residual
from symbreak.nn.rows import reordered
from symbreak.symmetry.rep import Rep

Family = Callable[..., Linear]


class Block(eqx.Module):
    """One hidden layer: a linear map, products where the style has them, a nonlinearity."""

    linear: Linear
    bilinear: Bilinear | None
    hidden: Rep = eqx.field(static=True)
    pointwise: bool = eqx.field(static=True)

    def __init__(self, family: Family, source: Rep, hidden: Rep, style: Style, *, key: Key) -> None:
        self.hidden = hidden
        self.pointwise = style != "emlp"
        if self.pointwise and family is not Dense:
            require_pointwise(hidden)
        target = hidden if self.pointwise else with_gates(hidden)
        self.linear = family(source, target, key=named_key(key, "linear"), scale=_gain(family, style))
        self.bilinear = None if self.pointwise else Bilinear(target, key=named_key(key, "bilinear"))

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " hidden"]:
        x = self.linear(x)
        if self.pointwise:
            return jax.nn.relu(x)
        assert self.bilinear is not None
        keep = jax.lax.optimization_barrier
        if self.hidden.is_permutation:
            # Without barriers XLA computes all of this again for each sum in the layer that comes next.
            return keep(gated(self.hidden, self.bilinear(keep(x))))
        # Without the barrier XLA computes the products again for each row that a gate scales.
        return gated(self.hidden, keep(self.bilinear(x)))


def _gain(family: Family, style: Style) -> float:
    """What a layer is scaled by at the start.

    Equivariant layers keep the second moment through ReLU, or x·σ(x). Dense ones keep it before the nonlinearity: in a
    run at √2 their values rose far above the largest possible return (docs/reproduction.md).
    """
    if family is Dense:
        return 1.0
    return 1.7 if style == "emlp" else float(np.sqrt(2.0))


def _require_sight(source: Rep, hidden: Rep, target: Rep, depth: int) -> None:
    """Refuse a part of the target that would be zero for every input: no chain of products leads to it.

    Where the group permutes all coordinates, nonlinearities reach whatever can be reached.
    """
    if hidden.is_permutation:
        return
    inside, entry, leave = isotypic(with_gates(hidden), source, target)
    paths = product_paths(with_gates(hidden))
    reached = {i for i, irrep in enumerate(inside.irreps) if irrep.is_trivial or entry.multiplicity[i]}
    for _ in range(depth):
        reached |= {path.target for path in paths if {path.first, path.second} <= reached}
    for (atom, _), block in zip(target.blocks, leave.blocks, strict=True):
        if any(index not in reached for index, _ in block.splitting.pieces):
            raise InputError(
                f"an equivariant network of {depth} layers from {source} to {atom} of {source.group} is always 0: "
                "nothing that it reads transforms like it, nor do products of that; declare what does, or use vanilla"
            )


class Network(eqx.Module):
    """Hidden blocks and a linear head between two representations; copies of an atom stand one after the other."""

    blocks: tuple[Block, ...]
    head: Linear
    source: Rep = eqx.field(static=True)
    target: Rep = eqx.field(static=True)

    def __init__(
        self,
        family: Family,
        source: Rep,
        target: Rep,
        *,
        key: Key,
        width: int = WIDTH,
        depth: int = 2,
        style: Style = "plain",
        head_scale: float = 1.0,
    ) -> None:
        self.source, self.target = source, target
        if family is Relaxed and style == "emlp":  # also where a target happens to be regular, as Ant's legs are
            family = partial(Relaxed, per_element=False)
        hidden = hidden_rep(source.group, width, style, source, target)
        if style == "emlp" and family is not Residual:  # whose free part sees all
            _require_sight(source, hidden, target, depth)
        sources = [source] + [hidden] * (depth - 1)
        self.blocks = tuple(
            Block(family, entry, hidden, style, key=named_key(key, "block", i)) for i, entry in enumerate(sources)
        )
        self.head = family(hidden, target, key=named_key(key, "head"), scale=head_scale)

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        return self.read(self.features(x))

    def features(self, x: Float[Array, " source"], order: Sequence[int] | None = None) -> Float[Array, " hidden"]:
        """The last hidden layer; `order` is where the source's entries stand in x, if not one after the other."""
        x = reordered(x, _stored(self.source, order))
        for block in self.blocks:
            x = block(x)
        return x

    def read(self, features: Float[Array, " hidden"], order: Sequence[int] | None = None) -> Float[Array, " target"]:
        """The head; `order` is where the target's entries shall stand, if not one after the other."""
        return reordered(self.head(features), np.argsort(_stored(self.target, order)))


def _stored(rep: Rep, order: Sequence[int] | None) -> np.ndarray:
    """Index from a vector's own order to the stored one: two permutations as one, and often none at all."""
    stored = storage_order(rep)
    return stored if order is None else np.asarray(order)[stored]


Member = TypeVar("Member", bound=eqx.Module)


def ensemble(make: Callable[[Key], Member], size: int, key: Key) -> Member:
    """`size` independent models with stacked parameters; apply them with `jax.vmap` over the model."""
    return jax.vmap(make)(jax.random.split(key, size))
