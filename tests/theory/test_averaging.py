"""The group average is invariant, is the definition, and needs its inverse."""

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.theory import (
    PermutationAction,
    TabularMDP,
    discrepancy,
    group_average,
    invariance_error,
    member_weights,
    mixture,
    orbit_mean,
    policy_iteration,
)
from symbreak.theory.averaging import rows_of_images


def average_without_inverse(mdp, action):
    """mean_g P(g⁻¹s'|gs,ga): the successors go forward once more instead of back."""
    parts = []
    for g in range(action.order):
        images = rows_of_images(mdp, action, g)
        parts.append(TabularMDP(action.states[g][images.next_state], images.probability, images.reward, mdp.gamma))
    return mixture([np.full(mdp.reward.shape, 1.0 / action.order)] * action.order, parts)


def test_average_is_the_definition_written_out(cases):
    for case in cases[:40]:
        kernel, reward = case.true.dense_kernel, case.true.reward
        averaged, mean_reward = np.zeros_like(kernel), np.zeros_like(reward)
        for moved, turned in zip(case.action.states, case.action.actions, strict=True):
            averaged += kernel[np.ix_(moved, turned, moved)] / case.action.order
            mean_reward += reward[np.ix_(moved, turned)] / case.action.order
        np.testing.assert_allclose(case.average.dense_kernel, averaged, atol=1e-14)
        np.testing.assert_allclose(case.average.reward, mean_reward, atol=1e-13)


def test_average_is_invariant_and_averaging_twice_changes_nothing(cases):
    for case in cases[:100]:
        assert invariance_error(case.average, case.action) < 1e-12
        again = discrepancy(case.average, group_average(case.average, case.action))
        assert max(again.reward.max(), again.transition.max()) < 1e-12
    # Control: the random MDPs themselves are not invariant.
    assert np.median([invariance_error(case.true, case.action) for case in cases[:100]]) > 0.1


@pytest.mark.parametrize("group", ["C3", "C4", "C6", "S3", "D4", "A4", "Q8"])
def test_missing_inverse_is_caught(action_of, group):
    rng = np.random.default_rng(3)
    action = action_of(rng, group)
    while (action.states == action.inverse_states).all():  # the group may act through a quotient of order two
        action = action_of(rng, group)
    states, actions = action.states.shape[1], action.actions.shape[1]
    kernel = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
    true = TabularMDP.from_dense(kernel, rng.normal(size=(states, actions)), 0.9)
    symmetric = group_average(true, action)
    wrong = average_without_inverse(true, action)
    assert invariance_error(wrong, action) > 1e-3
    # An invariant MDP is its own average; the wrong rule changes it.
    assert discrepancy(symmetric, average_without_inverse(symmetric, action)).transition.max() > 1e-3


def test_for_order_two_the_wrong_average_is_right_so_the_control_needs_larger_groups(action_of):
    action = action_of(np.random.default_rng(1), "C2")
    states, actions = action.states.shape[1], action.actions.shape[1]
    true = TabularMDP.from_dense(
        np.random.default_rng(2).dirichlet(np.ones(states), size=(states, actions)), np.zeros((states, actions)), 0.9
    )
    same = discrepancy(group_average(true, action), average_without_inverse(true, action))
    assert same.transition.max() < 1e-14


def test_optimal_values_are_shared_by_orbits_and_cannot_tell_a_wrong_average(cases):
    """Values shared by an orbit do not see which member a successor is, so only the rows show the missing inverse."""
    for case in cases[:30]:
        q = policy_iteration(case.average, 1e-11).values
        for g in range(case.action.order):
            np.testing.assert_allclose(case.action.at_image(q, g), q, atol=1e-9)
        wrong = policy_iteration(average_without_inverse(case.true, case.action), 1e-11).values
        np.testing.assert_allclose(wrong, q, atol=1e-9)
    case = cases[0]
    values = policy_iteration(case.true, 1e-11).values  # control: the true values are not shared
    assert max(np.abs(case.action.at_image(values, g) - values).max() for g in range(case.action.order)) > 1e-3


@pytest.mark.parametrize(("group", "order"), [("C4", 4), ("S3", 6), ("D4", 8), ("A4", 12), ("Q8", 8)])
def test_generated_groups_have_their_order(action_of, group, order):
    rng = np.random.default_rng(0)
    assert max(action_of(rng, group).order for _ in range(8)) == order


def test_what_is_no_group_is_refused():
    turn = np.array([[0, 1, 2, 3], [1, 2, 3, 0]], np.int32)
    with pytest.raises(InputError, match="not listed"):
        PermutationAction(turn, turn)
    with pytest.raises(InputError, match="not a permutation"):
        PermutationAction(np.zeros((1, 4), np.int32), np.arange(4, dtype=np.int32)[None])
    with pytest.raises(InputError, match="repeat unevenly"):
        PermutationAction(*2 * [np.array([[0, 1], [0, 1], [1, 0]], np.int32)])


def test_orbit_mean_is_a_projection_and_a_non_expansion(cases):
    for case in cases[:60]:
        members = case.rng.random(case.true.reward.shape) < 0.7
        weights = member_weights(case.action, members)
        np.testing.assert_allclose(weights.sum(axis=0), 1.0, atol=1e-12)
        values = case.values()
        once = orbit_mean(values, case.action, weights)
        np.testing.assert_allclose(orbit_mean(once, case.action, weights), once, atol=1e-11)
        np.testing.assert_array_equal(once[~members], values[~members])
        other = case.values()
        distance = np.abs(once - orbit_mean(other, case.action, weights)).max()
        assert distance <= np.abs(values - other).max() + 1e-12


def test_counts_weigh_members_and_unvisited_orbits_fall_back_to_uniform():
    turn = PermutationAction.generated_by([[1, 2, 3, 0, 4]], [[0]])
    members = np.array([[True], [True], [True], [False], [True]])
    values = np.array([[1.0], [2.0], [6.0], [100.0], [7.0]])
    counts = np.array([[3.0], [1.0], [0.0], [50.0], [0.0]])
    uniform = orbit_mean(values, turn, member_weights(turn, members))
    np.testing.assert_allclose(uniform[:, 0], [3.0, 3.0, 3.0, 100.0, 7.0])
    weighted = orbit_mean(values, turn, member_weights(turn, members, counts))
    np.testing.assert_allclose(weighted[:, 0], [1.25, 1.25, 1.25, 100.0, 7.0])
