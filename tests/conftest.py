"""What holds in every test: one CPU, a compilation cache that outlives the run, shapes checked at run time.

Environment variables rather than settings, so that the processes a test starts inherit them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "jax"

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Most of a test's time is compilation; without optimisation it takes two thirds. `make slow` tests the optimised.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("MPLBACKEND", "Agg")
# Two workers share two cores: more threads in each only wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell starts what it puts into the background deaf to ctrl-c, and so would be every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before the first import of the package: every annotated function of it then checks its arguments and its result. A
# whole number is a float, as for a static checker.
install_import_hook("symbreak", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

settings.register_profile("symbreak", deadline=None, derandomize=True, database=None)
settings.load_profile("symbreak")


def pytest_configure(config: pytest.Config) -> None:
    # A worker may read a cache entry while the other still writes it; JAX then compiles and says so.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning")


@pytest.fixture
def x64() -> Iterator[None]:
    """float64 in JAX for one test, and float32 again after it."""
    import jax

    with jax.enable_x64(True):
        yield
