"""The command line. Commands are thin functions that import what they need when they run: `--help` stays quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from symbreak.errors import SymbreakError

RunDirectory = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]


def train(
    task: TaskName,
    method: str = "partial",
    symmetry: str | None = None,
    preset: Literal["default", "paper"] = "default",
    steps: int | None = None,
    seed: int = 0,
    evaluations: int = 20,
    episodes: int | None = None,
    checkpoint_every: int = 10_000,
    log_every: int | None = None,
    environment_timeout: float = 60.0,
    set: tuple[str, ...] = (),
    cores: Literal["one", "all"] = "one",
    out: Path | None = None,
    quiet: bool = False,
) -> int:
    """Train one agent.

    Args:
        task: Name of a task; `symbreak tasks` lists them.
        method: vanilla, augmented, exact, rpp, approximate, partial, or an ablation.
        symmetry: Which of the task's symmetries; by default its first.
        preset: Our settings, or those of the paper.
        steps: Environment steps; by default the task's budget.
        seed: Seed of everything random.
        evaluations: How many, spread evenly over the run.
        episodes: Per evaluation; by default 128 on grid-worlds and 10 elsewhere.
        checkpoint_every: Environment steps between two checkpoints; one more is made at the end.
        log_every: Environment steps between two rows of training metrics; by default with evaluations only.
        environment_timeout: Seconds that one step or reset of the environment may take.
        set: Settings that differ from the preset, such as agent.width=64 gate.warmup=5000.
        cores: One core makes a run repeatable bit for bit on machines with any number of them.
        out: Directory for the run's files; by default runs/TASK-METHOD-SEED.
        quiet: Print nothing but errors.
    """
    directory = out or Path("runs") / f"{task}-{method}-{seed}"
    with _one_run(cores) as watch:
        from symbreak.training.record import is_finished, read_status
        from symbreak.training.run import Run, RunConfig
        from symbreak.training.settings import parse_assignments

        if is_finished(directory):
            print(f"{directory} already holds a finished run of {read_status(directory)['step']} steps; nothing to do")
            return 0
        config = RunConfig(
            task=task,
            method=method,
            symmetry=symmetry,
            preset=preset,
            steps=steps,
            seed=seed,
            evaluations=evaluations,
            episodes=episodes,
            checkpoint_every=checkpoint_every,
            log_every=log_every,
            environment_timeout=environment_timeout,
            **parse_assignments(set),
        )
        return _finish(lambda: Run.create(config, directory, watch=watch), directory, quiet)


def resume(
    directory: RunDirectory,
    cores: Literal["one", "all"] = "one",
    quiet: bool = False,
) -> int:
    """Continue a run that was killed, stopped or failed, as if it had never been interrupted.

    Args:
        directory: Directory of the run.
        cores: As the run was started; another number changes the last bits, which is then said.
        quiet: Print nothing but errors.
    """
    with _one_run(cores) as watch:
        from symbreak.training.record import is_finished, read_status
        from symbreak.training.run import Run

        if is_finished(directory):
            print(f"{directory} holds a finished run of {read_status(directory)['step']} steps; nothing to do")
            return 0
        return _finish(lambda: Run.open(directory, watch=watch), directory, quiet)


@contextmanager
def _one_run(cores: str) -> Iterator[Any]:
    """Signals are heard, and cores chosen, before JAX is imported."""
    from symbreak.training.cores import use_one_core
    from symbreak.training.watch import Watch

    if cores == "one":
        use_one_core()
    with Watch(owns_process=True) as watch:
        yield watch


def _finish(make: Callable[[], Any], directory: Path, quiet: bool) -> int:
    from symbreak.progress import Progress

    with make() as run:
        title = f"{run.config.method} on {run.config.task}"
        with Progress(run.schedule.end, title, quiet, done=run.step) as progress:
            run.advance(report=progress.update)
    if not quiet:
        last = run.rows[-1]
        print(f"return {last['eval/return']:.3f} after {int(last['step'])} steps; files in {directory}")
    return 0


def fingerprint(directory: RunDirectory) -> int:
    """Print one SHA-256 of a run's state; equal for two runs if and only if they are bit-identical.

    It covers parameters, optimisers, gate, threshold, replay and training metrics, by default of the finished run. When
    the run was evaluated, logged or saved does not change it.

    Args:
        directory: Directory of the run.
    """
    from symbreak.training.inspection import fingerprint as compute

    print(compute(directory))
    return 0


def verify(directory: RunDirectory) -> int:
    """Check every checksum of a run, and say which of its checkpoints are good. The default changes nothing.

    Args:
        directory: Directory of the run.
    """
    from symbreak.errors import StorageFault
    from symbreak.training.inspection import verify as inspect

    verdict = inspect(directory)
    for status in verdict.checkpoints:
        print(f"{status.path.name}: {'good' if status.problem is None else f'damaged: {status.problem}'}")
    if verdict.metrics is not None:
        raise StorageFault(verdict.metrics)
    if not verdict.good:
        count = len(verdict.checkpoints)
        raise StorageFault(f"{directory} has no good checkpoint ({count} found); restore it or start a new run")
    return 0


def tasks(pictures: Path | None = None, json: bool = False) -> int:
    """List the tasks with their spaces, horizon and symmetries.

    Args:
        pictures: Also draw a picture of every task into this directory.
        json: Print JSON.
    """
    import json as json_module

    from symbreak.tasks import describe_tasks, draw_tasks

    rows = describe_tasks()
    if json:
        print(json_module.dumps(rows, indent=1))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, header_style="bold")
        for name in rows[0]:
            table.add_column(name)
        for row in rows:
            table.add_row(*(_in_words(value) for value in row.values()))
        Console(width=None if sys.stdout.isatty() else 200).print(table)
    if pictures is not None:
        for path in draw_tasks(pictures):
            print(path)
    return 0


def _in_words(value: object) -> str:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def audit(
    task: TaskName,
    symmetry: str | None = None,
    states: int = 200,
    seed: int = 0,
    json: bool = False,
    out: Path | None = None,
) -> int:
    """Is a declared symmetry one? Steps the simulator from states and from their images, and compares.

    Args:
        task: Name of a task, or with a symmetry of your own a Gymnasium id.
        symmetry: paper, exact, or file.py:NAME (the file is executed).
        states: How many states to compare.
        seed: Seed of the random policy that visits them.
        json: Print JSON.
        out: Also write report and picture into this directory.
    """
    from symbreak.audit import run_audit

    return run_audit(task, symmetry, states, seed, json, out)


def theory(
    task: TaskName = "grid-20",
    gamma: float = 0.99,
    out: Path | None = None,
    run: Path | None = None,
    json: bool = False,
) -> int:
    """What breaking costs on a grid-world: bounds, ceilings of the methods, the error-propagation figure.

    The numbers are given for 0, 10, 20, 30 and 40 obstacles of the same kind as the task, and for the task itself.

    Args:
        task: A grid-world.
        gamma: Discount factor.
        out: Also write the table and the figure into this directory.
        run: Draw the greedy moves of this run's agent instead of the optimal policy of the group average.
        json: Print JSON, one object per layout.
    """
    import json as json_module

    from symbreak.errors import InputError
    from symbreak.tasks import get_task
    from symbreak.theory import as_table, summarise
    from symbreak.theory.figure import draw_propagation

    chosen = get_task(task)
    if chosen.jax_env is None:
        raise InputError(f"theory needs a grid-world, {task} is none; try grid-20")
    world = chosen.jax_env()
    counts = sorted({0, 10, 20, 30, 40, world.obstacles})
    variant = task.partition("-")[2].partition("-")[2]
    names = [f"grid-{count}" + (f"-{variant}" if variant else "") for count in counts]
    rows = [
        summarise(chosen.jax_env(obstacles=count).tabular(), gamma, layout=name)
        for count, name in zip(counts, names, strict=True)
    ]
    text = json_module.dumps(rows, indent=1)
    print(text if json else as_table(rows))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "theory.json").write_text(text + "\n")
        slippery = chosen.jax_env(slip=world.slip or 0.35)
        policy = None if run is None else _greedy_moves(run, world)
        draw_propagation(
            slippery.tabular(),
            world.floor().blocked,
            out / "error-propagation.png",
            policy=policy,
            gamma=gamma,
            policy_name="invariant policy" if run is None else f"agent of {run.name}",
        )
        if not json:
            print(f"written: {out / 'theory.json'}, {out / 'error-propagation.png'}")
    return 0


def _greedy_moves(run: Path, world: Any) -> Any:
    """A trained agent's action in every state, from the map that its run wrote."""
    from symbreak.errors import InputError
    from symbreak.training.grid_record import read_grid_record

    record = read_grid_record(run / "grid.json")
    if record.size != world.size or set(record.blocked) != set(world.floor().blocked.ravel().nonzero()[0].tolist()):
        raise InputError(f"the run in {run} was trained on another floor; name the task that it was trained on")
    return record.greedy.astype(int).ravel()


def bench(what: tyro.conf.Positional[Literal["layers"]] = "layers", json: bool = False) -> int:
    """Measure speed ratios on one pinned core.

    Args:
        what: Which benchmark.
        json: Print one JSON object instead of a table.
    """
    from symbreak.bench.layers import bench_layers

    bench_layers(json=json)
    return 0


def report(
    runs: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
) -> int:
    """Make one HTML page from run directories.

    Args:
        runs: Directories of runs.
        output: The page.
    """
    from symbreak.studies.report import make_report

    print(f"report: {make_report(runs, output)}")
    return 0


COMMANDS = {
    "train": train,
    "resume": resume,
    "fingerprint": fingerprint,
    "verify": verify,
    "audit": audit,
    "tasks": tasks,
    "theory": theory,
    "report": report,
    "bench": bench,
}


def main() -> None:
    """Run one command; mistakes are reported in one line, with the exit code that belongs to them."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="symbreak", args=arguments)
    except SymbreakError as error:
        if debug:
            raise
        code = _report(error.name, str(error), error.exit_code)
    except KeyboardInterrupt:
        code = _report("interrupted", "stopped by SIGINT; start again with the same command", 75)
    except Exception as error:
        if debug:
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        code = _report("bug", f"{text}; repeat with --debug and report what it prints", 1)
    sys.exit(code or 0)


def _report(name: str, text: str, code: int) -> int:
    print(f"error[{name}]: {' '.join(text.split())}", file=sys.stderr, flush=True)
    return code
