"""Gates that know the kernel: the ground truth that a learned gate is judged by.

`strict` marks every pair that differs from the average of its orbit. `minority` marks a pair when at most half of its
orbit behaves as it does; the others then agree among themselves, so they can share one expert without error. A value
gate looks further: it marks pairs whose optimal value is not shared by their orbit, whatever the next step does.

Averages run over the free members of an orbit (`free`: states on cells that an agent and a goal can occupy), because an
image that never occurs must not make a pair look broken. Other pairs are never marked. Without `free` all states count.
"""

from __future__ import annotations

import numpy as np

from symbreak.theory.averaging import (
    TOLERANCE,
    Discrepancy,
    PermutationAction,
    discrepancy,
    group_average,
    member_weights,
    orbit_mean,
    pulled_back,
)
from symbreak.theory.mdp import PairMask, PairValues, StateMask, TabularMDP


def free_pairs(mdp: TabularMDP, free: StateMask | None) -> PairMask:
    """Pairs whose state is free; all of them when nothing is said."""
    if free is None:
        return np.ones(mdp.reward.shape, bool)
    return np.broadcast_to(np.asarray(free, bool)[:, None], mdp.reward.shape)


def breaking(mdp: TabularMDP, action: PermutationAction, free: StateMask | None = None) -> Discrepancy:
    """ε_R and ε_P against the average over the free members of each orbit."""
    weights = member_weights(action, free_pairs(mdp, free))
    return discrepancy(mdp, group_average(mdp, action, weights))


def strict_gate(mdp: TabularMDP, action: PermutationAction, free: StateMask | None = None) -> PairMask:
    """1[ε_R > 0 or ε_P > 0]. The only gate here for which the proximity bound is zero."""
    return breaking(mdp, action, free).broken


def agreement(mdp: TabularMDP, action: PermutationAction, free: StateMask | None = None) -> PairValues:
    """The share of the orbit's free members that behave like the pair (1 outside the free states).

    Member g behaves alike when its reward and its successors, carried back by g⁻¹, are those of the pair.
    """
    members = free_pairs(mdp, free)
    alike, present = np.zeros(mdp.reward.shape), np.zeros(mdp.reward.shape)
    for g in range(action.order):
        counted = action.at_image(members, g)
        difference = discrepancy(mdp, pulled_back(mdp, action, g))
        alike += counted & (difference.reward <= TOLERANCE) & (difference.transition <= TOLERANCE)
        present += counted
    return np.where(members, alike / np.maximum(present, 1.0), 1.0)


def minority_gate(mdp: TabularMDP, action: PermutationAction, free: StateMask | None = None) -> PairMask:
    """Pairs that at most half of their orbit's free members behave like; both sides of a tie are marked."""
    return agreement(mdp, action, free) <= 0.5 + TOLERANCE


def value_gate(
    mdp: TabularMDP,
    action: PermutationAction,
    optimal_q: PairValues,
    free: StateMask | None = None,
    threshold: float = 0.02,
) -> PairMask:
    """Pairs whose optimal value lies more than `threshold` from the mean over the free members of their orbit."""
    weights = member_weights(action, free_pairs(mdp, free))
    return np.abs(optimal_q - orbit_mean(optimal_q, action, weights)) > threshold
