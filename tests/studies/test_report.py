"""The page about a set of runs: it says what is in the files, survives what may be in them, and works in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from symbreak.studies.report_grid import write_grid_record
from symbreak.tasks.gridworld import GridWorld
from symbreak.theory import PermutationAction, TabularMDP, minority_gate, strict_gate

LEVELS = {"partial": 0.72, "vanilla": 0.05, "augmented": 0.35, "exact": -0.12, "rpp": 0.3, "approximate": 0.2}


def write_run(directory: Path, *, task="grid-20", method="partial", seed=0, steps=100_000, state="finished", **config):
    """A run as `symbreak train` would leave it: a curve that rises to the method's level, and a gate that learns."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng([seed, len(task), len(method), sum(map(ord, method + task))])
    known = {"task": task, "symmetry": None, "method": method, "preset": "default", "steps": steps, "seed": seed}
    known |= {"evaluations": 20, "episodes": None, "agent": {}, "gate": {}}
    known |= {"versions": {"symbreak": "0.1.0", "jax": "0.10.2"}} | config
    (directory / "config.json").write_text(json.dumps(known))
    level = LEVELS.get(method, 0.4) - (0.3 if "40" in task else 0.0) + rng.normal(0, 0.06)
    rows = []
    for number in range(1, 21):
        step, share = steps * number // 20, number / 20
        value = -1.0 + (level + 1.0) / (1 + np.exp(-9 * (share - 0.4))) + rng.normal(0, 0.02)
        row = {"step": step, "eval/return": value, "eval/success": float(np.clip((value + 1) / 1.9, 0, 1))}
        row |= {"eval/length": 100 - 70 * (value + 1) / 2, "critic/value": 0.6 * share, "critic/loss": 0.02 / number}
        if method.startswith("partial"):
            row |= {"gate/rate": 0.5 if share < 0.15 else 0.06 + 0.3 * np.exp(-8 * share) + rng.normal(0, 0.004)}
            row |= {"gate/labels": 0.05, "gate/disagreement": 0.1, "gate/threshold": 0.45}
            row |= {"gate/auroc_minority": 1 - 0.5 * np.exp(-7 * share), "gate/auroc_strict": 0.9 - 0.4 * np.exp(-6 * share)}
        rows.append(row)
    if state != "finished":
        rows = rows[:9]
    status = {"state": state, "step": rows[-1]["step"]} | ({"reason": "NumericFault: …"} if state == "failed" else {})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "status.json").write_text(json.dumps(status))
    return directory


@lru_cache(maxsize=4)
def grid_arrays(world: GridWorld) -> dict[str, np.ndarray]:
    """The true oracles of a floor, a gate and a disagreement that nearly know them, and shortest ways to every goal."""
    tables, cells = world.tabular(), world.cells
    mdp, action = TabularMDP.from_tables(tables, 0.99), PermutationAction.from_tables(tables)
    truth = {"minority": minority_gate(mdp, action, tables.free), "strict": strict_gate(mdp, action, tables.free)}
    rng = np.random.default_rng(0)
    noise = rng.beta(1, 9, size=truth["strict"].shape)
    images = truth["strict"] & ~truth["minority"]
    gate = np.select([truth["minority"], images], [1 - noise, 2.5 * noise], 0.4 * noise).clip(0, 1)
    disagreement = np.select([truth["minority"], images], [0.75 - noise / 2, 0.25 - noise / 4], noise / 3).clip(0)
    distance = np.where(np.eye(cells, dtype=bool), 0, 10_000)
    following = world.transition_table().next_cell[..., 0]
    for _ in range(6 * world.size):
        distance = np.minimum(distance, 1 + distance[following].min(axis=1))
    greedy = distance[following].argmin(axis=1)
    wrong = rng.random(greedy.shape) < 0.01
    return {**truth, "gate": gate, "disagreement": disagreement, "greedy": np.where(wrong, (greedy + 2) % 4, greedy)}


def add_grid(directory: Path, world: GridWorld, gated: bool = True) -> None:
    arrays = grid_arrays(world)
    if not gated:
        arrays = {name: values for name, values in arrays.items() if name not in ("gate", "disagreement")}
    floor = world.floor()
    write_grid_record(directory, size=world.size, blocked=floor.blocked, penalty=floor.penalty, **arrays)


AUDIT = {
    "verdict": "locally broken",
    "fields": {"agent": {"error": 0.11, "share_broken": 0.094}, "goal": {"error": 0.0, "share_broken": 0.0}},
    "reward": {"error": 0.02, "share_broken": 0.01},
    "termination": {"error": 1.7, "share_broken": 0.01},
    "action_bounds_invariant": True,
    "reachable_share": 0.83,
    "suggestions": [],
}


def write_study(root: Path, *, seeds: int, tasks=("grid-20", "grid-40"), methods=tuple(LEVELS), size: int = 15) -> Path:
    for task in tasks:
        world = GridWorld(size=size, obstacles=int(task.split("-")[1]) * size**2 // 225, passable_penalty="40" in task)
        for method in methods:
            for seed in range(seeds):
                crashed = task == "grid-40" and method == "rpp" and seed == 1
                going = task == "grid-40" and method == "approximate" and seed == 2
                state = "failed" if crashed else "running" if going else "finished"
                run = write_run(root / f"{task}-{method}-{seed}", task=task, method=method, seed=seed, state=state)
                if seed == 0 and method in ("partial", "vanilla"):
                    add_grid(run, world, gated=method == "partial")
                if task == "grid-20" and method == "partial" and seed == 0:
                    (run / "audit.json").write_text(json.dumps(AUDIT))
    return root
