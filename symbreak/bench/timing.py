"""How things are measured: one pinned core, repetitions interleaved, medians."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable


def pin_one_core() -> None:
    """Stay on one core. Must run before JAX is imported, because JAX sizes its thread pool then."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def jax_is_imported() -> bool:
    return "jax" in sys.modules


def interleaved(calls: dict[str, Callable[[], object]], repeats: int, inner: int = 5) -> dict[str, float]:
    """Median seconds of processor time per call; the calls take turns, so that a busy moment meets all of them."""
    import jax

    for call in calls.values():
        jax.block_until_ready(call())
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.process_time()
            jax.block_until_ready([call() for _ in range(inner)])
            times[name].append((time.process_time() - start) / inner)
    return {name: statistics.median(values) for name, values in times.items()}
