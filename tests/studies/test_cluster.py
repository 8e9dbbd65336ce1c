"""A study on a real Ray cluster of two nodes: a killed worker and a lost node leave the same records as no fault."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from symbreak.errors import InputError
from symbreak.studies.cluster import run_on_ray
from symbreak.studies.launch import record_directory, run_directory, run_local
from symbreak.studies.plans import Job, plan

SMALL = {"width": 16, "batch": 16, "learning_starts": 20, "capacity": 500}


def jobs() -> list[Job]:
    planned = plan("grid-obstacles", seeds=4, steps=3_000, methods=["exact"], settings=["grid-20"])
    changes = {"agent": SMALL, "evaluations": 2, "episodes": 2, "checkpoint_every": 100}
    return [Job(job.setting, replace(job.config, **changes)) for job in planned]


def facts(out: Path, job: Job) -> dict:
    return json.loads((record_directory(out, job) / "record.json").read_text())


def processes_of(out: Path, job: Job) -> list[int]:
    """The run's process, found by its arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(run_directory(out, job)) in (entry / "cmdline").read_bytes().decode(errors="replace").split("\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
@pytest.mark.xdist_group("studies")
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_a_killed_worker_and_a_lost_node_leave_no_trace(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, resources={name: 1}) for name in ("first", "second")]
    out, planned, done, ours = tmp_path / "cluster", jobs(), {}, ""

    def disturb(table):
        """First the worker of one run is killed, later a node on which another one runs."""
        for entry in table:
            reached = list((run_directory(out, entry.job) / "checkpoints").glob("step-*"))
            found = processes_of(out, entry.job)
            if not reached or not found or entry.state != "running":
                continue
            if "worker" not in done:
                done["worker"] = found[0]
                os.kill(parent_of(found[0]), signal.SIGKILL)
                return
            if "node" in done:
                return
            raylet = parent_of(parent_of(found[0]))
            node = next((n for n in nodes if any(p.process.pid == raylet for p in n.all_processes["raylet"])), None)
            # The node that this very process is attached to would take it along.
            if node is None or node.unique_id == ours:
                continue
            done["node"] = found[0]
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
            return

    try:
        ray.init(address=cluster.address, log_to_driver=False)
        ours = ray.get_runtime_context().get_node_id()
        table = run_on_ray(planned, out, address=cluster.address, show=disturb, poll=0.2)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert done.keys() == {"worker", "node"}
    assert [entry.state for entry in table] == ["finished"] * 4
    for process in done.values():
        assert not Path(f"/proc/{process}").exists()

    run_local(planned, tmp_path / "local", poll=0.1)
    prints = {where: [facts(tmp_path / where, job)["fingerprint"] for job in planned] for where in ("cluster", "local")}
    assert prints["cluster"] == prints["local"]
    assert len(set(prints["local"])) == 4
    # Nothing is made again, and no cluster is asked for it.
    assert [entry.attempts for entry in run_local(planned, out)] == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_said_in_one_line(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="no Ray cluster answers at 'auto'"):
        run_on_ray(jobs()[:1], tmp_path, address="auto")
