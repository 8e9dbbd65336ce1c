"""The two loops behind one interface: advance, evaluate, and give away or take back everything that is saved.

A driver's state is a tree of arrays, the replay, and a few facts for JSON. From what it takes back it goes on bit for
bit, or says that it could not.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbreak.errors import InputError
from symbreak.nn.keys import named_key
from symbreak.storage.arrays import array_from_json, array_to_json
from symbreak.storage.files import Damaged, is_count
from symbreak.storage.replay import Replay
from symbreak.training.compiled import CompiledLoop, LoopState
from symbreak.training.guarded import Limit, require_bounds
from symbreak.training.hosted import HostedLoop, HostedState
from symbreak.training.quality import GateJudge, equivariance_error, explained_change
from symbreak.training.seats import MOST_ACTIONS, Episode, reset_seed
from symbreak.training.tally import Tally

Saved = tuple[dict[str, Any], Replay, dict[str, Any]]  # arrays, replay, facts
Pause = Callable[[], None]  # called often in long evaluations; may raise


class Driver(abc.ABC):
    """An agent in its environment. `begin` or `restore` comes first."""

    agent: Any

    @abc.abstractmethod
    def begin(self) -> None: ...

    @abc.abstractmethod
    def templates(self) -> tuple[dict[str, Any], Replay]:
        """The arrays and the replay that will be saved, as shapes and types."""

    @abc.abstractmethod
    def restore(self, step: int, trees: dict[str, Any], replay: Replay, facts: Any) -> str | None:
        """Continue from there; the answer says what could not be brought back exactly."""

    @abc.abstractmethod
    def save(self) -> Saved: ...

    @abc.abstractmethod
    def run(self, start: int, steps: int) -> None: ...

    @abc.abstractmethod
    def reached(self, start: int) -> int:
        """The last whole step after `run` from `start` broke off."""

    @property
    @abc.abstractmethod
    def agent_state(self) -> Any: ...

    @property
    @abc.abstractmethod
    def tally(self) -> Tally: ...

    @abc.abstractmethod
    def fresh_tally(self) -> None:
        """Begin a new stretch of metrics."""

    @abc.abstractmethod
    def evaluate(self, step: int, pause: Pause) -> dict[str, float]: ...

    @abc.abstractmethod
    def require_bounds(self) -> None:
        """Refuse bounds of actions that the symmetry does not fit."""

    @abc.abstractmethod
    def write_maps(self, directory: Path) -> None:
        """What a report shows beside the metrics, where there is something."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give back what the environment holds."""


class CompiledDriver(Driver):
    """On a pure-JAX world, whose own state is arrays like everything else."""

    def __init__(self, agent: Any, task: Any, config: Any) -> None:
        self.agent = agent
        self.world = task.jax_env()
        self.loop = CompiledLoop(agent, self.world, config.episodes or 128)
        self.key = jax.random.key(config.seed)
        self.judge = GateJudge(self.world, agent.symmetry)
        self.state: Any = None

    def begin(self) -> None:
        self.state = self.loop.init(self.key)
        self._tally = self.loop.empty_tally(self.state)

    def templates(self) -> tuple[dict[str, Any], Replay]:
        state = jax.eval_shape(self.loop.init, self.key)
        return _compiled_trees(state, self.loop.empty_tally(state)), state.replay

    def restore(self, step: int, trees: dict[str, Any], replay: Replay, facts: Any) -> str | None:
        self.state = LoopState(trees["agent"], replay, trees["environment"], trees["observation"])
        self._tally = trees["tally"]
        return None

    def save(self) -> Saved:
        return _compiled_trees(self.state, self._tally), self.state.replay, {}

    def run(self, start: int, steps: int) -> None:
        # Whole numbers of NumPy have a type of their own; Python's would be weakly typed.
        self.state, self._tally = self.loop.run(self.state, self._tally, np.int32(start), np.int32(steps), self.key)
        jax.block_until_ready(self._tally)

    def reached(self, start: int) -> int:
        return start  # one compiled call makes all of the steps or none

    @property
    def agent_state(self) -> Any:
        return self.state.agent

    @property
    def tally(self) -> Tally:
        return self._tally

    def fresh_tally(self) -> None:
        self._tally = jax.tree.map(jnp.zeros_like, self._tally)

    def evaluate(self, step: int, pause: Pause) -> dict[str, float]:
        pause()
        played = self.loop.evaluate(self.state.agent, named_key(self.key, "evaluation", step))
        result = {name: float(value) for name, value in played.items()}
        if self.agent.method.heads.gated:
            result |= self.judge.judge(self.agent.gate, self.state.agent.gate)
        return result | _symmetry_of_policy(self.agent, self.state, self.key, step)

    def require_bounds(self) -> None:
        """Actions of grid-worlds are numbered."""

    def write_maps(self, directory: Path) -> None:
        from symbreak.training.maps import write_grid_maps

        write_grid_maps(self.agent, self.state.agent, self.world, directory)

    def close(self) -> None:
        self.state = None


def _compiled_trees(state: LoopState, tally: Tally) -> dict[str, Any]:
    return {
        "agent": state.agent,
        "environment": state.environment,
        "observation": state.observation,
        "tally": tally,
    }


class HostedDriver(Driver):
    """On Gymnasium environments, which are brought back by repeating the actions of their running episodes."""

    def __init__(self, agent: Any, task: Any, config: Any, limit: Limit) -> None:
        self.agent = agent
        self.loop = HostedLoop(
            agent, lambda: task.make(config.symmetry), config.seed, limit, copies=config.environments, begin=False
        )
        self.episodes = config.episodes or 10

    def require_bounds(self) -> None:
        require_bounds(self.loop.seats[0].environment.environment.action_space, self.agent.symmetry)

    def begin(self) -> None:
        self.loop.begin()

    def templates(self) -> tuple[dict[str, Any], Replay]:
        state = jax.eval_shape(self.loop.device.init, self.loop.key)
        symmetry = self.agent.symmetry
        action = np.zeros((), np.int32) if symmetry.discrete else np.zeros(symmetry.action.size, np.float32)
        observation = np.zeros((len(self.loop.seats), symmetry.observation.size), np.float32)
        return {"agent": state.agent, "tally": state.tally, "observation": observation, "action": action}, state.replay

    def restore(self, step: int, trees: dict[str, Any], replay: Replay, facts: Any) -> str | None:
        episodes = _read_episodes(facts, trees["observation"])
        state = HostedState(trees["agent"], replay, trees["tally"])
        if self.loop.continue_from(state, step, episodes, trees["action"]):
            return None
        long = any(episode.actions is None for episode in episodes)
        numbers = ", ".join(str(episode.number) for episode in episodes)
        reason = "it was too long to repeat" if long else "repeating it led elsewhere"
        return f"the environment could not be brought back to step {step} in episode {numbers}: {reason}"

    def save(self) -> Saved:
        loop = self.loop
        episodes = [seat.episode for seat in loop.seats]
        trees = {
            "agent": loop.state.agent,
            "tally": loop.state.tally,
            "observation": np.stack([episode.observation for episode in episodes]),
            "action": np.asarray(loop.action),
        }
        action = trees["action"]
        facts = [
            {
                "episode": episode.number,
                "reset_seed": reset_seed(loop.seed, episode.number),
                "actions": None if episode.actions is None else _written(episode.actions, action),
                "total": episode.total,
            }
            for episode in episodes
        ]
        return trees, loop.state.replay, {"episodes": facts}

    def run(self, start: int, steps: int) -> None:
        self.loop.run(steps)

    def reached(self, start: int) -> int:
        return self.loop.step

    @property
    def agent_state(self) -> Any:
        return self.loop.state.agent

    @property
    def tally(self) -> Tally:
        return self.loop.state.tally

    def fresh_tally(self) -> None:
        self.loop.fresh_tally()

    def evaluate(self, step: int, pause: Pause) -> dict[str, float]:
        result, state = self.loop.evaluate(self.episodes, pause), self.loop.state
        result |= explained_change(self.agent, state.agent, state.replay)
        return result | _symmetry_of_policy(self.agent, self.loop.state, self.loop.key, step)

    def write_maps(self, directory: Path) -> None:
        from symbreak.training.maps import write_gate_map

        state, space = self.loop.state, self.loop.seats[0].environment.environment.action_space
        write_gate_map(self.agent, state.agent, state.replay, space, directory)

    def close(self) -> None:
        self.loop.close()


def _symmetry_of_policy(agent: Any, state: Any, key: Any, step: int) -> dict[str, float]:
    error = equivariance_error(agent, state.agent, state.replay, named_key(key, "equivariance", step))
    return {"policy/equivariance_error": error}


def _written(actions: tuple[np.ndarray, ...], like: np.ndarray) -> Any:
    rows = np.stack(actions) if actions else np.zeros((0, *like.shape))
    return array_to_json(rows.astype(like.dtype))


def _read_episodes(facts: Any, observations: np.ndarray) -> list[Episode]:
    listed = facts.get("episodes") if isinstance(facts, dict) else None
    if not isinstance(listed, list) or len(listed) != len(observations):
        raise Damaged("the checkpoint does not describe the running episodes")
    return [_read_episode(*pair) for pair in zip(listed, observations, strict=True)]


def _read_episode(facts: Any, observation: np.ndarray) -> Episode:
    if not isinstance(facts, dict) or facts.keys() != {"episode", "reset_seed", "actions", "total"}:
        raise Damaged("the checkpoint does not describe the running episode")
    if not is_count(facts["episode"]) or not isinstance(facts["total"], int | float):
        raise Damaged("the checkpoint describes an impossible episode")
    rows = None
    if facts["actions"] is not None:
        actions = array_from_json(facts["actions"], "the actions of the running episode")
        if actions.ndim < 1 or len(actions) > MOST_ACTIONS:
            raise Damaged("the checkpoint describes an episode of impossible actions")
        rows = tuple(actions)
    return Episode(facts["episode"], rows, float(facts["total"]), np.asarray(observation))


def make_driver(agent: Any, task: Any, config: Any, limit: Limit) -> Driver:
    if task.jax_env is not None:
        if config.environments != 1:
            raise InputError(f"{task.name} runs one world in a compiled loop; leave environments at 1")
        return CompiledDriver(agent, task, config)
    return HostedDriver(agent, task, config, limit)
