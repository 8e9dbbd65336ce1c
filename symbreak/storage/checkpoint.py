"""Checkpoints of a run: all or nothing, and nothing that was altered.

A checkpoint is written under a name that no reader looks at, brought to the disk, and renamed to `step-…`; so at every
moment, also of a crash, each `step-…` is complete. The replay is not part of it: segments that never change are
referred to.

Loading takes the newest checkpoint that is undamaged and says which ones it passed over. A checkpoint that is sound but
belongs to another configuration or to a later version is not damaged: it is refused, and no older one takes its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symbreak.errors import InputError, StorageFault
from symbreak.storage.arrays import fit, named_arrays, named_leaves
from symbreak.storage.files import TEMPORARY, Damaged, fsync_directory, remove, storage_faults, sweep
from symbreak.storage.segment_writer import collect
from symbreak.storage.segments import SegmentReference, read_segment
from symbreak.storage.snapshot import Snapshot, read_references, read_snapshot, write_snapshot

NAME = re.compile(r"step-([0-9]{12})(?:\.([1-9][0-9]{0,5}))?")
MOST_ENTRIES = 10_000
MOST_BYTES = 1 << 30  # of arrays, where no template says how many there must be
SPARE = 16 << 20  # bytes for the header, and for what an older format may have stored besides


@dataclass(frozen=True, order=True)
class Entry:
    """A checkpoint's place in the order: by step, and a repeated save of the same step after the earlier one."""

    step: int
    repeat: int
    path: Path


@dataclass(frozen=True)
class CheckpointStatus:
    path: Path
    step: int
    problem: str | None  # none when it is good


@dataclass(frozen=True)
class Loaded:
    """A checkpoint as it was saved, and the newer ones that were passed over because they are damaged."""

    path: Path
    step: int
    trees: dict[str, Any]
    meta: dict[str, Any]
    segments: tuple[SegmentReference, ...]
    passed_over: tuple[CheckpointStatus, ...]


@dataclass(frozen=True)
class Checkpoints:
    """The last few checkpoints of a run, and the directory of the replay segments that they refer to."""

    directory: Path
    replay: Path
    keep: int = 3

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise InputError(f"keep is {self.keep}, but at least one checkpoint must be kept; use 1 or more")

    def save(
        self, step: int, trees: Mapping[str, Any], meta: Mapping[str, Any], segments: Sequence[SegmentReference] = ()
    ) -> Path:
        """Everything is on the disk when this returns; old checkpoints, and segments none refers to, are gone.

        Checkpoints of later steps go too: whoever saves an earlier step has turned back before them.
        """
        if not 0 <= step < 10**12:
            raise InputError(f"step {step} cannot name a checkpoint; count steps from zero")
        arrays = named_arrays(dict(trees))
        with storage_faults(f"save a checkpoint to {self.directory}"):
            sweep(self.directory)
            entry = self._next_entry(step)
            temporary = self.directory / f"{TEMPORARY}{os.getpid()}-{entry.path.name}"
            try:
                write_snapshot(temporary, step, arrays, meta, segments)
                os.rename(temporary, entry.path)
            except BaseException:
                remove(temporary, quietly=True)
                raise
            fsync_directory(self.directory)
            self._retire(entry)
        return entry.path

    def load(self, templates: Mapping[str, Any] | None) -> Loaded | None:
        """The newest undamaged checkpoint, none if none was ever saved. Nothing is written.

        Trees come in the form of the templates or, without templates, as one flat table of named arrays.
        """
        passed_over: list[CheckpointStatus] = []
        sound: set[SegmentReference] = set()
        with storage_faults(f"read the checkpoints in {self.directory}"):
            for entry in reversed(self._entries()):
                try:
                    snapshot = self._read(entry, _most_bytes(templates), sound)
                except Damaged as problem:
                    passed_over.append(CheckpointStatus(entry.path, entry.step, str(problem)))
                    continue
                arrays = snapshot.arrays
                trees = dict(arrays) if templates is None else fit(dict(templates), arrays, str(entry.path))
                return Loaded(entry.path, entry.step, trees, snapshot.meta, snapshot.segments, tuple(passed_over))
        if passed_over:
            raise StorageFault(
                f"no checkpoint in {self.directory} is undamaged ({len(passed_over)} tried; the newest: "
                f"{passed_over[0].problem}); nothing was changed, restore the directory from a copy or start a new run"
            )
        return None

    def verify(self) -> list[CheckpointStatus]:
        """Every checkpoint, oldest first, with what is wrong with it or with the replay that it refers to."""
        found: list[CheckpointStatus] = []
        sound: set[SegmentReference] = set()
        with storage_faults(f"read the checkpoints in {self.directory}"):
            for entry in self._entries():
                problem = None
                try:
                    self._read(entry, MOST_BYTES, sound)
                except StorageFault as fault:
                    problem = str(fault)
                if entry.path.exists():  # a run that goes on may have removed it meanwhile
                    found.append(CheckpointStatus(entry.path, entry.step, problem))
        return found

    def _read(self, entry: Entry, most: int, sound: set[SegmentReference]) -> Snapshot:
        snapshot = read_snapshot(entry.path, entry.step, most)
        for reference in snapshot.segments:
            if reference not in sound:
                read_segment(self.replay, reference)
                sound.add(reference)
        return snapshot

    def _entries(self) -> list[Entry]:
        found: list[Entry] = []
        for count, path in enumerate(self.directory.iterdir()):
            if count >= MOST_ENTRIES:
                raise StorageFault(
                    f"{self.directory} holds more than {MOST_ENTRIES} entries; remove what is not a run's"
                )
            if match := NAME.fullmatch(path.name):
                found.append(Entry(int(match[1]), int(match[2] or 0), path))
        return sorted(found)

    def _next_entry(self, step: int) -> Entry:
        """A name of its own, even for a step that was saved before: what exists is followed, not replaced."""
        repeat = max((entry.repeat + 1 for entry in self._entries() if entry.step == step), default=0)
        return Entry(step, repeat, self.directory / (f"step-{step:012d}" + (f".{repeat}" if repeat else "")))

    def _retire(self, saved: Entry) -> None:
        """Remove what `saved` replaces, what is after it, and what is older than the last few."""
        entries = self._entries()
        kept = [*(entry for entry in entries if entry.step < saved.step), saved][-self.keep :]
        for entry in entries:
            if entry not in kept:
                # Under its own name a half-removed checkpoint would look like a damaged one.
                leaving = self.directory / f"{TEMPORARY}{os.getpid()}-old-{entry.path.name}"
                os.rename(entry.path, leaving)
                remove(leaving)
        fsync_directory(self.directory)  # a checkpoint must not come back after a crash without its segments
        try:
            needed = {segment.name for entry in kept for segment in read_references(entry.path, entry.step)}
        except StorageFault:
            return  # it might need any segment; some checkpoints later it will be gone
        collect(self.replay, needed)


def _most_bytes(templates: Mapping[str, Any] | None) -> int:
    """How large a file of arrays may be at most."""
    if templates is None:
        return MOST_BYTES
    leaves = named_leaves(dict(templates)).values()
    return 2 * sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in leaves) + SPARE
