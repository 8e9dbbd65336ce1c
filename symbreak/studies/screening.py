"""Which gate finds what is broken soonest? Gates alone, on stored transitions of a random policy.

Nothing acts and no value is learned, so a variant costs a minute instead of a training. Transitions are revealed as a
run would collect them; every `report` steps the gate is scored against the truth: the area under its ROC curve, and
its mean where it should be 1 and where it should be 0, which the choice of a threshold decides.

On robots nobody knows which pairs are broken. There it is told on how many of them the gate opens: almost none under an
exact symmetry, many under a wrong one. `grid-20:quadrant` shows the gates one quarter of a grid only, where no pair has
a seen image.

    python -m symbreak.studies.screening grid-20 grid-40 patch ant:paper ant:exact --out results/screening.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbreak.agents.agent import Transition
from symbreak.agents.methods import get_method
from symbreak.errors import InputError
from symbreak.gates.learned import LearnedGate
from symbreak.nn.keys import Key, named_key
from symbreak.studies.random_policy import random_episodes, random_quadrant, random_transitions
from symbreak.studies.variants import CONTINUOUS_VARIANTS, GRID_VARIANTS, ROBOT_VARIANTS, Variant
from symbreak.symmetry.layout import Symmetry
from symbreak.tasks.diagnostic import diagnostic_task, in_patch
from symbreak.tasks.task import Task
from symbreak.training.build import make_gate
from symbreak.training.quality import GateJudge, auroc
from symbreak.training.truth import StateIndex, oracle_table

LEARNING_STARTS = 1_000


@dataclass(frozen=True)
class Result:
    task: str
    variant: str
    report: int  # steps between two scores
    scores: list[float]  # AUROC
    on_broken: float  # mean gate at the end
    on_symmetric: float
    seconds: float  # of computing


@dataclass(frozen=True)
class Opening:
    """Of a gate on a robot."""

    task: str  # and its symmetry
    variant: str
    report: int
    opened: list[float]  # mean gate
    seconds: float


Score = Callable[[LearnedGate, Any], tuple[float, float, float]]  # AUROC, mean gate on broken and on symmetric pairs


def screen_grid(
    task: Task,
    variants: Sequence[Variant] = GRID_VARIANTS,
    *,
    steps: int = 15_000,
    warmup: int = 5_000,
    report: int = 2_500,
    seed: int = 0,
    quadrant: bool = False,
) -> Iterator[Result]:
    """Variants on a grid-world, against its minority oracle; of one quadrant, on the pairs that were seen there."""
    world = task.jax_env() if task.jax_env is not None else None
    if world is None:
        raise InputError(f"{task.name} is no grid-world; screen a planted patch instead")
    collect = random_quadrant if quadrant else random_transitions
    data = collect(world, task.discount, steps, jax.random.key(seed))
    score = grid_score(world, task.symmetry())
    if quadrant:
        place = np.asarray(StateIndex(world)(data.observation))
        score = pair_score(
            data, oracle_table(world, task.symmetry(), "oracle-minority")[place, np.asarray(data.action)] > 0.5
        )
    yield from _screened(task, variants, data, score, steps, warmup, report, seed)


def screen_patch(
    variants: Sequence[Variant] = CONTINUOUS_VARIANTS,
    *,
    steps: int = 15_000,
    warmup: int = 5_000,
    report: int = 2_500,
    seed: int = 0,
) -> Iterator[Result]:
    """Variants on a continuous environment whose symmetry is broken in a known place."""
    task = diagnostic_task("patch", continuous=True)
    data = random_episodes(task.make(None), task.discount, steps, seed)
    x, y = np.asarray(data.observation).T
    broken = in_patch(x, y) | in_patch(-x, y)
    yield from _screened(task, variants, data, pair_score(data, broken), steps, warmup, report, seed)


def screen_robot(
    task: Task,
    symmetry: str,
    variants: Sequence[Variant] = ROBOT_VARIANTS,
    *,
    steps: int = 15_000,
    warmup: int = 5_000,
    report: int = 2_500,
    seed: int = 0,
) -> Iterator[Opening]:
    """On how many of its pairs the gate opens, for each variant."""
    data = random_episodes(task.make(symmetry), task.discount, steps, seed)

    def score(gate: LearnedGate, state: Any) -> tuple[float]:
        return (float(jnp.mean(jax.vmap(lambda s, a: gate.of_pair(state, s, a))(data.observation, data.action))),)

    for variant in variants:
        gate = _gate(task, symmetry, variant, steps, warmup)
        started = time.process_time()
        opened = [mean for (mean,) in screen(gate, data, score, report, seed)]
        yield Opening(f"{task.name}:{symmetry}", variant.name, report, opened, time.process_time() - started)


def _screened(
    task: Task,
    variants: Sequence[Variant],
    data: Transition,
    score: Score,
    steps: int,
    warmup: int,
    report: int,
    seed: int,
) -> Iterator[Result]:
    for variant in variants:
        gate = _gate(task, None, variant, steps, warmup)
        started = time.process_time()
        scores = screen(gate, data, score, report, seed)
        rows, broken, symmetric = zip(*scores, strict=True)
        seconds = time.process_time() - started
        yield Result(task.name, variant.name, report, list(rows), broken[-1], symmetric[-1], seconds)


def _gate(task: Task, symmetry: str | None, variant: Variant, steps: int, warmup: int) -> LearnedGate:
    """The variant's gate. Nothing acts, so no state is gated."""
    changes = {"warmup": warmup, **({} if task.algorithm == "dqn" else {"state_gate": "none"}), **variant.changes}
    gate = make_gate(get_method("partial"), task, symmetry, "default", steps, changes)
    assert isinstance(gate, LearnedGate)
    return gate


def screen(
    gate: LearnedGate,
    data: Transition,
    score: Callable[[LearnedGate, Any], tuple[float, ...]],
    report: int,
    seed: int = 0,
) -> list[tuple[float, ...]]:
    """The gate's score after every `report` steps of seeing `data` arrive."""
    key = jax.random.key(seed)
    state = gate.init(named_key(key, "gate"))
    scores = []
    for start in range(0, len(data.reward) - report + 1, report):
        state = _advance(gate, state, data, jnp.arange(start, start + report), key)
        scores.append(score(gate, state))
    return scores


@partial(jax.jit, static_argnums=0)
def _advance(gate: LearnedGate, state: Any, data: Transition, steps: Array, key: Key) -> Any:
    arrays, rest = eqx.partition(state, eqx.is_array)

    def one(arrays: Any, step: Array) -> tuple[Any, None]:
        step_key = jax.random.fold_in(key, step)

        def sample(sample_key: Key) -> Transition:
            rows = jax.random.randint(sample_key, (256,), 0, step + 1)
            return jax.tree.map(lambda column: column[rows], data)

        def learn(arrays: Any) -> Any:
            batch = sample(named_key(step_key, "batch"))
            updated, _ = gate.update(eqx.combine(arrays, rest), sample, batch, step + 1, step_key, None)
            return eqx.filter(updated, eqx.is_array)

        return jax.lax.cond(step + 1 >= LEARNING_STARTS, learn, lambda a: a, arrays), None

    return eqx.combine(jax.lax.scan(one, arrays, steps)[0], rest)


def grid_score(world: Any, symmetry: Symmetry) -> Score:
    """Against the minority oracle; symmetric are pairs whose whole orbit behaves alike."""
    judge = GateJudge(world, symmetry)
    names = ("gate/auroc_minority", "gate/mean_minority", "gate/mean_symmetric")

    def score(gate: LearnedGate, state: Any) -> tuple[float, float, float]:
        found = judge.judge(gate, state)
        auroc, broken, symmetric = (found[name] for name in names)
        return auroc, broken, symmetric

    return score


def pair_score(data: Transition, broken: np.ndarray) -> Score:
    """Over the stored pairs themselves."""

    def score(gate: LearnedGate, state: Any) -> tuple[float, float, float]:
        asked = jax.vmap(lambda s, a: gate.of_pair(state, s, a))(data.observation, data.action)
        probability = np.asarray(asked, np.float64)
        return auroc(probability, broken), float(probability[broken].mean()), float(probability[~broken].mean())

    return score


def main(arguments: list[str] | None = None) -> None:
    """One line per variant, on the terminal and in the file; variants that stand in the file are not screened again."""
    from symbreak.process.cores import use_one_core
    from symbreak.tasks import get_task

    parser = argparse.ArgumentParser(description="Screen variants of the gate on stored transitions.")
    parser.add_argument(
        "tasks", nargs="+", metavar="TASK", help="grid-worlds, grid-20:quadrant, patch, or a robot as ant:paper"
    )
    parser.add_argument("--out", type=Path, required=True, help="file of results, a JSON object per line")
    parser.add_argument("--only", nargs="+", default=[], metavar="VARIANT", help="names of variants")
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    use_one_core()
    lines = chosen.out.read_text().splitlines() if chosen.out.exists() else []
    known = {(found["task"], found["variant"], found["seed"], found["report"]) for found in map(json.loads, lines)}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen.tasks:
        task, _, symmetry = name.partition(":")
        on_grid = task.startswith("grid")
        variants = CONTINUOUS_VARIANTS if name == "patch" else GRID_VARIANTS if on_grid else ROBOT_VARIANTS
        left = [
            variant
            for variant in variants
            if variant.name in (chosen.only or [variant.name])
            and (name, variant.name, chosen.seed, chosen.steps // 6) not in known
        ]
        sizes = {"steps": chosen.steps, "warmup": chosen.steps // 3, "report": chosen.steps // 6, "seed": chosen.seed}
        screened: Iterator[Result | Opening]
        if name == "patch":
            screened = screen_patch(left, **sizes)
        elif on_grid:
            screened = screen_grid(get_task(task), left, **sizes, quadrant=symmetry == "quadrant")
        else:
            screened = screen_robot(get_task(task), symmetry, left, **sizes)
        for result in screened:
            row = asdict(result) | {"task": name, "seed": chosen.seed}
            row = json.loads(json.dumps(row), parse_float=lambda text: round(float(text), 4))
            with chosen.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name:15} {result.variant:30} {_told(result)} ({result.seconds:.0f} s)", flush=True)


def _told(result: Result | Opening) -> str:
    if isinstance(result, Opening):
        return f"gate {result.opened[-1]:.4f}"
    gates = f"gate {result.on_broken:.2f} where broken, {result.on_symmetric:.3f} elsewhere"
    return f"AUROC {result.scores[-1]:.3f}, {gates}"


if __name__ == "__main__":
    main()
