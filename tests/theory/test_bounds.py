"""The four statements on 200 random MDPs, with controls that show the statements can fail."""

import numpy as np

from symbreak.theory import (
    affinity,
    backup,
    contraction,
    discrepancy,
    one_step_error,
    partially_invariant,
    policy_iteration,
    proximity,
    residual_gap,
    soft_backup,
    strict_gate,
    value_gap,
)
from symbreak.theory.operators import evaluation_backup


def solved(cases):
    return [(case, policy_iteration(case.true, 1e-10).values) for case in cases]


def test_there_are_200_and_they_break_the_symmetry(cases):
    assert len(cases) == 200
    assert sum(discrepancy(case.true, case.average).broken.any() for case in cases) > 150
    assert len({case.action.order for case in cases}) >= 5


def test_one_step_error_bounds_every_pair(cases):
    loosened = []
    for case in cases:
        claim = one_step_error(case.true, case.average, case.values())
        assert claim.holds(1e-9)
        half = discrepancy(case.true, case.average).one_step_bound(case.true.gamma, 0.0)
        loosened.append((claim.left > half + 1e-9).any())
    assert np.mean(loosened) > 0.5  # control: without the transition term the claim is false


def test_value_gap(cases):
    claims = [value_gap(case.true, case.average) for case in cases]
    assert all(claim.holds(1e-9) for claim in claims)
    assert max(claim.tightness for claim in claims) > 0.1
    # Control: errors grow on their way, so the largest one-step error does not bound the gap.
    one_step = [np.abs(backup(case.true, q) - backup(case.average, q)).max() for case, q in solved(cases)]
    assert any(claim.left > local + 1e-9 for claim, local in zip(claims, one_step, strict=True))


def test_affinity_is_an_identity(cases):
    swapped = []
    for case in cases:
        q = case.values()
        claim = affinity(case.true, case.average, case.gate, q)
        assert claim.error <= 1e-12
        wrong = case.gate * backup(case.average, q) + (1.0 - case.gate) * backup(case.true, q)
        swapped.append(np.abs(wrong - claim.left).max())
    assert np.median(swapped) > 1e-2  # control: experts exchanged


def test_soft_evaluation_is_affine_in_the_gate(cases):
    for case in cases:
        q, policy = case.values(), case.policy()
        assert affinity(case.true, case.average, case.gate, q, policy, temperature=0.3).error <= 1e-12
        # Affine: the operator of the mean gate is the mean of the operators.
        other = case.rng.random(case.gate.shape)

        def applied(gate, case=case, q=q, policy=policy):
            return evaluation_backup(partially_invariant(case.true, case.average, gate), q, policy, 0.3)

        middle = applied(0.5 * (case.gate + other))
        np.testing.assert_allclose(middle, 0.5 * (applied(case.gate) + applied(other)), rtol=0.0, atol=1e-12)


def test_contraction_factor_is_at_most_gamma_and_gamma_is_attained(cases):
    for case in cases:
        blend = partially_invariant(case.true, case.average, case.gate)
        for mdp in (case.true, case.average, blend):
            first, second = case.values(), case.values()
            assert contraction(mdp, first, second).holds(1e-12 * np.abs(first - second).max())
            shifted = contraction(mdp, first, first + 1.0)
            np.testing.assert_allclose(shifted.left, mdp.gamma, rtol=1e-10)
            soft = np.abs(soft_backup(mdp, first, 0.5) - soft_backup(mdp, second, 0.5)).max()
            assert soft <= mdp.gamma * np.abs(first - second).max() * (1.0 + 1e-12)


def test_proximity(cases):
    inverted = []
    for case, q in solved(cases):
        blend = policy_iteration(partially_invariant(case.true, case.average, case.gate), 1e-10).values
        claim = proximity(case.true, case.average, case.gate, q, blend)
        assert claim.holds(1e-9)
        sharper = residual_gap(case.true, case.average, case.gate, q, blend)
        assert sharper.holds(1e-9)
        assert sharper.right <= claim.right + 1e-9
        wrong = residual_gap(case.true, case.average, 1.0 - case.gate, q, blend)
        inverted.append(not wrong.holds(1e-9))
    assert np.mean(inverted) > 0.01  # control: λ in the place of 1 − λ


def test_strict_oracle_brings_gap_and_bound_to_zero(cases):
    needed = 0
    for case, q in solved(cases):
        gate = strict_gate(case.true, case.action)
        claim = proximity(case.true, case.average, gate, q)
        assert claim.left <= 1e-9
        assert claim.right <= 1e-6  # what a discrepancy below the tolerance of `broken` may leave
        broken = np.argwhere(gate)
        if len(broken):
            opened = gate.copy()
            opened[tuple(broken[case.rng.integers(len(broken))])] = False
            needed += proximity(case.true, case.average, opened, q, q).right > 1e-6
    assert needed > 150  # control: one missed pair and the bound is no longer zero
