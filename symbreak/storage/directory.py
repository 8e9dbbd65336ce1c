"""One process at a time writes into a run directory.

The file `run.lock` names its holder by host and process. The operating system keeps the lock itself and drops it when
the process ends in whatever way, so a name left behind by a process of the same host is stale and is taken over. Where
a shared file system keeps no locks between hosts, a name left by another host counts until it has been silent for long;
a holder that was overruled in this way finds out at its next `beat`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from symbreak.errors import StorageFault
from symbreak.storage.files import Damaged, is_count, storage_faults, sweep
from symbreak.storage.strict_json import from_json, to_json

LOCK_NAME = "run.lock"
SILENCE = 900.0  # seconds without a beat after which another host's name no longer counts
PATIENCE = 1.0  # seconds to wait for a holder that has the lock to write its name
MOST_LOCK = 4096

_descriptors: set[int] = set()  # of locks held by this process


def _forget_in_child() -> None:
    """A forked child must not keep the lock of a parent that dies."""
    while _descriptors:
        os.close(_descriptors.pop())


os.register_at_fork(after_in_child=_forget_in_child)


class DirectoryInUse(StorageFault):
    """Another process writes into the run directory."""


@dataclass(frozen=True)
class Holder:
    host: str
    pid: int

    @classmethod
    def this_process(cls) -> Holder:
        return cls(socket.gethostname(), os.getpid())

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}"


UNKNOWN = Holder("unknown", 0)


@dataclass(frozen=True)
class RunLock:
    """Held as long as the `with` block lasts; `taken_over` names the dead process whose lock this was."""

    path: Path
    descriptor: int
    holder: Holder
    taken_over: Holder | None

    def beat(self) -> None:
        """Say that this process is alive; refuse to go on when the directory is no longer its own."""
        with storage_faults(f"keep the lock {self.path}"):
            here, there = os.fstat(self.descriptor), os.stat(self.path, follow_symlinks=False)
            now = _read(self.descriptor)
            if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) or now != self.holder:
                owner = now if now not in (None, self.holder) else UNKNOWN
                raise DirectoryInUse(f"{self.path.parent} was taken over by {owner}; this process stops, resume there")
            os.utime(self.descriptor)


@contextmanager
def lock_run_directory(directory: Path) -> Iterator[RunLock]:
    """Hold the directory's lock; refuse, with host and process, when another process does.

    What a killed process left half-written in the directory itself is removed.
    """
    path = directory / LOCK_NAME
    with storage_faults(f"lock {directory}"):
        descriptor = _acquire(path)
        _descriptors.add(descriptor)
    try:
        with storage_faults(f"lock {directory}"):
            lock = _claim(path, descriptor)
        try:
            yield lock
        finally:
            # The file stays: removing it would let a third process lock a new file beside a second one's old file.
            if _read(descriptor) == lock.holder:
                os.ftruncate(descriptor, 0)
    finally:
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _acquire(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(f"{path} is a symbolic link; remove it") from error
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        try:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise StorageFault(f"{path.parent} is on a file system without locks; use another one") from error
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise _in_use(path, _wait_for_name(descriptor)) from error
        finally:
            os.close(descriptor)
    return descriptor


def _claim(path: Path, descriptor: int) -> RunLock:
    """Write this process's name, over that of a dead one if there is one."""
    former, this = _read(descriptor), Holder.this_process()
    if former is not None and former.host not in (this.host, UNKNOWN.host):
        silent = time.time() - os.fstat(descriptor).st_mtime
        if silent < SILENCE:
            raise _in_use(path, former, f", seen {max(0, round(silent))} s ago")
    name = to_json({"host": this.host, "pid": this.pid}, LOCK_NAME)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, name, 0)
    os.fsync(descriptor)
    sweep(path.parent)
    return RunLock(path, descriptor, this, former)


def _in_use(path: Path, holder: Holder, seen: str = "") -> DirectoryInUse:
    return DirectoryInUse(
        f"{path.parent} is in use by {holder}{seen}; wait until that run ends or stop it, or choose another directory"
    )


def _wait_for_name(descriptor: int) -> Holder:
    """The holder's name; it may have the lock for some microseconds before it has written it.

    Until then the name of a dead process may stand there, which would send the reader after the wrong one.
    """
    until = time.monotonic() + PATIENCE
    while ((holder := _read(descriptor)) in (None, UNKNOWN) or _is_dead(holder)) and time.monotonic() < until:
        time.sleep(0.005)
    return holder or UNKNOWN


def _is_dead(holder: Holder | None) -> bool:
    """A process of this host that is no more; of other hosts nothing is known."""
    if holder is None or holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):  # another user's, or no number of a process
        return False
    return False


def _read(descriptor: int) -> Holder | None:
    """Whose name the lock bears: none when it was given back, unknown when it makes no sense."""
    data = os.pread(descriptor, MOST_LOCK, 0)
    if not data:
        return None
    try:
        value = from_json(data, LOCK_NAME)
    except Damaged:
        return UNKNOWN
    host, pid = (value.get("host"), value.get("pid")) if isinstance(value, dict) else (None, None)
    if not isinstance(host, str) or re.fullmatch("[!-~]{1,255}", host) is None or not is_count(pid):
        return UNKNOWN
    return Holder(host, pid)
