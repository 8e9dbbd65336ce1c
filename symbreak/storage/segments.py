"""Replay on the disk: segments that are written once and never changed.

A segment holds consecutive transitions, each observation once: the next observation of a transition is the observation
of the one after it. Where that does not hold bit for bit (at the end of an episode, and of the segment) it is stored
beside. The discount is one bit: 0, or γ. Segments are named by their first transition and their content, so a run that
repeats steps after a crash writes the same file again, and one that goes another way never overwrites what an older
checkpoint refers to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from symbreak.agents.agent import Transition
from symbreak.errors import InputError, StorageFault
from symbreak.storage.arrays import Arrays, decode, describe
from symbreak.storage.files import Damaged, FileRecord, is_count, read_file, storage_faults
from symbreak.storage.replay import Replay

FORMAT = 1
NAME = re.compile(r"[0-9]{12}-[0-9a-f]{16}\.safetensors")
ROWS = 65_536  # the most transitions of one segment
BYTES = 32 << 20  # and the most bytes of all its columns, so that reading one takes little memory
MOST_BYTES = BYTES + (1 << 16)  # with the header
TERMINATED, STORED = 1, 2  # flags: the discount is 0; the next observation is stored beside
COLUMNS = ("observation", "action", "reward", "next_observation", "discount")


@dataclass(frozen=True)
class SegmentReference:
    """Which file holds transitions `start` to `start + count`, and what it must be."""

    name: str
    start: int
    count: int
    file: FileRecord

    @property
    def end(self) -> int:
        return self.start + self.count

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "start": self.start, "count": self.count, **self.file.to_json()}

    @classmethod
    def from_json(cls, value: Any, where: str) -> SegmentReference:
        if not isinstance(value, dict) or value.keys() != {"name", "start", "count", "size", "sha256"}:
            raise Damaged(f"{where} does not describe a segment of the replay")
        name, start, count = value["name"], value["start"], value["count"]
        # The name has no separator and no dots but one, so it cannot lead out of the directory.
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            raise Damaged(f"{where} names a file that is no segment of the replay")
        if not is_count(start) or not is_count(count) or not 1 <= count <= ROWS:
            raise Damaged(f"{where} describes an impossible segment of the replay")
        return cls(name, start, count, FileRecord.from_json({k: value[k] for k in ("size", "sha256")}, where))


def _bits(array: np.ndarray) -> np.ndarray:
    """One row of bytes per transition: equality of bits, to which NaN and the sign of zero count."""
    return np.ascontiguousarray(array).reshape(len(array), prod(array.shape[1:])).view(np.uint8)


def pack(rows: Arrays, start: int, discount: np.ndarray) -> Arrays:
    observation, following = rows["observation"], rows["next_observation"]
    stored = np.ones(len(observation), bool)
    stored[:-1] = np.any(_bits(following[:-1]) != _bits(observation[1:]), axis=1)
    terminated = np.all(_bits(rows["discount"]) == 0, axis=1)
    if not np.all(terminated | np.all(_bits(rows["discount"]) == _bits(discount[None]), axis=1)):
        raise InputError(f"a discount of the replay is neither 0 nor {discount}; store transitions with that one only")
    return {
        "format": np.asarray(FORMAT, np.uint32),
        "start": np.asarray(start, np.int64),
        "gamma": discount,
        "observation": observation,
        "action": rows["action"],
        "reward": rows["reward"],
        "flags": (TERMINATED * terminated + STORED * stored).astype(np.uint8),
        "following": following[stored],
    }


def unpack(arrays: Arrays, reference: SegmentReference, where: str) -> Arrays:
    expected = {"format", "start", "gamma", "observation", "action", "reward", "flags", "following"}
    if arrays.keys() != expected:
        raise Damaged(f"{where} does not hold what a segment of the replay holds")
    if describe(arrays["format"]) != "uint32[]" or arrays["format"] != FORMAT:
        raise Damaged(f"{where} is a segment of another format than {FORMAT}")
    if describe(arrays["start"]) != "int64[]" or arrays["start"] != reference.start:
        raise Damaged(f"{where} holds other transitions than from {reference.start}")
    observation, flags, following = arrays["observation"], arrays["flags"], arrays["following"]
    columns = (observation, arrays["action"], arrays["reward"])
    lengths = {column.shape[0] if column.ndim else -1 for column in columns}
    if lengths != {reference.count} or describe(flags) != f"uint8[{reference.count}]" or np.any(flags > 3):
        raise Damaged(f"{where} does not hold {reference.count} transitions")
    stored = flags & STORED > 0
    shape = (int(np.count_nonzero(stored)), *observation.shape[1:])
    if not stored[-1] or following.shape != shape or following.dtype != observation.dtype or arrays["gamma"].ndim:
        raise Damaged(f"{where} lacks the observations at which episodes ended")
    next_observation = np.empty_like(observation)
    next_observation[:-1] = observation[1:]
    next_observation[stored] = following
    gamma = arrays["gamma"]
    discount = np.where(flags & TERMINATED > 0, np.zeros((), gamma.dtype), gamma)
    return dict(zip(COLUMNS, (*columns, next_observation, discount), strict=True))


def read_segment(directory: Path, reference: SegmentReference) -> Arrays:
    """The transitions of a segment by column, after its size, SHA-256 and structure have been checked."""
    path = directory / reference.name
    return unpack(decode(read_file(path, MOST_BYTES, reference.file), str(path)), reference, str(path))


def check_order(references: Sequence[SegmentReference], where: str) -> None:
    """Segments follow one another without a gap."""
    for before, after in pairwise(references):
        if before.end != after.start:
            raise Damaged(f"{where} lacks the replay between transitions {before.end} and {after.start}")


def restore_replay(directory: Path, references: Sequence[SegmentReference], template: Replay) -> Replay:
    """The ring on the device, bit for bit as it was when the references were made.

    The template gives capacity, shapes and types; arrays or `jax.ShapeDtypeStruct`s do.
    """
    check_order(references, str(directory))
    capacity = template.capacity
    inserted = references[-1].end if references else 0
    oldest = max(0, inserted - capacity)
    if references and references[0].start > oldest:
        raise Damaged(f"{directory} lacks the replay before transition {references[0].start}")
    ring = {name: np.zeros(leaf.shape, leaf.dtype) for name in COLUMNS for leaf in [getattr(template.data, name)]}
    with storage_faults(f"read the replay in {directory}"):
        for reference in references:
            rows = read_segment(directory, reference)
            fresh = max(0, oldest - reference.start)
            index = np.arange(reference.start + fresh, reference.end) % capacity
            for name, column in rows.items():
                if column.shape[1:] != ring[name].shape[1:] or column.dtype != ring[name].dtype:
                    raise StorageFault(
                        f"{directory / reference.name} holds {describe(column)} as {name}, which does not fit a ring "
                        f"of {describe(ring[name])}; resume with the configuration and version that saved it"
                    )
                ring[name][index] = column[fresh:]
    # One column at a time, so that at most one of them is in memory twice.
    data = Transition(**{name: jnp.array(ring.pop(name), copy=True) for name in COLUMNS})
    return Replay(data, jnp.asarray(inserted, template.inserted.dtype))
