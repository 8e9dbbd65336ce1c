"""The files of a run.

config.json     what was asked for
metrics.jsonl   one object per evaluation (and log); names are stable and documented in docs/methods.md
status.json     running, finished, interrupted or failed, at which step, why it is not exact if it is not, and notes
checkpoints/    the last three; see `checkpoint`
replay/         what the checkpoints refer to; see `segments`
gate.json       where a learned gate opens, at the end; see `gate_record` (grid-worlds: grid.json, `grid_record`)
tensorboard/    the numbers of metrics.jsonl for TensorBoard
run.lock        who writes here
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from symbreak.errors import InputError, StorageFault
from symbreak.storage.checkpoint import Checkpoints
from symbreak.storage.directory import RunLock, lock_run_directory
from symbreak.storage.files import Damaged, FileRecord, cut_back, read_file, replace_file, storage_faults
from symbreak.storage.strict_json import read_json
from symbreak.training.choice import needs_own_symmetry
from symbreak.training.settings import RunConfig, parse_config

MOST_METRICS = 1 << 30
BEAT = 30.0  # seconds between two signs of life
PARTS = ("checkpoints", "replay", "tensorboard")


def resume_command(directory: Path) -> str:
    return f"symbreak resume {shlex.quote(str(directory))}"


def resume_again(directory: Path, given: str = "") -> str:
    """The same, for whoever may have forgotten that a symmetry of one's own has to be given again, as was just done."""
    own = needs_own_symmetry(read_config(directory))
    return resume_command(directory) + (given or " --symmetry file.py:NAME" if own else "")


def no_checkpoint(directory: Path) -> StorageFault:
    """What to say of a run without any."""
    if is_finished(directory):
        said = "is a finished run whose checkpoints are not here (a study's records keep none); train it again"
        return StorageFault(f"{directory} {said}, with another --out")
    return StorageFault(f"{directory} has no checkpoint yet; let the run save one: {resume_again(directory)}")


def read_config(directory: Path) -> RunConfig:
    path = directory / "config.json"
    try:
        values = read_json(path)
    except Damaged as problem:
        raise InputError(
            f"{directory} holds no run that can be read ({problem}); name the directory of a run"
        ) from None
    if not isinstance(values, dict):
        raise InputError(f"{path} is no table of settings; restore it")
    return parse_config({name: value for name, value in values.items() if name != "versions"}, str(path))


def read_status(directory: Path) -> dict[str, Any]:
    """Empty where a run was killed before it could say anything."""
    try:
        status = read_json(directory / "status.json")
    except Damaged:
        return {}
    return status if isinstance(status, dict) else {}


def is_finished(directory: Path) -> bool:
    return (directory / "config.json").exists() and read_status(directory).get("state") == "finished"


def refuse_existing(directory: Path, given: str = "") -> None:
    """Refuse a directory that holds a run, with how to continue it where it can be; `given` are the flags it needs."""
    if (directory / "config.json").exists() and not is_finished(directory):
        with lock_run_directory(directory):  # a run that is going on is named instead
            pass
    _refuse(directory, given)


def _refuse(directory: Path, given: str = "") -> None:
    if is_finished(directory):
        raise InputError(f"{directory} already holds a finished run; choose another directory")
    if (directory / "config.json").exists():
        raise InputError(f"{directory} holds an unfinished run; continue it with: {resume_again(directory, given)}")
    left = [name for name in (*PARTS, "metrics.jsonl") if _holds_something(directory / name)]
    if left:
        raise InputError(f"{directory} holds {left[0]} of a run without config.json; restore that, or choose another")


def _holds_something(path: Path) -> bool:
    with storage_faults(f"look into {path}"):
        return any(path.iterdir()) if path.is_dir() else path.is_file() and path.stat().st_size > 0


def _make_parts(directory: Path) -> None:
    """The directories within a run's; what they link to elsewhere is none of its business."""
    for name in PARTS:
        if (directory / name).is_symlink():
            raise Damaged(f"{directory / name} is a symbolic link; remove it")
        (directory / name).mkdir(exist_ok=True)


class Record:
    """The directory of one run, locked by this process; `None` as directory keeps rows in memory only."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.rows: list[dict[str, float]] = []
        self.inexact: list[str] = []
        self.notes: tuple[str, ...] = ()  # to be read beside the results
        self._size, self._digest = 0, hashlib.sha256()
        self._board: Any = None
        self._lock: RunLock | None = None
        self._held = ExitStack()
        self._beaten = 0.0

    @classmethod
    def create(cls, config: RunConfig, directory: Path | None, versions: dict[str, str]) -> Record:
        """A new run; a directory that holds one already is refused."""
        record = cls(directory)
        if directory is None:
            return record
        with storage_faults(f"create {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
        record._take()
        try:
            _refuse(directory)  # once more: another process may have come first
            with storage_faults(f"create the files of a run in {directory}"):
                _make_parts(directory)
            replace_file(directory / "metrics.jsonl", b"")
            text = json.dumps({**config.to_json(), "versions": versions}, indent=1) + "\n"
            replace_file(directory / "config.json", text.encode())  # last: with it, a directory holds a run
            record.status("running", 0)
            record._open_board(0)
        except BaseException:
            record.close()
            raise
        return record

    @classmethod
    def open(cls, directory: Path) -> Record:
        """An existing run, which this process alone continues."""
        record = cls(directory)
        record._take()
        return record

    def _take(self) -> None:
        assert self.directory is not None
        self._lock = self._held.enter_context(lock_run_directory(self.directory))

    def continue_at(self, step: int, metrics: FileRecord | None) -> None:
        """Undo what was written after the checkpoint; none: everything, the run begins anew."""
        assert self.directory is not None
        path = self.directory / "metrics.jsonl"
        with storage_faults(f"continue the run in {self.directory}"):
            _make_parts(self.directory)
            if metrics is None:
                replace_file(path, b"")
            data = read_file(path, MOST_METRICS)[: metrics.size] if metrics is not None else bytearray()
        if metrics is not None:
            require_prefix(data, metrics, path)
            cut_back(path, metrics.size)
        self._size, self._digest = len(data), hashlib.sha256(data)
        self.rows = [json.loads(line) for line in data.splitlines()]
        self.status("running", step)
        self._open_board(step)

    def _open_board(self, step: int) -> None:
        from symbreak.training.board import Board

        assert self.directory is not None
        with storage_faults(f"write TensorBoard files to {self.directory}"):
            self._board = Board(self.directory / "tensorboard", step)

    @property
    def checkpoints(self) -> Checkpoints:
        assert self.directory is not None
        return Checkpoints(self.directory / "checkpoints", self.directory / "replay")

    @property
    def metrics(self) -> dict[str, Any]:
        """Size and SHA-256 of what stands in metrics.jsonl."""
        return FileRecord(self._size, self._digest.hexdigest()).to_json()

    def write(self, row: dict[str, float]) -> None:
        """One line of metrics; what has no value is left out."""
        row = {name: value for name, value in row.items() if not math.isnan(value)}
        if self.directory is None:
            self.rows.append(row)
            return
        self.beat(always=True)
        line = (json.dumps(row) + "\n").encode()
        path = self.directory / "metrics.jsonl"
        with storage_faults(f"write {path}"):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.write(descriptor, line) != len(line):
                    said = "the disk took half a line; free some space, then resume"
                    raise StorageFault(f"cannot write {path}: {said}")
                os.fsync(descriptor)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, self._size)  # half a line would spoil the next one
                raise
            finally:
                os.close(descriptor)
        self.rows.append(row)
        self._size += len(line)
        self._digest.update(line)
        with storage_faults(f"write TensorBoard files to {self.directory}"):
            self._board.add(row, int(row["step"]))
        self.status("running", int(row["step"]))

    def status(self, state: str, step: int, reason: str = "") -> None:
        if self.directory is not None:
            status: dict[str, Any] = {"state": state, "step": step, "exact": not self.inexact}
            status |= {"reason": reason} if reason else {}
            status |= {"inexact": list(self.inexact)} if self.inexact else {}
            status |= {"notes": list(self.notes)} if self.notes else {}
            replace_file(self.directory / "status.json", (json.dumps(status) + "\n").encode())

    def beat(self, step: int | None = None, *, always: bool = False) -> None:
        """A sign of life, now and then, with the step that was reached: whoever watches a study sees its runs move.

        Also finds out whether the directory is still there and ours.
        """
        if self._lock is not None and (always or time.monotonic() > self._beaten + BEAT):
            self._lock.beat()
            self._beaten = time.monotonic()
            if step is not None:
                self.status("running", step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None
        self._held.close()


def require_prefix(data: bytes | bytearray, expected: FileRecord, path: Path) -> None:
    """The metrics a checkpoint saw are still there, bit for bit."""
    if len(data) < expected.size or hashlib.sha256(data[: expected.size]).hexdigest() != expected.sha256:
        raise Damaged(f"{path} is not what it was when the checkpoint was saved; restore it from a copy")
