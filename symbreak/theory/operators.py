"""Bellman operators, hard and soft, and the partially invariant MDP that a gate makes of two MDPs.

An operator belongs to an MDP: `backup(true, q)` is T_N, `backup(average, q)` is T_E, and
`backup(partially_invariant(true, average, gate), q)` is T_H.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, softmax, xlogy

from symbreak.errors import InputError
from symbreak.theory.mdp import PairValues, StateMask, StateValues, TabularMDP, mixture

Policy = NDArray[np.int64]  # (states)
TIE = 1e-9  # actions whose values differ by less count as equally good


def greedy_value(q: PairValues) -> StateValues:
    """max_a q(s, a)."""
    return reduce(np.maximum, q.T)  # column by column: several times faster than a maximum over a short last axis


def greedy_policy(q: PairValues, tie: float = TIE) -> Policy:
    """The best action of each state; among equally good ones the lowest index."""
    return (q >= greedy_value(q)[:, None] - tie).argmax(axis=1)


def has_tie(q: PairValues, tie: float = TIE) -> StateMask:
    """States in which more than one action is best, so that the greedy policy depends on the order of actions."""
    return (q >= greedy_value(q)[:, None] - tie).sum(axis=1) > 1


def undecided_policy(q: PairValues, tie: float = TIE) -> PairValues:
    """The greedy policy that draws among equally good actions, as probabilities."""
    best = q >= greedy_value(q)[:, None] - tie
    return best / best.sum(axis=1, keepdims=True)


def soft_value(q: PairValues, temperature: float) -> StateValues:
    """α log Σ_a exp(q(s,a)/α): the value of the best policy when its entropy is rewarded at rate α."""
    return temperature * logsumexp(q / temperature, axis=1)


def soft_policy(q: PairValues, temperature: float) -> PairValues:
    """The policy that attains `soft_value`: probabilities proportional to exp(q/α)."""
    return softmax(q / temperature, axis=1)


def entropy(policy: PairValues) -> StateValues:
    """−Σ_a π(a|s) log π(a|s)."""
    return -xlogy(policy, policy).sum(axis=1)


def backup(mdp: TabularMDP, q: PairValues) -> PairValues:
    """(T q)(s,a) = R(s,a) + γ E[max_a' q(s',a')]: the optimality operator of `mdp`."""
    return mdp.reward + mdp.gamma * mdp.expectation(greedy_value(q))


def soft_backup(mdp: TabularMDP, q: PairValues, temperature: float) -> PairValues:
    """The entropy-regularised optimality operator: the soft value takes the place of the maximum."""
    return mdp.reward + mdp.gamma * mdp.expectation(soft_value(q, temperature))


def evaluation_backup(mdp: TabularMDP, q: PairValues, policy: PairValues, temperature: float = 0.0) -> PairValues:
    """(T^π q)(s,a) = R + γ E[Σ_a' π(a'|s')(q(s',a') − α log π(a'|s'))] for a policy given as probabilities."""
    values = (policy * q).sum(axis=1) + temperature * entropy(policy)
    return mdp.reward + mdp.gamma * mdp.expectation(values)


def checked_gate(gate: ArrayLike, shape: tuple[int, ...]) -> PairValues:
    """The gate as floats, refused unless it has one probability per pair."""
    values = np.asarray(gate, np.float64)
    if values.shape != shape:
        raise InputError(f"the gate has shape {values.shape}, the MDP has pairs {shape}; give one value per pair")
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise InputError("the gate leaves [0, 1]; it is the probability that the symmetry is broken at a pair")
    return values


def partially_invariant(true: TabularMDP, average: TabularMDP, gate: ArrayLike) -> TabularMDP:
    """M_H: at each pair the true rows with probability `gate` (λ), the invariant ones otherwise."""
    routed = checked_gate(gate, true.reward.shape)
    return mixture([1.0 - routed, routed], [average, true])
