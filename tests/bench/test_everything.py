"""All benchmarks, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

START = """
import sys
from pathlib import Path
from symbreak.bench.everything import bench_all
bench_all(Path(sys.argv[1]))
"""


def benchmarks(process: int) -> list[int]:
    """Children that have become what they were started for."""
    found = map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    return [child for child in found if b"\0bench\0" in Path(f"/proc/{child}/cmdline").read_bytes()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def within(seconds: float, condition: Callable[[], object]) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_ends_it_ends_the_benchmark_under_way(number, tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", START, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert within(60, lambda: benchmarks(parent.pid))
        (child,) = benchmarks(parent.pid)
        os.kill(parent.pid, number)
        parent.communicate(timeout=10)
        assert within(10, lambda: not alive(child))
    finally:
        parent.kill()
