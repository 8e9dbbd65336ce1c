"""What a trained agent does: greedy episodes on its environment, with the gate's answer at every step.

Nothing here writes to a run's directory, so a run can be looked at while it goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from symbreak.agents.dqn import DQN
from symbreak.errors import EnvironmentFault, InputError, SymbreakError
from symbreak.gates.gate import Empty, FixedGate
from symbreak.nn.keys import Key, named_key
from symbreak.training.build import build_agent
from symbreak.training.drivers import make_driver
from symbreak.training.exchange import stored_checkpoint
from symbreak.training.guarded import GuardedEnvironment, in_bounds, no_limit, require_an_end, steps_allowed
from symbreak.training.record import read_config
from symbreak.training.settings import RunConfig, parse_parts

Show = Callable[[np.ndarray], None]  # takes the picture of a step
CHOICES = ("own", "drawn", "decided", "equivariant", "free", "coin")  # of who chooses between two experts


@dataclass(frozen=True, eq=False)
class Trained:
    """An agent and what it has learned, with the task it learned it on."""

    agent: Any
    state: Any
    task: Any
    config: RunConfig
    step: int

    @property
    def gated(self) -> bool:
        return self.agent.method.heads.gated

    def act(self, observation: np.ndarray, key: Key) -> tuple[np.ndarray, float, float]:
        """The greedy action, the gate that chose its expert (1: the free one), and the gate's probability."""
        action, gate, probability = _decide(self.agent, self.state, observation, key)
        return np.asarray(action), float(gate), float(probability)


def load_trained(directory: Path, task: Any) -> Trained:
    """The agent of a run's newest undamaged checkpoint."""
    config = read_config(directory)
    agent_settings, gate_settings = parse_parts(config, task.algorithm)
    agent = build_agent(
        task,
        config.method,
        symmetry_name=config.symmetry,
        preset=config.preset,
        steps=config.steps,
        config=agent_settings,
        gate=gate_settings,
    )
    driver = make_driver(agent, task, config, no_limit)
    try:
        trees, _ = driver.templates()
    finally:
        driver.close()
    loaded = stored_checkpoint(directory, trees, config, agent.symmetry.digest)
    return Trained(agent, loaded.trees["agent"], task, config, loaded.step)


def chosen_by(trained: Trained, gate: str) -> Trained:
    """The same experts with another choice between them, to see what the gate buys.

    `drawn` draws from the gate's answer at every step, `decided` compares it with one half; `equivariant` and `free`
    leave everything to one expert, `coin` answers one half, and is drawn: as often as a published gate is.
    """
    if gate not in CHOICES:
        raise InputError(f"gate {gate!r} is none of {', '.join(CHOICES)}")
    if gate == "own":
        return trained
    if not trained.gated:
        raise InputError(f"gate {gate!r}: {trained.config.method} has one expert, there is no choice; leave it out")
    agent = trained.agent
    method = replace(agent.method, routing="hard", sample_when_evaluating=gate in ("drawn", "coin"))
    if gate in ("drawn", "decided"):
        return replace(trained, agent=replace(agent, method=method))
    fixed = FixedGate({"equivariant": 0.0, "free": 1.0, "coin": 0.5}[gate], agent.symmetry.action.size)
    agent, state = replace(agent, method=method, gate=fixed), replace(trained.state, gate=Empty())
    return replace(trained, agent=agent, state=state)


@partial(jax.jit, static_argnums=0)
def _decide(agent: Any, state: Any, observation: Any, key: Key) -> tuple[Any, Any, Any]:
    action, gate = agent.exploit(state, observation, key)
    if not agent.method.heads.gated:
        return action, jnp.zeros(()), jnp.zeros(())
    if isinstance(agent, DQN):
        return action, gate, agent.gate.of_actions(state.gate, observation)[action]
    # The same candidates as the policy's own: it splits the key in this way.
    propose_key, _ = jax.random.split(key)
    propose = agent._proposer(tuple(learner.model for learner in state.policies))
    return action, gate, agent.gate.of_state(state.gate, observation, propose, propose_key)


@dataclass(frozen=True)
class Episode:
    """One greedy episode, step by step."""

    rewards: tuple[float, ...]
    gates: tuple[float, ...]  # 1 where the free expert acted
    probabilities: tuple[float, ...]  # of the gate
    success: float | None  # where the environment says

    @property
    def total(self) -> float:
        return float(np.sum(self.rewards))

    def __repr__(self) -> str:
        return f"<episode of {len(self.rewards)} steps, return {self.total:.3f}>"


@dataclass(frozen=True)
class Evaluation:
    """Several episodes. As text: return and success with their standard errors, and how often the free expert acted."""

    episodes: tuple[Episode, ...]
    gated: bool

    @property
    def returns(self) -> list[float]:
        return [episode.total for episode in self.episodes]

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def success(self) -> float | None:
        found = [episode.success for episode in self.episodes if episode.success is not None]
        return float(np.mean(found)) if len(found) == len(self.episodes) else None

    @property
    def gate_use(self) -> float | None:
        """Share of steps on which the free expert acted."""
        gates = [gate for episode in self.episodes for gate in episode.gates]
        return float(np.mean(gates)) if self.gated else None

    def to_dict(self) -> dict[str, Any]:
        lengths = [len(episode.rewards) for episode in self.episodes]
        return {
            "episodes": len(self.episodes),
            "return": self.mean_return,
            "return_error": _standard_error(self.returns) if len(self.episodes) > 1 else None,
            "success": self.success,
            "length": float(np.mean(lengths)),
            "gate_use": self.gate_use,
            "gate_probability": self._mean_probability(),
            "returns": self.returns,
        }

    def _mean_probability(self) -> float | None:
        answers = [answer for episode in self.episodes for answer in episode.probabilities]
        return float(np.mean(answers)) if self.gated else None

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        count = len(self.episodes)
        error = f" ± {_standard_error(self.returns):.3f}" if count > 1 else ""
        parts = [f"return {self.mean_return:.3f}{error}"]
        if self.success is not None:
            parts.append(f"success {100 * self.success:.0f} %")
        if self.gate_use is not None:
            parts.append(f"the free expert acted on {100 * self.gate_use:.0f} % of steps")
            parts.append(f"mean gate probability {self._mean_probability():.2f}")
        return f"{', '.join(parts)} ({f'{count} episodes, ± is the standard error' if error else '1 episode'})"


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def evaluate(trained: Trained, episodes: int = 10, seed: int = 0, random: float = 0.0) -> Evaluation:
    """Greedy episodes, but for a share of `random` moves; equal seeds give equal episodes."""
    if episodes < 1:
        raise InputError(f"{episodes} episodes cannot be played; use 1 or more")
    if seed < 0:
        raise InputError(f"seed {seed} is negative; use 0 or more")
    if not 0 <= random <= 1:
        raise InputError(f"{random} is no share of random moves; use a number between 0 and 1")
    environment = trained.task.make(trained.config.symmetry)
    try:
        guarded = GuardedEnvironment(environment, trained.agent.symmetry.observation, "evaluation step")
        return Evaluation(tuple(_play(trained, guarded, seed, n, random) for n in range(episodes)), trained.gated)
    finally:
        environment.close()


def greedy_policy(trained: Trained) -> Callable[[np.ndarray], Any]:
    """From an observation to the greedy action, as the environment takes it."""
    environment = trained.task.make(trained.config.symmetry)
    space = environment.action_space
    environment.close()
    key, calls = jax.random.key(0), itertools.count()

    def policy(observation: np.ndarray) -> Any:
        # A gate that is drawn is drawn anew every time; otherwise the policy is a function.
        drawn = trained.agent.method.sample_when_evaluating
        step_key = jax.random.fold_in(key, next(calls)) if drawn else key
        return in_bounds(space, trained.act(np.asarray(observation, np.float32), step_key)[0])

    return policy


def show_episode(trained: Trained, seed: int, show: Show, random: float = 0.0) -> tuple[Episode, float]:
    """The first episode of that seed, with the picture before every step; also how many pictures make a second."""
    environment = _drawn(trained)
    try:
        guarded = GuardedEnvironment(environment, trained.agent.symmetry.observation, "evaluation step")
        episode = _play(trained, guarded, seed, 0, random, look=lambda: show(_picture(environment)))
        return episode, float(environment.metadata.get("render_fps", 30))
    finally:
        environment.close()


def _play(
    trained: Trained,
    environment: GuardedEnvironment,
    seed: int,
    number: int,
    random: float = 0.0,
    look: Callable[[], None] | None = None,
) -> Episode:
    key, rng = named_key(jax.random.key(seed), "played", number), np.random.default_rng([seed, 3, number])
    observation, info, done = environment.reset(played_seed(seed, number), 0), {}, False
    rewards, gates, probabilities = [], [], []
    allowed = steps_allowed(environment.environment)
    while not done:
        if look is not None:
            look()
        step_key = jax.random.fold_in(key, len(rewards))
        action, gate, probability = trained.act(observation, step_key)
        if rng.random() < random:
            action = np.asarray(_random(trained.agent, named_key(step_key, "random")))
        observation, reward, terminated, truncated, info = environment.step(action, len(rewards) + 1)
        done = terminated or truncated
        rewards.append(float(reward))
        gates.append(gate)
        probabilities.append(probability)
        if not done:
            require_an_end(len(rewards), allowed)
    success = float(info["is_success"]) if "is_success" in info else None
    return Episode(tuple(rewards), tuple(gates), tuple(probabilities), success)


def played_seed(seed: int, number: int) -> int:
    """Of the `number`-th episode. A spawned sequence, since [seed, 2, 0] is [seed, 2]: an episode of the training."""
    return int(np.random.SeedSequence(seed, spawn_key=(2, number)).generate_state(1)[0])


@partial(jax.jit, static_argnums=0)
def _random(agent: Any, key: Key) -> Any:
    return agent.random(key)


def _drawn(trained: Trained) -> gym.Env:
    try:
        return trained.task.make(trained.config.symmetry, render_mode="rgb_array")
    except SymbreakError:
        raise
    except Exception as problem:
        raise _not_drawn(problem) from problem


def _picture(environment: gym.Env) -> np.ndarray:
    try:
        picture = environment.render()
    except SymbreakError:
        raise
    except Exception as problem:
        raise _not_drawn(problem) from problem
    if not isinstance(picture, np.ndarray) or picture.ndim != 3:
        raise EnvironmentFault("render() returned no picture (height, width, 3); evaluate without --video")
    return np.asarray(picture[..., :3], np.uint8)


def _not_drawn(problem: Exception) -> EnvironmentFault:
    text = " ".join(str(problem).split())[:200] or type(problem).__name__
    return EnvironmentFault(f"the environment cannot be drawn: {text}; mend render(), or evaluate without --video")
