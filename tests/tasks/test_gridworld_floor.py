"""Floors have what was asked for, in one piece, the same for the same seed and nested in the number of obstacles."""

import numpy as np
import pytest

from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.gridworld_floor import is_connected


def reachable(world: GridWorld) -> int:
    """How many free cells can be reached from the first, by the moves of the world itself."""
    next_cell = world.transition_table().next_cell[..., 0]
    seen, frontier = set(), [int(world.free_cells()[0])]
    while frontier:
        cell = frontier.pop()
        if cell not in seen:
            seen.add(cell)
            frontier += next_cell[cell].tolist()
    return len(seen)


@pytest.mark.parametrize("obstacles", [0, 1, 10, 20, 30, 40, 100, 180, 223])
@pytest.mark.parametrize("passable_penalty", [False, True])
def test_every_free_cell_is_reachable_for_many_seeds(obstacles, passable_penalty):
    for seed in range(8):
        world = GridWorld(obstacles=obstacles, layout_seed=seed, passable_penalty=passable_penalty)
        floor, opened = world.floor(), obstacles // 2 if passable_penalty else 0
        assert floor.blocked.sum() == obstacles - opened
        assert floor.penalty.sum() == opened
        assert not (floor.blocked & floor.penalty).any()
        assert reachable(world) == len(world.free_cells()) == 225 - obstacles + opened


def test_unconstrained_floors_are_often_cut():
    cut = [not is_connected(np.random.default_rng(seed).permutation(225).reshape(15, 15) >= 40) for seed in range(40)]
    assert sum(cut) > 0


def test_connected_means_sideways_not_diagonally():
    assert is_connected(np.array([[1, 1], [0, 1]], bool))
    assert not is_connected(np.array([[1, 0], [0, 1]], bool))


def test_equal_seeds_give_equal_and_nested_floors_and_other_seeds_others():
    floors = [GridWorld(obstacles=count, layout_seed=4).floor().blocked for count in (10, 20, 40)]
    assert (floors[0] <= floors[1]).all()
    assert (floors[1] <= floors[2]).all()
    other = GridWorld(obstacles=40, layout_seed=5).floor().blocked
    assert not (floors[0] <= other).all()
    assert len({GridWorld(obstacles=10, layout_seed=seed).floor().blocked.tobytes() for seed in range(50)}) == 50


def test_penalty_cells_are_obstacles_of_the_blocked_floor():
    blocked = GridWorld(obstacles=31).floor().blocked
    floor = GridWorld(obstacles=31, passable_penalty=True).floor()
    np.testing.assert_array_equal(floor.blocked | floor.penalty, blocked)
    assert (floor.blocked.sum(), floor.penalty.sum()) == (16, 15)
    other = GridWorld(obstacles=31, passable_penalty=True, layout_seed=1).floor()
    assert ((other.blocked | other.penalty) != blocked).any()


def test_the_floor_of_a_seed_never_changes():
    # Published results name layouts by their seed.
    rows = ["".join("#" if cell else "." for cell in row) for row in GridWorld(size=7, obstacles=12).floor().blocked]
    assert rows == ["#.....#", "....#..", "#.#....", ".....#.", "..#....", ".##.#..", "#....#."]


def test_floors_cannot_be_changed():
    floor = GridWorld(obstacles=10).floor()
    with pytest.raises(ValueError, match="read-only"):
        floor.blocked[0, 0] = True
