"""Solvers agree with each other, with closed forms, and with the clock."""

import time

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.tasks.gridworld import GridWorld
from symbreak.theory import (
    TabularMDP,
    episode_return,
    evaluation_backup,
    greedy_policy,
    has_tie,
    policy_iteration,
    policy_values,
    soft_backup,
    soft_policy,
    soft_policy_iteration,
    soft_value,
    start_distribution,
    undecided_policy,
    value_iteration,
)


def test_value_and_policy_iteration_reach_the_same_fixed_point(cases):
    for case in cases[:60]:
        swept, solved = value_iteration(case.true, 1e-10), policy_iteration(case.true, 1e-10)
        assert np.abs(swept.values - solved.values).max() <= swept.error + solved.error + 1e-12
        assert max(swept.error, solved.error) <= 1e-10


def test_certificate_covers_the_true_error(cases):
    for case in cases[:30]:
        exact = policy_iteration(case.true, 1e-11).values
        rough = value_iteration(case.true, 1e-2)
        distance = np.abs(rough.values - exact).max()
        assert distance <= rough.error + 1e-9
        assert rough.error <= 1e-2


def test_soft_policy_iteration_solves_the_soft_equation_and_beats_other_policies(cases):
    for case in cases[:40]:
        solution = soft_policy_iteration(case.true, 0.4, 1e-10)
        np.testing.assert_allclose(soft_backup(case.true, solution.values, 0.4), solution.values, atol=1e-9)
        policy = case.policy()
        other = policy_values(case.true, policy, 0.4)
        np.testing.assert_allclose(evaluation_backup(case.true, other, policy, 0.4), other, atol=1e-8)
        assert (solution.values >= other - 1e-8).all()
        assert (other < solution.values - 1e-3).any()


def test_soft_value_of_a_one_step_bandit():
    # Three arms that all end the game: α log Σ exp(r/α).
    kernel = np.zeros((2, 3, 2))
    kernel[:, :, 1] = 1.0
    reward = np.array([[1.0, 0.5, -2.0], [0.0, 0.0, 0.0]])
    mdp = TabularMDP.from_dense(kernel, reward, 0.5)
    alpha = 0.7
    end = alpha * np.log(3.0) / (1.0 - 0.5)  # the end state still earns entropy, for ever
    values = soft_policy_iteration(mdp, alpha).values
    np.testing.assert_allclose(values[0], reward[0] + 0.5 * end, atol=1e-8)
    expected = alpha * np.log(np.exp(values[0] / alpha).sum())
    np.testing.assert_allclose(soft_value(values, alpha)[0], expected)
    np.testing.assert_allclose(soft_policy(values, alpha)[0], np.exp((values[0] - expected) / alpha))


def test_cold_soft_values_approach_hard_ones(cases):
    case = cases[1]
    hard = policy_iteration(case.true).values
    distances = [np.abs(soft_policy_iteration(case.true, t, 1e-9).values - hard).max() for t in (1.0, 0.1, 0.01)]
    assert distances[0] > distances[1] > distances[2]
    limit = 0.01 * np.log(case.true.actions) / (1.0 - case.true.gamma)
    assert distances[2] <= limit + 1e-8


def test_temperature_must_be_positive(cases):
    with pytest.raises(InputError, match="temperature"):
        soft_policy_iteration(cases[0].true, 0.0)


def test_ties_go_to_the_lowest_action():
    q = np.array([[0.0, 1.0, 1.0 + 1e-12], [0.0, 1.0, 1.0 + 1e-6], [3.0, 1.0, 2.0]])
    assert greedy_policy(q).tolist() == [1, 2, 0]
    assert has_tie(q).tolist() == [True, False, False]
    assert undecided_policy(q).tolist() == [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def breadth_first(world, goal):
    neighbours = world.transition_table().next_cell[:, :, 0].tolist()  # moves are reversible between free cells
    distance, queue = {goal: 0}, [goal]
    for cell in queue:  # grows while it is walked
        for neighbour in neighbours[cell]:
            if neighbour not in distance:
                distance[neighbour] = distance[cell] + 1
                queue.append(neighbour)
    return distance


def test_return_of_the_optimum_is_that_of_shortest_paths():
    world = GridWorld(size=7, obstacles=10, layout_seed=2)
    tables = world.tabular()
    mdp = TabularMDP.from_tables(tables, 0.99)
    start = start_distribution(mdp, tables.free)
    policy = greedy_policy(policy_iteration(mdp).values)
    free = world.free_cells().tolist()
    paths = {goal: breadth_first(world, goal) for goal in free}
    lengths = np.array([paths[goal][cell] for goal in free for cell in free if goal != cell])
    assert lengths.min() == 1
    expected = np.mean(1.0 - 0.01 * (lengths - 1))
    np.testing.assert_allclose(episode_return(mdp, policy, start), expected, atol=1e-12)
    discounted = np.mean(0.99 ** (lengths - 1) - 0.01 * (1.0 - 0.99 ** (lengths - 1)) / (1.0 - 0.99))
    np.testing.assert_allclose(episode_return(mdp, policy, start, discounted=True), discounted, atol=1e-12)
    short = np.mean(np.where(lengths <= 3, 1.0 - 0.01 * (lengths - 1), -0.03))  # control: the horizon cuts
    np.testing.assert_allclose(episode_return(mdp, policy, start, horizon=3), short, atol=1e-12)


def test_return_with_slip_is_what_rollouts_average():
    tables = GridWorld(size=5, obstacles=4, slip=0.35).tabular()
    mdp = TabularMDP.from_tables(tables, 0.99)
    start = start_distribution(mdp, tables.free)
    policy = greedy_policy(policy_iteration(mdp).values)
    rng = np.random.default_rng(0)
    state = rng.choice(mdp.states, size=20_000, p=start)
    total = np.zeros(state.size)
    for _ in range(30):
        chosen = policy[state]
        total += mdp.reward[state, chosen]
        slot = (rng.random(state.size)[:, None] > mdp.probability[state, chosen].cumsum(axis=1)).sum(axis=1)
        state = mdp.next_state[state, chosen, np.minimum(slot, 3)]
    standard_error = total.std() / np.sqrt(total.size)
    assert abs(episode_return(mdp, policy, start, horizon=30) - total.mean()) < 4.0 * standard_error


@pytest.mark.parametrize("slip", [0.0, 0.35])
def test_full_grid_with_all_goals_is_solved_in_time(slip):
    mdp = TabularMDP.from_tables(GridWorld(size=15, obstacles=20, slip=slip).tabular(), 0.99)
    began = time.process_time()
    solution = policy_iteration(mdp, 1e-8)
    assert time.process_time() - began < 10.0
    assert solution.error <= 1e-8
    assert mdp.states == 225**2


@pytest.mark.slow
def test_full_grid_by_sweeps_alone():
    mdp = TabularMDP.from_tables(GridWorld(size=15, obstacles=20, slip=0.35).tabular(), 0.99)
    began = time.process_time()
    swept = value_iteration(mdp, 1e-8)
    assert time.process_time() - began < 10.0
    assert np.abs(swept.values - policy_iteration(mdp, 1e-8).values).max() <= 2e-8
