"""The command line. Commands are thin functions that import what they need when they run: `--help` stays quick."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Literal

import tyro

from symbreak.commands.arguments import RunDirectory
from symbreak.commands.auditing import audit
from symbreak.commands.evaluation import evaluate
from symbreak.commands.studying import report, study
from symbreak.commands.theory import theory
from symbreak.commands.training import resume, train
from symbreak.errors import Interrupted, StorageFault, SymbreakError


def fingerprint(directory: RunDirectory) -> int:
    """Print one SHA-256 of a run's state; equal for two runs if and only if they are bit-identical.

    It covers parameters, optimisers, gate, threshold, replay and training metrics of the newest good checkpoint. When
    the run was evaluated, logged or saved does not change it.

    Args:
        directory: Directory of the run.
    """
    from symbreak.training.inspection import fingerprint as compute

    print(compute(directory))
    return 0


def verify(directory: RunDirectory) -> int:
    """Check every checksum of a run, and say which of its checkpoints are good. Nothing is changed.

    Args:
        directory: Directory of the run.
    """
    from symbreak.errors import StorageFault
    from symbreak.training.inspection import verify as inspect
    from symbreak.training.record import no_checkpoint

    verdict = inspect(directory)
    for status in verdict.checkpoints:
        print(f"{status.path.name}: {'good' if status.problem is None else f'damaged: {status.problem}'}")
    if verdict.metrics is not None:
        raise StorageFault(verdict.metrics)
    if not verdict.checkpoints:
        raise no_checkpoint(directory)
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


def bench(
    what: tyro.conf.Positional[Literal["layers", "agents", "parts", "scaling", "all"]] = "all",
    json: bool = False,
    quick: bool = False,
    out: Path = Path("results"),
) -> int:
    """Measure speed ratios on one pinned core.

    Args:
        what: Which benchmark; all of them also write a file and a figure.
        json: Print one JSON object instead of a table.
        quick: Fewer repetitions and methods.
        out: Directory for the file and the figure.
    """
    if what == "layers":
        from symbreak.bench.layers import bench_layers

        bench_layers(json=json, repeats=30 if quick else 150)
    elif what == "agents":
        from symbreak.bench.agents import bench_agents

        bench_agents(json=json, quick=quick)
    elif what == "parts":
        from symbreak.bench.parts import bench_parts

        bench_parts(json=json, quick=quick)
    elif what == "scaling":
        from symbreak.bench.scaling import bench_scaling

        bench_scaling(json=json, quick=quick)
    else:
        from symbreak.bench.everything import bench_all

        bench_all(out, quick=quick)
    return 0


COMMANDS = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "fingerprint": fingerprint,
    "verify": verify,
    "audit": audit,
    "tasks": tasks,
    "theory": theory,
    "study": study,
    "report": report,
    "bench": bench,
}


ABOUT = (
    "Reinforcement learning with symmetries that may break. With --debug, any command shows where an error came from."
)


STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.ENOTDIR)
LISTS = ("--set", "--methods", "--settings", "--into", "--env-import")  # flags that take several values


def join_lists(arguments: list[str]) -> list[str]:
    """`--set a --set b` as `--set a b`: of a flag that is given twice only the last would count."""
    names = [argument.partition("=")[0].replace("_", "-") for argument in arguments]  # --env_import is taken as well
    if "--" in names or all(names.count(name) < 2 for name in LISTS):
        return arguments
    lists: dict[str, list[str]] = {}
    rest: list[str] = []
    current = rest
    for argument, name in zip(arguments, names, strict=True):
        if name in LISTS:
            current = lists.setdefault(name, [])
            current += [argument.partition("=")[2]] if "=" in argument else []
        else:
            current = rest if argument.startswith("-") else current
            current.append(argument)
    return [*rest, *(word for name, values in lists.items() for word in (name, *values))]


def main() -> None:
    """Run one command; mistakes are reported in one line, with the exit code that belongs to them."""
    debug = "--debug" in sys.argv
    arguments = join_lists([argument for argument in sys.argv[1:] if argument != "--debug"])
    try:
        code = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="symbreak", description=ABOUT, args=arguments)
        sys.stdout.flush()
    except SymbreakError as error:
        code = _report(error.name, str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        code = _report("interrupted", "stopped by SIGINT; start again with the same command", Interrupted.exit_code)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            code = 1
        elif isinstance(error, OSError) and error.errno in STORAGE:
            said = f"cannot use {error.filename or 'a file'}: {error.strerror}; mend that or choose another place"
            code = _report(StorageFault.name, said, StorageFault.exit_code, debug)
        else:
            code = _report("bug", f"{text}; repeat with --debug and report what it prints", 1, debug)
    sys.exit(code or 0)


def _nobody_reads() -> bool:
    """Whether whoever read what is printed wants no more of it, as `head` does; what is left then goes nowhere."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    broken = any(event & select.POLLERR for _, event in output.poll(0))
    if broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return broken


def _report(name: str, text: str, code: int, debug: bool = False) -> int:
    if debug:
        traceback.print_exc()
    if code == Interrupted.exit_code:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # leaving takes a moment; a second Ctrl-C must not change the answer
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))  # a file may say anything
    print(f"error[{name}]: {text}", file=sys.stderr, flush=True)
    return code
