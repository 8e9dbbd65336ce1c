"""A learned gate whose answers are imposed.

What a gated agent costs depends on how many samples its gate sends to the free expert. Here that share is given, while
predictors, classifiers and the questions to them cost what they cost in a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from symbreak.gates.gate import AbstractGate, Metrics, Propose, Sampler
from symbreak.nn.keys import Key


class ImposedState(eqx.Module):
    learned: Any
    rate: Float[Array, ""]  # a part of the state, so that one program serves every rate


@dataclass(frozen=True)
class ImposedGate(AbstractGate):
    """Every pair, and every state, is broken with the probability `rate` of the state."""

    learned: AbstractGate
    asks: bool = True  # False: its networks are not even asked about pairs and states
    trains: bool = True  # False: they stay as they are

    @property
    def unchecked(self) -> tuple[str, ...]:
        return self.learned.unchecked

    def init(self, key: Key) -> ImposedState:
        return ImposedState(self.learned.init(key), jnp.zeros(()))

    def of_pair(self, state: ImposedState, observation: Array, action: Array, *, target: bool = False) -> Array:
        if not self.asks:
            return state.rate
        return _instead(self.learned.of_pair(state.learned, observation, action, target=target), state.rate)

    def of_actions(self, state: ImposedState, observation: Array, *, target: bool = False) -> Array:
        return _instead(self.learned.of_actions(state.learned, observation, target=target), state.rate)

    def of_state(self, state: ImposedState, observation: Array, propose: Propose, key: Key) -> Array:
        if not self.asks:
            return state.rate
        return _instead(self.learned.of_state(state.learned, observation, propose, key), state.rate)

    def update(
        self, state: ImposedState, sample: Sampler, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[ImposedState, Metrics]:
        if not self.trains:
            return state, {}
        learned, metrics = self.learned.update(state.learned, sample, batch, step, key, propose)
        return ImposedState(learned, state.rate), metrics


def _instead(answer: Array, rate: Array) -> Array:
    """The rate; the answer decides nothing, but no compiler can know that and leave it out."""
    return jnp.where(jnp.isnan(answer), answer, rate)
