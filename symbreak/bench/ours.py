"""Our agents as contenders: all of the loop that a run uses, without its files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from symbreak.agents.agent import Transition
from symbreak.bench.imposed import ImposedGate
from symbreak.bench.products import gemm_share
from symbreak.bench.worker import WARM_UP, Contender
from symbreak.gates.learned import LearnedGate
from symbreak.storage.replay import Replay
from symbreak.tasks import get_task
from symbreak.training.build import build_agent
from symbreak.training.compiled import CompiledLoop
from symbreak.training.hosted import HostedLoop, HostedState


def make_ours(description: dict[str, Any], warm_up: int) -> Contender:
    """Keys: task, method, and optionally config (settings of the agent) and seeds (with `how`: vmap or map)."""
    task = get_task(description["task"])
    config = {"learning_starts": warm_up, "capacity": 20_000} | description.get("config", {})
    agent: Any = build_agent(task, description["method"], config=config)
    if isinstance(agent.gate, LearnedGate):  # its classifiers train from the start, as they do in most of a run
        learned = replace(agent.gate, config=replace(agent.gate.config, warmup=0))
        agent = replace(agent, gate=ImposedGate(learned))
    if task.jax_env is None:
        return Hosted(agent, task.make)
    if "seeds" in description:
        return Seeds(agent, task.jax_env(), description["seeds"], description["how"])
    return Compiled(agent, task.jax_env())


def with_rate(agent_state: Any, rate: float) -> Any:
    """The state of a gated agent whose gate answers `rate` everywhere."""
    return eqx.tree_at(lambda s: s.gate.rate, agent_state, jnp.full((), rate, agent_state.gate.rate.dtype))


def _share(agent: Any, agent_state: Any, replay: Replay) -> dict[str, float]:
    """Of one update on a drawn batch."""
    batch = replay.sample(jax.random.key(0), agent.config.batch)

    def update(state: Any, batch: Transition) -> Any:
        return agent.update(state, lambda _: batch, jnp.int32(1_000), jax.random.key(1))

    return gemm_share(update, agent_state, batch)


@partial(jax.jit, donate_argnums=0)
def _overwrite(data: Transition, rows: Transition, start: Any) -> Transition:
    return jax.tree.map(lambda ring, some: jax.lax.dynamic_update_slice_in_dim(ring, some, start, 0), data, rows)


class Hosted(Contender):
    """On a Gymnasium environment."""

    def __init__(self, agent: Any, make: Any) -> None:
        self.loop = HostedLoop(agent, make)

    def run(self, steps: int) -> None:
        self.loop.run(steps)
        jax.block_until_ready(self.loop.state)

    def impose(self, rate: float) -> None:
        state = self.loop.state
        self.loop.state = HostedState(with_rate(state.agent, rate), state.replay, state.tally)

    def fill(self, stored: int) -> None:
        """As if so many transitions had been stored: the first ones again and again, in pieces, in place."""
        state, piece = self.loop.state, 10_000
        index = np.random.default_rng(0).integers(WARM_UP, size=piece)
        rows, data = jax.tree.map(lambda ring: ring[index], state.replay.data), state.replay.data
        for start in range(0, stored, piece):
            data = _overwrite(data, rows, start)
        self.loop.state = HostedState(state.agent, Replay(data, jnp.int32(stored)), state.tally)

    def share(self) -> dict[str, float]:
        return _share(self.loop.agent, self.loop.state.agent, self.loop.state.replay)


class Compiled(Contender):
    """On an environment that is a part of the program."""

    def __init__(self, agent: Any, world: Any) -> None:
        self.loop = CompiledLoop(agent, world)
        self.key, self.step = jax.random.key(0), 0
        self.state = self.loop.init(self.key)
        self.tally = self.loop.empty_tally(self.state)

    def run(self, steps: int) -> None:
        self.state, self.tally = self.loop.run(self.state, self.tally, self.step, steps, self.key)
        self.step += steps
        jax.block_until_ready(self.state)

    def impose(self, rate: float) -> None:
        self.state = eqx.tree_at(lambda s: s.agent, self.state, with_rate(self.state.agent, rate))

    def share(self) -> dict[str, float]:
        return _share(self.loop.agent, self.state.agent, self.state.replay)


class Seeds(Contender):
    """Several seeds in one program: side by side (vmap) or one after the other (map)."""

    def __init__(self, agent: Any, world: Any, seeds: int, how: str) -> None:
        loop = CompiledLoop(agent, world)
        self.keys, self.step = jax.random.split(jax.random.key(0), seeds), jnp.int32(0)
        self.states = jax.vmap(loop.init)(self.keys)

        def one(state: Any, start: Any, steps: Any, key: Any) -> Any:
            return loop._run(state, loop.empty_tally(state), start, steps, key)[0]

        def advance(states: Any, start: Any, steps: Any, keys: Any) -> Any:
            if how == "vmap":
                return jax.vmap(lambda state, key: one(state, start, steps, key))(states, keys)
            return jax.lax.map(lambda pair: one(pair[0], start, steps, pair[1]), (states, keys))

        self.advance = jax.jit(advance, donate_argnums=0)

    def run(self, steps: int) -> None:
        self.states = jax.block_until_ready(self.advance(self.states, self.step, jnp.int32(steps), self.keys))
        self.step = self.step + steps
