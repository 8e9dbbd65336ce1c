"""Random groups, MDPs and gates for the laws of the tabular theory."""

from dataclasses import dataclass

import numpy as np
import pytest

from symbreak.theory import PermutationAction, TabularMDP, group_average

# Each group by generators acting on a few points; the regular action is derived from the multiplication table.
POINTS = {
    "C2": [[1, 0]],
    "C3": [[1, 2, 0]],
    "C4": [[1, 2, 3, 0]],
    "C6": [[1, 2, 3, 4, 5, 0]],
    "C2xC2": [[1, 0, 2, 3], [0, 1, 3, 2]],
    "S3": [[1, 2, 0], [1, 0, 2]],
    "D4": [[1, 2, 3, 0], [0, 3, 2, 1]],
    "A4": [[1, 2, 0, 3], [1, 0, 3, 2]],
    "Q8": [[1, 4, 3, 6, 5, 0, 7, 2], [2, 7, 4, 1, 6, 3, 0, 5]],
}


@dataclass(frozen=True)
class Case:
    true: TabularMDP
    action: PermutationAction
    average: TabularMDP
    gate: np.ndarray
    rng: np.random.Generator

    def values(self) -> np.ndarray:
        return self.rng.normal(scale=self.rng.choice([0.1, 1.0, 30.0]), size=self.true.reward.shape)

    def policy(self) -> np.ndarray:
        return self.rng.dirichlet(np.full(self.true.actions, 0.7), size=self.true.states)


def random_action(rng: np.random.Generator, name: str | None = None) -> PermutationAction:
    """A group on a random disjoint union of its points, its regular orbit and fixed points, in random order."""
    points = np.array(POINTS[name or rng.choice(list(POINTS))])
    closed = PermutationAction.generated_by(points, points).states
    lookup = {element.tobytes(): index for index, element in enumerate(closed)}
    regular = np.array([[lookup[generator[g].astype(np.int32).tobytes()] for g in closed] for generator in points])
    fixed = np.zeros((len(points), 1), int)

    def union(count: int) -> np.ndarray:
        blocks = [(points, regular, fixed)[kind] for kind in [*rng.integers(0, 3, size=count - 1), rng.integers(0, 2)]]
        offsets = np.cumsum([0, *(block.shape[1] for block in blocks)])
        table = np.concatenate([block + offset for block, offset in zip(blocks, offsets, strict=False)], axis=1)
        order = rng.permutation(table.shape[1])
        return np.argsort(order)[table[:, order]]

    return PermutationAction.generated_by(union(int(rng.integers(1, 4))), union(int(rng.integers(1, 3))))


def random_case(seed: int) -> Case:
    rng = np.random.default_rng([20, seed])
    action = random_action(rng)
    states, actions = action.states.shape[1], action.actions.shape[1]
    concentration = rng.choice([0.05, 1.0])  # nearly deterministic, or spread over all states
    kernel = rng.dirichlet(np.full(states, concentration), size=(states, actions))
    reward = rng.normal(size=(states, actions)) * rng.choice([0.1, 5.0])
    true = TabularMDP.from_dense(kernel, reward, float(rng.uniform(0.2, 0.97)))
    if seed % 2:  # symmetric except in a few pairs, as an environment with obstacles is
        average = group_average(true, action)
        keep = rng.random(reward.shape)[..., None] < 0.2
        blend = np.where(keep, true.dense_kernel, average.dense_kernel)
        true = TabularMDP.from_dense(blend, np.where(keep[..., 0], reward, average.reward), true.gamma)
    gate = rng.random(reward.shape)
    if seed % 3 == 0:
        gate = np.round(gate)
    return Case(true, action, group_average(true, action), gate, rng)


@pytest.fixture(scope="session")
def cases() -> list[Case]:
    """200 random MDPs with groups, averages and gates."""
    return [random_case(seed) for seed in range(200)]


@pytest.fixture(scope="session")
def action_of():
    return random_action
