"""The rows of metrics.jsonl for Weights & Biases, on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from symbreak.errors import InputError
from symbreak.storage.strict_json import read_json, write_json

Send = Callable[[dict[str, float], Any], None]  # a row, and the configuration of its run
FILE = "wandb.json"  # in the run's directory: which run over there this one is


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w-]{1,128}", value) is not None


@contextmanager
def no_log(directory: Path) -> Iterator[Send]:
    yield lambda row, config: None


@contextmanager
def rows_to_wandb(directory: Path) -> Iterator[Send]:
    """Project and account are those that `wandb` itself is set to (WANDB_PROJECT, `wandb login`)."""
    try:
        import wandb
    except ImportError:
        raise InputError(
            "--wandb needs the package wandb; in symbreak's directory: pip install '.[wandb]'; or leave --wandb out"
        ) from None
    service: Any = wandb
    board: Any = None

    def send(row: dict[str, float], config: Any) -> None:
        nonlocal board
        if board is None:  # with the first row: a run that cannot start leaves nothing behind
            path = directory / FILE
            known = read_json(path) if path.exists() else None
            if known is not None and not (isinstance(known, dict) and _is_id(known.get("id"))):
                raise InputError(f"{path} names no run of Weights & Biases; delete it to begin another one there")
            options = {"id": known["id"], "resume": "allow"} if known else {}
            board = service.init(name=directory.name, dir=str(directory), config=config.to_json(), **options)
            write_json(path, {"id": board.id})
        board.log({name: value for name, value in row.items() if name != "step"}, step=int(row["step"]))

    try:
        yield send
    finally:
        if board is not None:
            board.finish()
