"""Seeded floors for the grid-world: which cells block, which cost, with the rest in one piece.

Obstacles are placed one by one in a random order of the cells, and a cell whose loss would cut the floor in two is
passed over until it no longer does. Some cell of a connected floor can always be lost (a leaf of a spanning tree), so
any number of obstacles can be placed, and equal seeds give nested floors. The penalty variant opens half of the
obstacles again, by the same rule in a second random order, so that no penalty cell is walled in.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from jaxtyping import Bool, Int
from scipy import ndimage


@dataclass(frozen=True, eq=False)
class Floor:
    """Read-only masks over (row, column), row 0 on top; no cell is both blocked and penalised."""

    blocked: Bool[np.ndarray, "size size"]
    penalty: Bool[np.ndarray, "size size"]  # passable, at a cost

    @property
    def free(self) -> Bool[np.ndarray, "size size"]:
        """Where an agent can be: everything that is not blocked."""
        return ~self.blocked


@lru_cache(maxsize=256)
def lay_floor(size: int, obstacles: int, seed: int, passable_penalty: bool) -> Floor:
    """The floor of a seed: `obstacles` cells, the same ones with and without penalty cells among them."""
    # Sorting uniform numbers, and not `permutation`, because only the former is as old and stable as the bit stream.
    blocking, opening = np.random.default_rng([seed, size]).random((2, size**2)).argsort(axis=1, kind="stable")
    open_cells = np.ones((size, size), bool)
    _set_cells(open_cells, blocking, obstacles, value=False)
    without_penalty = open_cells.copy()
    if passable_penalty:
        _set_cells(open_cells, opening, obstacles // 2, value=True)
    floor = Floor(blocked=~open_cells, penalty=open_cells & ~without_penalty)
    floor.blocked.flags.writeable = floor.penalty.flags.writeable = False
    return floor


def is_connected(open_cells: Bool[np.ndarray, "size size"]) -> bool:
    """Whether every open cell can be reached from every other by up, left, down and right."""
    _, pieces = cast(tuple[np.ndarray, int], ndimage.label(open_cells))  # four-neighbour by default
    return pieces == 1


def _set_cells(open_cells: Bool[np.ndarray, "size size"], order: Int[np.ndarray, " cells"], count: int, value: bool):
    """Set `count` cells that are not `value` yet, earliest in `order` first, keeping the open cells connected."""
    while count:
        for cell in order:
            if count and open_cells.flat[cell] != value:
                open_cells.flat[cell] = value
                if is_connected(open_cells):
                    count -= 1
                else:
                    open_cells.flat[cell] = not value
