"""One checkpoint as a directory of three files: arrays, everything else as JSON, and a manifest.

The manifest is written last. It records size and SHA-256 of the other two, and a checksum of itself; its form is the
same in all formats, so that a later one is recognised as such and not taken for damage.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from symbreak.errors import StorageFault
from symbreak.storage.arrays import Arrays, decode, encode
from symbreak.storage.files import Damaged, FileRecord, fsync_directory, is_count, read_file, write_file
from symbreak.storage.segments import SegmentReference, check_order
from symbreak.storage.strict_json import MOST_JSON, from_json, to_json

FORMAT = 1
ARRAYS, META, MANIFEST = "arrays.safetensors", "meta.json", "manifest.json"
FILES = {ARRAYS, META, MANIFEST}
MOST_MANIFEST = 4096


@dataclass(frozen=True)
class Snapshot:
    """All that a checkpoint holds, under the names of the format it has."""

    format: int
    step: int
    meta: dict[str, Any]
    segments: tuple[SegmentReference, ...]
    arrays: Arrays


# From each format to the next: what an older version wrote, as the next one would have written it.
MIGRATIONS: dict[int, Callable[[Snapshot], Snapshot]] = {}


def write_snapshot(
    path: Path, step: int, arrays: Arrays, meta: Mapping[str, Any], segments: Sequence[SegmentReference]
) -> None:
    """A new directory whose content is on the disk when this returns."""
    references = [reference.to_json() for reference in segments]
    text = to_json({"step": step, "meta": dict(meta), "segments": references}, META)
    if len(text) > MOST_JSON:
        raise StorageFault(
            f"{META} of step {step} would take {len(text)} bytes, more than {MOST_JSON}; save less in it"
        )
    parts = encode(arrays, ARRAYS)
    os.mkdir(path)
    records = {ARRAYS: write_file(path / ARRAYS, parts), META: write_file(path / META, [text])}
    write_file(path / MANIFEST, [manifest_text(FORMAT, step, records)])
    fsync_directory(path)


def manifest_text(version: int, step: int, records: Mapping[str, FileRecord]) -> bytes:
    files = {name: record.to_json() for name, record in records.items()}
    body = {"format": version, "step": step, "files": files}
    checksum = hashlib.sha256(to_json(body, MANIFEST)).hexdigest()
    return to_json({**body, "checksum": checksum}, MANIFEST)


def read_manifest(path: Path, step: int) -> tuple[int, dict[str, FileRecord]]:
    """Format and records of a checkpoint whose directory holds its three files and nothing else."""
    if path.is_symlink() or not path.is_dir():
        raise Damaged(f"{path} is not a directory")
    where = str(path / MANIFEST)
    data = read_file(path / MANIFEST, MOST_MANIFEST)
    value = from_json(data, where)
    if not isinstance(value, dict) or value.keys() != {"format", "step", "files", "checksum"}:
        raise Damaged(f"{where} is no manifest")
    version, files = value["format"], value["files"]
    if not is_count(version) or not isinstance(files, dict) or value["step"] != step:
        raise Damaged(f"{where} is not the manifest of step {step}")
    records = {name: FileRecord.from_json(record, where) for name, record in files.items()}
    # A value has one text only, so this covers every byte, the checksum among them.
    if data != manifest_text(version, step, records):
        raise Damaged(f"{where} has changed since it was written (its checksum differs)")
    if version > FORMAT:
        raise StorageFault(f"{path} has format {version}, this version reads up to {FORMAT}; update symbreak")
    if records.keys() != FILES - {MANIFEST}:
        raise Damaged(f"{where} records other files than those of a checkpoint")
    with os.scandir(path) as entries:
        strangers = (entry.name for entry in entries if entry.name not in FILES)
        if (stranger := next(strangers, None)) is not None:
            raise Damaged(f"{path} holds {stranger[:80]!r}, which is no file of a checkpoint")
    return version, records


def read_references(path: Path, step: int) -> tuple[SegmentReference, ...]:
    """The segments that a checkpoint refers to, without reading its arrays."""
    _, records = read_manifest(path, step)
    return _parse_meta(read_file(path / META, MOST_JSON, records[META]), step, str(path / META))[1]


def read_snapshot(path: Path, step: int, most: int) -> Snapshot:
    """A checkpoint in today's format; nothing is interpreted before all sizes and hashes are right."""
    version, records = read_manifest(path, step)
    text = read_file(path / META, MOST_JSON, records[META])
    data = read_file(path / ARRAYS, most, records[ARRAYS])
    meta, segments = _parse_meta(text, step, str(path / META))
    snapshot = Snapshot(version, step, meta, segments, decode(data, str(path / ARRAYS)))
    for older in range(version, FORMAT):
        if older not in MIGRATIONS:
            raise StorageFault(f"{path} has format {older}, which this version no longer reads; use an older version")
        snapshot = replace(MIGRATIONS[older](snapshot), format=older + 1)
    return snapshot


def _parse_meta(text: bytearray, step: int, where: str) -> tuple[dict[str, Any], tuple[SegmentReference, ...]]:
    value = from_json(text, where)
    if not isinstance(value, dict) or value.keys() != {"step", "meta", "segments"} or value["step"] != step:
        raise Damaged(f"{where} is not the document of step {step}")
    if not isinstance(value["meta"], dict) or not isinstance(value["segments"], list):
        raise Damaged(f"{where} is not the document of a checkpoint")
    segments = tuple(SegmentReference.from_json(item, where) for item in value["segments"])
    check_order(segments, where)
    return value["meta"], segments
