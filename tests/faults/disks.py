"""Full, read-only and vanished disks, and two processes in one directory."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import test_checkpoint
from counting import Outcome, Tier, count, fails, last_line, problem_of, python, require, symbreak, together
from test_directory import HOLD
from test_run import POINT, finish, point_task

from symbreak.errors import StorageFault
from symbreak.training.inspection import fingerprint, verify
from symbreak.training.run import Run, RunConfig


@contextmanager
def small_disk(scratch: Path) -> Iterator[Path | None]:
    """A file system of its own, of one megabyte; none where this process may not mount one."""
    place = Path(tempfile.mkdtemp(dir=scratch))
    options = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    mounted = shutil.which("mount") and subprocess.run(options, capture_output=True, check=False).returncode == 0
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], capture_output=True, check=True)


def fill(disk: Path) -> Path:
    path = disk / "filler"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return path


def make_read_only(disk: Path) -> None:
    """The run's checkpoints; the kernel refuses it for a whole disk on which files are being written."""
    place = str(disk / "run" / "checkpoints")
    subprocess.run(["mount", "--bind", place, place], capture_output=True, check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", place], capture_output=True, check=True)


def make_writable(disk: Path) -> None:
    subprocess.run(["umount", str(disk / "run" / "checkpoints")], capture_output=True, check=True)


def _survives(parent: Path, whole: Path, break_it: Callable[[Path], object], mend: Callable[[Path], object]) -> None:
    """Break the disk under a run: exit 5, older checkpoints intact, and once mended it goes on to the same end."""
    directory = parent / "run"
    run = Run.create(POINT, directory, task=point_task())
    run.advance(150)
    before = test_checkpoint.tree_of(directory / "checkpoints")
    break_it(parent)

    def go_on() -> None:
        with run:
            run.advance()

    said = fails(go_on, StorageFault)
    require(StorageFault.exit_code == 5 and str(directory) in said, said)
    mend(parent)
    require(test_checkpoint.tree_of(directory / "checkpoints") == before, "older checkpoints have changed")
    with Run.open(directory, task=point_task()) as again:
        again.advance()
    require(fingerprint(directory) == fingerprint(whole), "another end")


def failing_disks(tier: Tier, scratch: Path) -> Outcome:
    whole = scratch / "whole"
    finish(POINT, whole)
    away = scratch / "away"
    problems, note = [], ""
    (scratch / "vanished").mkdir()
    problems.append(
        problem_of(
            lambda: _survives(
                scratch / "vanished",
                whole,
                lambda parent: (parent / "run").rename(away),
                lambda parent: away.rename(parent / "run"),
            ),
            "vanished",
        )
    )
    with small_disk(scratch) as disk:
        if disk is None:
            note = "full and read-only disks were skipped: this process may not mount one"
        else:
            full = (fill, lambda parent: (parent / "filler").unlink())
            for name, (break_it, mend) in {"full": full, "read-only": (make_read_only, make_writable)}.items():
                problems.append(problem_of(lambda b=break_it, m=mend: _survives(disk, whole, b, m), name))
                shutil.rmtree(disk / "run", ignore_errors=True)
            fill(disk)
            said = lambda: fails(lambda: Run.create(POINT, disk / "new", task=point_task()), StorageFault)  # noqa: E731
            problems.append(problem_of(lambda: require(str(disk) in said(), "not named"), "full from the start"))
            if tier == "full":
                (disk / "filler").unlink()
                shutil.rmtree(disk / "new", ignore_errors=True)
                problems.append(problem_of(lambda: _command_line_on_a_full_disk(disk), "full, on the command line"))
    return count(problems, note)


def _command_line_on_a_full_disk(disk: Path) -> None:
    """The replay of this run alone is larger than the disk."""
    tiny = ("agent.width=8", "agent.batch=8", "agent.learning_starts=90000")
    options = ("--method", "vanilla", "--evaluations", "1", "--episodes", "2", "--checkpoint-every", "5000")
    done = symbreak("train", "grid-0", *options, "--steps", "90000", "--set", *tiny, "--out", disk / "cli", "--quiet")
    require(done.returncode == 5 and done.stderr.startswith("error[storage]: "), last_line(done))
    require("No space left" in done.stderr and len(done.stderr.splitlines()) == 1, last_line(done))
    verdict = verify(disk / "cli")
    require(verdict.good == len(verdict.checkpoints) >= 1, "an older checkpoint is damaged")


# --- one directory, one process ---------------------------------------------------------------------------------------

# Two processes try to take the same directory at the same moment; one must get it, and the other be told who has it.
# In every `dying`-th round the one that has it dies without giving it back, and leaves its name to the next round.
RACES = """
import json, os, sys
from pathlib import Path
from symbreak.errors import StorageFault
from symbreak.training.record import Record
directory, rounds, dying = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
found = []
for number in range(rounds):
    gate, answers, end = os.pipe(), os.pipe(), os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os.close(gate[1]), os.close(end[1])
            os.read(gate[0], 1)
            try:
                record = Record.open(directory)
                answer = {"pid": os.getpid(), "held": True}
            except StorageFault as fault:
                answer = {"pid": os.getpid(), "held": False, "said": str(fault), "code": fault.exit_code}
            os.write(answers[1], (json.dumps(answer) + "\\n").encode())
            os.read(end[0], 1)  # until both have answered
            if answer["held"] and (not dying or number % dying):
                record.close()
            os._exit(0)
        children.append(child)
    os.close(gate[1])
    with os.fdopen(answers[0]) as stream:
        found.append([json.loads(stream.readline()) for _ in range(2)])
    for descriptor in (gate[0], answers[1], end[0], end[1]):
        os.close(descriptor)
    for child in children:
        os.waitpid(child, 0)
print(json.dumps(found))
"""


def one_directory(tier: Tier, scratch: Path) -> Outcome:
    rounds = 50 if tier == "full" else 8
    done = python("-c", RACES, str(scratch), str(rounds), "2" if tier == "full" else "0")
    if done.returncode != 0:
        return Outcome(0, rounds, (last_line(done),))
    problems = []
    for answers in json.loads(done.stdout):
        held = [answer for answer in answers if answer["held"]]
        refused = [answer for answer in answers if not answer["held"]]
        named = held and refused and f"host {socket.gethostname()}, pid {held[0]['pid']};" in refused[0]["said"]
        right = len(held) == 1 and named and refused[0]["code"] == 5
        problems.append(None if right else f"both or none: {answers}")
    return together([count(problems), *([_refused_on_the_command_line(scratch)] if tier == "full" else [])])


def _refused_on_the_command_line(scratch: Path) -> Outcome:
    """A run is resumed while another process, which is no child of this one's, has its directory."""
    directory = scratch / "run"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(RunConfig("grid-0").to_json()))
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(directory)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        require(holder.stdout.readline() == "held\n", "the lock is held")
        done = symbreak("resume", directory, "--quiet")
    finally:
        holder.kill()
        holder.communicate()
    named = f"is in use by host {socket.gethostname()}, pid {holder.pid};" in done.stderr
    return count([None if done.returncode == 5 and named else last_line(done)])
