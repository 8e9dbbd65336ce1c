"""One contender in a process of its own, as a user would run it: it is told to make steps and says what they cost.

Started by the other benchmarks with a description in JSON as its only argument; requests come line by line on standard
input, answers go to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from typing import Any

WARM_UP = 8  # steps before the first update


class Contender(ABC):
    """Something that trains: one update per environment step."""

    @abstractmethod
    def run(self, steps: int) -> None:
        """Make steps, and wait until everything is computed."""

    def impose(self, rate: float) -> None:
        raise NotImplementedError("only a gated agent has a gate rate")

    def fill(self, stored: int) -> None:
        raise NotImplementedError("only our hosted agents are filled directly")

    def share(self) -> dict[str, float]:
        raise NotImplementedError("only our agents are compared with their matrix products")


def make(description: dict[str, Any]) -> Contender:
    if description["library"] != "ours":
        from symbreak.bench.peers import Peer

        return Peer(description["library"], description["task"], WARM_UP)
    from symbreak.bench.ours import make_ours

    return make_ours(description, WARM_UP)


def resident_bytes() -> int:
    """Memory of this process at the moment."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve(contender: Contender) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "rate" in request:
            contender.impose(request["rate"])
        if "fill" in request:
            contender.fill(request["fill"])
        answer: dict[str, float] = {}
        if "steps" in request:
            wall, start = time.perf_counter(), time.process_time()
            contender.run(request["steps"])
            answer = {"cpu_s": time.process_time() - start, "wall_s": time.perf_counter() - wall}
        if "share" in request:
            answer |= contender.share()
        _say(answer | {"resident": resident_bytes(), "peak": peak_bytes()})


def _say(answer: dict[str, float]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    description = json.loads(sys.argv[1])
    if description.get("core") is not None:
        os.sched_setaffinity(0, {description["core"]})
    from symbreak.process.fast_start import prepare_process

    prepare_process()
    contender = make(description)
    contender.run(WARM_UP + 1)
    _say({"wall_s": time.time() - description["started"], "cpu_s": time.process_time(), "peak": peak_bytes()})
    serve(contender)


if __name__ == "__main__":
    main()
