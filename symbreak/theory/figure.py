"""The picture of how local breaking becomes global error: values, turned values, their mismatch, and wrong moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import ArrayLike, NDArray

from symbreak.errors import InputError
from symbreak.theory.averaging import PermutationAction, group_average
from symbreak.theory.mdp import Floats, Mask, Tables, TabularMDP
from symbreak.theory.operators import TIE, greedy_policy, greedy_value
from symbreak.theory.solve import policy_iteration

INK, WALL, IMAGE, WRONG, RIGHT = "#1f2430", "#2b2f3a", "#8ecdf0", "#d7263d", "#9aa3b2"


@dataclass(frozen=True, eq=False)
class Propagation:
    """What the picture shows, as numbers: one entry per cell of the grid, for one goal."""

    goal: int
    turned_goal: int
    value: Floats  # V*(cell, goal)
    turned_value: Floats  # V*(cell, turned goal), the obstacles unmoved
    relative_error: Floats  # |V*(c, goal) − V*(gc, g goal)| / |V*(c, goal)|; NaN where c or gc is an obstacle
    blocked: Mask
    image_blocked: Mask  # cells whose image under the turn is an obstacle
    policy: NDArray[np.integer]
    suboptimal: Mask  # where the policy's action is worse than the best one


def propagation(
    tables: Tables,
    blocked: ArrayLike,
    goal: int | None = None,
    policy: NDArray | None = None,
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
    chosen = np.asarray(policy).reshape(cells, -1)[:, goal] if np.size(policy) == cells**2 else np.asarray(policy)
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
        suboptimal=live & (loss > TIE),
    )


def draw_propagation(
    tables: Tables,
    blocked: ArrayLike,
    path: str | Path,
    goal: int | None = None,
    policy: NDArray | None = None,
    gamma: float = 0.99,
    policy_name: str = "averaged MDP's optimum",
) -> Propagation:
    """Draw the four panels to `path` and return the numbers behind them."""
    shown = propagation(tables, blocked, goal, policy, gamma)
    size = int(np.sqrt(shown.blocked.size))
    figure = Figure(figsize=(15.2, 4.5), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 4)
    maps = [_walkable(shown, shown.value, shown.goal), _walkable(shown, shown.turned_value, shown.turned_goal)]
    lowest, highest = float(np.nanmin(maps)), float(np.nanmax(maps))
    for axis, values, goal_cell, title in (
        (axes[0], maps[0], shown.goal, "a  optimal value"),
        (axes[1], maps[1], shown.turned_goal, "b  goal turned by 90°, same walls"),
    ):
        _floor(axis, shown, size, title)
        image = axis.imshow(values.reshape(size, size), cmap="viridis", vmin=lowest, vmax=highest)
        _star(axis, goal_cell, size)
    figure.colorbar(image, ax=list(axes[:2]), location="bottom", shrink=0.5, aspect=40, pad=0.03, label="value")
    _draw_error(figure, axes[2], shown, size)
    _draw_policy(axes[3], shown, size, _directions(tables, size), policy_name)
    figure.savefig(Path(path))
    return shown


def _walkable(shown: Propagation, values: Floats, goal: int) -> Floats:
    """Values where an episode goes on: on a wall none is reached, on the goal nothing is left to earn."""
    return np.where(shown.blocked | (np.arange(values.size) == goal), np.nan, values)


def _floor(axis: Axes, shown: Propagation, size: int, title: str) -> None:
    axis.imshow(shown.blocked.reshape(size, size), cmap=ListedColormap(["white", WALL]), vmin=0, vmax=1)
    axis.set_title(title, fontsize=11, loc="left", color=INK)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color(WALL)


def _star(axis: Axes, cell: int, size: int) -> None:
    row, column = divmod(cell, size)
    axis.plot(column, row, marker="*", markersize=13, color=WRONG, markeredgecolor="white", markeredgewidth=0.8)


def _draw_error(figure: Figure, axis: Axes, shown: Propagation, size: int) -> None:
    _floor(axis, shown, size, "c  relative error between the two")
    error = 100.0 * shown.relative_error
    top = float(np.nanpercentile(error, 98))  # a few cells with a value near zero would wash out the rest
    image = axis.imshow(error.reshape(size, size), cmap="Greys", vmin=0.0, vmax=max(top, 1e-9))
    only_image = shown.image_blocked & ~shown.blocked
    for cell in np.flatnonzero(shown.blocked | shown.image_blocked):
        row, column = divmod(int(cell), size)
        both = shown.blocked[cell] and shown.image_blocked[cell]
        axis.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                facecolor=IMAGE if only_image[cell] else WALL,
                edgecolor=WRONG if both else "white",
                linewidth=1.8 if both else 0.4,
                zorder=4 if both else 3,
            )
        )
    _star(axis, shown.goal, size)
    figure.colorbar(image, ax=axis, location="bottom", shrink=0.9, pad=0.03, label="error (%)", extend="max")
    handles = [
        Patch(facecolor=WALL, label="wall"),
        Patch(facecolor=IMAGE, label="wall in the image"),
        Patch(facecolor=WALL, edgecolor=WRONG, linewidth=1.5, label="both"),
    ]
    axis.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False, fontsize=8)


def _draw_policy(axis: Axes, shown: Propagation, size: int, directions: Floats, policy_name: str) -> None:
    _floor(axis, shown, size, f"d  greedy moves, {policy_name}")
    live = ~shown.blocked
    live[shown.goal] = False
    cells = np.flatnonzero(live)
    row, column = np.divmod(cells, size)
    step = 0.62 * directions[shown.policy[cells]]
    wrong = shown.suboptimal[cells]
    for mask, color in ((~wrong, RIGHT), (wrong, WRONG)):
        axis.quiver(
            column[mask],
            row[mask],
            step[mask, 1],
            step[mask, 0],
            color=color,
            angles="xy",
            scale_units="xy",
            scale=1,
            pivot="mid",
            width=0.009,
            headwidth=4.2,
            headlength=4.2,
            headaxislength=3.8,
        )
    _star(axis, shown.goal, size)
    axis.set_xlabel(f"{wrong.sum()} of {wrong.size} moves are suboptimal (red)", fontsize=10, color=INK)


def _directions(tables: Tables, size: int) -> Floats:
    """The (row, column) step of each action, read off the tables: where it leads most often when it leads anywhere."""
    cells = size**2
    best = tables.probability.argmax(axis=-1)[..., None]
    target = np.take_along_axis(np.asarray(tables.next_state), best, axis=-1)[..., 0] // cells
    origin = np.arange(cells**2)[:, None] // cells
    moves = np.stack([target // size - origin // size, target % size - origin % size], axis=-1)
    return np.stack([_most_common(moves[:, action]) for action in range(moves.shape[1])]).astype(np.float64)


def _most_common(moves: NDArray) -> NDArray:
    distinct, counts = np.unique(moves[moves.any(axis=1)], axis=0, return_counts=True)
    return distinct[counts.argmax()]
