"""A square grid in which an agent walks to a goal, with obstacles that break its rotation symmetry.

Without obstacles everything commutes with quarter turns; a seeded floor of obstacles breaks that in known places. The
environment is pure JAX (`reset` and `step` can be jitted and vmapped), and the same rules are exported as NumPy tables.

Conventions, used by everything that touches a grid:

- A cell is `row * size + column`; row 0 is the top of the picture, column 0 its left edge.
- Coordinates are centred, x to the right and y upwards: x = column - half, y = half - row, with half = (size - 1) / 2.
  An observation is [x_agent, y_agent, x_goal, y_goal] / half, so each entry lies in [-1, 1].
- Actions 0, 1, 2, 3 are up, left, down, right. The generator of C4 turns counter-clockwise: (x, y) -> (-y, x), hence
  cell (row, column) -> (size - 1 - column, row) and action a -> a + 1 (mod 4).
- A move off the grid or onto a blocked cell leaves the agent where it is. With `slip` the agent goes, with that
  probability in equal parts, in one of the three directions that it did not choose.
- A step that reaches the goal is worth +1 and terminates; one that ends on a penalty cell is worth -0.5, also when the
  agent stood there already and bumped; any other is worth -0.01. A goal on a penalty cell counts as the goal.
- Start and goal are uniform over distinct cells that are not blocked; penalty cells are among them.
- An agent on its goal has finished: it stays, earns 0 and remains terminated whatever it does.
"""

from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from symbreak.errors import InputError
from symbreak.tasks.gridworld_floor import Floor, lay_floor

ACTIONS = ("up", "left", "down", "right")
MOVES = np.array([(-1, 0), (0, -1), (1, 0), (0, 1)])  # row, column
GOAL_REWARD, STEP_REWARD, PENALTY_REWARD = 1.0, -0.01, -0.5
LARGEST_TABLE = 2**26  # entries of an exported transition table, about 0.3 GB


class GridState(eqx.Module):
    """Where an episode stands; a pytree of int32 scalars (or of batches of them)."""

    agent: Int[Array, ""]  # cell
    goal: Int[Array, ""]  # cell
    time: Int[Array, ""]  # steps taken since reset


# State, observation, reward, terminated, truncated, info.
Step = tuple[GridState, Float[Array, "4"], Float[Array, ""], Bool[Array, ""], Bool[Array, ""], dict[str, Array]]


@dataclass(frozen=True, eq=False)
class CellTable:
    """What a move does, independent of the goal: outcome k of action a goes in direction a + k (mod 4)."""

    next_cell: Int[np.ndarray, "cells 4 outcomes"]
    probability: Float[np.ndarray, " outcomes"]  # the same for every cell and action
    entry_reward: Float[np.ndarray, " cells"]  # of a step that ends on the cell, unless it is the goal


@dataclass(frozen=True, eq=False)
class GridTables:
    """The grid-world as a tabular MDP over states agent * cells + goal, and the four quarter turns acting on it.

    Outcomes may coincide (two moves into the same wall); their probabilities add. Permutations map indices to images:
    `state_permutations[k, s]` is s turned k times, and likewise for actions.
    """

    next_state: Int[np.ndarray, "states 4 outcomes"]
    probability: Float[np.ndarray, "states 4 outcomes"]
    reward: Float[np.ndarray, "states 4"]  # expected over outcomes
    state_permutations: Int[np.ndarray, "4 states"]
    action_permutations: Int[np.ndarray, "4 4"]
    free: Bool[np.ndarray, " states"]  # both cells unblocked and distinct: just the states an agent can act in
    terminal: Bool[np.ndarray, " states"]  # agent on the goal: absorbing, reward 0


@dataclass(frozen=True)
class GridWorld:
    """One grid-world, hashable and therefore static under jit."""

    size: int = 15
    obstacles: int = 0
    layout_seed: int = 0  # equal seeds give nested floors: fewer obstacles are a subset of more
    passable_penalty: bool = False  # half of the obstacles (rounded down) become penalty cells
    slip: float = 0.0  # probability of leaving the chosen direction
    horizon: int = 100  # steps until truncation

    def __post_init__(self):
        _check_whole("size", self.size, at_least=2)
        _check_whole("obstacles", self.obstacles, at_least=0)
        _check_whole("layout_seed", self.layout_seed, at_least=0)
        _check_whole("horizon", self.horizon, at_least=1)
        if self.obstacles > self.cells - 2:
            raise InputError(
                f"obstacles={self.obstacles} leave no room for start and goal on a {self.size}x{self.size} grid world, "
                f"use at most {self.cells - 2} or a larger size"
            )
        if not (isinstance(self.slip, Real) and 0 <= self.slip <= 1):
            raise InputError(f"slip={self.slip!r} of a grid world is no probability, use a number from 0 to 1")
        if not isinstance(self.passable_penalty, bool):
            raise InputError(f"passable_penalty={self.passable_penalty!r} of a grid world must be True or False")

    @property
    def cells(self) -> int:
        return self.size**2

    @property
    def reward_values(self) -> tuple[float, ...]:
        """Every value a step of a running episode can be worth on this floor, in increasing order."""
        penalty = (PENALTY_REWARD,) if self.floor().penalty.any() else ()
        return (*penalty, STEP_REWARD, GOAL_REWARD)

    def floor(self) -> Floor:
        """Which cells are blocked and which carry a penalty; the unblocked ones are connected."""
        return lay_floor(self.size, self.obstacles, self.layout_seed, self.passable_penalty)

    def free_cells(self) -> Int[np.ndarray, " free"]:
        """The cells that are not blocked, penalty cells included, in increasing order."""
        return np.flatnonzero(self.floor().free).astype(np.int32)

    def coordinates(self) -> Float[np.ndarray, "cells 2"]:
        """Centred (x, y) of every cell, divided by half the width: what observations are made of."""
        return _coordinates(self.size)

    def observe(self, agent: Any, goal: Any) -> Any:
        """[x_agent, y_agent, x_goal, y_goal] of cells; batches along leading axes; JAX in, JAX out, otherwise NumPy."""
        coordinates = self.coordinates()
        if isinstance(agent, jax.Array) or isinstance(goal, jax.Array):
            coordinates = jnp.asarray(coordinates)
            return jnp.concatenate(jnp.broadcast_arrays(coordinates[agent], coordinates[goal]), axis=-1)
        return np.concatenate(np.broadcast_arrays(coordinates[agent], coordinates[goal]), axis=-1)

    def locate(self, observation: Any) -> tuple[Any, Any]:
        """The cells of agent and goal: `locate(observe(agent, goal))` is `(agent, goal)`; JAX in, JAX out."""
        numpy = jnp if isinstance(observation, jax.Array) else np
        half = (self.size - 1) / 2
        place = numpy.rint(observation * half * np.array([1, -1, 1, -1], np.float32) + half).astype(np.int32)
        column, row = place[..., 0::2], place[..., 1::2]
        cell = row * self.size + column
        return cell[..., 0], cell[..., 1]

    def reset(self, key: PRNGKeyArray) -> tuple[GridState, Float[Array, "4"]]:
        """A new episode: start and goal uniform over the ordered pairs of distinct free cells."""
        start_key, goal_key = jax.random.split(key)
        free = jnp.asarray(self.free_cells())
        start = jax.random.randint(start_key, (), 0, free.size, dtype=jnp.int32)
        goal = jax.random.randint(goal_key, (), 0, free.size - 1, dtype=jnp.int32)
        goal = goal + (goal >= start)  # steps over the start, which leaves the others equally likely
        state = GridState(agent=free[start], goal=free[goal], time=jnp.int32(0))
        return state, self.observe(state.agent, state.goal)

    def step(self, key: PRNGKeyArray, state: GridState, action: Int[Array, ""] | int) -> Step:
        """One move, without automatic reset.

        The observation after termination shows the agent on the goal. A step that reaches the goal as the horizon ends
        is terminated and not truncated. The key is read only when the grid slips.
        """
        table = self.transition_table()
        outcome = jnp.int32(0)
        if self.slip:
            outcome = jnp.sum(jax.random.uniform(key) >= jnp.float32(table.probability.cumsum()[:-1]))
        finished = state.agent == state.goal
        moved = jnp.asarray(table.next_cell)[state.agent, action, outcome]
        agent = jnp.where(finished, state.agent, moved)
        terminated = agent == state.goal
        reward = jnp.where(terminated, jnp.float32(GOAL_REWARD), jnp.float32(table.entry_reward)[agent])
        reward = jnp.where(finished, jnp.float32(0), reward)
        following = GridState(agent=agent, goal=state.goal, time=state.time + 1)
        truncated = (following.time >= self.horizon) & ~terminated
        return following, self.observe(agent, state.goal), reward, terminated, truncated, {"is_success": terminated}

    def cell_permutation(self, turns: int) -> Int[np.ndarray, " cells"]:
        """The image of every cell under `turns` quarter turns counter-clockwise."""
        row, column = np.divmod(np.arange(self.cells, dtype=np.int32), np.int32(self.size))
        for _ in range(turns % 4):
            row, column = self.size - 1 - column, row
        return row * np.int32(self.size) + column

    def state_permutation(self, turns: int) -> Int[np.ndarray, " states"]:
        """The image of every state agent * cells + goal: both cells turn together."""
        cell = self.cell_permutation(turns).astype(np.int64)
        return (cell[:, None] * self.cells + cell).reshape(-1)

    def transition_table(self) -> CellTable:
        """Where each move leads and what entering each cell is worth."""
        return _cell_table(self)

    def tabular(self) -> GridTables:
        """The whole MDP. On a blocked cell an agent moves by the ordinary rule and a goal cannot be reached."""
        return _grid_tables(self)


def _check_whole(name: str, value: object, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise InputError(f"{name}={value!r} of a grid world is wrong, use a whole number of at least {at_least}")


def _frozen(array: np.ndarray) -> np.ndarray:
    # Cached tables are shared by every caller, so writing to one must fail rather than change the world.
    array.flags.writeable = False
    return array


@lru_cache(maxsize=64)
def _coordinates(size: int) -> np.ndarray:
    row, column = np.divmod(np.arange(size**2), size)
    half = (size - 1) / 2
    return _frozen(np.stack([(column - half) / half, (half - row) / half], axis=-1).astype(np.float32))


@lru_cache(maxsize=64)
def _cell_table(world: GridWorld) -> CellTable:
    floor, size = world.floor(), world.size
    cell = np.arange(world.cells).reshape(-1, 1)
    place = np.stack(np.divmod(cell, size), axis=-1) + MOVES  # cell, action, (row, column)
    inside = ((place >= 0) & (place < size)).all(axis=-1)
    target = np.where(inside, place @ (size, 1), cell)
    step = np.where(floor.blocked.reshape(-1)[target], cell, target)
    probability = np.array([1 - world.slip, *3 * [world.slip / 3]] if world.slip else [1.0])
    direction = (np.arange(4)[:, None] + np.arange(len(probability))) % 4
    return CellTable(
        next_cell=_frozen(step[:, direction].astype(np.int32)),
        probability=_frozen(probability),
        entry_reward=_frozen(np.where(floor.penalty.reshape(-1), PENALTY_REWARD, STEP_REWARD)),
    )


@lru_cache(maxsize=4)
def _grid_tables(world: GridWorld) -> GridTables:
    table, cells = world.transition_table(), world.cells
    if cells * table.next_cell.size > LARGEST_TABLE:
        raise InputError(f"size={world.size} of a grid world gives {cells**2} states, too many for tables, use less")
    agent, goal = np.divmod(np.arange(cells**2), cells)
    terminal = agent == goal
    moved = np.where(terminal[:, None, None], agent[:, None, None], table.next_cell[agent])
    reached = moved == goal[:, None, None]
    # A sum in one fixed order, not a matrix product: images of a state must agree in every bit.
    reward = (np.where(reached, GOAL_REWARD, table.entry_reward[moved]) * table.probability).sum(axis=-1)
    free = world.floor().free.reshape(-1)
    return GridTables(
        next_state=_frozen((moved * cells + goal[:, None, None]).astype(np.int32)),
        probability=np.broadcast_to(table.probability, moved.shape),
        reward=_frozen(np.where(terminal[:, None], 0.0, reward)),
        state_permutations=_frozen(np.stack([world.state_permutation(turns) for turns in range(4)])),
        action_permutations=_frozen((np.arange(4)[:, None] + np.arange(4)).astype(np.int32) % 4),
        free=_frozen(free[agent] & free[goal] & ~terminal),
        terminal=_frozen(terminal),
    )
