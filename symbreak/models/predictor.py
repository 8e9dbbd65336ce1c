"""What a one-step predictor predicts, how far two predictions are apart, and their average over the group.

An *outcome* says this once for all predictors: `CellOutcome` is a distribution over the agent's next cell, and
`IncrementOutcome` the change of a continuous state; both can carry the reward and the termination. `decode` turns a
network's output into coordinates that the group moves by the matrices of `layout`, so that averaging is linear.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symbreak.errors import InputError
from symbreak.symmetry.layout import Field, Layout, Symmetry

RewardHead = Literal["none", "scalar", "categorical"]


class AbstractOutcome(abc.ABC):
    """What follows a state and an action."""

    symmetry: Symmetry

    @property
    @abc.abstractmethod
    def layout(self) -> Layout:
        """How a decoded prediction transforms."""

    @property
    @abc.abstractmethod
    def unchecked(self) -> tuple[str, ...]:
        """What follows a state and an action but is not predicted."""

    @property
    @abc.abstractmethod
    def is_categorical(self) -> bool:
        """Whether distances are probabilities: total variations between predicted distributions."""

    @abc.abstractmethod
    def loss(
        self, output: Array, observation: Array, next_observation: Array, reward: Array, terminated: Array, scale: Array
    ) -> Float[Array, ""]:
        """How badly a network's output describes what happened."""

    @abc.abstractmethod
    def decode(self, output: Float[Array, " size"]) -> Float[Array, " size"]:
        """Probabilities for logits; values as they are."""

    @abc.abstractmethod
    def distance(self, first: Float[Array, " size"], second: Float[Array, " size"], scale: Array) -> Float[Array, ""]:
        """How far apart two decoded predictions are."""

    def happened(
        self, observation: Array, next_observation: Array, reward: Array, terminated: Array, scale: Array
    ) -> Float[Array, " size"]:
        """What did follow, as a decoded prediction: its distance from one is that prediction's error."""
        raise InputError("threshold.kind 'error' needs predictors of increments; use 'absolute' on a grid-world")


@dataclass(frozen=True)
class CellOutcome(AbstractOutcome):
    """The agent's next cell on a square grid, whose first two observations are its centred coordinates."""

    symmetry: Symmetry
    size: int
    reward_head: RewardHead = "none"
    reward_values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.reward_head == "categorical" and len(self.reward_values) < 2:
            raise InputError("a categorical reward head needs at least two reward values of the layout")

    @property
    def is_categorical(self) -> bool:
        return self.reward_head != "scalar"

    @property
    def cells(self) -> int:
        return self.size**2

    @property
    def rewards(self) -> int:
        return {"none": 0, "scalar": 1, "categorical": len(self.reward_values)}[self.reward_head]

    @property
    def unchecked(self) -> tuple[str, ...]:
        # An episode ends where the agent's cell is the goal's: who predicts the cell predicts the end.
        return () if self.rewards else ("reward",)

    @property
    def layout(self) -> Layout:
        """Cells in orbits: a full orbit is a copy of the regular representation, the centre is invariant.

        Predictions are ordered by group element, then orbit, so that turning them moves whole blocks.
        """
        return self._layout

    @cached_property
    def _layout(self) -> Layout:
        fields = dict(_orbits(self.symmetry, self.size)[0])
        if self.rewards:
            fields["reward"] = Field(
                self.rewards * self.symmetry.group.trivial, tuple(range(self.cells, self.cells + self.rewards))
            )
        return Layout(fields, self.cells + self.rewards)

    def place(self, observation: Float[Array, " observation"]) -> Int[Array, ""]:
        """Where the agent's cell stands in a prediction."""
        half = (self.size - 1) / 2
        column = jnp.round(half + observation[0] * half).astype(jnp.int32)
        row = jnp.round(half - observation[1] * half).astype(jnp.int32)  # y points up, rows count down
        return jnp.asarray(_orbits(self.symmetry, self.size)[1])[row * self.size + column]

    def loss(
        self, output: Array, observation: Array, next_observation: Array, reward: Array, terminated: Array, scale: Array
    ) -> Float[Array, ""]:
        total = -jax.nn.log_softmax(output[: self.cells])[self.place(next_observation)]
        if self.reward_head == "categorical":
            kind = jnp.argmin(jnp.abs(jnp.asarray(self.reward_values) - reward))
            total = total - jax.nn.log_softmax(output[self.cells :])[kind]
        if self.reward_head == "scalar":
            total = total + (output[self.cells] - reward) ** 2
        return total

    def decode(self, output: Float[Array, " size"]) -> Float[Array, " size"]:
        rest = output[self.cells :]
        rest = jax.nn.softmax(rest) if self.reward_head == "categorical" else rest
        return jnp.concatenate([jax.nn.softmax(output[: self.cells]), rest])

    def distance(self, first: Float[Array, " size"], second: Float[Array, " size"], scale: Array) -> Float[Array, ""]:
        """Total variation; the larger of the two with a categorical reward, plus |ΔR| with a scalar one."""
        gap = jnp.abs(first - second)
        transition = 0.5 * jnp.sum(gap[: self.cells])
        if self.reward_head == "categorical":
            return jnp.maximum(transition, 0.5 * jnp.sum(gap[self.cells :]))
        return transition + jnp.sum(gap[self.cells :])


@lru_cache(maxsize=64)
def _orbits(symmetry: Symmetry, size: int) -> tuple[tuple[tuple[str, Field], ...], np.ndarray]:
    """The fields of a distribution over cells, and the place of every cell in it."""
    group = symmetry.group
    half = (size - 1) / 2
    rows, columns = np.divmod(np.arange(size**2), size)
    centred = np.stack([columns - half, half - rows])
    moves = []
    for g in group.elements():
        x, y = symmetry.observation.matrix(g)[:2, :2] @ centred
        moves.append((np.round(half - y) * size + np.round(half + x)).astype(int))
    images = np.stack(moves)  # (elements, cells): image of each cell under each element
    orbits = [list(dict.fromkeys(column)) for column in images.T.tolist()]
    first = [orbit for cell, orbit in enumerate(orbits) if min(orbit) == cell]
    full = [orbit for orbit in first if len(orbit) == group.order]
    place = np.full(size**2, -1)
    indices: list[int] = []
    for number, orbit in enumerate(full):
        indices += [element * len(full) + number for element in range(group.order)]
        place[orbit] = indices[-group.order :]
    fields = [("orbits", Field(len(full) * group.regular, tuple(indices)))]
    for orbit in (orbit for orbit in first if len(orbit) < group.order):
        start = int(place.max()) + 1
        place[orbit] = start + np.arange(len(orbit))
        generators = [images[group.elements().index(g)] for g in group.generators]
        # (ρx)[image of c] = x[c]
        permutations = [[orbit.index(c) for c in np.argsort(move)[orbit]] for move in generators]
        atom = group.permutation(f"orbit of {len(orbit)}", permutations)
        fields.append((f"orbit of cell {orbit[0]}", Field(atom, tuple(place[orbit].tolist()))))
    return tuple(fields), place


@dataclass(frozen=True)
class IncrementOutcome(AbstractOutcome):
    """The change of the observation, in units of `scale`, with the reward and a termination logit on request."""

    symmetry: Symmetry
    reward_head: bool = False
    termination_head: bool = False
    scaled: bool = True

    @property
    def is_categorical(self) -> bool:
        return False

    @property
    def entries(self) -> int:
        return self.symmetry.observation.size

    @property
    def unchecked(self) -> tuple[str, ...]:
        heads = {"reward": self.reward_head, "termination": self.termination_head}
        return tuple(part for part, predicted in heads.items() if not predicted)

    @property
    def layout(self) -> Layout:
        return self._layout

    @cached_property
    def _layout(self) -> Layout:
        extra = self.reward_head + self.termination_head
        if not extra:
            return self.symmetry.observation
        return self.symmetry.observation.beside(Layout({"outcome": extra * self.symmetry.group.trivial}))

    def target(self, observation: Array, next_observation: Array, reward: Array) -> Array:
        """What the continuous part of the output should be, before scaling."""
        change = next_observation - observation
        return jnp.append(change, reward) if self.reward_head else change

    def loss(
        self, output: Array, observation: Array, next_observation: Array, reward: Array, terminated: Array, scale: Array
    ) -> Float[Array, ""]:
        target = self.target(observation, next_observation, reward) / scale
        total = jnp.sum((output[: len(target)] - target) ** 2)
        if self.termination_head:
            logit = output[-1]
            total = total + jax.nn.softplus(jnp.where(terminated > 0.5, -logit, logit))
        return total

    def happened(
        self, observation: Array, next_observation: Array, reward: Array, terminated: Array, scale: Array
    ) -> Float[Array, " size"]:
        target = self.target(observation, next_observation, reward) / scale
        return jnp.append(target, terminated) if self.termination_head else target

    def decode(self, output: Float[Array, " size"]) -> Float[Array, " size"]:
        return output.at[-1].set(jax.nn.sigmoid(output[-1])) if self.termination_head else output

    def distance(self, first: Float[Array, " size"], second: Float[Array, " size"], scale: Array) -> Float[Array, ""]:
        return jnp.sum((first - second) ** 2)
