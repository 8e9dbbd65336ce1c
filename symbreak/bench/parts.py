"""Where the time of a gated update goes: what it costs as one part after the other is put in.

Every stage is a whole update of SAC on the same batch, relative to a plain one. All take turns on one core. Below them
stands what the matrix products alone would take: a stage cannot fall below its own.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from symbreak.bench.timing import interleaved, jax_is_imported, pin_one_core
from symbreak.errors import InputError

TASKS = ("ant", "hopper")
RATE = 0.15
STAGES = {
    "plain": "plain SAC",
    "exact": "equivariant experts alone",
    "idle": "+ free experts to whom nothing is routed",
    "asked": "+ the gates' answers",
    "routed": f"+ {RATE:.0%} routed to the free experts",
    "trained": "+ training of predictors and gates",
}
PRODUCTS = {"plain_products": "plain SAC's products alone", "exact_products": "equivariant experts' products alone"}
Results = dict[str, dict[str, float]]


def bench_parts(json: bool = False, quick: bool = False) -> dict[str, Results]:
    """Measure, print and return, per task and stage, the cost relative to a plain update."""
    if jax_is_imported():
        raise InputError("bench parts must pin its core before JAX is imported; run it as a command of its own")
    pin_one_core()
    results = {"parts": {task: measure(task, 4 if quick else 20) for task in (TASKS[:1] if quick else TASKS)}}
    print(json_module.dumps(results)) if json else show(results["parts"])
    return results


def measure(task: str, repeats: int) -> dict[str, float]:
    """Cost of every stage, and of products alone, in units of a plain update."""
    import jax
    import jax.numpy as jnp

    from symbreak.bench.ours import Hosted, make_ours, with_rate
    from symbreak.bench.products import gemm_share
    from symbreak.bench.worker import WARM_UP

    agents: dict[str, tuple[Any, Any]] = {}
    batch: Any = None
    for method in ("vanilla", "exact", "partial"):
        contender = make_ours({"task": task, "method": method}, WARM_UP)
        assert isinstance(contender, Hosted)
        contender.run(2 * WARM_UP)
        state = contender.loop.state
        agents[method] = contender.loop.agent, state.agent
        batch = state.replay.sample(jax.random.key(0), contender.loop.agent.config.batch)
        contender.loop.close()
    gated, state = agents["partial"]
    every = gated.gate.learned.config.gate_every
    idle = replace(gated, gate=replace(gated.gate, asks=False, trains=False))
    asked = replace(gated, gate=replace(gated.gate, trains=False))
    routed = with_rate(state, RATE)
    calls = {
        "plain": _update(*agents["vanilla"], batch, 1),
        "exact": _update(*agents["exact"], batch, 1),
        "idle": _update(idle, with_rate(state, 0.0), batch, 1),
        "asked": _update(asked, with_rate(state, 0.0), batch, 1),
        "routed": _update(asked, routed, batch, 1),
        "due": _update(gated, routed, batch, 1_000 * every),
        "not due": _update(gated, routed, batch, 1_000 * every + 1),
    }
    seconds = interleaved(calls, repeats, inner=10)
    seconds["trained"] = (seconds.pop("due") + (every - 1) * seconds.pop("not due")) / every
    for name, method in (("plain", "vanilla"), ("exact", "exact")):
        agent, first = agents[method]
        whole = gemm_share(lambda s, b, a=agent: _one(a, s, b, jnp.int32(1)), first, batch, repeats)
        seconds[f"{name}_products"] = seconds[name] * whole["gemm_share"]
    return {name: value / seconds["plain"] for name, value in seconds.items()}


def _one(agent: Any, state: Any, batch: Any, step: Any) -> tuple[Any, Any]:
    import jax

    return agent.update(state, lambda _: batch, step, jax.random.key(1))


def _update(agent: Any, state: Any, batch: Any, step: int) -> Callable[[], object]:
    """One update after the other, each on what the one before left, in place."""
    import jax
    import jax.numpy as jnp

    run = jax.jit(lambda s, b, n: _one(agent, s, b, n)[0], donate_argnums=0)
    latest, number = [jax.tree.map(jnp.copy, state)], jnp.int32(step)

    def once() -> object:
        latest[0] = run(latest[0], batch, number)
        return latest[0].temperature.model.logarithm

    return once


def show(results: Results) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("one update")
    for task in results:
        table.add_column(f"cost, {task}", justify="right")
    for name, words in (STAGES | PRODUCTS).items():
        table.add_row(words, *(f"{row[name]:.2f}" for row in results.values()))
    Console().print(table)
