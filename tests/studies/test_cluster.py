"""A study on a real Ray cluster of two nodes: a killed worker and a lost node leave the same records as no fault."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from symbreak.studies.launch import run_local
from symbreak.studies.plans import Job
from symbreak.studies.records import record_directory

# One worker for all, and first the test that wants no cluster: it would find one that another test started.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("studies"),
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`"),
]

DRILL = Path(__file__).with_name("cluster_drill.py")
LONGEST = 500  # seconds


def say(*arguments: str) -> tuple[int, str]:
    """Exit code and last line of a process that may start others: all of them are gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=LONGEST)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return process.returncode, said.strip().splitlines()[-1]


def prints(out: Path, jobs: list[Job]) -> list[str]:
    return [json.loads((record_directory(out, job) / "record.json").read_text())["fingerprint"] for job in jobs]


def test_a_cluster_that_is_not_there_is_said_in_one_line(tmp_path):
    asked = ["-m", "symbreak", "study", "grid-obstacles", "--seeds", "1", "--ray", "auto", "--out", str(tmp_path / "s")]
    code, said = say(*asked)
    assert code == 2, said
    assert "no Ray cluster answers at 'auto'" in said


def test_a_killed_worker_and_a_lost_node_leave_no_trace(tmp_path):
    code, said = say(str(DRILL), str(tmp_path / "cluster"))
    assert code == 0, said
    found = json.loads(said)
    assert found["killed"].keys() == {"worker", "node"}
    assert found["states"] == ["finished"] * 4
    for process in found["killed"].values():
        assert not Path(f"/proc/{process}").exists()

    planned = runpy.run_path(str(DRILL))["jobs"]()
    run_local(planned, tmp_path / "local", poll=0.1)
    assert prints(tmp_path / "cluster", planned) == prints(tmp_path / "local", planned)
    assert len(set(prints(tmp_path / "local", planned))) == 4
    # Nothing is made again, and no cluster is asked for it.
    assert [entry.attempts for entry in run_local(planned, tmp_path / "cluster")] == [0, 0, 0, 0]
