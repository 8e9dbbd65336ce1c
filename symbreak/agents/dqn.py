"""Deep Q-learning with one or two experts.

Each expert gives a value to every action; per state and action a gate chooses which one counts:

    Q(s,a) = (1 − λ(s,a))·Q_E(s,a) + λ(s,a)·Q_N(s,a).

Everything else is ordinary DQN: a target network moved by Polyak averaging, the maximum over the next actions, a
squared temporal-difference error, ε-greedy behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from symbreak.agents.agent import Metrics, Sampler, Transition, augment, draw, mix
from symbreak.agents.methods import Method
from symbreak.agents.routing import answers
from symbreak.gates.gate import AbstractGate
from symbreak.models.critic import make_action_values
from symbreak.models.learner import Learner, Optimiser, polyak
from symbreak.models.model import Model
from symbreak.nn.keys import Key, named_key
from symbreak.symmetry.layout import Symmetry


@dataclass(frozen=True)
class DQNConfig:
    batch: int = 256
    width: int = 256
    rate: float = 3e-4
    discount: float = 0.99
    polyak: float = 0.005
    capacity: int = 100_000
    learning_starts: int = 1_000  # environment steps before the first update
    exploration_start: float = 1.0
    exploration_end: float = 0.05
    exploration_steps: int = 50_000
    route: bool = False  # ask the free expert only where the gate sends a sample to it; equal up to rounding


class DQNState(eqx.Module):
    experts: tuple[Learner[Model], ...]
    targets: tuple[Model, ...]
    gate: Any


@dataclass(frozen=True)
class DQN:
    """Pure functions of a state; the fields are static."""

    symmetry: Symmetry
    method: Method
    gate: AbstractGate
    config: DQNConfig = DQNConfig()

    def init(self, key: Key) -> DQNState:
        optimiser = Optimiser(self.config.rate, first_decay=self.method.adam_b1)
        models = tuple(
            make_action_values(
                expert.family, self.symmetry, key=named_key(key, "critic", expert.role), width=self.config.width
            )
            for expert in self.method.heads.experts
        )
        experts = tuple(Learner.create(model, optimiser) for model in models)
        return DQNState(experts, models, self.gate.init(named_key(key, "gate")))

    def explore(self, state: DQNState, observation: Array, step: Array, key: Key) -> Int[Array, ""]:
        """ε-greedy on the gated values."""
        chance_key, action_key, gate_key = jax.random.split(key, 3)
        greedy, _ = self._greedy(state, observation, gate_key, sample=True)
        progress = jnp.clip(step / max(1, self.config.exploration_steps), 0, 1)
        epsilon = self.config.exploration_start + progress * (
            self.config.exploration_end - self.config.exploration_start
        )
        return jnp.where(jax.random.uniform(chance_key) < epsilon, self.random(action_key), greedy)

    def random(self, key: Key) -> Int[Array, ""]:
        """One of the actions, each as likely as another."""
        return jax.random.randint(key, (), 0, self.symmetry.action.size)

    def exploit(self, state: DQNState, observation: Array, key: Key) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """The greedy action, and the gate that its value came through."""
        return self._greedy(state, observation, key, sample=self.method.sample_when_evaluating)

    def _greedy(self, state: DQNState, observation: Array, key: Key, *, sample: bool) -> tuple[Array, Array]:
        probability = self.gate.of_actions(state.gate, observation)
        gate = draw(self.method.routing, probability, key) if sample else self._decided(probability)
        values = mix(self.method.routing, tuple(e.model(observation) for e in state.experts), gate)
        action = jnp.argmax(values)
        return action, gate[action]

    def _decided(self, probability: Array) -> Array:
        return probability if self.method.routing == "soft" else (probability > 0.5).astype(probability.dtype)

    def values(self, state: DQNState, observation: Array) -> Float[Array, " actions"]:
        """Q(s, ·) with the gate decided, as evaluation sees it."""
        gate = self._decided(self.gate.of_actions(state.gate, observation))
        return mix(self.method.routing, tuple(e.model(observation) for e in state.experts), gate)

    def update(self, state: DQNState, sample: Sampler, step: Array, key: Key) -> tuple[DQNState, Metrics]:
        """One gradient step of everything, in the order gate → critic → target."""
        batch_key, augment_key, gate_key, critic_key = (
            named_key(key, name) for name in ("batch", "augment", "gate update", "critic")
        )
        batch = sample(batch_key)
        gate_state, gate_metrics = self.gate.update(state.gate, sample, batch, step, gate_key, None)
        if self.method.augment:
            batch = augment(self.symmetry, batch, augment_key)
        models = tuple(expert.model for expert in state.experts)
        objective = jax.value_and_grad(self.critic_loss, has_aux=True)
        (loss, metrics), gradients = objective(models, state.targets, gate_state, batch, critic_key)
        experts = tuple(expert.step(g) for expert, g in zip(state.experts, gradients, strict=True))
        targets = tuple(
            polyak(old, new.model, self.config.polyak) for old, new in zip(state.targets, experts, strict=True)
        )
        return DQNState(experts, targets, gate_state), {"critic/loss": loss, **metrics, **gate_metrics}

    def critic_loss(
        self, models: tuple[Model, ...], targets: tuple[Model, ...], gate_state: Any, batch: Transition, key: Key
    ) -> tuple[Float[Array, ""], Metrics]:
        """½(Q − y)², averaged over the batch; only the experts that are asked for Q learn from it."""
        target = self.target(targets, gate_state, batch, named_key(key, "target gate"))
        probability = jax.vmap(lambda s, a: self.gate.of_pair(gate_state, s, a))(batch.observation, batch.action)
        gate = draw(self.method.routing, probability, named_key(key, "gate"))
        values = self._values(models, batch.observation, gate > 0.5)
        rows = jnp.arange(len(batch.reward))
        value = mix(self.method.routing, tuple(expert[rows, batch.action] for expert in values), gate)
        loss = jnp.mean(0.5 * (value - jax.lax.stop_gradient(target)) ** 2)
        return loss, {"critic/value": jnp.mean(value), "gate/used": jnp.mean(gate)}

    def target(
        self, targets: tuple[Model, ...], gate_state: Any, batch: Transition, key: Key
    ) -> Float[Array, " batch"]:
        """y = r + discount·max_a' Q̄(s',a'), each next action routed by its own draw of the slow gate."""
        probability = jax.vmap(lambda s: self.gate.of_actions(gate_state, s, target=True))(batch.next_observation)
        gate = draw(self.method.routing, probability, key)
        values = self._values(targets, batch.next_observation, jnp.any(gate > 0.5, axis=-1))
        best = jnp.max(mix(self.method.routing, values, gate), axis=-1)
        return batch.reward + batch.discount * best

    def _values(
        self, models: tuple[Model, ...], observations: Array, wanted: Bool[Array, " batch"]
    ) -> tuple[Float[Array, "batch actions"], ...]:
        """Every expert's values; the free one's count only where it is wanted."""
        route = self.config.route and self.method.routing == "hard"
        return answers(lambda model, rows: jax.vmap(model)(rows), models, observations, wanted, route=route)
