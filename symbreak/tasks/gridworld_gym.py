"""The grid-world as a Gymnasium environment, stepped on the host from the tables of the JAX one.

Both follow one set of rules (see `symbreak.tasks.gridworld`); they differ only in where random numbers come from.
"""

from bisect import bisect_right
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from jaxtyping import UInt8

from symbreak.errors import InputError
from symbreak.tasks.gridworld import GOAL_REWARD, GridWorld
from symbreak.tasks.gridworld_render import render


class GridWorldEnv(gym.Env[np.ndarray, np.int64]):
    """Walk to the goal; every argument but `render_mode` is a field of `GridWorld`.

    Two environments reset with the same seed and given the same actions go the same way, slips included. `reset` takes
    `options={"agent": cell, "goal": cell}` to start from a chosen place.
    """

    # The window is offered only where it can open: checkers try every mode that is listed.
    metadata = {"render_modes": ["rgb_array", *(["human"] if find_spec("pygame") else [])], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **world: Any):
        if unknown := world.keys() - {field.name for field in fields(GridWorld)}:
            known = ", ".join(field.name for field in fields(GridWorld))
            raise InputError(f"argument {min(unknown)!r} of a grid world is unknown, use {known} or render_mode")
        if render_mode == "human" and "human" not in self.metadata["render_modes"]:
            raise InputError("render_mode='human' of a grid world needs pygame, pip install it or use 'rgb_array'")
        if render_mode not in (None, "human", "rgb_array"):
            raise InputError(f"render_mode={render_mode!r} of a grid world is unknown, use 'rgb_array' or 'human'")
        self.world = GridWorld(**world)
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(4)
        table = self.world.transition_table()
        # Lists, because reading one number from a list takes a third of the time it takes from an array.
        self._next_cell: list[list[list[int]]] = table.next_cell.tolist()
        self._entry_reward: list[float] = table.entry_reward.tolist()
        self._slips: list[float] = table.probability.cumsum()[:-1].tolist()
        self._coordinates = self.world.coordinates()
        self._free: list[int] = self.world.free_cells().tolist()
        self._agent = self._goal = self._time = -1
        self._window: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        # Drawn also when a place is given, so that options do not shift the random stream.
        agent, goal = self.np_random.choice(self._free, size=2, replace=False)
        if options:
            self._check_place(options)
            agent, goal = options["agent"], options["goal"]
        self._agent, self._goal, self._time = int(agent), int(goal), 0
        if self.render_mode == "human":
            self.render()
        return self._observation(), {"is_success": False}

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._time < 0:
            raise ResetNeeded("a grid world was stepped before its first reset, call reset() first")
        if action not in (0, 1, 2, 3):
            raise InputError(f"action {action!r} of a grid world does not exist, use 0 up, 1 left, 2 down or 3 right")
        finished = self._agent == self._goal
        outcome = bisect_right(self._slips, self.np_random.random()) if self._slips else 0
        if not finished:
            self._agent = self._next_cell[self._agent][int(action)][outcome]
        self._time += 1
        terminated = self._agent == self._goal
        reward = 0.0 if finished else GOAL_REWARD if terminated else self._entry_reward[self._agent]
        truncated = self._time >= self.world.horizon and not terminated
        if self.render_mode == "human":
            self.render()
        return self._observation(), reward, terminated, truncated, {"is_success": terminated}

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The picture in mode `rgb_array`; nothing, but an updated window, in mode `human`."""
        if self.render_mode is None:
            gym.logger.warn("a grid world without render_mode shows nothing, make it with render_mode='rgb_array'")
            return None
        seen = self._time >= 0
        picture = render(self.world, self._agent if seen else None, self._goal if seen else None)
        if self.render_mode == "rgb_array":
            return picture
        self._show(picture)
        return None

    def close(self) -> None:
        if self._window is not None:
            import pygame

            pygame.display.quit()
            self._window = None

    def _observation(self) -> np.ndarray:
        return np.concatenate((self._coordinates[self._agent], self._coordinates[self._goal]))

    def _check_place(self, place: dict[str, Any]) -> None:
        if place.keys() != {"agent", "goal"}:
            raise InputError(f"options {sorted(place)} of a grid world's reset are wrong, give both 'agent' and 'goal'")
        for name, cell in place.items():
            if cell not in self._free:
                raise InputError(f"{name}={cell!r} in a grid world's reset is no free cell, see world.free_cells()")
        if place["agent"] == place["goal"]:
            raise InputError(f"agent and goal of a grid world's reset share cell {place['goal']}, use distinct cells")

    def _show(self, picture: np.ndarray) -> None:
        import pygame

        if self._window is None:
            pygame.display.init()
            pygame.display.set_caption("symbreak grid world")
            self._window = pygame.display.set_mode(picture.shape[1::-1])
        self._window.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.event.pump()
        pygame.display.flip()
        pygame.time.wait(1000 // self.metadata["render_fps"])
