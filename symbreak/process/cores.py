"""One core for one run.

How many cores a process sees changes how sums are split on a CPU, and with it the last bits of every number; and runs
side by side are fastest on a core each. This must happen before JAX computes anything, so nothing here imports it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path


def visible_cores() -> int:
    return len(os.sched_getaffinity(0))


def use_one_core() -> None:
    """Pin this process to the core with the fewest processes pinned to it.

    Where JAX has counted the cores already the process keeps them: a run records what JAX saw.
    """
    if visible_cores() > 1 and not _jax_has_counted():
        os.sched_setaffinity(0, {least_used_first()[0]})


def _jax_has_counted() -> bool:
    """It counts when it first computes; where that cannot be told, it has."""
    if "jax" not in sys.modules:
        return False
    begun = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    return begun is None or begun()


def least_used_first() -> list[int]:
    """The cores of this process in the order of how many processes are pinned to each.

    Processes started together see the same, so each begins elsewhere among equals.
    """
    cores = sorted(os.sched_getaffinity(0))
    pinned = [_only_core(path) for path in Path("/proc").glob("[0-9]*/status")]
    turn = os.getpid() % len(cores)
    return sorted(cores[turn:] + cores[:turn], key=pinned.count)


def _only_core(status: Path) -> int | None:
    """The core of a process that is pinned to one; none for others, and for threads of the kernel."""
    try:
        text = status.read_text()
    except OSError:
        return None
    match = re.search(r"^Cpus_allowed_list:\s*([0-9]+)$", text, re.MULTILINE)
    return int(match[1]) if match and "VmSize:" in text else None
