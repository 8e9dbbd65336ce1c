"""The command line. Each command is a thin function; what it needs is imported when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
from typing import Literal

import tyro

from symbreak.errors import SymbreakError


def bench(what: Literal["layers"], /, json: bool = False) -> int:
    """Measure speed ratios on one pinned core.

    Args:
        what: Which benchmark.
        json: Print one JSON object instead of a table.
    """
    from symbreak.bench.layers import bench_layers

    bench_layers(json=json)
    return 0


COMMANDS = {"bench": bench}


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
