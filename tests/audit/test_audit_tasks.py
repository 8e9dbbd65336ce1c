"""What the audit says about the tasks that ship with symbreak."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from symbreak.audit import AuditReport, audit
from symbreak.symmetry import D, Layout, Symmetry
from symbreak.tasks import get_task
from symbreak.tasks.registry import ROBOT_TASKS
from symbreak.theory import PermutationAction, TabularMDP, strict_gate


@cache
def grid_report(name: str) -> AuditReport:
    return audit(name)


@pytest.mark.parametrize("name", ["swimmer", "ant"])
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_symmetries_are_clean_including_the_reward(name, seed):
    report = audit(name, "exact", states=40, seed=seed)
    assert report.verdict == "exact"
    assert report.exit_code == 0
    assert max(finding.worst for finding in report.fields.values()) < 1e-9
    assert report.reward.worst < 1e-6  # costs of actions are summed in their precision, which is single
    assert report.reachable_share == 1.0
    assert report.action_bounds_invariant
    assert report.suggestions == ()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_papers_swimmer_is_flagged_at_the_sideways_velocity(seed):
    report = audit("swimmer", "paper", states=60, seed=seed)
    assert report.verdict == "not a symmetry"
    assert report.exit_code == 2
    assert "tip.velocity.y" in report.headline
    assert report.fields["tip.velocity.y"].words == "not a symmetry: should flip?"
    assert report.suggestions == ("tip.velocity.y should flip (then it is exact)",)
    others = [finding.error for name, finding in report.fields.items() if name != "tip.velocity.y"]
    assert report.fields["tip.velocity.y"].error > 3 * max(others)


def test_the_papers_ant_is_flagged_at_legs_and_torso():
    report = audit("ant", "paper", states=40)
    assert report.verdict == "not a symmetry"
    assert report.exit_code == 2
    assert report.reachable_share < 0.02
    for field in ("ankles.angle", "ankles.rate", "torso.velocity"):
        assert field in report.headline
        assert report.fields[field].error > 1.0
    assert report.fields["hips.angle"].error < 0.1  # the part the paper has right
    assert any("ankle" in note and "limit" in note for note in report.notes)
    assert any("(+ − + −)" in suggestion for suggestion in report.suggestions)


@pytest.mark.parametrize("seed", [0, 3])
def test_hopper_is_broken_with_shares_but_no_slip_of_the_pen(seed):
    report = audit("hopper", states=200, seed=seed)
    assert report.verdict == "locally broken"
    assert report.exit_code == 0
    assert report.dynamics_share > 0.95
    assert report.reward.share_broken > 0.95
    assert 0.0 < report.termination.share_broken < 0.2
    assert 0.03 < report.reachable_share < 0.4
    assert any("leg_joint beyond its limit" in note for note in report.notes)


@pytest.mark.parametrize("name", ["fetch-reach", "ur5e-reach"])
def test_arms_are_approximate(name):
    report = audit(name, states=8)
    assert report.verdict == "locally broken"
    assert 0.3 < report.reachable_share < 1.0
    assert 0.001 < report.fields["position"].reachable_error < 0.6
    assert report.fields["goal_position"].worst < 1e-9
    assert report.termination.is_exact
    # A cube of actions is not the image of itself under rotations; actions in the hand's own axes do not turn.
    assert report.action_bounds_invariant == (name == "ur5e-reach")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "view"), [(name, view) for name in ROBOT_TASKS for view in get_task(name).symmetries])
def test_tasks_say_whether_their_rewards_and_ends_break(name, view):
    """The gate's heads follow what a task says, and that is what its audit finds."""
    report = audit(name, view)
    found = {part for part in ("reward", "termination") if report.rows[part].words.startswith("broken")}
    assert set(get_task(name).broken(view)) == found


def test_an_empty_grid_is_exact():
    report = audit("grid-0")
    assert report.verdict == "exact"
    assert report.pairs == 225 * 224 * 4
    assert max(finding.worst for finding in report.rows.values()) == 0.0


@pytest.mark.parametrize("name", ["grid-20", "grid-40", "grid-30-reward", "grid-40-slip"])
def test_grids_are_broken_just_where_the_theory_says(name):
    report = grid_report(name)
    tables = get_task(name).jax_env().tabular()
    mdp, action = TabularMDP.from_tables(tables, 0.99), PermutationAction.from_tables(tables)
    truth = strict_gate(mdp, action, tables.free)[tables.free]
    assert report.verdict == "locally broken"
    assert report.exit_code == 0
    assert report.broken_share == pytest.approx(truth.mean(), abs=1e-12)
    assert 0.0 < report.broken_share < 1.0
    assert report.suggestions == ()
    # The map too: share of broken pairs by the cell of the agent.
    agent = np.repeat(np.flatnonzero(tables.free) // 225, 4)
    expected = np.bincount(agent, weights=truth.ravel(), minlength=225) / np.bincount(agent, minlength=225).clip(1)
    assert report.cells is not None
    np.testing.assert_allclose(np.nan_to_num(report.cells), expected, atol=1e-12)


def test_penalty_cells_break_the_reward_and_slip_breaks_more_pairs():
    plain, penalty, slip = (grid_report(name) for name in ("grid-40", "grid-30-reward", "grid-40-slip"))
    assert plain.reward.is_exact
    assert not penalty.reward.is_exact
    assert slip.fields["agent"].share_broken > plain.fields["agent"].share_broken
    assert slip.fields["agent"].error < plain.fields["agent"].error  # more pairs, each less


def test_reflections_of_the_empty_grid_are_found_exact_too():
    square = D(4)
    # Up, left, down, right turn into each other; the reflection of y exchanges up and down.
    moves = square.permutation("moves", [[3, 0, 1, 2], [2, 1, 0, 3]])
    layout = Layout({"agent": square.vector, "goal": square.vector})
    assert audit("grid-0", Symmetry(layout, Layout({"direction": moves}), discrete=True)).verdict == "exact"


def test_a_policy_decides_which_states_are_visited():
    still = audit("swimmer", "exact", states=10, policy=lambda observation: np.zeros(2))
    assert still.verdict == "exact"
    calls = []

    def recording(observation):
        calls.append(observation.shape)
        return np.ones(2)

    audit("swimmer", "exact", states=5, policy=recording)
    assert set(calls) == {(8,)}


def test_a_policy_may_return_any_number_for_a_discrete_action(cart_pole, cart_mirror):
    left_when_left = audit(cart_pole, cart_mirror, states=10, policy=lambda seen: np.int64(seen[2] > 0))
    assert left_when_left.verdict == "exact"


def test_audits_repeat_for_a_seed_and_differ_between_seeds():
    first, again, other = (audit("swimmer", "exact", states=10, seed=seed).to_json() for seed in (0, 0, 1))
    assert first == again
    assert first != other
