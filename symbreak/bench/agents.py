"""What training costs: all methods against each other, against SB3 and SBX, and against bare matrix products.

Every contender is a process of its own on the same core; they take turns, and the fastest turn of each counts. On
Hopper and Ant the default symmetry of the task is used. How often gated agents use their free expert is imposed.
"""

from __future__ import annotations

import json as json_module
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from symbreak.agents.methods import PAPER_METHODS
from symbreak.bench.peers import MISSING, installed
from symbreak.bench.processes import Worker, one_core

TASKS = ("hopper", "ant", "grid-20")
RATES = (0.05, 0.15, 0.5)
USUAL = 0.15  # the rate at which targets are stated
PEERS = ("sb3", "sbx")
STEPS = {"hopper": 40, "ant": 40, "grid-20": 200}  # per turn; a multiple of what gates count in
Results = dict[str, Any]


def bench_agents(json: bool = False, quick: bool = False) -> Results:
    """Measure, print and return; `quick` makes a fifth of the turns and leaves the other baselines' methods out."""
    peers = PEERS if installed() else ()
    if not peers:
        print(MISSING, file=sys.stderr)
    methods = ("vanilla", "exact", "partial") if quick else PAPER_METHODS
    details = {task: measure(task, methods, peers, turns=4 if quick else 16) for task in TASKS}
    results = {**summary(details), "tasks": details}
    if json:
        print(json_module.dumps(results))
    else:
        show(results)
    return results


def measure(task: str, methods: tuple[str, ...], peers: tuple[str, ...], turns: int) -> dict[str, Results]:
    """Per contender: seconds and steps per second, first update cold and warm, peak memory."""
    rows: dict[str, Results] = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        cache, core = Path(directory), one_core()
        workers: dict[str, Worker] = {}
        for name in (*methods, *peers):
            described = {"library": name} if name in peers else {"library": "ours", "method": name}
            described |= {"task": task, "core": core}
            workers[name] = stack.enter_context(Worker(cache=cache, **described)).wait_until_ready()
            rows[name] = {"first_update_cold_s": workers[name].first["wall_s"]}
            if name in ("vanilla", "partial"):
                with Worker(cache=cache, **described) as again:
                    rows[name]["first_update_warm_s"] = again.wait_until_ready().first["wall_s"]
        for name, seconds in _take_turns(workers, STEPS[task], turns).items():
            rows.setdefault(name, {})["step_s"] = seconds
            rows[name]["steps_per_s"] = 1 / seconds
        for name, worker in workers.items():
            rows[name]["peak_memory_mb"] = worker.ask()["peak"] / 1e6
        share = workers["vanilla"].ask(share=True)
        rows["vanilla"] |= {name: share[name] for name in ("update_s", "products_s", "gemm_share")}
    rows["partial"] |= {**rows[_at(USUAL)]}
    for row in rows.values():
        row["cost"] = row["step_s"] / rows["vanilla"]["step_s"]
    return rows


def _at(rate: float) -> str:
    return f"partial at {rate:g}"


def _take_turns(workers: dict[str, Worker], steps: int, turns: int) -> dict[str, float]:
    """Seconds per step of each, in its fastest turn; a gated agent once per imposed rate."""
    times: dict[str, list[float]] = {}
    for _ in range(turns):
        for name, worker in workers.items():
            for rate in RATES if name == "partial" else (None,):
                request = {} if rate is None else {"rate": rate}
                turn = worker.ask(steps=steps, **request)
                times.setdefault(name if rate is None else _at(rate), []).append(turn["cpu_s"] / steps)
    return {name: min(values) for name, values in times.items()}


def summary(details: dict[str, dict[str, Results]]) -> Results:
    """The ratios that are promised; those against SB3 and SBX only where these are installed."""

    def speed(task: str, ours: str, theirs: str) -> float:
        return details[task][ours]["steps_per_s"] / details[task][theirs]["steps_per_s"]

    robots = ("hopper", "ant")
    result: Results = {"gemm_share": details["ant"]["vanilla"]["gemm_share"]}
    for peer in PEERS:
        if peer in details["ant"]:
            result[f"vanilla_sac_vs_{peer}"] = {task: speed(task, "vanilla", peer) for task in robots}
            result[f"pe_sac_vs_{peer}"] = {task: speed(task, _at(USUAL), peer) for task in robots}
            result[f"vanilla_dqn_vs_{peer}"] = speed("grid-20", "vanilla", peer)
    result["pe_sac_cost"] = {task: details[task][_at(USUAL)]["cost"] for task in robots}
    result["pe_sac_cost_at"] = {task: {rate: details[task][_at(rate)]["cost"] for rate in RATES} for task in robots}
    result["pe_dqn_cost"] = details["grid-20"][_at(USUAL)]["cost"]
    result["pe_dqn_cost_at"] = {rate: details["grid-20"][_at(rate)]["cost"] for rate in RATES}
    first = [details[task]["partial"] for task in details]
    for kind in ("cold", "warm"):  # of the slowest to start
        result[f"first_update_{kind}_s"] = max(row[f"first_update_{kind}_s"] for row in first)
    return result


def show(results: Results) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 140)
    for task, rows in results["tasks"].items():
        table = Table(title=task, title_justify="left", box=None, header_style="bold")
        columns = {
            "steps/s": ("steps_per_s", ".0f"),
            "cost": ("cost", ".2f"),
            "first update cold, s": ("first_update_cold_s", ".1f"),
            "warm, s": ("first_update_warm_s", ".1f"),
            "memory, MB": ("peak_memory_mb", ".0f"),
        }
        table.add_column("agent")
        for title in columns:
            table.add_column(title, justify="right")
        for name, row in rows.items():
            if name != "partial":
                cells = (format(row[key], form) if key in row else "" for key, form in columns.values())
                table.add_row(name, *cells)
        console.print(table)
    console.print({key: value for key, value in results.items() if key != "tasks"})
