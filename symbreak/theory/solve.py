"""Fixed points of Bellman operators, each returned with a bound on its own error.

For a γ-contraction T with fixed point q*, ‖Tq − q*‖ ≤ γ/(1−γ) ‖Tq − q‖: the change of one sweep certifies the answer.
Sweeps alone need about log(tolerance)/log γ of them (two thousand at γ = 0.99); policy iteration replaces most of them
by sparse factorisations. In the grid-world the goal never changes within an episode, so the linear systems fall apart
into one small planar block per goal, and a factorisation costs no more than a hundred sweeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from symbreak.errors import InputError, NumericFault
from symbreak.theory.mdp import PairValues, StateValues, TabularMDP
from symbreak.theory.operators import backup, entropy, greedy_policy, soft_backup, soft_policy

AnyPolicy = NDArray  # integers (states): one action each; or floats (states, actions): probabilities
SWEEPS_PER_ROUND = 40  # between factorisations: enough for a value to cross the grid once, so few rounds are needed


@dataclass(frozen=True, eq=False)
class Solution:
    """Action values with a certificate: no entry is farther than `error` from the fixed point."""

    values: PairValues
    error: float
    rounds: int  # of policy improvement; for value iteration the number of sweeps


def certified_error(gamma: float, after: PairValues, before: PairValues) -> float:
    """γ/(1−γ) ‖Tq − q‖: the largest distance that Tq can have from the fixed point."""
    return gamma / (1.0 - gamma) * float(np.abs(after - before).max())


def value_iteration(mdp: TabularMDP, tolerance: float = 1e-8, start: PairValues | None = None) -> Solution:
    """Optimal action values by repeated backups, until they are certified to `tolerance`."""
    values = np.zeros_like(mdp.reward) if start is None else start
    for sweeps in range(SWEEPS_PER_ROUND, _sweep_limit(mdp, tolerance), SWEEPS_PER_ROUND):
        before = swept(mdp, values, SWEEPS_PER_ROUND - 1)
        values = swept(mdp, before, 1)
        error = certified_error(mdp.gamma, values, before)
        if error <= tolerance:
            return Solution(values, error, sweeps)
    raise NumericFault(f"value iteration did not reach {tolerance}; it is below what float64 can certify here")


def policy_iteration(mdp: TabularMDP, tolerance: float = 1e-8, start: PairValues | None = None) -> Solution:
    """Optimal action values by sweeps and exact evaluations in turn, certified in the same way."""
    values = np.zeros_like(mdp.reward) if start is None else start
    for round_ in range(1, 200):
        values = swept(mdp, values, SWEEPS_PER_ROUND)
        evaluated = policy_values(mdp, greedy_policy(values, tie=0.0))
        updated = backup(mdp, evaluated)
        error = certified_error(mdp.gamma, updated, evaluated)
        values = updated
        if error <= tolerance:
            return Solution(values, error, round_)
    raise NumericFault(f"policy iteration did not reach {tolerance}; it is below what float64 can certify here")


def swept(mdp: TabularMDP, values: PairValues, count: int) -> PairValues:
    """The values after `count` backups, in one loop without a call per sweep."""
    kernel, reward, gamma = mdp.kernel, mdp.reward, mdp.gamma
    for _ in range(count):
        values = (kernel @ reduce(np.maximum, values.T)).reshape(reward.shape)
        values *= gamma
        values += reward
    return values


def soft_policy_iteration(mdp: TabularMDP, temperature: float, tolerance: float = 1e-8) -> Solution:
    """Entropy-regularised optimal action values: exact soft evaluation and soft improvement in turn."""
    if temperature <= 0.0:
        raise InputError(f"temperature is {temperature}; soft iteration needs a positive one")
    values = mdp.reward
    for round_ in range(1, 200):
        evaluated = policy_values(mdp, soft_policy(values, temperature), temperature)
        values = soft_backup(mdp, evaluated, temperature)
        error = certified_error(mdp.gamma, values, evaluated)
        if error <= tolerance:
            return Solution(values, error, round_)
    raise NumericFault(f"soft policy iteration did not reach {tolerance}; raise the tolerance or the temperature")


def policy_values(mdp: TabularMDP, policy: AnyPolicy, temperature: float = 0.0) -> PairValues:
    """Q^π, exactly. The policy is one action per state (integers) or probabilities (state, action)."""
    reward, kernel = under_policy(mdp, policy)
    if temperature:
        reward = reward + temperature * entropy(policy)
    system = sparse.eye_array(mdp.states, format="csr") - mdp.gamma * kernel
    state_values = splu(system.tocsc()).solve(reward)
    return mdp.reward + mdp.gamma * mdp.expectation(state_values)


def under_policy(mdp: TabularMDP, policy: AnyPolicy) -> tuple[StateValues, sparse.csr_array]:
    """Reward per state and the state-to-state matrix when the policy chooses."""
    if policy.ndim == 1:
        chosen = np.arange(mdp.states) * mdp.actions + policy
        return mdp.reward.ravel()[chosen], mdp.kernel[chosen]
    pointers = np.arange(mdp.states + 1) * mdp.actions
    shape = (mdp.states, mdp.states * mdp.actions)
    selection = sparse.csr_array((policy.ravel(), np.arange(policy.size), pointers), shape=shape)
    return (policy * mdp.reward).sum(axis=1), sparse.csr_array(selection @ mdp.kernel)


def episode_return(
    mdp: TabularMDP, policy: AnyPolicy, start: StateValues, horizon: int = 100, discounted: bool = False
) -> float:
    """Expected return of `horizon` steps from the start distribution, by backward recursion (nothing is sampled)."""
    reward, kernel = under_policy(mdp, policy)
    factor = mdp.gamma if discounted else 1.0
    to_go = np.zeros(mdp.states)
    for _ in range(horizon):
        to_go = reward + factor * (kernel @ to_go)
    return float(start @ to_go)


def _sweep_limit(mdp: TabularMDP, tolerance: float) -> int:
    scale = max(2.0 * mdp.value_bound / ((1.0 - mdp.gamma) * tolerance), 1.0)
    return int(np.log(scale) / -np.log(mdp.gamma)) + 3 * SWEEPS_PER_ROUND
