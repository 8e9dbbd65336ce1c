"""Oracle gates on floors whose breaking is known by hand."""

import numpy as np
import pytest

from symbreak.tasks.gridworld import GridWorld
from symbreak.theory import (
    PermutationAction,
    TabularMDP,
    agreement,
    breaking,
    discrepancy,
    group_average,
    member_weights,
    minority_gate,
    proximity,
    strict_gate,
    value_gate,
)
from symbreak.theory.oracle import free_pairs


def world_of(**settings):
    tables = GridWorld(**settings).tabular()
    return TabularMDP.from_tables(tables, 0.9), PermutationAction.from_tables(tables), tables.free


def one_obstacle(size=7):
    """A world with a single obstacle whose orbit of four cells stays away from edges, corners and centre."""
    for seed in range(100):
        world = GridWorld(size=size, obstacles=1, layout_seed=seed)
        row, column = divmod(int(np.flatnonzero(world.floor().blocked)[0]), size)
        if (row, column) == (2, 2):
            return world
    raise AssertionError("no seed puts the obstacle on (2, 2)")


def test_sparse_obstacles_have_total_variation_three_quarters_and_one_quarter():
    world = one_obstacle()
    tables = world.tabular()
    mdp, action = TabularMDP.from_tables(tables, 0.9), PermutationAction.from_tables(tables)
    found = breaking(mdp, action, tables.free)
    # Left of the obstacle (2, 2) stands (2, 1); moving right from there is blocked. The goal is far from all images.
    goal = 3 * 7 + 6
    pair = (2 * 7 + 1) * 49 + goal, 3
    assert found.transition[pair] == pytest.approx(0.75)
    assert found.reward[pair] == pytest.approx(0.0)
    for g in range(1, 4):
        image = action.states[g][pair[0]], action.actions[g][pair[1]]
        assert found.transition[image] == pytest.approx(0.25)
    strict, minority = strict_gate(mdp, action, tables.free), minority_gate(mdp, action, tables.free)
    orbit = [(action.states[g][pair[0]], action.actions[g][pair[1]]) for g in range(4)]
    assert [bool(strict[member]) for member in orbit] == [True, True, True, True]
    assert [bool(minority[member]) for member in orbit] == [True, False, False, False]
    # Threshold ½ on the discrepancy is the minority rule for deterministic kernels.
    half = (np.maximum(found.transition, found.reward > 1e-9) >= 0.5 - 1e-9) & tables.free[:, None]
    np.testing.assert_array_equal(minority & (found.reward < 1e-9), half & (found.reward < 1e-9))


def test_no_obstacle_nothing_is_broken():
    mdp, action, free = world_of(size=7, obstacles=0)
    assert not strict_gate(mdp, action, free).any()
    assert not minority_gate(mdp, action, free).any()
    assert (agreement(mdp, action, free) == 1.0).all()


def test_images_that_never_occur_make_pairs_look_broken_unless_free_members_are_averaged():
    world = one_obstacle()
    tables = world.tabular()
    mdp, action, free = TabularMDP.from_tables(tables, 0.9), PermutationAction.from_tables(tables), tables.free
    everywhere = strict_gate(mdp, action)
    occurring = strict_gate(mdp, action, free)
    # Goal on the obstacle's image: one step away, entering it is possible; in the image the goal is the obstacle.
    goal = int(action.states[1][(2 * 7 + 2) * 50] // 49)
    beside = (goal + 1) * 49 + goal, 1
    assert free[beside[0]]
    assert everywhere[beside]
    assert not occurring[beside]
    assert not (occurring & ~free[:, None]).any()
    assert occurring.sum() < everywhere.sum()


@pytest.mark.parametrize("obstacles", [4, 8, 14])
@pytest.mark.parametrize("slip", [0.0, 0.35])
def test_minority_is_part_of_strict_and_what_it_leaves_agrees(obstacles, slip):
    mdp, action, free = world_of(size=7, obstacles=obstacles, layout_seed=1, slip=slip)
    strict, minority = strict_gate(mdp, action, free), minority_gate(mdp, action, free)
    assert (minority <= strict).all()
    assert 0 < minority.sum() < strict.sum()
    # Averaging only over what is not gated changes no row: the rest of each orbit behaves alike.
    kept = member_weights(action, free_pairs(mdp, free) & ~minority)
    left = discrepancy(mdp, group_average(mdp, action, kept))
    assert max(left.reward.max(), left.transition.max()) < 1e-12
    # Control: over all free members the images of a gated pair still differ from the average.
    assert breaking(mdp, action, free).transition[~minority].max() > 0.05


def test_proximity_is_zero_for_strict_only():
    mdp, action, _ = world_of(size=5, obstacles=5, layout_seed=3)
    average = group_average(mdp, action)
    strict = proximity(mdp, average, strict_gate(mdp, action))
    assert strict.left < 1e-9
    assert strict.right < 1e-9
    minority = proximity(mdp, average, minority_gate(mdp, action))
    assert minority.holds(1e-9)
    assert minority.right > 1.0
    assert minority.left > 1e-3


def test_passable_penalties_break_the_reward_only():
    mdp, action, free = world_of(size=7, obstacles=8, layout_seed=0, passable_penalty=True)
    found = breaking(mdp, action, free)
    reward_only = (found.reward > 1e-9) & (found.transition < 1e-9)
    assert reward_only.any()
    assert strict_gate(mdp, action, free)[reward_only].all()


def test_agreement_counts_behaviour_and_not_identity(cases):
    for case in cases[:40]:
        share = agreement(case.true, case.action)
        assert share.min() >= 1.0 / case.action.order - 1e-12
        strict = strict_gate(case.true, case.action)
        np.testing.assert_array_equal(share > 1.0 - 1e-12, ~strict)


@pytest.mark.parametrize("slip", [0.0, 0.35])
def test_agreement_over_free_members_counted_one_by_one(slip):
    mdp, action, free = world_of(size=4, obstacles=4, layout_seed=1, slip=slip)
    kernel, share = mdp.dense_kernel, agreement(mdp, action, free)
    for s in np.flatnonzero(free):
        for a in range(mdp.actions):
            alike = []
            for moved, turned in zip(action.states, action.actions, strict=True):
                if free[moved[s]]:
                    same_row = np.allclose(kernel[moved[s], turned[a]][moved], kernel[s, a], atol=1e-12)
                    alike.append(same_row and abs(mdp.reward[moved[s], turned[a]] - mdp.reward[s, a]) < 1e-12)
            assert share[s, a] == pytest.approx(np.mean(alike))
    assert (share[~free] == 1.0).all()


def test_value_gate_marks_values_far_from_their_orbit():
    mdp, action, free = world_of(size=5, obstacles=4)
    q = np.zeros(mdp.reward.shape)
    state = int(np.flatnonzero(free & free[action.states].all(axis=0))[0])
    q[state, 0] = 0.1
    gated = value_gate(mdp, action, q, free, threshold=0.05)
    assert np.argwhere(gated).tolist() == [[state, 0]]  # 0.075 from the mean; its three images are 0.025 away
    assert value_gate(mdp, action, q, free, threshold=0.02).sum() == 4
