"""The picture of how local breaking becomes global error: values, turned values, their mismatch, and wrong moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import ArrayLike, NDArray

from symbreak.errors import InputError
from symbreak.theory.averaging import PermutationAction, group_average
from symbreak.theory.mdp import Tables, TabularMDP
from symbreak.theory.operators import TIE, greedy_policy, greedy_value
from symbreak.theory.solve import policy_iteration

CellValues = NDArray[np.float64]  # (cells)
Steps = NDArray[np.float64]  # (actions, 2): row, column
CellMask = NDArray[np.bool_]  # (cells)
INK, WALL, IMAGE, WRONG, RIGHT = "#1f2430", "#2b2f3a", "#8ecdf0", "#d7263d", "#9aa3b2"


@dataclass(frozen=True, eq=False)
class Propagation:
    """What the picture shows, as numbers: one entry per cell of the grid, for one goal."""

    goal: int
    turned_goal: int
    value: CellValues  # V*(cell, goal)
    turned_value: CellValues  # V*(cell, turned goal), the obstacles unmoved
    relative_error: CellValues  # |V*(c, goal) − V*(gc, g goal)| / |V*(c, goal)|; NaN where c or gc is an obstacle
    blocked: CellMask
    image_blocked: CellMask  # cells whose image under the turn is an obstacle
    policy: NDArray[np.int64]
    live: CellMask  # where it acts: on every free cell but the goal
    suboptimal: CellMask  # where the policy's action is worse than the best one


def propagation(
    tables: Tables,
    blocked: ArrayLike,
    goal: int | None = None,
    policy: NDArray[np.integer] | None = None,
    gamma: float = 0.99,
    element: int = 1,
) -> Propagation:
    """Compare the values for a goal with those for the goal turned by one group element, on a floor that stays put.

    States are agent × cells + goal. The policy is one action per state, or per cell for this goal; by default it is
    the optimal policy of the group average. Without a goal the one with the largest mean error is taken.
    """
    walls = np.asarray(blocked, bool).ravel()
    cells = walls.size
    true, action = TabularMDP.from_tables(tables, gamma), PermutationAction.from_tables(tables)
    if true.states != cells**2:
        raise InputError(f"a floor of {cells} cells needs {cells**2} states, the tables have {true.states}")
    q = policy_iteration(true).values.reshape(cells, cells, -1)
    value = greedy_value(q.reshape(cells**2, -1)).reshape(cells, cells)
    turn = action.states[element][np.arange(cells) * (cells + 1)] // cells  # where (c, c) goes, c goes
    # Entry [c, d] compares the agent on c with goal d and its image: the agent on gc with goal gd.
    error = np.abs(value - value[turn][:, turn]) / np.maximum(np.abs(value), 1e-12)
    error[walls | walls[turn]] = np.nan
    error[np.arange(cells), np.arange(cells)] = 0.0
    usable = ~(walls | walls[turn]) & (turn != np.arange(cells))
    if goal is None:
        goal = int(np.where(usable, np.nanmean(error, axis=0), -1.0).argmax())
    if not usable[goal]:
        raise InputError(f"goal cell {goal} or its image is an obstacle or does not move; choose another cell")
    if policy is None:
        policy = greedy_policy(policy_iteration(group_average(true, action)).values)
    chosen = np.asarray(policy, np.int64)
    if chosen.size == cells**2:
        chosen = chosen.reshape(cells, cells)[:, goal]
    if chosen.shape != (cells,):
        raise InputError(f"the policy has {np.size(policy)} entries; give one action per state or per cell")
    loss = value[:, goal] - q[np.arange(cells), goal, chosen]
    live = ~walls & (np.arange(cells) != goal)
    return Propagation(
        goal=goal,
        turned_goal=int(turn[goal]),
        value=value[:, goal],
        turned_value=value[:, turn[goal]],
        relative_error=error[:, goal],
        blocked=walls,
        image_blocked=walls[turn],
        policy=chosen,
        live=live,
        suboptimal=live & (loss > TIE),
    )


def draw_propagation(
    tables: Tables,
    blocked: ArrayLike,
    path: str | Path,
    goal: int | None = None,
    policy: NDArray[np.integer] | None = None,
    gamma: float = 0.99,
    policy_name: str = "invariant policy",
) -> Propagation:
    """Draw the four panels to `path` and return the numbers behind them."""
    shown = propagation(tables, blocked, goal, policy, gamma)
    size = int(np.sqrt(shown.blocked.size))
    figure = Figure(figsize=(15.2, 5.2), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    cast(ConstrainedLayoutEngine, figure.get_layout_engine()).set(w_pad=0.09, h_pad=0.1, wspace=0.03)
    grid = figure.add_gridspec(2, 4, height_ratios=(1.0, 0.035))
    panels = [figure.add_subplot(grid[0, column]) for column in range(4)]

    maps = [_walkable(shown, shown.value, shown.goal), _walkable(shown, shown.turned_value, shown.turned_goal)]
    scale = {"cmap": "viridis", "vmin": float(np.nanmin(maps)), "vmax": float(np.nanmax(maps))}
    _floor(panels[0], shown, size, "a  optimal value")
    values = panels[0].imshow(maps[0].reshape(size, size), **scale)
    _star(panels[0], shown.goal, size)
    _floor(panels[1], shown, size, "b  goal turned by 90°, same walls")
    panels[1].imshow(maps[1].reshape(size, size), **scale)
    _star(panels[1], shown.turned_goal, size)
    _scale_bar(figure, values, figure.add_subplot(grid[1, 0:2]), "value")

    errors = _draw_error(panels[2], shown, size)
    _scale_bar(figure, errors, figure.add_subplot(grid[1, 2]), "relative error (%)")
    _draw_policy(panels[3], shown, size, _directions(tables, size), policy_name)
    _legend(figure)
    figure.savefig(Path(path))
    return shown


def _walkable(shown: Propagation, values: CellValues, goal: int) -> CellValues:
    """Values where an episode goes on: on a wall none is reached, on the goal nothing is left to earn."""
    return np.where(shown.blocked | (np.arange(values.size) == goal), np.nan, values)


def _floor(axis: Axes, shown: Propagation, size: int, title: str) -> None:
    axis.imshow(shown.blocked.reshape(size, size), cmap=ListedColormap(["white", WALL]), vmin=0, vmax=1)
    axis.set_title(title, fontsize=12, loc="left", color=INK)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color(WALL)


def _star(axis: Axes, cell: int, size: int) -> None:
    row, column = divmod(cell, size)
    axis.plot(column, row, marker="*", markersize=14, color=WRONG, markeredgecolor="white", markeredgewidth=0.8)


def _scale_bar(figure: Figure, image: AxesImage, axis: Axes, label: str) -> None:
    bar = figure.colorbar(image, cax=axis, orientation="horizontal")
    bar.set_label(label, fontsize=11, color=INK)
    cast(Patch, bar.outline).set_visible(False)


def _draw_error(axis: Axes, shown: Propagation, size: int) -> AxesImage:
    _floor(axis, shown, size, "c  how far the turned values are off")
    error = 100.0 * shown.relative_error
    top = float(np.nanpercentile(error, 98))  # a few cells with a value near zero would wash out the rest
    image = axis.imshow(error.reshape(size, size), cmap="YlOrBr", vmin=0.0, vmax=max(top, 1e-9))
    for cell in np.flatnonzero(shown.image_blocked):
        row, column = divmod(int(cell), size)
        both = bool(shown.blocked[cell])
        square = Rectangle((column - 0.5, row - 0.5), 1, 1, zorder=4 if both else 3)
        square.set(facecolor=WALL if both else IMAGE, edgecolor=WRONG if both else "none", linewidth=2.0)
        axis.add_patch(square)
    _star(axis, shown.goal, size)
    return image


def _draw_policy(axis: Axes, shown: Propagation, size: int, directions: Steps, policy_name: str) -> None:
    live = ~shown.blocked & (np.arange(shown.blocked.size) != shown.goal)
    cells = np.flatnonzero(live)
    wrong = shown.suboptimal[cells]
    _floor(axis, shown, size, f"d  {policy_name}: {wrong.sum()} of {wrong.size} wrong")
    row, column = np.divmod(cells, size)
    step = 0.72 * directions[shown.policy[cells]]
    shape: dict[str, Any] = {"width": 0.009, "headwidth": 3.6, "headlength": 3.6, "headaxislength": 3.2}
    for mask, color in ((~wrong, RIGHT), (wrong, WRONG)):
        place = column[mask], row[mask], step[mask, 1], step[mask, 0]
        axis.quiver(*place, color=color, angles="xy", scale_units="xy", scale=1, pivot="mid", **shape)
    _star(axis, shown.goal, size)


def _legend(figure: Figure) -> None:
    figure.legend(
        handles=[
            Line2D([], [], marker="*", markersize=11, color=WRONG, linestyle="none", label="goal"),
            Patch(facecolor=WALL, label="wall"),
            Patch(facecolor=IMAGE, label="wall in the image"),
            Patch(facecolor=WALL, edgecolor=WRONG, linewidth=1.8, label="wall in both"),
            Line2D([], [], marker=r"$\rightarrow$", markersize=13, color=RIGHT, linestyle="none", label="optimal move"),
            Line2D([], [], marker=r"$\rightarrow$", markersize=13, color=WRONG, linestyle="none", label="worse move"),
        ],
        loc="outside lower center",
        ncols=6,
        frameon=False,
        fontsize=11,
    )


def _directions(tables: Tables, size: int) -> Steps:
    """The (row, column) step of each action, read off the tables: where it leads most often when it leads anywhere."""
    cells = size**2
    best = tables.probability.argmax(axis=-1)[..., None]
    target = np.take_along_axis(np.asarray(tables.next_state), best, axis=-1)[..., 0] // cells
    origin = np.arange(cells**2)[:, None] // cells
    moves = np.stack([target // size - origin // size, target % size - origin % size], axis=-1)
    return np.stack([_most_common(moves[:, action]) for action in range(moves.shape[1])]).astype(np.float64)


def _most_common(moves: NDArray[np.integer]) -> NDArray[np.integer]:
    distinct, counts = np.unique(moves[moves.any(axis=1)], axis=0, return_counts=True)
    return distinct[counts.argmax()]
