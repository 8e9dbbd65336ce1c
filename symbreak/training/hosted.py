"""Training on any Gymnasium environment: one compiled call per environment step.

Each call stores the last transition, draws a batch, updates everything and chooses the next action; buffers are
donated, and nothing comes back to the host but the action. Evaluation uses its own environment and random stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbreak.agents.agent import Transition
from symbreak.errors import NumericFault
from symbreak.nn.keys import Key, named_key
from symbreak.training.replay import Replay


class HostedState(eqx.Module):
    agent: Any
    replay: Replay
    totals: dict[str, Array]  # sums of metrics since they were last read
    counts: dict[str, Array]


@dataclass(frozen=True)
class Device:
    """What runs on the device: pure functions of a hosted state."""

    agent: Any

    @partial(jax.jit, static_argnums=0)
    def init(self, key: Key) -> HostedState:
        symmetry = self.agent.symmetry
        observation = jnp.zeros(symmetry.observation.size)
        action = jnp.zeros((), jnp.int32) if symmetry.discrete else jnp.zeros(symmetry.action.size)
        zero = jnp.zeros(())
        example = Transition(observation, action, zero, observation, zero)
        replay = Replay.empty(self.agent.config.capacity, example)
        agent = self.agent.init(named_key(key, "agent"))
        metrics = jax.eval_shape(self._learn, agent, replay, jnp.zeros((), jnp.int32), key)[1]
        zeros = {name: jnp.zeros(()) for name in metrics}
        return HostedState(agent, replay, zeros, dict(zeros))

    def _learn(self, agent: Any, replay: Replay, step: Array, key: Key) -> tuple[Any, dict[str, Array]]:
        batch = self.agent.config.batch
        return self.agent.update(agent, lambda k: replay.sample(k, batch), step, named_key(key, "update"))

    @partial(jax.jit, static_argnums=(0, 5), donate_argnums=1)
    def advance(
        self, state: HostedState, transition: tuple[Any, ...], observation: Any, step: Any, learn: bool, key: Key
    ) -> tuple[HostedState, Array]:
        """Store a transition (the fields of `Transition`), learn, and choose the action for `observation`."""
        step_key = jax.random.fold_in(named_key(key, "step"), step)
        replay = state.replay.insert(Transition(*transition))
        agent, totals, counts = state.agent, state.totals, state.counts
        if learn:
            agent, metrics = self._learn(agent, replay, step, step_key)
            known = {name: jnp.isfinite(value) for name, value in metrics.items()}
            totals = {name: totals[name] + jnp.where(known[name], metrics[name], 0.0) for name in metrics}
            counts = {name: counts[name] + known[name] for name in metrics}
        action = self.agent.explore(agent, observation, step, named_key(step_key, "explore"))
        return HostedState(agent, replay, totals, counts), action

    @partial(jax.jit, static_argnums=0)
    def first_action(self, state: HostedState, observation: Any, key: Key) -> Array:
        return self.agent.explore(state.agent, observation, jnp.zeros((), jnp.int32), named_key(key, "first"))

    @partial(jax.jit, static_argnums=0)
    def exploit(self, agent: Any, observation: Any, key: Key) -> tuple[Array, Array]:
        return self.agent.exploit(agent, observation, key)


@dataclass
class HostedLoop:
    """An agent on a Gymnasium environment; `make` gives new environments for training and for evaluation."""

    agent: Any
    make: Callable[[], gym.Env]
    seed: int = 0

    def __post_init__(self) -> None:
        self.device = Device(self.agent)
        self.key = jax.random.key(self.seed)
        self.state = self.device.init(self.key)
        self.environment = self.make()
        self.evaluation = self.make()
        self.step = 0
        self.episode = 0
        self.returns: list[float] = []
        self._return = 0.0
        self.observation = self._reset()
        self.action = self.device.first_action(self.state, self.observation, self.key)

    def _reset(self) -> np.ndarray:
        seed = int(np.random.SeedSequence([self.seed, self.episode]).generate_state(1)[0])
        self.episode += 1
        observation, _ = self.environment.reset(seed=seed)
        return np.asarray(observation, np.float32)

    def advance(self, steps: int) -> dict[str, float]:
        """Run environment steps; the result is the mean of each metric over the updates made."""
        config = self.agent.config
        for _ in range(steps):
            action = np.asarray(self.action)
            after, reward, terminated, truncated, _ = self.environment.step(self._to_environment(action))
            after = np.asarray(after, np.float32)
            if not np.all(np.isfinite(after)) or not np.isfinite(reward):
                bad = np.flatnonzero(~np.isfinite(after))
                where = f"observation[{bad[0]}]" if len(bad) else "reward"
                raise NumericFault(
                    f"the environment returned a non-finite {where} at step {self.step + 1}; check the simulator"
                )
            discount = 0.0 if terminated else config.discount
            transition = (self.observation, action, np.float32(reward), after, np.float32(discount))
            self.step += 1
            self._return += float(reward)
            if terminated or truncated:
                after = self._reset()
                self.returns.append(self._return)
                self._return = 0.0
            learn = self.step >= config.learning_starts
            self.state, self.action = self.device.advance(
                self.state, transition, after, np.int32(self.step), learn, self.key
            )
            self.observation = after
        return self._read_metrics()

    def _to_environment(self, action: np.ndarray) -> Any:
        space = self.environment.action_space
        if isinstance(space, gym.spaces.Box):
            middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
            return (middle + half * action).astype(space.dtype)
        return int(action)

    def _read_metrics(self) -> dict[str, float]:
        totals, counts = jax.device_get((self.state.totals, self.state.counts))
        zeros = {name: jnp.zeros(()) for name in totals}
        self.state = HostedState(self.state.agent, self.state.replay, zeros, {name: jnp.zeros(()) for name in totals})
        metrics = {name: float(totals[name] / counts[name]) for name in totals if counts[name] > 0}
        if metrics.get("gate/finite", 1.0) < 1.0:
            raise NumericFault(
                f"the predictors' disagreement is not finite before step {self.step}; lower the predictor's rate"
            )
        return metrics

    def evaluate(self, episodes: int = 10) -> dict[str, float]:
        """Greedy episodes on the evaluation environment, with seeds that depend on the step alone."""
        key = named_key(self.key, "evaluation", self.step)
        returns, successes, gates, lengths = [], [], [], []
        for episode in range(episodes):
            seed = int(np.random.SeedSequence([self.seed, 1, self.step, episode]).generate_state(1)[0])
            observation, _ = self.evaluation.reset(seed=seed)
            total, length, gate_sum, info, done = 0.0, 0, 0.0, {}, False
            while not done:
                move_key = jax.random.fold_in(jax.random.fold_in(key, episode), length)
                action, gate = self.device.exploit(self.state.agent, np.asarray(observation, np.float32), move_key)
                observation, reward, terminated, truncated, info = self.evaluation.step(
                    self._to_environment(np.asarray(action))
                )
                total += float(reward)
                gate_sum += float(gate)
                length += 1
                done = terminated or truncated
            returns.append(total)
            lengths.append(length)
            gates.append(gate_sum / length)
            successes.append(float(info.get("is_success", np.nan)))
        result = {
            "eval/return": float(np.mean(returns)),
            "eval/length": float(np.mean(lengths)),
            "eval/gate": float(np.mean(gates)),
        }
        if np.isfinite(successes).all():
            result["eval/success"] = float(np.mean(successes))
        return result
