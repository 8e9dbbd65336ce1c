"""SIGKILL: a run that is killed again and again and resumed each time is the run that was never interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from counting import TESTS, Outcome, Tier, count, last_line, python, symbreak
from test_checkpoint import KILLED_AT_EACH_POINT
from test_resume import CHILD, EVERY, GATE, TINY, VANILLA, Case, fingerprint_of, start

from symbreak.errors import StorageFault
from symbreak.storage.checkpoint import NAME

# A place and a number: an environment step (the agent learns from 100 on, the gate from 250 on); a call inside of a
# save that brings something to the disk; and from outside, hundredths of a second after the start (while it imports and
# compiles) or thousandths of a second after the next checkpoint has appeared.
KILLS = (
    *(("step", 1), ("start", 20), ("step", 40), ("step", 99), ("save", 0), ("step", 100), ("step", 101)),
    *(("save", 2), ("start", 120), ("step", 249), ("step", 250), ("step", 251), ("save", 1), ("save", 3)),
    *(("save", 5), ("save", 7), ("step", 401), ("next", 3), ("save", 4), ("next", 9)),
)
PARTIAL = (*TINY, *GATE)
UNROUTED = ("agent.route=false",)  # for the small tier: routing compiles long
WIDER = ("agent.width=80", "gate.width=80", "gate.predictor_width=80")  # the least that tensors of SO(3) take
CASES = {
    name: Case(name, (name, *EVERY), KILLS, 900, (*PARTIAL, *(WIDER if name == "fetch-reach" else ())))
    for name in ("grid-20", "hopper", "ant", "fetch-reach")
}
FEW = (("step", 100), ("save", 2), ("step", 251))
# Inside of the third save: a row of metrics was written since the second, and must be undone.
SMALL = replace(VANILLA, kills=(("save", 13),))


def killed_from_outside(command: list[str], directory: Path, place: str, number: int) -> int:
    """Started like any other, and killed at a moment that nothing inside of it decides."""
    before = checkpoints_in(directory)
    process = start(command)
    until = time.monotonic() + 900
    while place == "next" and checkpoints_in(directory) <= before and process.poll() is None:
        if time.monotonic() > until:
            break
        time.sleep(0.001)
    time.sleep(number / (100 if place == "start" else 1000))
    process.kill()
    process.communicate()
    return process.returncode


def checkpoints_in(directory: Path) -> set[str]:
    return {path.name for path in (directory / "checkpoints").glob("step-*")}


def printed(directory: Path, commands: bool) -> str:
    if commands:
        return symbreak("fingerprint", directory).stdout
    try:
        return fingerprint_of(directory) + "\n"
    except StorageFault as fault:
        return str(fault)


def kill_again_and_again(case: Case, scratch: Path, *, commands: bool = True) -> Outcome:
    """Each kill counts when the process died of it and left nothing half-written under a real name.

    Fingerprints are asked for by command, or in this process, which is quicker.
    """
    whole, killed = scratch / f"{case.name}-whole", scratch / f"{case.name}-killed"
    done = python("-c", CHILD, "", "0", *case.command(whole))
    if done.returncode != 0:
        return Outcome(0, len(case.kills), (f"{case.name}: the whole run failed: {last_line(done)}",))
    command, problems = case.command(killed), []
    for place, number in case.kills:
        if place in ("start", "next"):
            code = killed_from_outside(command, killed, place, number)
            died, said = code == -signal.SIGKILL, f"exit code {code}"
        else:
            result = python("-c", CHILD, place, str(number), *command)
            died, said = result.returncode == -signal.SIGKILL, last_line(result)
        names = [path.name for path in (killed / "checkpoints").iterdir()]
        sound = all(NAME.fullmatch(name) or name.startswith(".saving-") for name in names)
        problems.append(None if died and sound else f"{case.name}: killed at {place} {number}: {said}, {names}")
        command = ["resume", str(killed), "--quiet"]
    end = python("-c", CHILD, "", "0", *command)
    outcome = count(problems)
    wrong = list(outcome.wrong)
    if (end.returncode, end.stderr) != (0, ""):
        wrong.append(f"{case.name}: the last resume ended with {end.returncode}: {last_line(end)}")
    prints = [printed(directory, commands) for directory in (whole, killed)]
    if len(prints[0]) != 65 or prints[0] != prints[1]:
        wrong.append(f"{case.name}: the fingerprints differ: {prints}")
    if (killed / "metrics.jsonl").read_bytes() != (whole / "metrics.jsonl").read_bytes():
        wrong.append(f"{case.name}: metrics.jsonl differs")
    status = json.loads((killed / "status.json").read_text())
    expected = json.loads((whole / "status.json").read_text()) | {
        "state": "finished",
        "step": case.steps,
        "exact": True,
    }
    if status != expected:
        wrong.append(f"{case.name}: {status}")
    good = outcome.good if not wrong else 0
    return Outcome(good, outcome.of, tuple(wrong), f"{case.name} {good}/{outcome.of}")


def killed_and_resumed(tier: Tier, scratch: Path, name: str) -> Outcome:
    if tier == "full":
        return kill_again_and_again(CASES[name], scratch)
    case = CASES[name]
    few = SMALL if name == "grid-20" else replace(case, kills=FEW, settings=(*case.settings, *UNROUTED))
    return kill_again_and_again(few, scratch, commands=False)


def killed_while_saving(tier: Tier, scratch: Path) -> Outcome:
    """At each call of a save that changes the disk, and in the middle of each write; the script checks each point."""
    command = [sys.executable, "-c", KILLED_AT_EACH_POINT, str(scratch), str(TESTS / "storage")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Outcome(0, 1, (last_line(done),))
    outcomes = json.loads(done.stdout)
    points = [*outcomes["whole"], *outcomes["torn"]]
    problems = [None if step in (40, 50) else f"step {step} was loaded" for step in points]
    problems += [None if outcomes["whole"] == sorted(outcomes["whole"]) else "a checkpoint was there and went again"]
    problems += [None if len(points) > 40 else f"only {len(points)} points"]
    return count(problems, f"{len(outcomes['whole'])} calls and {len(outcomes['torn'])} torn writes")
