"""A network that reads and writes flat vectors in a user's own index order."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from symbreak.nn.keys import Key
from symbreak.nn.linear import Dense
from symbreak.nn.mlp import Family, Network, Style
from symbreak.symmetry.layout import Layout, Symmetry
from symbreak.symmetry.rep import Rep


class Model(eqx.Module):
    """`network` between two layouts; the permutation between a layout's order and its representation's is static."""

    network: Network
    source: tuple[int, ...] = eqx.field(static=True)
    target: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Float[Array, " source"]) -> Float[Array, " target"]:
        return self.read(self.features(x))

    def features(self, x: Float[Array, " source"]) -> Float[Array, " hidden"]:
        return self.network.features(x, self.source)

    def read(self, features: Float[Array, " hidden"]) -> Float[Array, " target"]:
        return self.network.read(features, self.target)


def make_model(
    family: Family,
    source: Layout,
    target: Layout | Rep,
    *,
    key: Key,
    style: Style,
    width: int,
    depth: int = 2,
    head_scale: float = 1.0,
) -> Model:
    """A model of one family; dense families use plain hidden layers whatever the style of the others."""
    rep, order = (target, tuple(range(target.size))) if isinstance(target, Rep) else (target.rep, target.order)
    entry = source.rep
    if family is Dense:  # what ignores the symmetry needs no order but the user's own
        trivial = entry.group.trivial
        return Model(
            Network(
                family,
                source.size * trivial,
                rep.size * trivial,
                key=key,
                width=width,
                depth=depth,
                head_scale=head_scale,
            ),
            tuple(range(source.size)),
            tuple(range(rep.size)),
        )
    network = Network(
        family,
        entry,
        rep,
        key=key,
        width=width,
        depth=depth,
        style=style,
        head_scale=head_scale,
    )
    return Model(network, source.order, order)


def plain_layout(symmetry: Symmetry, size: int) -> Layout:
    """A vector on which the symmetry is not used."""
    return Layout({"vector": size * symmetry.group.trivial})


def style_for(symmetry: Symmetry) -> Style:
    """Regular networks for finite groups on discrete actions, tensor networks (EMLP) elsewhere."""
    return "regular" if symmetry.discrete and symmetry.group.is_finite else "emlp"
