"""Contenders as processes: started, asked, interleaved, ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from symbreak.errors import SymbreakError

Answer = dict[str, float]


class Worker:
    """A contender in its own process; `first` is what it said after its first update."""

    def __init__(self, *, cache: Path | None = None, **description: Any) -> None:
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        if cache is not None:
            environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        description |= {"started": time.time()}
        self.name = " ".join(str(description[key]) for key in ("library", "task", "method") if key in description)
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "symbreak.bench.worker", json.dumps(description)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment,
        )
        self.first: Answer = {}

    def wait_until_ready(self) -> Worker:
        self.first = self.answer()
        return self

    def send(self, **request: Any) -> None:
        assert self.process.stdin is not None
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise self._died() from None

    def answer(self) -> Answer:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self._died()
        return json.loads(line)

    def ask(self, **request: Any) -> Answer:
        self.send(**request)
        return self.answer()

    def _died(self) -> SymbreakError:
        self.process.wait()
        self.log.seek(0)
        said = self.log.read().strip().splitlines() or ["no message"]
        return SymbreakError(f"the benchmark of {self.name} ended early: {said[-1]}; run it again")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None:
                pipe.close()


def one_core() -> int:
    """The core on which everything is measured."""
    return max(os.sched_getaffinity(0))
