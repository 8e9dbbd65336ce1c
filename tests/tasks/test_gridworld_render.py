"""Pictures show what is there, the right way up."""

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.gridworld_render import AGENT, FLOOR, GOAL, MARK, PENALTY, STRIPE, WALL, render


def middle(picture, world, cell):
    """The colour at the centre of a cell."""
    pixels = len(picture) // world.size
    row, column = divmod(int(cell), world.size)
    return tuple(int(channel) for channel in picture[row * pixels + pixels // 2, column * pixels + pixels // 2])


def test_every_thing_has_its_colour_in_its_cell():
    world = GridWorld(obstacles=30, passable_penalty=True)
    floor = world.floor()
    plain = np.flatnonzero(floor.free & ~floor.penalty)
    picture = render(world, agent=int(plain[3]), goal=int(plain[8]))
    assert picture.shape == (360, 360, 3)
    assert picture.dtype == np.uint8
    assert {middle(picture, world, cell) for cell in np.flatnonzero(floor.blocked)} == {WALL}
    assert {middle(picture, world, cell) for cell in np.flatnonzero(floor.penalty)} <= {PENALTY, STRIPE}
    assert middle(picture, world, plain[3]) == AGENT
    assert middle(picture, world, plain[8]) == GOAL
    assert middle(picture, world, plain[5]) == FLOOR


def test_an_agent_on_its_goal_looks_like_neither_alone():
    world = GridWorld(size=3)
    both, agent, goal = render(world, 4, 4), render(world, 4), render(world, None, 4)
    assert (both != agent).any()
    assert (both != goal).any()


def test_turning_what_is_shown_turns_the_picture():
    world = GridWorld(size=5)
    random = np.random.default_rng(0)
    values, arrows = random.normal(size=25), random.integers(4, size=25)
    turn = world.cell_permutation(1)
    turned_values, turned_arrows = np.empty(25), np.empty(25, int)
    turned_values[turn], turned_arrows[turn] = values, (arrows + 1) % 4
    picture = render(world, agent=3, overlay=values, arrows=arrows)
    turned = render(world, agent=int(turn[3]), overlay=turned_values, arrows=turned_arrows)
    np.testing.assert_allclose(turned.astype(int), np.rot90(picture, 1), atol=1)
    assert np.abs(turned.astype(int) - np.rot90(picture, -1)).max() > 50
    turned_arrows[turn] = arrows  # arrows that stay as they were are not the turned picture
    wrong = render(world, agent=int(turn[3]), overlay=turned_values, arrows=turned_arrows)
    assert np.abs(wrong.astype(int) - np.rot90(picture, 1)).max() > 50


def test_overlay_is_monotone_within_limits_and_leaves_walls_and_gaps():
    world = GridWorld(obstacles=10)
    values = np.arange(225.0)
    free = world.free_cells()
    values[free[7]] = np.nan
    picture = render(world, overlay=values.reshape(15, 15), colormap="gray")
    levels = [middle(picture, world, cell)[0] for cell in free if cell != free[7]]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (0, 255)
    assert middle(picture, world, free[7]) == FLOOR
    assert middle(picture, world, np.flatnonzero(world.floor().blocked)[0]) == WALL
    narrow = render(world, overlay=values, colormap="gray", limits=(0.0, 50.0))
    assert middle(narrow, world, free[100]) == (255, 255, 255)
    assert middle(picture, world, free[100]) != (255, 255, 255)
    constant = render(world, overlay=np.ones(225), colormap="gray")
    assert middle(constant, world, free[0])[0] in (127, 128)
    np.testing.assert_array_equal(render(world, overlay=np.full(225, np.nan)), render(world))


def test_marked_arrows_are_red_and_others_are_not():
    world = GridWorld(size=3)
    arrows, marked = np.array([0, 1, 2, 3, -1, 0, 0, 0, 0]), np.arange(9) == 2
    picture = render(world, arrows=arrows, marked=marked)
    assert middle(picture, world, 2) == MARK
    assert middle(picture, world, 1) not in (MARK, FLOOR)
    assert middle(picture, world, 4) == FLOOR


def test_pictures_do_not_share_pixels():
    world = GridWorld(obstacles=10)
    first = render(world)
    first[:] = 0
    assert render(world).max() > 200


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"overlay": np.zeros(3)}, r"overlay .*\(3,\).*\(225,\)"),
        ({"arrows": np.zeros((2, 2))}, "arrows"),
        ({"arrows": np.zeros(225), "marked": np.zeros(1)}, "marked"),
        ({"overlay": np.zeros(225), "colormap": "plaid"}, "plaid"),
        ({"cell_pixels": 2}, "cell_pixels=2"),
    ],
)
def test_mistakes_are_refused_by_name(arguments, named):
    with pytest.raises(InputError, match=named):
        render(GridWorld(), **arguments)
