"""Training on any Gymnasium environment: one compiled call per environment step.

It stores the last transition, draws a batch, updates everything and chooses the next action. Buffers are donated, and
nothing comes back to the host but the action. Evaluation uses its own environment and random stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbreak.agents.agent import Transition
from symbreak.nn.keys import Key, named_key
from symbreak.storage.replay import Replay
from symbreak.training.guarded import GuardedEnvironment, Limit, no_limit, require_an_end, steps_allowed
from symbreak.training.seats import Episode, Seat, remembered
from symbreak.training.tally import Tally, require_finite_metrics


class HostedState(eqx.Module):
    agent: Any
    replay: Replay
    tally: Tally  # of metrics since they were last read


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
        return HostedState(agent, replay, Tally.empty(metrics))

    @partial(jax.jit, static_argnums=0, inline=True)  # traced once, for its shapes and for what is run
    def _learn(self, agent: Any, replay: Replay, step: Array, key: Key) -> tuple[Any, dict[str, Array]]:
        batch = self.agent.config.batch
        return self.agent.update(agent, lambda k: replay.sample(k, batch), step, named_key(key, "update"))

    @partial(jax.jit, static_argnums=(0, 1, 6), donate_argnums=2)
    def think(
        self,
        structure: Any,
        leaves: list[Array],
        transition: tuple[Any, ...],
        observation: Any,
        step: Any,
        learn: bool,
        key: Key,
    ) -> tuple[list[Array], Array]:
        """Store a transition (the fields of `Transition`), learn, and choose the action for `observation`.

        The state comes and goes as the leaves of its tree: to take it apart and put it together again at every step
        took a twentieth of the time of a gated agent.
        """
        state: HostedState = jax.tree.unflatten(structure, leaves)
        agent, tally = state.agent, state.tally
        # A loop of one round changes the replay in place. Outside of one, draws would be made from the old replay and
        # the whole of it copied.
        rounds = jnp.sign(step)
        replay = jax.lax.fori_loop(0, rounds, lambda _, ring: ring.insert(Transition(*transition)), state.replay)
        step_key = jax.random.fold_in(named_key(key, "step"), step)
        if learn:
            agent, metrics = self._learn(agent, replay, step, step_key)
            tally = tally.add(metrics)
        action = self.agent.explore(agent, observation, step, named_key(step_key, "explore"))
        return jax.tree.leaves(HostedState(agent, replay, tally)), action

    @partial(jax.jit, static_argnums=0)
    def first_action(self, state: HostedState, observation: Any, key: Key) -> Array:
        return self.agent.explore(state.agent, observation, jnp.zeros((), jnp.int32), named_key(key, "first"))

    @partial(jax.jit, static_argnums=(0, 1))
    def exploit(
        self, structure: Any, leaves: list[Array], observation: Any, key: Key, episode: Any, move: Any
    ) -> tuple[Array, Array]:
        """The action and the gate of one move of an evaluation; the agent was taken apart once for all of them."""
        move_key = jax.random.fold_in(jax.random.fold_in(key, episode), move)
        return self.agent.exploit(jax.tree.unflatten(structure, leaves), observation, move_key)


@lru_cache(maxsize=32)
def _beginning(device: Device) -> Callable[[Key], HostedState]:
    """`device.init` without the compiler's optimisation, which takes longer than the one run it could speed up."""
    program = Device.init.lower(device, jax.random.key(0))  # pyright: ignore[reportFunctionMemberAccess]
    return program.compile(compiler_options={"xla_backend_optimization_level": "0"})


class HostedLoop:
    """An agent on a Gymnasium environment, or on several copies of it that take turns, one update per step of any.

    `make` gives new environments for training and for evaluation.
    """

    def __init__(
        self,
        agent: Any,
        make: Callable[[], gym.Env],
        seed: int = 0,
        limit: Limit = no_limit,
        *,
        copies: int = 1,
        begin: bool = True,
    ) -> None:
        self.agent, self.seed = agent, seed
        self.device = Device(agent)
        self.key = jax.random.key(seed)
        layout = agent.symmetry.observation
        most = remembered(copies, 4 if agent.symmetry.discrete else 4 * agent.symmetry.action.size)
        self.seats = [Seat(GuardedEnvironment(make(), layout, "step", limit), seed, most) for _ in range(copies)]
        self.testing = GuardedEnvironment(make(), layout, "evaluation step", limit)
        self.step = 0
        self.returns: deque[float] = deque(maxlen=100)  # of the last episodes; told, not part of the run
        if begin:  # otherwise `begin` or `continue_from` comes next
            self.begin()

    def begin(self) -> None:
        self.state = _beginning(self.device)(self.key)
        for number, seat in enumerate(self.seats):
            seat.begin(number, 0)
        self.action: Any = self.device.first_action(self.state, self._next.observation, self.key)

    @property
    def state(self) -> HostedState:
        return jax.tree.unflatten(self._structure, self._leaves)

    @state.setter
    def state(self, state: HostedState) -> None:
        self._leaves, self._structure = jax.tree.flatten(state)

    @property
    def _next(self) -> Seat:
        """Whose turn it is."""
        return self.seats[self.step % len(self.seats)]

    def continue_from(self, state: HostedState, step: int, episodes: Sequence[Episode], action: Any) -> bool:
        """Go on from a saved state. False if an environment did not come back to where it was."""
        self.state, self.step, self.action = state, step, action
        came_back = [seat.bring_back(episode, step) for seat, episode in zip(self.seats, episodes, strict=True)]
        return all(came_back)

    def run(self, steps: int) -> None:
        """Run environment steps."""
        config = self.agent.config
        for _ in range(steps):
            seat, before, action = self._next, self._next.observation, np.array(self.action)
            after, reward, terminated, truncated = seat.play(action, self.step + 1)
            discount = 0.0 if terminated else config.discount
            transition = (before, action, reward, after, np.float32(discount))
            self.step += 1
            if terminated or truncated:
                self.returns.append(seat.total)
                seat.begin(1 + max(other.number for other in self.seats), self.step)
            learn = self.step >= config.learning_starts
            state, now = (self._structure, self._leaves), np.int32(self.step)
            self._leaves, self.action = self.device.think(
                *state, transition, self._next.observation, now, learn, self.key
            )

    def fresh_tally(self) -> None:
        zeros = jax.tree.map(jnp.zeros_like, self.state.tally)
        self.state = HostedState(self.state.agent, self.state.replay, zeros)

    def advance(self, steps: int) -> dict[str, float]:
        """Run environment steps; the result is the mean of each metric over the updates made."""
        self.fresh_tally()
        self.run(steps)
        totals, counts = self.state.tally.read()
        require_finite_metrics(totals, counts, self.step)
        return {name: totals[name] / counts[name] for name in totals if counts[name] > 0}

    def evaluate(self, episodes: int = 10, pause: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Greedy episodes on the evaluation environment, with seeds that depend on the step alone.

        `pause` is called before every move and may raise: an evaluation can be given up without a trace.
        """
        key = named_key(self.key, "evaluation", self.step)
        leaves, structure = jax.tree.flatten(self.state.agent)
        returns, successes, gates, lengths = [], [], [], []
        allowed = steps_allowed(self.testing.environment)
        for episode in range(episodes):
            seed = int(np.random.SeedSequence([self.seed, 1, self.step, episode]).generate_state(1)[0])
            observation = self.testing.reset(seed, 0)
            total, length, gate_sum, info, done = 0.0, 0, 0.0, {}, False
            while not done:
                pause()
                numbers = np.int32(episode), np.int32(length)
                action, gate = self.device.exploit(structure, leaves, observation, key, *numbers)
                length += 1
                observation, reward, terminated, truncated, info = self.testing.step(np.asarray(action), length)
                total += float(reward)
                gate_sum += float(gate)
                done = terminated or truncated
                if not done:
                    require_an_end(length, allowed)
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

    def close(self) -> None:
        with ExitStack() as stack:  # each of them, also when one raises
            for guarded in (*(seat.environment for seat in self.seats), self.testing):
                stack.callback(guarded.environment.close)
