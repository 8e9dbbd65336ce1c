"""The learned gate: predictors → disagreement → label → classifier.

A free one-step predictor is compared with what the symmetry would predict; where the two disagree by more than a
threshold, the pair is labelled broken, and a small classifier learns the labels. Its probability is the gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symbreak.gates.config import GateConfig
from symbreak.gates.gate import AbstractGate, Metrics, Propose, Sampler
from symbreak.gates.predictors import Predictors, PredictorState
from symbreak.gates.state_gate import expectile_loss
from symbreak.gates.threshold import ThresholdState, observe
from symbreak.models.learner import Learner, Optimiser, polyak
from symbreak.models.model import Model, make_model, plain_layout
from symbreak.models.predictor import AbstractOutcome
from symbreak.nn.keys import Key, named_key
from symbreak.nn.linear import Dense
from symbreak.symmetry.layout import Symmetry

__all__ = ["GateConfig", "GateState", "LearnedGate"]


class GateState(eqx.Module):
    """Everything a learned gate learns."""

    predictors: PredictorState
    classifier: Learner[Model] | None
    target: Model | None  # the classifier, moving slowly
    state_gate: Learner[Model] | None
    threshold: ThresholdState


class Answering(NamedTuple):
    """A gate's state without its predictors."""

    classifier: Learner[Model] | None
    target: Model | None
    state_gate: Learner[Model] | None
    threshold: ThresholdState


@dataclass(frozen=True)
class LearnedGate(AbstractGate):
    symmetry: Symmetry
    outcome: AbstractOutcome
    config: GateConfig

    @cached_property
    def predictors(self) -> Predictors:
        return Predictors(self.symmetry, self.outcome, self.config)

    @property
    def unchecked(self) -> tuple[str, ...]:
        return self.outcome.unchecked

    def init(self, key: Key) -> GateState:
        config, symmetry = self.config, self.symmetry
        encoded = self.predictors.encoded_size(config.encoding)
        optimiser = Optimiser(config.rate, config.largest_norm)

        def gate(name: str, source: int, target: int) -> Model:
            layout, outputs = plain_layout(symmetry, source), target * symmetry.group.trivial
            model = make_model(Dense, layout, outputs, key=named_key(key, name), style="plain", width=config.width)
            return _prior_head(model, config.prior)

        classifier = None
        if config.classifier == "head":
            classifier = gate("classifier", config.predictor_width, 1)
        elif config.classifier == "network" and symmetry.discrete:
            classifier = gate("classifier", encoded, symmetry.action.size)
        elif config.classifier == "network":
            classifier = gate("classifier", encoded + symmetry.action.size, 1)
        state_gate = gate("state gate", encoded, 1) if config.state_gate == "expectile" else None
        return GateState(
            self.predictors.init(key),
            None if classifier is None else Learner.create(classifier, optimiser),
            classifier,
            None if state_gate is None else Learner.create(state_gate, optimiser),
            ThresholdState.empty(),
        )

    # --- answers --------------------------------------------------------------------------------------------------

    def of_pair(self, state: GateState, observation: Array, action: Array, *, target: bool = False) -> Float[Array, ""]:
        if self.config.classifier == "direct":
            distance = self.disagreement(state, observation, action, jax.random.key(0))
            broken = (distance > state.threshold.value).astype(observation.dtype)
            return jax.lax.stop_gradient(jnp.where(state.threshold.known, broken, self.config.prior))
        logit = self._logit(state.predictors, self._model(state, target), observation, action)
        return jax.lax.stop_gradient(jax.nn.sigmoid(logit))

    def of_actions(self, state: GateState, observation: Array, *, target: bool = False) -> Float[Array, " actions"]:
        if self.config.classifier == "network":
            logits = self._model(state, target)(self._encoded(state.predictors, observation))
            return jax.lax.stop_gradient(jax.nn.sigmoid(logits))
        actions = jnp.arange(self.symmetry.action.size)
        return jax.vmap(lambda action: self.of_pair(state, observation, action, target=target))(actions)

    def of_state(self, state: GateState, observation: Array, propose: Propose, key: Key) -> Float[Array, ""]:
        if state.state_gate is not None:
            logit = state.state_gate.model(self._encoded(state.predictors, observation))[0]
            return jax.lax.stop_gradient(jax.nn.sigmoid(logit))
        candidates = propose(key, observation)
        return jnp.max(jax.vmap(lambda action: self.of_pair(state, observation, action))(candidates))

    def disagreement(self, state: GateState, observation: Array, action: Array, key: Key) -> Float[Array, ""]:
        """d(s, a): how far the free prediction is from the symmetric one."""
        return self.predictors.disagreement(state.predictors, observation, action, key)

    def _model(self, state: GateState, target: bool) -> Model:
        model = state.target if target else state.classifier and state.classifier.model
        assert model is not None
        return model

    def _encoded(self, predictors: PredictorState, observation: Array) -> Array:
        return self.predictors.encode(self.config.encoding, self.predictors.standard(predictors, observation))

    def _logit(self, predictors: PredictorState, model: Model, observation: Array, action: Array) -> Array:
        if self.config.classifier == "head":
            standard = self.predictors.standard(predictors, observation)
            pair = self.predictors.free_input(predictors, standard, self.predictors.vector(action))
            # The predictors' features are only read: labels must not shape what they are made from.
            return model(jax.lax.stop_gradient(predictors.free.model.features(pair)))[0]
        encoded = self._encoded(predictors, observation)
        if self.symmetry.discrete:
            return model(encoded)[action]
        return model(jnp.concatenate([encoded, action]))[0]

    # --- learning -------------------------------------------------------------------------------------------------

    def update(
        self, state: GateState, sample: Sampler, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[GateState, Metrics]:
        config = self.config
        predictor_key, gate_key = jax.random.split(key)

        def predict(predictors: PredictorState) -> tuple[PredictorState, Array]:
            def train(predictors: PredictorState, key: Key) -> tuple[PredictorState, Array]:
                drawn = sample(key)
                return self.predictors.train(self.predictors.observe(predictors, drawn), drawn)

            keys = jax.random.split(predictor_key, config.predictor_steps)
            predictors, losses = jax.lax.scan(train, predictors, keys)
            return predictors, jnp.mean(losses)

        due = step % config.predictor_every == 0
        predictors, loss = jax.lax.cond(due, predict, lambda s: (s, jnp.full((), jnp.nan)), state.predictors)
        # What passes through a choice is copied: the predictors, which the gate only reads, go around it.
        answering, metrics = jax.lax.cond(
            (step >= config.warmup) & (step % config.gate_every == 0),
            lambda a: self._train_answers(GateState(predictors, *a), batch, step, gate_key, propose),
            lambda a: (a, self._silent(batch)),
            Answering(state.classifier, state.target, state.state_gate, state.threshold),
        )
        return GateState(predictors, *answering), {"gate/predictor_loss": loss, **metrics}

    def _train_answers(
        self, state: GateState, batch: Any, step: Array, key: Key, propose: Propose | None
    ) -> tuple[Answering, Metrics]:
        average_key, state_key = jax.random.split(key)
        distance = self.disagreements(state, batch, average_key)
        rule = self.config.threshold
        error = self.predictors.error(state.predictors, batch) if rule.kind == "error" else None
        threshold, labels = observe(rule, state.threshold, distance, step, error, self.config.gate_every)
        rate, classifier, target, state_gate = jnp.mean(labels), state.classifier, state.target, state.state_gate
        if classifier is not None and target is not None:
            loss = jax.grad(self.classifier_loss, has_aux=True)
            gradient, rate = loss(classifier.model, state.predictors, batch, labels)
            classifier = classifier.step(gradient)
            target = polyak(target, classifier.model, self.config.polyak)
        if state_gate is not None and propose is not None:
            keys = jax.random.split(state_key, len(batch.observation))
            candidates = jax.vmap(propose)(keys, batch.observation)
            trained = GateState(state.predictors, classifier, target, state_gate, threshold)
            gradient = jax.grad(self.state_gate_loss)(state_gate.model, trained, batch, candidates)
            state_gate = state_gate.step(gradient)
        metrics = {
            "gate/rate": rate,
            "gate/labels": jnp.mean(labels),
            "gate/disagreement": jnp.mean(distance),
            "gate/threshold": threshold.value,
            "gate/finite": jnp.all(jnp.isfinite(distance)).astype(distance.dtype),
        }
        return Answering(classifier, target, state_gate, threshold), metrics

    def disagreements(self, state: GateState, batch: Any, key: Key) -> Float[Array, " batch"]:
        """d(s, a) of a batch, as a constant: labels are made from it, never trained through."""
        each = jax.vmap(lambda s, a: self.disagreement(state, s, a, key))(batch.observation, batch.action)
        return jax.lax.stop_gradient(each)

    def classifier_loss(
        self, model: Model, predictors: PredictorState, batch: Any, labels: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Cross-entropy of the labels, and the mean gate."""
        logits = jax.vmap(lambda s, a: self._logit(predictors, model, s, a))(batch.observation, batch.action)
        return jnp.mean(jax.nn.softplus(logits) - labels * logits), jnp.mean(jax.nn.sigmoid(logits))

    def state_gate_loss(
        self, model: Model, state: GateState, batch: Any, candidates: Float[Array, "batch candidates action"]
    ) -> Float[Array, ""]:
        """Expectile regression of a state's gate on the gates of candidate actions."""
        candidates = jax.lax.stop_gradient(candidates)
        gates = jax.vmap(lambda s, actions: jax.vmap(lambda a: self.of_pair(state, s, a))(actions))(
            batch.observation, candidates
        )
        encoded = jax.vmap(lambda s: self._encoded(state.predictors, s))(batch.observation)
        return expectile_loss(gates, jax.nn.sigmoid(jax.vmap(model)(encoded)), self.config.expectile)

    def _silent(self, batch: Any) -> Metrics:
        """Nothing to report from a step at which the gate did not learn."""
        nothing = jnp.full((), jnp.nan, batch.observation.dtype)
        names = ("gate/rate", "gate/labels", "gate/disagreement", "gate/threshold")
        return {**dict.fromkeys(names, nothing), "gate/finite": jnp.ones_like(nothing)}


def _prior_head(model: Model, probability: float) -> Model:
    """The same model answering `probability` everywhere until it is trained."""
    head = model.network.head
    assert isinstance(head, Dense)
    logit = float(np.log(probability / (1 - probability)))
    changed = (jnp.zeros_like(head.kernel), jnp.full_like(head.bias, logit))
    return eqx.tree_at(lambda m: m.network.head, model, eqx.tree_at(lambda h: (h.kernel, h.bias), head, changed))
