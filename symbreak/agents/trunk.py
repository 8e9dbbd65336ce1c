"""One equivariant trunk for all experts, as an ablation: critics and policies are heads on shared features.

The values train the trunk; the policies read a copy that follows it after every step. The trunk's parameters stand
beside the equivariant expert's, so that everything else about an expert stays as it is.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from symbreak.models.learner import Learner
from symbreak.models.model import Model, make_model, style_for
from symbreak.nn.hidden import hidden_rep
from symbreak.nn.keys import Key
from symbreak.nn.linear import Equivariant
from symbreak.symmetry.layout import Layout, Symmetry
from symbreak.symmetry.rep import Rep


class Trunked(eqx.Module):
    """The equivariant expert of a shared trunk, with the trunk."""

    trunk: Model
    head: Any


def make_trunk(symmetry: Symmetry, *, key: Key, width: int) -> Model:
    """Observation → features, one hidden layer."""
    style = style_for(symmetry)
    features = _features(symmetry, width)
    return make_model(Equivariant, symmetry.observation, features, key=key, style=style, width=width, depth=1)


def behind_trunk(symmetry: Symmetry, width: int) -> Symmetry:
    """The symmetry as heads see it: features instead of observations."""
    features = Layout({"features": _features(symmetry, width)})
    return Symmetry(features, symmetry.action, discrete=symmetry.discrete, name=symmetry.name)


def _features(symmetry: Symmetry, width: int) -> Rep:
    return hidden_rep(symmetry.group, width, style_for(symmetry), symmetry.observation.rep, symmetry.action.rep)


def through_trunk(models: tuple[Any, ...], observations: Float[Array, "batch _"]) -> tuple[tuple[Any, ...], Array]:
    """The heads of the experts and what they read: the observations themselves where no trunk is shared."""
    first = models[0]
    if not isinstance(first, Trunked):
        return models, observations
    return (first.head, *models[1:]), jax.vmap(first.trunk)(observations)


def follow(policies: tuple[Learner[Any], ...], critics: tuple[Learner[Any], ...]) -> tuple[Learner[Any], ...]:
    """The policies, reading the critics' present trunk."""
    trained = critics[0].model
    if not isinstance(trained, Trunked):
        return policies
    return (eqx.tree_at(lambda learner: learner.model.trunk, policies[0], trained.trunk), *policies[1:])
