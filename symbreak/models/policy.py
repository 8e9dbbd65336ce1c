"""Policies: a Gaussian whose mean turns as the action and whose width turns as the action's magnitude."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from symbreak.models.distribution import Blocks, SquashedGaussian, positive_std, radial_blocks
from symbreak.models.model import Model, make_model, style_for
from symbreak.nn.keys import Key
from symbreak.nn.mlp import Family
from symbreak.symmetry.layout import Layout, Symmetry


class Policy(eqx.Module):
    """Observation → squashed Gaussian over actions."""

    model: Model
    action_size: int = eqx.field(static=True)
    spread: tuple[int, ...] = eqx.field(static=True)  # which raw width each action entry uses
    radial: Blocks = eqx.field(static=True)

    def __call__(self, observation: Float[Array, " observation"]) -> SquashedGaussian:
        return self.read(self.model.features(observation))

    def read(self, features: Float[Array, " hidden"]) -> SquashedGaussian:
        output = self.model.read(features)
        raw = output[self.action_size :][np.array(self.spread)]
        return SquashedGaussian(output[: self.action_size], positive_std(raw), self.radial)


def make_policy(
    family: Family, symmetry: Symmetry, *, key: Key, width: int, radial: bool = True, depth: int = 2
) -> Policy:
    """A policy of one family; `radial` squashes vector actions by length, as the symmetry requires."""
    action = symmetry.action
    target = action.beside(Layout({"magnitude": action.rep.magnitude}))
    model = make_model(
        family,
        symmetry.observation,
        target,
        key=key,
        style=style_for(symmetry),
        width=width,
        depth=depth,
        head_scale=0.01,
    )
    # Entry i of the action stands at position order⁻¹(i) of the representation.
    spread = action.rep.magnitude_index[np.argsort(action.order)]
    return Policy(model, action.size, tuple(spread.tolist()), radial_blocks(action) if radial else ())
