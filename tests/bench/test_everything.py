"""All benchmarks, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_ends_it_ends_the_benchmark_under_way(number, tmp_path):
    command, until = [sys.executable, "-c", START, str(tmp_path)], time.monotonic() + 60
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        while not benchmarks(parent.pid):
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(parent.pid, number)
        parent.communicate(timeout=20)  # both write to the pipe of errors: it ends with the last of them
    assert parent.returncode == -number
