"""Groups that permute states and actions, and what is left of an MDP when it is averaged over one.

The average M_E has R_E(s,a) = mean_g R(gs,ga) and P_E(s'|s,a) = mean_g P(gs'|gs,ga). In terms of successors: take the
rows of the image pair (gs, ga) and carry each successor back by g⁻¹. Forgetting the inverse still yields a valid MDP,
but not an invariant one as soon as some element differs from its inverse.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from symbreak.errors import InputError
from symbreak.theory.mdp import PairMask, PairValues, Tables, TabularMDP, mixture, total_variation

OrbitWeights = NDArray[np.float64]  # (order, states, actions)
TOLERANCE = 1e-10  # far above the rounding of an average of a few float64, far below any probability that matters


@dataclass(frozen=True, eq=False)
class PermutationAction:
    """A finite group acting on states and actions: element g sends s to `states[g, s]` and a to `actions[g, a]`."""

    states: NDArray[np.int32]
    actions: NDArray[np.int32]

    def __post_init__(self) -> None:
        if self.states.ndim != 2 or self.actions.ndim != 2 or len(self.states) != len(self.actions):
            raise InputError(
                f"state permutations {self.states.shape} and action permutations {self.actions.shape} "
                "need one row per group element each"
            )
        for name, table in (("state", self.states), ("action", self.actions)):
            if not (np.sort(table, axis=1) == np.arange(table.shape[1])).all():
                raise InputError(f"a row of the {name} permutations is not a permutation; check the index table")
        moved = np.concatenate([self.states, self.states.shape[1] + self.actions], axis=1)
        listed = Counter(row.tobytes() for row in moved)
        if len(set(listed.values())) > 1:
            raise InputError("the permutations repeat unevenly, so they are no group action; list each element once")
        for g, permutation in enumerate(moved):
            for h, composed in enumerate(permutation[moved]):
                if composed.tobytes() not in listed:
                    raise InputError(f"elements {g} and {h} compose to a permutation that is not listed; add it")

    @classmethod
    def from_tables(cls, tables: Tables) -> PermutationAction:
        """The action that a task exports beside its MDP."""
        return cls(np.asarray(tables.state_permutations, np.int32), np.asarray(tables.action_permutations, np.int32))

    @classmethod
    def generated_by(cls, states: ArrayLike, actions: ArrayLike, limit: int = 1000) -> PermutationAction:
        """The group that the given permutations (one row per generator) generate, identity first."""
        state_rows, action_rows = np.asarray(states, np.int32), np.asarray(actions, np.int32)
        count = state_rows.shape[1]
        generators = np.concatenate([state_rows, count + action_rows], axis=1)  # states and actions move together
        elements = [np.arange(generators.shape[1], dtype=np.int32)]
        seen = {elements[0].tobytes()}
        for element in elements:  # grows while it is walked: breadth first
            for composed in generators[:, element]:
                if (key := composed.tobytes()) not in seen:
                    seen.add(key)
                    elements.append(composed)
            if len(elements) > limit:
                raise InputError(f"the generators make more than {limit} elements; raise the limit or check them")
        table = np.stack(elements)
        return cls(table[:, :count], table[:, count:] - np.int32(count))

    @property
    def order(self) -> int:
        return len(self.states)

    @cached_property
    def inverse_states(self) -> NDArray[np.int32]:
        """Row g holds the permutation of states by g⁻¹."""
        return np.argsort(self.states, axis=1).astype(np.int32)

    @cached_property
    def identity(self) -> int:
        """The index of an element that moves nothing."""
        fixed = (self.states == np.arange(self.states.shape[1])).all(axis=1)
        fixed &= (self.actions == np.arange(self.actions.shape[1])).all(axis=1)
        return int(fixed.argmax())

    def at_image(self, values: NDArray, element: int) -> NDArray:
        """`values[gs, ga]` at (s, a), for an array that begins with state and action axes."""
        return values[self.states[element]][:, self.actions[element]]


def rows_of_images(mdp: TabularMDP, action: PermutationAction, element: int) -> TabularMDP:
    """At (s, a) stand the reward and the successors of (gs, ga), the successors not carried back."""
    return TabularMDP(
        action.at_image(mdp.next_state, element),
        action.at_image(mdp.probability, element),
        action.at_image(mdp.reward, element),
        mdp.gamma,
    )


def pulled_back(mdp: TabularMDP, action: PermutationAction, element: int) -> TabularMDP:
    """The MDP seen through g: reward R(gs,ga) and kernel P(gs'|gs,ga). It equals `mdp` when g is a symmetry."""
    images = rows_of_images(mdp, action, element)
    carried_back = action.inverse_states[element][images.next_state]
    return TabularMDP(carried_back, images.probability, images.reward, mdp.gamma)


def member_weights(action: PermutationAction, members: PairMask, counts: PairValues | None = None) -> OrbitWeights:
    """Weights (group, state, action) of an average that runs over the members of each orbit of pairs.

    A pair that is no member is left alone: all its weight is on the identity. With `counts` (visits per pair, for
    example of a replay buffer) members weigh by their counts; an orbit that was never visited is averaged uniformly.
    """
    share = np.stack([action.at_image(members, g) for g in range(action.order)]).astype(np.float64)
    if counts is not None:
        visited = share * np.stack([action.at_image(counts, g) for g in range(action.order)])
        share = np.where(visited.sum(axis=0) > 0.0, visited, share)
    alone = np.zeros(action.order)
    alone[action.identity] = 1.0
    share = np.where(members, share, alone[:, None, None])
    return share / share.sum(axis=0)


def group_average(mdp: TabularMDP, action: PermutationAction, weights: OrbitWeights | None = None) -> TabularMDP:
    """The invariant MDP M_E: uniform over the group, or over the members that `weights` keeps."""
    if weights is None:
        weights = np.full((action.order, *mdp.reward.shape), 1.0 / action.order)
    return mixture(list(weights), [pulled_back(mdp, action, g) for g in range(action.order)])


def orbit_mean(values: PairValues, action: PermutationAction, weights: OrbitWeights) -> PairValues:
    """Π: the weighted mean of a function of pairs over each orbit. A sup-norm non-expansion for convex weights."""
    return sum(
        (weights[g] * action.at_image(values, g) for g in range(action.order)),
        np.zeros_like(values, dtype=np.float64),
    )


@dataclass(frozen=True, eq=False)
class Discrepancy:
    """How far two MDPs on the same spaces are apart at each pair."""

    reward: PairValues  # ε_R: absolute difference of rewards
    transition: PairValues  # ε_P: total variation between next-state distributions

    @property
    def broken(self) -> PairMask:
        """Pairs where the two differ at all."""
        return (self.reward > TOLERANCE) | (self.transition > TOLERANCE)

    def one_step_bound(self, gamma: float, value_bound: float) -> PairValues:
        """δ = ε_R + 2γ V ε_P, for values that nowhere exceed `value_bound` in absolute value."""
        return self.reward + 2.0 * gamma * value_bound * self.transition


def discrepancy(first: TabularMDP, second: TabularMDP) -> Discrepancy:
    """ε_R and ε_P between two MDPs, usually the true one and its group average."""
    return Discrepancy(np.abs(first.reward - second.reward), total_variation(first, second))


def invariance_error(mdp: TabularMDP, action: PermutationAction) -> float:
    """The largest ε_R or ε_P between the MDP and its image under any element: zero exactly when it is invariant."""
    worst = 0.0
    for g in range(action.order):
        difference = discrepancy(mdp, pulled_back(mdp, action, g))
        worst = max(worst, float(difference.reward.max()), float(difference.transition.max()))
    return worst
