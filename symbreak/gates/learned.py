"""The learned gate: predictors → disagreement → label → classifier.

A free one-step predictor is compared with what the symmetry would predict; where the two disagree by more than a
threshold, the pair is labelled broken, and a small classifier learns the labels. Its probability is the gate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.gates.averaging import images
from symbreak.gates.gate import AbstractGate, Metrics, Propose, Sampler
from symbreak.gates.state_gate import expectile_loss
from symbreak.gates.threshold import ThresholdRule, ThresholdState, observe
from symbreak.models.learner import Learner, Optimiser, polyak
from symbreak.models.model import Model, make_model, plain_layout, style_for
from symbreak.models.predictor import AbstractOutcome, IncrementOutcome
from symbreak.models.statistics import Running, symmetric_mean, symmetric_scale
from symbreak.nn.keys import Key, named_key
from symbreak.nn.linear import Dense, Equivariant
from symbreak.symmetry.layout import Symmetry

FREQUENCIES = 7


@dataclass(frozen=True)
class GateConfig:
    """Our recommended gate; `paper` settings are made in `agents.methods`."""

    disagreement: Literal["averaged", "trained"] = "averaged"  # with the group average, or with a trained network
    threshold: ThresholdRule = field(default_factory=ThresholdRule)
    classifier: Literal["network", "head", "direct"] = "network"
    encoding: Literal["fourier", "raw"] = "raw"  # Fourier features need coordinates in [-1, 1]
    standardise: bool = True  # inputs of unbounded observations, in a way that commutes with the group
    warmup: int = 10_000  # environment steps before the gate learns
    prior: float = 0.5  # gate probability until then
    rate: float = 5e-4
    predictor_rate: float = 3e-4
    predictor_steps: int = 1  # gradient steps each time
    predictor_every: int = 1  # environment steps between two times
    gate_every: int = 1  # environment steps between two updates of the classifiers
    largest_norm: float = 1.0
    width: int = 256
    predictor_width: int = 256
    polyak: float = 0.005
    few: int = 4  # elements of a continuous group in an average
    state_gate: Literal["none", "expectile", "sampled_max"] = "none"
    candidates: int = 4
    expectile: float = 0.8
    shared_predictor_trunk: bool = False


class GateState(eqx.Module):
    """Everything a learned gate learns."""

    free: Learner[Model]
    equivariant: Learner[Model] | None
    classifier: Learner[Model] | None
    target: Model | None
    state_gate: Learner[Model] | None
    threshold: ThresholdState
    inputs: Running  # of observations
    outcomes: Running  # of changes and rewards


@dataclass(frozen=True)
class LearnedGate(AbstractGate):
    symmetry: Symmetry
    outcome: AbstractOutcome
    config: GateConfig

    # --- inputs ---------------------------------------------------------------------------------------------------

    @property
    def discrete(self) -> bool:
        return self.symmetry.discrete

    @cached_property
    def _encoded_size(self) -> int:
        size = self.symmetry.observation.size
        return size * (1 + 2 * FREQUENCIES) if self.config.encoding == "fourier" else size

    def _standard(self, state: GateState, observation: Array) -> Array:
        if not self.config.standardise:
            return observation
        layout = self.symmetry.observation
        return (observation - symmetric_mean(state.inputs, layout)) / symmetric_scale(state.inputs, layout)

    def _encode(self, observation: Array) -> Array:
        if self.config.encoding == "raw":
            return observation
        angles = np.pi * np.arange(1, FREQUENCIES + 1)[:, None] * observation
        return jnp.concatenate([observation, jnp.sin(angles).ravel(), jnp.cos(angles).ravel()])

    def _vector(self, action: Array) -> Array:
        """A discrete action as a one-hot vector, which the group permutes."""
        return jax.nn.one_hot(action, self.symmetry.action.size) if self.discrete else action

    # --- construction ---------------------------------------------------------------------------------------------

    def init(self, key: Key) -> GateState:
        config, symmetry = self.config, self.symmetry
        actions = symmetry.action.size
        trained = config.disagreement == "trained"

        def dense(name: str, source: int, target: int, width: int) -> Model:
            layout = plain_layout(symmetry, source)
            return make_model(
                Dense, layout, target * symmetry.group.trivial, key=named_key(key, name), style="plain", width=width
            )

        predictor = Optimiser(config.predictor_rate, config.largest_norm)
        classifier_optimiser = Optimiser(config.rate, config.largest_norm)
        free = dense("free predictor", self._encoded_size + actions, self.outcome.layout.size, config.predictor_width)
        equivariant = None
        if trained:
            equivariant = make_model(
                Equivariant,
                symmetry.observation.beside(symmetry.action),
                self.outcome.layout,
                key=named_key(key, "equivariant predictor"),
                style=style_for(symmetry),
                width=config.predictor_width,
            )
        classifier = None
        if config.classifier == "network":
            sizes = (self._encoded_size, actions) if self.discrete else (self._encoded_size + actions, 1)
            classifier = _prior_head(dense("classifier", *sizes, config.width), config.prior)
        if config.classifier == "head":
            classifier = _prior_head(dense("classifier", config.predictor_width, 1, config.width), config.prior)
        state_gate = None
        if config.state_gate == "expectile":
            state_gate = _prior_head(dense("state gate", self._encoded_size, 1, config.width), config.prior)
        return GateState(
            Learner.create(free, predictor),
            None if equivariant is None else Learner.create(equivariant, predictor),
            None if classifier is None else Learner.create(classifier, classifier_optimiser),
            classifier,
            None if state_gate is None else Learner.create(state_gate, classifier_optimiser),
            ThresholdState.empty(),
            Running.empty((symmetry.observation.size,)),
            Running.empty((_continuous_size(self.outcome),)),
        )

    # --- predictions ----------------------------------------------------------------------------------------------

    def _free(self, model: Model, standard: Array, action: Array) -> Array:
        return model(jnp.concatenate([self._encode(standard), action]))

    def _scale(self, state: GateState) -> Array:
        outcome = self.outcome
        if not isinstance(outcome, IncrementOutcome) or not outcome.scaled:
            return jnp.ones(())
        change = state.outcomes
        size = outcome.entries
        observation = Running(change.count, change.mean[:size], change.variance[:size])
        scale = symmetric_scale(observation, self.symmetry.observation)
        if not outcome.reward_head:
            return scale
        reward = jnp.where(change.count > 0, change.std[size:] + 1e-3, 1.0)
        return jnp.concatenate([scale, reward])

    def disagreement(self, state: GateState, observation: Array, action: Array, key: Key) -> Float[Array, ""]:
        """d(s, a): how far the free prediction is from the symmetric one."""
        outcome, vector = self.outcome, self._vector(action)
        standard = self._standard(state, observation)

        def predict(observation: Array, action: Array) -> Array:
            return outcome.decode(self._free(state.free.model, observation, action))

        if state.equivariant is not None:
            other = outcome.decode(state.equivariant.model(jnp.concatenate([standard, vector])))
            return outcome.distance(predict(standard, vector), other, self._scale(state))
        group = images(self.symmetry, outcome.layout)
        chosen = group.chosen(self.config.few, key)
        observations = jnp.asarray(group.observation, standard.dtype)[chosen] @ standard
        vectors = jnp.asarray(group.action, standard.dtype)[chosen] @ vector
        decoded = jax.vmap(predict)(observations, vectors)
        # The identity is the first element of a finite group: its image is the prediction itself.
        free = decoded[0] if group.finite else predict(standard, vector)
        return outcome.distance(free, jnp.mean(group.returned(decoded, chosen), axis=0), self._scale(state))

    # --- answers --------------------------------------------------------------------------------------------------

    def _logit(self, state: GateState, model: Model, observation: Array, action: Array) -> Array:
        standard = self._standard(state, observation)
        if self.config.classifier == "head":
            features = state.free.model.features(jnp.concatenate([self._encode(standard), self._vector(action)]))
            return model(jax.lax.stop_gradient(features))[0]
        if self.discrete:
            return model(self._encode(standard))[action]
        return model(jnp.concatenate([self._encode(standard), action]))[0]

    def of_pair(self, state: GateState, observation: Array, action: Array, *, target: bool = False) -> Float[Array, ""]:
        if self.config.classifier == "direct":
            distance = self.disagreement(state, observation, action, jax.random.key(0))
            broken = (distance > state.threshold.value).astype(observation.dtype)
            return jax.lax.stop_gradient(jnp.where(state.threshold.known, broken, self.config.prior))
        model = self._model(state, target)
        return jax.lax.stop_gradient(jax.nn.sigmoid(self._logit(state, model, observation, action)))

    def of_actions(self, state: GateState, observation: Array, *, target: bool = False) -> Float[Array, " actions"]:
        if self.config.classifier == "network":
            logits = self._model(state, target)(self._encode(self._standard(state, observation)))
            return jax.lax.stop_gradient(jax.nn.sigmoid(logits))
        actions = jnp.arange(self.symmetry.action.size)
        return jax.vmap(lambda action: self.of_pair(state, observation, action, target=target))(actions)

    def _model(self, state: GateState, target: bool) -> Model:
        assert state.classifier is not None and state.target is not None
        return state.target if target else state.classifier.model

    def of_state(self, state: GateState, observation: Array, propose: Propose, key: Key) -> Float[Array, ""]:
        if state.state_gate is not None:
            logit = state.state_gate.model(self._encode(self._standard(state, observation)))[0]
            return jax.lax.stop_gradient(jax.nn.sigmoid(logit))
        candidates = propose(key, observation)
        return jnp.max(jax.vmap(lambda action: self.of_pair(state, observation, action))(candidates))

    # --- learning -------------------------------------------------------------------------------------------------

    def update(
        self, state: GateState, sample: Sampler, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[GateState, Metrics]:
        config = self.config
        predictor_key, gate_key = jax.random.split(key)
        state = eqx.tree_at(lambda s: (s.inputs, s.outcomes), state, self._statistics(state, batch))

        def predict(state: GateState) -> tuple[GateState, Array]:
            keys = jax.random.split(predictor_key, config.predictor_steps)
            state, losses = jax.lax.scan(lambda s, k: self._train_predictors(s, sample(k)), state, keys)
            return state, jnp.mean(losses)

        due = step % config.predictor_every == 0
        state, loss = jax.lax.cond(due, predict, lambda s: (s, jnp.full((), jnp.nan)), state)
        state, metrics = jax.lax.cond(
            (step >= config.warmup) & (step % config.gate_every == 0),
            lambda s: self._train_gate(s, batch, step, gate_key, propose),
            lambda s: (s, self._silent(batch)),
            state,
        )
        return state, {"gate/predictor_loss": loss, **metrics}

    def _statistics(self, state: GateState, batch: Any) -> tuple[Running, Running]:
        inputs = state.inputs.merge(batch.observation) if self.config.standardise else state.inputs
        if not isinstance(self.outcome, IncrementOutcome) or not self.outcome.scaled:
            return inputs, state.outcomes
        targets = jax.vmap(self.outcome.target)(batch.observation, batch.next_observation, batch.reward)
        return inputs, state.outcomes.merge(targets)

    def _train_predictors(self, state: GateState, batch: Any) -> tuple[GateState, Array]:
        scale = self._scale(state)
        standard = jax.vmap(lambda s: self._standard(state, s))(batch.observation)
        vector = jax.vmap(self._vector)(batch.action)

        def loss(output: Array) -> Array:
            terminated = (batch.discount == 0).astype(output.dtype)
            each = jax.vmap(self.outcome.loss, in_axes=(0, 0, 0, 0, 0, None))(
                output, batch.observation, batch.next_observation, batch.reward, terminated, scale
            )
            return jnp.mean(each)

        def free_loss(model: Model) -> Array:
            return loss(jax.vmap(lambda s, a: self._free(model, s, a))(standard, vector))

        def equivariant_loss(model: Model) -> Array:
            return loss(jax.vmap(lambda s, a: model(jnp.concatenate([s, a])))(standard, vector))

        value, gradient = jax.value_and_grad(free_loss)(state.free.model)
        state = eqx.tree_at(lambda s: s.free, state, state.free.step(gradient))
        if state.equivariant is not None:
            gradient = jax.grad(equivariant_loss)(state.equivariant.model)
            state = eqx.tree_at(lambda s: s.equivariant, state, state.equivariant.step(gradient))
        return state, value

    def _train_gate(
        self, state: GateState, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[GateState, Metrics]:
        config = self.config
        average_key, state_key = jax.random.split(key)
        distance = jax.vmap(lambda s, a: self.disagreement(state, s, a, average_key))(batch.observation, batch.action)
        distance = jax.lax.stop_gradient(distance)
        threshold, labels = observe(config.threshold, state.threshold, distance, step)
        state = eqx.tree_at(lambda s: s.threshold, state, threshold)
        rate = jnp.mean(labels)
        if state.classifier is not None:
            inner = state

            def classifier_loss(model: Model) -> tuple[Array, Array]:
                logits = jax.vmap(lambda s, a: self._logit(inner, model, s, a))(batch.observation, batch.action)
                return jnp.mean(jax.nn.softplus(logits) - labels * logits), jnp.mean(jax.nn.sigmoid(logits))

            gradient, rate = jax.grad(classifier_loss, has_aux=True)(state.classifier.model)
            classifier = state.classifier.step(gradient)
            target = polyak(state.target, classifier.model, config.polyak)
            state = eqx.tree_at(lambda s: (s.classifier, s.target), state, (classifier, target))
        if state.state_gate is not None and propose is not None:
            state = eqx.tree_at(lambda s: s.state_gate, state, self._train_state_gate(state, batch, state_key, propose))
        metrics = {
            "gate/rate": rate,
            "gate/labels": jnp.mean(labels),
            "gate/disagreement": jnp.mean(distance),
            "gate/threshold": threshold.value,
            "gate/finite": jnp.all(jnp.isfinite(distance)).astype(distance.dtype),
        }
        return state, metrics

    def _train_state_gate(self, state: GateState, batch: Any, key: Key, propose: Propose) -> Learner[Model]:
        assert state.state_gate is not None
        keys = jax.random.split(key, len(batch.observation))
        candidates = jax.lax.stop_gradient(jax.vmap(propose)(keys, batch.observation))
        gates = jax.vmap(lambda s, actions: jax.vmap(lambda a: self.of_pair(state, s, a))(actions))(
            batch.observation, candidates
        )

        def loss(model: Model) -> Array:
            encoded = jax.vmap(lambda s: self._encode(self._standard(state, s)))(batch.observation)
            estimate = jax.nn.sigmoid(jax.vmap(model)(encoded))
            return expectile_loss(gates, estimate, self.config.expectile)

        return state.state_gate.step(jax.grad(loss)(state.state_gate.model))

    def _silent(self, batch: Any) -> Metrics:
        """Nothing to report from a step at which the gate did not learn."""
        nothing = jnp.full((), jnp.nan, batch.observation.dtype)
        names = ("gate/rate", "gate/labels", "gate/disagreement", "gate/threshold")
        return {**dict.fromkeys(names, nothing), "gate/finite": jnp.ones_like(nothing)}


def _continuous_size(outcome: AbstractOutcome) -> int:
    return outcome.entries + outcome.reward_head if isinstance(outcome, IncrementOutcome) else 1


def _prior_head(model: Model, probability: float) -> Model:
    """The same model answering `probability` everywhere until it is trained."""
    head = model.network.head
    logit = float(np.log(probability / (1 - probability)))
    head = eqx.tree_at(lambda h: (h.kernel, h.bias), head, (jnp.zeros_like(head.kernel), jnp.full_like(head.bias, logit)))
    return eqx.tree_at(lambda m: m.network.head, model, head)
