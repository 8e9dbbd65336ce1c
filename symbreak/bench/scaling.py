"""What grows and what does not: time and memory with stored transitions, cost with the number of seeds."""

from __future__ import annotations

import json as json_module
import os
from contextlib import ExitStack
from typing import Any

from symbreak.bench.processes import Worker, one_core

FEW, MANY = 20_000, 1_000_000
SEEDS = (1, 2, 4, 8)
SMALL = {"width": 64, "batch": 64}  # of the agents that share a core
TASK = "grid-20"
Results = dict[str, Any]


def bench_scaling(json: bool = False, quick: bool = False) -> Results:
    """Measure, print and return."""
    results = {**stored(turns=4 if quick else 12), "seeds": seeds(SEEDS[:2] if quick else SEEDS)}
    if json:
        print(json_module.dumps(results))
    else:
        show(results)
    return results


def stored(turns: int, steps: int = 40) -> Results:
    """Plain SAC on the Ant with few and with many transitions in its replay; the fastest of several turns each."""
    times: dict[int, list[float]] = {FEW: [], MANY: []}
    memory = {}
    with Worker(library="ours", task="ant", method="vanilla", core=one_core(), config={"capacity": MANY}) as worker:
        worker.wait_until_ready()
        for count in (FEW, MANY):
            worker.ask(fill=count, steps=steps)
            memory[count] = worker.ask(steps=steps)["resident"]
        for _ in range(turns):
            for count, found in times.items():
                worker.ask(fill=count)
                found.append(worker.ask(steps=steps)["cpu_s"] / steps)
    return {
        "step_s": {count: min(found) for count, found in times.items()},
        "memory_mb": {count: size / 1e6 for count, size in memory.items()},
        "step_time_growth": min(times[MANY]) / min(times[FEW]),
        "memory_growth": memory[MANY] / memory[FEW] - 1,
    }


def seeds(counts: tuple[int, ...], steps: int = 300, turns: int = 3) -> dict[str, dict[int, Results]]:
    """Seconds per environment step and seed: of processor time, and of waiting where processes use several cores."""
    described = {"library": "ours", "task": TASK, "method": "vanilla", "config": SMALL}
    result: dict[str, dict[int, Results]] = {"vmap": {}, "map": {}, "processes": {}}
    for count in counts:
        for how in ("vmap", "map"):
            with Worker(core=one_core(), seeds=count, how=how, **described) as worker:
                worker.wait_until_ready()
                answers = [worker.ask(steps=steps) for _ in range(turns)]
            each = 1 / (steps * count)
            result[how][count] = {kind: min(a[kind] for a in answers) * each for kind in ("cpu_s", "wall_s")}
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        started = [
            stack.enter_context(Worker(core=cores[number % len(cores)], **described)) for number in range(max(counts))
        ]
        workers = [worker.wait_until_ready() for worker in started]
        for count in counts:
            result["processes"][count] = _together(workers[:count], steps, turns)
    return result


def _together(workers: list[Worker], steps: int, turns: int) -> Results:
    found = []
    for _ in range(turns):
        for worker in workers:
            worker.send(steps=steps)
        answers = [worker.answer() for worker in workers]
        each = 1 / (steps * len(workers))
        found.append((sum(a["cpu_s"] for a in answers) * each, max(a["wall_s"] for a in answers) * each))
    return {"cpu_s": min(cpu for cpu, _ in found), "wall_s": min(wall for _, wall in found)}


def show(results: Results) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{MANY:,} stored transitions instead of {FEW:,}: {results['step_time_growth']:.2f} × the time per step, "
        f"{100 * results['memory_growth']:+.1f} % memory"
    )
    table = Table(title="milliseconds per step and seed (waiting)", title_justify="left", box=None, header_style="bold")
    table.add_column("seeds", justify="right")
    for how in results["seeds"]:
        table.add_column(how, justify="right")
    for count in results["seeds"]["map"]:
        table.add_row(str(count), *(f"{1e3 * rows[count]['wall_s']:.2f}" for rows in results["seeds"].values()))
    console.print(table)
