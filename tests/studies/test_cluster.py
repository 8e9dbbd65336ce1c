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
    alone = tmp_path / "elsewhere" / "local"  # beside the other, it would take that one's records over
    assert [entry.attempts for entry in run_local(planned, alone, poll=0.1)] == [1, 1, 1, 1]
    assert prints(tmp_path / "cluster", planned) == prints(alone, planned)
    assert len(set(prints(alone, planned))) == 4
    # Nothing is made again, and no cluster is asked for it.
    assert [entry.attempts for entry in run_local(planned, tmp_path / "cluster")] == [0, 0, 0, 0]


TROUBLE = """
import json, sys
from pathlib import Path
import ray
from symbreak.errors import StorageFault
from symbreak.studies import cluster
from symbreak.studies.plans import plan

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
jobs, out = plan("grid-obstacles", seeds=1, methods=["exact"], settings=["grid-20"]), Path(sys.argv[1])
(out / "file").write_text("{}")
cluster.arguments_of = lambda *_: [str(out / "file"), str(out / "file" / "run")]
failed, = cluster.run_on_ray(jobs, out, address="auto")
cluster.arguments_of = lambda *_: [str(out / "seen by the driver alone"), str(out / "run")]
try:
    cluster.run_on_ray(jobs, out, address="auto")
except StorageFault as fault:
    print(json.dumps([failed.state, failed.reason, str(fault), (out / "run.log").exists()]))
"""


def test_what_goes_wrong_on_a_node_is_said_as_it_is(tmp_path):
    """A run that cannot be started there has failed and says why; a node without the directory stops the study."""
    code, said = say("-c", TROUBLE, str(tmp_path))
    assert code == 0, said
    state, reason, fault, began = json.loads(said)
    assert state == "failed"
    assert reason.startswith("FileExistsError")
    assert str(tmp_path / "file") in reason
    assert "does not see" in fault
    assert "all nodes see it" in fault
    assert "\x1b" not in reason + fault
    assert fault.split()[0] not in ("error", "symbreak.errors.StorageFault:")
    assert not began
