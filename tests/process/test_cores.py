"""Runs side by side take a core each, also those of different studies."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from symbreak.process.cores import least_used_first


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_the_core_of_another_run_comes_last(monkeypatch):
    first, second = sorted(os.sched_getaffinity(0))[:2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {first, second})
    waits = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True); sys.stdin.read()"
    for taken, free in ((first, second), (second, first)):
        # More of them than others may have pinned meanwhile.
        command = [sys.executable, "-S", "-c", waits, str(taken)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        others = [subprocess.Popen(command, **pipes) for _ in range(8)]
        try:
            for other in others:
                other.stdout.readline()
            assert least_used_first() == [free, taken]
        finally:
            for other in others:
                other.communicate()


COUNT = """
import os, sys
{before}
from symbreak.process.cores import use_one_core
use_one_core()
import jax
jax.numpy.ones(3).sum().block_until_ready()
threads = [open(f"/proc/self/task/{{task}}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(len(os.sched_getaffinity(0)), threads.count("tf_XLAEigen"))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize(
    ("before", "one"),
    [("", True), ("import symbreak.studies.patch", True), ("import jax; jax.numpy.ones(3).sum()", False)],
)
def test_a_process_takes_one_core_where_jax_has_not_counted_them(before, one):
    """What JAX computes with is counted by its threads; where it has begun, the process stays as it is."""
    script = COUNT.format(before=before)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    cores, threads = map(int, done.stdout.split())
    assert cores == threads == (1 if one else len(os.sched_getaffinity(0)))


def test_a_worker_of_a_study_chooses_before_jax_is_there():
    """Its core, and the cache of compiled programs, of which JAX reads when it is imported."""
    script = "import sys, symbreak.studies.worker; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_processes_that_see_the_same_begin_elsewhere(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 8})
    monkeypatch.setattr("symbreak.process.cores._only_core", lambda status: None)
    begun = []
    for number in range(3):
        monkeypatch.setattr(os, "getpid", lambda number=number: 300 + number)
        order = least_used_first()
        assert sorted(order) == [3, 5, 8]
        begun.append(order[0])
    assert sorted(begun) == [3, 5, 8]
