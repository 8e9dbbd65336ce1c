"""`symbreak theory`: what breaking costs, computed on a grid-world's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symbreak.commands.arguments import TaskName


def theory(
    task: TaskName = "grid-20",
    gamma: float = 0.99,
    layouts: int = 1,
    out: Path | None = None,
    run: Path | None = None,
    json: bool = False,
) -> int:
    """What breaking costs on a grid-world: bounds, ceilings of the methods, the error-propagation figure.

    The numbers are given for 0, 10, 20, 30 and 40 obstacles of the same kind as the task, and for the task itself.

    Args:
        task: A grid-world.
        gamma: Discount factor.
        layouts: Means over so many floors; the first is the task's own.
        out: Also write the table and the figure into this directory.
        run: Draw the greedy moves of this run's agent instead of the optimal policy of the group average, in the world
            that it was trained in: the task with its own slip. Without a run the figure always has slip.
        json: Print JSON, one object per number of obstacles.
    """
    import json as json_module

    from symbreak.errors import InputError
    from symbreak.tasks import get_task
    from symbreak.theory import as_table, mean_of, summarise
    from symbreak.theory.figure import draw_propagation

    chosen = get_task(task)
    if chosen.jax_env is None:
        raise InputError(f"theory needs a grid-world, {task} is none; try grid-20")
    if run is not None and out is None:
        raise InputError(f"the moves of {run} are drawn into the figure; also say where to: --out DIR")
    if layouts < 1:
        raise InputError(f"{layouts} layouts cannot be computed; use 1 or more")
    world = chosen.jax_env()
    policy, policy_name = (None, "invariant policy") if run is None else _greedy_moves(run, world)
    counts = sorted({0, 10, 20, 30, 40, world.obstacles})
    first = world.layout_seed
    variant = task.partition("-")[2].partition("-")[2]
    names = [f"grid-{count}" + (f"-{variant}" if variant else "") for count in counts]
    rows = [
        mean_of(
            [
                summarise(chosen.jax_env(obstacles=count, layout_seed=floor).tabular(), gamma, layout=name)
                for floor in range(first, first + (layouts if count else 1))  # there is one empty floor
            ]
        )
        for count, name in zip(counts, names, strict=True)
    ]
    text = json_module.dumps(rows, indent=1)
    print(text if json else as_table(rows))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "theory.json").write_text(text + "\n")
        drawn = world if run is not None else chosen.jax_env(slip=world.slip or 0.35)
        shown = draw_propagation(
            drawn.tabular(),
            world.floor().blocked,
            out / "error-propagation.png",
            policy=policy,
            gamma=gamma,
            policy_name=policy_name,
        )
        if not json:
            moves = int(shown.live.sum())
            print(f"{int(shown.suboptimal.sum())} of the {moves} moves drawn are not optimal")
            print(f"written: {out / 'theory.json'}, {out / 'error-propagation.png'}")
    return 0


def _greedy_moves(run: Path, world: Any) -> tuple[Any, str]:
    """A trained agent's action in every state, from the map that its run wrote, and what to call the agent."""
    from symbreak.errors import InputError
    from symbreak.tasks import get_task
    from symbreak.training.grid_record import read_grid_record
    from symbreak.training.record import read_config

    config = read_config(run)
    task = get_task(config.task)
    if task.jax_env is None or task.jax_env() != world:
        raise InputError(f"the run in {run} was trained on {task.name}; name that task: symbreak theory {task.name}")
    return read_grid_record(run / "grid.json").greedy.astype(int).ravel(), f"{config.method} agent"
