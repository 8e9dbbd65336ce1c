"""How things are measured: one pinned core, repetitions interleaved, the fastest of each."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable


def pin_one_core() -> None:
    """Stay on one core. Must run before JAX is imported, because JAX sizes its thread pool then."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def jax_is_imported() -> bool:
    return "jax" in sys.modules


def interleaved(
    calls: dict[str, Callable[[], object]], repeats: int, inner: dict[str, int] | int = 5
) -> dict[str, float]:
    """Seconds of processor time per call, in the fastest of `repeats` runs of `inner` calls.

    The calls take turns, so that a busy moment meets all of them; the fastest run counts, because other processes can
    only add time.
    """
    import jax

    counts = inner if isinstance(inner, dict) else dict.fromkeys(calls, inner)
    for call in calls.values():
        jax.block_until_ready(call())
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            result, start = None, time.process_time()
            for _ in range(counts[name]):
                result = call()  # the results before it are dropped, so that their memory is used again
            jax.block_until_ready(result)
            times[name].append((time.process_time() - start) / counts[name])
    return {name: min(values) for name, values in times.items()}
