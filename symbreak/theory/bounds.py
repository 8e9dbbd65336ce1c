"""The four statements about symmetry breaking, each returning both of its sides.

A bound that holds is not yet a bound that says much: with both sides in hand a caller can ask how tight it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from symbreak.theory.averaging import discrepancy
from symbreak.theory.mdp import PairValues, TabularMDP
from symbreak.theory.operators import backup, checked_gate, evaluation_backup, greedy_value, partially_invariant
from symbreak.theory.solve import policy_iteration

SOLVED = 1e-10  # how far a solution may be from its fixed point, well below the tolerance of any statement here


@dataclass(frozen=True, eq=False)
class Inequality:
    """`left` ≤ `right` is the claim, number by number."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]

    @property
    def slack(self) -> float:
        """The smallest amount by which the right side is larger; negative when the claim fails."""
        return float((self.right - self.left).min())

    @property
    def tightness(self) -> float:
        """Largest left side over largest right side: 1 when the bound is attained, 0/0 counts as attained."""
        largest = float(np.max(self.right))
        return float(np.max(self.left)) / largest if largest > 0.0 else 1.0

    def holds(self, tolerance: float = 1e-9) -> bool:
        return bool(self.slack >= -tolerance)


@dataclass(frozen=True, eq=False)
class Identity:
    """`left` = `right` is the claim, number by number."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]

    @property
    def error(self) -> float:
        return float(np.abs(self.left - self.right).max())


def one_step_error(true: TabularMDP, average: TabularMDP, q: PairValues) -> Inequality:
    """|T_N q − T_E q| ≤ ε_R + 2γ‖V_q‖ε_P at every pair: how much one backup feels the breaking."""
    left = np.abs(backup(true, q) - backup(average, q))
    largest = float(np.abs(greedy_value(q)).max())
    return Inequality(left, discrepancy(true, average).one_step_bound(true.gamma, largest))


def value_gap(
    true: TabularMDP, average: TabularMDP, true_q: PairValues | None = None, average_q: PairValues | None = None
) -> Inequality:
    """‖Q*_N − Q*_E‖ ≤ ‖δ‖/(1−γ): what repeated backups make of the one-step errors.

    Optimal values that the caller already has can be passed in.
    """
    return proximity(true, average, np.zeros_like(true.reward), true_q, average_q)


def affinity(
    true: TabularMDP,
    average: TabularMDP,
    gate: ArrayLike,
    q: PairValues,
    policy: PairValues | None = None,
    temperature: float = 0.0,
) -> Identity:
    """T_H q = (1−λ) T_E q + λ T_N q, for the optimality operator or, with a policy, for its soft evaluation."""
    routed = checked_gate(gate, true.reward.shape)
    blend = partially_invariant(true, average, routed)

    def applied(mdp: TabularMDP) -> PairValues:
        return backup(mdp, q) if policy is None else evaluation_backup(mdp, q, policy, temperature)

    return Identity(applied(blend), (1.0 - routed) * applied(average) + routed * applied(true))


def contraction(mdp: TabularMDP, first: PairValues, second: PairValues) -> Inequality:
    """‖T q − T q'‖ ≤ γ‖q − q'‖ for the optimality operator of `mdp`."""
    left = np.abs(backup(mdp, first) - backup(mdp, second)).max()
    return Inequality(np.asarray(left), np.asarray(mdp.gamma * np.abs(first - second).max()))


def proximity(
    true: TabularMDP,
    average: TabularMDP,
    gate: ArrayLike,
    true_q: PairValues | None = None,
    gated_q: PairValues | None = None,
) -> Inequality:
    """‖Q*_H − Q*_N‖ ≤ ‖(1−λ)δ‖/(1−γ): only the breaking that the gate misses counts."""
    routed = checked_gate(gate, true.reward.shape)
    true_q, gated_q = _solved(true, average, routed, true_q, gated_q)
    value_bound = max(true.value_bound, average.value_bound)
    missed = (1.0 - routed) * discrepancy(true, average).one_step_bound(true.gamma, value_bound)
    return Inequality(np.asarray(np.abs(gated_q - true_q).max()), np.asarray(missed.max() / (1.0 - true.gamma)))


def residual_gap(
    true: TabularMDP,
    average: TabularMDP,
    gate: ArrayLike,
    true_q: PairValues | None = None,
    gated_q: PairValues | None = None,
) -> Inequality:
    """‖Q*_H − Q*_N‖ ≤ ‖(1−λ)(T_E − T_N)Q*_N‖/(1−γ): the argument of `proximity` with the true values for V_max.

    Never looser, often by orders of magnitude, because V_max assumes the best reward at every step.
    """
    routed = checked_gate(gate, true.reward.shape)
    true_q, gated_q = _solved(true, average, routed, true_q, gated_q)
    missed = (1.0 - routed) * np.abs(backup(average, true_q) - backup(true, true_q))
    return Inequality(np.asarray(np.abs(gated_q - true_q).max()), np.asarray(missed.max() / (1.0 - true.gamma)))


def _solved(
    true: TabularMDP, average: TabularMDP, gate: PairValues, true_q: PairValues | None, gated_q: PairValues | None
) -> tuple[PairValues, PairValues]:
    """Q*_N and Q*_H, solved only where the caller did not bring them."""
    if true_q is None:
        true_q = policy_iteration(true, SOLVED).values
    if gated_q is None:
        gated_q = policy_iteration(partially_invariant(true, average, gate), SOLVED).values
    return true_q, gated_q
