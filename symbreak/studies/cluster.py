"""The runs of a study as tasks of an existing Ray cluster; their directories lie on storage that every node sees.

A task starts the same process as a local study does. If its worker or node dies, that process ends with it, Ray starts
the task again elsewhere, and the run goes on from its newest checkpoint. The lock of a run's directory keeps two nodes
from making the same run.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from symbreak.errors import InputError, StorageFault
from symbreak.process.follow import following
from symbreak.studies.launch import WORKER, Progress, arguments_of, begin, is_made_elsewhere, look, settle
from symbreak.studies.plans import Job
from symbreak.studies.records import recorded

RESTARTS = 20  # of a task whose node or worker died: not the run's fault


def run_on_ray(
    jobs: Sequence[Job],
    out: Path,
    *,
    address: str,
    show: Callable[[list[Progress]], None] = lambda table: None,
    keep_runs: bool = False,
    poll: float = 1.0,
) -> list[Progress]:
    """Make every run that has no record yet on the cluster at `address` ("auto" finds a running one)."""
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ModuleNotFoundError:
        raise InputError("studies on a cluster need Ray; in symbreak's directory: pip install '.[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError) as problem:  # none, a wrong address, one that is ending
            said = " ".join(str(problem).split())[:200]
            raise InputError(f"no Ray cluster answers at {address!r} ({said}); start one with `ray start`") from None
    out = out.resolve()
    task: Any = ray.remote(num_cpus=1, max_retries=RESTARTS)(_work)
    table = [Progress(job, recorded(out, job) or "waiting") for job in jobs]
    pending: dict[Any, Progress] = {}

    def start(entry: Progress) -> None:
        begin(out, entry)
        pending[task.remote(arguments_of(out, entry.job))] = entry

    for entry in table:
        if entry.state != "finished" and not is_made_elsewhere(out, entry):
            start(entry)
    try:
        while pending:
            for entry in pending.values():
                look(out, entry)
            show(table)
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=poll)
            for done in ready:
                entry = pending.pop(done)
                try:
                    code = ray.get(done)
                except StorageFault as fault:  # of the cluster, not of the run
                    raise StorageFault(_last_line(fault)) from None
                except RayTaskError as problem:
                    code, entry.reason = 1, _last_line(problem)
                except RayError as problem:
                    code, entry.reason = 1, str(problem).splitlines()[0]
                settle(out, entry, code, keep_runs)
                if entry.state == "waiting":
                    start(entry)
    except BaseException:
        for unfinished in pending:
            ray.cancel(unfinished, force=True)
        raise
    show(table)
    return table


def _last_line(problem: BaseException) -> str:
    """What a task raised stands behind its traceback, after the name of its class."""
    return str(problem).strip().splitlines()[-1].removeprefix(f"{StorageFault.__module__}.{StorageFault.__name__}: ")


def _work(arguments: list[str]) -> int:
    """Runs on a node. What the process says goes to the log beside its run's directory, as in a local study."""
    if not Path(arguments[0]).exists():
        raise StorageFault(f"{socket.gethostname()} does not see {arguments[0]}; --out must lie where all nodes see it")
    log = Path(arguments[-1]).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = following(WORKER, *arguments)  # without its worker of Ray the run must not go on, and hold its directory
    with log.open("ab") as said:
        return subprocess.run(command, stdout=said, stderr=said, check=False).returncode
