"""Looking at a run's directory from outside: are its checkpoints good, and is it the same run as another?"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from symbreak.errors import StorageFault
from symbreak.storage.arrays import as_bytes, describe
from symbreak.storage.checkpoint import Checkpoints, CheckpointStatus, Loaded
from symbreak.storage.files import read_file
from symbreak.storage.segments import COLUMNS, read_segment
from symbreak.storage.strict_json import to_json
from symbreak.training.meta import Meta
from symbreak.training.record import MOST_METRICS, no_checkpoint, read_config, read_status, require_prefix


@dataclass(frozen=True)
class Verdict:
    checkpoints: list[CheckpointStatus]  # oldest first
    metrics: str | None  # what is wrong with metrics.jsonl or the newest checkpoint's facts, if anything

    @property
    def good(self) -> int:
        return sum(status.problem is None for status in self.checkpoints)


def verify(directory: Path) -> Verdict:
    """Read everything and compare every checksum; nothing is changed."""
    read_config(directory)
    checkpoints = _checkpoints(directory)
    statuses = checkpoints.verify() if checkpoints.directory.is_dir() else []
    problem = None
    if any(status.problem is None for status in statuses):
        loaded = checkpoints.load(None)
        assert loaded is not None
        try:
            _require_metrics(directory, loaded)
        except StorageFault as fault:
            problem = str(fault)
    return Verdict(statuses, problem)


def fingerprint(directory: Path, *, at_its_end: bool = False) -> str:
    """SHA-256 in 64 hex digits of the newest undamaged checkpoint: equal iff the runs are bit-identical there.

    It covers every array of the agent (parameters, moments of the optimisers, gate, predictors, threshold, running
    statistics), the state of the environment, the replay from the oldest transition it holds to the newest, and the
    training metrics: the sums over every stretch of a thousand environment steps, chained. When evaluations, rows and
    checkpoints are made changes none of that, so runs that differ in these alone have one fingerprint. What stands in
    metrics.jsonl does depend on it; that file is compared with the SHA-256 that the checkpoint recorded, and refused
    where it differs. `at_its_end` refuses a run whose last checkpoint is damaged, in place of telling an older one's.
    """
    read_config(directory)
    checkpoints = _checkpoints(directory)
    loaded = checkpoints.load(None) if checkpoints.directory.is_dir() else None
    if loaded is None:
        raise no_checkpoint(directory)
    if at_its_end and loaded.step != read_status(directory).get("step"):
        raise StorageFault(f"the last checkpoint of {directory} is damaged; {loaded.path.name} is the newest good one")
    meta = _require_metrics(directory, loaded)
    digest = hashlib.sha256()
    for name, array in sorted(loaded.trees.items()):
        digest.update(f"{name}\0{describe(array)}\n".encode())
        digest.update(as_bytes(array))
    for name, column in _replay_digests(directory / "replay", loaded, meta.capacity).items():
        digest.update(f"replay/{name}\0{column}\n".encode())
    facts = {"environment": meta.environment, "chain": meta.ledger.chain, "step": loaded.step}
    digest.update(to_json(facts, "facts"))
    return digest.hexdigest()


def _replay_digests(directory: Path, loaded: Loaded, capacity: int) -> dict[str, str]:
    """By column, independent of how the transitions are divided into segments."""
    digests = {name: hashlib.sha256() for name in COLUMNS}
    oldest = max(0, loaded.segments[-1].end - capacity) if loaded.segments else 0
    for reference in loaded.segments:
        rows, gone = read_segment(directory, reference), max(0, oldest - reference.start)
        for name, column in rows.items():
            digests[name].update(as_bytes(column[gone:]))
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _require_metrics(directory: Path, loaded: Loaded) -> Meta:
    meta, path = Meta.parse(loaded.meta, str(loaded.path)), directory / "metrics.jsonl"
    if meta.config != json.loads(json.dumps(read_config(directory).identity)):
        raise StorageFault(f"{directory / 'config.json'} is not the one {loaded.path} was saved with; restore it")
    rows = read_file(path, MOST_METRICS)
    require_prefix(rows, meta.metrics, path)
    status = read_status(directory)
    ended = status.get("state") == "finished" and status.get("step") == loaded.step
    if ended and len(rows) > meta.metrics.size:
        raise StorageFault(f"{path} goes on after the end of the run; restore it")
    return meta


def _checkpoints(directory: Path) -> Checkpoints:
    return Checkpoints(directory / "checkpoints", directory / "replay")
