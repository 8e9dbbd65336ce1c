"""Damaged files are noticed and passed over; files made by an enemy are refused."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import test_checkpoint
import test_hostile_files
from counting import Outcome, Tier, count, fails, problem_of, require
from test_run import POINT, finish, point_task

from symbreak.errors import StorageFault
from symbreak.storage.arrays import fingerprint as fingerprint_of_arrays
from symbreak.storage.checkpoint import Checkpoints
from symbreak.training.inspection import fingerprint, verify
from symbreak.training.run import Run


def contents(directory: Path) -> dict[int, str]:
    """What each good checkpoint of a run holds."""
    store, found = Checkpoints(directory / "checkpoints", directory / "replay"), {}
    for path in sorted((directory / "checkpoints").glob("step-*"), reverse=True):
        loaded = store.load(None)
        assert loaded is not None
        found[loaded.step] = fingerprint_of_arrays(loaded.trees)
        shutil.rmtree(path)
    return found


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def fill_with_zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def is_noticed(run: Path, path: Path, known: dict[int, str]) -> None:
    """Damage to one file: said by `verify`, and what is loaded is an undamaged checkpoint, or nothing at all."""
    before = test_checkpoint.tree_of(run)
    verdict = verify(run)
    store = Checkpoints(run / "checkpoints", run / "replay")
    if path.name == "metrics.jsonl":
        require(verdict.metrics is not None, "verify finds nothing wrong with metrics.jsonl")
        try:
            fingerprint(run)
        except StorageFault:
            return
        raise AssertionError("a fingerprint of damaged metrics was given")
    require(verdict.good < len(known), "verify calls every checkpoint good")
    try:
        loaded = store.load(None)
    except StorageFault as fault:
        require(verdict.good == 0, f"a good checkpoint was not used: {fault}")
        require(test_checkpoint.tree_of(run) == before, "something was overwritten")
        return
    assert loaded is not None
    require(known[loaded.step] == fingerprint_of_arrays(loaded.trees), "wrong content was loaded silently")
    hit = path.parent.name if path.parent.name.startswith("step-") else None
    require(hit is None or f"step-{loaded.step:012d}" != hit, "the damaged checkpoint was loaded")


def damaged(tier: Tier, scratch: Path) -> Outcome:
    whole = scratch / "whole"
    finish(POINT, whole)
    shutil.copytree(whole, scratch / "opened")
    known = contents(scratch / "opened")
    require(len(known) == 3, "three checkpoints are kept")
    files = [path for part in ("checkpoints", "replay") for path in sorted((whole / part).rglob("*")) if path.is_file()]
    files.append(whole / "metrics.jsonl")
    rng, problems = random.Random(0), []
    flips = [(flip, rng.choice(files)) for _ in range(200 if tier == "full" else 25)]
    others = [(kind, path) for kind in (truncate, fill_with_zeros, remove) for path in files]
    for kind, path in [*flips, *(others if tier == "full" else others[::5])]:
        run = scratch / "damaged"
        shutil.copytree(whole, run)
        place = run / path.relative_to(whole)
        kind(place, rng)
        problems.append(
            problem_of(lambda run=run, place=place: is_noticed(run, place, known), f"{kind.__name__} {path}")
        )
        shutil.rmtree(run)
    problems += [problem_of(lambda k=kind: _goes_on_as_before(whole, scratch, k, rng), kind.__name__) for kind in
                 ((flip,) if tier == "small" else (flip, truncate, fill_with_zeros, remove))]  # fmt: skip
    problems.append(problem_of(lambda: _all_bad(whole, scratch), "all damaged"))
    return count(problems, f"{len(flips)} bit flips")


def _goes_on_as_before(whole: Path, scratch: Path, damage: Callable, rng: random.Random) -> None:
    """A run whose newest checkpoint is damaged goes on from the one before, to the same end."""
    directory = scratch / f"goes-on-{damage.__name__}"
    run = Run.create(POINT, directory, task=point_task())
    run.advance(230)
    run.close()
    damage(directory / "checkpoints" / f"step-{230:012d}" / "arrays.safetensors", rng)
    with Run.open(directory, task=point_task()) as run:
        require(run.step == 200, f"went on from step {run.step}")
        run.advance()
    require(fingerprint(directory) == fingerprint(whole), "another end")


def _all_bad(whole: Path, scratch: Path) -> None:
    run = scratch / "bad"
    shutil.copytree(whole, run)
    (run / "status.json").unlink()
    for path in (run / "checkpoints").glob("*/arrays.safetensors"):
        path.write_bytes(bytes(path.stat().st_size))
    before = test_checkpoint.tree_of(run / "checkpoints"), (run / "metrics.jsonl").read_bytes()
    done = fails(lambda: Run.open(run, task=point_task()), StorageFault)
    require("no checkpoint" in done and "undamaged" in done, done)
    require(before == (test_checkpoint.tree_of(run / "checkpoints"), (run / "metrics.jsonl").read_bytes()), "changed")


def hostile(tier: Tier, scratch: Path) -> Outcome:
    names, refused = list(test_hostile_files.CORPUS), test_hostile_files.test_a_hostile_checkpoint_is_refused
    problems = []
    for number, name in enumerate(names if tier == "full" else names[::3]):
        place = scratch / str(number)
        place.mkdir()
        problems.append(problem_of(lambda place=place, name=name: refused(place, name), name))
    return count(problems)
