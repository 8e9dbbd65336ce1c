"""Writing the replay to the disk as it grows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from symbreak.agents.agent import Transition
from symbreak.errors import InputError
from symbreak.storage.arrays import Arrays, encode
from symbreak.storage.files import TEMPORARY, fsync_directory, remove, storage_faults, sweep, write_file
from symbreak.storage.replay import Replay
from symbreak.storage.segments import BYTES, COLUMNS, NAME, ROWS, SegmentReference, pack

BLOCK = 4096  # rows taken from the device at once: a fixed number, so that it compiles once


@jax.jit
def _take(data: Transition, index: Int[Array, " rows"]) -> Transition:
    return jax.tree.map(lambda ring: ring[index], data)


class SegmentWriter:
    """Follows a replay of a given capacity: what it has received since the last time becomes segments.

    Transitions wait in memory until `seal`, or until there are enough for a whole segment. A resumed run passes the
    references of its checkpoint and goes on where they end.
    """

    def __init__(
        self, directory: Path, capacity: int, discount: float, references: Iterable[SegmentReference] = ()
    ) -> None:
        self.directory = directory
        self.capacity = capacity
        self.discount = discount
        self._references = list(references)
        self._pending: list[Arrays] = []
        self.end = self._references[-1].end if self._references else 0  # transitions received so far

    def follow(self, replay: Replay) -> None:
        """Receive what was inserted into the replay since; the replay stays as it is and may be donated after."""
        inserted = int(replay.inserted)
        if self.end > inserted or replay.capacity != self.capacity:
            raise InputError(
                f"segments of {self.end} transitions and capacity {self.capacity} cannot follow a replay of "
                f"{inserted} and {replay.capacity}; pass the references of the checkpoint that was resumed"
            )
        if inserted - self.end > self.capacity:  # the ring has lost some, and with them all that came before
            self._references, self._pending, self.end = [], [], inserted - self.capacity
        for start in range(self.end, inserted, BLOCK):
            index = np.minimum(np.arange(start, start + BLOCK), inserted - 1) % self.capacity
            rows = jax.device_get(_take(replay.data, jnp.asarray(index, jnp.int32)))
            self.append(**{name: np.asarray(getattr(rows, name))[: inserted - start] for name in COLUMNS})

    def append(self, **columns: np.ndarray) -> None:
        """Receive transitions in the order in which they are inserted; columns as in `Transition`."""
        if columns.keys() != set(COLUMNS) or len({len(column) for column in columns.values()}) != 1:
            raise InputError(f"transitions have the columns {', '.join(COLUMNS)}, all of one length")
        self._pending.append(columns)
        self.end += len(columns["reward"])
        self._write_segments(_rows_per_segment(columns))

    def seal(self) -> tuple[SegmentReference, ...]:
        """All that was received is on the disk; the segments that the ring still needs, in order."""
        self._write_segments(least=1)
        self._pending = []
        self._references = [segment for segment in self._references if segment.end > self.end - self.capacity]
        return tuple(self._references)

    def _write_segments(self, least: int) -> None:
        """Write what waits, as long as that are so many rows; also what could not be written before."""
        while (waiting := self._waiting()) >= least:
            most = _rows_per_segment(self._pending[-1])
            rows = {name: np.concatenate([part[name] for part in self._pending]) for name in COLUMNS}
            self._write({name: column[:most] for name, column in rows.items()}, self.end - waiting)
            self._pending = [{name: column[most:] for name, column in rows.items()}]

    def _waiting(self) -> int:
        return sum(len(part["reward"]) for part in self._pending)

    def _write(self, rows: Arrays, start: int) -> None:
        packed = pack(rows, start, np.asarray(self.discount, rows["discount"].dtype))
        temporary = self.directory / f"{TEMPORARY}{os.getpid()}-{start}"
        with storage_faults(f"write the replay to {self.directory}"):
            remove(temporary)
            try:
                record = write_file(temporary, encode(packed, "a segment of the replay"))
                name = f"{start:012d}-{record.sha256[:16]}.safetensors"
                os.replace(temporary, self.directory / name)
            except BaseException:
                remove(temporary, quietly=True)
                raise
            fsync_directory(self.directory)
        self._references.append(SegmentReference(name, start, len(rows["reward"]), record))


def _rows_per_segment(columns: Arrays) -> int:
    size = sum(column.nbytes for column in columns.values()) // max(1, len(columns["reward"]))
    return max(1, min(ROWS, BYTES // max(1, size)))


def collect(directory: Path, needed: Collection[str]) -> None:
    """Remove the segments that no kept checkpoint refers to, and unfinished files; nothing else."""
    sweep(directory)
    for path in directory.iterdir():
        if NAME.fullmatch(path.name) and path.name not in needed:
            remove(path)
