"""Signals to a run, and workers of a study that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

from counting import Outcome, Tier, count, problem_of, python, require
from test_resume import TINY, VANILLA, Case, hanging, start, wait_for

from symbreak.studies.launch import WORKER, Progress, arguments_of, run_local
from symbreak.studies.plans import Job
from symbreak.studies.records import record_directory, run_directory
from symbreak.training.inspection import fingerprint, verify
from symbreak.training.run import RunConfig

# --- signals ----------------------------------------------------------------------------------------------------------

ENDLESS = Case("", VANILLA.arguments, (), 10_000_000, TINY)


def stopped(number: signal.Signals, running: bool, delay: float, directory: Path) -> None:
    """One signal while it runs or still compiles: 75 within ten seconds, in one line, and nothing is damaged."""
    process = start(ENDLESS.command(directory))
    checkpoints = directory / "checkpoints"
    seen = (
        (lambda: checkpoints.is_dir() and any(checkpoints.iterdir())) if running else (directory / "config.json").exists
    )
    wait_for(seen, process)
    time.sleep(delay)
    sent = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    took = time.monotonic() - sent
    require(process.returncode == 75, f"exit code {process.returncode}: {said[-200:]}")
    require(took < 10, f"it took {took:.1f} s")
    require(said.startswith("error[interrupted]: stopped ") and len(said.splitlines()) == 1, said[-300:])
    require(f"symbreak resume {directory}" in said, said)
    verdict = verify(directory)
    require(verdict.good == len(verdict.checkpoints) and verdict.metrics is None, f"{verdict}")
    if "everything is saved" in said:
        status = json.loads((directory / "status.json").read_text())
        require(status["state"] == "interrupted" and verdict.checkpoints[-1].step == status["step"], f"{status}")


def stopped_at_once(directory: Path) -> None:
    process = hanging(ENDLESS.command(directory))
    process.send_signal(signal.SIGINT)
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    sent = time.monotonic()
    process.communicate(timeout=60)
    require(process.returncode == 75, f"exit code {process.returncode}")
    require(time.monotonic() - sent < 4, f"a second signal took {time.monotonic() - sent:.1f} s")


def signals(tier: Tier, scratch: Path) -> Outcome:
    rng = random.Random(0)
    numbers = [signal.SIGINT, signal.SIGTERM] * 10 if tier == "full" else [signal.SIGTERM]
    cases = [(number, n % 4 != 3, rng.uniform(0, 2)) for n, number in enumerate(numbers)]
    problems = [
        problem_of(lambda c=case, n=n: stopped(*c, scratch / str(n)), str(case)) for n, case in enumerate(cases)
    ]
    if tier == "full":
        for n in range(3):
            problems.append(problem_of(lambda n=n: stopped_at_once(scratch / f"twice-{n}"), "a second signal"))
    return count(problems, "" if tier == "small" else "20 signals, 3 times a second one")


# --- workers of a study -----------------------------------------------------------------------------------------------


class Killer:
    """Watches the table of a study and kills workers, a job at most twice: the third attempt must end it."""

    def __init__(self, out: Path, kills: int) -> None:
        self.out, self.left = out, kills
        self.rng = random.Random(0)
        self.killed: dict[tuple[str, int], int] = {}  # by job and attempt, the signal's pid
        self.due: dict[tuple[str, int], float] = {}

    def __call__(self, table: list[Progress]) -> None:
        for entry in table:
            process, key = entry.process, (entry.job.name, entry.attempts)
            if entry.state != "running" or process is None or not self.left or entry.attempts > 2 or key in self.killed:
                continue
            # Some die while they import and compile, others once they have saved something.
            saved = any((run_directory(self.out, entry.job) / "checkpoints").glob("step-*"))
            due = self.due.setdefault(key, time.monotonic() + self.rng.uniform(1.0, 20.0))
            if process.poll() is None and (saved or time.monotonic() > due):
                os.kill(process.pid, signal.SIGKILL)
                self.killed[key] = process.pid
                self.left -= 1


def workers(tier: Tier, scratch: Path) -> Outcome:
    """Every job has one record, one row per evaluation, and the first one the state of a run that nobody killed."""
    number, kills = (24, 22) if tier == "full" else (1, 1)
    settings = {"width": 8, "batch": 8, "capacity": 300, "learning_starts": 50}
    base = RunConfig("grid-0", "vanilla", steps=400, evaluations=4, episodes=2, checkpoint_every=50, agent=settings)
    out = scratch / "results" / "study"  # a study takes over records beside it: nothing must lie there
    jobs = [Job("grid-0", replace(base, seed=seed)) for seed in range(number)]
    killer = Killer(out, kills)
    table = run_local(jobs, out, show=killer, keep_runs=True, poll=0.02)
    problems = [problem_of(lambda e=entry: _once(out, e), entry.job.name) for entry in table]
    problems.append(None if len(killer.killed) == kills else f"only {len(killer.killed)} workers were killed")
    problems.append(problem_of(lambda: _as_if_never_killed(out, jobs[0]), "never killed"))
    again = run_local(jobs, out, poll=0.02)
    started = sum(entry.attempts for entry in again)
    problems.append(None if not started else f"{started} finished jobs were run again")
    lost = sum(entry.state != "finished" for entry in table)
    return count(problems, f"{number} jobs, {len(killer.killed)} kills, {lost} lost")


def _once(out: Path, entry: Progress) -> None:
    require(entry.state == "finished", f"{entry.state}: {entry.reason}")
    directory = record_directory(out, entry.job)
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    require([row["step"] for row in rows] == [100, 200, 300, 400], f"rows at {[row['step'] for row in rows]}")
    record = json.loads((directory / "record.json").read_text())
    require(record["digest"] == entry.job.digest and record["attempts"] == entry.attempts, f"{record}")
    require(record["fingerprint"] == fingerprint(run_directory(out, entry.job)), "the record is of another run")


def _as_if_never_killed(out: Path, job: Job) -> None:
    config, _ = arguments_of(out, job)
    done = python("-m", WORKER, config, str(out / "whole"))
    require(done.returncode == 0, done.stderr[-200:])
    record = json.loads((record_directory(out, job) / "record.json").read_text())
    require(fingerprint(out / "whole") == record["fingerprint"], "another state than that of a run nobody killed")
