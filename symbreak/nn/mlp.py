"""Networks of any linear family, acting on one flat vector in its own order.

A network is hidden blocks and a linear head. Three kinds of block exist: plain (dense, ReLU), regular (equivariant maps
between copies of the regular representation, ReLU) and EMLP (equivariant map, plus bilinear products, gated).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from symbreak.errors import InputError
from symbreak.nn.activation import gated, require_pointwise, with_gates
from symbreak.nn.bilinear import Bilinear
from symbreak.nn.keys import Key, named_key
from symbreak.nn.linear import Dense, Linear
from symbreak.symmetry.basis import split_into_irreducibles
from symbreak.symmetry.group import Group
from symbreak.symmetry.rep import Atom, Rep

Family = Callable[..., Linear]
Style = Literal["plain", "regular", "emlp"]

# Copies of R, V, V⊗V, V⊗V⊗V at width 256, by group; other groups use the last row.
_SHARES: dict[str, tuple[float, ...]] = {
    "C2": (126, 55, 5),
    "C4": (136, 30),
    "SO(3)": (70, 23, 7, 2),
}
_WIDTH = 256


@lru_cache(maxsize=256)
def hidden_rep(group: Group, width: int, style: Style) -> Rep:
    """A hidden representation of about equal parts of the group's small tensors, exactly `width` wide."""
    if style == "plain":
        return width * group.trivial
    if style == "regular":
        if not group.is_finite or width % group.order:
            raise InputError(f"a regular network under {group} needs a finite group and a width divisible by its order")
        return (width // group.order) * group.regular
    copies = _SHARES.get(group.name)
    powers = [_tensor(group, power) for power in range(len(copies) if copies else 3)]
    if copies is None:
        # Half scalars, the rest vectors and, where they are small, their products.
        copies = (0, int(0.43 * _WIDTH / powers[1].size), int(0.08 * _WIDTH / powers[2].size))
    scaled = [max(1, round(count * width / _WIDTH)) if count else 0 for count in copies[1:]]
    used = sum(count * powers[i + 1].size for i, count in enumerate(scaled))
    if used >= width:
        raise InputError(f"width {width} is too small for hidden tensors of {group}: use at least {2 * used}")
    rep = (width - used) * group.trivial
    for power, count in enumerate(scaled, start=1):
        if count:
            rep = rep + count * powers[power]
    return rep


def _tensor(group: Group, power: int) -> Atom:
    """V⊗…⊗V; where the group does more than permute its coordinates, in a basis that shows its irreducible parts."""
    tensors = tuple(group.vector**lower for lower in range(power + 1))
    if power < 2 or tensors[power].is_permutation:
        return tensors[power]
    turn = split_into_irreducibles(tensors)[1][tensors[power]].transform
    images = [np.round(turn @ m @ turn.T, 14) for m in (*tensors[power].matrices, *tensors[power].lie)]
    return group.atom(tensors[power].name, images[: len(group.matrices)], images[len(group.matrices) :])


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
        gain = np.sqrt(2.0) if self.pointwise else 1.7  # what ReLU, or x·σ(x), takes from the second moment
        self.linear = family(source, target, key=named_key(key, "linear"), scale=gain)
        self.bilinear = None if self.pointwise else Bilinear(target, key=named_key(key, "bilinear"))

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " hidden"]:
        x = self.linear(x)
        if self.pointwise:
            return jax.nn.relu(x)
        assert self.bilinear is not None
        return gated(self.hidden, self.bilinear(x))


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
        width: int = _WIDTH,
        depth: int = 2,
        style: Style = "plain",
        head_scale: float = 1.0,
    ) -> None:
        self.source, self.target = source, target
        hidden = hidden_rep(source.group, width, style)
        sources = [source] + [hidden] * (depth - 1)
        self.blocks = tuple(
            Block(family, entry, hidden, style, key=named_key(key, "block", i)) for i, entry in enumerate(sources)
        )
        self.head = family(hidden, target, key=named_key(key, "head"), scale=head_scale)

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        return self.read(self.features(x))

    def features(self, x: Float[Array, " source"]) -> Float[Array, " hidden"]:
        """The last hidden layer."""
        x = _reorder(x, self.source.component_order)
        for block in self.blocks:
            x = block(x)
        return x

    def read(self, features: Float[Array, " hidden"]) -> Float[Array, " target"]:
        """The head, in the target's own order."""
        return _reorder(self.head(features), np.argsort(self.target.component_order))


def _reorder(x: Array, order: np.ndarray) -> Array:
    return x if np.array_equal(order, np.arange(len(order))) else x[order]


Member = TypeVar("Member", bound=eqx.Module)


def ensemble(make: Callable[[Key], Member], size: int, key: Key) -> Member:
    """`size` independent models with stacked parameters; apply them with `jax.vmap` over the model."""
    return jax.vmap(make)(jax.random.split(key, size))
