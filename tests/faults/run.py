"""Every fault that a run must survive or name, one line per row with its figure.

    python tests/faults/run.py [--tier small|full] [--only ROW ...]

Exits 1 when a row misses its figure. The kills, signals and workers of the full tier take most of the time; on an idle
core all of it takes about an hour.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The rows reuse tables and environments of the ordinary tests.
sys.path += [str(ROOT / "tests" / room) for room in ("storage", "training", "tasks", "symmetry", "audit")]

# As in the tests: what one process has compiled no other compiles again.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def processor_minutes() -> float:
    """Of this process and of the ones it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(times.ru_utime + times.ru_stime for times in used) / 60


# Workers are started while JAX has threads; what is forked becomes another program at once.
warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)


def main(arguments: list[str] | None = None) -> int:
    from rows import ROWS, judge

    parser = argparse.ArgumentParser(description="Faults, and whether what must come of them does.")
    parser.add_argument("--tier", choices=("small", "full"), default="full")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW", help=" ".join(ROWS))
    chosen = parser.parse_args(arguments)
    missed = 0
    for name in chosen.only:
        began, used = time.perf_counter(), processor_minutes()
        with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
            outcome = judge(name, chosen.tier, Path(scratch))
        missed += not outcome.holds
        seconds, minutes = time.perf_counter() - began, processor_minutes() - used
        took = f"{seconds:.0f} s, {minutes:.1f} CPU min"
        figure = f"{outcome.good}/{outcome.of}"
        verdict = "ok    " if outcome.holds else "MISSED"
        print(f"{verdict} {ROWS[name].fault:42} {figure:>10}  {outcome.note} ({took})", flush=True)
        for wrong in outcome.wrong[:5]:
            print(f"       {wrong}", flush=True)
    print(f"{len(chosen.only) - missed} of {len(chosen.only)} rows hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
