"""A study on a real Ray cluster of two nodes, of which one worker and one node are killed; `test_cluster` runs it.

A process of its own: Ray ends the process that drives it when something goes wrong, and would end the tests' with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from symbreak.studies.cluster import run_on_ray
from symbreak.studies.plans import Job, plan
from symbreak.studies.records import run_directory

SMALL = {"width": 16, "batch": 16, "learning_starts": 20, "capacity": 500}


def jobs() -> list[Job]:
    planned = plan("grid-obstacles", seeds=4, steps=3_000, methods=["exact"], settings=["grid-20"])
    changes = {"agent": SMALL, "evaluations": 2, "episodes": 2, "checkpoint_every": 100}
    return [Job(job.setting, replace(job.config, **changes)) for job in planned]


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
    """Zero for one that is gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def disturbed_study(out: Path) -> dict:
    """The states of the runs and the processes that were killed: a worker's run, a lost node's run."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1, resources={name: 1}) for name in ("first", "second")]
    done, ours = {}, ""

    def disturb(table):
        """First the worker of one run is killed, later a node on which another one runs."""
        for entry in table:
            reached = list((run_directory(out, entry.job) / "checkpoints").glob("step-*"))
            found = processes_of(out, entry.job)
            if not reached or not found or entry.state != "running":
                continue
            parent = parent_of(found[0])
            if parent == 0:
                continue
            if "worker" not in done:
                done["worker"] = found[0]
                os.kill(parent, signal.SIGKILL)
                return
            if "node" in done:
                return
            raylet = parent_of(parent)
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
        table = run_on_ray(jobs(), out, address=cluster.address, show=disturb, poll=0.2)
    finally:
        ray.shutdown()
        cluster.shutdown()
    return {"states": [entry.state for entry in table], "killed": done}


if __name__ == "__main__":
    print(json.dumps(disturbed_study(Path(sys.argv[1]))))
