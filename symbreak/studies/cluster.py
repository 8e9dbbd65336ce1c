"""The runs of a study as tasks of an existing Ray cluster; their directories lie on storage that every node sees.

A task starts the same process as a local study does. If its worker or node dies, Ray starts the task again elsewhere,
and the run goes on from its newest checkpoint. The lock of a run's directory keeps two nodes from making the same run.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symbreak.errors import InputError
from symbreak.studies.launch import ATTEMPTS, Progress, command, recorded, settle
from symbreak.studies.plans import Job

RESTARTS = 20  # of a task whose node or worker died: not the run's fault


def run_on_ray(jobs: Sequence[Job], out: Path, *, address: str, keep_runs: bool = False) -> list[Progress]:
    """Make every run that has no record yet on the cluster at `address` ("auto" finds a local one)."""
    try:
        import ray
        from ray.exceptions import RayError
    except ModuleNotFoundError:
        raise InputError("studies on a cluster need Ray; pip install 'symbreak[ray]'") from None
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    out = out.resolve()
    task: Any = ray.remote(num_cpus=1, max_retries=RESTARTS)(_work)
    table = [Progress(job, recorded(out, job) or "waiting") for job in jobs]
    pending: dict[Any, Progress] = {}
    for entry in table:
        if entry.state != "finished":
            entry.state, entry.attempts = "running", 1
            pending[task.remote(command(out, entry.job))] = entry
    while pending:
        ready, _ = ray.wait(list(pending), num_returns=1)
        entry = pending.pop(ready[0])
        try:
            code = ray.get(ready[0])
        except RayError as problem:
            code, entry.reason = 1, str(problem).splitlines()[0]
        settle(out, entry, code, keep_runs)
        if entry.state == "waiting":
            entry.state, entry.attempts = "running", min(entry.attempts + 1, ATTEMPTS)
            pending[task.remote(command(out, entry.job))] = entry
    return table


def _work(arguments: list[str]) -> int:
    """Runs on a node. A directory that a dead process still seems to hold is waited for."""
    tries = 10
    while True:
        tries -= 1
        ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if ended.returncode == 0 or "is used by" not in ended.stderr or not tries:
            return ended.returncode
        time.sleep(5)
