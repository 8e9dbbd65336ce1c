"""A module in a process that ends with whoever started it: `python -m symbreak.process.follow PARENT MODULE ARGUMENT…`

Linux sends it SIGTERM as soon as its parent is gone, however that came about; a run then saves and stops. The process
asks for that itself: what has started JAX must not run Python code between fork and exec.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

from symbreak.errors import Interrupted

PR_SET_PDEATHSIG = 1


def following(module: str, *arguments: str) -> list[str]:
    """The command that runs a module so, for this process."""
    return [sys.executable, "-m", "symbreak.process.follow", str(os.getpid()), module, *arguments]


def _follow(parent: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # gone before it could be asked for
        sys.exit(Interrupted.exit_code)


if __name__ == "__main__":
    _, started_by, name, *rest = sys.argv
    _follow(int(started_by))
    sys.argv[1:] = rest
    runpy.run_module(name, run_name="__main__", alter_sys=True)
