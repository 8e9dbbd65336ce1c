"""What a checkpoint says of a run, and a run set to where one left it. When to save is the run's own matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symbreak.errors import InputError
from symbreak.training.checkpoint import Loaded
from symbreak.training.meta import Meta
from symbreak.training.provenance import differences
from symbreak.training.record import is_finished
from symbreak.training.segments import restore_replay

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


def take_up(run: Run, loaded: Loaded, replay: Any, directory: Path) -> tuple[Meta, list[str]]:
    """Set a run to a checkpoint of `directory`. Returns what that says, and why the run is not exact from here on."""
    where = str(loaded.path)
    meta = Meta.parse(loaded.meta, where)
    if meta.config != json.loads(json.dumps(run.config.identity)):
        raise InputError(f"{directory / 'config.json'} is not the one {where} was saved with; restore it")
    require_symmetry(loaded, run.agent.symmetry.digest)
    run.step, run.row_step, run.ledger = loaded.step, meta.row_step, meta.ledger
    run.finished = is_finished(directory) and loaded.step == run.schedule.end
    restored = restore_replay(directory / "replay", loaded.segments, replay)
    mismatch = run.driver.restore(loaded.step, loaded.trees, restored, meta.environment)
    reasons = [*differences(meta.provenance, run.provenance), *([mismatch] if mismatch else [])]
    run.record.inexact = list(dict.fromkeys([*meta.inexact, *reasons]))
    return meta, reasons


def require_symmetry(loaded: Loaded, digest: str) -> None:
    if loaded.meta.get("symmetry") != digest:
        raise InputError(f"{loaded.path} was saved under another symmetry; give the one the run was started with")
