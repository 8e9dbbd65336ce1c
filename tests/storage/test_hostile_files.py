"""Checkpoints made by somebody who means harm: refused, with nothing run, nothing written and little memory used.

Unlike an accident, an attacker also writes a manifest that fits. Each file here is sealed anew after it was changed, so
it is the reader of the content that has to refuse it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symbreak.errors import StorageFault
from symbreak.storage.arrays import MOST_ARRAYS, encode, named_arrays
from symbreak.storage.checkpoint import Checkpoints
from symbreak.storage.files import FileRecord, make_directory
from symbreak.storage.segment_writer import SegmentWriter
from symbreak.storage.snapshot import ARRAYS, FORMAT, MANIFEST, META, manifest_text

STEP = 7
TREES = {"agent": {"weight": np.arange(12, dtype=np.float32).reshape(3, 4), "known": np.array([True, False])}}
MOST_MEMORY = 24 << 20  # JSON of the largest size allowed, as text and as values, is the most there is
MARKER = "executed"


class Run:
    """One checkpoint with one segment; what is changed here is sealed again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path in (root / "run", root / "run" / "checkpoints", root / "run" / "replay"):
            make_directory(path)
        self.store = Checkpoints(root / "run" / "checkpoints", root / "run" / "replay")
        writer = SegmentWriter(self.store.replay, 10, 0.99)
        row = np.zeros((STEP, 2), np.float32)
        ones = np.full(STEP, 0.99, np.float32)
        writer.append(observation=row, action=row, reward=ones, next_observation=row, discount=ones)
        self.path = self.store.save(STEP, TREES, {"config": {}}, writer.seal())

    def seal(self, version: int = FORMAT) -> None:
        records = {}
        for name in (ARRAYS, META):
            data = (self.path / name).read_bytes()
            records[name] = FileRecord(len(data), hashlib.sha256(data).hexdigest())
        (self.path / MANIFEST).write_bytes(manifest_text(version, STEP, records))

    def put(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)
        self.seal()

    def arrays(self, header: Any, body: bytes = bytes(50), length: int | None = None) -> None:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        self.put(ARRAYS, struct.pack("<Q", len(text) if length is None else length) + text + body)

    def entry(self, spaces: int = 0, **changes: Any) -> None:
        """The file as it should be, except for one entry of its header, or for spaces after it."""
        good = {
            "agent/weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]},
            "agent/known": {"dtype": "BOOL", "shape": [2], "data_offsets": [48, 50], **changes},
        }
        self.arrays(json.dumps(good).encode() + b" " * spaces)

    def meta(self, **changes: Any) -> None:
        document = json.loads((self.path / META).read_text())
        self.put(META, json.dumps({**document, **changes}).encode())

    def segment(self, **changes: Any) -> None:
        document = json.loads((self.path / META).read_text())
        self.meta(segments=[{**document["segments"][0], **changes}])

    def manifest(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Another manifest, whose checksum fits."""
        value = json.loads((self.path / MANIFEST).read_text())
        del value["checksum"]
        value = change(value)
        text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        value = {**value, "checksum": hashlib.sha256(text).hexdigest()}
        (self.path / MANIFEST).write_text(json.dumps(value, sort_keys=True, separators=(",", ":")))


class Payload:
    """Unpickling this writes a file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __reduce__(self):
        return (os.mkdir, (str(self.root / MARKER),))


def poison(run: Run) -> bytes:
    return pickle.dumps(Payload(run.root))


def poisoned_numpy(run: Run) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([Payload(run.root)], dtype=object), allow_pickle=True)
    return stream.getvalue()


def poisoned_archive(run: Run) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, weight=np.array([Payload(run.root)], dtype=object))
    return stream.getvalue()


def save_others(run: Run, trees: dict[str, Any]) -> None:
    run.put(ARRAYS, b"".join(bytes(part) for part in encode(named_arrays(trees), "file")))


def sparse(run: Run) -> None:
    """A file that claims a terabyte and takes none."""
    with open(run.path / ARRAYS, "r+b") as file:
        file.truncate(1 << 40)
    run.manifest(lambda m: {**m, "files": {**m["files"], ARRAYS: {"size": 1 << 40, "sha256": "0" * 64}}})


def link_file(run: Run) -> None:
    target = run.root / "outside"
    (run.path / ARRAYS).rename(target)
    (run.path / ARRAYS).symlink_to(target)


def link_directory(run: Run) -> None:
    target = run.root / "outside"
    run.path.rename(target)
    run.path.symlink_to(target)


def link_segment(run: Run) -> None:
    (segment,) = run.store.replay.iterdir()
    target = run.root / "outside"
    segment.rename(target)
    segment.symlink_to(target)


def replace_by(make: Callable[[Path], Any]) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        (run.path / ARRAYS).unlink()
        make(run.path / ARRAYS)

    return change


def many_files(run: Run) -> None:
    for number in range(2000):
        (run.path / f"{number}").touch()


def traversing_segment(run: Run) -> None:
    (segment,) = run.store.replay.iterdir()
    segment.rename(run.root / "run" / segment.name)
    run.segment(name=f"../{segment.name}")


DEEP = b"[" * 100_000 + b"]" * 100_000
WEIGHT = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
KNOWN = {"dtype": "BOOL", "shape": [2], "data_offsets": [48, 50]}

CORPUS: dict[str, Callable[[Run], Any]] = {
    # the length of the header
    "header of 2⁶³ bytes": lambda run: run.arrays({}, length=1 << 63),
    "header of 2⁶⁴−1 bytes": lambda run: run.arrays({}, length=(1 << 64) - 1),
    "header longer than the file": lambda run: run.arrays({}, length=1000),
    "header of three megabytes": lambda run: run.entry(spaces=3 << 20),
    "header of no bytes": lambda run: run.arrays(b""),
    "file of no bytes": lambda run: run.put(ARRAYS, b""),
    "file of seven bytes": lambda run: run.put(ARRAYS, b"\0" * 7),
    "terabyte of nothing": sparse,
    "more bytes than the templates need": lambda run: run.arrays({}, bytes(20 << 20)),
    # the header
    "header no JSON": lambda run: run.arrays(b"{'a': 1}"),
    "header a list": lambda run: run.arrays([]),
    "header nested deeply": lambda run: run.arrays(DEEP),
    "header with NaN": lambda run: run.arrays(b'{"a":NaN}'),
    "header with a name twice": lambda run: run.arrays(b'{"a":%s,"a":%s}' % ((json.dumps(WEIGHT).encode(),) * 2)),
    "header of other bytes than UTF-8": lambda run: run.arrays(b'{"\xff":1}'),
    "too many arrays": lambda run: run.arrays(
        {str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(MOST_ARRAYS + 1)}, b""
    ),
    "meta data in the header": lambda run: run.arrays(
        {"__metadata__": {"run": "me"}, "agent/weight": WEIGHT}, bytes(48)
    ),
    "name of a megabyte": lambda run: run.arrays({"x" * (1 << 20): WEIGHT}, bytes(48)),
    "entry no table": lambda run: run.arrays({"agent/weight": 3}),
    # an entry
    "unknown type": lambda run: run.entry(dtype="O"),
    "type of Python": lambda run: run.entry(dtype="os.system"),
    "type a number": lambda run: run.entry(dtype=4),
    "one key more": lambda run: run.entry(reduce="os.system"),
    "negative size": lambda run: run.entry(shape=[-2]),
    "two negative sizes": lambda run: run.entry(shape=[-1, -2]),
    "fraction as size": lambda run: run.entry(shape=[2.0]),
    "truth value as size": lambda run: run.entry(shape=[True, 2]),
    "shape a text": lambda run: run.entry(shape="2"),
    "shape beyond memory": lambda run: run.entry(shape=[1 << 40, 1 << 40]),
    "shape beyond memory with a zero": lambda run: run.entry(shape=[0, 1 << 61, 1 << 61], data_offsets=[48, 48]),
    "a thousand dimensions": lambda run: run.entry(shape=[1] * 1000 + [2]),
    "overlapping": lambda run: run.entry(data_offsets=[46, 48]),
    "the same bytes twice": lambda run: run.entry(dtype="F32", shape=[12], data_offsets=[0, 48]),
    "a gap": lambda run: run.entry(shape=[1], data_offsets=[49, 50]),
    "beyond the end": lambda run: run.entry(shape=[100], data_offsets=[48, 148]),
    "backwards": lambda run: run.entry(data_offsets=[50, 48]),
    "negative offset": lambda run: run.entry(data_offsets=[-2, 0]),
    "huge offset": lambda run: run.entry(data_offsets=[48, 10**30]),
    "three offsets": lambda run: run.entry(data_offsets=[48, 49, 50]),
    "bytes of no array": lambda run: run.arrays({"agent/weight": WEIGHT, "agent/known": KNOWN}, bytes(51)),
    "neither true nor false": lambda run: run.arrays({"agent/weight": WEIGHT, "agent/known": KNOWN}, b"\x07" * 50),
    # sound files that do not fit
    "another type": lambda run: save_others(run, {"agent": {**TREES["agent"], "weight": np.zeros((3, 4))}}),
    "another shape": lambda run: save_others(run, {"agent": {**TREES["agent"], "known": np.zeros((2, 1), bool)}}),
    "an array less": lambda run: save_others(run, {"agent": {"known": TREES["agent"]["known"]}}),
    "an array more": lambda run: save_others(run, {**TREES, "__class__": np.zeros(1)}),
    # code
    "pickle as arrays": lambda run: run.put(ARRAYS, poison(run)),
    "pickle as a header": lambda run: run.arrays(poison(run)),
    "pickle in NumPy's format": lambda run: run.put(ARRAYS, poisoned_numpy(run)),
    "pickle in an archive": lambda run: run.put(ARRAYS, poisoned_archive(run)),
    "pickle as meta data": lambda run: run.put(META, poison(run)),
    "pickle as manifest": lambda run: (run.path / MANIFEST).write_bytes(poison(run)),
    "pickle beside": lambda run: (run.path / "arrays.pkl").write_bytes(poison(run)),
    # meta data
    "ten megabytes of JSON": lambda run: run.put(META, b'{"a":"' + b"x" * (10 << 20) + b'"}'),
    "JSON nested deeply": lambda run: run.put(META, DEEP),
    "NaN in JSON": lambda run: run.put(META, b'{"step":7,"meta":{"rate":NaN},"segments":[]}'),
    "infinity in JSON": lambda run: run.put(META, b'{"step":7,"meta":{"rate":-Infinity},"segments":[]}'),
    "a number beyond all": lambda run: run.put(META, b'{"step":7,"meta":{"rate":1e999},"segments":[]}'),
    "a key twice": lambda run: run.put(META, b'{"step":7,"meta":{},"meta":{},"segments":[]}'),
    "ten thousand digits": lambda run: run.put(META, b'{"step":7,"meta":{"n":%s},"segments":[]}' % (b"9" * 10_000)),
    "JSON cut short": lambda run: run.put(META, (run.path / META).read_bytes()[:-1]),
    "JSON of another step": lambda run: run.meta(step=8),
    "JSON without segments": lambda run: run.put(META, b'{"step":7,"meta":{}}'),
    "meta data a list": lambda run: run.meta(meta=["os.system"]),
    # segments
    "segments a text": lambda run: run.meta(segments="../../*"),
    "segment outside": traversing_segment,
    "segment of the system": lambda run: run.segment(name="/etc/passwd"),
    "segment that is none": lambda run: run.segment(name="meta.json"),
    "segment a link": link_segment,
    "segment of a terabyte": lambda run: run.segment(size=1 << 40),
    "segment of too many": lambda run: run.segment(count=1 << 40),
    "segment of fewer": lambda run: run.segment(count=STEP - 1),
    "segment of another start": lambda run: run.segment(start=3),
    "segment that does not exist": lambda run: run.segment(name=f"{0:012d}-{0:016x}.safetensors"),
    # manifest
    "later version": lambda run: run.seal(FORMAT + 1),
    "version of long ago": lambda run: run.seal(0),
    "version a text": lambda run: run.manifest(lambda m: {**m, "format": "1; import os"}),
    "version true": lambda run: run.manifest(lambda m: {**m, "format": True}),
    "version negative": lambda run: run.manifest(lambda m: {**m, "format": -1}),
    "another step": lambda run: run.manifest(lambda m: {**m, "step": 8}),
    "file outside": lambda run: run.manifest(
        lambda m: {**m, "files": {**m["files"], "../../outside": {"size": 0, "sha256": "0" * 64}}}
    ),
    "file of the system": lambda run: run.manifest(
        lambda m: {**m, "files": {"/etc/passwd": {"size": 0, "sha256": "0" * 64}}}
    ),
    "no files": lambda run: run.manifest(lambda m: {**m, "files": {}}),
    "files a list": lambda run: run.manifest(lambda m: {**m, "files": [ARRAYS]}),
    "negative file size": lambda run: run.manifest(
        lambda m: {**m, "files": {**m["files"], ARRAYS: {"size": -1, "sha256": "0" * 64}}}
    ),
    "manifest with a key more": lambda run: run.manifest(lambda m: {**m, "loader": "os.system"}),
    "manifest a list": lambda run: (run.path / MANIFEST).write_text("[]"),
    "manifest with spaces": lambda run: (run.path / MANIFEST).write_bytes((run.path / MANIFEST).read_bytes() + b" "),
    "manifest of a megabyte": lambda run: (run.path / MANIFEST).write_bytes(b" " * (1 << 20)),
    # the directory
    "file a link": link_file,
    "directory a link": link_directory,
    "file a pipe": replace_by(os.mkfifo),
    "file a directory": replace_by(Path.mkdir),
    "file the system's zeros": replace_by(lambda path: path.symlink_to("/dev/zero")),
    "a stranger": lambda run: (run.path / "sitecustomize.py").write_text("import os"),
    "two thousand strangers": many_files,
    "checkpoint a file": lambda run: (run.path.rename(run.root / "outside"), run.path.write_text("")),
}


def everything_under(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.lstat().st_size, p.lstat().st_mtime_ns) for p in sorted(root.rglob("*"))}


def test_the_corpus_is_large():
    assert len(CORPUS) >= 80


def test_sealing_anew_alone_changes_nothing(tmp_path):
    """The control: what is refused below is refused for what was changed, not for how."""
    run = Run(tmp_path)
    for reseal in (
        run.seal,
        run.entry,
        lambda: run.entry(99),
        run.meta,
        run.segment,
        lambda: run.manifest(lambda m: m),
    ):
        reseal()
        loaded = run.store.load(TREES)
        assert loaded is not None
        assert loaded.step == STEP
        assert [status.problem for status in run.store.verify()] == [None]


@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_checkpoint_is_refused(tmp_path, name):
    run = Run(tmp_path)
    CORPUS[name](run)
    before = everything_under(tmp_path)
    tracemalloc.start()
    try:
        with pytest.raises(StorageFault) as fault:
            run.store.load(TREES)
        (status,) = run.store.verify()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(fault.value)
    assert len(str(fault.value)) < 1000
    assert everything_under(tmp_path) == before
    assert not (tmp_path / MARKER).exists()
    assert peak < MOST_MEMORY
    fits = name in {"another type", "another shape", "an array less", "an array more"}
    # Without templates nothing can be said against a sound file of other arrays.
    assert (status.problem is None) == fits


def test_the_payload_would_have_run(tmp_path):
    run = Run(tmp_path)
    pickle.loads(poison(run))
    assert (tmp_path / MARKER).exists()
