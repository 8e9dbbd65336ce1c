"""A run killed at any moment and resumed is the run that was never interrupted, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from symbreak.process.watch import GRACE
from symbreak.storage.checkpoint import NAME

# Starts or resumes a run in a process that kills itself: at an environment step, or at the n-th time that something is
# brought to the disk once a step has been reached, which is inside of a save.
CHILD = """
import os, signal, sys, time
from symbreak.process.cores import use_one_core
use_one_core()
place, number, *command = sys.argv[1:]
from symbreak import cli
from symbreak.training import drivers
number = int(number)
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
drivers.CompiledDriver.write_maps = lambda self, directory: None
if place == "step":
    for kind in (drivers.CompiledDriver, drivers.HostedDriver):
        def run(self, start, steps, run=kind.run):
            if start < number <= start + steps:
                run(self, start, number - start)
                die()
            run(self, start, steps)
        kind.run = run
if place == "hang":
    def run(self, start, steps):
        print("hangs", flush=True)
        time.sleep(60)
    drivers.CompiledDriver.run = run
if place == "save":
    fsync, left = os.fsync, [number]
    from symbreak.storage.checkpoint import Checkpoints
    save = Checkpoints.save
    def dying(descriptor):
        left[0] -= 1
        if left[0] < 0:
            die()
        fsync(descriptor)
    def saving(*arguments):
        os.fsync = dying
        path = save(*arguments)
        os.fsync = fsync
        return path
    Checkpoints.save = saving
sys.argv = ["symbreak", *command]
cli.main()
"""


@dataclass(frozen=True)
class Case:
    """A small run of a kind; steps at which killing is likely to hurt."""

    name: str
    arguments: tuple[str, ...]
    kills: tuple[tuple[str, int], ...]
    steps: int
    settings: tuple[str, ...] = field(default=())

    def command(self, directory: Path) -> list[str]:
        settings = ("--set", *self.settings) if self.settings else ()
        return ["train", *self.arguments, "--steps", str(self.steps), *settings, "--out", str(directory), "--quiet"]


TINY = ("agent.width=16", "agent.batch=16", "agent.learning_starts=100", "agent.capacity=350")
GATE = ("gate.width=16", "gate.predictor_width=16", "gate.warmup=250")
EVERY = ("--checkpoint-every", "90", "--evaluations", "3", "--episodes", "2")
WARM_UP = (("step", 40), ("step", 100), ("save", 2), ("step", 249), ("step", 251))
SAVES = (("save", 0), ("save", 3), ("save", 5), ("save", 7), ("step", 401), ("step", 599))
VANILLA = Case(
    "vanilla DQN",
    ("grid-0", "--method", "vanilla", *EVERY),
    (("step", 99), ("save", 4)),
    600,
    TINY,
)
GRID = Case("PE-DQN on a grid", ("grid-20", *EVERY), WARM_UP + SAVES, 600, TINY + GATE)
HOPPER = Case("PE-SAC on Hopper", ("hopper", *EVERY), WARM_UP + SAVES, 600, TINY + GATE)
CASES = [VANILLA, GRID, HOPPER]


def child(place: str, number: int, command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-c", CHILD, place, str(number), *command], capture_output=True, text=True, env=environment
    )


def fingerprint_of(directory: Path) -> str:
    from symbreak.training.inspection import fingerprint

    return fingerprint(directory)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_killed_and_resumed_is_never_interrupted(case, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert child("", 0, case.command(whole)).returncode == 0
    command, deaths = case.command(killed), 0
    for place, number in case.kills:
        result = child(place, number, command)
        assert result.returncode == -signal.SIGKILL, result.stderr
        deaths += 1
        names = [path.name for path in (killed / "checkpoints").iterdir()]
        assert all(NAME.fullmatch(name) or name.startswith(".saving-") for name in names)
        command = ["resume", str(killed), "--quiet"]
    result = child("", 0, command)
    assert (result.returncode, result.stderr) == (0, "")
    assert deaths == len(case.kills)
    assert fingerprint_of(killed) == fingerprint_of(whole)
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    status = json.loads((killed / "status.json").read_text())
    assert status == json.loads((whole / "status.json").read_text())
    assert (status["state"], status["step"], status["exact"]) == ("finished", case.steps, True)


def start(command: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    arguments = [sys.executable, "-m", "symbreak", *command]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def hanging(command: list[str]) -> subprocess.Popen[str]:
    """A run that has come to its first steps and never gets through them."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    arguments = [sys.executable, "-c", CHILD, "hang", "0", *command]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert any(line == "hangs\n" for line in process.stdout), process.communicate()
    return process


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "times"),
    [
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.slow),
        (signal.SIGTERM, 1),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.slow),  # from two who stop a group of processes
    ],
)
def test_a_signal_saves_and_ends_with_75_and_the_way_to_go_on(number, times, tmp_path):
    directory = tmp_path / "run"
    process = start(Case("", VANILLA.arguments, (), 10_000_000, TINY).command(directory))
    wait_for(lambda: (directory / "checkpoints").is_dir() and any((directory / "checkpoints").iterdir()), process)
    sent = time.monotonic()
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.1)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - sent < 10
    assert process.returncode == 75
    assert said.strip().splitlines()[-1].startswith(f"error[interrupted]: stopped by {number.name}")
    assert f"symbreak resume {directory}" in said
    status = json.loads((directory / "status.json").read_text())
    newest = sorted((directory / "checkpoints").iterdir())[-1]
    assert status["state"] == "interrupted"
    assert newest.name == f"step-{status['step']:012d}"


def test_a_signal_while_nothing_answers_ends_with_75_all_the_same(tmp_path):
    # Right after the start: JAX is being imported or compiles, and the interpreter hears nothing for long.
    directory = tmp_path / "run"
    process = start(VANILLA.command(directory))
    wait_for(lambda: (directory / "config.json").exists(), process)
    process.send_signal(signal.SIGTERM)
    sent = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 75
    assert time.monotonic() - sent < GRACE + 6


def test_a_second_signal_ends_at_once(tmp_path):
    process = hanging(VANILLA.command(tmp_path / "run"))
    process.send_signal(signal.SIGINT)
    time.sleep(2)  # a busy process hears the first one late, and two within half a second are one
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "stopped at once by a second signal" in said
    assert time.monotonic() - sent < 4  # without a second one up to 8 seconds after the first


def test_signals_until_the_process_is_gone_do_not_change_its_answer(tmp_path):
    # The first one is heeded and all is saved; leaving the interpreter then takes a moment in which it handles none.
    directory = tmp_path / "run"
    process = start(Case("", VANILLA.arguments, (), 10_000_000, TINY).command(directory))
    wait_for(lambda: (directory / "checkpoints").is_dir() and any((directory / "checkpoints").iterdir()), process)
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    process.communicate(timeout=1)
    assert process.returncode == 75


@pytest.mark.slow
def test_directories_on_the_command_line(tmp_path):
    directory = tmp_path / "run"
    short = Case("", ("grid-0", "--method", "vanilla", "--evaluations", "1", "--episodes", "2"), (), 60, TINY)
    assert child("step", 50, short.command(directory)).returncode == -signal.SIGKILL
    refused = child("", 0, short.command(directory))
    assert refused.returncode == 2
    assert refused.stderr == (
        f"error[input]: {directory} holds an unfinished run; continue it with: symbreak resume {directory}\n"
    )
    nothing = child("", 0, ["verify", str(directory)])
    assert nothing.returncode == 5
    assert nothing.stderr.startswith("error[storage]: ")
    assert child("", 0, ["resume", str(directory)]).returncode == 0
    for command in (short.command(directory), ["resume", str(directory)]):
        again = child("", 0, command)
        assert again.returncode == 0
        assert "finished run of 60 steps; nothing to do" in again.stdout
        assert len(again.stdout.splitlines()) == 1
    printed = child("", 0, ["fingerprint", str(directory)])
    assert printed.stdout == fingerprint_of(directory) + "\n"
    good = child("", 0, ["verify", str(directory)])
    assert (good.returncode, good.stdout) == (0, "step-000000000060: good\n")
