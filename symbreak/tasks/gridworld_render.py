"""Pictures of a grid-world: floor, agent, goal, and per cell a heat map or an arrow.

A picture is stamped into one array from masks that are made once per cell size, without a plotting figure, so a frame
of an episode costs a fraction of a millisecond.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, UInt8

from symbreak.errors import InputError
from symbreak.tasks.gridworld import GridWorld

Colour = tuple[int, int, int]
FLOOR, LINE, WALL = (250, 249, 246), (218, 217, 211), (52, 58, 70)
PENALTY, STRIPE = (253, 230, 187), (230, 148, 44)
AGENT, GOAL, INK, WHITE, MARK = (33, 98, 214), (214, 40, 58), (70, 76, 88), (255, 255, 255), (224, 36, 36)


def render(
    world: GridWorld,
    agent: int | None = None,
    goal: int | None = None,
    overlay: np.ndarray | None = None,
    arrows: np.ndarray | None = None,
    cell_pixels: int = 24,
    *,
    marked: np.ndarray | None = None,
    limits: tuple[float, float] | None = None,
    colormap: str = "viridis",
) -> UInt8[np.ndarray, "height width 3"]:
    """An rgb picture of size * cell_pixels pixels a side, row 0 on top.

    `overlay` colours the unblocked cells by one number each (NaN: left as they are), on a scale between `limits` or
    between its own extremes. `arrows` shows an action per unblocked cell (negative: none), in red where `marked`. Each
    of the three is per cell, flat or square. An agent on its goal is a disc with a star inside.
    """
    if cell_pixels < 4:
        raise InputError(f"cell_pixels={cell_pixels} of a grid picture is too small, use at least 4")
    picture = _floor_picture(world, cell_pixels).copy()
    if overlay is not None:
        values = _per_cell(world, "overlay", overlay).astype(float)
        _paint_overlay(picture, world, values, limits, colormap)
    if arrows is not None:
        actions = np.where(world.floor().free.reshape(-1), _per_cell(world, "arrows", arrows), -1).astype(int)
        red = _per_cell(world, "marked", np.zeros(world.cells) if marked is None else marked).astype(bool)
        # Light arrows with a dark rim read on every colour of a map, dark ones on the bare floor.
        fill, rim = (INK, None) if overlay is None else (WHITE, INK)
        for cell in np.flatnonzero(actions >= 0):
            colours = (MARK, WHITE) if red[cell] else (fill, rim)
            _stamp(picture, world, cell, _arrow, *colours, turns=int(actions[cell]))
    if agent is not None:
        _stamp(picture, world, agent, _disc, AGENT, WHITE)
    if goal is not None and goal == agent:
        _stamp(picture, world, goal, _small_star, WHITE)
    elif goal is not None:
        _stamp(picture, world, goal, _star, GOAL, WHITE)
    return picture


def _per_cell(world: GridWorld, name: str, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.shape not in ((world.cells,), (world.size, world.size)):
        raise InputError(
            f"{name} of a grid picture has shape {values.shape}, give one value per cell: "
            f"({world.cells},) or ({world.size}, {world.size})"
        )
    return values.reshape(-1)


def _square(picture: np.ndarray, world: GridWorld, cell: int | np.integer) -> np.ndarray:
    """The pixels of a cell, as a view."""
    pixels = len(picture) // world.size
    row, column = divmod(int(cell), world.size)
    return picture[row * pixels : (row + 1) * pixels, column * pixels : (column + 1) * pixels]


def _blend(square: np.ndarray, colour: Colour, coverage: np.ndarray) -> None:
    square[:] = np.rint(square + (np.array(colour) - square) * coverage[..., None])


def _stamp(
    picture: np.ndarray,
    world: GridWorld,
    cell: int | np.integer,
    shape: "Shape",
    fill: Colour,
    rim: Colour | None = None,
    turns: int = 0,
) -> None:
    """Draw a shape on a cell, after `turns` quarter turns counter-clockwise."""
    square = _square(picture, world, cell)
    if rim is not None:
        _blend(square, rim, np.rot90(_coverage(shape, len(square), 0.12), turns))
    _blend(square, fill, np.rot90(_coverage(shape, len(square), 0.0), turns))


@lru_cache(maxsize=16)
def _floor_picture(world: GridWorld, pixels: int) -> UInt8[np.ndarray, "height width 3"]:
    floor = world.floor()
    colours = np.select([floor.blocked[..., None], floor.penalty[..., None]], [WALL, PENALTY], FLOOR).astype(np.uint8)
    picture = colours.repeat(pixels, axis=0).repeat(pixels, axis=1)
    for cell in np.flatnonzero(floor.penalty):
        _stamp(picture, world, cell, _stripes, STRIPE)
    line = np.arange(len(picture)) % pixels == 0
    line[-1] = True
    wall = floor.blocked.repeat(pixels, axis=0).repeat(pixels, axis=1)
    picture[(line[:, None] | line) & ~wall] = LINE  # none through walls, which then look like one mass
    picture.flags.writeable = False
    return picture


def _paint_overlay(
    picture: np.ndarray,
    world: GridWorld,
    values: Float[np.ndarray, " cells"],
    limits: tuple[float, float] | None,
    colormap: str,
) -> None:
    # Imported here because training needs no colours and the import takes longer than most episodes.
    from matplotlib import colormaps

    if colormap not in colormaps:
        raise InputError(f"colormap={colormap!r} of a grid picture is unknown to matplotlib, use one such as viridis")
    shown: Bool[np.ndarray, " cells"] = world.floor().free.reshape(-1) & np.isfinite(values)
    if not shown.any():
        return
    low, high = limits or (values[shown].min(), values[shown].max())
    # A constant map is shown in the middle of the scale.
    scaled = (values[shown] - low) / (high - low) if high > low else np.full(shown.sum(), 0.5)
    colours = np.rint(255 * colormaps[colormap](scaled.clip(0, 1))[:, :3]).astype(np.uint8)
    for cell, colour in zip(np.flatnonzero(shown), colours, strict=True):
        _square(picture, world, cell)[:] = colour
    for cell in np.flatnonzero(world.floor().penalty.reshape(-1) & shown):
        _stamp(picture, world, cell, _frame, STRIPE)


# Shapes are signed distances from an outline, negative inside, at points (x right, y up) of a cell that spans [-1, 1].
Shape = Callable[[np.ndarray, np.ndarray], np.ndarray]


@lru_cache(maxsize=256)
def _coverage(shape: Shape, pixels: int, grow: float) -> Float[np.ndarray, "pixels pixels"]:
    """The share of each pixel that lies inside a shape made larger by `grow`, from a fine grid of points."""
    fine = 8
    axis = (np.arange(pixels * fine) + 0.5) / (pixels * fine) * 2 - 1
    inside = shape(axis[None, :], -axis[:, None]) < grow
    return inside.reshape(pixels, fine, pixels, fine).mean(axis=(1, 3))


def _disc(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.hypot(x, y) - 0.64


def _star(x: np.ndarray, y: np.ndarray, radius: float = 0.84) -> np.ndarray:
    # Five mirror lines fold the star onto one edge, from the tip (0, radius) to the nearest notch.
    half_sector = np.pi / 5
    angle = np.abs((np.arctan2(x, y + 0.06) + half_sector) % (2 * half_sector) - half_sector)
    length = np.hypot(x, y + 0.06)
    tip, notch = np.array([0, radius]), 0.45 * radius * np.array([np.sin(half_sector), np.cos(half_sector)])
    normal = np.array([tip[1] - notch[1], notch[0] - tip[0]]) / np.hypot(*(tip - notch))
    return length * np.sin(angle) * normal[0] + (length * np.cos(angle) - radius) * normal[1]


def _small_star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _star(x, y, radius=0.5)


def _arrow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    head = np.maximum(0.78 * np.abs(x) + 0.62 * (y - 0.62), 0.02 - y)
    shaft = np.maximum(np.abs(x) - 0.1, np.maximum(y - 0.1, -0.6 - y))
    return np.minimum(head, shaft)


def _stripes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs((x + y) % 0.8 - 0.4) - 0.16


def _frame(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(np.maximum(np.abs(x), np.abs(y)) - 0.88) - 0.09
