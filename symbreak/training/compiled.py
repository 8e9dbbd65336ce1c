"""Training where the environment is JAX too: steps, updates and evaluation run in one compiled scan.

`advance` runs a number of environment steps, `evaluate` plays episodes with the greedy policy on its own random stream.
Both act on one seed; `jax.vmap` over states and keys runs several at once (the step counter is shared and stays out).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from symbreak.agents.agent import Transition
from symbreak.nn.keys import Key, named_key
from symbreak.training.replay import Replay


class LoopState(eqx.Module):
    """Everything that a run carries from one environment step to the next."""

    agent: Any
    replay: Replay
    environment: Any
    observation: Array


@dataclass(frozen=True)
class CompiledLoop:
    """An agent on a pure-JAX environment."""

    agent: Any
    world: Any
    episodes: int = 128  # per evaluation

    @partial(jax.jit, static_argnums=0)  # also gives every leaf a buffer of its own, so that all can be donated
    def init(self, key: Key) -> LoopState:
        environment, observation = self.world.reset(named_key(key, "reset"))
        action = jnp.zeros((), jnp.int32)
        zero = jnp.zeros(())
        example = Transition(observation, action, zero, observation, zero)
        replay = Replay.empty(self.agent.config.capacity, example)
        return LoopState(self.agent.init(named_key(key, "agent")), replay, environment, observation)

    def step(self, state: LoopState, step: Array, key: Key) -> tuple[LoopState, dict[str, Array]]:
        """One environment step and, once learning has started, one update. `step` counts from zero."""
        config = self.agent.config
        step_key = named_key(key, "step")
        explore_key, world_key, reset_key, update_key = (
            named_key(jax.random.fold_in(step_key, step), name) for name in ("explore", "world", "reset", "update")
        )
        action = self.agent.explore(state.agent, state.observation, step, explore_key)
        world, after, reward, terminated, truncated, _ = self.world.step(world_key, state.environment, action)
        discount = jnp.where(terminated, 0.0, config.discount)
        transition = Transition(state.observation, action.astype(jnp.int32), reward, after, discount)
        replay = state.replay.insert(transition)
        # The replay keeps the true last observation; only the loop goes on from a new episode.
        fresh = self.world.reset(reset_key)
        done = terminated | truncated
        world, observation = jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh, (world, after))

        def learn(agent: Any) -> tuple[Any, dict[str, Array]]:
            return self.agent.update(agent, lambda k: replay.sample(k, config.batch), step + 1, update_key)

        shapes = jax.eval_shape(learn, state.agent)[1]
        agent, metrics = jax.lax.cond(
            step + 1 >= config.learning_starts,
            learn,
            lambda agent: (agent, jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), shapes)),
            state.agent,
        )
        return LoopState(agent, replay, world, observation), metrics

    @partial(jax.jit, static_argnums=(0, 3), donate_argnums=1)
    def advance(self, state: LoopState, start: Array, steps: int, key: Key) -> tuple[LoopState, dict[str, Array]]:
        """`steps` environment steps from step number `start`; metrics are means over the steps that learned."""
        return self._advance(state, start, steps, key)

    def _advance(self, state: LoopState, start: Array, steps: int, key: Key) -> tuple[LoopState, dict[str, Array]]:
        state, metrics = jax.lax.scan(lambda s, i: self.step(s, i, key), state, start + jnp.arange(steps))
        finite = jnp.min(jnp.nan_to_num(metrics.pop("gate/finite"), nan=1.0)) if "gate/finite" in metrics else None
        means = jax.tree.map(jnp.nanmean, metrics)
        return state, means if finite is None else {**means, "gate/finite": finite}

    @partial(jax.jit, static_argnums=(0, 3), donate_argnums=1)
    def advance_all(self, states: LoopState, start: Array, steps: int, keys: Key) -> tuple[LoopState, dict[str, Array]]:
        """The same for several seeds side by side."""
        return jax.vmap(lambda state, key: self._advance(state, start, steps, key))(states, keys)

    @partial(jax.jit, static_argnums=0)
    def evaluate(self, agent_state: Any, key: Key) -> dict[str, Array]:
        """Return, success and gate use of greedy episodes."""

        def play(episode_key: Key) -> dict[str, Array]:
            world, observation = self.world.reset(named_key(episode_key, "reset"))

            def move(carry: tuple[Any, Array, Array], i: Array) -> tuple[tuple[Any, Array, Array], Any]:
                world, observation, alive = carry
                move_key = jax.random.fold_in(episode_key, i)
                act_key, world_key = jax.random.split(move_key)
                action, gate = self.agent.exploit(agent_state, observation, act_key)
                world, observation, reward, terminated, truncated, _ = self.world.step(world_key, world, action)
                record = (alive * reward, alive * terminated, alive * gate, alive)
                return (world, observation, alive * (1 - (terminated | truncated))), record

            steps = jnp.arange(self.world.horizon)
            _, (reward, success, gate, alive) = jax.lax.scan(move, (world, observation, jnp.ones(())), steps)
            length = jnp.sum(alive)
            return {
                "eval/return": jnp.sum(reward),
                "eval/success": jnp.sum(success),
                "eval/length": length,
                "eval/gate": jnp.sum(gate) / length,
            }

        return jax.tree.map(jnp.mean, jax.vmap(play)(jax.random.split(key, self.episodes)))
