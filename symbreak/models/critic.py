"""Action values: one output per discrete action, or twin values of a continuous pair."""

from __future__ import annotations

from symbreak.models.model import Model, make_model, style_for
from symbreak.nn.keys import Key
from symbreak.nn.mlp import Family, ensemble
from symbreak.symmetry.layout import Symmetry
from symbreak.symmetry.rep import as_rep

# A value network that starts at O(1) stays above every possible return for tens of thousands of steps.
HEAD_SCALE = 0.01


def make_action_values(family: Family, symmetry: Symmetry, *, key: Key, width: int) -> Model:
    """Observation → value of every discrete action."""
    return make_model(
        family,
        symmetry.observation,
        symmetry.action,
        key=key,
        style=style_for(symmetry),
        width=width,
        head_scale=HEAD_SCALE,
    )


def make_twin_critic(family: Family, symmetry: Symmetry, *, key: Key, width: int, depth: int = 2) -> Model:
    """Two independent maps (observation, action) → value, with stacked parameters."""
    pair = symmetry.observation.beside(symmetry.action)

    def single(member_key: Key) -> Model:
        return make_model(
            family,
            pair,
            as_rep(symmetry.group.trivial),
            key=member_key,
            style=style_for(symmetry),
            width=width,
            depth=depth,
            head_scale=HEAD_SCALE,
        )

    return ensemble(single, 2, key)
