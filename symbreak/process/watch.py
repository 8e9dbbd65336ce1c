"""Signals and time limits while a run is going.

The first SIGINT or SIGTERM asks the run to save and stop at the next border; a second one ends the process at once. The
interpreter handles signals only between two of its own instructions, and compiling or a hanging simulator may take
minutes, so a thread watches too: it ends the process when the run has not answered in time. Nothing is lost by that but
the steps since the last checkpoint, since a checkpoint is complete or not there.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from symbreak.errors import EnvironmentFault, Interrupted

GRACE = 8.0  # seconds a run has to save and stop
PATIENCE = 3.0  # seconds after a time limit until the process is ended from outside the interpreter
TOGETHER = 0.5  # seconds within which two signals are one: a whole group of processes may be told to stop
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Watch:
    """Active within its outermost `with` block, in the main thread; elsewhere signals stay as they are.

    Only one that owns the process may end it; one in a session or notebook raises `KeyboardInterrupt` instead.
    """

    def __init__(self, *, owns_process: bool = False) -> None:
        self.owns_process = owns_process
        self.kept = "everything is saved"  # where an interruption leaves a run
        self.resume = "start again with the same command"  # what to do after an interruption
        self.timeout = 60.0  # seconds for what is done under `limit`
        self._depth = 0
        self.received: int | None = None  # the signal that asks to stop
        self._since = 0.0
        self._limit: tuple[float, str] | None = None  # deadline, and what must be over by then
        self._former: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._depth += 1
        if self._depth > 1 or threading.current_thread() is not threading.main_thread():
            return self
        self._read, self._write = socket.socketpair()
        self._read.settimeout(0.2)
        self._write.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            self._former[number] = signal.signal(number, self._heard)
        self._former[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._alarm)
        self._active = True
        self._thread = threading.Thread(target=self._listen, args=(threading.get_ident(),), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth or self._thread is None:
            return
        self._active = False
        self._thread.join()
        self._thread = None
        signal.set_wakeup_fd(self._wakeup)
        stopped = self.owns_process and self.received is not None  # all is saved: no further signal may spoil the end
        for number, handler in self._former.items():
            signal.signal(number, signal.SIG_IGN if stopped else handler)
        self._read.close()
        self._write.close()
        if not self.owns_process:
            self.received = None  # heard: in a session one may go on

    @contextmanager
    def limit(self, doing: str) -> Iterator[None]:
        """What is done in the block is a fault of the environment when it takes too long."""
        self._limit = (time.monotonic() + self.timeout, doing)
        try:
            yield
        finally:
            self._limit = None

    def require_going_on(self) -> None:
        """Raise if a signal has asked to stop."""
        if self.received is not None:
            name = signal.Signals(self.received).name
            raise Interrupted(f"stopped by {name}, {self.kept}; {self.resume}")

    def _listen(self, main: int) -> None:
        alarmed = False
        while self._active:
            try:
                numbers = self._read.recv(64)
            except TimeoutError:
                numbers = b""
            now, limit = time.monotonic(), self._limit
            for number in numbers:
                if number not in SIGNALS:
                    continue
                if self.received is None:
                    self.received, self._since = number, now
                elif self.owns_process and now > self._since + TOGETHER:
                    _end(Interrupted(f"stopped at once by a second signal; {self.resume}"))
            if self.received is not None and self.owns_process and now > self._since + GRACE and self._active:
                _end(Interrupted(f"stopped without saving the steps since the last checkpoint; {self.resume}"))
            if limit is not None and self.owns_process and now > limit[0] + PATIENCE:
                _end(self._too_long(limit[1]))
            if limit is not None and now > limit[0] and not alarmed:
                alarmed = True
                signal.pthread_kill(main, signal.SIGALRM)
            alarmed = alarmed and limit is not None

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """The thread takes note of signals; here only an impatient user of a session is answered."""
        if self.received is not None and not self.owns_process and time.monotonic() > self._since + TOGETHER:
            raise KeyboardInterrupt

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._limit is not None and time.monotonic() > self._limit[0]:
            raise self._too_long(self._limit[1])

    def _too_long(self, doing: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"{doing} of the environment took longer than {self.timeout:g} s; mend it or raise --environment-timeout"
        )


@contextmanager
def raising_on_sigterm(what_next: str) -> Iterator[None]:
    """SIGTERM raises `Interrupted` in the block, as SIGINT raises `KeyboardInterrupt`, so that `finally` is heard."""

    def heard(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted(f"stopped by SIGTERM; {what_next}")

    former = signal.signal(signal.SIGTERM, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _end(problem: EnvironmentFault | Interrupted) -> NoReturn:
    """End the process from a thread while the main thread is busy; the lock goes with the process."""
    os.write(2, f"error[{problem.name}]: {problem}\n".encode())
    os._exit(problem.exit_code)
