"""`symbreak train` and `symbreak resume`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from symbreak.commands.arguments import RunDirectory, TaskName, again, declared
from symbreak.errors import InputError


def train(
    task: TaskName,
    method: str = "partial",
    symmetry: str | None = None,
    env_import: tuple[str, ...] = (),
    preset: Literal["default", "paper"] = "default",
    steps: int | None = None,
    seed: int = 0,
    evaluations: int = 20,
    episodes: int | None = None,
    checkpoint_every: int = 10_000,
    environments: int = 1,
    log_every: int | None = None,
    environment_timeout: float = 60.0,
    set: tuple[str, ...] = (),
    cores: Literal["one", "all"] = "one",
    out: Path | None = None,
    wandb: bool = False,
    quiet: bool = False,
) -> int:
    """Train one agent.

    Args:
        task: Name of a task (`symbreak tasks` lists them), or with a symmetry of your own a Gymnasium id.
        method: vanilla, augmented, exact, rpp, approximate, partial, or an ablation.
        symmetry: One of the task's by name, by default its first; or file.py:NAME (the file is executed).
        env_import: Packages that register your environment, installed or in the current directory.
        preset: Our settings, or those of the paper.
        steps: Environment steps; by default the task's budget.
        seed: Seed of everything random.
        evaluations: How many, spread evenly over the run.
        episodes: Per evaluation; by default 128 on grid-worlds and 10 elsewhere.
        checkpoint_every: Environment steps between two checkpoints; one more is made at the end.
        environments: Copies of the environment that take turns, one update per step of any.
        log_every: Environment steps between two rows of training metrics; by default with evaluations only.
        environment_timeout: Seconds that one step or reset of the environment may take.
        set: Settings that differ from the preset, such as agent.width=64 gate.warmup=5000.
        cores: One core makes a run repeatable bit for bit on machines with any number of them.
        out: Directory for the run's files; by default runs/TASK-METHOD-SEED.
        wandb: Also send the rows of metrics to Weights & Biases.
        quiet: Print nothing but errors.
    """
    directory = out or Path("runs") / f"{task.replace('/', '-')}-{method}-{seed}"
    with _one_run(cores) as watch:
        from symbreak.training.choice import choose_task, view_name
        from symbreak.training.record import is_finished, read_config, read_status, refuse_existing
        from symbreak.training.run import Run, RunConfig
        from symbreak.training.settings import parse_assignments

        chosen = declared(symmetry, env_import)
        config = RunConfig(
            task=task,
            method=method,
            symmetry=view_name(chosen),
            preset=preset,
            steps=steps,
            seed=seed,
            evaluations=evaluations,
            episodes=episodes,
            checkpoint_every=checkpoint_every,
            environments=environments,
            log_every=log_every,
            environment_timeout=environment_timeout,
            **parse_assignments(set),
        )
        if is_finished(directory):
            if other := read_config(directory).differences(config):
                raise InputError(f"{directory} already holds a finished run with {other}; choose another --out")
            print(f"{directory} already holds a finished run of {read_status(directory)['step']} steps; nothing to do")
            return 0
        flags = again(symmetry, env_import)
        refuse_existing(directory, flags)
        found = choose_task(task, chosen, steps)
        return _finish(
            lambda: Run.create(config, directory, task=found, watch=watch), directory, quiet, watch, flags, wandb
        )


def resume(
    directory: RunDirectory,
    symmetry: str | None = None,
    env_import: tuple[str, ...] = (),
    cores: Literal["one", "all"] = "one",
    environment_timeout: float | None = None,
    wandb: bool = False,
    quiet: bool = False,
) -> int:
    """Continue a run that was killed, stopped or failed, as if it had never been interrupted.

    Args:
        directory: Directory of the run.
        symmetry: A symmetry of your own is given again, as file.py:NAME: a run never stores what to import.
        env_import: Packages that register your environment, again.
        cores: As the run was started; another number changes the last bits, which is then said.
        environment_timeout: Seconds that one step of the environment may take, if it was too few.
        wandb: Also send the rows of metrics to Weights & Biases.
        quiet: Print nothing but errors.
    """
    with _one_run(cores) as watch:
        from symbreak.training.choice import task_of_run
        from symbreak.training.record import is_finished, read_config, read_status
        from symbreak.training.run import Run

        config = read_config(directory)
        if is_finished(directory):
            print(f"{directory} holds a finished run of {read_status(directory)['step']} steps; nothing to do")
            print("(from Python it can go on: symbreak.load(DIRECTORY).learn(MORE_STEPS).save(ANOTHER))")
            return 0
        task = task_of_run(config, directory, symmetry=declared(symmetry, env_import))
        flags = again(symmetry, env_import)
        timeout = environment_timeout
        return _finish(
            lambda: Run.open(directory, task=task, watch=watch, environment_timeout=timeout),
            directory,
            quiet,
            watch,
            flags,
            wandb,
        )


@contextmanager
def _one_run(cores: str) -> Iterator[Any]:
    """Signals are heard, and cores chosen, before JAX is imported."""
    from symbreak.process.cores import use_one_core
    from symbreak.process.fast_start import prepare_process
    from symbreak.process.watch import Watch

    if cores == "one":
        use_one_core()
    prepare_process()
    with Watch(owns_process=True) as watch:
        yield watch


def _finish(make: Callable[[], Any], directory: Path, quiet: bool, watch: Any, flags: str, wandb: bool) -> int:
    from symbreak.commands.weights_and_biases import no_log, rows_to_wandb
    from symbreak.progress import Progress

    log = rows_to_wandb if wandb else no_log
    with log(directory) as send, make() as run:
        watch.resume += flags
        if run.agent.config.learning_starts >= run.schedule.end and not quiet:
            starts = run.agent.config.learning_starts
            print(f"warning: nothing is learned before step {starts}: more --steps, or --set agent.learning_starts=N")
        if run.agent.gate.unchecked and not quiet:
            print(f"note: {_blind_spots(run.agent.gate)}")
        if run.config.gate and not hasattr(run.agent.gate, "config") and not quiet:
            named = ", ".join(f"gate.{name}" for name in run.config.gate)
            print(f"note: {run.config.method} learns no gate; {named} changes nothing")
        title = f"{run.config.method} on {run.config.task}"
        learns_at = run.agent.config.learning_starts
        with Progress(run.schedule.end, title, quiet, done=run.step, learns_at=learns_at) as progress:

            def report(row: dict[str, float]) -> None:
                progress.update(row)
                send(row, run.config)

            run.advance(report=report, tick=progress.tick)
    if not quiet:
        last = run.rows[-1]
        print(f"return {last['eval/return']:.3f} after {int(last['step'])} steps; files in {directory}")
    return 0


def _blind_spots(gate: Any) -> str:
    """What a gate cannot notice, and the settings with which it could; of a grid-world they are fixed."""
    from symbreak.models.predictor import CellOutcome

    parts = gate.unchecked
    it, they = ("it", "it") if len(parts) == 1 else ("them", "they")
    named = f"{' and '.join(parts)} symmetry unchecked"
    said = f"{named}: the gate learns nothing about {it}, so {they} could break unnoticed"
    if isinstance(gate.outcome, CellOutcome):
        return said
    return f"{said}; --set {' '.join(f'gate.{part}_head=true' for part in parts)} lets the gate learn {it}"
