"""Grid-worlds by enumeration: every free state, every action, every element of the group.

The error of a pair is the total variation between where s leads, turned, and where gs leads; for moves without
slipping it is 0 or 1. As everywhere on grids, states on blocked cells do not occur and images that fall on them are not
compared.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from symbreak.audit.compare import Comparison, Errors, Evidence
from symbreak.audit.declaration import Acting
from symbreak.audit.simulators import layers
from symbreak.symmetry import Element, Group
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.gridworld_gym import GridWorldEnv

# A wrapper of another kind, also a user's, may change anything.
UNCHANGING = {
    *(gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker),
    *(gym.wrappers.RecordEpisodeStatistics, gym.wrappers.HumanRendering, gym.wrappers.RenderCollection),
}
RESOLUTION = 1e4  # observations that agree when multiplied by this and rounded are the same place


class GridPairs(Evidence):
    """All pairs of a free state and an action."""

    how = "every pair of a free state and an action is enumerated, with every element of the group"
    noun = "state-action pairs"
    few, more = 300, 1200

    def __init__(self, world: GridWorld) -> None:
        self.world = world
        self._tables = world.tabular()
        self.states = np.flatnonzero(self._tables.free)
        self.pairs = self.states.size * 4
        agent, goal = np.divmod(np.arange(world.cells**2), world.cells)
        self._shown = np.asarray(world.observe(agent, goal), dtype=float)
        self._spread = float(self._tables.reward[self.states].std()) or 1.0

    @staticmethod
    def of(env: gym.Env) -> GridPairs | None:
        """The pairs of a grid-world environment; None where it is another one, or a wrapper may change it."""
        *wrappers, bare = layers(env)
        if type(bare) is GridWorldEnv and all(type(wrapper) in UNCHANGING for wrapper in wrappers):
            return GridPairs(bare.world)
        return None

    def observations(self) -> np.ndarray:
        return self._shown[self.states]

    def actions(self) -> np.ndarray:
        return np.tile(np.arange(4), self.states.size)

    def elements(self, group: Group) -> list[Element]:
        """All but the identity, so that the broken pairs are those that differ from their orbit's average."""
        return [element for element in group.elements() if element.steps] if group.is_finite else list(group.generators)

    def compare(self, acting: Acting, centre: np.ndarray | None = None, chosen: np.ndarray | None = None) -> Comparison:
        # With a pair come the other moves from its state.
        states = self.states if chosen is None else self.states[np.unique(chosen // 4)]
        columns = [self._under(acting, j, states, centre) for j in range(len(acting.observation))]

        def stacked(name: str) -> np.ndarray:
            return np.stack([column[name] for column in columns], axis=1)

        errors = {name: stacked(name) for name in acting.fields}
        return Comparison(
            fields={name: Errors(error, 1.0 - 2.0 * error) for name, error in errors.items()},
            reward=Errors(stacked("the reward")),
            termination=Errors(stacked("the termination")),
            reachable=stacked("reachable").astype(bool),
            enumerated=True,
        )

    def _under(
        self, acting: Acting, element: int, states: np.ndarray, centre: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Errors of all pairs under one element, state by state, action fastest."""
        tables, cells, matrix = self._tables, self.world.cells, acting.observation[element]
        offset = 0.0 if centre is None else centre - matrix @ centre
        turned = self._shown[states] @ matrix.T + offset
        inside = np.abs(turned).max(axis=1) <= 1.0 + 1e-6
        agent, goal = self.world.locate(np.where(inside[:, None], turned, 0.0))
        image = agent * cells + goal
        met = np.abs(self._shown[image] - turned).max(axis=1) < 1.0 / RESOLUTION
        reachable = np.repeat(inside & met & tables.free[image], 4)
        s, a = np.repeat(states, 4), np.tile(np.arange(4), states.size)
        gs, ga = np.repeat(image, 4), acting.act(element, a)
        outcomes, image_outcomes = tables.next_state[s, a], tables.next_state[gs, ga]
        weights, image_weights = tables.probability[s, a], tables.probability[gs, ga]
        wanted, seen = self._shown[outcomes] @ matrix.T + offset, self._shown[image_outcomes]
        column: dict[str, np.ndarray] = {}
        for name, index in acting.fields.items():
            places, image_places = _places(wanted[..., index]), _places(seen[..., index])
            column[name] = _total_variation(places, weights, image_places, image_weights)
        column["the reward"] = np.abs(tables.reward[s, a] - tables.reward[gs, ga]) / self._spread
        ends = (tables.terminal[outcomes] * weights).sum(axis=1)
        image_ends = (tables.terminal[image_outcomes] * image_weights).sum(axis=1)
        column["the termination"] = np.abs(ends - image_ends)
        column = {name: np.where(reachable, values, np.nan) for name, values in column.items()}
        return column | {"reachable": reachable}


def _places(values: np.ndarray) -> np.ndarray:
    """One whole number for each distinct row, equal for rows that are the same place."""
    width = int(8 * RESOLUTION)
    rounded = np.rint(values * RESOLUTION).astype(np.int64)
    return rounded @ (width ** np.arange(values.shape[-1])[::-1])


def _total_variation(first: np.ndarray, weights: np.ndarray, second: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Between two distributions given as (pairs, outcomes) places with weights; places may repeat."""
    own = np.einsum("nkj,nj->nk", np.equal(first[:, :, None], first[:, None, :]), weights)
    seen = np.einsum("nkj,nj->nk", np.equal(first[:, :, None], second[:, None, :]), other)
    # Each outcome carries its share of what the two have in common at its place.
    common = np.einsum("nk,nk->n", weights, np.minimum(own, seen) / own)
    return np.where(np.abs(1.0 - common) < 1e-12, 0.0, 1.0 - common)
