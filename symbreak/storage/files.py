"""Files that survive a crash, and reading that trusts no file.

A file is written under a name that nothing reads, brought to the disk, and only then given its real name, so that a
reader sees all of it or none of it. Reading takes regular files only, follows no link, and knows before the first byte
how many there may be.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from symbreak.errors import StorageFault

CHUNK = 1 << 22
TEMPORARY = ".saving-"  # what starts like this is unfinished, or on its way out

ADVICE = {
    errno.ENOSPC: "free some space, then resume",
    errno.EDQUOT: "free some of your quota, then resume",
    errno.EFBIG: "raise the limit on file sizes, then resume",
    errno.EROFS: "make the file system writable, then resume",
    errno.EACCES: "check the permissions, then resume",
    errno.EPERM: "check the permissions, then resume",
    errno.EEXIST: "a file stands in its way: choose another name",
    errno.ENOENT: "the directory has vanished: put it back, then resume",
}
# Reading fails like this when the content is at fault and not the access to it.
DAMAGE = {
    errno.ENOENT: "is missing",
    errno.ENOTDIR: "is missing",
    errno.ELOOP: "is a symbolic link",
    errno.ENXIO: "is not a regular file",
    errno.EIO: "cannot be read from the disk",
}


class Damaged(StorageFault):
    """A file is not what was once written under its name."""


@contextmanager
def storage_faults(doing: str) -> Iterator[None]:
    """An error of the operating system inside becomes a `StorageFault` of one line."""
    try:
        yield
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "check the disk, then resume")
        raise StorageFault(f"cannot {doing}: {error.strerror or error}; {advice}") from error


@dataclass(frozen=True)
class FileRecord:
    """What a file must be: its size in bytes and the SHA-256 of its content."""

    size: int
    sha256: str

    @classmethod
    def from_json(cls, value: Any, where: str) -> FileRecord:
        if not isinstance(value, dict) or value.keys() != {"size", "sha256"}:
            raise Damaged(f"{where} does not record a size and a SHA-256")
        if not is_count(value["size"]) or not is_sha256(value["sha256"]):
            raise Damaged(f"{where} records an impossible size or SHA-256")
        return cls(value["size"], value["sha256"])

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size, "sha256": self.sha256}


def is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def is_sha256(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Made if it is not there. Others who ask for the same wait: what is read inside is still so when it is written.

    Where a file system has no locks nobody waits.
    """
    with storage_faults(f"create {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_file(path: Path, parts: Iterable[bytes | bytearray | memoryview]) -> FileRecord:
    """A new file whose content is on the disk when this returns; its name is not, until the directory is synced."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for part in parts:
            left = memoryview(part)
            while left.nbytes:
                written = os.write(descriptor, left[:CHUNK])
                digest.update(left[:written])
                size += written
                left = left[written:]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return FileRecord(size, digest.hexdigest())


def fsync_directory(path: Path) -> None:
    """Names created in, renamed in or removed from the directory are on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """The directory exists and will after a crash; its parent must exist already."""
    with storage_faults(f"create {path}"):
        if not path.is_dir():
            os.mkdir(path)
        fsync_directory(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """The file has this content, on the disk; a crash leaves the old content or the new."""
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{path.name}"
    with storage_faults(f"write {path}"):
        remove(temporary)
        try:
            write_file(temporary, [data])
            os.replace(temporary, path)
        except BaseException:
            remove(temporary, quietly=True)
            raise
        fsync_directory(path.parent)


def cut_back(path: Path, size: int) -> None:
    """The file keeps its first `size` bytes, on the disk: what was appended after a checkpoint is undone."""
    with storage_faults(f"cut back {path}"):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            present = os.fstat(descriptor).st_size
            if present < size:
                raise Damaged(f"{path} has {present} bytes where the checkpoint saw {size}")
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path, *, quietly: bool = False) -> None:
    """Nothing is under this name any more. A link is removed, never what it points to."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        if not quietly:
            raise


def sweep(directory: Path) -> None:
    """Remove what killed processes left unfinished. Only the one process that writes here may call this."""
    for path in directory.iterdir():
        if path.name.startswith(TEMPORARY):
            remove(path)


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, most: int, expected: FileRecord | None) -> Iterator[tuple[int, int]]:
    """The descriptor and the size of a regular file that may be read."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Damaged(f"{path} is not a regular file")
            size = status.st_size
            if expected is not None and size != expected.size:
                raise Damaged(f"{path} has {size} bytes where {expected.size} were written")
            if size > most:
                raise Damaged(f"{path} has {size} bytes where at most {most} make sense")
            yield descriptor, size
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in DAMAGE:
            raise Damaged(f"{path} {DAMAGE[error.errno]}") from error
        raise


def read_file(path: Path, most: int, expected: FileRecord | None = None) -> bytearray:
    """The content, which is at most `most` bytes long and has the expected SHA-256."""
    with _opened(path, most, expected) as (descriptor, size):
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            got = os.readv(descriptor, [view[done : done + CHUNK]])
            if got == 0:
                raise Damaged(f"{path} ends after {done} of {size} bytes")
            done += got
    if expected is not None and hashlib.sha256(data).hexdigest() != expected.sha256:
        raise Damaged(f"{path} has changed since it was written (its SHA-256 differs)")
    return data
