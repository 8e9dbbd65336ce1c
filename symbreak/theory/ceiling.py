"""What an architecture can reach in the limit: orbit-tied Q-learning with the gate given.

Pairs that the gate calls symmetric share one value per orbit, gated pairs have their own. Tabular Q-learning under this
tie has the operator Π∘T_N, where Π averages backed-up values over the not-gated free members of each orbit. Π is a
sup-norm non-expansion, so Π∘T_N is a γ-contraction.

Π∘T_N is itself the optimality operator of an MDP: at a tied pair draw a member of the orbit, collect its reward, and
continue from *its* successor. So the fixed point needs no solver of its own. Compared with the group average M_E the
successor is not carried back; with nothing gated and every state free the two have the same optimal values, because
tied values cannot tell a state from its image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from symbreak.errors import InputError
from symbreak.theory.averaging import OrbitWeights, PermutationAction, member_weights, rows_of_images
from symbreak.theory.mdp import PairMask, PairValues, StateMask, StateValues, TabularMDP, mixture
from symbreak.theory.operators import Policy, greedy_policy, has_tie, undecided_policy
from symbreak.theory.oracle import free_pairs, minority_gate, strict_gate, value_gate
from symbreak.theory.solve import episode_return, policy_iteration


@dataclass(frozen=True, eq=False)
class Ceiling:
    """The fixed point of Π∘T_N for one gate, and what its greedy policy earns in the true environment."""

    values: PairValues
    policy: Policy
    mean_return: float  # undiscounted, over the horizon; among equally good actions the lowest index
    random_tie_return: float  # the same when equally good actions are drawn at random
    discounted_return: float
    gate_rate: float  # share of gated pairs among free states that are not the end of an episode
    tie_rate: float  # share of those states in which several actions are equally good


def hard_gate(gate: ArrayLike, shape: tuple[int, ...]) -> PairMask:
    """The gate as a mask; one that is not 0 or 1 everywhere has no tie to speak of and is refused."""
    values = np.asarray(gate)
    if values.shape != shape or not np.isin(values, (0, 1)).all():
        raise InputError(f"a tie needs a gate of zeros and ones with shape {shape}; threshold the gate first")
    return values.astype(bool)


def tied_weights(
    mdp: TabularMDP,
    action: PermutationAction,
    gate: ArrayLike,
    free: StateMask | None = None,
    counts: PairValues | None = None,
) -> OrbitWeights:
    """The weights of Π: the not-gated free members of each orbit, uniformly or by visit counts."""
    members = free_pairs(mdp, free) & ~hard_gate(gate, mdp.reward.shape)
    return member_weights(action, members, counts)


def tied_mdp(mdp: TabularMDP, action: PermutationAction, weights: OrbitWeights) -> TabularMDP:
    """The MDP whose optimality operator is Π∘T for the operator T of `mdp`."""
    return mixture(list(weights), [rows_of_images(mdp, action, g) for g in range(action.order)])


def start_distribution(mdp: TabularMDP, free: StateMask | None = None) -> StateValues:
    """Uniform over free states that are not the end of an episode."""
    live = free_pairs(mdp, free)[:, 0] & ~mdp.absorbing
    return live / live.sum()


def ceiling(
    mdp: TabularMDP,
    action: PermutationAction,
    gate: ArrayLike,
    free: StateMask | None = None,
    counts: PairValues | None = None,
    horizon: int = 100,
) -> Ceiling:
    """What orbit-tied Q-learning reaches with this gate. Gate 1 everywhere is the optimum, gate 0 the exact agent."""
    values = policy_iteration(tied_mdp(mdp, action, tied_weights(mdp, action, gate, free, counts))).values
    policy, start = greedy_policy(values), start_distribution(mdp, free)
    return Ceiling(
        values,
        policy,
        episode_return(mdp, policy, start, horizon),
        episode_return(mdp, undecided_policy(values), start, horizon),
        episode_return(mdp, policy, start, horizon, discounted=True),
        float(start @ np.asarray(gate, np.float64).mean(axis=1)),
        float(start @ has_tie(values)),
    )


def standard_gates(
    mdp: TabularMDP, action: PermutationAction, optimal_q: PairValues, free: StateMask | None = None
) -> Mapping[str, PairMask]:
    """The gates whose ceilings bracket a learned one; `value-level` joins the minority gate and the value gate."""
    minority = minority_gate(mdp, action, free)
    return {
        "exact": np.zeros(mdp.reward.shape, bool),
        "oracle-minority": minority,
        "oracle-strict": strict_gate(mdp, action, free),
        "value-level": minority | value_gate(mdp, action, optimal_q, free),
    }
