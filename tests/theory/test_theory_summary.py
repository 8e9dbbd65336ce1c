"""The numbers that the command prints, and the picture beside them."""

import json

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.tasks.gridworld import GridWorld
from symbreak.theory import as_table, mean_of, summarise
from symbreak.theory.figure import draw_propagation, propagation


@pytest.fixture(scope="module")
def summaries():
    return {n: summarise(GridWorld(size=7, obstacles=n, layout_seed=1).tabular(), 0.95, f"grid-{n}") for n in (0, 8)}


def test_summary_is_json_with_the_promised_fields(summaries):
    for summary in summaries.values():
        again = json.loads(json.dumps(summary, allow_nan=False))
        assert again == summary
        promised = "broken_share value_gap value_gap_bound oracle_gap random_gate_gap equivariant_return optimal_return"
        assert set(promised.split()) <= set(summary)
        assert set(summary["ceiling"]) == {"exact", "oracle-minority", "oracle-strict", "value-level"}
        assert all({"return", "gate_rate"} <= set(one) for one in summary["ceiling"].values())


def test_without_obstacles_everything_is_zero_or_optimal(summaries):
    empty = summaries[0]
    for name in ("broken_share", "value_gap", "value_gap_bound", "oracle_gap", "random_gate_gap"):
        assert empty[name] == pytest.approx(0.0, abs=1e-9)
    for reached in (empty["equivariant_return"], *(one["return"] for one in empty["ceiling"].values())):
        assert reached == pytest.approx(empty["optimal_return"], abs=1e-12)


def test_the_mean_of_summaries_is_that_of_every_number(summaries):
    empty, crowded = summaries[0], summaries[8]
    mean = mean_of([crowded, empty, empty])
    assert (mean["layout"], mean["horizon"], mean["gamma"]) == ("grid-8", 100, pytest.approx(0.95))
    assert mean["broken_share"] == pytest.approx(crowded["broken_share"] / 3)
    exact = [one["ceiling"]["exact"]["return"] for one in (crowded, empty, empty)]
    assert mean["ceiling"]["exact"]["return"] == pytest.approx(sum(exact) / 3)
    assert mean_of([crowded]) == crowded


def test_with_obstacles_gaps_stay_below_bounds_and_only_the_strict_gate_closes_them(summaries):
    crowded = summaries[8]
    assert 0.1 < crowded["broken_share"] < 0.9
    for name in ("value_gap", "oracle_gap", "minority_gap", "random_gate_gap"):
        assert crowded[name] <= crowded[f"{name}_bound"] + 1e-9
    assert crowded["value_gap"] <= crowded["value_gap_residual_bound"] <= crowded["value_gap_bound"]
    assert crowded["oracle_gap"] < 1e-7 < crowded["minority_gap"]
    assert crowded["equivariant_return"] < crowded["optimal_return"] - 0.1
    assert crowded["ceiling"]["exact"]["return"] < crowded["ceiling"]["oracle-minority"]["return"]


def test_table_has_a_column_per_layout(summaries):
    text = as_table(list(summaries.values()))
    lines = text.splitlines()
    assert lines[0].split() == ["grid-0", "grid-8"]
    assert len({len(line) for line in lines}) == 1
    assert any(line.startswith("ceiling, value-level") for line in lines)


@pytest.fixture(scope="module")
def slippery():
    return GridWorld(size=7, obstacles=8, layout_seed=1, slip=0.35)


def test_propagation_shows_errors_away_from_the_walls(slippery):
    shown = propagation(slippery.tabular(), slippery.floor().blocked, gamma=0.95)
    assert shown.turned_goal == slippery.cell_permutation(1)[shown.goal]
    hidden = shown.blocked | shown.image_blocked
    assert np.isnan(shown.relative_error[hidden]).all()
    visible = shown.relative_error[~hidden]
    assert (visible > 1e-6).mean() > 0.8  # nearly every cell is touched, not only those beside a wall
    assert shown.suboptimal.any()
    assert not shown.suboptimal[shown.blocked].any()


def test_empty_grid_has_no_error_and_no_wrong_move():
    world = GridWorld(size=7, slip=0.35)
    shown = propagation(world.tabular(), world.floor().blocked, goal=9, gamma=0.95)
    assert np.nanmax(shown.relative_error) < 1e-9
    np.testing.assert_allclose(shown.turned_value[world.cell_permutation(1)], shown.value, atol=1e-9)
    assert np.abs(shown.turned_value - shown.value).max() > 0.1  # control: the turn matters
    assert not shown.suboptimal.any()


def test_a_policy_may_be_given_per_state_or_per_cell(slippery):
    tables, blocked = slippery.tabular(), slippery.floor().blocked
    goal = propagation(tables, blocked, gamma=0.95).goal
    always_up = propagation(tables, blocked, goal, np.zeros(49, int), gamma=0.95)
    by_state = propagation(tables, blocked, goal, np.zeros(49 * 49, int), gamma=0.95)
    np.testing.assert_array_equal(always_up.suboptimal, by_state.suboptimal)
    assert always_up.suboptimal.sum() > 10
    with pytest.raises(InputError, match="policy"):
        propagation(tables, blocked, goal, np.zeros(5, int), gamma=0.95)


def test_goals_and_floors_that_do_not_fit_are_refused(slippery):
    tables, blocked = slippery.tabular(), slippery.floor().blocked
    with pytest.raises(InputError, match="goal cell"):
        propagation(tables, blocked, int(np.flatnonzero(blocked)[0]), gamma=0.95)
    with pytest.raises(InputError, match="cells"):
        propagation(tables, blocked[:5], gamma=0.95)


def test_picture_is_written(slippery, tmp_path):
    path = tmp_path / "propagation.png"
    draw_propagation(slippery.tabular(), slippery.floor().blocked, path, gamma=0.95)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
