"""Agents as objects: `learn`, `predict`, `evaluate`, `save`, `load`, as users of other libraries know them.

An agent holds a run in memory; `save` writes the directory that `symbreak train` would have written, so everything the
command line does with runs it does with these. Nothing heavy is imported before an agent is made.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from symbreak.errors import InputError

Row = dict[str, float]
Callback = Callable[[Row], Any]


def SAC(
    env: Any, symmetry: Any = None, method: str = "partial", seed: int = 0, budget: float | None = None, **config: Any
) -> Agent:
    """Soft actor-critic for continuous actions.

    Args:
        env: A Gymnasium environment, its id, or a function or class that makes it; or the name of one of our tasks.
        symmetry: How its observations and actions transform; for our tasks also a name, or None for the first one.
        method: vanilla, augmented, exact, rpp, approximate, partial, or an ablation.
        seed: Seed of everything random.
        budget: Environment steps that warm-up, random steps and replay are made for; by default the first `learn`'s.
        config: Settings of the algorithm (`width=64`), of the gate (`gate={"warmup": 500}`) and of the run (`preset`,
            `evaluations`, `episodes`, `environments`, `log_every`, `environment_timeout`).
    """
    return _make("sac", env, symmetry, method, seed, budget, config)


def DQN(
    env: Any, symmetry: Any = None, method: str = "partial", seed: int = 0, budget: float | None = None, **config: Any
) -> Agent:
    """Deep Q-learning for discrete actions; arguments as for `SAC`. The budget also decides how long ε falls."""
    return _make("dqn", env, symmetry, method, seed, budget, config)


def load(directory: str | Path, env: Any = None, symmetry: Any = None) -> Agent:
    """The agent of a run's directory, ready to predict or to learn on. The directory stays as it is.

    A run never stores what to import: environment and symmetry of one's own are given again.
    """
    from symbreak.training.choice import task_of_run
    from symbreak.training.exchange import read_run
    from symbreak.training.record import read_config

    directory = Path(directory)
    config = read_config(directory)
    task = task_of_run(config, directory, env, symmetry)
    agent = Agent(task, config, config.steps)
    agent._run = read_run(directory, task)
    agent._homes.add(directory.resolve())
    return agent


def audit(
    environment: Any, symmetry: Any = None, states: int = 200, seed: int = 0, policy: Callable[..., Any] | None = None
) -> Any:
    """Is a declared symmetry one? See `symbreak.audit`, which is this function and the package it comes from."""
    from symbreak.audit.run import audit as compare

    return compare(environment, symmetry, states, seed, policy)


def _make(
    algorithm: str, env: Any, symmetry: Any, method: str, seed: int, budget: float | None, settings: dict[str, Any]
) -> Agent:
    from symbreak.agents.methods import get_method
    from symbreak.training.choice import choose_task, copies_in, view_name
    from symbreak.training.settings import RunConfig, parse_config, parse_parts

    get_method(method)
    steps = None if budget is None else _whole("budget", budget, " of environment steps")
    task = choose_task(env, symmetry, steps)
    if task.algorithm != algorithm:
        kind, other = ("discrete", "symbreak.DQN") if task.algorithm == "dqn" else ("continuous", "symbreak.SAC")
        raise InputError(f"the actions of {task.name} are {kind}: use {other}")
    of_run = {entry.name for entry in fields(RunConfig)} - {"task", "method", "symmetry", "steps", "seed", "agent"}
    chosen = {name: value for name, value in settings.items() if name in of_run}
    others = {name: value for name, value in settings.items() if name not in of_run}
    whole = {"task": task.name, "method": method, "symmetry": view_name(symmetry), "seed": seed, "steps": steps}
    config = parse_config({"environments": copies_in(env), **whole, **chosen, "agent": others}, "the settings")
    parse_parts(config, task.algorithm)
    return Agent(task, config, steps)


def _whole(name: str, value: float, of: str = "", least: int = 1) -> int:
    """1e5 is a whole number too."""
    if not isinstance(value, Real) or not value >= least or value != value // 1:  # neither holds for NaN, or infinity
        raise InputError(f"{name} is {value!r}; use a whole number{of}, {least} or more")
    return int(value)


class Agent:
    """An agent that learns when told to. Made by `symbreak.SAC`, `symbreak.DQN` or `symbreak.load`."""

    def __init__(self, task: Any, config: Any, budget: int | None) -> None:
        self.task, self.config, self.budget = task, config, budget
        self._run: Any = None  # made when the budget is known
        self._homes: set[Path] = set()  # directories that this agent was loaded from or saved to
        self._predicted = 0
        self._acting: dict[bool, Any] = {}  # compiled, by whether deterministic
        self._action_space: Any = None

    def __repr__(self) -> str:
        return f"<{self.config.method} {self.task.algorithm.upper()} on {self.task.name}, {self.num_timesteps} steps>"

    @property
    def num_timesteps(self) -> int:
        """Environment steps learned from so far."""
        return 0 if self._run is None else self._run.step

    @property
    def rows(self) -> list[Row]:
        """Metrics of every evaluation so far; docs/methods.md explains the names."""
        return [] if self._run is None else list(self._run.rows)

    def learn(self, total_timesteps: float, callback: Callback | None = None, progress_bar: bool = False) -> Agent:
        """Learn for that many environment steps; called again, go on from there.

        The first call, or `budget`, fixes what depends on the length of training (random steps, warm-up of the gate, ε,
        replay); later calls do not begin it anew. `callback` takes the metrics of every evaluation, and of every
        `log_every` steps; if it returns False, learning stops.
        """
        from symbreak.progress import Progress

        steps = _whole("total_timesteps", total_timesteps, " of environment steps")
        if self._run is None:
            self._begin(self.budget or steps)
        run = self._require_run()
        until = run.step + steps
        if until > run.schedule.end:
            self._extend(until)
        title = f"{self.config.method} on {self.task.name}"
        learns_at = run.agent.config.learning_starts
        with Progress(until, title, not progress_bar, done=run.step, learns_at=learns_at) as progress:

            def report(row: Row) -> None:
                progress.update(row)
                if callback is not None and callback(row) is False:
                    raise _Stop

            with suppress(_Stop):
                run.advance(until, report, progress.tick)
        return self

    def _begin(self, budget: int) -> None:
        from symbreak.training.choice import choose_task
        from symbreak.training.run import Run

        config, task = replace(self.config, steps=budget), choose_task(self.task, self.config.symmetry, budget)
        self._run = Run.create(config, task=task)
        self.budget, self.config, self.task = budget, config, task  # only now: what was refused changes nothing

    def _extend(self, end: int) -> None:
        """A later end. What the budget decided is written down, so that it stays what it was."""
        from symbreak.training.schedule import Schedule

        run = self._run
        fixed = {name: getattr(run.agent.config, name) for name in ("learning_starts", "capacity")}
        if self.task.algorithm == "dqn":
            fixed["exploration_steps"] = run.agent.config.exploration_steps
        gate = dict(run.config.gate)
        if hasattr(run.agent.gate, "config"):
            gate["warmup"] = run.agent.gate.config.warmup
        self.config = replace(run.config, steps=end, agent={**run.config.agent, **fixed}, gate=gate)
        run.config, run.schedule, run.finished = self.config, Schedule(self.config, end), False

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[Any, None]:
        """Actions, as the environment takes them, for one observation or a batch; the second value is always None.

        Under the published preset the gate is drawn anew in every call, as it is at every step of an evaluation.
        """
        import jax

        from symbreak.nn.keys import named_key
        from symbreak.training.guarded import in_bounds

        run, observation = self._require_run(), self._observations(observation)
        batch = np.atleast_2d(observation)
        key = named_key(jax.random.key(self.config.seed), "predict")
        if not deterministic or run.agent.method.sample_when_evaluating:
            self._predicted += 1
            key = jax.random.fold_in(key, self._predicted)
        step = np.int32(max(run.step, run.agent.config.learning_starts))
        actions = np.asarray(self._act(deterministic)(run.driver.agent_state, batch, step, key))
        actions = in_bounds(self._space(), actions)
        return (actions if observation.ndim == 2 else actions[0]), None

    def gate(self, observation: Any, action: Any) -> Any:
        """How probable the gate finds it that the symmetry is broken there, for one pair or a batch of pairs.

        Actions are given as the environment takes them and `predict` returns them; one pair has one number as answer.
        """
        from symbreak.gates.gate import FixedGate
        from symbreak.training.guarded import from_bounds
        from symbreak.training.maps import gates_of

        run, observation, space = self._require_run(), self._observations(observation), self._space()
        gate, method = run.agent.gate, self.config.method
        if isinstance(gate, FixedGate):
            raise InputError(f"{method} has no gate that looks at states and actions; train one that has: 'partial'")
        pairs = np.atleast_2d(observation), from_bounds(space, action, observation.shape[:-1]).reshape(-1, *space.shape)
        gates = np.asarray(gates_of(gate, run.driver.agent_state.gate, *pairs))
        return gates if observation.ndim == 2 else float(gates[0])

    def _observations(self, observation: Any) -> np.ndarray:
        """One observation or a batch of them; others are refused."""
        layout = self.task.symmetry(self.config.symmetry).observation
        try:
            with np.errstate(over="ignore"):
                observation = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise InputError(f"the observation is no array of {layout.size} numbers, or of such rows") from None
        if observation.ndim not in (1, 2) or observation.shape[-1] != layout.size:
            raise InputError(
                f"observations of {self.task.name} have {layout.size} numbers, one row or a batch of rows; "
                f"this has shape {observation.shape}"
            )
        if not np.isfinite(observation).all():
            place = tuple(int(index) for index in np.argwhere(~np.isfinite(observation))[0])
            where = f"observation[{', '.join(map(str, place))}] ({layout.owner(place[-1])})"
            raise InputError(f"{where} is {observation[place]}; give finite numbers")
        return observation

    def _act(self, deterministic: bool) -> Callable[..., Any]:
        """Actions for a batch; compiled once per size of batch."""
        import jax

        agent = self._run.agent

        def act(state: Any, observations: Any, step: Any, key: Any) -> Any:
            if deterministic and not agent.method.sample_when_evaluating:
                return jax.vmap(lambda row: agent.exploit(state, row, key)[0])(observations)
            keys = jax.random.split(key, len(observations))
            if deterministic:
                return jax.vmap(lambda row, k: agent.exploit(state, row, k)[0])(observations, keys)
            return jax.vmap(lambda row, k: agent.explore(state, row, step, k))(observations, keys)

        if deterministic not in self._acting:
            self._acting[deterministic] = jax.jit(act)
        return self._acting[deterministic]

    def _space(self) -> Any:
        """The environment's actions."""
        if self._action_space is None:
            environment = self.task.make(self.config.symmetry)
            self._action_space = environment.action_space
            environment.close()
        return self._action_space

    def evaluate(self, episodes: int = 10, seed: int = 0, gate: str = "own", random: float = 0.0) -> Any:
        """Greedy episodes on a new environment: print the answer, or read `mean_return`, `success`, `gate_use`.

        `gate` may leave the choice between the experts to somebody else, to see what the gate buys: its answer `drawn`
        at every step or `decided` at one half, the `equivariant` or the `free` expert alone, a `coin`. A share of
        `random` moves shows whether the agent gets stuck.
        """
        from symbreak.training.evaluate import chosen_by, evaluate

        episodes, seed = _whole("episodes", episodes), _whole("seed", seed, least=0)
        return evaluate(chosen_by(self.trained, gate), episodes, seed, random)

    @property
    def trained(self) -> Any:
        """What has been learned so far, for `symbreak.training.evaluate` and `symbreak.training.video`."""
        from symbreak.training.evaluate import Trained

        run = self._require_run()
        return Trained(run.agent, run.driver.agent_state, self.task, self.config, run.step)

    def save(self, directory: str | Path) -> Path:
        """Write the directory of a run. One that this agent was loaded from or saved to is replaced, others never."""
        from symbreak.training.exchange import write_run

        directory = Path(directory)
        write_run(self._require_run(), directory, replace=directory.resolve() in self._homes)
        self._homes.add(directory.resolve())
        return directory

    def close(self) -> None:
        """Give back what the environments hold."""
        if self._run is not None:
            self._run.driver.close()

    def _require_run(self) -> Any:
        if self._run is None:
            if self.budget is None:
                raise InputError("this agent has learned nothing yet: call learn(steps) first, or give it a budget")
            self._begin(self.budget)
        return self._run


class _Stop(Exception):
    """A callback has seen enough."""
