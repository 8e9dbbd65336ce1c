"""The command line. Commands are thin functions that import what they need when they run: `--help` stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from symbreak.errors import SymbreakError

TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]


def train(
    task: TaskName,
    method: str = "partial",
    symmetry: str | None = None,
    preset: Literal["default", "paper"] = "default",
    steps: int | None = None,
    seed: int = 0,
    evaluations: int = 20,
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
        out: Directory for the run's files; by default runs/TASK-METHOD-SEED.
        quiet: Print nothing but errors.
    """
    from symbreak.progress import Progress
    from symbreak.tasks import get_task
    from symbreak.training.run import RunConfig
    from symbreak.training.run import train as run

    directory = out or Path("runs") / f"{task}-{method}-{seed}"
    config = RunConfig(task, method, symmetry, preset, steps, seed, evaluations)
    with Progress(steps or get_task(task).training_steps, f"{method} on {task}", quiet) as progress:
        rows = run(config, directory, progress.update)
    if not quiet:
        print(f"return {rows[-1]['eval/return']:.3f} after {int(rows[-1]['step'])} steps; files in {directory}")
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


COMMANDS = {"train": train, "audit": audit, "tasks": tasks, "theory": theory, "report": report, "bench": bench}


def main() -> None:
    """Run one command; mistakes are reported in one line, with the exit code that belongs to them."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="symbreak", args=arguments)
    except SymbreakError as error:
        if debug:
            raise
        print(f"error[{error.name}]: {error}", file=sys.stderr)
        code = error.exit_code
    sys.exit(code or 0)
