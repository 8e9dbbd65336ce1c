"""How a process is set up to be fast from its first update. Must run before JAX is imported, so nothing here does."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# The numbers that mallopt knows them by, and the largest values it takes.
MALLOC = {
    "trim": (-1, 1 << 30),
    "pad": (-2, 1 << 26),
    "map": (-3, 1 << 25),
}


def prepare_process() -> None:
    """Keep freed memory, and keep compiled programs for the next process."""
    _keep_memory()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_cache()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def _keep_memory() -> None:
    """An update allocates and frees the same megabytes again and again; to return them costs a page fault each."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # not the GNU C library: slower, nothing else
    for parameter, value in MALLOC.values():
        mallopt(parameter, value)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "symbreak" / "jax"
