"""Soft actor-critic with one or two experts.

Twin critics and policies come in one or two copies. Per pair a gate chooses the critic, per state a conservative gate
chooses the policy. Order of an update: gate → critics → target critics → policies → temperature. The minimum of the
twins is taken after the experts are mixed; one draw of the gate serves both twins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symbreak.agents.agent import Metrics, Sampler, Transition, augment, draw, mix
from symbreak.agents.methods import Method
from symbreak.agents.routing import answers
from symbreak.agents.trunk import Trunked, behind_trunk, follow, make_trunk, through_trunk
from symbreak.gates.gate import AbstractGate
from symbreak.models.critic import make_twin_critic
from symbreak.models.distribution import SquashedGaussian, blend, radial_blocks, random_action, select
from symbreak.models.learner import Learner, Optimiser, polyak
from symbreak.models.model import Model
from symbreak.models.policy import Policy, make_policy
from symbreak.nn.keys import Key, named_key
from symbreak.symmetry.layout import Symmetry

Critic = Model | Trunked  # twins, alone or with the trunk they share with others
Actor = Policy | Trunked


@dataclass(frozen=True)
class SACConfig:
    batch: int = 256
    width: int = 256
    rate: float = 3e-4  # of critics, policies and temperature
    largest_norm: float | None = 0.5  # global norm of each network's gradient
    discount: float = 0.99
    polyak: float = 0.005
    capacity: int = 1_000_000
    learning_starts: int = 10_000  # uniformly random environment steps before the first update
    first_temperature: float = 1.0
    entropy_per_action: float = -0.5  # target entropy per action dimension
    route: bool = False  # ask the free experts only where a gate sends a sample to them; equal up to rounding
    radial: bool = True  # squash vector actions by length, which commutes with rotations


class Temperature(eqx.Module):
    logarithm: Float[Array, ""]

    def __call__(self) -> Float[Array, ""]:
        return jnp.exp(self.logarithm)


class SACState(eqx.Module):
    critics: tuple[Learner[Any], ...]
    targets: tuple[Critic, ...]
    policies: tuple[Learner[Any], ...]
    temperature: Learner[Temperature]
    gate: Any


@dataclass(frozen=True)
class SAC:
    """Pure functions of a state; the fields are static."""

    symmetry: Symmetry
    method: Method
    gate: AbstractGate
    config: SACConfig = SACConfig()

    def init(self, key: Key) -> SACState:
        config, experts, shared = self.config, self.method.heads.experts, self.method.shared_trunk
        optimiser = Optimiser(config.rate, config.largest_norm, self.method.adam_b1)
        seen = behind_trunk(self.symmetry, config.width) if shared else self.symmetry
        depth = 1 if shared else 2
        critics: tuple[Any, ...] = tuple(
            make_twin_critic(e.family, seen, key=named_key(key, "critic", e.role), width=config.width, depth=depth)
            for e in experts
        )
        policies: tuple[Any, ...] = tuple(
            make_policy(
                e.family,
                seen,
                key=named_key(key, "policy", e.role),
                width=config.width,
                radial=config.radial,
                depth=depth,
            )
            for e in experts
        )
        if shared:
            trunk = make_trunk(self.symmetry, key=named_key(key, "trunk"), width=config.width)
            critics, policies = ((Trunked(trunk, first), free) for first, free in (critics, policies))
        temperature = Temperature(jnp.log(jnp.full((), config.first_temperature, jnp.result_type(float))))
        return SACState(
            tuple(Learner.create(critic, optimiser) for critic in critics),
            critics,
            tuple(Learner.create(policy, optimiser) for policy in policies),
            Learner.create(temperature, Optimiser(config.rate)),
            self.gate.init(named_key(key, "gate")),
        )

    # --- acting ---------------------------------------------------------------------------------------------------

    def explore(self, state: SACState, observation: Array, step: Array, key: Key) -> Float[Array, " action"]:
        """Uniformly random at first, then a sample of the gated policy."""
        random_key, gate_key, action_key = jax.random.split(key, 3)
        policies = tuple(learner.model for learner in state.policies)
        distribution, _ = self._policy(policies, state.gate, observation, gate_key, sample=True)
        action, _ = distribution.sample(action_key)
        return jnp.where(step < self.config.learning_starts, self.random(random_key), action)

    def random(self, key: Key) -> Float[Array, " action"]:
        """Uniform among the actions that a policy can take."""
        action = self.symmetry.action
        return random_action(action.size, radial_blocks(action) if self.config.radial else (), key)

    def exploit(self, state: SACState, observation: Array, key: Key) -> tuple[Array, Float[Array, ""]]:
        """The mode of the selected policy, and the gate that selected it."""
        policies = tuple(learner.model for learner in state.policies)
        distribution, gate = self._policy(
            policies, state.gate, observation, key, sample=self.method.sample_when_evaluating
        )
        return distribution.mode(), gate

    def _policy(
        self, policies: tuple[Actor, ...], gate_state: Any, observation: Array, key: Key, *, sample: bool
    ) -> tuple[SquashedGaussian, Float[Array, ""]]:
        """The distribution that acts, and the gate's draw for it."""
        heads, seen = through_trunk(policies, observation[None])
        if len(policies) == 1:
            return heads[0](seen[0]), jnp.zeros(())
        propose_key, draw_key = jax.random.split(key)
        equivariant, free = (policy(seen[0]) for policy in heads)
        probability = self.gate.of_state(gate_state, observation, self._proposer(policies), propose_key)
        decided = probability if self.method.routing == "soft" else (probability > 0.5).astype(probability.dtype)
        gate = draw(self.method.routing, probability, draw_key) if sample else decided
        return self._chosen(equivariant, free, gate), gate

    def _proposer(self, policies: tuple[Actor, ...]):
        """Candidate actions, half from each expert: a breaking action may lie outside what the mixture does."""
        share = self.method.candidates // len(policies)

        def propose(key: Key, observation: Array) -> Float[Array, "candidates action"]:
            keys = jax.random.split(key, (len(policies), share))
            heads, seen = through_trunk(policies, observation[None])
            drawn = [
                jax.vmap(lambda k, p=policy: p(seen[0]).sample(k)[0])(ks)
                for policy, ks in zip(heads, keys, strict=True)
            ]
            return jax.lax.stop_gradient(jnp.concatenate(drawn))

        return propose

    # --- learning -------------------------------------------------------------------------------------------------

    def update(self, state: SACState, sample: Sampler, step: Array, key: Key) -> tuple[SACState, Metrics]:
        """One gradient step of everything."""
        batch_key, augment_key, gate_key, critic_key, actor_key = (
            named_key(key, name) for name in ("batch", "augment", "gate update", "critic", "actor")
        )
        batch = sample(batch_key)
        policies = tuple(learner.model for learner in state.policies)
        gate, gate_metrics = self.gate.update(state.gate, sample, batch, step, gate_key, self._proposer(policies))
        if self.method.augment:
            batch = augment(self.symmetry, batch, augment_key)
        temperature = state.temperature.model

        objective = jax.value_and_grad(self.critic_loss, has_aux=True)
        models = tuple(learner.model for learner in state.critics)
        (critic_loss, critic_metrics), gradients = objective(
            models, state.targets, policies, gate, temperature, batch, critic_key
        )
        critics = tuple(learner.step(g) for learner, g in zip(state.critics, gradients, strict=True))
        targets = tuple(
            polyak(old, new.model, self.config.polyak) for old, new in zip(state.targets, critics, strict=True)
        )

        objective = jax.value_and_grad(self.actor_loss, has_aux=True)
        models = tuple(learner.model for learner in critics)
        (actor_loss, (log_prob, actor_gate)), gradients = objective(
            policies, models, gate, temperature, batch, actor_key
        )
        new_policies = tuple(learner.step(g) for learner, g in zip(state.policies, gradients, strict=True))
        new_policies = follow(new_policies, critics)
        new_temperature = state.temperature.step(jax.grad(self.temperature_loss)(temperature, log_prob))
        metrics = {
            "critic/loss": critic_loss,
            **critic_metrics,
            "actor/loss": actor_loss,
            "actor/entropy": -log_prob,
            "actor/gate": actor_gate,
            "actor/temperature": temperature(),
            **gate_metrics,
        }
        return SACState(critics, targets, new_policies, new_temperature, gate), metrics

    def _critic_values(
        self, critics: tuple[Critic, ...], observation: Array, action: Array, gate: Array
    ) -> Float[Array, "twins batch"]:
        """Twin values of a batch, mixed by one gate draw per pair."""
        critics, observation = through_trunk(critics, observation)
        pairs = jnp.concatenate([observation, action], axis=-1)

        def twins(critic: Model, rows: Array) -> Float[Array, "rows twins"]:
            return jax.vmap(lambda twin: jax.vmap(twin)(rows)[:, 0], out_axes=1)(critic)

        values = answers(twins, critics, pairs, gate > 0.5, route=self._route)
        return mix(self.method.routing, values, gate[:, None]).T

    @property
    def _route(self) -> bool:
        return self.config.route and self.method.routing == "hard"

    def target(
        self,
        targets: tuple[Critic, ...],
        policies: tuple[Actor, ...],
        gate: Any,
        temperature: Temperature,
        batch: Transition,
        key: Key,
    ) -> Float[Array, " batch"]:
        """y = r + discount·(min Q̄(s',a') − α·log π(a'|s')), a' from the current policy."""
        action, log_prob, _ = self._act(policies, gate, batch.next_observation, named_key(key, "action"))
        probability = jax.vmap(lambda s, a: self.gate.of_pair(gate, s, a, target=True))(batch.next_observation, action)
        drawn = draw(self.method.routing, probability, named_key(key, "gate"))
        value = jnp.min(self._critic_values(targets, batch.next_observation, action, drawn), axis=0)
        return batch.reward + batch.discount * (value - temperature() * log_prob)

    def critic_loss(
        self,
        critics: tuple[Critic, ...],
        targets: tuple[Critic, ...],
        policies: tuple[Actor, ...],
        gate: Any,
        temperature: Temperature,
        batch: Transition,
        key: Key,
    ) -> tuple[Float[Array, ""], Metrics]:
        """½(Q − y)², summed over the twins; only the critics that are asked for Q learn from it."""
        target = self.target(targets, policies, gate, temperature, batch, named_key(key, "target"))
        probability = jax.vmap(lambda s, a: self.gate.of_pair(gate, s, a))(batch.observation, batch.action)
        drawn = draw(self.method.routing, probability, named_key(key, "gate"))
        values = self._critic_values(critics, batch.observation, batch.action, drawn)
        loss = jnp.mean(jnp.sum(0.5 * (values - jax.lax.stop_gradient(target)) ** 2, axis=0))
        return loss, {"critic/value": jnp.mean(values), "gate/used": jnp.mean(drawn)}

    def actor_loss(
        self,
        policies: tuple[Actor, ...],
        critics: tuple[Critic, ...],
        gate: Any,
        temperature: Temperature,
        batch: Transition,
        key: Key,
    ) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        """α·log π(a|s) − min Q(s,a) at a fresh action; critics, gates and temperature are constants of it."""
        critics, temperature = jax.lax.stop_gradient((critics, temperature))
        action, log_prob, actor_gate = self._act(policies, gate, batch.observation, named_key(key, "action"))
        fixed = jax.lax.stop_gradient(action)
        probability = jax.vmap(lambda s, a: self.gate.of_pair(gate, s, a))(batch.observation, fixed)
        drawn = draw(self.method.routing, probability, named_key(key, "gate"))
        value = jnp.min(self._critic_values(critics, batch.observation, action, drawn), axis=0)
        loss = jnp.mean(temperature() * log_prob - value)
        if self.method.actor_penalty:
            loss = loss + self.method.actor_penalty * optax.tree_utils.tree_norm(policies, squared=True)
        return loss, (jnp.mean(log_prob), jnp.mean(actor_gate))

    def temperature_loss(self, temperature: Temperature, log_prob: Float[Array, ""]) -> Float[Array, ""]:
        """−log α·(log π + target entropy): the temperature rises while the policy is too narrow."""
        entropy_target = self.config.entropy_per_action * self.symmetry.action.size
        return -temperature.logarithm * jax.lax.stop_gradient(log_prob + entropy_target)

    def _act(
        self, policies: tuple[Actor, ...], gate: Any, observations: Array, key: Key
    ) -> tuple[Array, Float[Array, " batch"], Float[Array, " batch"]]:
        """An action of the gated policy for each observation, with its log density and the state gate's draw."""
        noise = jax.random.normal(named_key(key, "noise"), (len(observations), self.symmetry.action.size))
        drawn = jnp.zeros(len(observations))
        if len(policies) == 2:
            keys = jax.random.split(named_key(key, "candidates"), len(observations))
            propose = self._proposer(policies)
            probability = jax.vmap(lambda s, k: self.gate.of_state(gate, s, propose, k))(observations, keys)
            drawn = draw(self.method.routing, probability, named_key(key, "state gate"))
        heads, seen = through_trunk(policies, observations)
        seen = jax.lax.stop_gradient(seen)  # the values train a shared trunk, the policies only read it
        experts = answers(lambda policy, rows: jax.vmap(policy)(rows), heads, seen, drawn > 0.5, route=self._route)
        distribution = experts[0]
        if len(experts) == 2:
            distribution = jax.vmap(self._chosen)(experts[0], experts[1], drawn)
        action, log_prob = jax.vmap(lambda each, draw: each.moved(draw))(distribution, noise)
        return action, log_prob, drawn

    def _chosen(self, equivariant: SquashedGaussian, free: SquashedGaussian, gate: Array) -> SquashedGaussian:
        return blend(equivariant, free, gate) if self.method.routing == "soft" else select(equivariant, free, gate)
