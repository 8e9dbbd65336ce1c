"""Symmetries that do not fit, matrices that are no representation, declarations that are wrong, bad settings."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path

import gymnasium as gym
import numpy as np
import test_audit_tasks
import test_representations
from counting import Outcome, Tier, count, fails, problem_of, require, symbreak, together
from gymnasium.spaces import Box, Discrete

from symbreak.agents.dqn import DQNConfig
from symbreak.agents.sac import SACConfig
from symbreak.errors import InputError
from symbreak.gates.config import GateConfig
from symbreak.gates.threshold import ThresholdRule
from symbreak.symmetry import Layout, Symmetry, Z
from symbreak.tasks import get_task
from symbreak.training.choice import choose_task
from symbreak.training.run import Run, RunConfig
from symbreak.training.settings import parse_config, parse_parts

# --- symmetries that do not fit ---------------------------------------------------------------------------------------


class Untouched(gym.Env):
    """Spaces and nothing else: whoever resets or steps it came too far."""

    def __init__(self, observation: int, action: int, discrete: bool) -> None:
        self.observation_space = Box(-1.0, 1.0, (observation,), np.float32)
        self.action_space = Discrete(action) if discrete else Box(-1.0, 1.0, (action,), np.float32)

    def reset(self, *, seed=None, options=None):
        raise AssertionError("it was reset")


def declared(observation: int, action: int, discrete: bool) -> Symmetry:
    mirror = Z(2)
    acting = {"moves": mirror.permutation("moves", [range(action)]) if discrete else action * mirror.sign}
    seeing = {"first": mirror.trivial, "others": (observation - 1) * mirror.sign}
    return Symmetry(Layout(seeing), Layout(acting), discrete=discrete, name="mine")


def refused(has: tuple[int, int, bool], says: tuple[int, int, bool]) -> None:
    """Both sides, and the fields of the side that was declared, before anything is reset or compiled."""

    def go_on() -> None:
        task = choose_task(lambda: Untouched(*has), declared(*says))
        Run.create(RunConfig(task.name, "vanilla", "mine", steps=10), task=task)

    said = fails(go_on, InputError)
    require(InputError.exit_code == 2 and "'mine' does not fit the environment" in said, said)
    if has[0] != says[0]:
        sides = f"the observation has {has[0]} entries, the symmetry {says[0]} (first 1, others {says[0] - 1})"
        require(sides in said, said)
    if has[1] != says[1]:
        counted = f"there are {has[1]} actions" if has[2] else f"the action has {has[1]} entries"
        require(f"{counted}, the symmetry {says[1]} (moves {says[1]})" in said, said)
    if has[2] != says[2]:
        require("discrete" in said and "continuous" in said, said)


def misfits(tier: Tier, scratch: Path) -> Outcome:
    rng, cases = random.Random(0), []
    while len(cases) < 30:
        has = (rng.randint(2, 12), rng.randint(2, 8), rng.random() < 0.5)
        says = tuple(rng.choice((own, other)) for own, other in zip(has, (3, 4, not has[2]), strict=True))
        if says != has:
            cases.append((has, says))
    return count(problem_of(lambda c=c: refused(*c), str(c)) for c in (cases if tier == "full" else cases[:10]))


# --- no representation ------------------------------------------------------------------------------------------------


def representations(tier: Tier, scratch: Path) -> Outcome:
    number = 500 if tier == "full" else 60
    wrong = test_representations.test_others_are_refused.hypothesis.inner_test
    right = test_representations.test_valid_representations_are_accepted.hypothesis.inner_test
    kinds, groups = test_representations.WRONG, test_representations.GROUPS
    rejected = count(problem_of(lambda n=n: wrong(kinds[n % len(kinds)], n), f"wrong {n}") for n in range(number))
    accepted = count(problem_of(lambda n=n: right(groups[n % len(groups)], n), f"valid {n}") for n in range(number))
    note = f"{rejected.good}/{number} rejected, {accepted.good}/{number} accepted"
    return together([rejected, accepted], note)


# --- no symmetry of the environment -----------------------------------------------------------------------------------


def audited(tier: Tier, scratch: Path) -> Outcome:
    swimmer = test_audit_tasks.test_the_papers_swimmer_is_flagged_at_the_sideways_velocity
    exact = test_audit_tasks.test_exact_symmetries_are_clean_including_the_reward
    cases = {
        "the paper's Swimmer": lambda: swimmer(seed=0),
        "the paper's Ant": test_audit_tasks.test_the_papers_ant_is_flagged_at_legs_and_torso,
        "the exact Swimmer": lambda: exact("swimmer", seed=0),
        "the exact Ant": lambda: exact("ant", seed=0),
    }
    chosen = cases if tier == "full" else {name: case for name, case in cases.items() if "Swimmer" in name}
    return count(problem_of(case, name) for name, case in chosen.items())


# --- bad settings -----------------------------------------------------------------------------------------------------

VALUES = {
    *(("steps", value) for value in (0, -5, 1.5, "many", True)),
    *(("evaluations", value) for value in (0, -1, "few")),
    *(("seed", value) for value in (-1, None, 0.5)),
    *(("environment_timeout", value) for value in (0, -1.0, "long", float("inf"))),
    *(("agent", value) for value in (7, "wide")),
    *(("checkpoint_every", 0), ("log_every", 0), ("episodes", 0), ("preset", 3), ("task", 7), ("method", None)),
}


def misspelled(name: str, rng: random.Random) -> str:
    """One letter lost, doubled or exchanged with the next."""
    place = rng.randrange(len(name) - 1)
    lost, doubled = name[:place] + name[place + 1 :], name[: place + 1] + name[place:]
    exchanged = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    return rng.choice([lost, doubled, exchanged])


def nearest(kind: type, name: str, wrong: str) -> None:
    """The key that was meant, and no other, is suggested."""
    table = {"task": "grid-20", "steps": 100}
    if kind is RunConfig:
        said = fails(lambda: parse_config({**table, wrong: 1}), InputError)
    else:
        part, algorithm = ("gate", "dqn") if kind in (GateConfig, ThresholdRule) else ("agent", kind.__name__[:3])
        value = {"threshold": {wrong: 1}} if kind is ThresholdRule else {wrong: 1}
        config = parse_config({**table, part: value})
        said = fails(lambda: parse_parts(config, algorithm.lower()), InputError)
    require(f"there is no {wrong!r}; did you mean {name!r}?" in said, said)


def valued(name: str, value: object) -> None:
    said = fails(lambda: parse_config({"task": "grid-20", "steps": 100, name: value}), InputError)
    require(f": {name} is " in said, said)


def _suggests(task: str) -> bool:
    return "did you mean" in fails(lambda: get_task(task), InputError)


def bad_settings(tier: Tier, scratch: Path) -> Outcome:
    rng, problems = random.Random(0), []
    for kind in (RunConfig, DQNConfig, SACConfig, GateConfig, ThresholdRule):
        known = {entry.name for entry in fields(kind)}
        for name in sorted(known):
            wrong = misspelled(name, rng)
            while wrong in known:
                wrong = misspelled(name, rng)
            problems.append(problem_of(lambda a=(kind, name, wrong): nearest(*a), f"{kind.__name__}.{wrong}"))
    spelled = len(problems)
    problems += [problem_of(lambda p=p: valued(*p), str(p)) for p in sorted(VALUES, key=str)]
    for wrong in ("grid20", "hoper", "fetch-rech"):
        problems.append(problem_of(lambda w=wrong: require(_suggests(w), w), wrong))
    if tier == "full":
        for options, key in ((("--set", "agent.widht=3"), "width"), (("--set", "gate.warm_up=3"), "warmup")):
            done = symbreak("train", "grid-20", *options, "--out", scratch / key)
            right = done.returncode == 2 and done.stderr.startswith("error[input]: ") and f"mean {key!r}" in done.stderr
            problems.append(None if right and not (scratch / key).exists() else done.stderr[-200:])
    return count(problems, f"{spelled} misspelled keys, each answered with the nearest one")
