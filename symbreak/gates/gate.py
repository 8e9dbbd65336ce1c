"""The question every gate answers: with what probability is the symmetry broken at this state and action?

Answers are stopped: no loss that uses a gate can change it. Whoever asks may draw from the answer, use it as a weight,
or compare it with one half; that is the asker's business.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.nn.keys import Key

Metrics = dict[str, Array]
Propose = Callable[[Key, Array], Array]  # key, observation → candidate actions
Sampler = Callable[[Key], Any]  # key → batch of transitions


class AbstractGate(abc.ABC):
    """Static description of a gate; what it learns lives in the state that `init` makes."""

    @abc.abstractmethod
    def init(self, key: Key) -> eqx.Module: ...

    @abc.abstractmethod
    def of_pair(self, state: Any, observation: Array, action: Array, *, target: bool = False) -> Float[Array, ""]:
        """Probability that the symmetry is broken at (s, a); `target` asks the slowly moving copy."""

    @abc.abstractmethod
    def of_actions(self, state: Any, observation: Array, *, target: bool = False) -> Float[Array, " actions"]:
        """The same for every discrete action."""

    @abc.abstractmethod
    def of_state(self, state: Any, observation: Array, propose: Propose, key: Key) -> Float[Array, ""]:
        """Conservative probability for a state: high if it is high for some action."""

    @abc.abstractmethod
    def update(
        self, state: Any, sample: Sampler, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[Any, Metrics]:
        """Learn from replay; `step` counts environment steps."""

    @property
    @abc.abstractmethod
    def unchecked(self) -> tuple[str, ...]:
        """Parts of the environment whose breaking this gate could never notice."""


def caveats(gate: AbstractGate) -> tuple[str, ...]:
    """What a run with this gate has to say beside its results."""
    return tuple(f"{part} symmetry unchecked" for part in gate.unchecked)


class Empty(eqx.Module):
    """The state of a gate that learns nothing."""


@dataclass(frozen=True)
class FixedGate(AbstractGate):
    """One probability everywhere."""

    probability: float
    actions: int = 0

    @property
    def unchecked(self) -> tuple[str, ...]:
        return ()  # it looks at nothing, and does not claim to

    def init(self, key: Key) -> Empty:
        return Empty()

    def of_pair(self, state: Any, observation: Array, action: Array, *, target: bool = False) -> Float[Array, ""]:
        return jnp.asarray(self.probability, observation.dtype)

    def of_actions(self, state: Any, observation: Array, *, target: bool = False) -> Float[Array, " actions"]:
        return jnp.full(self.actions, self.probability, observation.dtype)

    def of_state(self, state: Any, observation: Array, propose: Propose, key: Key) -> Float[Array, ""]:
        return jnp.asarray(self.probability, observation.dtype)

    def update(
        self, state: Any, sample: Sampler, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[Any, Metrics]:
        return state, {}


def NoGate(actions: int = 0) -> FixedGate:
    """For methods with a single expert: nothing to choose."""
    return FixedGate(0.0, actions)


class OracleState(eqx.Module):
    """Which pairs are broken, as known from the environment's own tables."""

    broken: Float[Array, "states actions"]


@dataclass(frozen=True, eq=False)
class OracleGate(AbstractGate):
    """The ground truth of a finite environment. `table` (states, actions) is indexed by `index_of(observation)`."""

    table: np.ndarray
    index_of: Callable[[Array], Array]

    @property
    def unchecked(self) -> tuple[str, ...]:
        return ()

    def init(self, key: Key) -> OracleState:
        return OracleState(jnp.asarray(self.table, jnp.float32))

    def of_pair(self, state: OracleState, observation: Array, action: Array, *, target: bool = False) -> Array:
        return state.broken[self.index_of(observation), action]

    def of_actions(self, state: OracleState, observation: Array, *, target: bool = False) -> Array:
        return state.broken[self.index_of(observation)]

    def of_state(self, state: OracleState, observation: Array, propose: Propose, key: Key) -> Array:
        return jnp.max(state.broken[self.index_of(observation)])

    def update(
        self, state: Any, sample: Sampler, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[Any, Metrics]:
        return state, {}
