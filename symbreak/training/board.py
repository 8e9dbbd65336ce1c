"""Numbers for TensorBoard, written and flushed in the calling thread.

tensorboardX's usual writer leaves that to a thread of its own, where a full disk cannot be reported to anyone.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar

Event: Any = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]  made at run time
SessionLog: Any = event_pb2.SessionLog  # pyright: ignore[reportAttributeAccessIssue]


class Board:
    """One event file of a run, from `step` on: what older files hold after it is no longer shown."""

    def __init__(self, directory: Path, step: int) -> None:
        directory.mkdir(exist_ok=True)
        # Boards sort files by their names and expect seconds first; a run may be opened twice within one of them.
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{time.time_ns()}"
        self._writer = RecordWriter(str(directory / name))
        try:
            self._write(Event(file_version="brain.Event:2"))
            self._write(Event(step=step, session_log=SessionLog(status=SessionLog.START)))
            self._writer.flush()
        except OSError:
            self.close()
            raise

    def _write(self, event: Any) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())

    def add(self, row: Mapping[str, float], step: int) -> None:
        for name, value in row.items():
            self._write(Event(step=step, summary=scalar(name, value)))
        self._writer.flush()

    def close(self) -> None:
        with suppress(OSError):  # the same numbers stand in metrics.jsonl, where a failure is reported
            self._writer.close()
