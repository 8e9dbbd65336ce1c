"""A process that ends with whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from symbreak.process.follow import following

# Starts a module that says who it is and waits, and passes on what it says.
PARENT = """
import subprocess
from symbreak.process.follow import following
subprocess.run(following("waits", "one", "two words"))
"""
WAITS = """
import sys, time
print(sys.argv[1:], flush=True)
time.sleep(60)
"""


def test_a_module_gets_its_arguments_and_ends_with_its_killed_parent(tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout.readline() == "['one', 'two words']\n"
        parent.kill()
        begun = time.monotonic()
        assert parent.stdout.read() == ""  # which ends when the last process that could write has ended
        assert time.monotonic() - begun < 20


def test_one_whose_parent_is_gone_already_does_nothing(tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = following("waits")
    assert command[3] == str(os.getpid())
    command[3] = "1" if os.getpid() != 1 else "2"
    left = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=50)
    assert (left.returncode, left.stdout) == (75, "")
