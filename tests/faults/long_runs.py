"""What must stay as it is over long runs: replay, fingerprint, memory, handles, programs, and what saving costs."""

from __future__ import annotations

import gc
import itertools
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from counting import Outcome, Tier, count, problem_of, require
from test_run import GRID, POINT, TINY, point_task
from test_segments import GAMMA, bits, episodes, part, template_of

from symbreak.agents.agent import Transition
from symbreak.storage.arrays import as_bytes
from symbreak.storage.replay import Replay
from symbreak.storage.segment_writer import SegmentWriter
from symbreak.storage.segments import restore_replay
from symbreak.training.inspection import fingerprint
from symbreak.training.run import Run, RunConfig

# --- the replay against a list ----------------------------------------------------------------------------------------

CAPACITIES = (1, 2, 3, 7, 12)
insert = jax.jit(Replay.insert)


def like_a_list(capacity: int, number: int, length: float, seed: int, directory: Path) -> None:
    """Ring, and ring through the files, hold what a list holds whose oldest entry goes when it is full."""
    columns = episodes(number, seed, length=length)
    ring = Replay.empty(capacity, Transition(**{name: jnp.asarray(column[0]) for name, column in columns.items()}))
    kept: list[tuple[int, dict[str, np.ndarray]]] = []
    directory.mkdir()
    writer, sealed = SegmentWriter(directory, capacity, GAMMA), 0
    rng = random.Random(seed)
    for n in range(number):
        row = {name: column[n] for name, column in columns.items()}
        ring = insert(ring, Transition(**row))
        kept = [*kept, (n, row)][-capacity:]
        if rng.random() < 0.2:
            writer.append(**part(columns, sealed, n + 1))
            sealed = n + 1
            writer = SegmentWriter(directory, capacity, GAMMA, writer.seal())
    for n, row in kept:
        for name, value in row.items():
            stored = np.asarray(getattr(ring.data, name)[n % capacity])
            require(bytes(as_bytes(stored)) == bytes(as_bytes(np.asarray(value))), f"{name} of transition {n}")
    require(int(ring.inserted) == number, "the number of transitions")
    writer.append(**part(columns, sealed, number))
    require(bits(restore_replay(directory, writer.seal(), template_of(ring))) == bits(ring), "through the files")
    drawn = ring.sample(jax.random.key(seed), 16).reward
    require(np.isin(np.asarray(drawn), [row["reward"] for _, row in kept]).all(), "something else was drawn")


def replay(tier: Tier, scratch: Path) -> Outcome:
    """Episodes of one step and episodes longer than the ring, a ring of one, rings that wrap at an episode's end."""
    rng = random.Random(0)
    cases = [
        (rng.choice(CAPACITIES), rng.randint(1, 30), rng.choice((1.0, 3.0, 7.0, 50.0)), seed)
        for seed in range(1_000 if tier == "full" else 25)
    ]
    return count(problem_of(lambda c=case: like_a_list(*c, scratch / str(c[3])), str(case)) for case in cases)


# --- looking leaves no trace ------------------------------------------------------------------------------------------


def frequencies(tier: Tier, scratch: Path) -> Outcome:
    """Eight combinations of how often a run is evaluated, saved and logged: one fingerprint."""
    combinations = list(itertools.product((1, 3), (333, 9_999), (None, 70)))
    partial = {"gate": {"width": 8, "predictor_width": 8, "warmup": 250}, "method": "partial", "task": "grid-20"}
    base = replace(GRID, agent={**TINY, "route": False}, **partial) if tier == "full" else replace(POINT, steps=250)
    found = []
    for number, (evaluations, every, log) in enumerate(combinations if tier == "full" else combinations[::3]):
        config = replace(base, evaluations=evaluations, checkpoint_every=every, log_every=log)
        task = None if tier == "full" else point_task()
        with Run.create(config, scratch / str(number), task=task) as run:
            run.driver.write_maps = lambda directory: None
            run.advance()
        found.append(fingerprint(scratch / str(number)))
    return count(None if other == found[0] else f"combination {n} differs" for n, other in enumerate(found))


# --- flat -------------------------------------------------------------------------------------------------------------

compiled: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
)


def resident() -> float:
    """Megabytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def stays_flat(config: RunConfig, steps: int, directory: Path) -> tuple[float, int, int]:
    """Growth of memory in percent, and of open files and compiled programs in numbers, after a quarter of the run."""
    changes = {
        "steps": steps,
        "evaluations": 20,
        "episodes": 2,
        "checkpoint_every": steps // 20,
        "log_every": steps // 40,
    }
    with Run.create(
        replace(config, **changes), directory, task=point_task() if config.task == "point" else None
    ) as run:
        run.driver.write_maps = lambda directory: None
        run.advance(steps // 4)
        gc.collect()  # what earlier runs left open
        before = resident(), len(os.listdir("/proc/self/fd")), len(compiled)
        run.advance(steps - 1)
        after = resident(), len(os.listdir("/proc/self/fd")), len(compiled)
    return 100 * (after[0] / before[0] - 1), after[1] - before[1], after[2] - before[2]


def flat(tier: Tier, scratch: Path) -> Outcome:
    steps = 200_000 if tier == "full" else 2_000
    problems, notes = [], []
    for config in (GRID, POINT):
        memory, files, programs = stays_flat(config, steps, scratch / config.task)
        notes.append(f"{config.task}: memory {memory:+.1f} %, {files:+d} files, {programs:+d} programs")
        # A few thousand steps are too few to tell growth from a buffer that was filled for the first time.
        problems.append(None if memory <= 5 or tier == "small" else f"memory grew by {memory:.1f} % on {config.task}")
        problems.append(None if files <= 0 else f"{files} more open files on {config.task}")
        problems.append(None if programs == 0 else f"{programs} programs were compiled after the warm-up")
    return count(problems, "; ".join(notes))


# --- what saving costs ------------------------------------------------------------------------------------------------


def cost(tier: Tier, scratch: Path) -> Outcome:
    """On Ant with networks of full size: the time of a save after 10,000 steps against the time these steps take.

    The steps before the first update are cheap and not counted: the speed is that of steps that learn.
    """
    every, timed = (10_000, 100) if tier == "full" else (400, 5)
    method = "partial" if tier == "full" else "vanilla"
    small = {} if tier == "full" else {"width": 16, "batch": 16}
    settings = {"learning_starts": every, "capacity": 100_000, "route": False, **small}
    config = RunConfig("ant", method, steps=2 * every, evaluations=1, checkpoint_every=10 * every, agent=settings)
    with Run.create(config, scratch / "run") as run:
        run.advance(every)
        run.save()  # compiles what saving needs, and brings the first transitions to the disk
        written = {path.name for path in (scratch / "run" / "replay").iterdir()}
        per_transition = _size(scratch / "run" / "replay") / every
        raw = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(run.driver.save()[0]))
        ratio = _size(scratch / "run" / "checkpoints") / raw
        run.advance(every + 10)
        begun = time.perf_counter()
        run.advance(every + 10 + timed)
        jax.block_until_ready(jax.tree.leaves(run.driver.agent_state))
        step = (time.perf_counter() - begun) / timed
        # As many transitions again as a checkpoint brings to the disk: the writer begins anew.
        run._segments = None
        for name in written:
            (scratch / "run" / "replay" / name).unlink()
        run._follow(())
        begun = time.perf_counter()
        run.save()
        saving = time.perf_counter() - begun
        run._leave(None)
    share = 100 * saving / (every * step)
    note = (
        f"a save of {saving * 1e3:.0f} ms every {every} steps of {step * 1e3:.1f} ms is {share:.2f} %; "
        f"{per_transition:.0f} bytes per transition; a checkpoint is {ratio:.3f} of the raw state"
    )
    return count(
        [
            None if share <= 2 or tier == "small" else f"saving takes {share:.2f} % of the time",
            None if per_transition <= 160 else f"{per_transition:.0f} bytes per transition",
            # Beside networks of a few kilobytes the names of their arrays weigh something.
            None if ratio <= 1.1 or tier == "small" else f"a checkpoint is {ratio:.2f} of the raw state",
        ],
        note,
    )


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
