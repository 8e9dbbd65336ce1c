"""What a checkpoint says of a run, and a run set to where one left it. When to save is the run's own matter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symbreak.errors import InputError
from symbreak.process.provenance import differences
from symbreak.storage.checkpoint import Checkpoints, Loaded
from symbreak.storage.files import read_file
from symbreak.storage.segments import restore_replay
from symbreak.training.meta import Meta
from symbreak.training.record import MOST_METRICS, is_finished, require_prefix
from symbreak.training.settings import RunConfig

if TYPE_CHECKING:
    from symbreak.training.run import Run


def meta_of(run: Run, environment: Any) -> dict[str, Any]:
    """What is saved beside the arrays; `environment` are the facts of its driver. `Meta` reads it back."""
    return {
        "config": run.config.identity,
        "symmetry": run.agent.symmetry.digest,
        "provenance": run.provenance,
        "inexact": list(run.record.inexact),
        "metrics": run.record.metrics,
        "ledger": run.ledger.to_json(),
        "row_step": run.row_step,
        "capacity": run.agent.config.capacity,
        "environment": environment,
    }


def newest(directory: Path, trees: dict[str, Any]) -> Loaded | None:
    """The newest undamaged checkpoint of a run, if there is one; nothing is locked or changed."""
    checkpoints = Checkpoints(directory / "checkpoints", directory / "replay")
    loaded = checkpoints.load(trees) if checkpoints.directory.is_dir() else None
    for status in () if loaded is None else loaded.passed_over:
        _warn(f"passed over {status.path.name}: {status.problem}")
    return loaded


def require_same(loaded: Loaded, config: RunConfig, symmetry: str, directory: Path) -> None:
    """Refuse a checkpoint of another configuration, or under another symmetry, given by its digest."""
    if loaded.meta.get("config") != json.loads(json.dumps(config.identity)):
        raise InputError(f"{directory / 'config.json'} is not the one {loaded.path} was saved with; restore it")
    if loaded.meta.get("symmetry") != symmetry:
        raise InputError(f"{loaded.path} was saved under another symmetry; give the one the run was started with")


def take_up(run: Run, loaded: Loaded, replay: Any, directory: Path) -> Meta:
    """Set a run to a checkpoint of `directory`; why it is not exact from here on, if so, is said. Returns the rest."""
    meta = Meta.parse(loaded.meta, str(loaded.path))
    require_same(loaded, run.config, run.agent.symmetry.digest, directory)
    run.step, run.row_step, run.ledger = loaded.step, meta.row_step, meta.ledger
    run.finished = is_finished(directory) and loaded.step == run.schedule.end
    restored = restore_replay(directory / "replay", loaded.segments, replay)
    mismatch = run.driver.restore(loaded.step, loaded.trees, restored, meta.environment)
    reasons = [*differences(meta.provenance, run.provenance), *([mismatch] if mismatch else [])]
    for reason in reasons:
        _warn(f"this run is no longer exact: {reason}")
    run.record.inexact = list(dict.fromkeys([*meta.inexact, *reasons]))
    return meta


def rows_until(meta: Meta, directory: Path) -> list[dict[str, float]]:
    """The rows that a checkpoint has seen, which are still there."""
    path = directory / "metrics.jsonl"
    data = read_file(path, MOST_METRICS)[: meta.metrics.size]
    require_prefix(data, meta.metrics, path)
    return [json.loads(line) for line in data.splitlines()]


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)
