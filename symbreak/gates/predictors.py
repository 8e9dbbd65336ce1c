"""The one-step predictors of a gate, and how far they disagree.

A free predictor says what follows a state and an action; the symmetric answer comes from an equivariant network trained
beside it, or from the free one's own average over the group. Their distance is the disagreement d(s, a).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.gates.averaging import images
from symbreak.gates.config import Encoding, GateConfig
from symbreak.models.learner import Learner, Optimiser
from symbreak.models.model import Model, make_model, plain_layout, style_for
from symbreak.models.predictor import AbstractOutcome, IncrementOutcome
from symbreak.models.statistics import Running, symmetric_mean, symmetric_scale
from symbreak.nn.keys import Key, named_key
from symbreak.nn.linear import Dense, Equivariant
from symbreak.symmetry.layout import Symmetry

FREQUENCIES = 7


class PredictorState(eqx.Module):
    """Networks with their optimisers, and the statistics that bring inputs and outputs to unit size."""

    free: Learner[Model]
    equivariant: Learner[Model] | None
    inputs: Running  # of observations
    outcomes: Running  # of changes and rewards


@dataclass(frozen=True)
class Predictors:
    """Static description; what is learned lives in the state that `init` makes."""

    symmetry: Symmetry
    outcome: AbstractOutcome
    config: GateConfig

    def init(self, key: Key) -> PredictorState:
        config, symmetry = self.config, self.symmetry
        optimiser = Optimiser(config.predictor_rate, config.largest_norm)
        own = self.encoded_size(config.predictor_encoding) + symmetry.action.size
        free = make_model(
            Dense,
            plain_layout(symmetry, config.predictor_width if config.shared_predictor_trunk else own),
            self.outcome.layout.size * symmetry.group.trivial,
            key=named_key(key, "free predictor"),
            style="plain",
            width=config.predictor_width,
            depth=1 if config.shared_predictor_trunk else 2,
        )
        equivariant = None
        if config.disagreement == "trained":
            equivariant = make_model(
                Equivariant,
                symmetry.observation.beside(symmetry.action),
                self.outcome.layout,
                key=named_key(key, "equivariant predictor"),
                style=style_for(symmetry),
                width=config.predictor_width,
            )
        return PredictorState(
            Learner.create(free, optimiser),
            None if equivariant is None else Learner.create(equivariant, optimiser),
            Running.empty((symmetry.observation.size,)),
            Running.empty((self._continuous_size,)),
        )

    # --- inputs and scales ----------------------------------------------------------------------------------------

    def encoded_size(self, encoding: Encoding) -> int:
        size = self.symmetry.observation.size
        return size * (1 + 2 * FREQUENCIES) if encoding == "fourier" else size

    def standard(self, state: PredictorState, observation: Array) -> Array:
        """The observation in units that commute with the group; the statistics are constants of every loss."""
        if not self.config.standardise:
            return observation
        layout, inputs = self.symmetry.observation, jax.lax.stop_gradient(state.inputs)
        return (observation - symmetric_mean(inputs, layout)) / symmetric_scale(inputs, layout)

    def encode(self, encoding: Encoding, standard: Array) -> Array:
        if encoding == "raw":
            return standard
        angles = np.pi * np.arange(1, FREQUENCIES + 1)[:, None] * standard
        return jnp.concatenate([standard, jnp.sin(angles).ravel(), jnp.cos(angles).ravel()])

    def vector(self, action: Array) -> Array:
        """A discrete action as a one-hot vector, which the group permutes."""
        return jax.nn.one_hot(action, self.symmetry.action.size) if self.symmetry.discrete else action

    @cached_property
    def _continuous_size(self) -> int:
        outcome = self.outcome
        return outcome.entries + outcome.reward_head if isinstance(outcome, IncrementOutcome) else 1

    def scale(self, state: PredictorState) -> Array:
        """The unit of each continuous entry of a prediction."""
        outcome = self.outcome
        if not isinstance(outcome, IncrementOutcome) or not outcome.scaled:
            return jnp.ones(())
        change, size = jax.lax.stop_gradient(state.outcomes), outcome.entries
        observation = Running(change.count, change.mean[:size], change.variance[:size])
        scale = symmetric_scale(observation, self.symmetry.observation)
        if not outcome.reward_head:
            return scale
        reward = jnp.where(change.count > 0, change.std[size:] + 1e-3, 1.0)
        return jnp.concatenate([scale, reward])

    # --- predictions ----------------------------------------------------------------------------------------------

    def free_input(self, state: PredictorState, standard: Array, vector: Array) -> Array:
        """What the free predictor reads: the pair, or the equivariant one's features where they share a trunk."""
        if self.config.shared_predictor_trunk and state.equivariant is not None:
            return state.equivariant.model.features(jnp.concatenate([standard, vector]))
        return jnp.concatenate([self.encode(self.config.predictor_encoding, standard), vector])

    def disagreement(self, state: PredictorState, observation: Array, action: Array, key: Key) -> Float[Array, ""]:
        """d(s, a): how far the free prediction is from the symmetric one."""
        outcome, vector = self.outcome, self.vector(action)
        standard = self.standard(state, observation)

        def predict(standard: Array, vector: Array) -> Array:
            return outcome.decode(state.free.model(self.free_input(state, standard, vector)))

        if state.equivariant is not None:
            other = outcome.decode(state.equivariant.model(jnp.concatenate([standard, vector])))
            return outcome.distance(predict(standard, vector), other, self.scale(state))
        group = images(self.symmetry, outcome.layout).chosen(self.config.few, key)
        observations = jnp.asarray(group.observation, standard.dtype) @ standard
        vectors = jnp.asarray(group.action, standard.dtype) @ vector
        decoded = jax.vmap(predict)(observations, vectors)
        # The identity is the first element of a finite group: its image is the prediction itself.
        free = decoded[0] if group.finite else predict(standard, vector)
        return outcome.distance(free, jnp.mean(group.returned(decoded), axis=0), self.scale(state))

    def error(self, state: PredictorState, batch: Any) -> Float[Array, ""]:
        """How far the free prediction is from what happened, in the mean over a batch."""
        terminated, scale = (batch.discount == 0).astype(batch.reward.dtype), self.scale(state)
        outputs = self._free_outputs(state.free.model, state, batch)
        facts = jax.vmap(self.outcome.happened, in_axes=(0, 0, 0, 0, None))(
            batch.observation, batch.next_observation, batch.reward, terminated, scale
        )
        predicted = jax.vmap(self.outcome.decode)(outputs)
        return jnp.mean(jax.vmap(self.outcome.distance, in_axes=(0, 0, None))(predicted, facts, scale))

    def explained(self, state: PredictorState, batch: Any) -> Float[Array, ""]:
        """Share of the variance of what follows (changes, and rewards where they are predicted) that the free predictor
        explains, in the units of its loss; below zero it does worse than the mean would. NaN where nothing varies.
        """
        outcome = self.outcome
        assert isinstance(outcome, IncrementOutcome)
        targets = jax.vmap(outcome.target)(batch.observation, batch.next_observation, batch.reward) / self.scale(state)
        predicted = self._free_outputs(state.free.model, state, batch)[:, : targets.shape[1]]
        spread = jnp.sum((targets - jnp.mean(targets, axis=0)) ** 2)
        return jnp.where(spread > 0, 1 - jnp.sum((predicted - targets) ** 2) / spread, jnp.nan)

    # --- learning -------------------------------------------------------------------------------------------------

    def observe(self, state: PredictorState, batch: Any) -> PredictorState:
        """Take a batch into the statistics."""
        inputs = state.inputs.merge(batch.observation) if self.config.standardise else state.inputs
        outcomes = state.outcomes
        if isinstance(self.outcome, IncrementOutcome) and self.outcome.scaled:
            targets = jax.vmap(self.outcome.target)(batch.observation, batch.next_observation, batch.reward)
            outcomes = outcomes.merge(targets)
        return PredictorState(state.free, state.equivariant, inputs, outcomes)

    def train(self, state: PredictorState, batch: Any) -> tuple[PredictorState, Float[Array, ""]]:
        """One gradient step of each network on the same batch; the value is the free one's loss."""
        value, gradient = jax.value_and_grad(self.free_loss)(state.free.model, state, batch)
        free, equivariant = state.free.step(gradient), state.equivariant
        if equivariant is not None:
            gradient = jax.grad(self.equivariant_loss)(equivariant.model, state, batch)
            if self.config.shared_predictor_trunk:  # then the free predictor's loss shapes it too
                through = jax.grad(lambda model: self.free_loss(state.free.model, _sharing(state, model), batch))
                gradient = jax.tree.map(jnp.add, gradient, through(equivariant.model))
            equivariant = equivariant.step(gradient)
        return PredictorState(free, equivariant, state.inputs, state.outcomes), value

    def free_loss(self, model: Model, state: PredictorState, batch: Any) -> Float[Array, ""]:
        return self._loss(self._free_outputs(model, state, batch), state, batch)

    def _free_outputs(self, model: Model, state: PredictorState, batch: Any) -> Array:
        return jax.vmap(lambda s, a: model(self.free_input(state, s, a)))(*self._inputs(state, batch))

    def equivariant_loss(self, model: Model, state: PredictorState, batch: Any) -> Float[Array, ""]:
        standard, vector = self._inputs(state, batch)
        return self._loss(jax.vmap(lambda s, a: model(jnp.concatenate([s, a])))(standard, vector), state, batch)

    def _inputs(self, state: PredictorState, batch: Any) -> tuple[Array, Array]:
        standard = jax.vmap(lambda s: self.standard(state, s))(batch.observation)
        return standard, jax.vmap(self.vector)(batch.action)

    def _loss(self, output: Array, state: PredictorState, batch: Any) -> Float[Array, ""]:
        terminated = (batch.discount == 0).astype(output.dtype)
        each = jax.vmap(self.outcome.loss, in_axes=(0, 0, 0, 0, 0, None))(
            output, batch.observation, batch.next_observation, batch.reward, terminated, self.scale(state)
        )
        return jnp.mean(each)


def _sharing(state: PredictorState, model: Model) -> PredictorState:
    """The state with another equivariant model."""
    return eqx.tree_at(lambda s: s.equivariant.model, state, model)
