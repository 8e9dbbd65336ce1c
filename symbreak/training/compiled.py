"""Training where the environment is JAX too: steps, updates and evaluation run in one compiled loop.

`run` makes any number of environment steps with one compiled program, `evaluate` plays episodes with the greedy policy
on its own random stream. Both act on one seed; `jax.vmap` over states and keys runs several at once (the step counter
is shared and stays out).
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
from symbreak.storage.replay import Replay
from symbreak.training.tally import Tally


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

    def empty_tally(self, state: Any) -> Tally:
        """For the metrics of this agent; the state may be one of shapes only."""
        zero, key = jnp.zeros((), jnp.int32), jax.random.key(0)
        return Tally.empty(jax.eval_shape(self._learn, state.agent, state.replay, zero, key)[1])

    @partial(jax.jit, static_argnums=0, inline=True)  # traced once, for its shapes and for what is run
    def _learn(self, agent: Any, replay: Replay, step: Array, key: Key) -> tuple[Any, dict[str, Array]]:
        return self.agent.update(agent, lambda k: replay.sample(k, self.agent.config.batch), step, key)

    def step(self, state: LoopState, tally: Tally, step: Array, key: Key) -> tuple[LoopState, Tally]:
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

        def learn(agent: Any, tally: Tally) -> tuple[Any, Tally]:
            agent, metrics = self._learn(agent, replay, step + 1, update_key)
            return agent, tally.add(metrics)

        agent, tally = jax.lax.cond(
            step + 1 >= config.learning_starts, learn, lambda agent, tally: (agent, tally), state.agent, tally
        )
        return LoopState(agent, replay, world, observation), tally

    @partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
    def run(self, state: LoopState, tally: Tally, start: Any, steps: Any, key: Key) -> tuple[LoopState, Tally]:
        """`steps` environment steps from step number `start`; the bits do not depend on how steps are divided."""
        return self._run(state, tally, jnp.asarray(start, jnp.int32), jnp.asarray(steps, jnp.int32), key)

    def _run(self, state: LoopState, tally: Tally, start: Array, steps: Array, key: Key) -> tuple[LoopState, Tally]:
        # The number of steps is an argument of the program and not a part of it: one compilation serves all.
        return jax.lax.fori_loop(
            start, start + steps, lambda i, carry: self.step(carry[0], carry[1], i, key), (state, tally)
        )

    def advance(self, state: LoopState, start: Any, steps: int, key: Key) -> tuple[LoopState, dict[str, Array]]:
        """The same, with the means of the metrics over the steps that learned."""
        state, tally = self.run(state, self.empty_tally(state), start, steps, key)
        return state, tally.means()

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def advance_all(self, states: LoopState, start: Any, steps: Any, keys: Key) -> tuple[LoopState, dict[str, Array]]:
        """The same for several seeds side by side."""
        start, steps = jnp.asarray(start, jnp.int32), jnp.asarray(steps, jnp.int32)

        def one(state: LoopState, key: Key) -> tuple[LoopState, dict[str, Array]]:
            state, tally = self._run(state, self.empty_tally(state), start, steps, key)
            return state, tally.means()

        return jax.vmap(one)(states, keys)

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
