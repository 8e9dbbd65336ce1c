"""One run: a config, a directory, and what happened.

config.json     what was asked for, with versions
metrics.jsonl   one object per evaluation; names are stable and documented in docs/methods.md
status.json     running, finished or failed, and at which step
tensorboard/    the same numbers for TensorBoard
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from symbreak.errors import InputError, NumericFault, StorageFault
from symbreak.training.build import Preset


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run."""

    task: str
    method: str = "partial"
    symmetry: str | None = None  # the task's first one
    preset: Preset = "default"
    steps: int | None = None  # the task's own budget
    seed: int = 0
    evaluations: int = 20  # spread evenly over the run
    episodes: int | None = None  # per evaluation: 128 on grid-worlds, 10 elsewhere
    agent: dict[str, Any] = field(default_factory=dict)  # settings of the algorithm that differ from the preset
    gate: dict[str, Any] = field(default_factory=dict)  # settings of the gate that differ from the preset


Report = Callable[[dict[str, float]], None]


def train(config: RunConfig, directory: Path | None = None, report: Report | None = None) -> list[dict[str, float]]:
    """Run to the end; evaluations are returned, written to `directory`, and passed to `report` as they come."""
    from symbreak.tasks import get_task
    from symbreak.training.build import build_agent

    task = get_task(config.task)
    steps = task.training_steps if config.steps is None else config.steps
    if steps < 1 or config.evaluations < 1:
        raise InputError(f"steps={steps} and evaluations={config.evaluations} must be positive")
    agent = build_agent(
        task,
        config.method,
        symmetry_name=config.symmetry,
        preset=config.preset,
        steps=steps,
        config=config.agent,
        gate=config.gate,
    )
    with Record(config, directory, steps) as record:
        backend = _Compiled(agent, task, config) if task.jax_env is not None else _Hosted(agent, task, config)
        borders = [round(steps * (i + 1) / config.evaluations) for i in range(config.evaluations)]
        done = 0
        for border in borders:
            started = time.perf_counter()
            metrics = backend.advance(done, border - done)
            speed = (border - done) / (time.perf_counter() - started)
            done = border
            _require_finite(metrics, done)
            record.write({"step": done, **backend.evaluate(done), **metrics})
            if report is not None:  # the speed is told, not recorded: equal runs have equal records
                report({**record.rows[-1], "steps_per_second": speed})
        if directory is not None:
            backend.write_maps(directory)
    return record.rows


class _Compiled:
    """A run on a pure-JAX world."""

    def __init__(self, agent: Any, task: Any, config: RunConfig) -> None:
        import jax

        from symbreak.training.compiled import CompiledLoop
        from symbreak.training.quality import GateJudge

        self.world = task.jax_env()
        self.agent = agent
        self.loop = CompiledLoop(agent, self.world, config.episodes or 128)
        self.key = jax.random.key(config.seed)
        self.state = self.loop.init(self.key)
        self.judge = GateJudge(self.world)

    def advance(self, start: int, steps: int) -> dict[str, float]:
        self.state, metrics = self.loop.advance(self.state, start, steps, self.key)
        return {name: float(value) for name, value in metrics.items()}

    def evaluate(self, step: int) -> dict[str, float]:
        from symbreak.nn.keys import named_key

        played = self.loop.evaluate(self.state.agent, named_key(self.key, "evaluation", step))
        result = {name: float(value) for name, value in played.items()}
        if self.agent.method.heads.gated:
            result |= self.judge.judge(self.agent.gate, self.state.agent.gate)
        return result

    def write_maps(self, directory: Path) -> None:
        """What the report shows on the grid; written by `training.maps`."""
        from symbreak.training.maps import write_grid_maps

        write_grid_maps(self.agent, self.state.agent, self.world, directory)


class _Hosted:
    """A run on a Gymnasium environment."""

    def __init__(self, agent: Any, task: Any, config: RunConfig) -> None:
        from symbreak.training.hosted import HostedLoop

        self.loop = HostedLoop(agent, lambda: task.make(config.symmetry), config.seed)
        self.episodes = config.episodes or 10

    def advance(self, start: int, steps: int) -> dict[str, float]:
        return self.loop.advance(steps)

    def evaluate(self, step: int) -> dict[str, float]:
        return self.loop.evaluate(self.episodes)

    def write_maps(self, directory: Path) -> None:
        """Only grid-worlds have maps."""


def _require_finite(metrics: dict[str, float], step: int) -> None:
    if metrics.get("gate/finite", 1.0) < 1.0:
        raise NumericFault(f"the predictors' disagreement is not finite before step {step}; lower the predictor's rate")
    for name in ("critic/loss", "actor/loss"):
        if math.isinf(metrics.get(name, 0.0)):
            raise NumericFault(f"{name} is not finite before step {step}; lower the learning rate")


class Record:
    """The files of a run. Leaving the block marks the run finished, or failed with the reason."""

    def __init__(self, config: RunConfig, directory: Path | None, steps: int) -> None:
        self.rows: list[dict[str, float]] = []
        self.directory = directory
        self._board = None
        if directory is None:
            return
        if (directory / "config.json").exists():
            raise InputError(f"{directory} already holds a run; choose another --out, or delete it to start again")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            meta = {**asdict(config), "steps": steps, "versions": _versions()}
            (directory / "config.json").write_text(json.dumps(meta, indent=1) + "\n")
            (directory / "metrics.jsonl").write_text("")
        except OSError as problem:
            raise StorageFault(f"cannot write to {directory}: {problem.strerror}; choose another --out") from problem
        from tensorboardX import SummaryWriter

        self._board = SummaryWriter(str(directory / "tensorboard"))
        self._status("running", 0)

    def __enter__(self) -> Record:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if self._board is not None:
            self._board.close()
        step = int(self.rows[-1]["step"]) if self.rows else 0
        if problem is None:
            self._status("finished", step)
        else:
            interrupted = isinstance(problem, KeyboardInterrupt)
            self._status("interrupted" if interrupted else "failed", step, f"{type(problem).__name__}: {problem}")

    def _status(self, state: str, step: int, reason: str = "") -> None:
        if self.directory is not None:
            status = {"state": state, "step": step} | ({"reason": reason} if reason else {})
            (self.directory / "status.json").write_text(json.dumps(status) + "\n")

    def write(self, row: dict[str, float]) -> None:
        row = {name: value for name, value in row.items() if not math.isnan(value)}
        self.rows.append(row)
        if self.directory is None:
            return
        with (self.directory / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        assert self._board is not None
        for name, value in row.items():
            self._board.add_scalar(name, value, int(row["step"]))
        self._status("running", int(row["step"]))


def _versions() -> dict[str, str]:
    packages = ("symbreak", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}
